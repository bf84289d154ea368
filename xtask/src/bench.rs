//! `cargo xtask bench gate|handover|switch|simulated`: builds, then runs the bench of that name.
//!
//! Each bench measures a reference in the same run and prints one table; the numbers in the
//! README come from here.

use crate::artifacts;
use crate::command::{cargo, run as run_command};
use anyhow::Result;
use std::process::ExitCode;

/// Which bench.
#[derive(Debug, clap::Args)]
pub struct BenchArguments {
    /// What to measure.
    #[arg(value_enum)]
    name: BenchName,
    /// Further words for the bench.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum BenchName {
    /// A gated launch with the turn held, over the bare driver.
    Gate,
    /// From release to the next tenant's first launch, nothing to move.
    Handover,
    /// A switch with bytes to move, against the link's bandwidth.
    Switch,
    /// The simulated driver itself: launches, a thousand processes, a device of 80 GiB.
    Simulated,
}

/// Runs it; code 1 if it failed.
pub fn run(arguments: &BenchArguments) -> Result<ExitCode> {
    let artifacts = artifacts::build()?;
    let name = match arguments.name {
        BenchName::Gate => "gate",
        BenchName::Handover => "handover",
        BenchName::Switch => "switch",
        BenchName::Simulated => "simulated-driver",
    };
    let mut bench = cargo();
    bench.args(["run", "--release", "--quiet", "-p", "turnus-benches", "--bin", name, "--"]);
    bench.args(&arguments.rest).env("TURNUS_ARTIFACTS", &artifacts.root);
    run_command(&mut bench)?;
    Ok(ExitCode::SUCCESS)
}
