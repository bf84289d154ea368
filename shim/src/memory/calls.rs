//! The program's calls, as the hooks receive them. `None`: not ours, forward to the driver.
//!
//! Each function has the arguments of the driver's function of that name (the `_v2` one where there
//! are two) and writes through the program's pointers only when it answers `Some(Ok(()))`. What is
//! wrong in a way that the driver would notice (a null pointer, a foreign or freed address, no
//! context) is forwarded, so that the driver's own answer comes back. All may be called from any
//! thread, none is gated. 32-bit first versions: forward, but for `mem_get_info_v1`.

use super::{Memory, get};
use core::ffi::{c_uint, c_void};
use turnus_bindings::types::*;
use turnus_bindings::{CUerror, CUresult};

/// `cuMemAlloc_v2`.
///
/// # Safety
/// `dptr` is null or may be written.
pub(crate) unsafe fn mem_alloc(dptr: *mut CUdeviceptr, bytes: usize) -> Option<CUresult> {
    let memory = get()?;
    if dptr.is_null() || bytes == 0 {
        return None;
    }
    let answer = memory.allocate(bytes as u64)?;
    Some(answer.map(|address| {
        // SAFETY: not null, and the program's to be written by the contract of the call.
        unsafe { dptr.write(address) }
    }))
}

/// `cuMemAllocPitch_v2`.
///
/// # Safety
/// `dptr` and `pitch` are null or may be written.
pub(crate) unsafe fn mem_alloc_pitch(
    dptr: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Option<CUresult> {
    let memory = get()?;
    let valid_element = matches!(element, 4 | 8 | 16);
    if dptr.is_null() || pitch.is_null() || width == 0 || height == 0 || !valid_element {
        return None;
    }
    let answer = memory.allocate_pitch(width as u64, height as u64)?;
    Some(answer.map(|(address, pitch_bytes)| {
        // SAFETY: not null, and the program's to be written by the contract of the call.
        unsafe {
            dptr.write(address);
            pitch.write(pitch_bytes as usize);
        }
    }))
}

/// `cuMemFree_v2`.
pub(crate) fn mem_free(dptr: CUdeviceptr) -> Option<CUresult> {
    get()?.free(dptr)
}

/// `cuMemGetInfo_v2`.
///
/// # Safety
/// `free` and `total` are null or may be written.
pub(crate) unsafe fn mem_get_info(free: *mut usize, total: *mut usize) -> Option<CUresult> {
    let memory = get()?;
    if free.is_null() || total.is_null() {
        return None;
    }
    let (total_bytes, free_bytes) = memory.info_of_current()?;
    // SAFETY: not null, and the program's to be written by the contract of the call.
    unsafe {
        free.write(free_bytes as usize);
        total.write(total_bytes as usize);
    }
    Some(Ok(()))
}

/// `cuMemGetInfo`, whose counts have 32 bits: they end at the largest.
///
/// # Safety
/// `free` and `total` are null or may be written.
pub(crate) unsafe fn mem_get_info_v1(free: *mut c_uint, total: *mut c_uint) -> Option<CUresult> {
    let (mut free_bytes, mut total_bytes) = (0usize, 0usize);
    if free.is_null() || total.is_null() {
        return None;
    }
    // SAFETY: both point to variables of this function.
    let result = unsafe { mem_get_info(&mut free_bytes, &mut total_bytes) }?;
    // SAFETY: not null, and the program's to be written by the contract of the call.
    unsafe {
        free.write(c_uint::try_from(free_bytes).unwrap_or(c_uint::MAX));
        total.write(c_uint::try_from(total_bytes).unwrap_or(c_uint::MAX));
    }
    Some(result)
}

/// `cuDeviceTotalMem_v2`.
///
/// # Safety
/// `bytes` is null or may be written.
pub(crate) unsafe fn device_total_mem(bytes: *mut usize, device: CUdevice) -> Option<CUresult> {
    let memory = get()?;
    if bytes.is_null() {
        return None;
    }
    let (total_bytes, _) = memory.info(device)?;
    // SAFETY: not null, and the program's to be written by the contract of the call.
    unsafe { bytes.write(total_bytes as usize) };
    Some(Ok(()))
}

/// `cuMemGetAddressRange_v2`. Either output may be null.
///
/// # Safety
/// `base` and `size` are null or may be written.
pub(crate) unsafe fn mem_get_address_range(
    base: *mut CUdeviceptr,
    size: *mut usize,
    dptr: CUdeviceptr,
) -> Option<CUresult> {
    let allocation = get()?.find(dptr)?;
    if base.is_null() && size.is_null() {
        return None;
    }
    // SAFETY: written only if not null, and the program's to be written by the contract of the call.
    unsafe {
        if !base.is_null() {
            base.write(allocation.address);
        }
        if !size.is_null() {
            size.write(allocation.bytes as usize);
        }
    }
    Some(Ok(()))
}

/// `cuPointerGetAttribute`.
///
/// # Safety
/// `data` is null or may be written with a value of the attribute's type.
pub(crate) unsafe fn pointer_get_attribute(
    data: *mut c_void,
    attribute: CUpointer_attribute,
    dptr: CUdeviceptr,
) -> Option<CUresult> {
    let allocation = get()?.find(dptr)?;
    if data.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { super::pointers::write(&allocation, dptr, attribute, data) }
}

/// `cuPointerGetAttributes`: attributes that do not apply get a zero of their type.
///
/// # Safety
/// Both arrays have `count` entries, and each datum is as for `pointer_get_attribute`.
pub(crate) unsafe fn pointer_get_attributes(
    count: c_uint,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut c_void,
    dptr: CUdeviceptr,
) -> Option<CUresult> {
    let allocation = get()?.find(dptr)?;
    if count == 0 || attributes.is_null() || data.is_null() {
        return None;
    }
    for index in 0..count as usize {
        // SAFETY: the arrays have `count` entries by the contract of the call.
        let (attribute, datum) = unsafe { (*attributes.add(index), *data.add(index)) };
        if datum.is_null() {
            return Some(Err(CUerror::INVALID_VALUE));
        }
        // SAFETY: as the caller promises.
        match unsafe { super::pointers::write(&allocation, dptr, attribute, datum) } {
            Some(Ok(())) => {}
            Some(Err(_)) if attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER => {
                // SAFETY: the attribute's type is a pointer.
                unsafe { datum.cast::<*mut c_void>().write_unaligned(core::ptr::null_mut()) };
            }
            Some(Err(_)) => {}
            None => {
                if let Some(api) = crate::real::api() {
                    // SAFETY: the program's own arguments, for one attribute. One that the driver
                    // does not know is left as it is, as the driver's own list call does.
                    let _ = unsafe { api.cuPointerGetAttribute(datum, attribute, dptr) };
                }
            }
        }
    }
    Some(Ok(()))
}

/// `cuPointerSetAttribute`.
///
/// # Safety
/// `value` is null or points to a value of the attribute's type.
pub(crate) unsafe fn pointer_set_attribute(
    value: *const c_void,
    attribute: CUpointer_attribute,
    dptr: CUdeviceptr,
) -> Option<CUresult> {
    let memory = get()?;
    memory.find(dptr)?;
    if value.is_null() || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
        return Some(Err(CUerror::INVALID_VALUE));
    }
    // SAFETY: the attribute's type is `unsigned int`.
    let on = unsafe { value.cast::<c_uint>().read_unaligned() } != 0;
    Some(memory.set_sync_memops(dptr, on))
}

/// `cuIpcGetMemHandle`: memory of ours moves, another process's mapping of it would not follow.
pub(crate) fn ipc_get_mem_handle(dptr: CUdeviceptr) -> Option<CUresult> {
    refuse(dptr, CUerror::NOT_SUPPORTED)
}

/// `cuMemGetHandleForAddressRange`: as above, for dma-buf.
pub(crate) fn mem_get_handle_for_address_range(dptr: CUdeviceptr) -> Option<CUresult> {
    refuse(dptr, CUerror::NOT_SUPPORTED)
}

/// `cuMemRetainAllocationHandle`: fails for memory of `cuMemAlloc`, and programs ask it to tell.
pub(crate) fn mem_retain_allocation_handle(address: *const c_void) -> Option<CUresult> {
    refuse(address as CUdeviceptr, CUerror::INVALID_VALUE)
}

fn refuse(dptr: CUdeviceptr, error: CUerror) -> Option<CUresult> {
    let memory: &Memory = get()?;
    memory.find(dptr).map(|_| Err(error))
}
