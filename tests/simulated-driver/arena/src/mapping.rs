//! Memory mappings with an owner, and a mark that tells a forked child from its parent.
//!
//! Only raw mapping here; what the bytes mean is in `layout.rs` (state) and `physical.rs` (device memory).

use crate::error::ArenaError;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A shared mapping of a file's first `bytes` bytes; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory at a fixed place until drop, which needs exclusive ownership; who reads or
// writes it through the pointer answers for data races there.
unsafe impl Send for Mapping {}
// SAFETY: as for Send; no method changes the mapping through a shared reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map a file shared, without reserving memory for it.
    pub(crate) fn shared(file: &File, bytes: u64) -> Result<Self, ArenaError> {
        Self::map(file.as_raw_fd(), bytes as usize, libc::MAP_SHARED | libc::MAP_NORESERVE)
    }

    fn map(descriptor: i32, bytes: usize, flags: i32) -> Result<Self, ArenaError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED the kernel picks unused addresses, so no existing memory is touched; the
        // result is checked before use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, descriptor, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, bytes }),
            _ => Err(ArenaError::last_system("mmap")),
        }
    }

    /// First byte; valid for reads and writes of the whole length while `self` lives.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Give the kernel advice about the whole mapping.
    pub(crate) fn advise(&self, advice: i32) -> Result<(), ArenaError> {
        // SAFETY: the range is this mapping's own, and the advices used here (DONTDUMP, WIPEONFORK) do not
        // change its content in this process.
        match unsafe { libc::madvise(self.start().cast(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(ArenaError::last_system("madvise")),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and nobody else unmaps it; users borrow from `self`.
        unsafe { libc::munmap(self.start().cast(), self.bytes) };
    }
}

/// A page that reads as zero in a forked child.
#[derive(Debug)]
pub(crate) struct ForkMark {
    page: Mapping,
}

impl ForkMark {
    /// A mark for the calling process.
    pub(crate) fn new() -> Result<Self, ArenaError> {
        let page = Mapping::map(-1, 4096, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        page.advise(libc::MADV_WIPEONFORK)?;
        let mark = Self { page };
        mark.word().store(1, Ordering::Relaxed);
        Ok(mark)
    }

    /// Whether the calling process is the one that made the mark.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.word().load(Ordering::Relaxed) == 1
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped while `self` lives, aligned, and only used through this atomic.
        unsafe { &*self.page.start().cast::<AtomicU32>() }
    }
}
