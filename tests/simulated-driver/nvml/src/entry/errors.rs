//! Memory errors: ECC is on, as the driver's attribute says, and the only errors are those in the log of XID errors,
//! where fault rules or tests put them. None is corrected, and no page or row is retired for them.

use std::ffi::{c_uint, c_ulonglong};

use turnus_simulated_arena::Xid;

use super::entry;
use crate::code::{Error, Result};
use crate::device::{Device, Handle, whole_device};
use crate::output::{needed, put};
use crate::types::EccErrorCounts;

/// `NVML_FEATURE_ENABLED` and `NVML_FEATURE_DISABLED`.
const ENABLED: c_uint = 1;
const DISABLED: c_uint = 0;
/// Numbers of values of `nvmlMemoryErrorType_t`, `nvmlEccCounterType_t`, `nvmlMemoryLocation_t` and
/// `nvmlPageRetirementCause_t`.
const ERROR_TYPES: c_uint = 2;
const COUNTER_TYPES: c_uint = 2;
const LOCATIONS: c_uint = 8;
const CAUSES: c_uint = 2;
/// `NVML_MEMORY_ERROR_TYPE_UNCORRECTED` and `NVML_MEMORY_LOCATION_DEVICE_MEMORY`.
const UNCORRECTED: c_uint = 1;
const DEVICE_MEMORY: c_uint = 2;
/// "Double bit ECC error" (NVIDIA, XID errors).
const XID_DOUBLE_BIT: u64 = 48;

entry! {
    fn nvmlDeviceGetEccMode(handle: Handle, current: *mut c_uint, pending: *mut c_uint) {
        whole_device(handle)?;
        needed(pending)?;
        put(current, ENABLED)?;
        put(pending, ENABLED)
    }

    fn nvmlDeviceGetDefaultEccMode(handle: Handle, mode: *mut c_uint) {
        whole_device(handle)?;
        put(mode, ENABLED)
    }

    fn nvmlDeviceGetTotalEccErrors(handle: Handle, error: c_uint, counter: c_uint, count: *mut c_ulonglong) {
        let device = whole_device(handle)?;
        needed(count)?;
        known(&[(error, ERROR_TYPES), (counter, COUNTER_TYPES)])?;
        put(count, errors(&device, error))
    }

    fn nvmlDeviceGetDetailedEccErrors(handle: Handle, error: c_uint, counter: c_uint, counts: *mut EccErrorCounts) {
        let device = whole_device(handle)?;
        needed(counts)?;
        known(&[(error, ERROR_TYPES), (counter, COUNTER_TYPES)])?;
        let device_memory = errors(&device, error);
        put(counts, EccErrorCounts { l1_cache: 0, l2_cache: 0, device_memory, register_file: 0 })
    }

    fn nvmlDeviceGetMemoryErrorCounter(
        handle: Handle,
        error: c_uint,
        counter: c_uint,
        location: c_uint,
        count: *mut c_ulonglong,
    ) {
        let device = whole_device(handle)?;
        needed(count)?;
        known(&[(error, ERROR_TYPES), (counter, COUNTER_TYPES), (location, LOCATIONS)])?;
        put(count, if location == DEVICE_MEMORY { errors(&device, error) } else { 0 })
    }

    fn nvmlDeviceGetRetiredPages(handle: Handle, cause: c_uint, count: *mut c_uint, _addresses: *mut c_ulonglong) {
        whole_device(handle)?;
        needed(count)?;
        known(&[(cause, CAUSES)])?;
        put(count, 0)
    }

    fn nvmlDeviceGetRetiredPages_v2(
        handle: Handle,
        cause: c_uint,
        count: *mut c_uint,
        _addresses: *mut c_ulonglong,
        _times: *mut c_ulonglong,
    ) {
        whole_device(handle)?;
        needed(count)?;
        known(&[(cause, CAUSES)])?;
        put(count, 0)
    }

    fn nvmlDeviceGetRetiredPagesPendingStatus(handle: Handle, is_pending: *mut c_uint) {
        whole_device(handle)?;
        put(is_pending, DISABLED)
    }

    fn nvmlDeviceGetRemappedRows(
        handle: Handle,
        corrected: *mut c_uint,
        uncorrected: *mut c_uint,
        is_pending: *mut c_uint,
        has_failed: *mut c_uint,
    ) {
        whole_device(handle)?;
        let places = [corrected, uncorrected, is_pending, has_failed];
        places.iter().try_for_each(|place| needed(*place))?;
        places.iter().try_for_each(|place| put(*place, 0))
    }
}

/// Errors since the machine was made, volatile and in all.
fn errors(device: &Device, error: c_uint) -> c_ulonglong {
    let index = device.index;
    let is_one = |xid: &Xid| xid.device == index && xid.code == XID_DOUBLE_BIT;
    if error == UNCORRECTED {
        device.arena.xids(0).iter().filter(|xid| is_one(xid)).count() as u64
    } else {
        0
    }
}

/// Each value is below its bound.
fn known(values: &[(c_uint, c_uint)]) -> Result<()> {
    if values.iter().all(|(value, bound)| value < bound) { Ok(()) } else { Err(Error::INVALID_ARGUMENT) }
}
