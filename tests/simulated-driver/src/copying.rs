//! From addresses and sizes to copy work: what each end is, what has to be checked or taken first, and
//! whether the caller waits.
//!
//! Used by all copy entry points. The engines are in `execution`. Rules: CUDA driver API, "API
//! synchronization behavior".

use std::sync::Arc;

use turnus_bindings::CUerror;

use crate::driver::driver;
use crate::execution::{
    CaptureStatus, CopyEnd, CopyWork, HostPointer, Memory, Work, check_unsafe_call, status,
};
use crate::space::{Place, Result};
use crate::stream::StreamEntry;

/// Pageable sources of at most this size are taken at once, so that an asynchronous copy returns at once.
const STAGED_BYTES_MAX: u64 = 64 << 10;

/// Device memory at `address`; `bytes` from there must not leave an allocation of `cuMemAlloc`.
///
/// Reserved addresses without memory pass: only the engine finds them, and the context is lost.
pub fn device_memory(address: u64, bytes: u64) -> Result<Memory> {
    let space = &driver()?.space;
    match space.place(address) {
        Some(Place::Allocation(base, allocation)) => {
            let inside = bytes <= allocation.bytes - (address - base);
            if inside { Ok(Memory::Device(address)) } else { Err(CUerror::INVALID_VALUE) }
        }
        Some(Place::Mapping(..) | Place::Reserved(..)) => Ok(Memory::Device(address)),
        // Pinned memory has the same address for devices.
        None if space.host().covers(address, bytes) => Ok(Memory::Host(HostPointer(address as *mut _))),
        None => Err(CUerror::INVALID_VALUE),
    }
}

/// Host memory at `address`; managed memory is that too.
pub fn host_memory(address: u64, bytes: u64) -> Result<Memory> {
    let space = &driver()?.space;
    if address == 0 || space.is_device_address(address) && !space.is_managed(address, bytes) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Memory::Host(HostPointer(address as *mut _)))
}

/// Device or host, by where the address lies (`cuMemcpy`, `CU_MEMORYTYPE_UNIFIED`).
pub fn unified_memory(address: u64, bytes: u64) -> Result<Memory> {
    if driver()?.space.is_device_address(address) {
        device_memory(address, bytes)
    } else {
        host_memory(address, bytes)
    }
}

/// A copy of which the caller needs the outcome: waits if one end is host memory.
pub fn copy_now(entry: &StreamEntry, copy: CopyWork) -> Result<()> {
    entry.context.queue.check()?;
    check_unsafe_call()?;
    let inside = is_device(&copy.source) && is_device(&copy.destination);
    let work = Work::Copy(Arc::new(copy));
    if inside {
        entry.context.queue.submit(&entry.stream, work)
    } else {
        entry.context.queue.submit_and_wait(&entry.stream, work)
    }
}

/// A copy in stream order. The caller waits only where the driver needs a staging buffer for longer.
///
/// # Safety
/// Host ends are valid for the copy: until it is done when they are pinned, else until the call returns.
pub unsafe fn copy_later(entry: &StreamEntry, mut copy: CopyWork) -> Result<()> {
    let queue = &entry.context.queue;
    queue.check()?;
    let capturing = status(queue, &entry.stream).is_ok_and(|status| status != CaptureStatus::None);
    let waits = !capturing && (is_pageable(&copy.source)? || is_pageable(&copy.destination)?);
    if waits
        && let Memory::Host(pointer) = copy.source.memory
        && copy.height == 1
        && copy.depth == 1
        && copy.width_bytes <= STAGED_BYTES_MAX
        && is_device(&copy.destination)
    {
        // SAFETY: the caller's promise: the source is readable now.
        let bytes = unsafe { std::slice::from_raw_parts(pointer.0.cast::<u8>(), copy.width_bytes as usize) };
        copy.source.memory = Memory::Staged(Arc::from(bytes));
        return queue.submit(&entry.stream, Work::Copy(Arc::new(copy)));
    }
    let work = Work::Copy(Arc::new(copy));
    if waits { queue.submit_and_wait(&entry.stream, work) } else { queue.submit(&entry.stream, work) }
}

/// Host memory that the driver has not pinned.
fn is_pageable(end: &CopyEnd) -> Result<bool> {
    match end.memory {
        Memory::Host(pointer) => Ok(driver()?.space.host().find(pointer.0 as u64).is_none()),
        Memory::Device(_) | Memory::Staged(_) => Ok(false),
    }
}

fn is_device(end: &CopyEnd) -> bool {
    matches!(end.memory, Memory::Device(_))
}
