//! The daemon's entry: arguments in, exit code out. All else is in `turnus_scheduler::daemon`.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use clap::Parser;
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use turnus_scheduler::cli::find;
use turnus_scheduler::daemon::directory::{Directory, DirectoryError};
use turnus_scheduler::daemon::{Options, serve};
use turnus_scheduler::exit_code;

fn main() -> ExitCode {
    let options = Options::parse();
    let Ok(filter) = tracing_subscriber::EnvFilter::try_new(&options.log) else {
        eprintln!("turnusd: --log {} is no filter; write a level such as info or debug", options.log);
        return ExitCode::from(exit_code::USAGE);
    };
    match run(options, filter) {
        Ok(()) => ExitCode::from(exit_code::SUCCESS),
        Err(error) => {
            eprintln!("turnusd: {}", sentence(&error));
            match error.downcast_ref::<DirectoryError>() {
                Some(DirectoryError::AlreadyRunning { .. }) => ExitCode::from(exit_code::ALREADY_RUNNING),
                _ => ExitCode::from(exit_code::FAILURE),
            }
        }
    }
}

/// The error with its causes. Errors of ours name their cause themselves.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn run(mut options: Options, filter: tracing_subscriber::EnvFilter) -> Result<()> {
    let path = options.directory.clone().unwrap_or_else(find::default_directory);
    let path = std::path::absolute(&path).with_context(|| format!("cannot use {}", path.display()))?;
    if let Some(folder) = &mut options.lock_directory {
        *folder = std::path::absolute(&*folder).context("cannot use --lock-directory")?;
    }
    if options.detach {
        close_inherited();
    }
    // Before detaching, so that who started us hears what is wrong.
    let directory = Directory::open(&path)?;
    if options.detach {
        nix::unistd::daemon(false, false).context("cannot go to the background")?;
        log_to_file(&path, filter)?;
    } else {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .init();
    }
    Ok(serve(options, directory)?)
}

/// What our starter has open besides the three standard streams is not ours to keep open: somebody
/// may wait for the end of a pipe or of a lock. Nothing of ours is open yet.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for descriptor in names.filter(|descriptor| *descriptor > 2).collect::<Vec<i32>>() {
        // One of them is the listing itself, which is closed by now.
        let _ = nix::unistd::close(descriptor);
    }
}

fn log_to_file(directory: &Path, filter: tracing_subscriber::EnvFilter) -> Result<()> {
    let path = directory.join("turnusd.log");
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(Mutex::new(file))
        .init();
    Ok(())
}
