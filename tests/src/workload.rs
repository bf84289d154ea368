//! The small programs of `tests/workloads`: compiled once, found by name and road.
//!
//! A binary is named after its sources' content, so that a changed source is never run stale.

use crate::artifacts;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// How a program gets at the driver's functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Road {
    /// dlopen, then dlsym of every function.
    Dlsym,
    /// dlopen, then every function through cuGetProcAddress, as the CUDA runtime does.
    ProcAddress,
    /// Linked with libcuda.so.1.
    Linked,
}

impl Road {
    /// All of them.
    pub const ALL: [Road; 3] = [Road::Dlsym, Road::ProcAddress, Road::Linked];

    fn flags(self) -> Vec<String> {
        match self {
            Road::Dlsym => vec![],
            Road::ProcAddress => vec!["-DROAD_ADDRESS".into()],
            Road::Linked => {
                vec![
                    "-DROAD_LINKED".into(),
                    format!("-L{}", artifacts::simulated().display()),
                    "-lcuda".into(),
                ]
            }
        }
    }
}

/// The binary of `tests/workloads/<name>.c`.
pub fn compile(name: &str, road: Road) -> PathBuf {
    compile_with(name, &format!("{road:?}"), &road.flags())
}

/// As [`compile`], with flags of the caller's; `label` becomes part of the file's name.
pub fn compile_with(name: &str, label: &str, flags: &[String]) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let folder = artifacts::workspace().join("tests/workloads");
    let source = folder.join(format!("{name}.c"));
    let ptx_folder = format!("-DPTX_FOLDER=\"{}\"", artifacts::workspace().join("tests/data/ptx").display());
    let mut hasher = DefaultHasher::new();
    (flags, &ptx_folder).hash(&mut hasher);
    for file in [
        &source,
        &folder.join("driver.h"),
        &folder.join("chain.h"),
        &folder.join("workload.h"),
        &folder.join("runtime.h"),
    ] {
        fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).hash(&mut hasher);
    }
    let programs = artifacts::root().join("workloads");
    let program = programs.join(format!("{name}-{label}-{:016x}", hasher.finish()));
    if program.exists() {
        return program;
    }
    fs::create_dir_all(&programs).expect("a folder for the workloads");
    let fresh = programs.join(format!("{name}-{label}-{}.new", std::process::id()));
    let output = Command::new("gcc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", &ptx_folder, "-o"])
        .arg(&fresh)
        .arg(&source)
        .args(flags)
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("gcc can be started (apt-get install gcc libc6-dev)");
    assert!(
        output.status.success(),
        "gcc cannot compile {}:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(&fresh, &program).expect("the compiled program can be renamed");
    program
}
