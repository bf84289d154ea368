//! The Python environments: `target/python` with NVIDIA's `cuda-bindings` and NVRTC, for the demo and most
//! tests, and `target/python-clients` with the other clients that the tests run.
//!
//! Versions are pinned, so that a run a year from now tests the same client. A machine without
//! Python is no error here; the caller says what it leaves out.

use crate::command::{run, target};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The packages, pinned. NVRTC compiles without a GPU.
pub const PACKAGES: &[&str] = &["cuda-bindings==13.5.0", "nvidia-cuda-nvrtc==13.5.37", "numpy"];

/// Clients of the CUDA driver and of NVML that are tested beside them, pinned.
const CLIENTS: &[&str] = &[
    "cuda-bindings==13.5.0",
    "cuda-core==1.2.2",
    "numba-cuda[cu13]==0.30.4",
    "nvidia-cuda-crt==13.5.37",
    "nvidia-cuda-nvcc==13.5.37",
    "nvidia-cuda-nvrtc==13.5.37",
    "nvidia-cuda-profiler-api==13.5.25",
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-ml-py==13.615.71",
    "nvidia-nvjitlink==13.5.37",
    "nvidia-nvvm==13.5.37",
    "numba==0.68.1",
    "numpy==2.4.6",
];

/// The interpreter of the environment, made if needed. `Ok(Err)`: there is none here, with a reason.
pub fn environment() -> Result<std::result::Result<PathBuf, String>> {
    made("python", PACKAGES)
}

/// The same for the clients that only tests run.
pub fn clients() -> Result<std::result::Result<PathBuf, String>> {
    made("python-clients", CLIENTS)
}

fn made(folder: &str, packages: &[&str]) -> Result<std::result::Result<PathBuf, String>> {
    let root = target().join(folder);
    let python = root.join("bin/python");
    let stamp = root.join("packages.txt");
    let wanted = packages.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(Ok(python));
    }
    if let Some(reason) = missing() {
        return Ok(Err(reason));
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&root))?;
    let installed = run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages));
    if let Err(error) = installed {
        return Ok(Err(format!("the packages {} could not be fetched ({error:#})", packages.join(", "))));
    }
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(Ok(python))
}

fn missing() -> Option<String> {
    let works = |arguments: &[&str]| {
        Command::new("python3").args(arguments).output().is_ok_and(|output| output.status.success())
    };
    if !works(&["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]) {
        return Some("no python3 of version 3.10 or later (apt-get install python3 python3-venv)".to_owned());
    }
    if !works(&["-c", "import venv, ensurepip"]) {
        return Some("python3 lacks venv (apt-get install python3-venv)".to_owned());
    }
    None
}
