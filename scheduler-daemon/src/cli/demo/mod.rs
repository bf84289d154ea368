//! `turnus demo`: two programs that know nothing of Turnus, each with 75 % of one GPU.
//!
//! A stage is set (a daemon of its own, on the simulator a GPU of its own), two programs are
//! started through `turnus run`, and the daemon's status is watched until they have switched often
//! enough. Then both check every byte, and a table says what happened. Read next: `stage`,
//! `programs`, `watch`.

mod programs;
mod stage;
mod view;
mod watch;

use crate::cli::Failure;
use std::path::PathBuf;
use std::time::Duration;

/// Shows two programs that take turns on one GPU.
#[derive(Debug, clap::Args)]
pub struct DemoArguments {
    /// Use the simulated GPU even if there is a real one
    #[arg(long)]
    pub simulated: bool,
    /// Use the real GPU although other programs compute on it
    #[arg(long)]
    pub yes: bool,
    /// Lines instead of a live view
    #[arg(long)]
    pub plain: bool,
    /// Switches to wait for
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub switches: u64,
    /// Folder of the demo's programs [default: the one installed with turnus]
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Folder of the simulated libcuda.so.1 [default: the one installed with turnus]
    #[arg(long, value_name = "DIR")]
    pub simulated_driver: Option<PathBuf>,
    /// Python with cuda-bindings; without it the second program is in C too
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Give up after this long
    #[arg(long, value_name = "S", default_value_t = 600)]
    pub time_limit_s: u64,
}

/// Runs it. The failure of any part is a failure of the demo.
pub fn run(arguments: &DemoArguments) -> Result<(), Failure> {
    let stage = stage::Stage::set(arguments)?;
    println!("{}", stage.introduction());
    let mut cast = programs::Cast::start(&stage, arguments)?;
    for actor in &cast.actors {
        println!("  {}: {}", actor.name, actor.description);
    }
    println!();
    let limit = Duration::from_secs(arguments.time_limit_s);
    let seen = watch::watch(&stage, &mut cast, arguments, limit)?;
    let results = cast.finish(limit)?;
    println!("{}", view::table(&seen, &results));
    let wrong: Vec<&str> =
        results.iter().filter(|result| !result.is_right()).map(|result| result.name.as_str()).collect();
    if !wrong.is_empty() {
        return Err(Failure::plain(format!("wrong results: {}", wrong.join(", "))));
    }
    let short: Vec<&str> =
        results.iter().filter(|result| result.rounds == 0).map(|result| result.name.as_str()).collect();
    if !short.is_empty() {
        return Err(Failure::plain(format!(
            "too short to tell: {} did no round; ask for more with --switches",
            short.join(", ")
        )));
    }
    if seen.switches < arguments.switches {
        return Err(Failure::plain(format!(
            "only {} of {} switches happened",
            seen.switches, arguments.switches
        )));
    }
    if results.len() != 2 {
        return Err(Failure::plain("one of the two programs is missing"));
    }
    Ok(())
}
