//! Host memory that devices reach: allocated by the driver (pinned) or the program's own (registered).
//!
//! Host and device address are the same. Looked up by every copy and by kernels that leave device memory, so
//! reading takes a shared lock for a moment only.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use turnus_bindings::CUerror;

use super::Result;

/// Where the memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// `cuMemHostAlloc`, `cuMemAllocHost`.
    Allocated,
    /// `cuMemHostRegister`.
    Registered,
}

/// One range.
#[derive(Clone, Copy, Debug)]
pub struct HostRange {
    /// First byte.
    pub start: u64,
    /// Length as the program gave it.
    pub bytes: u64,
    /// Origin.
    pub kind: HostKind,
    /// Flags given at allocation or registration.
    pub flags: u32,
    /// Id of the context that was current.
    pub context: u64,
    /// Its device.
    pub device: usize,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`; of a series of its own, far above those of device memory.
    pub buffer_id: u64,
}

/// All ranges of the process, by start.
#[derive(Debug, Default)]
pub struct HostRanges {
    ranges: RwLock<BTreeMap<u64, HostRange>>,
}

impl HostRanges {
    /// The range around `address`.
    pub fn find(&self, address: u64) -> Option<HostRange> {
        let ranges = self.ranges.read();
        let (_, range) = ranges.range(..=address).next_back()?;
        (address < range.start + range.bytes.max(1)).then_some(*range)
    }

    /// Whether `bytes` from `address` lie in one range.
    pub fn covers(&self, address: u64, bytes: u64) -> bool {
        let end = |range: &HostRange| range.start + range.bytes;
        self.find(address)
            .is_some_and(|range| address.checked_add(bytes).is_some_and(|last| last <= end(&range)))
    }

    /// Adds a range; refused when it meets another one.
    pub fn insert(&self, mut range: HostRange) -> Result<()> {
        static NEXT_BUFFER: AtomicU64 = AtomicU64::new(1 << 40);
        range.buffer_id = NEXT_BUFFER.fetch_add(1, Ordering::Relaxed);
        let end = range.start.checked_add(range.bytes).ok_or(CUerror::INVALID_VALUE)?;
        let mut ranges = self.ranges.write();
        let before = ranges.range(..=range.start).next_back();
        let meets = before.is_some_and(|(_, other)| other.start + other.bytes > range.start)
            || ranges.range(range.start..end).next().is_some();
        if meets {
            return Err(CUerror::HOST_MEMORY_ALREADY_REGISTERED);
        }
        ranges.insert(range.start, range);
        Ok(())
    }

    /// Takes the range that starts at `start` and is of `kind` out.
    pub fn remove(&self, start: u64, kind: HostKind) -> Option<HostRange> {
        let mut ranges = self.ranges.write();
        if ranges.get(&start)?.kind != kind {
            return None;
        }
        ranges.remove(&start)
    }

    /// Takes all ranges of a context out.
    pub fn remove_all_of(&self, context: u64) -> Vec<HostRange> {
        let mut ranges = self.ranges.write();
        let (gone, kept) =
            std::mem::take(&mut *ranges).into_iter().partition(|(_, range)| range.context == context);
        *ranges = kept;
        let gone: BTreeMap<u64, HostRange> = gone;
        gone.into_values().collect()
    }
}
