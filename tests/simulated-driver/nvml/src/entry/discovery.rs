//! How many devices there are, and their handles.

use std::ffi::{CStr, c_char, c_uint};

use super::entry;
use crate::code::{Error, Result};
use crate::device::{Handle, device, find, handle, pci_numbers};
use crate::library;
use crate::output::{needed, put};

entry! {
    fn nvmlDeviceGetCount(count: *mut c_uint) {
        put(count, device_count()?)
    }

    fn nvmlDeviceGetCount_v2(count: *mut c_uint) {
        put(count, device_count()?)
    }

    fn nvmlDeviceGetHandleByIndex(index: c_uint, place: *mut Handle) {
        put_by_index(index, place)
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, place: *mut Handle) {
        put_by_index(index, place)
    }

    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, place: *mut Handle) {
        needed(place)?;
        let wanted = text(uuid)?;
        put(place, find(|device| device.uuid_text().eq_ignore_ascii_case(&wanted))?.handle())
    }

    fn nvmlDeviceGetHandleByPciBusId(bus_id: *const c_char, place: *mut Handle) {
        put_by_bus_id(bus_id, place)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(bus_id: *const c_char, place: *mut Handle) {
        put_by_bus_id(bus_id, place)
    }

    // Simulated cards have no serial numbers.
    fn nvmlDeviceGetHandleBySerial(serial: *const c_char, place: *mut Handle) {
        needed(place)?;
        text(serial)?;
        Err(Error::NOT_FOUND)
    }
}

fn device_count() -> Result<c_uint> {
    Ok(library::arena()?.whole_devices().len() as c_uint)
}

/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> Result<String> {
    needed(text)?;
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(str::to_owned).map_err(|_| Error::INVALID_ARGUMENT)
}

/// # Safety
/// `place` is null or valid for writing.
unsafe fn put_by_index(index: c_uint, place: *mut Handle) -> Result<()> {
    needed(place)?;
    if index >= device_count()? {
        return Err(Error::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { put(place, device(handle(index as usize))?.handle()) }
}

/// # Safety
/// `bus_id` is null or a C string, `place` null or valid for writing.
unsafe fn put_by_bus_id(bus_id: *const c_char, place: *mut Handle) -> Result<()> {
    needed(place)?;
    // SAFETY: the caller's promise.
    let wanted = pci_numbers(&unsafe { text(bus_id)? }).ok_or(Error::INVALID_ARGUMENT)?;
    let found = find(|device| pci_numbers(&device.pci_bus_id) == Some(wanted))?;
    // SAFETY: the caller's promise.
    unsafe { put(place, found.handle()) }
}
