//! Exported memory: a descriptor that keeps memory alive and that another process can import.
//!
//! The descriptor is an open file description of the alive file that holds the lock of the export's byte, so
//! it can be duplicated, inherited and sent over a socket, and it cannot be forged: import asks the kernel
//! which byte this very description has locked.

use crate::alive::AliveFile;
use crate::arena::Arena;
use crate::clients::{alive_byte, export_holder};
use crate::error::ArenaError;
use crate::layout::EXPORTS;
use crate::physical::{PhysicalId, out_of_memory};
use crate::rows::{RowState, Shortage};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const EXPORT_LIVE: u64 = 1 << 63;

impl Arena {
    /// A descriptor (close-on-exec) that keeps the memory alive until its last duplicate is closed, wherever
    /// that is. The caller must hold `id`.
    pub fn export(&self, id: PhysicalId) -> Result<OwnedFd, ArenaError> {
        let state = self.state(id.device())?;
        self.with_reaping(id.device(), 0, || {
            let is_held = self.is_live(id).unwrap_or(false) && state.hold_count(id.row, self.holder()) > 0;
            if !is_held {
                return Ok(Err(ArenaError::NotHeld { id }));
            }
            let Some((slot, description)) = self.free_export()? else {
                return Err(Shortage("no free row in the table of exports"));
            };
            let header = self.shared.header();
            let word = EXPORT_LIVE | u64::from(id.device) << 32 | u64::from(id.row);
            header.export_high.fetch_max(slot as u32 + 1, Release);
            header.exports[slot].store(word, Release);
            // Without this hold the export means nothing; on a shortage its row is reaped as any closed one.
            state.add_hold(id.row, export_holder(slot))?;
            Ok(Ok(OwnedFd::from(description)))
        })?
    }

    fn free_export(&self) -> Result<Option<(usize, File)>, Shortage> {
        let failed = |_| Shortage("no descriptor for an export");
        let exports = &self.shared.header().exports;
        for slot in (0..EXPORTS).filter(|slot| exports[*slot].load(Relaxed) == 0) {
            let byte = alive_byte(export_holder(slot));
            let description = self.alive.new_description(byte).map_err(failed)?;
            if AliveFile::try_lock(&description, byte).map_err(failed)? {
                return Ok(Some((slot, description)));
            }
        }
        Ok(None)
    }

    /// Hold (once) the memory that an exported descriptor stands for. The descriptor stays the caller's.
    ///
    /// # Errors
    /// [`ArenaError::ForeignDescriptor`] for anything but a living export of this machine.
    pub fn import(&self, descriptor: BorrowedFd<'_>) -> Result<PhysicalId, ArenaError> {
        let foreign = || ArenaError::ForeignDescriptor { descriptor: descriptor.as_raw_fd() };
        if !self.is_of_this_process() {
            return Err(ArenaError::Forked);
        }
        let header = self.shared.header();
        let first = alive_byte(export_holder(0));
        let high = u64::from(header.export_high.load(Acquire));
        let byte = self.alive.byte_of(descriptor, first..first + high)?.ok_or_else(foreign)?;
        let slot = (byte - first) as usize;
        let _guard = self.shared.lock()?;
        let word = header.exports[slot].load(Acquire);
        let (device, row) = ((word & !EXPORT_LIVE) >> 32, word as u32);
        if word == 0 {
            return Err(foreign());
        }
        let state = self.state(device as usize)?;
        let (generation, row_state) = state.row(row);
        if row_state != RowState::Live || state.hold_count(row, export_holder(slot)) == 0 {
            return Err(foreign());
        }
        let id = PhysicalId { device: device as u16, row, generation };
        state.add_hold(row, self.holder()).map_err(|shortage| out_of_memory(id.device(), 0, shortage))?;
        Ok(id)
    }
}
