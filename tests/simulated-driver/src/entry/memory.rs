//! Linear device memory: CUDA driver API, "Memory Management".
//!
//! The first versions with 32-bit device pointers are not simulated: no address here fits into them. Freeing
//! waits for the work of the device, as the driver does, but not for memory of pools.

use std::ffi::c_uint;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put, put_if_wanted};
use crate::context::{CONTEXTS, current, of_device};
use crate::driver::{arena_error, driver};
use crate::execution::check_unsafe_call;
use crate::space::{Origin, Place, Result};

/// Rows of `cuMemAllocPitch` begin at multiples of this, as on cards since compute capability 2.0.
const PITCH_BYTES: usize = 512;

entry! {
    fn cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) {
        needed(total)?;
        let (free_bytes, total_bytes) = information()?;
        put(free, c_uint::try_from(free_bytes).unwrap_or(c_uint::MAX))?;
        put(total, c_uint::try_from(total_bytes).unwrap_or(c_uint::MAX))
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        needed(total)?;
        let (free_bytes, total_bytes) = information()?;
        put(free, free_bytes as usize)?;
        put(total, total_bytes as usize)
    }

    fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) {
        needed(dptr)?;
        put(dptr, allocate(bytesize)?)
    }

    fn cuMemAllocPitch_v2(
        dptr: *mut CUdeviceptr,
        p_pitch: *mut usize,
        width_in_bytes: usize,
        height: usize,
        element_size_bytes: c_uint,
    ) {
        needed(dptr)?;
        needed(p_pitch)?;
        if !matches!(element_size_bytes, 4 | 8 | 16) || width_in_bytes == 0 || height == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let pitch = width_in_bytes.checked_next_multiple_of(PITCH_BYTES).ok_or(CUerror::INVALID_VALUE)?;
        let address = allocate(pitch.checked_mul(height).ok_or(CUerror::OUT_OF_MEMORY)?)?;
        put(p_pitch, pitch)?;
        put(dptr, address)
    }

    fn cuMemFree_v2(dptr: CUdeviceptr) {
        current::get_sound()?;
        check_unsafe_call()?;
        if dptr == 0 {
            return Ok(());
        }
        let space = &driver()?.space;
        let allocation = space.allocation(dptr)?;
        if matches!(allocation.origin, Origin::Opened(..)) {
            return Err(CUerror::INVALID_VALUE);
        }
        // Memory of pools is freed without waiting, as documented.
        if allocation.pool().is_some() {
            return space.free(dptr);
        }
        let waited = if allocation.managed().is_some() { CONTEXTS.all() } else { of_device(allocation.device) };
        waited.iter().for_each(|context| context.queue.wait_all());
        current::get_sound()?;
        if let Origin::Graph = allocation.origin {
            return space.free_graph_allocation(allocation.device, dptr, None);
        }
        space.free(dptr)
    }

    fn cuMemGetAddressRange_v2(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr) {
        current::get()?;
        let space = &driver()?.space;
        let (base, bytes) = match space.place(dptr) {
            Some(Place::Allocation(base, allocation)) => (base, allocation.bytes),
            Some(Place::Mapping(base, mapping, ..)) => (base, mapping.bytes),
            Some(Place::Reserved(..)) => return Err(CUerror::INVALID_VALUE),
            None => {
                let range = space.host().find(dptr).ok_or(CUerror::INVALID_VALUE)?;
                (range.start, range.bytes)
            }
        };
        put_if_wanted(pbase, base);
        put_if_wanted(psize, bytes as usize);
        Ok(())
    }
}

fn information() -> Result<(u64, u64)> {
    let context = current::get_sound()?;
    let memory = driver()?.arena.memory(context.device).map_err(arena_error)?;
    Ok((memory.free_bytes, memory.total_bytes))
}

fn allocate(bytes: usize) -> Result<u64> {
    let context = current::get_sound()?;
    check_unsafe_call()?;
    driver()?.space.allocate(context.id(), context.device, bytes as u64)
}
