//! `cargo xtask`: the commands of a working copy. Build, test, demonstrate, measure.
//!
//! Everything that the README promises is one of these commands, so that people, `.ci/run` and
//! the README cannot drift apart. Nothing here is part of an installation; it only calls cargo,
//! gcc, Python and the binaries that it has built. Exit code 0: all well; 1: something failed;
//! 2: wrong usage.
#![forbid(unsafe_code)]

mod artifacts;
mod bench;
mod check;
mod command;
mod conformance;
mod cuda_runtimes;
mod cupy;
mod demo;
mod gpu_check;
mod nvidia_smi;
mod pycuda;
mod python;
mod skipped;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Build, test, demonstrate and measure Turnus from a working copy.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", version, about)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Builds everything into target/turnus: bin, lib, simulated, demo.
    Build,
    /// Two unmodified programs share one GPU, which can hold only one of them.
    Demo(demo::DemoArguments),
    /// Formatting, lints, unit, property, model and end-to-end tests.
    Test(check::TestArguments),
    /// Only the stress test: four tenants on two devices, killed at any moment, with the daemon.
    Stress(check::StressArguments),
    /// Measures against a reference in the same run: gate, handover, switch.
    Bench(bench::BenchArguments),
    /// What a real card says of the behaviour that Turnus relies on; without a card, the simulated one.
    GpuCheck(gpu_check::GpuCheckArguments),
    /// Runs any program on the simulated GPU: cargo xtask simulate -- CMD…
    Simulate {
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Build => artifacts::build().map(|_| ExitCode::SUCCESS),
        Task::Demo(arguments) => demo::run(&arguments),
        Task::Test(arguments) => check::run(&arguments),
        Task::Stress(arguments) => check::stress(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::GpuCheck(arguments) => gpu_check::run(&arguments),
        Task::Simulate { command } => artifacts::simulate(&command),
    }
}
