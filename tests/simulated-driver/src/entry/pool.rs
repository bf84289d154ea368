//! Memory pools: CUDA driver API, "Stream Ordered Memory Allocator", all but allocating and sharing.
//!
//! Pools of device memory only: pools on the host, on NUMA nodes and of managed memory are not simulated.
//! Widths of attribute values: the reuse flags and the kinds are `int`, sizes are eight bytes.

use std::ffi::{c_int, c_void};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::virtual_memory::device_of;
use super::{entry, needed, put};
use crate::driver::driver;
use crate::pools;
use crate::space::{Pool, READ, Result, WRITE};

const POSIX_FILE_DESCRIPTOR: u32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_ALLOCATION_TYPE_MANAGED`.
const PINNED: u32 = 1;
const MANAGED: u32 = 2;

entry! {
    fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice) {
        needed(pool_out)?;
        put(pool_out, handle_of(&pools::default_of(driver()?.index(dev)?)))
    }

    fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) {
        needed(pool)?;
        put(pool, handle_of(&pools::current_of(driver()?.index(dev)?)))
    }

    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) {
        pools::set_current(driver()?.index(dev)?, pools::pool(pool)?)
    }

    fn cuMemGetDefaultMemPool(pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType) {
        needed(pool_out)?;
        put(pool_out, handle_of(&pools::default_of(device_for(location, type_)?)))
    }

    fn cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType) {
        needed(pool)?;
        put(pool, handle_of(&pools::current_of(device_for(location, type_)?)))
    }

    fn cuMemSetMemPool(location: *mut CUmemLocation, type_: CUmemAllocationType, pool: CUmemoryPool) {
        pools::set_current(device_for(location, type_)?, pools::pool(pool)?)
    }

    fn cuMemPoolCreate(pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps) {
        needed(pool)?;
        let properties = pool_props.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let device = check_properties(properties)?;
        let maximum_bytes = rounded_maximum(device, properties.maxSize as u64)?;
        put(pool, handle_of(&pools::create(device, properties.handleTypes.0, maximum_bytes)))
    }

    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        pools::destroy(pool)
    }

    fn cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize) {
        pools::pool(pool)?.trim(&driver()?.space, min_bytes_to_keep as u64);
        Ok(())
    }

    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) {
        needed(value)?;
        let pool = pools::pool(pool)?;
        match attr.0 {
            1..=3 => {
                let enabled = value.cast::<c_int>().read_unaligned() != 0;
                pool.change(|numbers| numbers.reuse[attr.0 as usize - 1] = enabled);
            }
            4 => {
                let bytes = value.cast::<u64>().read_unaligned();
                pool.change(|numbers| numbers.release_threshold_bytes = bytes);
            }
            // High marks can be reset and not be set.
            6 | 8 if value.cast::<u64>().read_unaligned() == 0 => pool.change(|numbers| match attr.0 {
                6 => numbers.reserved_high_bytes = numbers.reserved_bytes,
                _ => numbers.used_high_bytes = numbers.used_bytes,
            }),
            _ => return Err(CUerror::INVALID_VALUE),
        }
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) {
        needed(value)?;
        match attribute(&*pools::pool(pool)?, attr.0)? {
            Number::Int(number) => value.cast::<c_int>().write_unaligned(number),
            Number::Long(number) => value.cast::<u64>().write_unaligned(number),
        }
        Ok(())
    }

    fn cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) {
        let pool = pools::pool(pool)?;
        needed(map)?;
        for description in std::slice::from_raw_parts(map, count) {
            let (device, own) = (device_of(&description.location)?, pool.properties.device);
            let rights = u64::from(description.flags.0);
            // Its own device always has access; read-only access is for mappings (from memory).
            if rights != READ | WRITE && (rights != 0 || device == own) {
                return Err(CUerror::INVALID_VALUE);
            }
            if device != own {
                let space = &driver()?.space;
                if !space.can_access_peer(device, own) {
                    return Err(CUerror::INVALID_DEVICE);
                }
                pool.set_access(space, device, rights);
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, mem_pool: CUmemoryPool, location: *mut CUmemLocation) {
        needed(flags)?;
        let pool = pools::pool(mem_pool)?;
        let device = device_of(location.as_ref().ok_or(CUerror::INVALID_VALUE)?)?;
        let rights = pool.numbers().access.get(&device).copied().unwrap_or(0);
        put(flags, CUmemAccess_flags_enum(rights as u32))
    }
}

enum Number {
    Int(c_int),
    Long(u64),
}

fn attribute(pool: &Pool, attribute: u32) -> Result<Number> {
    let (numbers, properties) = (pool.numbers(), &pool.properties);
    Ok(match attribute {
        1..=3 => Number::Int(numbers.reuse[attribute as usize - 1].into()),
        4 => Number::Long(numbers.release_threshold_bytes),
        5 => Number::Long(numbers.reserved_bytes),
        6 => Number::Long(numbers.reserved_high_bytes),
        7 => Number::Long(numbers.used_bytes),
        8 => Number::Long(numbers.used_high_bytes),
        9 => Number::Int(PINNED as c_int),
        10 => Number::Int(properties.handle_types as c_int),
        11 => Number::Int(driver()?.ordinal(properties.device).ok_or(CUerror::INVALID_DEVICE)?),
        12 => Number::Int(CU_MEM_LOCATION_TYPE_DEVICE.0 as c_int),
        13 => Number::Long(properties.maximum_bytes),
        14 => Number::Int(0),
        // Not of a locality domain.
        15 => Number::Int(-1),
        _ => return Err(CUerror::INVALID_VALUE),
    })
}

pub(super) fn handle_of(pool: &Pool) -> CUmemoryPool {
    pool.handle as CUmemoryPool
}

/// The device whose pool is meant.
///
/// # Safety
/// `location` is null or valid for reading.
unsafe fn device_for(location: *mut CUmemLocation, kind: CUmemAllocationType) -> Result<usize> {
    // SAFETY: the caller's promise.
    let location = unsafe { location.as_ref() }.ok_or(CUerror::INVALID_VALUE)?;
    match kind.0 {
        PINNED => device_of(location),
        MANAGED => Err(CUerror::NOT_SUPPORTED),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// The device of properties that can be simulated.
fn check_properties(properties: &CUmemPoolProps) -> Result<usize> {
    let device = match properties.allocType.0 {
        PINNED => device_of(&properties.location)?,
        MANAGED => return Err(CUerror::NOT_SUPPORTED),
        _ => return Err(CUerror::INVALID_VALUE),
    };
    // Handle types of other systems, fabric handles, hardware decompression.
    let types = properties.handleTypes.0;
    if types & !15 != 0 || properties.reserved.iter().any(|byte| *byte != 0) {
        return Err(CUerror::INVALID_VALUE);
    }
    if types & !POSIX_FILE_DESCRIPTOR != 0 || properties.usage != 0 || properties.gpuDirectRDMACapable != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    Ok(device)
}

/// The size limit in units of physical memory.
fn rounded_maximum(device: usize, bytes: u64) -> Result<u64> {
    let unit_bytes = driver()?.space.granularity_bytes(device);
    bytes.checked_next_multiple_of(unit_bytes).ok_or(CUerror::INVALID_VALUE)
}
