//! Programs of the CUDA runtime, with NVIDIA's own `libcudart.so`, on the simulated driver and under Turnus.
//!
//! The runtime works with the driver partly through tables of `cuGetExportTable`, which Turnus does not see into.
//! One from before 11.2 must do all that it does on a card; a newer one checks whether the driver is NVIDIA's,
//! which is not imitated, and must come as far, and say the same, with Turnus as without.

use std::path::{Path, PathBuf};
use std::process::Command;
use turnus_tests::contest::{Contest, TURNS_MIN};
use turnus_tests::workload::compile_with;
use turnus_tests::{Sandbox, Setup, artifacts};

/// `tests/workloads/runtime.c`, linked with the runtime of toolkit 10.2.
fn program() -> Option<PathBuf> {
    let folder = artifacts::cuda_runtimes("programs of the CUDA runtime 10.2")?.join("10.2");
    let library = folder.join("libcudart.so.10.2").display().to_string();
    Some(compile_with("runtime", "10.2", &[library, format!("-Wl,-rpath,{}", folder.display())]))
}

#[test]
fn a_program_of_the_runtime_10_2_is_right() {
    let Some(program) = program() else { return };
    let sandbox = Sandbox::new(Setup::default());
    sandbox.run_bare(&program, &["--rounds", "3"]).assert_right();
    sandbox.assert_all_freed();
    sandbox.run_under(&program, &["--rounds", "3"]).assert_right();
    sandbox.assert_all_freed();
}

/// Beside a rival, with which it does not fit: it must give way several times and find its bytes again.
#[test]
fn a_program_of_the_runtime_10_2_takes_turns() {
    let Some(program) = program() else { return };
    let sandbox = Sandbox::new(Setup::default());
    let mut contest = Contest::start(&sandbox, &program, &[]);
    contest.wait_for_switches(&sandbox, TURNS_MIN);
    contest.finish(&sandbox);
}

/// CuPy calls the runtime 10.2, and hands PTX to the driver as text.
#[test]
fn cupy() {
    let Some(python) = artifacts::cupy("CuPy") else { return };
    let sandbox = Sandbox::new(Setup { device_bytes: 64 << 20, ..Setup::default() });
    let script = artifacts::workspace().join("tests/workloads/clients/cupy_arrays.py");
    let path = [artifacts::simulated(), python.with_file_name("cuda-10.2")];
    let run = |name: &str, mut command: Command| {
        command
            .arg(&script)
            .env("LD_LIBRARY_PATH", std::env::join_paths(&path).expect("paths without colons"));
        // What NVRTC made for the first run serves the second.
        command.env("CUPY_CACHE_DIR", sandbox.folder().join("cache")).env("CUPY_ACCELERATORS", "");
        sandbox.run(name, command).assert_right();
        sandbox.assert_all_freed();
    };
    run("bare", sandbox.bare(&python));
    run("under", sandbox.under(&python));
}

#[test]
fn newer_runtimes_find_their_functions_and_stop_at_their_check_alike() {
    /// Names that a runtime must have found before, by toolkit.
    const NEWER: [(&str, usize); 3] = [("11.8", 280), ("12.9", 330), ("13.5", 370)];
    let Some(folder) = artifacts::cuda_runtimes("newer CUDA runtimes") else { return };
    let Some(python) = artifacts::python_clients("newer CUDA runtimes") else { return };
    let sandbox = Sandbox::new(Setup::default());
    let script = artifacts::workspace().join("tests/workloads/clients/runtime.py");
    for (toolkit, names_min) in NEWER {
        let folder = folder.join(toolkit);
        let run = |name: &str, mut command: Command| {
            let trace = sandbox.folder().join(format!("trace-{toolkit}-{name}"));
            command.arg(&script).arg(library(&folder)).env("SIMULATED_CUDA_TRACE", &trace);
            let outcome = sandbox.run(name, command);
            assert_eq!(outcome.code, Some(0), "{toolkit}: {}", outcome.describe());
            let trace = std::fs::read_to_string(trace).expect("the trace");
            let asked = trace
                .lines()
                .filter(|line| line.starts_with("cuGetProcAddress") && line.contains("\t0\t"))
                .count();
            assert!(asked >= names_min, "{toolkit}: only {asked} names were found\n{}", outcome.describe());
            outcome.stdout
        };
        let bare = run("bare", sandbox.bare(&python));
        // cudaErrorSoftwareValidityNotEstablished: nothing here may make it believe more.
        for line in ["cudaDriverGetVersion 0 13050", "cudaGetDeviceCount 103", "cudaMalloc 103"] {
            assert!(bare.contains(line), "{toolkit}: no {line} in\n{bare}");
        }
        assert_eq!(run("under", sandbox.under(&python)), bare, "{toolkit}");
    }
}

/// The one file in a folder.
fn library(folder: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(folder).expect("a folder of a runtime");
    entries.next().expect("a library").expect("a readable folder").path()
}
