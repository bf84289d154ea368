//! What the tests of both built libraries share: building them, a machine and a process per test.
//!
//! A test runs its body in a child of itself, so that the library starts fresh and may be killed; the machine lies in
//! a directory that goes away with the test. Part of `common`, which says in `library_directory` what is built.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::library_directory;

/// Set in the child that runs a test's body.
const CHILD: &str = "SIMULATED_DRIVER_TEST_CHILD";
/// Names the directory of the built libraries to the child.
pub const LIBRARIES: &str = "SIMULATED_DRIVER_TEST_LIBRARY";

/// Builds packages of this workspace and puts what they made under other names into a folder beside it.
pub fn build(packages: &[&str], files: &[(&str, &str)], folder: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet"]).args(packages.iter().flat_map(|package| ["--package", package]));
    assert!(cargo.status().expect("cargo runs").success(), "the library builds");
    // A test program lies in <target>/<profile>/deps.
    let own = std::env::current_exe().expect("own path");
    let profile = own.ancestors().nth(2).expect("a test lies two levels deep");
    let directory = profile.join(folder);
    std::fs::create_dir_all(&directory).expect("directory for the library");
    for (built, name) in files {
        // Several test programs do this at once: each puts a whole file in place.
        let private = directory.join(format!("{name}.{}", std::process::id()));
        std::fs::copy(profile.join(built), &private).expect("copy of the library");
        std::fs::rename(&private, directory.join(name)).expect("library in place");
    }
    directory
}

/// A machine of the test's own; removed when dropped.
pub struct Machine {
    /// Its directory.
    pub directory: PathBuf,
}

impl Machine {
    /// A machine that is made from `devices.toml` with this text.
    pub fn new(name: &str, devices: &str) -> Machine {
        let directory =
            PathBuf::from(format!("/dev/shm/simulated-driver-test-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("directory of the machine");
        std::fs::write(directory.join("devices.toml"), devices).expect("devices.toml");
        Machine { directory }
    }

    /// This test program again, to run `test` in a process on this machine.
    pub fn command(&self, test: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args([&full_name(test), "--exact", "--nocapture", "--test-threads=1"]);
        command.env(CHILD, "1").env("SIMULATED_CUDA_DIR", &self.directory);
        command.env(LIBRARIES, library_directory());
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The name by which this test program knows `test`: with its module, where it has one.
fn full_name(test: &str) -> String {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let own = std::env::current_exe().expect("own path");
        let list =
            Command::new(own).args(["--list", "--format", "terse"]).output().expect("the list of tests");
        let text = String::from_utf8_lossy(&list.stdout).into_owned();
        text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
    });
    let suffix = format!("::{test}");
    let mut found = names.iter().filter(|name| *name == test || name.ends_with(&suffix));
    let name = found.next().unwrap_or_else(|| panic!("no test is called {test}"));
    assert!(found.next().is_none(), "two tests are called {test}");
    name.clone()
}

/// One fast device: no costs, 64 MiB, granularity 32 KiB.
pub const FAST: &str = "scale = 64
scrub_delay_ms = 0
host_allocation_ms_per_gib = 0
host_registration_ms_per_gib = 0
host_registration_huge_ms_per_gib = 0
[[devices]]
memory_bytes = 4294967296
host_to_device_bytes_per_s = 0
device_to_host_bytes_per_s = 0
duplex_bytes_per_s = 0
device_to_device_bytes_per_s = 0
create_cost_us = 0
create_ms_per_gib = 0
map_cost_us = 0
access_cost_us = 0
unmap_cost_us = 0
unmap_ms_per_gib = 0
release_cost_us = 0
release_ms_per_gib = 0
module_cost_us = 0
local_memory_cost = false
context_bytes = 67108864
context_cost_us = 0
launch_cost_us = 0
";

/// True in the child that runs a test's body.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Two fast devices; `first` begins the text.
pub fn two_devices(first: &str) -> String {
    let device = FAST.split_once("[[devices]]").expect("a device").1;
    format!("{first}{FAST}[[devices]]{device}")
}

/// Runs `body` in a fresh process on a machine that is made from this text of `devices.toml`.
pub fn on_machine_with(name: &str, devices: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    if is_child() {
        return body();
    }
    let machine = Machine::new(name, devices);
    let mut command = machine.command(name);
    command.envs(environment.iter().copied());
    let output = command.output().expect("the child runs");
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().filter(|line| line.contains("NOT RUN: ")).for_each(|line| println!("{line}"));
    assert!(
        output.status.success(),
        "{name} in its process: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Starts `test` in a process with its standard input and output on pipes.
pub fn start(machine: &Machine, test: &str, role: &str) -> Child {
    let mut command = machine.command(test);
    command.env("SIMULATED_DRIVER_TEST_ROLE", role).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("the child runs")
}

/// What `start` was given as role.
pub fn role() -> String {
    std::env::var("SIMULATED_DRIVER_TEST_ROLE").unwrap_or_default()
}
