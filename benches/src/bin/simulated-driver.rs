//! What the simulated driver itself costs: a launch on the caller's side, a thousand processes on one device, and
//! the host memory of a device of 80 GiB before and after it is touched.
//!
//! Each figure stands beside its target and says whether it is met. No daemon and no preload run here.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;
use turnus_benches::stage::{Stage, quick_machine};
use turnus_benches::statistics::{Samples, machine};
use turnus_simulated_arena::{Arena, ArenaConfig, profiles};

#[derive(Debug, Parser)]
struct Arguments {
    /// Processes that open the device at once.
    #[arg(long, default_value_t = 1000)]
    processes: usize,
    /// Launches per batch; there are 50 batches per thread.
    #[arg(long, default_value_t = 1000)]
    launches: u64,
}

const MIB: u64 = 1 << 20;

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    allow_many_files();
    println!("{:44} {:>14} {:>14}", "simulated driver", "measured", "target");
    launches(arguments.launches)?;
    openers(arguments.processes)?;
    untouched()?;
    println!("  machine: {}", machine());
    Ok(ExitCode::SUCCESS)
}

/// Two pipes per process are more than the usual soft limit on open files.
fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it stays as it is, the first process beyond it says so.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// One line of the table.
fn tell(what: &str, measured: f64, target: f64, unit: &str) {
    let verdict = if measured <= target { "met" } else { "missed" };
    let (measured, target) = (format!("{measured:.2} {unit}"), format!("{target:.2} {unit}"));
    println!("  {what:42} {measured:>14} {target:>14} {verdict}");
}

/// A launch of an empty kernel, seen by the thread that launches, on a device that does it in no time and on one
/// that takes its time.
fn launches(count: u64) -> Result<()> {
    for (what, config) in [
        ("launch of an empty kernel, 1 thread, p50", quick_machine(64 << 20, 1_000_000_000)),
        ("the same, device with all its costs, p50", ArenaConfig::default()),
    ] {
        let stage = Stage::new(&config)?;
        let program = stage.compile("launches.c", "launches", &[])?;
        let output = stage
            .bare(&program)
            .args(["1", "50", &count.to_string()])
            .output()
            .context("launches cannot be started")?;
        if !output.status.success() {
            bail!("launches failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let times = text.lines().filter_map(|line| line.strip_prefix("ns=")?.parse::<f64>().ok()).collect();
        let times = Samples::new(times);
        tell(what, times.median() / 1000.0, 1.0, "us");
        println!("    p10 {:.2} us, p90 {:.2} us", times.quantile(0.1) / 1e3, times.quantile(0.9) / 1e3);
    }
    Ok(())
}

/// A process that has opened the device.
struct Opener {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Opener {
    fn start(mut command: Command) -> Result<Opener> {
        let mut child = command.stdin(Stdio::piped()).spawn().context("an opener cannot be started")?;
        let output = BufReader::new(child.stdout.take().context("a piped output is missing")?);
        Ok(Opener { child, output })
    }

    /// The number behind `name=` in the next line.
    fn number(&mut self, name: &str) -> Result<f64> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let number = line.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix('=')?.parse().ok());
        number.with_context(|| format!("an opener said {line:?} instead of {name}"))
    }

    fn touch(&mut self) -> Result<()> {
        self.child.stdin.as_mut().context("a piped input is missing")?.write_all(b"touch\n")?;
        self.number("touched").map(drop)
    }

    /// KiB of a line of /proc/<id>/smaps_rollup.
    fn memory_kib(&self, name: &str) -> Result<f64> {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let number = |line: &str| line.strip_prefix(name)?.split_whitespace().nth(1)?.parse().ok();
        text.lines().find_map(number).with_context(|| format!("no {name} in {path}"))
    }

    /// Ends its input and waits for its good end.
    fn finish(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if !status.success() {
            bail!("an opener ended with {status}");
        }
        Ok(())
    }
}

/// `count` processes with a context each, all at once, on a card whose contexts are small enough for them.
fn openers(count: usize) -> Result<()> {
    let mut config = ArenaConfig::default();
    config.devices[0].context_bytes = 64 * MIB;
    let stage = Stage::new(&config)?;
    let program = stage.compile("opener.c", "opener", &[])?;
    let begun = Instant::now();
    let mut openers = Vec::with_capacity(count);
    for _ in 0..count {
        openers.push(Opener::start(stage.bare(&program))?);
    }
    let mut times = Vec::with_capacity(count);
    for opener in &mut openers {
        times.push(opener.number("open_us")? / 1e3);
        opener.number("ready")?;
    }
    let all = begun.elapsed();
    let times = Samples::new(times);
    let own: Vec<f64> = openers.iter().map(|opener| opener.memory_kib("Pss")).collect::<Result<_>>()?;
    let private = own.iter().sum::<f64>() / own.len() as f64 / 1024.0;
    println!(
        "  {count} processes: cuInit and a context p50 {:.0} ms, p99 {:.0} ms (a context costs 100 ms)",
        times.median(),
        times.quantile(0.99)
    );
    tell(&format!("{count} processes open one device, in all"), all.as_secs_f64(), 30.0, "s");
    tell("host memory of each (proportional)", private, 4.0, "MiB");
    openers.into_iter().try_for_each(Opener::finish)
}

/// Host memory that the files of a machine take, in MiB.
fn files_mib(directory: &Path) -> Result<f64> {
    let mut blocks = 0;
    for entry in std::fs::read_dir(directory)? {
        blocks += entry?.metadata()?.blocks();
    }
    Ok(blocks as f64 * 512.0 / MIB as f64)
}

/// A whole A100 at scale 1, all of its memory allocated, none or 256 MiB of it touched.
fn untouched() -> Result<()> {
    let card = profiles::by_name("A100-pcie4").context("the A100 has a profile")?;
    let bytes = card.memory_bytes / 10 * 9;
    let config = ArenaConfig { scale: 1, devices: vec![card], ..ArenaConfig::default() };
    let stage = Stage::new(&config)?;
    let program = stage.compile("opener.c", "opener", &[])?;
    let mut command = stage.bare(&program);
    command.arg(bytes.to_string());
    let mut opener = Opener::start(command)?;
    opener.number("open_us")?;
    opener.number("ready")?;
    let resident = opener.memory_kib("Rss")? / 1024.0;
    tell("80 GiB device, 90 % allocated: files", files_mib(stage.machine_directory())?, 16.0, "MiB");
    tell("its process: resident", resident, 32.0, "MiB");
    opener.touch()?;
    let touched = files_mib(stage.machine_directory())?;
    tell("files after 256 MiB were written", touched, 256.0 + 16.0, "MiB");
    if touched < 256.0 {
        bail!("only {touched} MiB are there after 256 MiB were written: the measure is wrong");
    }
    opener.finish()?;
    // What a process leaves behind goes when the next one looks.
    Arena::open_at(stage.machine_directory())?.reap()?;
    tell("files after that process ended", files_mib(stage.machine_directory())?, 16.0, "MiB");
    Ok(())
}
