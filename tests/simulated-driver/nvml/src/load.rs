//! How busy devices are, from the activity that the machine keeps per tenth of a second.
//!
//! Rates are those of the last second that is over. Times of the machine (CLOCK_MONOTONIC) become the CPU
//! timestamps of NVML, microseconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

use turnus_simulated_arena::{ArenaError, Direction, INTERVAL_NS, Interval, now_ns};

use crate::code::Result;
use crate::device::Device;
use crate::library::arena_error;

/// Intervals of the last second.
const RECENT: usize = (1_000_000_000 / INTERVAL_NS) as usize;

/// Percent of the last second.
fn percent(history: &[Interval]) -> u32 {
    let recent = &history[history.len().saturating_sub(RECENT)..];
    let busy_ns: u64 = recent.iter().map(|interval| interval.amount).sum();
    // Rounded up: who worked at all was not idle.
    (busy_ns * 100).div_ceil(RECENT as u64 * INTERVAL_NS).min(100) as u32
}

/// A value at a time, microseconds since 1970.
pub struct Sample {
    pub time_us: u64,
    pub percent: u32,
}

fn samples(history: &[Interval]) -> Vec<Sample> {
    let percent = |interval: &Interval| (interval.amount * 100).div_ceil(INTERVAL_NS).min(100) as u32;
    let sample = |interval| Sample { time_us: time_us(interval), percent: percent(interval) };
    history.iter().map(sample).collect()
}

/// When the interval ended, microseconds since 1970.
fn time_us(interval: &Interval) -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Rounded, so that the same interval has the same time at each look.
    (since_1970.as_nanos() as u64).saturating_sub(now_ns().saturating_sub(interval.end_ns)) / 1_000_000 * 1000
}

/// Work of a process in the last second.
pub struct ProcessLoad {
    pub pid: u32,
    pub time_us: u64,
    pub percent: u32,
}

impl Device {
    fn history(&self, history: std::result::Result<Vec<Interval>, ArenaError>) -> Result<Vec<Interval>> {
        history.map_err(arena_error)
    }

    /// Percent of the last second in which the compute engine worked.
    pub fn compute_percent(&self) -> Result<u32> {
        self.history(self.arena.engine_history(self.index)).map(|history| percent(&history))
    }

    /// Percent of the last second in which copies read or wrote device memory.
    pub fn copy_percent(&self) -> Result<u32> {
        self.history(self.arena.copy_history(self.index)).map(|history| percent(&history))
    }

    /// Samples of the compute engine, oldest first.
    pub fn compute_samples(&self) -> Result<Vec<Sample>> {
        self.history(self.arena.engine_history(self.index)).map(|history| samples(&history))
    }

    /// Samples of copies, oldest first.
    pub fn copy_samples(&self) -> Result<Vec<Sample>> {
        self.history(self.arena.copy_history(self.index)).map(|history| samples(&history))
    }

    /// KB per second over the link in the last interval.
    pub fn link_kb_per_s(&self, direction: Direction) -> Result<u32> {
        let history = self.history(self.arena.link_history(self.index, direction))?;
        let bytes = history.last().map_or(0, |interval| interval.amount);
        Ok(u32::try_from(bytes * (1_000_000_000 / INTERVAL_NS) / 1000).unwrap_or(u32::MAX))
    }

    /// The processes that used the compute engine lately.
    pub fn process_loads(&self) -> Result<Vec<ProcessLoad>> {
        let histories = self.arena.engine_history_by_process(self.index).map_err(arena_error)?;
        let loads = histories.into_iter().filter_map(|(pid, history)| {
            let last = history.iter().rev().find(|interval| interval.amount > 0)?;
            Some(ProcessLoad { pid, time_us: time_us(last), percent: percent(&history) })
        });
        Ok(loads.filter(|load| load.percent > 0).collect())
    }

    /// Energy since the machine was made, by the model of the card.
    pub fn energy_mj(&self) -> Result<u64> {
        let busy_ns = self.arena.engine_busy_ns(self.index).map_err(arena_error)?;
        Ok(crate::card::energy_mj(now_ns().saturating_sub(self.arena.made_ns()), busy_ns))
    }
}
