//! Virtual memory management: CUDA driver API, "Virtual Memory Management".
//!
//! Memory lies on a device; locations on the host and multicast are not simulated. The driver does not
//! wait for running work when something is unmapped: work that runs then is lost with its context.

use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd as _};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put};
use crate::context::of_device;
use crate::driver::{Driver, driver};
use crate::execution::in_host_function;
use crate::space::{Place, READ, Result, WRITE};

const POSIX_FILE_DESCRIPTOR: u32 = 1;
/// Handle types of other systems.
const WINDOWS_HANDLES: u32 = 2 | 4;
const FABRIC: u32 = 8;

entry! {
    fn cuMemGetAllocationGranularity(
        granularity: *mut usize,
        prop: *const CUmemAllocationProp,
        option: CUmemAllocationGranularity_flags,
    ) {
        needed(granularity)?;
        let device = check_properties(prop.as_ref().ok_or(CUerror::INVALID_VALUE)?)?;
        if option.0 > 1 {
            return Err(CUerror::INVALID_VALUE);
        }
        put(granularity, driver()?.space.granularity_bytes(device) as usize)
    }

    fn cuMemAddressReserve(
        ptr: *mut CUdeviceptr,
        size: usize,
        alignment: usize,
        addr: CUdeviceptr,
        flags: c_ulonglong,
    ) {
        needed(ptr)?;
        let driver = usable()?;
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        put(ptr, driver.space.reserve(size as u64, alignment as u64, addr)?)
    }

    fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) {
        usable()?.space.free_reservation(ptr, size as u64)
    }

    fn cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle,
        size: usize,
        prop: *const CUmemAllocationProp,
        flags: c_ulonglong,
    ) {
        needed(handle)?;
        let driver = usable()?;
        let properties = prop.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let device = check_properties(properties)?;
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let rdma_capable = properties.allocFlags.gpuDirectRDMACapable != 0;
        let types = properties.requestedHandleTypes.0;
        put(handle, driver.space.create(device, size as u64, types, rdma_capable)?)
    }

    fn cuMemRelease(handle: CUmemGenericAllocationHandle) {
        usable()?.space.release(handle)
    }

    fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void) {
        needed(handle)?;
        put(handle, usable()?.space.retain(addr as u64)?)
    }

    fn cuMemMap(
        ptr: CUdeviceptr,
        size: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong,
    ) {
        let driver = usable()?;
        if flags != 0 || offset != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        driver.space.map(ptr, size as u64, handle)
    }

    fn cuMemUnmap(ptr: CUdeviceptr, size: usize) {
        let driver = usable()?;
        let device = match driver.space.place(ptr) {
            Some(Place::Mapping(_, mapping, ..)) => mapping.physical.device(),
            _ => return Err(CUerror::INVALID_VALUE),
        };
        let busy: Vec<_> = of_device(device).into_iter().filter(|context| context.queue.running()).collect();
        driver.space.unmap(ptr, size as u64)?;
        // Work that was running may have used the range: it is lost, as on a device.
        busy.iter().for_each(|context| context.queue.fault(CUerror::ILLEGAL_ADDRESS));
        Ok(())
    }

    fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize) {
        let driver = usable()?;
        if desc.is_null() || count == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let descriptions = std::slice::from_raw_parts(desc, count);
        let wanted: Vec<(usize, u64)> = descriptions.iter().map(wanted_access).collect::<Result<_>>()?;
        for (device, rights) in wanted {
            driver.space.set_access(ptr, size as u64, device, rights)?;
        }
        Ok(())
    }

    fn cuMemGetAccess(flags: *mut c_ulonglong, location: *const CUmemLocation, ptr: CUdeviceptr) {
        needed(flags)?;
        let driver = usable()?;
        let device = device_of(location.as_ref().ok_or(CUerror::INVALID_VALUE)?)?;
        let Some(Place::Mapping(_, mapping, ..)) = driver.space.place(ptr) else {
            return Err(CUerror::INVALID_VALUE);
        };
        put(flags, mapping.access.get(&device).copied().unwrap_or(0))
    }

    fn cuMemExportToShareableHandle(
        shareable_handle: *mut c_void,
        handle: CUmemGenericAllocationHandle,
        handle_type: CUmemAllocationHandleType,
        flags: c_ulonglong,
    ) {
        needed(shareable_handle)?;
        let driver = usable()?;
        check_descriptor_type(handle_type)?;
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let descriptor = driver.space.export(handle, handle_type.0)?;
        put(shareable_handle.cast::<c_int>(), descriptor.into_raw_fd())
    }

    fn cuMemImportFromShareableHandle(
        handle: *mut CUmemGenericAllocationHandle,
        os_handle: *mut c_void,
        sh_handle_type: CUmemAllocationHandleType,
    ) {
        needed(handle)?;
        let driver = usable()?;
        check_descriptor_type(sh_handle_type)?;
        let number = os_handle as usize as c_int;
        if number < 0 || libc::fcntl(number, libc::F_GETFD) < 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let descriptor = BorrowedFd::borrow_raw(number);
        put(handle, driver.space.import(descriptor, sh_handle_type.0)?)
    }

    fn cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle) {
        needed(prop)?;
        let driver = usable()?;
        let physical = driver.space.physical(handle)?;
        let ordinal = driver.ordinal(physical.device()).ok_or(CUerror::INVALID_DEVICE)?;
        // All-zero is a valid value of the structure.
        let mut properties: CUmemAllocationProp = std::mem::zeroed();
        properties.type_ = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.requestedHandleTypes = CUmemAllocationHandleType_enum(physical.handle_types);
        properties.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.anonymous_1.id = ordinal;
        properties.allocFlags.gpuDirectRDMACapable = u8::from(physical.rdma_capable);
        put(prop, properties)
    }
}

/// These functions need no current context, but may not be called by host functions.
fn usable() -> Result<&'static Driver> {
    if in_host_function() {
        return Err(CUerror::NOT_PERMITTED);
    }
    driver()
}

/// The device of properties that can be simulated.
fn check_properties(properties: &CUmemAllocationProp) -> Result<usize> {
    if properties.type_ != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(CUerror::INVALID_VALUE);
    }
    let types = properties.requestedHandleTypes.0;
    if types & (WINDOWS_HANDLES | FABRIC) != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    if types & !POSIX_FILE_DESCRIPTOR != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if properties.allocFlags.compressionType != 0 || properties.allocFlags.usage != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    device_of(&properties.location)
}

pub(super) fn device_of(location: &CUmemLocation) -> Result<usize> {
    match location.type_ {
        // SAFETY: both variants of the union are plain numbers of the same four bytes.
        CU_MEM_LOCATION_TYPE_DEVICE => driver()?.index(unsafe { location.anonymous_1.id }),
        CU_MEM_LOCATION_TYPE_HOST | CU_MEM_LOCATION_TYPE_HOST_NUMA => Err(CUerror::NOT_SUPPORTED),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

fn wanted_access(description: &CUmemAccessDesc) -> Result<(usize, u64)> {
    let rights = match description.flags.0 {
        0 => 0,
        1 => READ,
        3 => READ | WRITE,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    Ok((device_of(&description.location)?, rights))
}

pub(super) fn check_descriptor_type(handle_type: CUmemAllocationHandleType) -> Result<()> {
    match handle_type.0 {
        POSIX_FILE_DESCRIPTOR => Ok(()),
        2 | 4 | FABRIC => Err(CUerror::NOT_SUPPORTED),
        _ => Err(CUerror::INVALID_VALUE),
    }
}
