//! Physical memory as the program holds it: the object behind `CUmemGenericAllocationHandle`.
//!
//! A handle value counts its references (`cuMemRetainAllocationHandle`); mappings hold the memory by
//! themselves, so it is freed when the last of both is gone. Handle values are never used twice, so that a
//! stale one is found.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use turnus_bindings::CUerror;
use turnus_simulated_arena::{Arena, Operation, PhysicalId, Piece};

use super::Result;
use crate::driver::arena_error;

/// Memory of a device, given back when dropped.
#[derive(Debug)]
pub struct Physical {
    arena: Arc<Arena>,
    id: PhysicalId,
    /// Length.
    pub bytes: u64,
    /// `CUmemAllocationHandleType` bits the program may export it as.
    pub handle_types: u32,
    /// `CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID`.
    pub block_id: u64,
    /// `allocFlags.gpuDirectRDMACapable` as asked.
    pub rdma_capable: bool,
}

impl Physical {
    /// Takes `bytes` of the device.
    pub fn allocate(arena: &Arc<Arena>, device: usize, bytes: u64, handle_types: u32) -> Result<Self> {
        let id = arena.allocate(device, bytes).map_err(arena_error)?;
        Ok(Self::held(arena, id, bytes, handle_types))
    }

    /// Takes over a hold on `id`, e.g. of imported memory.
    pub fn held(arena: &Arc<Arena>, id: PhysicalId, bytes: u64, handle_types: u32) -> Self {
        static NEXT_BLOCK: AtomicU64 = AtomicU64::new(1);
        let block_id = NEXT_BLOCK.fetch_add(1, Ordering::Relaxed);
        Self { arena: Arc::clone(arena), id, bytes, handle_types, block_id, rdma_capable: false }
    }

    /// Holds memory of another client once more.
    pub fn hold(arena: &Arc<Arena>, id: PhysicalId) -> Result<Self> {
        arena.hold(id).map_err(arena_error)?;
        // From here on the drop of it gives the hold back.
        let mut held = Self::held(arena, id, 0, 0);
        held.bytes = arena.size_bytes(id).map_err(arena_error)?;
        Ok(held)
    }

    /// Its name on the machine.
    pub fn id(&self) -> PhysicalId {
        self.id
    }

    /// The device that the memory is on.
    pub fn device(&self) -> usize {
        self.id.device()
    }

    /// Where the bytes are in this process.
    pub fn pieces(&self) -> Result<Vec<Piece>> {
        self.arena.pieces(self.id).map_err(arena_error)
    }

    /// A descriptor for other processes.
    pub fn export(&self) -> Result<std::os::fd::OwnedFd> {
        self.arena.export(self.id).map_err(arena_error)
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // Refused only in a forked child, which holds nothing.
        let _ = self.arena.mapping_cost(self.device(), Operation::Release, 1, self.bytes);
        let _ = self.arena.release(self.id);
    }
}

/// The handles that the program holds.
#[derive(Debug)]
pub struct Handles {
    entries: HashMap<u64, (Arc<Physical>, u64)>,
    next: u64,
}

impl Handles {
    /// No handles.
    pub fn new() -> Self {
        Self { entries: HashMap::new(), next: 0x7f00_0001 }
    }

    /// A new handle with one reference.
    pub fn insert(&mut self, physical: Arc<Physical>) -> u64 {
        let handle = self.next;
        self.next += 1;
        self.entries.insert(handle, (physical, 1));
        handle
    }

    /// The memory of a handle.
    pub fn get(&self, handle: u64) -> Result<&Arc<Physical>> {
        self.entries.get(&handle).map(|entry| &entry.0).ok_or(CUerror::INVALID_VALUE)
    }

    /// One more reference to `handle`, which once named `physical`.
    pub fn retain(&mut self, handle: u64, physical: &Arc<Physical>) {
        self.entries.entry(handle).or_insert_with(|| (Arc::clone(physical), 0)).1 += 1;
    }

    /// One reference less; returns the memory with the last one.
    pub fn release(&mut self, handle: u64) -> Result<Option<Arc<Physical>>> {
        let entry = self.entries.get_mut(&handle).ok_or(CUerror::INVALID_VALUE)?;
        entry.1 -= 1;
        if entry.1 > 0 {
            return Ok(None);
        }
        Ok(self.entries.remove(&handle).map(|entry| entry.0))
    }
}
