//! Memory pools: blocks of device memory from which stream-ordered allocations are cut.
//!
//! A freed range is pending until its stream has come past the free; until then only work behind that point
//! may use it. Which addresses are allocations is kept in `allocation.rs`; here are blocks, free and pending
//! ranges and the numbers that `cuMemPoolGetAttribute` tells. Rules: CUDA driver API, "Stream Ordered Memory
//! Allocator"; the order of attempts is that of the programming guide's chapter of the same name.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;

use super::peers::devices_with;
use super::physical::Physical;
use super::ranges::FreeRanges;
use super::{ALLOCATION_ALIGNMENT_BYTES, AddressSpace, READ, Result, WRITE};
use crate::execution::Event;

/// A pool grows by this many units of physical memory at least: 32 MiB on a real card (from memory).
const GROWTH_UNITS: u64 = 16;

/// What a pool is made of, fixed when it is made.
#[derive(Clone, Copy, Debug)]
pub struct PoolProperties {
    /// Device that the memory is on.
    pub device: usize,
    /// `CUmemAllocationHandleType` bits the program may export it as.
    pub handle_types: u32,
    /// Most bytes it may reserve; 0 for no limit.
    pub maximum_bytes: u64,
    /// Names the pool on the machine; an imported pool has the name of the exported one.
    pub identity: [u64; 2],
    /// From another process: nothing new is allocated from it.
    pub imported: bool,
}

/// See the module's words.
#[derive(Debug)]
pub struct Pool {
    /// The handle the program has.
    pub handle: usize,
    /// See there.
    pub properties: PoolProperties,
    state: Mutex<PoolState>,
}

/// What programs can set and read.
#[derive(Clone, Debug)]
pub struct PoolNumbers {
    /// Reuse along event dependencies, opportunistic, and by internal dependencies: attributes 1 to 3.
    pub reuse: [bool; 3],
    /// Bytes kept at a synchronisation.
    pub release_threshold_bytes: u64,
    /// Physical memory held.
    pub reserved_bytes: u64,
    /// Most of it since the mark was reset.
    pub reserved_high_bytes: u64,
    /// Allocated and not freed, rounded as they are cut.
    pub used_bytes: u64,
    /// Most of it since the mark was reset.
    pub used_high_bytes: u64,
    /// Rights by device, of those that have any.
    pub access: BTreeMap<usize, u64>,
}

#[derive(Debug)]
struct PoolState {
    blocks: Vec<Block>,
    numbers: PoolNumbers,
}

/// Physical memory at consecutive addresses.
#[derive(Debug)]
struct Block {
    base: u64,
    bytes: u64,
    free: FreeRanges,
    pending: Vec<Pending>,
    physical: Arc<Physical>,
}

/// A freed range that its stream may still be using.
#[derive(Clone, Debug)]
struct Pending {
    start: u64,
    bytes: u64,
    freed: Freed,
}

/// Where in which stream a free stands.
#[derive(Clone, Debug)]
pub struct Freed {
    /// The stream (by its id).
    pub stream: u64,
    /// Recorded behind the last use.
    pub event: Arc<Event>,
}

/// Memory cut from a pool.
#[derive(Debug)]
pub struct Taken {
    /// First address.
    pub address: u64,
    /// What the allocating stream has to wait for before it may use the memory.
    pub waits: Vec<Arc<Event>>,
}

/// The length of an allocation as it is cut.
pub(super) fn cut_bytes(bytes: u64) -> Result<u64> {
    bytes.checked_next_multiple_of(ALLOCATION_ALIGNMENT_BYTES).ok_or(CUerror::OUT_OF_MEMORY)
}

impl Pool {
    /// An empty pool.
    pub fn new(handle: usize, properties: PoolProperties) -> Arc<Pool> {
        let numbers = PoolNumbers {
            reuse: [true; 3],
            release_threshold_bytes: 0,
            reserved_bytes: 0,
            reserved_high_bytes: 0,
            used_bytes: 0,
            used_high_bytes: 0,
            access: BTreeMap::from([(properties.device, READ | WRITE)]),
        };
        Arc::new(Pool { handle, properties, state: Mutex::new(PoolState { blocks: Vec::new(), numbers }) })
    }

    /// Attributes of the moment.
    pub fn numbers(&self) -> PoolNumbers {
        self.state.lock().numbers.clone()
    }

    /// Changes attributes.
    pub fn change(&self, change: impl FnOnce(&mut PoolNumbers)) {
        change(&mut self.state.lock().numbers);
    }

    /// Cuts `bytes` for work of `stream`: from free memory, from what the same stream freed, from new physical
    /// memory, or from what another stream has still to come past.
    pub(super) fn take(&self, space: &AddressSpace, bytes: u64, stream: u64) -> Result<Taken> {
        let bytes = cut_bytes(bytes)?;
        let mut state = self.state.lock();
        let [_, opportunistic, internal] = state.numbers.reuse;
        if opportunistic {
            state.blocks.iter_mut().for_each(Block::harvest);
        }
        let own = |pending: &Pending| pending.freed.stream == stream;
        let mut taken = state.blocks.iter_mut().find_map(|block| block.take(bytes, own));
        if let Some(taken) = &mut taken {
            // Later work of the same stream is behind the free anyway.
            taken.waits.clear();
        }
        if taken.is_none() {
            taken = match self.grow(space, &mut state, bytes) {
                Ok(()) => state.blocks.last_mut().and_then(|block| block.take(bytes, own)),
                Err(_) if internal => state.blocks.iter_mut().find_map(|block| block.take(bytes, |_| true)),
                Err(error) => return Err(error),
            };
        }
        let taken = taken.ok_or(CUerror::OUT_OF_MEMORY)?;
        let numbers = &mut state.numbers;
        numbers.used_bytes += bytes;
        numbers.used_high_bytes = numbers.used_high_bytes.max(numbers.used_bytes);
        Ok(taken)
    }

    /// Takes an allocation of `bytes` back: at once, or when `freed` has been reached.
    pub(super) fn give(&self, start: u64, bytes: u64, freed: Option<Freed>) {
        let Ok(bytes) = cut_bytes(bytes) else { return };
        let mut state = self.state.lock();
        let Some(block) = state.blocks.iter_mut().find(|block| start.wrapping_sub(block.base) < block.bytes)
        else {
            return;
        };
        match freed {
            Some(freed) => block.pending.push(Pending { start, bytes, freed }),
            None => block.free.give(start, bytes),
        }
        state.numbers.used_bytes -= bytes;
    }

    /// Gives whole blocks without use back to the device, as long as `kept_bytes` stay reserved.
    pub fn trim(&self, space: &AddressSpace, kept_bytes: u64) {
        let mut state = self.state.lock();
        state.blocks.iter_mut().for_each(Block::harvest);
        let mut kept = Vec::new();
        for block in std::mem::take(&mut state.blocks) {
            if block.is_idle() && state.numbers.reserved_bytes - block.bytes >= kept_bytes {
                state.numbers.reserved_bytes -= block.bytes;
                space.free_pages(block.base, block.physical);
            } else {
                kept.push(block);
            }
        }
        state.blocks = kept;
    }

    /// `cuMemPoolSetAccess` for a device that is not its own: all memory of now and later.
    pub fn set_access(&self, space: &AddressSpace, device: usize, rights: u64) {
        let mut state = self.state.lock();
        state.numbers.access.insert(device, rights);
        let devices = devices_with(&state.numbers.access);
        state.blocks.iter().for_each(|block| space.table.give(block.base, block.bytes, devices));
        drop(state);
        if rights == 0 {
            space.shoot_down();
        }
    }

    /// Whether it holds no memory.
    pub fn is_empty(&self) -> bool {
        self.state.lock().blocks.is_empty()
    }

    /// The physical memory behind `address`, and how far inside it lies.
    pub(super) fn backing(&self, address: u64) -> Option<(Arc<Physical>, u64)> {
        let state = self.state.lock();
        let block = state.blocks.iter().find(|block| address.wrapping_sub(block.base) < block.bytes)?;
        Some((Arc::clone(&block.physical), address - block.base))
    }

    /// Adds a block that has room for `bytes`.
    fn grow(&self, space: &AddressSpace, state: &mut PoolState, bytes: u64) -> Result<()> {
        let device = self.properties.device;
        let unit_bytes = space.granularity_bytes(device);
        let least_bytes = bytes.checked_next_multiple_of(unit_bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        let room_bytes = match self.properties.maximum_bytes {
            0 => u64::MAX,
            maximum => maximum.saturating_sub(state.numbers.reserved_bytes),
        };
        let wanted = [least_bytes.max(GROWTH_UNITS * unit_bytes), least_bytes];
        let made = wanted.into_iter().filter(|bytes| *bytes <= room_bytes).find_map(|bytes| {
            let types = self.properties.handle_types;
            let pages = space.allocate_pages(device, bytes, types, devices_with(&state.numbers.access));
            pages.ok().map(|(base, physical)| (base, bytes, physical))
        });
        let (base, bytes, physical) = made.ok_or(CUerror::OUT_OF_MEMORY)?;
        let free = FreeRanges::new(base, bytes);
        state.blocks.push(Block { base, bytes, free, pending: Vec::new(), physical });
        let numbers = &mut state.numbers;
        numbers.reserved_bytes += bytes;
        numbers.reserved_high_bytes = numbers.reserved_high_bytes.max(numbers.reserved_bytes);
        Ok(())
    }
}

impl Block {
    /// What is freed and reached is free.
    fn harvest(&mut self) {
        let (over, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition::<Vec<_>, _>(|pending| pending.freed.event.is_over());
        self.pending = pending;
        over.iter().for_each(|pending| self.free.give(pending.start, pending.bytes));
    }

    /// Cuts `bytes` from free ranges and from those pending ones that are usable.
    fn take(&mut self, bytes: u64, usable: impl Fn(&Pending) -> bool) -> Option<Taken> {
        if let Some(address) = self.free.take(bytes, ALLOCATION_ALIGNMENT_BYTES) {
            return Some(Taken { address, waits: Vec::new() });
        }
        let mut joined = self.free.clone();
        let usable = |pending: &&Pending| usable(pending);
        self.pending.iter().filter(usable).for_each(|pending| joined.give(pending.start, pending.bytes));
        let address = joined.take(bytes, ALLOCATION_ALIGNMENT_BYTES)?;
        self.free.carve(address, bytes);
        let mut waits = Vec::new();
        let mut left = Vec::new();
        for pending in std::mem::take(&mut self.pending) {
            let mut rest = FreeRanges::new(pending.start, pending.bytes);
            if rest.carve(address, bytes) {
                waits.push(Arc::clone(&pending.freed.event));
            }
            let part = |(start, bytes)| Pending { start, bytes, freed: pending.freed.clone() };
            left.extend(rest.iter().map(part));
        }
        self.pending = left;
        Some(Taken { address, waits })
    }

    /// Whether nothing of it is allocated or pending.
    fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.free.is_whole(self.bytes)
    }
}
