//! The demo's surroundings: which GPU, how much memory, and a daemon of its own.
//!
//! Everything lies in one folder below the temporary directory and goes away at the end, also
//! after a failure. On a real GPU nothing but the demo's own daemon and programs is touched, and a
//! card on which others compute is refused.

use super::DemoArguments;
use crate::cli::{Failure, find};
use crate::{exit_code, packet, size};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use turnus_protocol::paths::MEMBER_SOCKET;

/// A card of 24 GB on PCIe 4, divided by 128, so that times are those of the card.
const SIMULATED_DEVICE: &str = "scale = 128\n[[devices]]\nname = \"Simulated GPU, 24 GB and PCIe 4 divided by 128\"\nmemory_bytes = 25769803776\n";
/// Handles of 64 MiB, divided like the card.
const SIMULATED_HANDLE_BYTES: &str = "524288";

/// The demo's surroundings, until dropped.
#[derive(Debug)]
pub struct Stage {
    folder: PathBuf,
    simulated_driver: Option<PathBuf>,
    programs: PathBuf,
    daemon: Option<Child>,
    total_bytes: u64,
    /// What each program allocates.
    pub program_bytes: u64,
}

impl Stage {
    /// Chooses the GPU, looks at its memory, starts the daemon.
    pub fn set(arguments: &DemoArguments) -> Result<Stage, Failure> {
        let programs = arguments.programs.clone().or_else(|| installed_folder("demo")).ok_or_else(|| {
            Failure::plain("the demo's programs are not installed; name their folder with --programs")
        })?;
        let simulated_driver = arguments.simulated_driver.clone().or_else(|| installed_folder("simulated"));
        let folder = std::env::temp_dir().join(format!("turnus-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::plain(format!("{}: {error}", folder.display())))?;
        let mut stage = Stage {
            folder,
            simulated_driver: None,
            programs,
            daemon: None,
            total_bytes: 0,
            program_bytes: 0,
        };
        let real = if arguments.simulated { None } else { stage.query().ok() };
        let available_bytes = match real {
            Some((total_bytes, free_bytes)) => {
                refuse_busy_card(arguments.yes)?;
                stage.total_bytes = total_bytes;
                free_bytes
            }
            None => {
                stage.simulate(simulated_driver)?;
                stage.total_bytes
            }
        };
        stage.program_bytes = (available_bytes / 4 * 3) & !0xfff;
        stage.start_daemon()?;
        Ok(stage)
    }

    fn simulate(&mut self, driver: Option<PathBuf>) -> Result<(), Failure> {
        let driver = driver.filter(|folder| folder.join("libcuda.so.1").is_file()).ok_or_else(|| {
            Failure::plain(
                "no GPU here and no simulated driver installed; name its folder with --simulated-driver",
            )
        })?;
        self.simulated_driver = Some(driver);
        let machine = self.folder.join("gpu");
        std::fs::create_dir_all(&machine)
            .and_then(|()| std::fs::write(machine.join("devices.toml"), SIMULATED_DEVICE))
            .map_err(|error| Failure::plain(format!("{}: {error}", machine.display())))?;
        let (total_bytes, _) = self.query()?;
        self.total_bytes = total_bytes;
        Ok(())
    }

    /// Total and free bytes of the device, as a program without Turnus sees them.
    fn query(&self) -> Result<(u64, u64), Failure> {
        let program = self.programs.join("chain");
        let output = self
            .command(&program)
            .arg("--query")
            .output()
            .map_err(|error| Failure::plain(format!("{}: {error}", program.display())))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let number = |name: &str| -> Option<u64> {
            text.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok())
        };
        match (output.status.success(), number("total="), number("free=")) {
            (true, Some(total), Some(free)) => Ok((total, free)),
            _ => Err(Failure::plain(format!(
                "the device cannot be used: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }

    fn start_daemon(&mut self) -> Result<(), Failure> {
        let turnusd =
            find::installed("bin", "turnusd").ok_or_else(|| Failure::plain("turnusd is not installed"))?;
        let log_path = self.folder.join("turnusd.log");
        let log = std::fs::File::create(&log_path)
            .map_err(|error| Failure::plain(format!("{}: {error}", log_path.display())))?;
        let mut command = Command::new(&turnusd);
        command.arg("--directory").arg(self.directory()).args(["--exit-when-idle-ms", "60000"]);
        if self.simulated_driver.is_some() {
            command.args(["--quantum-ms", "500", "--handle-bytes", SIMULATED_HANDLE_BYTES]);
            // A simulated GPU belongs to nobody else; its lock need not be the machine's.
            command.arg("--lock-directory").arg(self.folder.join("locks"));
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.daemon = Some(child.map_err(|error| Failure::plain(format!("{}: {error}", turnusd.display())))?);
        let deadline = Instant::now() + Duration::from_secs(5);
        while packet::connect(&self.socket()).is_err() {
            if Instant::now() > deadline {
                let log = std::fs::read_to_string(&log_path).unwrap_or_default();
                return Err(Failure::plain(format!("turnusd does not start: {}", log.trim())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The daemon's directory.
    pub fn directory(&self) -> PathBuf {
        self.folder.join("daemon")
    }

    /// The members' socket.
    pub fn socket(&self) -> PathBuf {
        self.directory().join(MEMBER_SOCKET)
    }

    /// Made when the programs shall stop.
    pub fn stop_file(&self) -> PathBuf {
        self.folder.join("stop")
    }

    /// A program of the demo.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// A command that sees the demo's GPU.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(driver) = &self.simulated_driver {
            let mut path = OsString::from(driver);
            if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|rest| !rest.is_empty()) {
                path.push(":");
                path.push(rest);
            }
            command.env("LD_LIBRARY_PATH", path).env("SIMULATED_CUDA_DIR", self.folder.join("gpu"));
        }
        command
    }

    /// Two lines for the reader.
    pub fn introduction(&self) -> String {
        let kind =
            if self.simulated_driver.is_some() { "a simulated GPU" } else { "the GPU of this machine" };
        format!(
            "Two unmodified programs on {kind} of {}: each allocates {} and changes every byte of it, round\n\
             after round; both together want {}. They take turns; what does not fit waits in host memory.",
            size::show(self.total_bytes),
            size::show(self.program_bytes),
            size::show(self.program_bytes * 2),
        )
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
            eprintln!("turnus: {} is left behind: {error}", self.folder.display());
        }
    }
}

fn installed_folder(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let above = program.parent()?.parent()?;
    [above.join(name), above.join("lib/turnus").join(name)].into_iter().find(|path| path.is_dir())
}

/// Others' work on the card must not suffer from a demonstration.
fn refuse_busy_card(yes: bool) -> Result<(), Failure> {
    let list = Command::new("nvidia-smi")
        .args(["--query-compute-apps=pid,process_name", "--format=csv,noheader"])
        .output();
    let text = match list {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ if yes => return Ok(()),
        _ => {
            return Err(Failure::new(
                exit_code::DEVICE_BUSY,
                "nvidia-smi cannot tell whether others compute on the GPU; --yes goes on, --simulated uses no card",
            ));
        }
    };
    if text.is_empty() || yes {
        return Ok(());
    }
    Err(Failure::new(
        exit_code::DEVICE_BUSY,
        format!(
            "others compute on the GPU ({}); --yes goes on, --simulated uses no card",
            text.replace('\n', "; ")
        ),
    ))
}
