//! What Turnus does when a device fails: its programs end with the driver's code, and nobody else is harmed.

use std::path::Path;
use turnus_tests::{Program, Road, Sandbox, Setup, compile};

const PROGRAM_BYTES: u64 = 4 << 20;

/// A program under Turnus on the device with this index, after its first rounds.
fn program_on(sandbox: &Sandbox, device: usize, name: &str, stop_file: &Path) -> Program {
    let mut command = sandbox.under(&compile("chain", Road::Dlsym));
    command.args(["--bytes", &PROGRAM_BYTES.to_string(), "--stop-file", &stop_file.to_string_lossy()]);
    command.env("CUDA_VISIBLE_DEVICES", device.to_string());
    let mut program = sandbox.start(name, command);
    sandbox.wait_for("rounds", &mut [&mut program], |programs| (programs[0].rounds() >= 2).then_some(()));
    program
}

#[test]
fn a_device_that_falls_off_the_bus_ends_its_programs_and_no_others() {
    let sandbox = Sandbox::new(Setup { devices: 2, ..Setup::default() });
    let stop_file = sandbox.folder().join("stop");
    let mut holder = program_on(&sandbox, 0, "holder", &stop_file);
    let mut rival = program_on(&sandbox, 0, "rival", &stop_file);
    let mut other = program_on(&sandbox, 1, "other", &stop_file);
    sandbox.arena().lose_device(0).expect("the device can be lost");
    for program in [&mut holder, &mut rival] {
        let outcome = sandbox.wait(program);
        assert_eq!(outcome.code, Some(3), "{}", outcome.describe());
        assert!(outcome.stderr.contains("failed with 999"), "{}", outcome.describe());
    }
    let rounds = other.rounds();
    sandbox.wait_for("more rounds", &mut [&mut other], |programs| {
        assert!(programs[0].is_running(), "{}", programs[0].describe());
        (programs[0].rounds() >= rounds + 2).then_some(())
    });
    // The device comes back, as after a reset; the daemon has gone on.
    std::fs::remove_file(sandbox.arena().directory().join("lost-0")).expect("the marker");
    let mut next = program_on(&sandbox, 0, "next", &stop_file);
    std::fs::write(&stop_file, "").expect("stop file");
    sandbox.wait(&mut next).assert_right();
    sandbox.wait(&mut other).assert_right();
    sandbox.assert_all_freed();
}
