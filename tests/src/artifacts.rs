//! Where the built binaries are, and what is said when something cannot run on this machine.
//!
//! `cargo xtask test` builds them and sets `TURNUS_ARTIFACTS`; a plain `cargo test` has them built
//! here, once per test program. A test that cannot run says so in the file named by
//! `TURNUS_SKIPPED_FILE`; without that variable it fails: nothing is left out in silence.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The top folder of the working copy.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

/// The folder with `bin`, `lib` and `simulated`.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| match std::env::var_os("TURNUS_ARTIFACTS") {
        Some(root) => PathBuf::from(root),
        None => build(),
    })
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--package", "xtask", "--", "build"])
        .current_dir(workspace())
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "cargo xtask build failed with {status}");
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace().join(target).join("turnus")
}

/// The command line.
pub fn turnus() -> PathBuf {
    root().join("bin/turnus")
}

/// The daemon.
pub fn turnusd() -> PathBuf {
    root().join("bin/turnusd")
}

/// The library that is preloaded into programs.
pub fn shim() -> PathBuf {
    root().join("lib/libturnus.so")
}

/// The folder of the simulated `libcuda.so.1` and `libnvidia-ml.so.1`.
pub fn simulated() -> PathBuf {
    root().join("simulated")
}

/// A Python with cuda-bindings, NVRTC and numpy; `None` after saying why the test is left out.
pub fn python(test: &str) -> Option<PathBuf> {
    python_of("TURNUS_PYTHON", test)
}

/// A Python with cuda-core and numba-cuda; `None` as above.
pub fn python_clients(test: &str) -> Option<PathBuf> {
    python_of("TURNUS_PYTHON_CLIENTS", test)
}

/// A Python with PyCUDA; `None` as above.
pub fn pycuda(test: &str) -> Option<PathBuf> {
    python_of("TURNUS_PYCUDA", test)
}

/// A Python with CuPy, whose libraries are in `cuda-10.2` beside it; `None` as above.
pub fn cupy(test: &str) -> Option<PathBuf> {
    python_of("TURNUS_CUPY", test)
}

/// The folder with `<toolkit>/libcudart.so.<version>`; `None` after saying why the test is left out.
pub fn cuda_runtimes(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TURNUS_CUDA_RUNTIMES").map(PathBuf::from);
    if folder.is_none() {
        let reason = "TURNUS_CUDA_RUNTIMES is not set; cargo xtask test fetches the libraries";
        skip("needs-cuda-runtimes", test, reason);
    }
    folder
}

fn python_of(variable: &str, test: &str) -> Option<PathBuf> {
    let python = std::env::var_os(variable).map(PathBuf::from);
    if python.is_none() {
        let reason = format!("{variable} is not set; cargo xtask test makes the environment");
        skip("needs-python", test, &reason);
    }
    python
}

/// The folder with `<release>/nvidia-smi`; `None` after saying why the test is left out.
pub fn nvidia_smi(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TURNUS_NVIDIA_SMI").map(PathBuf::from);
    if folder.is_none() {
        skip("needs-nvidia-smi", test, "TURNUS_NVIDIA_SMI is not set; cargo xtask test fetches the programs");
    }
    folder
}

/// Notes that a test cannot run here: class, what, why and how to get it.
pub fn skip(class: &str, what: &str, reason: &str) {
    let file = std::env::var_os("TURNUS_SKIPPED_FILE")
        .unwrap_or_else(|| panic!("{what} cannot run: {reason} (with cargo xtask test it would be listed)"));
    let mut file =
        OpenOptions::new().append(true).create(true).open(file).expect("the list of skipped tests");
    writeln!(file, "{class}\t{what}\t{reason}").expect("the list of skipped tests can be written");
}
