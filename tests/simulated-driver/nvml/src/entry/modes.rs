//! Modes of a device. The compute mode can be changed; the functions that set other modes are not simulated.

use std::ffi::c_uint;

use turnus_simulated_arena::ComputeMode;

use super::entry;
use crate::code::Error;
use crate::device::{Handle, device};
use crate::library::arena_error;
use crate::output::put;

/// `NVML_FEATURE_DISABLED` and `NVML_FEATURE_ENABLED`.
const DISABLED: c_uint = 0;
const ENABLED: c_uint = 1;
/// `NVML_COMPUTEMODE_EXCLUSIVE_THREAD`, which NVML's documentation calls "support removed".
const EXCLUSIVE_THREAD: c_uint = 1;
/// `NVML_GPU_VIRTUALIZATION_MODE_NONE`.
const VIRTUALIZATION_NONE: c_uint = 0;

entry! {
    fn nvmlDeviceGetComputeMode(handle: Handle, mode: *mut c_uint) {
        let device = device(handle)?;
        put(mode, device.arena.compute_mode(device.index).map_err(arena_error)? as c_uint)
    }

    // As documented: for root only, and at once. What `nvidia-smi -c` calls.
    fn nvmlDeviceSetComputeMode(handle: Handle, mode: c_uint) {
        let device = device(handle)?;
        if mode == EXCLUSIVE_THREAD {
            return Err(Error::NOT_SUPPORTED);
        }
        let mode = ComputeMode::from_number(mode).ok_or(Error::INVALID_ARGUMENT)?;
        if libc::geteuid() != 0 {
            return Err(Error::NO_PERMISSION);
        }
        device.arena.set_compute_mode(device.index, mode).map_err(arena_error)
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

    fn nvmlDeviceGetVirtualizationMode(handle: Handle, mode: *mut c_uint) {
        device(handle)?;
        put(mode, VIRTUALIZATION_NONE)
    }
}
