//! The machine of one test: simulated devices, a daemon of its own, programs on them.
//!
//! Folders are short (socket paths are), everything is removed at the end, and nothing in it can
//! reach another test's daemon. The physical memory of the devices is looked at from outside, so
//! that what Turnus says about itself is never the proof.

use crate::artifacts;
use crate::process::{LOOK, Outcome, Program, tail};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use turnus_protocol::admin::{AdminRequest, Status, TenantStatus};
use turnus_protocol::paths::{ADMIN_SOCKET, MEMBER_SOCKET, SOCKET_VARIABLE};
use turnus_scheduler::cli::contact;
use turnus_simulated_arena::{Arena, ArenaConfig, DeviceConfig, TemporaryMachine};

/// The longest that anything in a test may take; far more than it needs, since machines are busy.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Memory of a simulated device.
pub const DEVICE_BYTES: u64 = 16 << 20;
/// What a context takes of it.
pub const CONTEXT_BYTES: u64 = 1 << 20;

/// What a sandbox is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Number of devices, all alike.
    pub devices: usize,
    /// Memory of each.
    pub device_bytes: u64,
    /// Rate of the link in each direction, in bytes per second.
    pub link_bytes_per_s: u64,
    /// How long freed memory stays unavailable on the device.
    pub scrub_delay_ms: u64,
    /// Options of the daemon after those that every sandbox gives.
    pub daemon: Vec<String>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            devices: 1,
            device_bytes: DEVICE_BYTES,
            link_bytes_per_s: 400_000_000,
            scrub_delay_ms: 3,
            daemon: Vec::new(),
        }
    }
}

impl Setup {
    /// With these options of the daemon; later ones win.
    pub fn daemon(mut self, options: &[&str]) -> Setup {
        self.daemon.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    fn config(&self) -> ArenaConfig {
        let device = DeviceConfig {
            memory_bytes: self.device_bytes,
            granularity_bytes: 64 << 10,
            host_to_device_bytes_per_s: self.link_bytes_per_s,
            device_to_host_bytes_per_s: self.link_bytes_per_s,
            duplex_bytes_per_s: self.link_bytes_per_s / 4 * 3,
            context_bytes: CONTEXT_BYTES,
            context_cost_us: 5000.0,
            module_bytes: 64 << 10,
            ..DeviceConfig::default()
        };
        ArenaConfig {
            scale: 1,
            scrub_delay_ms: self.scrub_delay_ms,
            devices: vec![device; self.devices],
            ..ArenaConfig::default()
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Sandbox {
    folder: PathBuf,
    arena: Arc<Arena>,
    // Declared after the arena: the directory goes last.
    machine: TemporaryMachine,
    setup: Setup,
    daemon: Option<Program>,
}

impl Sandbox {
    /// A machine with a running daemon.
    pub fn new(setup: Setup) -> Sandbox {
        let mut sandbox = Sandbox::without_daemon(setup);
        sandbox.start_daemon();
        sandbox
    }

    /// A machine without one.
    pub fn without_daemon(setup: Setup) -> Sandbox {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tt-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the sandbox");
        let machine = TemporaryMachine::new(&setup.config()).expect("a simulated machine");
        let arena = Arena::open_at(machine.directory()).expect("the simulated machine opens");
        Sandbox { folder, arena, machine, setup, daemon: None }
    }

    /// The sandbox's own folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The daemon's directory.
    pub fn directory(&self) -> PathBuf {
        self.folder.join("d")
    }

    /// The members' socket.
    pub fn socket(&self) -> PathBuf {
        self.directory().join(MEMBER_SOCKET)
    }

    /// The command line of this sandbox's daemon; more options may follow.
    pub fn daemon_command(&self, directory: &Path) -> Command {
        let mut command = Command::new(artifacts::turnusd());
        command.arg("--directory").arg(directory);
        command.arg("--lock-directory").arg(self.folder.join("locks"));
        command.args(["--quantum-ms", "60", "--handle-bytes", "1M", "--host-pool", "512M", "--log", "debug"]);
        // If the test itself is killed, its daemon does not stay for ever.
        command.args(["--exit-when-idle-ms", "300000", "--recovery-ms", "2000"]);
        // Of an option given twice the command line takes offence; the sandbox's own choice wins.
        let mut arguments: Vec<String> =
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        for pair in self.setup.daemon.chunks(2) {
            match arguments.iter().position(|word| *word == pair[0]) {
                Some(at) => arguments[at + 1] = pair[1].clone(),
                None => arguments.extend_from_slice(pair),
            }
        }
        let mut command = Command::new(artifacts::turnusd());
        command.args(arguments).env("NO_COLOR", "1");
        clean(&mut command);
        command
    }

    /// Starts the daemon and waits until it serves.
    pub fn start_daemon(&mut self) {
        let command = self.daemon_command(&self.directory());
        self.daemon = Some(Program::start(command, "turnusd", &self.folder));
        let deadline = Instant::now() + LIMIT;
        while self.look().is_none() {
            let daemon = self.daemon.as_mut().expect("just started");
            assert!(daemon.is_running() && Instant::now() < deadline, "no daemon: {}", daemon.describe());
            sleep(LOOK);
        }
    }

    /// `kill -9` of the daemon.
    pub fn kill_daemon(&mut self) {
        self.daemon.as_mut().expect("a daemon runs").kill();
    }

    /// The daemon as a program: its log is its error output.
    pub fn daemon(&mut self) -> &mut Program {
        self.daemon.as_mut().expect("a daemon was started")
    }

    /// What the daemon has logged, all lives together if it wrote to one file each.
    pub fn daemon_log(&self) -> String {
        self.daemon.as_ref().map(Program::stderr).unwrap_or_default()
    }

    /// A program on the simulated driver, without Turnus.
    pub fn bare(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        self.prepare(&mut command);
        command
    }

    /// A program under Turnus.
    pub fn under(&self, program: &Path) -> Command {
        self.under_with(&[], program)
    }

    /// A program under Turnus, with options of `turnus run`.
    pub fn under_with(&self, options: &[&str], program: &Path) -> Command {
        let mut command = Command::new(artifacts::turnus());
        self.prepare(&mut command);
        command.env(SOCKET_VARIABLE, self.socket());
        command.arg("run").args(options).arg("--").arg(program);
        command
    }

    /// Gives a command this sandbox's devices and takes everything of Turnus away from it.
    pub fn prepare(&self, command: &mut Command) {
        clean(command);
        command.env("LD_LIBRARY_PATH", artifacts::simulated());
        command.env(turnus_simulated_arena::DIRECTORY_VARIABLE, self.machine.directory());
        command.current_dir(&self.folder);
    }

    /// Starts a command; its name is for messages.
    pub fn start(&self, name: &str, command: Command) -> Program {
        Program::start(command, name, &self.folder)
    }

    /// Runs a command to its end.
    #[track_caller]
    pub fn run(&self, name: &str, command: Command) -> Outcome {
        let mut program = self.start(name, command);
        self.wait(&mut program)
    }

    /// Runs a program without Turnus.
    #[track_caller]
    pub fn run_bare(&self, program: &Path, arguments: &[&str]) -> Outcome {
        let mut command = self.bare(program);
        command.args(arguments);
        self.run(&name_of(program), command)
    }

    /// Runs a program under Turnus.
    #[track_caller]
    pub fn run_under(&self, program: &Path, arguments: &[&str]) -> Outcome {
        let mut command = self.under(program);
        command.args(arguments);
        self.run(&name_of(program), command)
    }

    /// Starts a program under Turnus as a tenant of this name.
    pub fn start_under(&self, name: &str, program: &Path, arguments: &[&str]) -> Program {
        let mut command = self.under_with(&["--name", name], program);
        command.args(arguments);
        self.start(name, command)
    }

    /// How a program ended; one that does not end fails the test.
    #[track_caller]
    pub fn wait(&self, program: &mut Program) -> Outcome {
        match program.wait(LIMIT) {
            Some(outcome) => outcome,
            None => panic!("{} does not end\n{}", program.describe(), self.dump()),
        }
    }

    /// Waits until `check` has an answer, looking again and again; fails with a dump at the limit.
    #[track_caller]
    pub fn wait_for<T>(
        &self,
        what: &str,
        programs: &mut [&mut Program],
        mut check: impl FnMut(&mut [&mut Program]) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(answer) = check(programs) {
                return answer;
            }
            if Instant::now() > deadline {
                let described: String = programs.iter_mut().map(|program| program.describe()).collect();
                panic!("no {what} within {LIMIT:?}\n{described}\n{}", self.dump());
            }
            sleep(LOOK);
        }
    }

    /// The daemon's own document, asked directly; `None` while there is no daemon.
    pub fn look(&self) -> Option<Status> {
        let text = contact::ask(&self.directory(), AdminRequest::Status).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The tenant of this name on the first device that it has; `None` if there is none.
    pub fn tenant(&self, name: &str) -> Option<TenantStatus> {
        self.look()?.tenants.into_iter().find(|tenant| tenant.name.starts_with(name))
    }

    /// What `turnus status --json` prints.
    #[track_caller]
    pub fn status(&self) -> Status {
        let mut command = Command::new(artifacts::turnus());
        self.prepare(&mut command);
        command.env(SOCKET_VARIABLE, self.socket()).args(["status", "--json"]);
        let outcome = self.run("status", command);
        assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
        serde_json::from_str(&outcome.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", outcome.describe()))
    }

    /// Physical bytes of a device that are in use, seen from outside.
    pub fn used_bytes(&self, device: usize) -> u64 {
        let memory = self.arena.memory(device).expect("the simulated machine answers");
        memory.total_bytes - memory.free_bytes
    }

    /// The simulated machine, seen from outside.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Changes one byte in every frame of a device, as no driver ever would.
    pub fn corrupt(&self, device: usize) {
        let path = self.machine.directory().join(format!("memory-{device}"));
        let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("the device's memory");
        for at in (8..self.setup.device_bytes).step_by(64 << 10) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("memory can be read");
            file.write_all_at(&[!byte[0]], at).expect("memory can be written");
        }
    }

    /// All physical memory is free again (a dying process may need a moment), and no table contradicts itself.
    #[track_caller]
    pub fn assert_all_freed(&self) {
        for device in 0..self.setup.devices {
            self.wait_for("free device", &mut [], |_| (self.used_bytes(device) == 0).then_some(()));
        }
        assert_eq!(self.arena.contradictions().expect("tables can be read"), Vec::<String>::new());
    }

    /// Log and status, for the message of a failed test.
    pub fn dump(&self) -> String {
        let status = contact::ask(&self.directory(), AdminRequest::Status);
        let status = status.unwrap_or_else(|error| error.to_string());
        let used: Vec<u64> = (0..self.setup.devices).map(|device| self.used_bytes(device)).collect();
        format!(
            "-- daemon's log ends\n{}\n-- status\n{status}\n-- bytes in use: {used:?}",
            tail(&self.daemon_log(), 60)
        )
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        drop(self.daemon.take());
        if std::thread::panicking() {
            eprintln!("the sandbox is left in {}", self.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Takes away what the person who runs the tests may have set.
pub fn clean(command: &mut Command) {
    for name in ["TURNUS_SOCKET", "TURNUS_TOKEN", "TURNUS_LOG", "TURNUS_NOTICE", "TURNUS_WHEN_DAEMON_MISSING"]
    {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD").env_remove("SIMULATED_CUDA_DEVICES");
}

/// The admin socket of a directory.
pub fn admin_socket(directory: &Path) -> PathBuf {
    directory.join(ADMIN_SOCKET)
}

fn name_of(program: &Path) -> String {
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
