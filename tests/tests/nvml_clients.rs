//! Clients of NVML that NVIDIA made, on the simulated one: nvidia-ml-py and nvidia-smi, unmodified.
//!
//! While a CUDA program holds memory they must show the device, the program and its bytes as the machine's
//! tables have them. Which releases run, and what does not: the table in the simulated driver's README.

use nix::sys::signal::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use turnus_simulated_arena::{
    ArenaConfig, ComputeMode, DIRECTORY_VARIABLE, DRIVER_VERSION_VARIABLE, DeviceConfig, MigConfig,
    TemporaryMachine,
};
use turnus_tests::{Outcome, Program, Road, Sandbox, Setup, artifacts, compile};

/// What the CUDA program holds beside its context and modules.
const PROGRAM_BYTES: u64 = 8 << 20;

/// Two devices and a program on the first, stopped while it holds memory.
struct Watched {
    sandbox: Sandbox,
    program: Program,
}

impl Watched {
    fn new() -> Watched {
        let sandbox = Sandbox::without_daemon(Setup { devices: 2, ..Setup::default() });
        let mut command = sandbox.bare(&compile("chain", Road::Dlsym));
        let stop_file = sandbox.folder().join("stop");
        command.args(["--bytes", &PROGRAM_BYTES.to_string(), "--stop-file", &stop_file.to_string_lossy()]);
        let mut program = sandbox.start("chain", command);
        sandbox.wait_for("rounds", &mut [&mut program], |programs| (programs[0].rounds() >= 2).then_some(()));
        program.signal(Signal::SIGSTOP);
        Watched { sandbox, program }
    }

    /// Runs a client and expects exit code 0.
    fn watch(&self, client: &Path, arguments: &[&str], release: Option<&str>) -> Outcome {
        let mut command = self.sandbox.bare(client);
        command.args(arguments).env_remove(DRIVER_VERSION_VARIABLE);
        if let Some(release) = release {
            command.env("SIMULATED_NVML_DRIVER_VERSION", release);
        }
        let outcome = self.sandbox.run("client", command);
        assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
        outcome
    }

    fn used_bytes(&self) -> u64 {
        let used = self.sandbox.used_bytes(0);
        assert!(used > PROGRAM_BYTES, "the program holds memory");
        used
    }

    fn end(mut self) {
        self.program.signal(Signal::SIGCONT);
        fs::write(self.sandbox.folder().join("stop"), "").expect("stop file");
        self.sandbox.wait(&mut self.program).assert_right();
    }
}

/// The programs by release.
fn nvidia_smis(test: &str) -> Vec<(String, PathBuf)> {
    let Some(folder) = artifacts::nvidia_smi(test) else { return Vec::new() };
    let mut programs: Vec<(String, PathBuf)> = fs::read_dir(&folder)
        .expect("the folder of TURNUS_NVIDIA_SMI")
        .map(|entry| entry.expect("readable").path())
        .map(|path| {
            (path.file_name().expect("named").to_string_lossy().into_owned(), path.join("nvidia-smi"))
        })
        .filter(|(_, program)| program.exists())
        .collect();
    programs.sort();
    assert!(!programs.is_empty(), "no release in {}", folder.display());
    programs
}

/// The words of each line of a table in CSV.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split(", ").map(str::trim).collect()).collect()
}

#[test]
fn nvidia_ml_py_sees_devices_memory_and_processes() {
    let Some(python) = artifacts::python_clients("nvidia-ml-py on the simulated NVML") else { return };
    let script = artifacts::workspace().join("tests/workloads/clients/watch.py");
    let watched = Watched::new();
    let outcome = watched.watch(&python, &[&script.to_string_lossy()], None);
    outcome.assert_right();
    let used = watched.used_bytes();
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines[0].ends_with("cuda=13050"), "{}", lines[0]);
    assert!(lines[1].starts_with("device=0 uuid=GPU-") && lines[1].contains(&format!(" used={used} ")));
    let process = format!("process={} device=0 used={used} name=", watched.program.pid());
    assert!(lines[2].starts_with(&process) && lines[2].contains("chain"), "{}", lines[2]);
    assert!(lines[3].starts_with("device=1 ") && lines[3].contains(" used=0 "), "{}", lines[3]);
    assert_eq!(lines[4], "result=right", "no process on the second device");
    watched.end();
}

#[test]
fn nvidia_smi_shows_the_devices() {
    for (release, program) in nvidia_smis("nvidia-smi on the simulated NVML: devices") {
        let watched = Watched::new();
        let smi = |arguments: &[&str]| watched.watch(&program, arguments, Some(&release)).stdout;
        let list = smi(&["-L"]);
        assert_eq!(list.lines().count(), 2, "{list}");
        let first = list.lines().next().unwrap_or("");
        assert!(first.starts_with("GPU 0: ") && first.contains("(UUID: GPU-"), "{first}");
        let fields = "--query-gpu=index,uuid,memory.total,memory.used,utilization.gpu";
        let table = smi(&[fields, "--format=csv,noheader,nounits"]);
        let rows = rows(&table);
        assert_eq!(rows.len(), 2, "{table}");
        assert!(rows[0][0] == "0" && first.contains(rows[0][1]), "{table}");
        assert_eq!(rows[0][2], "16", "MiB in all");
        let used: u64 = rows[0][3].parse().expect("MiB in use");
        assert!(used.abs_diff(watched.used_bytes() >> 20) <= 1, "{table}");
        assert!(rows[0][4].parse::<u64>().is_ok_and(|percent| percent <= 100), "{table}");
        assert_eq!(rows[1][3], "0", "the second device is free");
        watched.end();
    }
}

#[test]
fn nvidia_smi_shows_the_processes() {
    for (release, program) in nvidia_smis("nvidia-smi on the simulated NVML: processes") {
        let watched = Watched::new();
        let smi = |arguments: &[&str]| watched.watch(&program, arguments, Some(&release)).stdout;
        let (pid, mib) = (watched.program.pid().to_string(), watched.used_bytes() >> 20);
        let apps = smi(&["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]);
        assert_eq!(rows(&apps), [[pid.as_str(), &mib.to_string()]], "{apps}");
        let overview = smi(&[]);
        assert!(overview.contains(&release) && overview.contains("CUDA Version: 13.5"), "{overview}");
        let line = overview.lines().find(|line| line.contains(&pid)).unwrap_or_else(|| panic!("{overview}"));
        assert!(line.contains("chain") && line.contains(&format!("{mib}MiB")), "{line}");
        let all = smi(&["-q"]);
        let process = format!("Process ID                        : {pid}");
        assert_eq!(all.matches(&process).count(), 1, "{all}");
        assert_eq!(all.matches("Product Architecture                  : Ampere").count(), 2, "{all}");
        assert!(all.contains("Fan Speed                             : N/A"), "a data-centre card: {all}");
        watched.end();
    }
}

#[test]
fn nvidia_smi_reports_a_lost_device() {
    for (release, program) in nvidia_smis("nvidia-smi on the simulated NVML: a lost device") {
        let sandbox = Sandbox::without_daemon(Setup { devices: 2, ..Setup::default() });
        fs::write(sandbox.arena().directory().join("lost-1"), "").expect("marker");
        let mut command = sandbox.bare(&program);
        command.env("SIMULATED_NVML_DRIVER_VERSION", &release);
        let outcome = sandbox.run("nvidia-smi", command);
        assert!(outcome.stdout.contains("GPU is lost"), "{}", outcome.describe());
        assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    }
}

#[test]
fn nvidia_smi_lists_mig_devices_and_sets_compute_modes() {
    let part = |slices: u32| MigConfig {
        slices,
        memory_bytes: u64::from(slices) * (10 << 30),
        multiprocessor_count: slices * 14,
        uuid: None,
    };
    let divided = DeviceConfig { mig: Some(vec![part(3), part(1)]), ..DeviceConfig::default() };
    let config =
        ArenaConfig { devices: vec![divided, DeviceConfig::default()], ..ArenaConfig::with_devices(0) };
    for (release, program) in nvidia_smis("nvidia-smi on the simulated NVML: MIG devices and compute modes") {
        let machine = TemporaryMachine::new(&config).expect("a machine");
        let sandbox = Sandbox::without_daemon(Setup::default());
        let smi = |arguments: &[&str]| {
            let mut command = sandbox.bare(&program);
            command.args(arguments).env(DIRECTORY_VARIABLE, machine.directory());
            command.env_remove(DRIVER_VERSION_VARIABLE).env("SIMULATED_NVML_DRIVER_VERSION", &release);
            sandbox.run("nvidia-smi", command)
        };
        let list = smi(&["-L"]).stdout;
        let lines: Vec<&str> = list.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 4, "{list}");
        assert!(lines[1].starts_with("MIG 3g.30gb") && lines[1].contains("(UUID: MIG-"), "{list}");
        assert!(lines[2].starts_with("MIG 1g.10gb") && lines[2].contains("Device  1:"), "{list}");
        let overview = smi(&[]).stdout;
        assert!(overview.contains("Enabled") && overview.contains("|  0    2   0   1  |"), "{overview}");

        let set = smi(&["-c", "EXCLUSIVE_PROCESS", "-i", "1"]);
        if !nix::unistd::geteuid().is_root() {
            assert!(set.code != Some(0), "{}", set.describe());
            continue;
        }
        assert_eq!(set.code, Some(0), "{}", set.describe());
        let arena = turnus_simulated_arena::Arena::open_at(machine.directory()).expect("the machine");
        assert_eq!(arena.compute_mode(1).expect("device 1"), ComputeMode::ExclusiveProcess);
        let mode = smi(&["-i", "1", "--query-gpu=compute_mode", "--format=csv,noheader"]).stdout;
        assert_eq!(mode.trim(), "Exclusive_Process");
    }
}
