//! The processes on a device: who holds a context or memory there, and how much.
//!
//! A process counts from its first context on. Three versions of each query differ in their structures.

use std::ffi::c_uint;

use super::entry;
use crate::code::Result;
use crate::device::{Device, Handle, device};
use crate::library::arena_error;
use crate::output::{needed, put, put_list};
use crate::types::{ProcessInfo, ProcessInfoV1};

/// The instance ids of a process on a device that is not divided.
pub const NO_INSTANCE: c_uint = c_uint::MAX;

entry! {
    fn nvmlDeviceGetComputeRunningProcesses(handle: Handle, count: *mut c_uint, infos: *mut ProcessInfoV1) {
        let list = compute_processes(handle)?.into_iter();
        put_list(count, infos, list.map(|info| ProcessInfoV1 { pid: info.pid, used_bytes: info.used_bytes }).collect())
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(handle: Handle, count: *mut c_uint, infos: *mut ProcessInfo) {
        put_list(count, infos, compute_processes(handle)?)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: Handle, count: *mut c_uint, infos: *mut ProcessInfo) {
        put_list(count, infos, compute_processes(handle)?)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(handle: Handle, count: *mut c_uint, _infos: *mut ProcessInfoV1) {
        put_none(handle, count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(handle: Handle, count: *mut c_uint, _infos: *mut ProcessInfo) {
        put_none(handle, count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(handle: Handle, count: *mut c_uint, _infos: *mut ProcessInfo) {
        put_none(handle, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses(handle: Handle, count: *mut c_uint, _infos: *mut ProcessInfoV1) {
        put_none(handle, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(handle: Handle, count: *mut c_uint, _infos: *mut ProcessInfo) {
        put_none(handle, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(handle: Handle, count: *mut c_uint, _infos: *mut ProcessInfo) {
        put_none(handle, count)
    }
}

fn compute_processes(handle: Handle) -> Result<Vec<ProcessInfo>> {
    processes(&device(handle)?)
}

/// The processes on a device; on one in MIG mode those of all its parts.
pub fn processes(device: &Device) -> Result<Vec<ProcessInfo>> {
    let mut processes = Vec::new();
    for place in device.places() {
        let ids = place.instance.map_or((NO_INSTANCE, NO_INSTANCE), |part| (part.gpu_instance, 0));
        let usage = device.arena.usage_by_process(place.index).map_err(arena_error)?;
        processes.extend(usage.into_iter().map(|(pid, used_bytes)| ProcessInfo {
            pid,
            used_bytes,
            gpu_instance: ids.0,
            compute_instance: ids.1,
        }));
    }
    Ok(processes)
}

/// There is no graphics and no MPS.
///
/// # Safety
/// `count` is null or valid for writing.
unsafe fn put_none(handle: Handle, count: *mut c_uint) -> Result<()> {
    device(handle)?;
    needed(count)?;
    // SAFETY: the caller's promise.
    unsafe { put(count, 0) }
}
