//! Stream-ordered allocations in the address space, and how other processes name them.
//!
//! Ties `pool.rs` (blocks) to `allocation.rs` (what lies at an address). A shared part is found by the name of
//! its physical memory on the machine; the receiver maps all of that memory and uses its part.

use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_simulated_arena::PhysicalId;

use super::allocation::Origin;
use super::peers::only;
use super::physical::Physical;
use super::pool::{Freed, Pool, Taken};
use super::{AddressSpace, Allocation, Result};

/// A part of physical memory, as another process can find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPart {
    /// The memory.
    pub id: PhysicalId,
    /// Where the part begins.
    pub offset_bytes: u64,
    /// Length of the part.
    pub bytes: u64,
    /// Tells allocations apart that had the same place one after the other.
    pub serial: u64,
}

impl AddressSpace {
    /// Memory of a pool for later work of a stream (by its id), which has to wait for what `waits` names.
    pub fn allocate_from_pool(&self, pool: &Arc<Pool>, bytes: u64, stream: u64) -> Result<Taken> {
        if bytes == 0 || pool.properties.imported {
            return Err(CUerror::INVALID_VALUE);
        }
        let taken = pool.take(self, bytes, stream)?;
        let origin = Origin::Pool(Arc::clone(pool));
        self.enter(taken.address, bytes, pool.properties.device, 0, origin, None, 0);
        Ok(taken)
    }

    /// Gives an allocation of a pool, which was taken out, back when `freed` has been reached.
    pub fn give_to_pool(&self, pool: &Pool, base: u64, allocation: &Allocation, freed: Freed) {
        pool.give(base, allocation.bytes, Some(freed));
    }

    /// The allocation around `address` as other processes find it.
    pub fn shared_part(&self, base: u64) -> Result<SharedPart> {
        let allocation = self.allocation(base)?;
        let found = match &allocation.origin {
            Origin::Pool(pool) => pool.backing(base),
            Origin::Context => self.backing(base, &allocation),
            _ => None,
        };
        let (physical, offset_bytes) = found.ok_or(CUerror::INVALID_VALUE)?;
        let (bytes, serial) = (allocation.bytes, allocation.buffer_id);
        Ok(SharedPart { id: physical.id(), offset_bytes, bytes, serial })
    }

    /// Where the part is open in the context already; counts the opening.
    pub fn open_again(&self, part: SharedPart, context: u64) -> Option<u64> {
        let mut state = self.state.lock();
        state.allocations.iter_mut().find_map(|(&base, allocation)| match &mut allocation.origin {
            Origin::Opened(opened, count) if *opened == part && allocation.context == context => {
                *count += 1;
                Some(base)
            }
            _ => None,
        })
    }

    /// `cuIpcCloseMemHandle`: whether this was the last opening, so that the memory is to be freed.
    pub fn close(&self, base: u64) -> Result<bool> {
        let mut state = self.state.lock();
        let allocation = state.allocations.get_mut(&base).ok_or(CUerror::INVALID_VALUE)?;
        let Origin::Opened(_, count) = &mut allocation.origin else { return Err(CUerror::INVALID_VALUE) };
        *count -= 1;
        Ok(*count == 0)
    }

    /// Maps a part that another process shared, for its own device and `for_device`.
    pub fn import_part(
        &self,
        part: SharedPart,
        context: u64,
        origin: Origin,
        for_device: usize,
    ) -> Result<u64> {
        let physical = Arc::new(Physical::hold(&self.arena, part.id)?);
        let inside = part.offset_bytes.checked_add(part.bytes).is_some_and(|end| end <= physical.bytes);
        if !inside || part.bytes == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let device = physical.device();
        let base = self.place_pages(&physical, only(device) | only(for_device))? + part.offset_bytes;
        self.enter(base, part.bytes, device, context, origin, Some(physical), part.offset_bytes);
        Ok(base)
    }
}
