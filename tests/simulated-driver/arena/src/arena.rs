//! The arena as a process sees it. (Signatures first; the bodies follow.)

use crate::config::Device;
use crate::error::ArenaError;
use crate::physical::PhysicalId;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One process's attachment to the simulated machine; see the methods. Dropping it frees what it holds.
#[derive(Debug)]
pub struct Arena {
    devices: Vec<Device>,
}

/// A contiguous part of an allocation.
#[derive(Clone, Copy, Debug)]
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

/// Memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Capacity.
    pub total_bytes: u64,
    /// Neither allocated nor charged nor being scrubbed.
    pub free_bytes: u64,
}

/// Name of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChargeId {
    pub(crate) device: u16,
    pub(crate) row: u32,
}

/// What [`Arena::reap`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Dead clients.
    pub clients: u32,
    /// Exports whose last descriptor was closed.
    pub exports: u32,
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Over the link to the device.
    HostToDevice,
    /// Over the link to the host.
    DeviceToHost,
    /// Inside the device.
    DeviceToDevice,
}

/// Operation that takes the machine-wide mapping lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Create a handle.
    Create,
    /// Map a handle.
    Map,
    /// Unmap a handle.
    Unmap,
}

/// The right to execute one slice of work on a device's compute engine; given back when dropped.
#[derive(Debug)]
pub struct EngineSlice<'arena> {
    #[expect(dead_code, reason = "the body follows")]
    arena: &'arena Arena,
}

type Result<T> = std::result::Result<T, ArenaError>;

fn later<T>() -> Result<T> {
    Err(ArenaError::System { what: "being written", source: std::io::ErrorKind::Unsupported.into() })
}

impl Arena {
    /// Attach to the machine that the environment names (see `config.rs`), making it when it is new.
    pub fn open() -> Result<Arc<Self>> {
        later()
    }
    /// Attach to the machine in `directory`, making it from `devices.toml` or the environment when it is new.
    pub fn open_at(_directory: &Path) -> Result<Arc<Self>> {
        later()
    }
    /// The devices of the machine, scaled.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }
    /// False in a forked child, where every operation answers [`ArenaError::Forked`].
    pub fn is_of_this_process(&self) -> bool {
        false
    }
    /// Take `bytes` (a positive multiple of the granularity) that read as zero, held once by this client.
    pub fn allocate(&self, _device: usize, _bytes: u64) -> Result<PhysicalId> {
        later()
    }
    /// Hold `id` once more; also for memory of another client (IPC), as long as it lives.
    pub fn hold(&self, _id: PhysicalId) -> Result<()> {
        later()
    }
    /// Give up one hold. With the last hold of the last client and no living export the memory is freed.
    pub fn release(&self, _id: PhysicalId) -> Result<()> {
        later()
    }
    /// Length in bytes of memory that lives.
    pub fn size_bytes(&self, _id: PhysicalId) -> Result<u64> {
        later()
    }
    /// The pieces of memory that this client holds, by offset. The pointers are valid while it is held.
    pub fn pieces(&self, _id: PhysicalId) -> Result<Vec<Piece>> {
        later()
    }
    /// The memory file of a device, to map pieces elsewhere (MAP_SHARED at `file_offset_bytes`).
    pub fn memory_file(&self, _device: usize) -> Result<BorrowedFd<'_>> {
        later()
    }
    /// A descriptor (close-on-exec) that keeps the memory alive until its last duplicate is closed.
    pub fn export(&self, _id: PhysicalId) -> Result<OwnedFd> {
        later()
    }
    /// Hold the memory that an exported descriptor stands for. The descriptor stays the caller's.
    pub fn import(&self, _descriptor: BorrowedFd<'_>) -> Result<PhysicalId> {
        later()
    }
    /// Capacity and free bytes of a device; reaps first.
    pub fn memory(&self, _device: usize) -> Result<Memory> {
        later()
    }
    /// Bytes by process id: allocations (counted once, for their oldest holder) and charges; reaps first.
    pub fn usage_by_process(&self, _device: usize) -> Result<Vec<(u32, u64)>> {
        later()
    }
    /// Take `bytes` of capacity without backing (context, module, local memory).
    pub fn charge(&self, _device: usize, _bytes: u64) -> Result<ChargeId> {
        later()
    }
    /// Return a charge.
    pub fn discharge(&self, _charge: ChargeId) -> Result<()> {
        later()
    }
    /// Free what dead clients and closed exports held.
    pub fn reap(&self) -> Result<Reaped> {
        later()
    }
    /// Take `bytes` worth of time on the link or copy engine; returns when the transfer is over.
    pub fn link_reserve(&self, _device: usize, _direction: Direction, _bytes: u64) -> Result<u64> {
        later()
    }
    /// Copy in chunks at the rate of the link, waiting for each.
    ///
    /// # Safety
    /// `destination` must be valid for writes and `source` for reads of `bytes` during the call. They may
    /// overlap.
    pub unsafe fn copy(
        &self,
        _device: usize,
        _direction: Direction,
        _destination: *mut u8,
        _source: *const u8,
        _bytes: u64,
        _cancel: &AtomicBool,
    ) -> Result<()> {
        later()
    }
    /// Wait for the machine-wide mapping lock and spend the time of `count` operations under it.
    pub fn mapping_cost(&self, _device: usize, _operation: Operation, _count: u64) -> Result<()> {
        later()
    }
    /// Wait for the compute engine. Do 1 to 2 ms of work, then drop the slice.
    pub fn engine_slice(&self, _device: usize) -> Result<EngineSlice<'_>> {
        later()
    }
}
