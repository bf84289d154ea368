//! The command line's entry: arguments in, exit code out. All else is in `turnus_scheduler::cli`.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use turnus_scheduler::cli::{demo, run, status};
use turnus_scheduler::exit_code;

/// Lets several programs share one GPU, unmodified, each seeing the whole card.
///
/// Exit codes: 0 all well, 1 something failed, 2 wrong usage, 4 no daemon, 5 device in use,
/// 126 program cannot be executed, 127 no such program; after a good start of `run` the
/// program's own.
#[derive(Debug, Parser)]
#[command(name = "turnus", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program under Turnus: turnus run -- CMD…
    Run(run::RunArguments),
    /// Show who holds each device and where the bytes are
    Status(status::StatusArguments),
    /// Watch two unmodified programs share a GPU that can hold only one of them
    Demo(demo::DemoArguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::from(exit_code::SUCCESS),
        Err(failure) => {
            eprintln!("turnus: {failure}");
            ExitCode::from(failure.code)
        }
    }
}
