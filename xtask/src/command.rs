//! Running other programs: echo the line, fail with the line in the error.
//!
//! Nothing here decides what to run. Output of children goes straight to the terminal.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The top folder of the working copy.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Where cargo builds: `CARGO_TARGET_DIR`, else `target`.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => workspace().join(directory),
        None => workspace().join("target"),
    }
}

/// The cargo that runs us.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// Runs to the end; an exit code other than 0 is an error that shows the line.
pub fn run(command: &mut Command) -> Result<()> {
    let line = line_of(command);
    eprintln!("> {line}");
    let status = command.status().with_context(|| format!("cannot start: {line}"))?;
    if !status.success() {
        bail!("failed with {status}: {line}");
    }
    Ok(())
}

/// Whether a program of this name can be started.
pub fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
