//! What is known about addresses: allocations by their address, and the blocks of frames under them.
//!
//! A large allocation has a block of its own; small ones share a slab. A block whose allocations
//! are all freed stays for a while with its frames, as a cache: it is then in `freed` and no longer
//! the program's. Pure bookkeeping: no driver, no daemon. Read next: `frames.rs`, `state.rs`.

use super::driver::Context;
use super::extents::Extents;
use super::frames::{Content, Frame, Rung};
use super::ranges::Ranges;
use super::segments::Segments;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use turnus_bindings::types::CUdevice;

/// What the program was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// What `cuMemAlloc` answered.
    pub(crate) address: u64,
    /// What the program asked for.
    pub(crate) bytes: u64,
    /// The block in which it lies.
    pub(crate) block: u64,
    /// The context that was current.
    pub(crate) context: Context,
    /// The device.
    pub(crate) ordinal: CUdevice,
    /// Never used for another allocation of this process.
    pub(crate) buffer_id: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub(crate) has_sync_memops: bool,
}

/// Whether a block is the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Something in it is allocated.
    Live,
    /// A cache of frames.
    Freed {
        /// When the last allocation went.
        since: Instant,
        /// The number of the freeing, if work that is older may still touch it.
        in_use_since: Option<u64>,
    },
}

/// A range of addresses with frames of its own.
#[derive(Debug)]
pub(crate) struct Block {
    /// Its length; a multiple of the granularity.
    pub(crate) bytes: u64,
    /// The device.
    pub(crate) ordinal: CUdevice,
    /// In the order of their addresses, without holes.
    pub(crate) frames: Vec<Frame>,
    /// Where there is room, if small allocations share it.
    pub(crate) slab: Option<Ranges>,
    /// Whose it is.
    pub(crate) life: Life,
}

impl Block {
    /// Whether its frames may be used for something else now.
    pub(crate) fn is_reusable(&self) -> bool {
        matches!(self.life, Life::Freed { in_use_since: None, .. })
    }

    fn has_nothing(&self) -> bool {
        self.frames.iter().all(|frame| frame.rung == Rung::None && !frame.is_moving)
    }
}

/// A frame's place: block and index. Stays valid while the frame is marked as moving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Address of the block.
    pub(crate) block: u64,
    /// Index of the frame.
    pub(crate) index: usize,
}

/// The one table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    allocations: BTreeMap<u64, Allocation>,
    blocks: BTreeMap<u64, Block>,
    /// Live blocks that small allocations share.
    slabs: BTreeSet<(CUdevice, u64)>,
    /// Freed blocks by device, length, address.
    freed: BTreeSet<(CUdevice, u64, u64)>,
    /// Address ranges that nothing is mapped in any more.
    retired: Vec<(u64, u64)>,
    /// The same allocations and blocks, for who must not wait for the lock of all this.
    extents: Arc<Extents>,
}

impl Table {
    /// Where allocations and blocks end, as this table keeps it.
    pub(crate) fn extents(&self) -> Arc<Extents> {
        Arc::clone(&self.extents)
    }

    /// The allocation that contains this address.
    pub(crate) fn find(&self, address: u64) -> Option<&Allocation> {
        let (_, allocation) = self.allocations.range(..=address).next_back()?;
        (address - allocation.address < allocation.bytes).then_some(allocation)
    }

    /// The allocation that contains this address, to be changed.
    pub(crate) fn find_mut(&mut self, address: u64) -> Option<&mut Allocation> {
        let (_, allocation) = self.allocations.range_mut(..=address).next_back()?;
        (address - allocation.address < allocation.bytes).then_some(allocation)
    }

    /// Enters an allocation into a live block.
    pub(crate) fn add_allocation(&mut self, allocation: Allocation) {
        self.extents.add_allocation(allocation.address, allocation.bytes);
        self.allocations.insert(allocation.address, allocation);
    }

    /// Takes out the allocation that begins at this address.
    pub(crate) fn remove_allocation(&mut self, address: u64) -> Option<Allocation> {
        self.extents.remove_allocation(address);
        self.allocations.remove(&address)
    }

    /// Whether nothing is allocated.
    pub(crate) fn has_no_allocations(&self) -> bool {
        self.allocations.is_empty()
    }

    /// Addresses of the context's allocations.
    pub(crate) fn allocations_of(&self, context: Context) -> Vec<u64> {
        self.allocations
            .values()
            .filter(|entry| entry.context == context)
            .map(|entry| entry.address)
            .collect()
    }

    /// Enters a block of unwritten frames.
    pub(crate) fn add_block(&mut self, base: u64, block: Block) {
        if block.slab.is_some() {
            self.slabs.insert((block.ordinal, base));
        }
        self.extents.add_block(base, block.bytes);
        self.blocks.insert(base, block);
    }

    /// The block at this address.
    pub(crate) fn block(&self, base: u64) -> Option<&Block> {
        self.blocks.get(&base)
    }

    /// The block at this address, to be changed.
    pub(crate) fn block_mut(&mut self, base: u64) -> Option<&mut Block> {
        self.blocks.get_mut(&base)
    }

    /// All blocks of the device, in the order of their addresses.
    pub(crate) fn blocks_of(&self, ordinal: CUdevice) -> impl DoubleEndedIterator<Item = (u64, &Block)> {
        self.blocks
            .iter()
            .filter(move |(_, block)| block.ordinal == ordinal)
            .map(|(&base, block)| (base, block))
    }

    /// The frames of the device that the program can reach, in the order of their addresses.
    pub(crate) fn live_frames(&self, ordinal: CUdevice) -> impl Iterator<Item = &Frame> {
        self.blocks_of(ordinal)
            .filter(|(_, block)| block.life == Life::Live)
            .flat_map(|(_, block)| &block.frames)
    }

    /// A frame that is known to be there, because it is marked as moving.
    pub(crate) fn frame_mut(&mut self, place: Place) -> Option<&mut Frame> {
        self.blocks.get_mut(&place.block)?.frames.get_mut(place.index)
    }

    /// A slab of the device with room.
    pub(crate) fn take_from_slab(&mut self, ordinal: CUdevice, bytes: u64) -> Option<(u64, u64)> {
        self.slabs.range((ordinal, 0)..=(ordinal, u64::MAX)).find_map(|&(_, base)| {
            let offset = self.blocks.get_mut(&base)?.slab.as_mut()?.take(bytes)?;
            Some((base, base + offset))
        })
    }

    /// The block is no longer the program's. Its bytes are dropped, its frames are kept.
    pub(crate) fn free_block(&mut self, base: u64, in_use_since: Option<u64>, segments: &mut Segments) {
        if let Some(block) = self.blocks.get_mut(&base) {
            block.life = Life::Freed { since: Instant::now(), in_use_since };
            if block.slab.take().is_some() {
                self.slabs.remove(&(block.ordinal, base));
            }
            self.freed.insert((block.ordinal, block.bytes, base));
            self.settle(base, segments);
        }
    }

    /// A freed block of exactly this length with all its frames becomes the program's again.
    pub(crate) fn adopt(&mut self, ordinal: CUdevice, bytes: u64, slab: Option<Ranges>) -> Option<u64> {
        let is_whole = |frame: &Frame| matches!(frame.rung, Rung::Accessible(_)) && !frame.is_moving;
        let fits = |base: u64| {
            let block = self.blocks.get(&base)?;
            (block.is_reusable() && block.frames.iter().all(is_whole)).then_some(base)
        };
        let base = self
            .freed
            .range((ordinal, bytes, 0)..=(ordinal, bytes, u64::MAX))
            .find_map(|&(_, _, base)| fits(base))?;
        self.freed.remove(&(ordinal, bytes, base));
        let block = self.blocks.get_mut(&base)?;
        block.life = Life::Live;
        if slab.is_some() {
            self.slabs.insert((ordinal, base));
        }
        block.slab = slab;
        for frame in &mut block.frames {
            frame.content = Content::Device { unwritten_since: None };
        }
        Some(base)
    }

    /// The first frame in the cache that `wanted` says yes to, marked as moving.
    pub(crate) fn pick_freed(
        &mut self,
        ordinal: CUdevice,
        wanted: impl Fn(&Block, &Frame) -> bool,
    ) -> Option<Place> {
        let range = (ordinal, 0, 0)..=(ordinal, u64::MAX, u64::MAX);
        for &(_, _, base) in self.freed.range(range) {
            let Some(block) = self.blocks.get(&base) else { continue };
            let is_idle = |frame: &Frame| frame.rung != Rung::None && !frame.is_moving;
            let found = block.frames.iter().position(|frame| is_idle(frame) && wanted(block, frame));
            if let Some(index) = found {
                let place = Place { block: base, index };
                self.frame_mut(place)?.is_moving = true;
                return Some(place);
            }
        }
        None
    }

    /// After something about the block has changed: if it is freed, drops what only a live block
    /// needs, and forgets it when nothing is left of it.
    pub(crate) fn settle(&mut self, base: u64, segments: &mut Segments) {
        let Some(block) = self.blocks.get_mut(&base) else { return };
        if block.life == Life::Live {
            return;
        }
        for frame in block.frames.iter_mut().filter(|frame| !frame.is_moving) {
            if let Content::Host(span) = std::mem::replace(&mut frame.content, Content::Unwritten) {
                segments.give(span);
            }
        }
        if block.has_nothing() {
            self.freed.remove(&(block.ordinal, block.bytes, base));
            self.retired.push((base, block.bytes));
            self.extents.remove_block(base);
            self.blocks.remove(&base);
        }
    }

    /// All work has ended that is older than freeing number `last`: blocks of the device that were
    /// freed until then may be used again.
    pub(crate) fn promote_freed(&mut self, ordinal: CUdevice, last: u64) {
        for block in self.blocks.values_mut().filter(|block| block.ordinal == ordinal) {
            if let Life::Freed { in_use_since, .. } = &mut block.life {
                *in_use_since = in_use_since.filter(|number| *number > last);
            }
        }
    }

    /// Freed blocks of the device.
    pub(crate) fn freed_blocks(&self, ordinal: CUdevice) -> impl Iterator<Item = &Block> {
        let range = (ordinal, 0, 0)..=(ordinal, u64::MAX, u64::MAX);
        self.freed.range(range).filter_map(|(_, _, base)| self.blocks.get(base))
    }

    /// Remembers an address range that is no longer needed.
    pub(crate) fn retire(&mut self, base: u64, bytes: u64) {
        self.retired.push((base, bytes));
    }

    /// Address ranges to be given back to the driver.
    pub(crate) fn take_retired(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.retired)
    }
}
