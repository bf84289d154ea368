//! How busy a device was lately: amounts per tenth of a second, in shared memory, for NVML's rates.
//!
//! One word per tenth holds its number and its amount (nanoseconds of work, or bytes), so that adding is one
//! compare-exchange and a process that dies loses at most what it was about to add. Nothing here is needed for
//! the devices to work. Who adds: `engine.rs` (compute) and `link.rs` (copies). Who reads: the simulated NVML.

use crate::arena::Arena;
use crate::clock::now_ns;
use crate::error::ArenaError;
use crate::link::Direction;
use crate::usage::client_pids;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Length of an interval.
pub const INTERVAL_NS: u64 = 100_000_000;
/// Intervals that are remembered; the one that is going on is one of them.
const INTERVALS: usize = 16;

/// Amounts of the last intervals and of all time.
#[repr(C)]
pub(crate) struct Activity {
    total: AtomicU64,
    /// `interval number << 32 | amount`, at number modulo their count.
    intervals: [AtomicU64; INTERVALS],
}

/// What was done in one interval that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Its end, CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// Nanoseconds of work (at most the interval's length) or bytes.
    pub amount: u64,
}

impl Activity {
    /// Count `amount` in the interval of `now_ns`.
    pub(crate) fn add(&self, now_ns: u64, amount: u64) {
        let number = (now_ns / INTERVAL_NS) & 0xffff_ffff;
        let place = &self.intervals[number as usize % INTERVALS];
        self.total.fetch_add(amount, Relaxed);
        let mut word = place.load(Relaxed);
        loop {
            let before = if word >> 32 == number { word & 0xffff_ffff } else { 0 };
            let next = number << 32 | (before + amount).min(0xffff_ffff);
            match place.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(other) => word = other,
            }
        }
    }

    /// Forget everything, for a new owner.
    pub(crate) fn clear(&self) {
        self.total.store(0, Relaxed);
        self.intervals.iter().for_each(|place| place.store(0, Relaxed));
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// The intervals that are over, oldest first.
    fn history(&self, now_ns: u64) -> Vec<Interval> {
        let current = now_ns / INTERVAL_NS;
        let first = current.saturating_sub(INTERVALS as u64 - 1);
        let amount = |number: u64| {
            let word = self.intervals[number as usize % INTERVALS].load(Relaxed);
            if word >> 32 == number & 0xffff_ffff { word & 0xffff_ffff } else { 0 }
        };
        (first..current)
            .map(|number| Interval { end_ns: (number + 1) * INTERVAL_NS, amount: amount(number) })
            .collect()
    }
}

/// Work that came in one piece longer than an interval was counted in its last one: spread it backwards.
fn spread(mut history: Vec<Interval>) -> Vec<Interval> {
    let mut rest = 0;
    for interval in history.iter_mut().rev() {
        rest += interval.amount;
        interval.amount = rest.min(INTERVAL_NS);
        rest -= interval.amount;
    }
    history
}

impl Arena {
    /// Nanoseconds in which the compute engine worked, per interval that is over, oldest first.
    pub fn engine_history(&self, device: usize) -> Result<Vec<Interval>, ArenaError> {
        Ok(spread(self.state(device)?.tables.engine_activity.history(now_ns())))
    }

    /// Nanoseconds in which the compute engine worked since the machine was made.
    pub fn engine_busy_ns(&self, device: usize) -> Result<u64, ArenaError> {
        Ok(self.state(device)?.tables.engine_activity.total())
    }

    /// The same by process id, for processes that used the engine in one of the intervals.
    pub fn engine_history_by_process(&self, device: usize) -> Result<Vec<(u32, Vec<Interval>)>, ArenaError> {
        let tables = self.state(device)?.tables;
        self.reap()?;
        let now = now_ns();
        let histories = client_pids(&self.shared)
            .map(|(slot, pid)| (pid, spread(tables.waiters[slot].activity.history(now))));
        Ok(histories.filter(|(_, history)| history.iter().any(|interval| interval.amount > 0)).collect())
    }

    /// Nanoseconds in which device memory was read or written by copies, per interval that is over; copies at
    /// an unlimited rate take no time.
    pub fn copy_history(&self, device: usize) -> Result<Vec<Interval>, ArenaError> {
        Ok(spread(self.state(device)?.tables.copy_activity.history(now_ns())))
    }

    /// Bytes that were copied in a direction, per interval that is over.
    pub fn link_history(&self, device: usize, direction: Direction) -> Result<Vec<Interval>, ArenaError> {
        Ok(self.state(device)?.tables.link_activity[direction as usize].history(now_ns()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> Activity {
        Activity { total: AtomicU64::new(0), intervals: [const { AtomicU64::new(0) }; INTERVALS] }
    }

    #[test]
    fn amounts_are_kept_by_interval_and_forgotten_after_the_last_one() {
        let activity = activity();
        activity.add(1_000 * INTERVAL_NS + 5, 7);
        activity.add(1_000 * INTERVAL_NS + 9, 3);
        activity.add(1_001 * INTERVAL_NS, 4);
        let history = activity.history(1_002 * INTERVAL_NS);
        assert_eq!(history.last(), Some(&Interval { end_ns: 1_002 * INTERVAL_NS, amount: 4 }));
        assert_eq!(history.iter().map(|interval| interval.amount).sum::<u64>(), 14);
        let later = activity.history((1_001 + INTERVALS as u64) * INTERVAL_NS);
        assert_eq!(later.iter().map(|interval| interval.amount).sum::<u64>(), 0);
        assert_eq!(activity.total(), 14, "the total stays");
    }

    #[test]
    fn a_long_piece_of_work_counts_where_it_was_done() {
        let activity = activity();
        activity.add(1_005 * INTERVAL_NS, 5 * INTERVAL_NS / 2);
        let amounts: Vec<u64> =
            spread(activity.history(1_006 * INTERVAL_NS)).iter().rev().map(|found| found.amount).collect();
        assert_eq!(amounts[..4], [INTERVAL_NS, INTERVAL_NS, INTERVAL_NS / 2, 0]);
    }
}
