//! A switch with bytes to move, against the bandwidth of the simulated link.
//!
//! Two programs with 75 % of the device each take turns. Time runs from the end of one's work, as
//! that program sees it, to the return of the other's first launch: drain, eviction,
//! restoring, wake-up. Bytes are the daemon's raw counters. The reference is a bare program's copy
//! over the same link in the same run.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::io::{BufRead, BufReader};
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};
use turnus_benches::stage::{Stage, quick_machine};
use turnus_benches::statistics::{Samples, machine};

#[derive(Debug, Parser)]
struct Arguments {
    /// Memory of the device in MiB.
    #[arg(long, default_value_t = 256)]
    device_mib: u64,
    /// Configured rate of the link in each direction, in MB/s.
    #[arg(long, default_value_t = 400)]
    link_mb_per_s: u64,
    /// Turns of each program.
    #[arg(long, default_value_t = 12)]
    rounds: u32,
}

/// One turn of one program, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy)]
struct Turn {
    program: usize,
    asked: u64,
    launched: u64,
    ended: u64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let link_bytes_per_s = arguments.link_mb_per_s * 1_000_000;
    let mut stage = Stage::new(&quick_machine(arguments.device_mib << 20, link_bytes_per_s))?;
    let turns = stage.compile("turns.c", "turns", &[])?;
    let copies = stage.compile("copies.c", "copies", &[])?;
    let bytes = (arguments.device_mib << 20) / 4 * 3;
    let reference = bare_rate(&stage, &copies, bytes)?;
    // A turn is over with its first work: an idle holder would keep it for as long as a switch takes.
    stage.start_daemon(&["--quantum-ms", "2", "--handle-bytes", "4M"])?;
    let (seen, moved_bytes) = run(&stage, &turns, bytes, arguments.rounds)?;
    let times = switch_times(&seen);
    if times.len() < 4 {
        bail!("only {} switches were seen", times.len());
    }
    let total_s: f64 = times.iter().sum();
    let switches = times.len() as f64;
    // Counters cover all switches of the run, the times those with somebody waiting: per switch.
    let per_switch_bytes = moved_bytes as f64 / seen.len().saturating_sub(1).max(1) as f64;
    let rate = per_switch_bytes * switches / total_s;
    let samples = Samples::new(times);
    println!("switch: two programs of {} MiB on {} MiB", bytes >> 20, arguments.device_mib);
    println!("  moved in all                {moved_bytes} bytes in {} turns", seen.len());
    println!(
        "  time per switch             p50 {:.3} s, p90 {:.3} s",
        samples.median(),
        samples.quantile(0.9)
    );
    println!("  link configured             {:.0} MB/s", link_bytes_per_s as f64 / 1e6);
    println!("  bare copy, same run         {:.0} MB/s", reference / 1e6);
    println!("  switch                      {:.0} MB/s", rate / 1e6);
    println!("  bytes/(time x configured)   {:.2}   (target >= 0.80)", rate / link_bytes_per_s as f64);
    println!("  machine: {}", machine());
    Ok(ExitCode::SUCCESS)
}

fn bare_rate(stage: &Stage, copies: &std::path::Path, bytes: u64) -> Result<f64> {
    let output =
        stage.bare(copies).arg(bytes.to_string()).output().context("the bare copy cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.split_whitespace().find_map(|word| word.strip_prefix("bytes_per_s=")?.parse().ok());
    rate.with_context(|| format!("the bare copy failed: {}", String::from_utf8_lossy(&output.stderr)))
}

fn run(stage: &Stage, program: &std::path::Path, bytes: u64, rounds: u32) -> Result<(Vec<Turn>, u64)> {
    let start = |name: &str| -> Result<Child> {
        let mut command = stage.under_turnus(name, program);
        command.args([bytes.to_string(), rounds.to_string(), "5".to_owned()]);
        command.spawn().context("a program cannot be started")
    };
    let mut children = [start("first")?, start("second")?];
    let mut readers = Vec::new();
    for (number, child) in children.iter_mut().enumerate() {
        let output = child.stdout.take().context("a piped output is missing")?;
        readers.push(std::thread::spawn(move || read_turns(number, BufReader::new(output))));
    }
    let mut moved = 0;
    let deadline = Instant::now() + Duration::from_secs(300);
    while children.iter_mut().any(|child| matches!(child.try_wait(), Ok(None))) {
        if let Ok(status) = stage.status() {
            let now = status.tenants.iter().map(|tenant| tenant.to_host_bytes + tenant.to_device_bytes).sum();
            moved = moved.max(now);
        }
        if Instant::now() > deadline {
            for child in &mut children {
                let _ = child.kill();
            }
            bail!("the programs do not come to their end");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut seen: Vec<Turn> =
        readers.into_iter().flat_map(|reader| reader.join().unwrap_or_default()).collect();
    seen.sort_by_key(|turn| turn.launched);
    Ok((seen, moved))
}

fn read_turns(program: usize, lines: impl BufRead) -> Vec<Turn> {
    lines
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| {
            let number = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok());
            Some(Turn {
                program,
                asked: number("asked=")?,
                launched: number("launched=")?,
                ended: number("ended=")?,
            })
        })
        .collect()
}

/// Seconds from one program's end of work to the other's launch, where that one waited already.
fn switch_times(turns: &[Turn]) -> Vec<f64> {
    turns
        .windows(2)
        .filter(|pair| pair[0].program != pair[1].program && pair[1].asked < pair[0].ended)
        .map(|pair| pair[1].launched.saturating_sub(pair[0].ended) as f64 / 1e9)
        .collect()
}
