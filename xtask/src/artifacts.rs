//! Builds what tests, demo and benches use, and lays it out as an installation would be.
//!
//! `target/turnus/bin` (turnus, turnusd), `lib` (libturnus.so), `simulated` (libcuda.so.1
//! and libnvidia-ml.so.1, with their short names), `demo` (the C programs). Files are replaced by rename, never overwritten: a
//! running program may have the old one mapped.

use crate::command::{cargo, is_there, run, target, workspace};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The layout below `target/turnus`.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// `target/turnus`.
    pub root: PathBuf,
}

impl Artifacts {
    /// The command line.
    pub fn turnus(&self) -> PathBuf {
        self.root.join("bin/turnus")
    }

    /// The folder that holds the simulated `libcuda.so.1` and `libnvidia-ml.so.1`.
    pub fn simulated(&self) -> PathBuf {
        self.root.join("simulated")
    }

    /// The folder of the demo's C programs.
    pub fn demo(&self) -> PathBuf {
        self.root.join("demo")
    }
}

/// Builds all of it in release mode.
pub fn build() -> Result<Artifacts> {
    run(cargo().args(["build", "--release"]).args(["-p", "turnus-shim", "-p", "turnus-scheduler"]))?;
    run(cargo().args([
        "build",
        "--release",
        "-p",
        "turnus-simulated-driver",
        "-p",
        "turnus-simulated-nvml",
    ]))?;
    let artifacts = Artifacts { root: target().join("turnus") };
    let built = target().join("release");
    install(&built.join("turnus"), &artifacts.root.join("bin/turnus"))?;
    install(&built.join("turnusd"), &artifacts.root.join("bin/turnusd"))?;
    install(&built.join("libturnus.so"), &artifacts.root.join("lib/libturnus.so"))?;
    install(&built.join("libcuda.so"), &artifacts.simulated().join("libcuda.so.1"))?;
    install(&built.join("libnvidia_ml.so"), &artifacts.simulated().join("libnvidia-ml.so.1"))?;
    for (name, file) in [("libcuda.so", "libcuda.so.1"), ("libnvidia-ml.so", "libnvidia-ml.so.1")] {
        let link = artifacts.simulated().join(name);
        if fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink(file, &link)
                .with_context(|| format!("cannot link {}", link.display()))?;
        }
    }
    compile_demo(&artifacts)?;
    Ok(artifacts)
}

/// The two-command promise needs gcc only for the demo's C program.
fn compile_demo(artifacts: &Artifacts) -> Result<()> {
    if !is_there("gcc") {
        bail!("gcc is missing: install it (apt-get install gcc libc6-dev) and try again");
    }
    fs::create_dir_all(artifacts.demo())
        .with_context(|| format!("cannot make {}", artifacts.demo().display()))?;
    let source = workspace().join("tests/workloads/chain.c");
    let binary = artifacts.demo().join("chain");
    run(Command::new("gcc")
        .args(["-O2", "-Wall", "-Werror", "-o"])
        .arg(&binary)
        .arg(&source)
        .args(["-ldl", "-lpthread"]))?;
    install(&workspace().join("tests/workloads/chain.py"), &artifacts.demo().join("chain.py"))
}

fn install(from: &Path, to: &Path) -> Result<()> {
    let directory = to.parent().context("a file has a folder")?;
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh)
        .with_context(|| format!("cannot copy {} to {}", from.display(), fresh.display()))?;
    fs::rename(&fresh, to).with_context(|| format!("cannot rename {} to {}", fresh.display(), to.display()))
}

/// Becomes the program, with the simulated driver first on the library path.
pub fn simulate(command: &[OsString]) -> Result<ExitCode> {
    let artifacts = build()?;
    let mut path = artifacts.simulated().into_os_string();
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    Ok(become_program(command, &path))
}

/// Returns only when the program cannot be started, after saying so.
fn become_program(command: &[OsString], library_path: &OsString) -> ExitCode {
    let error = Command::new(&command[0]).args(&command[1..]).env("LD_LIBRARY_PATH", library_path).exec();
    eprintln!("xtask: cannot start {}: {error}", command[0].to_string_lossy());
    // As shells have it: 127 for what is not there, 126 for what cannot be executed.
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_started_has_the_exit_code_that_shells_give_it() {
        let code = |program: &str| become_program(&[program.into()], &OsString::new());
        assert_eq!(code("/nowhere/program"), ExitCode::from(127));
        assert_eq!(code("/"), ExitCode::from(126), "a folder is there and no program");
    }
}
