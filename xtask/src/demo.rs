//! `cargo xtask demo`: builds all, fetches the Python client, and hands over to `turnus demo`.
//!
//! The demonstration itself is part of the command line, so that an installed Turnus has it too;
//! here is only what a working copy adds.

use crate::{artifacts, python};
use anyhow::{Context, Result};
use std::process::{Command, ExitCode};

/// Passed on to `turnus demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArguments {
    /// Use the simulated GPU even if there is a real one.
    #[arg(long)]
    simulated: bool,
    /// Use the real GPU although other programs compute on it.
    #[arg(long)]
    yes: bool,
    /// Lines instead of a live view.
    #[arg(long)]
    plain: bool,
    /// Switches to wait for.
    #[arg(long, value_name = "N")]
    switches: Option<u64>,
}

/// Runs it; the exit code is that of `turnus demo`.
pub fn run(arguments: &DemoArguments) -> Result<ExitCode> {
    let artifacts = artifacts::build()?;
    let mut demo = Command::new(artifacts.turnus());
    demo.arg("demo").arg("--programs").arg(artifacts.demo());
    demo.arg("--simulated-driver").arg(artifacts.simulated());
    match python::environment()? {
        Ok(python) => drop(demo.arg("--python").arg(python)),
        Err(reason) => eprintln!("demo: two C programs instead of C and Python: {reason}"),
    }
    for (name, wanted) in
        [("--simulated", arguments.simulated), ("--yes", arguments.yes), ("--plain", arguments.plain)]
    {
        if wanted {
            demo.arg(name);
        }
    }
    if let Some(switches) = arguments.switches {
        demo.arg("--switches").arg(switches.to_string());
    }
    let status = demo.status().with_context(|| format!("cannot start {}", artifacts.turnus().display()))?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
