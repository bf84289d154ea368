//! Time on the links: who transfers reserves the next free stretch of time.
//!
//! One word per direction says when it is free again. Processes that reserve in chunks interleave and so share
//! it evenly; a process that dies loses at most the stretch it reserved. No lock, no queue. `costs.rs` does the
//! same for what costs time under the machine's one lock.

use crate::arena::Arena;
use crate::clock::{now_ns, sleep_coarsely, sleep_until_or};
use crate::config::DeviceConfig;
use crate::error::ArenaError;
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A gap of at most this much between two uses is the caller's way to the next one, not idleness: the next
/// stretch follows the last without a hole. Real engines are fed ahead.
pub(crate) const GAP_NS: u64 = 150_000;
/// The same inside one copy: a real engine goes on when the submitting thread gets no processor.
const COPY_GAP_NS: u64 = 20_000_000;
/// Length of a chunk in time, bounded in bytes.
const CHUNK_NS: u64 = 1_000_000;
const CHUNK_BYTES_MIN: u64 = 4 << 10;
const CHUNK_BYTES_MAX: u64 = 4 << 20;
/// The worker of a copy may run ahead of the link by this much; shorter waits cost more than they regulate.
const AHEAD_NS: u64 = 100_000;

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Over the link to the device.
    HostToDevice = 0,
    /// Over the link to the host.
    DeviceToHost = 1,
    /// Inside the device.
    DeviceToDevice = 2,
}

impl Direction {
    fn opposite(self) -> Option<Self> {
        match self {
            Self::HostToDevice => Some(Self::DeviceToHost),
            Self::DeviceToHost => Some(Self::HostToDevice),
            Self::DeviceToDevice => None,
        }
    }

    /// Bytes per second while the other direction is idle; 0 = not limited.
    fn rate(self, config: &DeviceConfig) -> u64 {
        match self {
            Self::HostToDevice => config.host_to_device_bytes_per_s,
            Self::DeviceToHost => config.device_to_host_bytes_per_s,
            Self::DeviceToDevice => config.device_to_device_bytes_per_s,
        }
    }
}

/// Reserve the next stretch, which follows the last one if that ended at most `gap_ns` ago; `length_ns` learns
/// the time. Returns the end.
pub(crate) fn reserve(next_free_ns: &AtomicU64, gap_ns: u64, length_ns: impl Fn(u64) -> u64) -> u64 {
    let mut next = next_free_ns.load(Relaxed);
    loop {
        let now = now_ns();
        let start = if next + gap_ns >= now { next } else { now };
        let end = start + length_ns(now);
        match next_free_ns.compare_exchange_weak(next, end, Relaxed, Relaxed) {
            Ok(_) => return end,
            Err(other) => next = other,
        }
    }
}

pub(crate) fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64
}

impl Arena {
    /// Reserve the time of `bytes` in a direction, behind what is reserved already. Returns when the transfer
    /// is over (CLOCK_MONOTONIC, see [`crate::sleep_until`]); at once when the rate is not limited. If the
    /// other direction is busy now the duplex rate applies to all of it, so reserve in chunks of about 1 ms and
    /// the next one before waiting for the last, as [`Arena::copy`] does.
    pub fn link_reserve(&self, device: usize, direction: Direction, bytes: u64) -> Result<u64, ArenaError> {
        self.link_follow(device, direction, bytes, GAP_NS)
    }

    fn link_follow(
        &self,
        device: usize,
        direction: Direction,
        bytes: u64,
        gap_ns: u64,
    ) -> Result<u64, ArenaError> {
        let config = &self.device(device)?.config;
        let tables = self.shared.device(device).tables;
        // The parts of a device share its link, but for what stays inside of them.
        let is_inside = direction == Direction::DeviceToDevice;
        let link_of = if is_inside { device } else { self.device(device)?.whole() };
        let links = &self.shared.device(link_of).tables.link_next_ns;
        tables.link_activity[direction as usize].add(now_ns(), bytes);
        let alone = direction.rate(config);
        if alone == 0 {
            return Ok(now_ns());
        }
        let duplex = if config.duplex_bytes_per_s == 0 { alone } else { config.duplex_bytes_per_s };
        let taken_ns = Cell::new(0);
        let end_ns = reserve(&links[direction as usize], gap_ns, |now| {
            let opposite = direction.opposite().map(|opposite| links[opposite as usize].load(Relaxed));
            let is_duplex = opposite.is_some_and(|busy_until| busy_until > now);
            taken_ns.set(transfer_ns(bytes, if is_duplex { duplex } else { alone }));
            taken_ns.get()
        });
        tables.copy_activity.add(now_ns(), taken_ns.get());
        Ok(end_ns)
    }

    /// Copy in chunks at the rate of the link and return when the transfer is over. `cancel` is looked at
    /// between chunks.
    ///
    /// # Safety
    /// `destination` must be valid for writes and `source` for reads of `bytes` during the call. They may
    /// overlap; other processes may access the bytes (as with a real device, the content is then theirs to
    /// order).
    pub unsafe fn copy(
        &self,
        device: usize,
        direction: Direction,
        destination: *mut u8,
        source: *const u8,
        bytes: u64,
        cancel: &AtomicBool,
    ) -> Result<(), ArenaError> {
        let chunk_bytes = match direction.rate(&self.device(device)?.config) {
            0 => CHUNK_BYTES_MAX,
            rate => {
                (rate / (1_000_000_000 / CHUNK_NS)).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
                    & !(CHUNK_BYTES_MIN - 1)
            }
        };
        let length = |offset: u64| chunk_bytes.min(bytes - offset);
        let mut deadline = self.link_reserve(device, direction, length(0))?;
        let mut offset = 0;
        while offset < bytes {
            let cancelled = || ArenaError::Cancelled { copied_bytes: offset };
            let end = offset + length(offset);
            // Reserved before the wait, so that the link never looks idle in the middle of a copy.
            let next = (end < bytes)
                .then(|| self.link_follow(device, direction, length(end), COPY_GAP_NS))
                .transpose()?;
            if cancel.load(Relaxed) {
                return Err(cancelled());
            }
            // SAFETY: offset..end lies within `bytes`, for which the caller vouches; `copy` allows overlap.
            unsafe {
                let (from, to) = (source.add(offset as usize), destination.add(offset as usize));
                std::ptr::copy(from, to, (end - offset) as usize);
            }
            let is_over = match next {
                Some(_) => sleep_coarsely(deadline.saturating_sub(AHEAD_NS), cancel),
                None => sleep_until_or(deadline, cancel),
            };
            if !is_over {
                return Err(cancelled());
            }
            deadline = next.unwrap_or(deadline);
            offset = end;
        }
        Ok(())
    }
}
