//! What is put off: frames that nobody reuses, host segments that stay empty, addresses.
//!
//! The worker calls it when it is woken and when the answered time has passed. It never waits for
//! the program's work: while some may run, cached frames stay (they are few, see `cache.rs`) until
//! the next drain wakes the worker.

use super::Memory;
use super::restore::Credit;
use super::segments::EMPTY_KEEP;
use super::table::{Block, Life};
use std::time::{Duration, Instant};
use turnus_bindings::types::CUdevice;

/// How long the frames of a freed block are kept for the next allocation.
const CACHE_KEEP: Duration = Duration::from_millis(500);
/// When something could not be done, it is tried again after this long.
const RETRY: Duration = Duration::from_millis(100);

impl Memory {
    /// Does what is due; answers when to come again, if ever. Only the worker.
    pub(crate) fn tidy(&self) -> Option<Duration> {
        self.tidy_at(Instant::now())
    }

    /// As if it were `now`.
    pub(super) fn tidy_at(&self, now: Instant) -> Option<Duration> {
        let mut lanes = self.lanes();
        let ordinals = self.state().ordinals();
        let mut next = None;
        for ordinal in ordinals {
            // Made now and not in a switch. If it fails, the move that needs it tries again.
            let _ = self.open_lane(&mut lanes, ordinal);
            next = earliest(next, self.tidy_cache(ordinal, now));
        }
        let keep_from = now.checked_sub(EMPTY_KEEP);
        let empty_since =
            keep_from.and_then(|before| self.state().segments.return_empty(&*self.scheduler, before));
        next = earliest(next, empty_since.map(|since| since + EMPTY_KEEP));
        drop(lanes);
        self.give_back_addresses();
        next.map(|at| at.saturating_duration_since(now))
    }

    fn tidy_cache(&self, ordinal: CUdevice, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        let has_context = !state.device(ordinal)?.contexts.is_empty();
        let is_quiet = state.is_quiet || !has_context;
        state.is_tidying = is_quiet;
        drop(state);
        if !is_quiet {
            return None;
        }
        let again = self.dissolve_due(ordinal, has_context, now);
        self.state().is_tidying = false;
        again
    }

    fn dissolve_due(&self, ordinal: CUdevice, has_context: bool, now: Instant) -> Option<Instant> {
        let is_due = |block: &Block| match block.life {
            Life::Freed { since, in_use_since: None } => {
                !has_context || now.saturating_duration_since(since) >= CACHE_KEEP
            }
            _ => false,
        };
        loop {
            match self.dissolve_cached(ordinal, Credit::Return, is_due) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return Some(now + RETRY),
            }
        }
        self.oldest_cached(ordinal).map(|since| since + CACHE_KEEP)
    }

    fn oldest_cached(&self, ordinal: CUdevice) -> Option<Instant> {
        let since = |block: &Block| match block.life {
            Life::Freed { since, in_use_since: None } => Some(since),
            _ => None,
        };
        self.state().table.freed_blocks(ordinal).filter_map(since).min()
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
