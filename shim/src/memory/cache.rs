//! Frames of freed blocks: kept for a while, since to reuse one is faster than to make one.
//!
//! They count as resident. A new allocation of the same size gets block and frames as they are
//! (`Table::adopt`); else the frames are moved or dissolved when others are needed, on an eviction,
//! when they are too many, and after a while. Moving and dissolving unmaps: only when nothing runs,
//! or right after what might touch them has been waited for.

use super::Memory;
use super::frames::{Frame, Rung};
use super::restore::Credit;
use super::table::{Block, Life, Place};
use turnus_bindings::{CUerror, CUresult, types::CUdevice};

/// Most bytes that are kept, as a part of the device.
const CACHE_PART: u64 = 64;

impl Memory {
    /// Gives cached frames to allocated frames of the same size, and dissolves others as far as the
    /// credits do not reach.
    pub(super) fn use_cache(&self, ordinal: CUdevice) -> CUresult {
        if !self.has_cache(ordinal) {
            return Ok(());
        }
        let needed = self.frameless(ordinal);
        if needed.is_empty() {
            return Ok(());
        }
        self.quieten(ordinal)?;
        let mut lacking_bytes = 0;
        for (place, bytes) in needed {
            if !self.move_cached_to(ordinal, place, bytes)? {
                lacking_bytes += bytes;
            }
        }
        let lacks_credit = || {
            let state = self.state();
            state.device(ordinal).is_some_and(|device| device.ledger.unspent_bytes() < lacking_bytes)
        };
        while lacks_credit() && self.dissolve_cached(ordinal, Credit::Keep, Block::is_reusable)? {}
        Ok(())
    }

    /// Dissolves the whole cache. True: there was something.
    pub(super) fn empty_cache(&self, ordinal: CUdevice) -> Result<bool, CUerror> {
        let mut is_any = false;
        if self.has_cache(ordinal) {
            self.quieten(ordinal)?;
            while self.dissolve_cached(ordinal, Credit::Keep, Block::is_reusable)? {
                is_any = true;
            }
        }
        Ok(is_any)
    }

    /// Dissolves what is too much. The caller has just waited for the work of the device; during a
    /// move it is left to the next time.
    pub(super) fn shrink_cache(&self, ordinal: CUdevice) -> CUresult {
        let Ok(_lanes) = self.lanes.try_lock() else { return Ok(()) };
        let most_bytes = |memory: &Memory| {
            let state = memory.state();
            state
                .device(ordinal)
                .map_or(0, |device| (device.total_bytes / CACHE_PART).max(device.frame_bytes))
        };
        while self.cached_bytes(ordinal) > most_bytes(self)
            && self.dissolve_cached(ordinal, Credit::Return, Block::is_reusable)?
        {}
        Ok(())
    }

    /// Dissolves one frame of the cache that `wanted` says yes to. False: there is none.
    pub(super) fn dissolve_cached(
        &self,
        ordinal: CUdevice,
        credit: Credit,
        wanted: impl Fn(&Block) -> bool,
    ) -> Result<bool, CUerror> {
        let picked = self.state().table.pick_freed(ordinal, |block, _| wanted(block));
        let Some(place) = picked else { return Ok(false) };
        let result = self.descend(place, credit);
        self.state().stop_moving(place);
        result.map(|()| true)
    }

    /// Bytes of frames in the cache, waited for or not.
    pub(super) fn cached_bytes(&self, ordinal: CUdevice) -> u64 {
        self.state()
            .table
            .freed_blocks(ordinal)
            .flat_map(|block| &block.frames)
            .map(Frame::resident_bytes)
            .sum()
    }

    fn has_cache(&self, ordinal: CUdevice) -> bool {
        self.state().table.freed_blocks(ordinal).any(Block::is_reusable)
    }

    /// Waits for what has passed the gate before it closed for want of frames.
    fn quieten(&self, ordinal: CUdevice) -> CUresult {
        let state = self.state();
        let contexts = state.device(ordinal).map_or(Vec::new(), |device| device.contexts.clone());
        let is_quiet = state.is_quiet;
        drop(state);
        if is_quiet { Ok(()) } else { self.synchronise_all(&contexts) }
    }

    /// Allocated frames without memory, in the order of their addresses.
    fn frameless(&self, ordinal: CUdevice) -> Vec<(Place, u64)> {
        let state = self.state();
        let live = state.table.blocks_of(ordinal).filter(|(_, block)| block.life == Life::Live);
        live.flat_map(|(base, block)| block.frames.iter().enumerate().map(move |entry| (base, entry)))
            .filter(|(_, (_, frame))| frame.rung == Rung::None && !frame.is_moving)
            .map(|(block, (index, frame))| (Place { block, index }, frame.bytes))
            .collect()
    }

    /// Moves the memory of a cached frame of exactly this size. False: there is none.
    fn move_cached_to(&self, ordinal: CUdevice, place: Place, bytes: u64) -> Result<bool, CUerror> {
        let mut state = self.state();
        let fits = |block: &Block, frame: &Frame| block.is_reusable() && frame.bytes == bytes;
        let Some(source) = state.table.pick_freed(ordinal, fits) else { return Ok(false) };
        // Freed meanwhile, or not: it stays where it is as long as it is marked.
        if let Some(frame) = state.table.frame_mut(place) {
            frame.is_moving = true;
        }
        drop(state);
        let result = self.take_from(source, place);
        let mut state = self.state();
        state.stop_moving(source);
        state.stop_moving(place);
        result.map(|()| true)
    }

    fn take_from(&self, source: Place, place: Place) -> CUresult {
        let (_, address, bytes) = self.locate(source)?;
        if let Rung::Mapped(handle) | Rung::Accessible(handle) = self.rung(source)? {
            self.driver.unmap(address, bytes)?;
            self.set_rung(source, Rung::Created(handle));
        }
        let mut state = self.state();
        if state.table.frame_mut(place).is_none() {
            // The allocation is gone; the frame stays in the cache.
            return Ok(());
        }
        let Some(frame) = state.table.frame_mut(source) else { return Ok(()) };
        let rung = std::mem::replace(&mut frame.rung, Rung::None);
        if let Some(frame) = state.table.frame_mut(place) {
            frame.rung = rung;
        }
        Ok(())
    }
}
