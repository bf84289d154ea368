//! Stream-ordered allocations in the address space, and how other processes name them.
//!
//! Ties `pool.rs` (blocks) to `allocation.rs` (what lies at an address). A shared part is found by the name of
//! its physical memory on the machine; the receiver maps all of that memory and uses its part.

use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_simulated_arena::PhysicalId;

use super::allocation::Origin;
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
        let Origin::Pool(pool) = &allocation.origin else { return Err(CUerror::INVALID_VALUE) };
        let (physical, offset_bytes) = pool.backing(base).ok_or(CUerror::INVALID_VALUE)?;
        Ok(SharedPart { id: physical.id(), offset_bytes, bytes: allocation.bytes })
    }

    /// Maps a part that another process shared.
    pub fn import_part(&self, part: SharedPart, context: u64, origin: Origin) -> Result<u64> {
        let physical = Arc::new(Physical::hold(&self.arena, part.id)?);
        let inside = part.offset_bytes.checked_add(part.bytes).is_some_and(|end| end <= physical.bytes);
        if !inside || part.bytes == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let base = self.place_pages(&physical)? + part.offset_bytes;
        let device = physical.device();
        self.enter(base, part.bytes, device, context, origin, Some(physical), part.offset_bytes);
        Ok(base)
    }
}
