//! Reservations, physical handles and mappings: CUDA driver API, "Virtual Memory Management".
//!
//! Strict where the documentation is: whole mappings only, offset zero, sizes in units of the granularity.
//! Whether work is running when something is unmapped is looked at by the entry point.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_simulated_arena::Operation;

use super::peers::devices_with;
use super::physical::Physical;
use super::table::{READ, WRITE};
use super::{AddressSpace, HOST_PAGE_BYTES, Reservation, Result, State};
use crate::driver::arena_error;

/// Memory mapped into a reservation.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Length.
    pub bytes: u64,
    /// What is mapped.
    pub physical: Arc<Physical>,
    /// The handle it was mapped by, living or not.
    pub handle: u64,
    /// Rights by device: 0, READ, or READ and WRITE.
    pub access: BTreeMap<usize, u64>,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub buffer_id: u64,
}

impl AddressSpace {
    /// `cuMemAddressReserve`.
    pub fn reserve(&self, bytes: u64, alignment_bytes: u64, hint: u64) -> Result<u64> {
        let aligned = alignment_bytes == 0 || alignment_bytes.is_power_of_two();
        if bytes == 0
            || !bytes.is_multiple_of(HOST_PAGE_BYTES)
            || !hint.is_multiple_of(HOST_PAGE_BYTES)
            || !aligned
        {
            return Err(CUerror::INVALID_VALUE);
        }
        let page_bytes = self.granularity_bytes.iter().copied().max().unwrap_or(HOST_PAGE_BYTES);
        let unit_bytes = page_bytes.next_power_of_two();
        let taken_bytes = bytes.checked_next_multiple_of(unit_bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        let mut state = self.state.lock();
        let hinted = hint != 0
            && hint.is_multiple_of(unit_bytes.max(alignment_bytes))
            && state.free.take_at(hint, taken_bytes);
        let base = if hinted {
            hint
        } else {
            state.free.take(taken_bytes, unit_bytes.max(alignment_bytes)).ok_or(CUerror::OUT_OF_MEMORY)?
        };
        state.reservations.insert(base, Reservation { bytes, taken_bytes });
        Ok(base)
    }

    /// `cuMemAddressFree`.
    pub fn free_reservation(&self, base: u64, bytes: u64) -> Result<()> {
        let mut state = self.state.lock();
        let reservation = *state.reservations.get(&base).ok_or(CUerror::INVALID_VALUE)?;
        let mapped = state.mappings.range(base..base + reservation.bytes).next().is_some();
        if reservation.bytes != bytes || mapped {
            return Err(CUerror::INVALID_VALUE);
        }
        state.reservations.remove(&base);
        state.free.give(base, reservation.taken_bytes);
        Ok(())
    }

    /// `cuMemCreate` with properties already checked.
    pub fn create(&self, device: usize, bytes: u64, handle_types: u32, rdma_capable: bool) -> Result<u64> {
        if bytes == 0 || !bytes.is_multiple_of(self.granularity_bytes[device]) {
            return Err(CUerror::INVALID_VALUE);
        }
        let mut physical = self.allocate_physical(device, bytes, handle_types)?;
        self.arena.mapping_cost(device, Operation::Create, 1, bytes).map_err(arena_error)?;
        physical.rdma_capable = rdma_capable;
        Ok(self.state.lock().handles.insert(Arc::new(physical)))
    }

    /// `cuMemRelease`.
    pub fn release(&self, handle: u64) -> Result<()> {
        // The memory may go with the last reference, which must not happen under the lock.
        let last = self.state.lock().handles.release(handle)?;
        drop(last);
        Ok(())
    }

    /// `cuMemRetainAllocationHandle`.
    pub fn retain(&self, address: u64) -> Result<u64> {
        let mut state = self.state.lock();
        let (_, mapping) = state.mapping_at(address).ok_or(CUerror::INVALID_VALUE)?;
        let (handle, physical) = (mapping.handle, Arc::clone(&mapping.physical));
        state.handles.retain(handle, &physical);
        Ok(handle)
    }

    /// The memory of a handle (`cuMemGetAllocationPropertiesFromHandle`).
    pub fn physical(&self, handle: u64) -> Result<Arc<Physical>> {
        self.state.lock().handles.get(handle).cloned()
    }

    /// `cuMemMap`; no access is given.
    pub fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<()> {
        let physical = self.physical(handle)?;
        let unit_bytes = self.granularity_bytes[physical.device()];
        if bytes == 0
            || !bytes.is_multiple_of(unit_bytes)
            || !address.is_multiple_of(unit_bytes)
            || bytes > physical.bytes
        {
            return Err(CUerror::INVALID_VALUE);
        }
        self.arena.mapping_cost(physical.device(), Operation::Map, 1, bytes).map_err(arena_error)?;
        let mut state = self.state.lock();
        let end = address.checked_add(bytes).ok_or(CUerror::INVALID_VALUE)?;
        let around = state.reservations.range(..=address).next_back();
        let inside = around.is_some_and(|(&base, reservation)| end <= base + reservation.bytes);
        if !inside || state.first_mapping_in(address, end).is_some() {
            return Err(CUerror::INVALID_VALUE);
        }
        let buffer_id = state.new_buffer_id();
        state
            .mappings
            .insert(address, Mapping { bytes, physical, handle, access: BTreeMap::new(), buffer_id });
        Ok(())
    }

    /// `cuMemUnmap`: the range must be made of whole mappings.
    pub fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        let device = {
            let state = self.state.lock();
            let starts = state.whole_mappings(address, bytes)?;
            (state.mappings[&starts[0]].physical.device(), starts.len() as u64)
        };
        self.arena.mapping_cost(device.0, Operation::Unmap, device.1, bytes).map_err(arena_error)?;
        let mut state = self.state.lock();
        let starts = state.whole_mappings(address, bytes)?;
        self.table.clear(address, bytes);
        let removed: Vec<_> = starts.iter().filter_map(|start| state.mappings.remove(start)).collect();
        drop(state);
        self.shoot_down();
        drop(removed);
        Ok(())
    }

    /// `cuMemSetAccess` for one location: the range must be made of whole mappings that
    /// `device` can reach.
    pub fn set_access(&self, address: u64, bytes: u64, device: usize, rights: u64) -> Result<()> {
        let count = self.state.lock().whole_mappings(address, bytes)?.len() as u64;
        self.arena.mapping_cost(device, Operation::Access, count, bytes).map_err(arena_error)?;
        let mut state = self.state.lock();
        let starts = state.whole_mappings(address, bytes)?;
        let own = |start: &u64| state.mappings[start].physical.device();
        if !starts.iter().map(own).all(|own| own == device || self.can_access_peer(device, own)) {
            return Err(CUerror::INVALID_DEVICE);
        }
        for start in starts {
            let Some(mapping) = state.mappings.get_mut(&start) else { continue };
            mapping.access.insert(device, rights);
            let (length, physical) = (mapping.bytes, Arc::clone(&mapping.physical));
            let devices = devices_with(&mapping.access);
            let widest = mapping.access.values().fold(0, |widest, rights| widest | rights);
            if widest == 0 {
                self.table.clear(start, length);
            } else {
                self.map_pages(start, length, &physical, devices, widest)?;
            }
        }
        drop(state);
        if rights != READ | WRITE {
            self.shoot_down();
        }
        Ok(())
    }

    /// `cuMemExportToShareableHandle` for a file descriptor.
    pub fn export(&self, handle: u64, handle_type: u32) -> Result<OwnedFd> {
        let physical = self.physical(handle)?;
        if physical.handle_types & handle_type == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        physical.export()
    }

    /// `cuMemImportFromShareableHandle` for a file descriptor, which stays the caller's.
    pub fn import(&self, descriptor: BorrowedFd<'_>, handle_type: u32) -> Result<u64> {
        if descriptor.as_raw_fd() < 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let id = self.arena.import(descriptor).map_err(arena_error)?;
        let bytes = self.arena.size_bytes(id).map_err(arena_error)?;
        let physical = Physical::held(&self.arena, id, bytes, handle_type);
        Ok(self.state.lock().handles.insert(Arc::new(physical)))
    }
}

impl State {
    fn first_mapping_in(&self, start: u64, end: u64) -> Option<u64> {
        let before = self.mapping_at(start).map(|(base, _)| base);
        before.or_else(|| self.mappings.range(start..end).next().map(|(&base, _)| base))
    }

    /// Starts of the mappings that fill the range exactly.
    fn whole_mappings(&self, address: u64, bytes: u64) -> Result<Vec<u64>> {
        let end = address.checked_add(bytes).ok_or(CUerror::INVALID_VALUE)?;
        let mut next = address;
        let mut starts = Vec::new();
        while next < end {
            let mapping = self.mappings.get(&next).ok_or(CUerror::INVALID_VALUE)?;
            starts.push(next);
            next += mapping.bytes;
        }
        if next == end && !starts.is_empty() { Ok(starts) } else { Err(CUerror::INVALID_VALUE) }
    }
}
