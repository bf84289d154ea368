//! `cuMemAlloc` memory: own pages for large requests, shared pages of one context for small ones.
//!
//! A request of at most half a page unit comes from a slab, as the real driver takes it from a 2 MiB block;
//! so a stray access next to it hits the same page and is not found, as on a real card. Waiting for running
//! work before a free is the entry point's duty.

use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_simulated_arena::Operation;

use super::physical::Physical;
use super::ranges::FreeRanges;
use super::table::{READ, WRITE};
use super::{ALLOCATION_ALIGNMENT_BYTES, AddressSpace, Result};
use crate::driver::arena_error;

/// The context (by its id) and device that share slabs.
pub(super) type Pool = (u64, usize);

/// Memory that `cuMemAlloc` gave.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// As asked for.
    pub bytes: u64,
    /// Device.
    pub device: usize,
    /// Id of the context it belongs to.
    pub context: u64,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub buffer_id: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` as the program set it.
    pub sync_memops: bool,
    /// The memory itself, or `None` when it is a part of a slab.
    physical: Option<Arc<Physical>>,
}

/// Pages that small allocations share.
#[derive(Debug)]
pub(super) struct Slab {
    base: u64,
    bytes: u64,
    free: FreeRanges,
    physical: Arc<Physical>,
}

impl AddressSpace {
    /// `cuMemAlloc` for the context with this id.
    pub fn allocate(&self, context: u64, device: usize, bytes: u64) -> Result<u64> {
        if bytes == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let unit_bytes = self.granularity_bytes[device];
        let (base, physical) = if bytes <= unit_bytes / 2 {
            (self.allocate_in_slab((context, device), bytes)?, None)
        } else {
            let rounded = bytes.checked_next_multiple_of(unit_bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
            let (base, physical) = self.allocate_pages(device, rounded)?;
            (base, Some(physical))
        };
        let mut state = self.state.lock();
        let buffer_id = state.new_buffer_id();
        let allocation = Allocation { bytes, device, context, buffer_id, sync_memops: false, physical };
        state.allocations.insert(base, allocation);
        Ok(base)
    }

    /// The device of the allocation that starts at `base`, for what has to happen before it is freed.
    pub fn allocation_device(&self, base: u64) -> Result<usize> {
        self.state.lock().allocations.get(&base).map(|found| found.device).ok_or(CUerror::INVALID_VALUE)
    }

    /// `cuMemFree`.
    pub fn free(&self, base: u64) -> Result<()> {
        let mut state = self.state.lock();
        let allocation = state.allocations.remove(&base).ok_or(CUerror::INVALID_VALUE)?;
        drop(state);
        match allocation.physical {
            Some(physical) => self.free_pages(base, physical),
            None => self.free_in_slab((allocation.context, allocation.device), base, allocation.bytes),
        }
        Ok(())
    }

    /// Frees all that belongs to a context.
    pub fn free_all_of(&self, context: u64) {
        let bases: Vec<u64> = (self.state.lock().allocations.iter())
            .filter(|(_, allocation)| allocation.context == context)
            .map(|(&base, _)| base)
            .collect();
        for base in bases {
            // Another thread may have freed it meanwhile.
            let _ = self.free(base);
        }
    }

    /// Sets `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` of the allocation around `address`.
    pub fn set_sync_memops(&self, address: u64, value: bool) -> Result<()> {
        let mut state = self.state.lock();
        match state.allocations.range_mut(..=address).next_back() {
            Some((&base, allocation)) if address < base + allocation.bytes => {
                allocation.sync_memops = value;
                Ok(())
            }
            _ => Err(CUerror::INVALID_VALUE),
        }
    }

    fn allocate_pages(&self, device: usize, bytes: u64) -> Result<(u64, Arc<Physical>)> {
        self.arena.mapping_cost(device, Operation::Create, 1).map_err(arena_error)?;
        let physical = Arc::new(Physical::allocate(&self.arena, device, bytes, 0)?);
        let unit_bytes = self.granularity_bytes[device].next_power_of_two();
        let taken_bytes = bytes.next_multiple_of(unit_bytes);
        let base = self.state.lock().free.take(taken_bytes, unit_bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        self.map_pages(base, bytes, &physical, READ | WRITE)?;
        Ok((base, physical))
    }

    fn free_pages(&self, base: u64, physical: Arc<Physical>) {
        let bytes = physical.bytes;
        self.table.clear(base, bytes);
        self.shoot_down();
        let unit_bytes = self.granularity_bytes[physical.device()].next_power_of_two();
        // The memory goes before the address, so that nobody is given an address without memory.
        drop(physical);
        self.state.lock().free.give(base, bytes.next_multiple_of(unit_bytes));
    }

    fn allocate_in_slab(&self, pool: Pool, bytes: u64) -> Result<u64> {
        let rounded = bytes.next_multiple_of(ALLOCATION_ALIGNMENT_BYTES);
        let take = |slabs: &mut Vec<Slab>| {
            slabs.iter_mut().find_map(|slab| slab.free.take(rounded, ALLOCATION_ALIGNMENT_BYTES))
        };
        if let Some(base) = self.state.lock().slabs.get_mut(&pool).and_then(take) {
            return Ok(base);
        }
        let slab_bytes = self.granularity_bytes[pool.1];
        let (base, physical) = self.allocate_pages(pool.1, slab_bytes)?;
        let mut slab = Slab { base, bytes: slab_bytes, free: FreeRanges::new(base, slab_bytes), physical };
        let taken = slab.free.take(rounded, ALLOCATION_ALIGNMENT_BYTES).ok_or(CUerror::OUT_OF_MEMORY)?;
        self.state.lock().slabs.entry(pool).or_default().push(slab);
        Ok(taken)
    }

    fn free_in_slab(&self, pool: Pool, base: u64, bytes: u64) {
        let rounded = bytes.next_multiple_of(ALLOCATION_ALIGNMENT_BYTES);
        let mut state = self.state.lock();
        let Some(slabs) = state.slabs.get_mut(&pool) else { return };
        let Some(place) = slabs.iter().position(|slab| base.wrapping_sub(slab.base) < slab.bytes) else {
            return;
        };
        slabs[place].free.give(base, rounded);
        if slabs[place].free.is_whole(slabs[place].bytes) {
            let slab = slabs.swap_remove(place);
            drop(state);
            self.free_pages(slab.base, slab.physical);
        }
    }
}
