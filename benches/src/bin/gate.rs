//! What the gate adds to a launch while the turn is held: nanoseconds over the bare driver.
//!
//! The driver behind it does nothing (`benches/workloads/null_driver.c`), so that the gate is all
//! there is to see; runs with and without Turnus alternate, and the medians of their batches are
//! compared. One thread and two.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::path::Path;
use std::process::{Command, ExitCode};
use turnus_benches::stage::{Stage, quick_machine};
use turnus_benches::statistics::{Samples, machine};

#[derive(Debug, Parser)]
struct Arguments {
    /// Runs of each kind.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Launches per batch; a run has 200 batches per thread.
    #[arg(long, default_value_t = 20_000)]
    launches: u64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut stage = Stage::new(&quick_machine(64 << 20, 1_000_000_000))?;
    let launches = stage.compile("launches.c", "launches", &[])?;
    stage.use_null_driver()?;
    stage.start_daemon(&[])?;
    println!("gated launch with the turn held, over a driver that does nothing, ns per launch");
    println!("  {:10} {:>10} {:>10} {:>10}", "", "bare", "gated", "added");
    for threads in [1, 2] {
        let (mut bare, mut gated) = (Vec::new(), Vec::new());
        for _ in 0..arguments.runs {
            bare.extend(measure(stage.bare(&launches), threads, arguments.launches)?);
            gated.extend(measure(stage.under_turnus("gate", &launches), threads, arguments.launches)?);
        }
        let (bare, gated) = (Samples::new(bare).median(), Samples::new(gated).median());
        println!(
            "  {:10} {bare:>10.1} {gated:>10.1} {:>10.1}   (target <= 10)",
            format!("{threads} thread(s)"),
            gated - bare
        );
    }
    println!("  nvshare, measured in the same way elsewhere: 48-69 added with one thread, 105 with two");
    println!("  machine: {}", machine());
    Ok(ExitCode::SUCCESS)
}

fn measure(mut command: Command, threads: u32, launches: u64) -> Result<Vec<f64>> {
    command.args([threads.to_string(), "200".to_owned(), launches.to_string()]);
    let output = command
        .output()
        .with_context(|| format!("{} cannot be started", shown(command.get_program().as_ref())))?;
    if !output.status.success() {
        bail!("launches failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let values: Vec<f64> = text.lines().filter_map(|line| line.strip_prefix("ns=")?.parse().ok()).collect();
    if values.len() != 200 * threads as usize {
        bail!("{} of {} batches were measured", values.len(), 200 * threads);
    }
    Ok(values)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
