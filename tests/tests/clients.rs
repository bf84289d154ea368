//! Clients of the CUDA driver as people install them, unmodified: right on the simulated driver, and right
//! under Turnus.
//!
//! The programs in `tests/workloads/clients` are ours and use each client's public API; they compare what was
//! computed with a model. The client's versions are pinned in `xtask/src/python.rs` and `tests/Cargo.toml`.

use std::path::{Path, PathBuf};
use std::process::Command;
use turnus_tests::{Sandbox, Setup, artifacts};

fn script(name: &str) -> String {
    artifacts::workspace().join("tests/workloads/clients").join(name).to_string_lossy().into_owned()
}

/// Runs the program without Turnus and with it; `more` is said to both.
fn check(sandbox: &Sandbox, program: &Path, arguments: &[&str], more: &[(&str, &Path)]) {
    let run = |name: &str, mut command: Command| {
        command.args(arguments).envs(more.iter().copied());
        sandbox.run(name, command).assert_right();
        sandbox.assert_all_freed();
    };
    run("bare", sandbox.bare(program));
    run("under", sandbox.under(program));
}

/// A folder for the PTX of kernels that clients hand over as machine code.
fn kernels(sandbox: &Sandbox) -> PathBuf {
    let folder = sandbox.folder().join("kernels");
    std::fs::create_dir_all(&folder).expect("folder");
    folder
}

#[test]
fn cuda_core_with_ptx() {
    let Some(python) = artifacts::python_clients("cuda-core") else { return };
    check(&Sandbox::new(Setup::default()), &python, &[&script("cuda_core.py"), "ptx"], &[]);
}

#[test]
fn cuda_core_with_machine_code() {
    let Some(python) = artifacts::python_clients("cuda-core") else { return };
    let sandbox = Sandbox::new(Setup::default());
    let kernels = kernels(&sandbox);
    check(
        &sandbox,
        &python,
        &[&script("cuda_core.py"), "cubin"],
        &[("SIMULATED_CUDA_KERNELS", kernels.as_path())],
    );
}

#[test]
fn numba_cuda() {
    let Some(python) = artifacts::python_clients("numba-cuda") else { return };
    let sandbox = Sandbox::new(Setup::default());
    let (kernels, script) = (kernels(&sandbox), script("numba_kernels.py"));
    let mut save = sandbox.bare(&python);
    save.args([&script, "save"]).env("SIMULATED_CUDA_KERNELS", &kernels);
    save.env("SIMULATED_CUDA_MACHINE_CODE", "without-effect");
    let outcome = sandbox.run("save", save);
    assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
    check(&sandbox, &python, &[&script], &[("SIMULATED_CUDA_KERNELS", kernels.as_path())]);
}

#[test]
fn numba_functions_that_become_kernels() {
    let Some(python) = artifacts::python_clients("numba-cuda") else { return };
    let sandbox = Sandbox::new(Setup::default());
    let kernels = kernels(&sandbox);
    let script = script("numba_functions.py");
    check(&sandbox, &python, &[&script], &[("SIMULATED_CUDA_KERNELS", kernels.as_path())]);
}

#[test]
fn pycuda() {
    let Some(python) = artifacts::pycuda("PyCUDA") else { return };
    let sandbox = Sandbox::new(Setup::default());
    // What nvcc made for the first run serves the second.
    let cache = sandbox.folder().join("cache");
    std::fs::create_dir_all(&cache).expect("folder");
    check(&sandbox, &python, &[&script("pycuda_arrays.py")], &[("PYCUDA_CACHE_DIR", cache.as_path())]);
}

#[test]
fn cudarc_safe_api() {
    let name = "cudarc_client";
    let build = ["build", "--quiet", "--package", "turnus-simulated-driver", "--example", name];
    let built = Command::new(env!("CARGO")).args(build).status().expect("cargo can be started");
    assert!(built.success(), "{name} does not build");
    // A test program lies in <target>/<profile>/deps.
    let own = std::env::current_exe().expect("own path");
    let profile = own.ancestors().nth(2).expect("a test lies two levels deep");
    check(&Sandbox::new(Setup::default()), &profile.join("examples").join(name), &[], &[]);
}
