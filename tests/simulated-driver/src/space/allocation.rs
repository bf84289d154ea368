//! `cuMemAlloc` memory: own pages for large requests, shared pages of one context for small ones.
//!
//! A request of at most half a page unit comes from a slab, as the real driver takes it from a 2 MiB block;
//! so a stray access next to it hits the same page and is not found, as on a real card. Waiting for running
//! work before a free is the entry point's duty.

use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_simulated_arena::Operation;

use super::managed::Managed;
use super::peers::Devices;
use super::physical::Physical;
use super::pool::Pool;
use super::pool_memory::SharedPart;
use super::ranges::FreeRanges;
use super::table::{READ, WRITE};
use super::{ALLOCATION_ALIGNMENT_BYTES, AddressSpace, Result};
use crate::driver::arena_error;

/// The context (by its id) and device that share slabs.
pub(super) type SlabOwner = (u64, usize);

/// Memory that `cuMemAlloc` gave.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// As asked for.
    pub bytes: u64,
    /// Device.
    pub device: usize,
    /// Id of the context it belongs to; 0 when it belongs to none.
    pub context: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub buffer_id: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` as the program set it.
    pub sync_memops: bool,
    /// The memory itself, or `None` when it is a part of a slab or of a pool's block.
    pub(super) physical: Option<Arc<Physical>>,
    /// Where in the memory it begins.
    pub(super) offset_bytes: u64,
}

/// How memory was allocated.
#[derive(Clone, Debug)]
pub enum Origin {
    /// `cuMemAlloc`.
    Context,
    /// `cuMemAllocAsync` and its kin.
    Pool(Arc<Pool>),
    /// `cuMemPoolImportPointer`, with the imported pool.
    ImportedPool(Arc<Pool>),
    /// `cuIpcOpenMemHandle`: what was opened, and how often.
    Opened(SharedPart, u32),
    /// Allocation nodes of a graph.
    Graph,
    /// `cuMemAllocManaged`.
    Managed(Arc<Managed>),
}

impl Allocation {
    /// What managed memory it is.
    pub fn managed(&self) -> Option<&Arc<Managed>> {
        match &self.origin {
            Origin::Managed(managed) => Some(managed),
            _ => None,
        }
    }

    /// The pool it is from.
    pub fn pool(&self) -> Option<&Arc<Pool>> {
        match &self.origin {
            Origin::Pool(pool) | Origin::ImportedPool(pool) => Some(pool),
            _ => None,
        }
    }
}

/// Pages that small allocations share.
#[derive(Debug)]
pub(super) struct Slab {
    pub(super) base: u64,
    pub(super) bytes: u64,
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
            let devices = self.devices_of(context, device);
            let (base, physical) = self.allocate_pages(device, rounded, 0, devices)?;
            (base, Some(physical))
        };
        self.enter(base, bytes, device, context, Origin::Context, physical, 0);
        // What was given meanwhile did not see it.
        let first_page = base - base % unit_bytes;
        self.table.give(first_page, base + bytes - first_page, self.devices_of(context, device));
        Ok(base)
    }

    /// The allocation that starts at `base`.
    pub fn allocation(&self, base: u64) -> Result<Allocation> {
        self.state.lock().allocations.get(&base).cloned().ok_or(CUerror::INVALID_VALUE)
    }

    /// Takes the allocation that starts at `base` out: its address means nothing any more, its memory is still
    /// there for [`Self::give_back`].
    pub fn take_out(&self, base: u64) -> Result<Allocation> {
        self.state.lock().allocations.remove(&base).ok_or(CUerror::INVALID_VALUE)
    }

    /// Frees the memory of an allocation that was taken out, which nothing may use any more.
    pub fn give_back(&self, base: u64, allocation: Allocation) {
        match (allocation.origin, allocation.physical) {
            (Origin::Managed(managed), _) => self.free_managed(base, &managed),
            // Its memory is kept by `graph_pool.rs`.
            (Origin::Graph, _) => {}
            (Origin::Pool(pool), _) => pool.give(base, allocation.bytes, None),
            (_, Some(physical)) => self.free_pages(base - allocation.offset_bytes, physical),
            (_, None) => self.free_in_slab((allocation.context, allocation.device), base, allocation.bytes),
        }
    }

    /// `cuMemFree`.
    pub fn free(&self, base: u64) -> Result<()> {
        let allocation = self.take_out(base)?;
        self.give_back(base, allocation);
        Ok(())
    }

    /// Makes the range an allocation.
    #[allow(clippy::too_many_arguments, reason = "they are the fields of one")]
    pub(super) fn enter(
        &self,
        base: u64,
        bytes: u64,
        device: usize,
        context: u64,
        origin: Origin,
        physical: Option<Arc<Physical>>,
        offset_bytes: u64,
    ) {
        let mut state = self.state.lock();
        let buffer_id = state.new_buffer_id();
        let sync_memops = false;
        let allocation =
            Allocation { bytes, device, context, origin, buffer_id, sync_memops, physical, offset_bytes };
        state.allocations.insert(base, allocation);
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

    pub(super) fn allocate_pages(
        &self,
        device: usize,
        bytes: u64,
        handle_types: u32,
        devices: Devices,
    ) -> Result<(u64, Arc<Physical>)> {
        let physical = Arc::new(self.allocate_physical(device, bytes, handle_types)?);
        // What is refused takes no time, least of all under the machine-wide lock.
        self.arena.mapping_cost(device, Operation::Create, 1, bytes).map_err(arena_error)?;
        let base = self.place_pages(&physical, devices)?;
        Ok((base, physical))
    }

    /// Maps all of the memory at a new address, for these devices.
    pub(super) fn place_pages(&self, physical: &Physical, devices: Devices) -> Result<u64> {
        let (device, bytes) = (physical.device(), physical.bytes);
        let unit_bytes = self.granularity_bytes[device].next_power_of_two();
        let taken_bytes = bytes.next_multiple_of(unit_bytes);
        let base = self.state.lock().free.take(taken_bytes, unit_bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        self.map_pages(base, bytes, physical, devices, READ | WRITE)?;
        Ok(base)
    }

    pub(super) fn free_pages(&self, base: u64, physical: Arc<Physical>) {
        let bytes = physical.bytes;
        self.table.clear(base, bytes);
        self.shoot_down();
        let unit_bytes = self.granularity_bytes[physical.device()].next_power_of_two();
        // The memory goes before the address, so that nobody is given an address without memory.
        drop(physical);
        self.state.lock().free.give(base, bytes.next_multiple_of(unit_bytes));
    }

    /// The physical memory behind an allocation of `cuMemAlloc`, and how far inside it begins.
    pub(super) fn backing(&self, base: u64, allocation: &Allocation) -> Option<(Arc<Physical>, u64)> {
        if let Some(physical) = &allocation.physical {
            return Some((Arc::clone(physical), allocation.offset_bytes));
        }
        let state = self.state.lock();
        let mut slabs = state.slabs.get(&(allocation.context, allocation.device))?.iter();
        let slab = slabs.find(|slab| base.wrapping_sub(slab.base) < slab.bytes)?;
        Some((Arc::clone(&slab.physical), base - slab.base))
    }

    fn allocate_in_slab(&self, owner: SlabOwner, bytes: u64) -> Result<u64> {
        let rounded = bytes.next_multiple_of(ALLOCATION_ALIGNMENT_BYTES);
        let take = |slabs: &mut Vec<Slab>| {
            slabs.iter_mut().find_map(|slab| slab.free.take(rounded, ALLOCATION_ALIGNMENT_BYTES))
        };
        if let Some(base) = self.state.lock().slabs.get_mut(&owner).and_then(take) {
            return Ok(base);
        }
        let slab_bytes = self.granularity_bytes[owner.1];
        let (base, physical) =
            self.allocate_pages(owner.1, slab_bytes, 0, self.devices_of(owner.0, owner.1))?;
        let mut slab = Slab { base, bytes: slab_bytes, free: FreeRanges::new(base, slab_bytes), physical };
        let taken = slab.free.take(rounded, ALLOCATION_ALIGNMENT_BYTES).ok_or(CUerror::OUT_OF_MEMORY)?;
        self.state.lock().slabs.entry(owner).or_default().push(slab);
        Ok(taken)
    }

    fn free_in_slab(&self, owner: SlabOwner, base: u64, bytes: u64) {
        let rounded = bytes.next_multiple_of(ALLOCATION_ALIGNMENT_BYTES);
        let mut state = self.state.lock();
        let Some(slabs) = state.slabs.get_mut(&owner) else { return };
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
