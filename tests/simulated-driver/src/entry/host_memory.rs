//! Host memory for devices: CUDA driver API, "Memory Management", the `Host` functions.
//!
//! Allocating and registering take time in proportion to the bytes, under the machine-wide lock, as the arena's
//! configuration says (`costs.rs` there).

use std::ffi::{c_uint, c_void};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;
use turnus_simulated_arena::HostOperation;

use super::{entry, needed, put};
use crate::context::{CONTEXTS, current};
use crate::driver::driver;
use crate::execution::check_unsafe_call;
use crate::host_memory;
use crate::space::{HostKind, HostRange, Result};

/// `CU_MEMHOSTALLOC_PORTABLE`, `DEVICEMAP`, `WRITECOMBINED`.
const ALLOCATION_FLAGS_MASK: u32 = 7;
/// With unified addresses every allocation is portable and mapped.
const ALWAYS_GIVEN_FLAGS: u32 = 3;
/// `CU_MEMHOSTREGISTER_PORTABLE`, `DEVICEMAP`, `IOMEMORY`, `READ_ONLY`.
const REGISTRATION_FLAGS_MASK: u32 = 15;
/// The last two of them, which simulated devices do not support.
const REGISTRATION_FLAGS_UNSUPPORTED: u32 = 12;
const PAGE_BYTES: u64 = 4096;

entry! {
    fn cuMemAllocHost(pp: *mut *mut c_void, bytesize: c_uint) {
        needed(pp)?;
        put(pp, allocate(bytesize as usize, 0)?)
    }

    fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) {
        needed(pp)?;
        put(pp, allocate(bytesize, 0)?)
    }

    fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint) {
        needed(pp)?;
        put(pp, allocate(bytesize, flags)?)
    }

    fn cuMemFreeHost(p: *mut c_void) {
        current::get_sound()?;
        check_unsafe_call()?;
        let host = driver()?.space.host();
        if host.find(p as u64).is_none_or(|range| range.start != p as u64 || range.kind != HostKind::Allocated) {
            return Err(CUerror::INVALID_VALUE);
        }
        CONTEXTS.all().iter().for_each(|context| context.queue.wait_all());
        let range = host.remove(p as u64, HostKind::Allocated).ok_or(CUerror::INVALID_VALUE)?;
        host_memory::release(range.start, range.bytes);
        Ok(())
    }

    fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, flags: c_uint) {
        needed(pdptr)?;
        current::get_sound()?;
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        driver()?.space.host().find(p as u64).ok_or(CUerror::INVALID_VALUE)?;
        put(pdptr, p as CUdeviceptr)
    }

    fn cuMemHostGetFlags(p_flags: *mut c_uint, p: *mut c_void) {
        needed(p_flags)?;
        current::get_sound()?;
        match driver()?.space.host().find(p as u64) {
            Some(range) if range.kind == HostKind::Allocated => put(p_flags, range.flags | ALWAYS_GIVEN_FLAGS),
            Some(_) | None => Err(CUerror::INVALID_VALUE),
        }
    }

    fn cuMemHostRegister(p: *mut c_void, bytesize: usize, flags: c_uint) {
        register(p as u64, bytesize as u64, flags)
    }

    fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: c_uint) {
        register(p as u64, bytesize as u64, flags)
    }

    fn cuMemHostUnregister(p: *mut c_void) {
        current::get_sound()?;
        check_unsafe_call()?;
        let host = driver()?.space.host();
        if host.find(p as u64).is_none_or(|range| range.start != p as u64 || range.kind != HostKind::Registered) {
            return Err(CUerror::HOST_MEMORY_NOT_REGISTERED);
        }
        CONTEXTS.all().iter().for_each(|context| context.queue.wait_all());
        host.remove(p as u64, HostKind::Registered).map(|_| ()).ok_or(CUerror::HOST_MEMORY_NOT_REGISTERED)
    }
}

fn allocate(bytes: usize, flags: c_uint) -> Result<*mut c_void> {
    current::get_sound()?;
    check_unsafe_call()?;
    if bytes == 0 || flags & !ALLOCATION_FLAGS_MASK != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let start = host_memory::take(bytes as u64)?;
    driver()?.arena.host_cost(HostOperation::Allocate, bytes as u64);
    insert(start, bytes as u64, HostKind::Allocated, flags)?;
    Ok(start as *mut c_void)
}

fn register(start: u64, bytes: u64, flags: c_uint) -> CUresult {
    current::get_sound()?;
    check_unsafe_call()?;
    if start == 0 || bytes == 0 || flags & !REGISTRATION_FLAGS_MASK != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if flags & REGISTRATION_FLAGS_UNSUPPORTED != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    if driver()?.space.is_device_address(start) || !is_present(start, bytes) {
        return Err(CUerror::INVALID_VALUE);
    }
    insert(start, bytes, HostKind::Registered, flags)?;
    let is_huge = bytes >= host_memory::HUGE_PAGE_BYTES && host_memory::is_in_huge_pages(start);
    let operation = if is_huge { HostOperation::RegisterHuge } else { HostOperation::Register };
    driver()?.arena.host_cost(operation, bytes);
    Ok(())
}

fn insert(start: u64, bytes: u64, kind: HostKind, flags: c_uint) -> Result<()> {
    let context = current::get()?;
    let range =
        HostRange { start, bytes, kind, flags, context: context.id(), device: context.device, buffer_id: 0 };
    driver()?.space.host().insert(range)
}

/// Whether every page of the range exists in this process.
fn is_present(start: u64, bytes: u64) -> bool {
    let first = start - start % PAGE_BYTES;
    let Some(end) = start.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES)) else {
        return false;
    };
    let mut residency = vec![0_u8; ((end - first) / PAGE_BYTES) as usize];
    // SAFETY: mincore only looks; `residency` has one byte per page.
    unsafe { libc::mincore(first as *mut c_void, (end - first) as usize, residency.as_mut_ptr()) == 0 }
}
