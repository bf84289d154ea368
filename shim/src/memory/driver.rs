//! What the memory asks of the driver, one method for each kind of call, so that a test can stand
//! in for it and fail any of them.
//!
//! Nothing here decides anything. Addresses, sizes and handles are the driver's own numbers; sizes
//! are bytes in units of the device's granularity. Read next: `real_driver.rs`, and
//! `tests/fake_driver.rs` for what a strict driver refuses.

use turnus_bindings::{CUerror, types::CUdevice};

/// A `CUcontext`, as a number: never looked into, only handed back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Context(pub(crate) usize);

/// Physical memory of the driver's (`CUmemGenericAllocationHandle`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(pub(crate) u64);

/// One pinned buffer and the event that says that its last copy has ended.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Page-locked host memory.
    pub(crate) buffer: *mut u8,
    /// The driver's event, as a number.
    pub(crate) event: usize,
}

/// A stream of ours in a context, and a ring of pinned buffers.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The context that the stream belongs to.
    pub(crate) context: Context,
    /// The driver's stream, as a number.
    pub(crate) stream: usize,
    /// The ring.
    pub(crate) slots: Vec<Slot>,
    /// Length of each buffer.
    pub(crate) slot_bytes: usize,
}

// SAFETY: the buffers are owned by the lane and belong to no thread; who holds the lane's lock is
// the only one to touch them.
unsafe impl Send for Lane {}

/// The driver. CUDA driver API, "Virtual Memory Management", "Stream Management", "Memory Management".
pub(crate) trait Driver: Send + Sync {
    /// Smallest unit of physical memory.
    fn granularity(&self, ordinal: CUdevice) -> Result<u64, CUerror>;
    /// All memory of the device.
    fn total(&self, ordinal: CUdevice) -> Result<u64, CUerror>;
    /// `CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT`.
    fn pitch_alignment(&self, ordinal: CUdevice) -> Result<u64, CUerror>;
    /// The calling thread's context and its device; `None` if it has none.
    fn current(&self) -> Option<(Context, CUdevice)>;
    /// Total and free bytes of the context's device.
    fn memory_info(&self, context: Context) -> Result<(u64, u64), CUerror>;
    /// Waits for all work of the context. The calling thread's current context stays what it is.
    fn synchronise(&self, context: Context) -> Result<(), CUerror>;
    /// From here on, every synchronous operation on memory of the context waits for its end.
    fn set_sync_memops(&self, context: Context) -> Result<(), CUerror>;

    /// Takes a range of addresses.
    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64, CUerror>;
    /// Gives a whole range back; nothing may be mapped in it.
    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), CUerror>;
    /// Makes physical memory.
    fn create(&self, ordinal: CUdevice, bytes: u64) -> Result<Handle, CUerror>;
    /// Gives up a handle; its memory is free when it is mapped nowhere.
    fn release(&self, handle: Handle) -> Result<(), CUerror>;
    /// Maps a whole handle.
    fn map(&self, address: u64, bytes: u64, handle: Handle) -> Result<(), CUerror>;
    /// Undoes exactly one `map`. The driver does not wait for work that uses the memory.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUerror>;
    /// Lets the device read and write what is mapped.
    fn set_access(&self, ordinal: CUdevice, address: u64, bytes: u64) -> Result<(), CUerror>;

    /// Makes a non-blocking stream, pinned buffers and events; all or nothing.
    fn open_lane(&self, context: Context, slots: usize, slot_bytes: usize) -> Result<Lane, CUerror>;
    /// Waits for the lane's copies and destroys it. What fails is lost with the context.
    fn close_lane(&self, lane: Lane);
    /// Starts a copy from the device to the front of a buffer.
    fn copy_out(&self, lane: &Lane, slot: usize, address: u64, bytes: usize) -> Result<(), CUerror>;
    /// Starts a copy from the front of a buffer to the device.
    fn copy_in(&self, lane: &Lane, slot: usize, address: u64, bytes: usize) -> Result<(), CUerror>;
    /// Waits for the last copy that was started with this buffer.
    fn wait(&self, lane: &Lane, slot: usize) -> Result<(), CUerror>;
}
