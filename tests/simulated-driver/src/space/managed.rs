//! Managed memory (`cuMemAllocManaged`): bytes that host and devices reach at one address.
//!
//! The bytes are anonymous host memory at the address itself, inside the device region, so the host uses them
//! as its own. Being resident on a device is an entry in the page table and a share of the device's capacity
//! (`residency.rs`); the bytes never move. What the program advised is kept here by range. Next:
//! `entry/managed.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use turnus_bindings::CUerror;

use super::allocation::Origin;
use super::{AddressSpace, Allocation, Result};

/// `CU_DEVICE_CPU`.
pub const CPU: i32 = -1;
/// `CU_DEVICE_INVALID`: no place, or not the same one everywhere.
pub const NOWHERE: i32 = -2;

/// What the program said about a range; places are device ordinals or [`CPU`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// `CU_MEM_ADVISE_SET_READ_MOSTLY`.
    pub read_mostly: bool,
    /// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`, or [`NOWHERE`].
    pub preferred: i32,
    /// `CU_MEM_ADVISE_SET_ACCESSED_BY`.
    pub accessed_by: Vec<i32>,
    /// Where it was last prefetched to, or [`NOWHERE`].
    pub prefetched: i32,
}

/// See the module's words.
#[derive(Debug)]
pub struct Managed {
    /// Length in whole pages.
    pub(super) taken_bytes: u64,
    /// Advice by the offset where it begins; each reaches to the next.
    advice: Mutex<BTreeMap<u64, Advice>>,
    /// Set before its pages go: nothing becomes resident any more.
    pub(super) is_freed: AtomicBool,
}

impl Managed {
    fn new(taken_bytes: u64) -> Arc<Managed> {
        let none =
            Advice { read_mostly: false, preferred: NOWHERE, accessed_by: Vec::new(), prefetched: NOWHERE };
        let advice = Mutex::new(BTreeMap::from([(0, none)]));
        Arc::new(Managed { taken_bytes, advice, is_freed: AtomicBool::new(false) })
    }

    /// Changes the advice of the bytes from `start` to `end`, offsets of whole host pages.
    pub fn advise(&self, start: u64, end: u64, change: impl Fn(&mut Advice)) {
        let mut advice = self.advice.lock();
        for at in [start, end] {
            let before = advice.range(..=at).next_back().map(|(_, advice)| advice.clone());
            if let Some(before) = before
                && at < self.taken_bytes
            {
                advice.entry(at).or_insert(before);
            }
        }
        advice.range_mut(start..end).for_each(|(_, advice)| change(advice));
    }

    /// All advice of the bytes from `start` to `end`.
    pub fn advice(&self, start: u64, end: u64) -> Vec<Advice> {
        let advice = self.advice.lock();
        let first = advice.range(..=start).next_back();
        let rest = advice.range(start + 1..end.max(start + 1));
        first.into_iter().chain(rest).map(|(_, advice)| advice.clone()).collect()
    }
}

impl AddressSpace {
    /// `cuMemAllocManaged` for the context with this id.
    pub fn allocate_managed(&self, context: u64, device: usize, bytes: u64) -> Result<u64> {
        let page_bytes = self.table.page_bytes();
        let taken_bytes = bytes.checked_next_multiple_of(page_bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        let base = self.state.lock().free.take(taken_bytes, page_bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        if !replace(base, taken_bytes, libc::PROT_READ | libc::PROT_WRITE) {
            self.state.lock().free.give(base, taken_bytes);
            return Err(CUerror::OUT_OF_MEMORY);
        }
        let origin = Origin::Managed(Managed::new(taken_bytes));
        self.enter(base, bytes, device, context, origin, None, 0);
        Ok(base)
    }

    /// The managed memory around `bytes` bytes from `address`, with its first address.
    pub fn managed(&self, address: u64, bytes: u64) -> Result<(u64, Allocation, Arc<Managed>)> {
        let state = self.state.lock();
        let (&base, allocation) =
            state.allocations.range(..=address).next_back().ok_or(CUerror::INVALID_VALUE)?;
        let managed = Arc::clone(allocation.managed().ok_or(CUerror::INVALID_VALUE)?);
        let end = address.checked_add(bytes).ok_or(CUerror::INVALID_VALUE)?;
        if end > base + allocation.bytes {
            return Err(CUerror::INVALID_VALUE);
        }
        Ok((base, allocation.clone(), managed))
    }

    /// Whether the bytes lie in one managed allocation.
    pub fn is_managed(&self, address: u64, bytes: u64) -> bool {
        self.managed(address, bytes).is_ok()
    }

    /// Frees managed memory that nothing uses any more.
    pub(super) fn free_managed(&self, base: u64, managed: &Managed) {
        self.leave_all(base, managed);
        self.shoot_down();
        // If the kernel refuses, the pages stay readable; the address is not given out again then.
        if replace(base, managed.taken_bytes, libc::PROT_NONE) {
            self.state.lock().free.give(base, managed.taken_bytes);
        }
    }
}

/// Puts new anonymous pages in place of those of the device region; false when the system refuses.
fn replace(start: u64, bytes: u64, protection: libc::c_int) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the range lies in the device region, which was reserved for good, and was taken from its free
    // ranges by the caller, so that nobody else uses it.
    let place = unsafe { libc::mmap(start as *mut libc::c_void, bytes as usize, protection, flags, -1, 0) };
    place != libc::MAP_FAILED
}
