//! Surroundings of one bench: a simulated machine, a daemon with chosen settings, built programs.
//!
//! Needs the artifacts that `cargo xtask bench` builds (`TURNUS_ARTIFACTS`). Everything ends with the
//! value. The simulated devices' locks lie in the stage's own folder: they are nobody else's.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use turnus_protocol::admin::{AdminRequest, Status};
use turnus_protocol::paths::{MEMBER_SOCKET, SOCKET_VARIABLE};
use turnus_scheduler::{cli, packet};
use turnus_simulated_arena::{ArenaConfig, TemporaryMachine};

/// Surroundings of one bench.
#[derive(Debug)]
pub struct Stage {
    artifacts: PathBuf,
    machine: TemporaryMachine,
    folder: PathBuf,
    daemon: Option<Child>,
    driver: PathBuf,
}

impl Stage {
    /// Without a daemon yet.
    pub fn new(config: &ArenaConfig) -> Result<Stage> {
        let artifacts = std::env::var_os("TURNUS_ARTIFACTS").map(PathBuf::from);
        let artifacts =
            artifacts.context("TURNUS_ARTIFACTS is not set: start this bench with cargo xtask bench")?;
        let folder = std::env::temp_dir().join(format!("turnus-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let machine = TemporaryMachine::new(config)?;
        let driver = artifacts.join("simulated");
        Ok(Stage { artifacts, machine, folder, daemon: None, driver })
    }

    /// Puts a driver that does nothing in place of the simulated one.
    pub fn use_null_driver(&mut self) -> Result<()> {
        self.compile(
            "null_driver.c",
            "null/libcuda.so.1",
            &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"],
        )?;
        self.driver = self.folder.join("null");
        Ok(())
    }

    /// The folder of this bench, for files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The directory of the simulated machine.
    pub fn machine_directory(&self) -> &Path {
        self.machine.directory()
    }

    /// The members' socket of the daemon.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("daemon").join(MEMBER_SOCKET)
    }

    /// Compiles a C file of `benches/workloads` with these further words.
    pub fn compile(&self, source: &str, name: &str, words: &[&str]) -> Result<PathBuf> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(source);
        let program = self.folder.join(name);
        if let Some(folder) = program.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let status = Command::new("gcc")
            .args(["-O2", "-Wall", "-Werror", "-o"])
            .arg(&program)
            .arg(&path)
            .args(words)
            .args(["-ldl", "-lpthread"])
            .status()
            .context("gcc cannot be started")?;
        if !status.success() {
            bail!("{} cannot be compiled", path.display());
        }
        Ok(program)
    }

    /// Starts the daemon with these settings.
    pub fn start_daemon(&mut self, settings: &[&str]) -> Result<()> {
        let child = Command::new(self.artifacts.join("bin/turnusd"))
            .arg("--directory")
            .arg(self.folder.join("daemon"))
            .arg("--lock-directory")
            .arg(self.folder.join("locks"))
            .args(["--log", "warn"])
            .args(settings)
            .stdin(Stdio::null())
            .spawn()
            .context("turnusd cannot be started")?;
        self.daemon = Some(child);
        let deadline = Instant::now() + Duration::from_secs(5);
        while packet::connect(&self.socket()).is_err() {
            if Instant::now() > deadline {
                bail!("turnusd does not answer");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// A program on the stage's driver, without Turnus.
    pub fn bare(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.driver).env("SIMULATED_CUDA_DIR", self.machine.directory());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// The same under Turnus.
    pub fn under_turnus(&self, name: &str, program: &Path) -> Command {
        let mut command = self.bare(&self.artifacts.join("bin/turnus"));
        command.args(["run", "--name", name, "--"]).arg(program).env(SOCKET_VARIABLE, self.socket());
        command
    }

    /// The daemon's document.
    pub fn status(&self) -> Result<Status> {
        let text = cli::contact::ask(&self.folder.join("daemon"), AdminRequest::Status)?;
        Ok(cli::status::parse(&text)?)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // It may have ended already; then there is nothing to kill.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("{} is left behind: {error}", self.folder.display());
        }
    }
}

/// A device on which nothing costs time but its link.
pub fn quick_machine(memory_bytes: u64, link_bytes_per_s: u64) -> ArenaConfig {
    let mut config = ArenaConfig::with_devices(1);
    config.scale = 1;
    // The memory of the program that is measured first is there at once for the next.
    config.scrub_delay_ms = 0;
    let device = &mut config.devices[0];
    device.memory_bytes = memory_bytes;
    device.granularity_bytes = 64 << 10;
    device.host_to_device_bytes_per_s = link_bytes_per_s;
    device.device_to_host_bytes_per_s = link_bytes_per_s;
    device.duplex_bytes_per_s = link_bytes_per_s;
    device.device_to_device_bytes_per_s = 0;
    device.context_bytes = 1 << 20;
    device.context_cost_us = 0.0;
    device.module_bytes = 1 << 16;
    device.module_cost_us = 0.0;
    device.launch_cost_us = 0.0;
    config
}
