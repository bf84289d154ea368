//! Two programs on a device that can hold only one of them: the situation Turnus is for.
//!
//! Both run until each has been forced off the device several times; then both are told to stop,
//! and both must have been right about every byte.

use crate::process::Program;
use crate::sandbox::Sandbox;
use crate::workload::{Road, compile};
use std::path::PathBuf;
use turnus_protocol::admin::TenantStatus;

/// What each side uses; two of them are more than a device has, one fits well.
pub const SHARE_BYTES: u64 = 9 << 20;
/// Turns of each side before a contest may end: the first, and three after being forced off.
pub const TURNS_MIN: u64 = 4;
/// What at least must leave the device so that the other side's bytes fit: both sides' bytes, two
/// contexts and head-room are five mebibytes more than there is.
const MISSING_BYTES: u64 = 4 << 20;

/// Two programs and the file that stops both.
#[derive(Debug)]
pub struct Contest {
    /// The program under test, tenant `first`.
    pub first: Program,
    /// Chain, tenant `rival`.
    pub rival: Program,
    stop_file: PathBuf,
}

impl Contest {
    /// Starts both; the first is `program` with `arguments` and the options of all workloads.
    pub fn start(sandbox: &Sandbox, program: &std::path::Path, arguments: &[&str]) -> Contest {
        let stop_file = sandbox.folder().join("stop");
        let stop = stop_file.to_string_lossy().into_owned();
        let bytes = SHARE_BYTES.to_string();
        let common = ["--bytes", &bytes, "--stop-file", &stop];
        let first = sandbox.start_under("first", program, &[arguments, &common].concat());
        let rival = sandbox.start_under("rival", &compile("chain", Road::Dlsym), &common);
        Contest { first, rival, stop_file }
    }

    /// Waits until each side has had its turns and was forced off the device, and back, between them.
    #[track_caller]
    pub fn wait_for_switches(&mut self, sandbox: &Sandbox, turns: u64) {
        sandbox.wait_for("switches", &mut [&mut self.first, &mut self.rival], |programs| {
            let ended = programs.iter_mut().any(|program| !program.is_running());
            if ended {
                let described: String = programs.iter_mut().map(|program| program.describe()).collect();
                panic!("a side ended before the other had its turns\n{described}\n{}", sandbox.dump());
            }
            let moved_bytes = (turns - 1) * MISSING_BYTES;
            let moved = |tenant: TenantStatus| {
                tenant.turns >= turns
                    && tenant.to_host_bytes >= moved_bytes
                    && tenant.to_device_bytes >= moved_bytes
            };
            (sandbox.tenant("first").is_some_and(moved) && sandbox.tenant("rival").is_some_and(moved))
                .then_some(())
        });
    }

    /// Tells both to stop.
    pub fn stop(&self) {
        std::fs::write(&self.stop_file, "").expect("the stop file can be written");
    }

    /// Stops both, and both are right; all memory is free afterwards.
    #[track_caller]
    pub fn finish(mut self, sandbox: &Sandbox) {
        self.stop();
        sandbox.wait(&mut self.first).assert_right();
        sandbox.wait(&mut self.rival).assert_right();
        sandbox.assert_all_freed();
    }
}
