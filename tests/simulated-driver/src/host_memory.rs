//! Pages for `cuMemHostAlloc`: anonymous, resident, and made unavailable again at once when freed.
//!
//! The pages are touched when they are given, as pinned pages are; they are not locked, since simulated
//! devices need no fixed frames and the limit on locked memory is small on many machines.

use turnus_bindings::CUerror;

use crate::space::Result;

const PAGE_BYTES: u64 = 4096;

/// Zeroed pages for `bytes` bytes.
pub fn take(bytes: u64) -> Result<u64> {
    let length = length(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(CUerror::OUT_OF_MEMORY) } else { Ok(start as u64) }
}

/// Gives back what `take(bytes)` returned.
pub fn release(start: u64, bytes: u64) {
    if let Some(length) = length(bytes) {
        // SAFETY: the range is one that `take` mapped, and its owner in the range table has been removed,
        // so that nobody else gives it back.
        unsafe { libc::munmap(start as *mut libc::c_void, length) };
    }
}

fn length(bytes: u64) -> Option<usize> {
    usize::try_from(bytes.checked_next_multiple_of(PAGE_BYTES)?).ok()
}
