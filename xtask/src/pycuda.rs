//! PyCUDA in the environment of the clients: its registry has sources only, so it is built here.
//!
//! It is built against the headers of NVIDIA's packages and the simulated `libcuda.so.1`, without optimisation,
//! which halves the time, and without cuRAND, whose library would have to be fetched. The wheel stays in
//! `target/pycuda`. What is missing is no error here; the caller says what it leaves out.

use crate::command::{is_there, run, target};
use crate::cupy::packages_of;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is built; MIT licence, with a part of Boost (Boost Software License).
const PYCUDA: &str = "pycuda==2026.1";
/// What it needs to run and to be built, beside the packages of the other clients.
const NEEDED: &[&str] = &[
    "mako==1.4.3",
    "platformdirs==4.14.9",
    "pytools==2026.1.1",
    "setuptools==80.9.0",
    "siphash24==1.9",
    "typing-extensions==4.16.0",
    "wheel==0.48.0",
];

/// Installs it, building it if needed; `simulated` is the folder of the simulated driver. `Ok(Err)`: it cannot be
/// had here, with a reason.
pub fn install(python: &Path, simulated: &Path) -> Result<std::result::Result<(), String>> {
    let stamp = python.with_file_name("pycuda.txt");
    let wanted = format!("{PYCUDA} {}", NEEDED.join(" "));
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(Ok(()));
    }
    if !is_there("g++") {
        return Ok(Err("no g++, which compiles it (apt-get install g++)".to_owned()));
    }
    let pip = |arguments: &[&str]| {
        let mut command = Command::new(python);
        command.args(["-m", "pip"]).args(arguments);
        command
    };
    let folder = target().join("pycuda");
    let mut needed = pip(&["install", "--quiet"]);
    needed.args(NEEDED);
    let mut build = pip(&["wheel", "--quiet", "--no-deps", "--no-build-isolation", PYCUDA, "--wheel-dir"]);
    configure(build.arg(&folder), &folder, python, simulated)?;
    let mut finish = pip(&["install", "--quiet", "--no-index", "--no-deps", PYCUDA, "--find-links"]);
    for step in [&mut needed, &mut build, finish.arg(&folder)] {
        if let Err(error) = run(step) {
            return Ok(Err(format!("{PYCUDA} could not be built ({error:#})")));
        }
    }
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(Ok(()))
}

/// Its build reads its settings from the home directory, and waits 10 s, several times, if there are none.
fn configure(build: &mut Command, home: &Path, python: &Path, simulated: &Path) -> Result<()> {
    let toolkit = toolkit(python)?;
    let settings = format!(
        "CUDA_ROOT = {toolkit:?}\nCUDA_INC_DIR = [{:?}]\nCUDADRV_LIB_DIR = [{simulated:?}]\n\
         CUDA_ENABLE_CURAND = False\nCXXFLAGS = ['-O0', '-g0', '-w']\n",
        toolkit.join("include"),
    );
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    let file = home.join(".aksetup-defaults.py");
    fs::write(&file, settings).with_context(|| format!("cannot write {}", file.display()))?;
    // The wheel is remembered beyond `target`, where pip keeps what it has built.
    let cache = Command::new(python).args(["-m", "pip", "cache", "dir"]).output()?;
    build.env("PIP_CACHE_DIR", String::from_utf8_lossy(&cache.stdout).trim()).env("HOME", home);
    Ok(())
}

/// Where NVIDIA's packages put headers and nvcc.
fn toolkit(python: &Path) -> Result<PathBuf> {
    Ok(packages_of(python)?.join("nvidia/cu13"))
}
