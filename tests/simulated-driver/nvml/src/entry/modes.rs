//! Modes of a device. None can be changed; the functions that set them are not simulated.

use std::ffi::c_uint;

use super::entry;
use crate::device::{Handle, device};
use crate::output::{needed, put};

/// `NVML_FEATURE_DISABLED` and `NVML_FEATURE_ENABLED`.
const DISABLED: c_uint = 0;
const ENABLED: c_uint = 1;
/// `NVML_COMPUTEMODE_DEFAULT`, as the driver's attribute says.
const COMPUTE_MODE_DEFAULT: c_uint = 0;
/// `NVML_GPU_VIRTUALIZATION_MODE_NONE`.
const VIRTUALIZATION_NONE: c_uint = 0;

entry! {
    fn nvmlDeviceGetComputeMode(handle: Handle, mode: *mut c_uint) {
        device(handle)?;
        put(mode, COMPUTE_MODE_DEFAULT)
    }

    // The machine stays when the last program ends.
    fn nvmlDeviceGetPersistenceMode(handle: Handle, mode: *mut c_uint) {
        device(handle)?;
        put(mode, ENABLED)
    }

    fn nvmlDeviceGetDisplayMode(handle: Handle, mode: *mut c_uint) {
        device(handle)?;
        put(mode, DISABLED)
    }

    fn nvmlDeviceGetDisplayActive(handle: Handle, is_active: *mut c_uint) {
        device(handle)?;
        put(is_active, DISABLED)
    }

    fn nvmlDeviceGetAccountingMode(handle: Handle, mode: *mut c_uint) {
        device(handle)?;
        put(mode, DISABLED)
    }

    fn nvmlDeviceGetMigMode(handle: Handle, current: *mut c_uint, pending: *mut c_uint) {
        device(handle)?;
        needed(pending)?;
        put(current, DISABLED)?;
        put(pending, DISABLED)
    }

    fn nvmlDeviceGetVirtualizationMode(handle: Handle, mode: *mut c_uint) {
        device(handle)?;
        put(mode, VIRTUALIZATION_NONE)
    }
}
