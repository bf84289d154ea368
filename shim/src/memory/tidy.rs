//! What is put off: frames that nobody reuses, host segments that stay empty, addresses.
//!
//! The worker calls it when it is woken and when the answered time has passed. Cached frames are
//! kept short and few: they are faster to reuse than to make, but they count as resident.

use super::Memory;
use super::frames::Frame;
use super::restore::Credit;
use super::segments::EMPTY_KEEP;
use super::table::{Block, Life};
use std::time::{Duration, Instant};
use turnus_bindings::types::CUdevice;

/// How long the frames of a freed block are kept for the next allocation.
const CACHE_KEEP: Duration = Duration::from_millis(500);
/// Most frames that are kept, as a part of the device.
const CACHE_PART: u64 = 16;
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
            let at = self.tidy_device(&mut lanes, ordinal, now);
            next = earliest(next, at);
        }
        let keep_from = now.checked_sub(EMPTY_KEEP);
        let empty_since =
            keep_from.and_then(|before| self.state().segments.return_empty(&*self.scheduler, before));
        next = earliest(next, empty_since.map(|since| since + EMPTY_KEEP));
        drop(lanes);
        self.give_back_addresses();
        next.map(|at| at.saturating_duration_since(now))
    }

    fn tidy_device(&self, lanes: &mut super::Lanes, ordinal: CUdevice, now: Instant) -> Option<Instant> {
        let state = self.state();
        let device = state.device(ordinal)?;
        let has_context = !device.contexts.is_empty();
        let kept_bytes_max = device.total_bytes / CACHE_PART;
        drop(state);
        // Made now and not in a switch. If it fails, the move that needs it tries again.
        let _ = self.open_lane(lanes, ordinal);
        let is_old = |block: &Block| match block.life {
            Life::Freed { since, in_use_since: None } => now.saturating_duration_since(since) >= CACHE_KEEP,
            _ => false,
        };
        while self.cached_bytes(ordinal) > kept_bytes_max || !has_context {
            match self.dissolve_cached(ordinal, Credit::Return, Block::is_reusable) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return Some(now + RETRY),
            }
        }
        loop {
            match self.dissolve_cached(ordinal, Credit::Return, is_old) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return Some(now + RETRY),
            }
        }
        self.oldest_freed(ordinal).map(|since| since + CACHE_KEEP)
    }

    fn cached_bytes(&self, ordinal: CUdevice) -> u64 {
        self.state()
            .table
            .freed_blocks(ordinal)
            .flat_map(|block| &block.frames)
            .map(Frame::resident_bytes)
            .sum()
    }

    fn oldest_freed(&self, ordinal: CUdevice) -> Option<Instant> {
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
