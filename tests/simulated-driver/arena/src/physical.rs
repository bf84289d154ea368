//! Physical memory of the devices: allocating, holding, releasing, scrubbing and looking at it.
//!
//! Memory belongs to its holders, clients and exports; when the last one is gone the content is removed from
//! the backing file (so that the next owner reads zeros) before the frames are free again.

use crate::arena::Arena;
use crate::error::ArenaError;
use crate::layout::ROWS;
use crate::rows::{RowState, Shortage};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

/// Most bytes scrubbed under the lock at once.
const SCRUB_STEP_BYTES: u64 = 16 << 20;

/// Name of one allocation of physical memory, valid in every process of the machine. Never used twice: after
/// the memory was freed the id is stale for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhysicalId {
    pub(crate) device: u16,
    pub(crate) row: u32,
    pub(crate) generation: u32,
}

/// A contiguous part of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where in the allocation the piece begins.
    pub offset_bytes: u64,
    /// Where in the device's memory file it begins (for mapping it elsewhere).
    pub file_offset_bytes: u64,
    /// Its bytes in this process's window of the device.
    pub window_pointer: *mut u8,
    /// Its length.
    pub bytes: u64,
}

// SAFETY: a piece is a description; who uses the pointer answers for it (see `Arena::pieces`), on any thread.
unsafe impl Send for Piece {}
// SAFETY: as for Send; a piece has no interior mutability.
unsafe impl Sync for Piece {}

impl PhysicalId {
    /// Index of the device that the memory is on.
    pub fn device(self) -> usize {
        usize::from(self.device)
    }

    /// 12 bytes that another process can turn back with [`PhysicalId::from_bytes`] (as in an IPC handle).
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&u32::from(self.device).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.row.to_le_bytes());
        bytes[8..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    /// The id that [`PhysicalId::to_bytes`] gave. Bytes that name nothing make every operation fail.
    pub fn from_bytes(bytes: [u8; 12]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { device: word(0).min(0xffff) as u16, row: word(4), generation: word(8) }
    }
}

impl Arena {
    /// Take `bytes` (a positive multiple of the granularity) that read as zero, held once by this client.
    /// Contiguous if any gap is large enough, else in pieces.
    ///
    /// # Errors
    /// [`ArenaError::OutOfMemory`] after the dead were reaped; memory whose scrub delay has not passed counts
    /// as used, so that the same call may succeed later.
    pub fn allocate(&self, device: usize, bytes: u64) -> Result<PhysicalId, ArenaError> {
        let state = self.state(device)?;
        let granularity_bytes = state.granularity_bytes;
        if bytes == 0 || !bytes.is_multiple_of(granularity_bytes) {
            return Err(ArenaError::Size { bytes, granularity_bytes });
        }
        let (row, generation) =
            self.with_reaping(device, bytes, || state.allocate(bytes / granularity_bytes, self.holder()))?;
        Ok(PhysicalId { device: device as u16, row, generation })
    }

    /// Hold `id` once more; also for memory of another client (IPC), as long as it lives.
    pub fn hold(&self, id: PhysicalId) -> Result<(), ArenaError> {
        let state = self.state(id.device())?;
        let _guard = self.shared.lock()?;
        if !self.is_live(id)? {
            return Err(ArenaError::NotHeld { id });
        }
        state.add_hold(id.row, self.holder()).map_err(|shortage| out_of_memory(id.device(), 0, shortage))
    }

    /// Give up one hold. With the last hold of the last client and no living export the memory is freed and
    /// scrubbed before this returns. Pointers into pieces of `id` must not be used any more by then.
    pub fn release(&self, id: PhysicalId) -> Result<(), ArenaError> {
        let state = self.state(id.device())?;
        let is_dying = {
            let _guard = self.shared.lock()?;
            let dropped =
                if self.is_live(id)? { state.drop_hold(id.row, id.generation, self.holder()) } else { None };
            dropped.ok_or(ArenaError::NotHeld { id })?
        };
        if is_dying { self.scrub(id.device(), id.row, id.generation) } else { Ok(()) }
    }

    /// Length in bytes of memory that lives, whoever holds it.
    pub fn size_bytes(&self, id: PhysicalId) -> Result<u64, ArenaError> {
        let state = self.state(id.device())?;
        let _guard = self.shared.lock()?;
        if !self.is_live(id)? {
            return Err(ArenaError::NotHeld { id });
        }
        Ok(state.extent(id.row).1 * state.granularity_bytes)
    }

    /// The pieces of memory that this client holds, by offset. The pointers are valid for reads and writes as
    /// long as it is held; other processes may access the same bytes at any time.
    pub fn pieces(&self, id: PhysicalId) -> Result<Vec<Piece>, ArenaError> {
        let state = self.state(id.device())?;
        // No lock: while this client holds the row nobody changes its frames.
        if !self.is_live(id)? || state.hold_count(id.row, self.holder()) == 0 {
            return Err(ArenaError::NotHeld { id });
        }
        let window = self.window_start(id.device())?;
        let mut offset_bytes = 0;
        let pieces = state.runs(id.row).map(|(first, length)| {
            let file_offset_bytes = first as u64 * state.granularity_bytes;
            let bytes = length as u64 * state.granularity_bytes;
            let window_pointer = window.wrapping_add(file_offset_bytes as usize);
            let piece = Piece { offset_bytes, file_offset_bytes, window_pointer, bytes };
            offset_bytes += bytes;
            piece
        });
        Ok(pieces.collect())
    }

    /// Whether `id` names living memory; certain only under the lock or for a holder.
    pub(crate) fn is_live(&self, id: PhysicalId) -> Result<bool, ArenaError> {
        let state = self.state(id.device())?;
        Ok((id.row as usize) < ROWS && state.row(id.row) == (id.generation, RowState::Live))
    }

    /// Run `take` under the lock; when it finds a shortage, once more after reaping.
    pub(crate) fn with_reaping<T>(
        &self,
        device: usize,
        bytes: u64,
        take: impl Fn() -> Result<T, Shortage>,
    ) -> Result<T, ArenaError> {
        if !crate::files::has_room(self.directory()) {
            return Err(out_of_memory(device, bytes, Shortage("the file system of the machine is full")));
        }
        let under_lock = || -> Result<Result<T, Shortage>, ArenaError> {
            let _guard = self.shared.lock()?;
            Ok(take())
        };
        if let Ok(taken) = under_lock()? {
            return Ok(taken);
        }
        self.reap()?;
        under_lock()?.map_err(|shortage| out_of_memory(device, bytes, shortage))
    }

    /// Remove the content of a dying row and free it, or let it rest first. Several processes may do this for
    /// the same row at once: holes are punched only under the lock and only while the row is dying.
    pub(crate) fn scrub(&self, device: usize, row: u32, generation: u32) -> Result<(), ArenaError> {
        let state = self.state(device)?;
        let is_dying = || state.row(row) == (generation, RowState::Dying);
        let ranges: Vec<(u64, u64)> = {
            let _guard = self.shared.lock()?;
            if !is_dying() {
                return Ok(());
            }
            let unit = state.granularity_bytes;
            state.runs(row).map(|(first, length)| (first as u64 * unit, length as u64 * unit)).collect()
        };
        let steps = ranges.iter().flat_map(|(start, bytes)| {
            let offsets = (0..*bytes).step_by(SCRUB_STEP_BYTES as usize);
            offsets.map(move |offset| (start + offset, SCRUB_STEP_BYTES.min(bytes - offset)))
        });
        for (start, bytes) in steps {
            let _guard = self.shared.lock()?;
            if !is_dying() {
                return Ok(());
            }
            self.punch(device, start, bytes)?;
        }
        let _guard = self.shared.lock()?;
        if is_dying() {
            match self.scrubbed_at_ns(device, state.extent(row).1 * state.granularity_bytes) {
                None => state.free(row, generation),
                Some(ready_ns) => {
                    state.tables.ready_ns[row as usize].store(ready_ns, Relaxed);
                    state.set_row(row, generation, RowState::Resting);
                }
            }
        }
        Ok(())
    }

    fn punch(&self, device: usize, start: u64, bytes: u64) -> Result<(), ArenaError> {
        let file = self.device_memory(device).file.as_raw_fd();
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        loop {
            // SAFETY: punching changes bytes of the file only; they belong to a dying row, which nobody may
            // access any more, and the window stays mapped and readable (as zeros).
            if unsafe { libc::fallocate(file, mode, start as libc::off_t, bytes as libc::off_t) } == 0 {
                return Ok(());
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(ArenaError::System { what: "scrubbing freed memory", source: error });
            }
        }
    }
}

/// The error for a shortage.
pub(crate) fn out_of_memory(device: usize, bytes: u64, shortage: Shortage) -> ArenaError {
    ArenaError::OutOfMemory { device, bytes, reason: shortage.0 }
}
