//! MIG devices: NVML, "Multi Instance GPU Management", as far as it asks. None is made or removed here: a machine has
//! those of its `devices.toml`.

use std::ffi::c_uint;

use turnus_simulated_arena::{Instance, SLICES};

use super::entry;
use crate::code::{Error, Result};
use crate::device::{Handle, device, handle, whole_device};
use crate::output::{needed, put};
use crate::types::DeviceAttributes;

/// Copy engines that each instance has.
const COPY_ENGINES: c_uint = 1;

entry! {
    fn nvmlDeviceGetMigMode(handle: Handle, current: *mut c_uint, pending: *mut c_uint) {
        let mode = whole_device(handle)?.configured().is_divided().into();
        needed(pending)?;
        put(current, mode)?;
        put(pending, mode)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(handle: Handle, count: *mut c_uint) {
        let is_divided = device(handle)?.configured().is_divided();
        put(count, if is_divided { SLICES } else { 0 })
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(parent: Handle, index: c_uint, place: *mut Handle) {
        let parent = device(parent)?;
        needed(place)?;
        if parent.is_part() {
            return Err(Error::INVALID_ARGUMENT);
        }
        let part = parent.arena.parts_of(parent.index).nth(index as usize).ok_or(Error::NOT_FOUND)?;
        put(place, handle(part.index))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part: Handle, place: *mut Handle) {
        let parent = instance(part, Error::INVALID_ARGUMENT)?.parent;
        put(place, handle(parent))
    }

    fn nvmlDeviceIsMigDeviceHandle(handle: Handle, is_mig: *mut c_uint) {
        put(is_mig, device(handle)?.is_part().into())
    }

    fn nvmlDeviceGetGpuInstanceId(part: Handle, id: *mut c_uint) {
        put(id, instance(part, Error::NOT_SUPPORTED)?.gpu_instance)
    }

    fn nvmlDeviceGetComputeInstanceId(part: Handle, id: *mut c_uint) {
        instance(part, Error::NOT_SUPPORTED)?;
        put(id, 0)
    }

    fn nvmlDeviceGetAttributes(part: Handle, attributes: *mut DeviceAttributes) {
        put_attributes(part, attributes)
    }

    fn nvmlDeviceGetAttributes_v2(part: Handle, attributes: *mut DeviceAttributes) {
        put_attributes(part, attributes)
    }
}

/// What part a MIG device is; `otherwise` for whole devices.
fn instance(part: Handle, otherwise: Error) -> Result<Instance> {
    device(part)?.configured().instance.ok_or(otherwise)
}

/// # Safety
/// `attributes` is null or valid for writing.
unsafe fn put_attributes(part: Handle, attributes: *mut DeviceAttributes) -> Result<()> {
    let slices = instance(part, Error::NOT_SUPPORTED)?.slices;
    let device = device(part)?;
    let config = &device.configured().config;
    let value = DeviceAttributes {
        multiprocessors: config.multiprocessor_count,
        copy_engines: COPY_ENGINES,
        other_engines: [0; 4],
        gpu_instance_slices: slices,
        compute_instance_slices: slices,
        memory_mib: config.memory_bytes >> 20,
    };
    // SAFETY: the caller's promise.
    unsafe { put(attributes, value) }
}
