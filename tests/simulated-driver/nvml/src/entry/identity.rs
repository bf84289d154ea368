//! What a device is: name, UUID, numbers, architecture.

use std::ffi::{c_char, c_int, c_uint};

use super::entry;
use crate::card;
use crate::code::Error;
use crate::device::{Handle, device, undivided_device, whole_device};
use crate::output::{needed, put, put_text};

/// `NVML_BRAND_NVIDIA`, the brand of data-centre cards since Ampere.
const BRAND_NVIDIA: c_uint = 14;

entry! {
    fn nvmlDeviceGetName(handle: Handle, name: *mut c_char, length: c_uint) {
        put_text(name, length, &device(handle)?.configured().config.name)
    }

    fn nvmlDeviceGetUUID(handle: Handle, uuid: *mut c_char, length: c_uint) {
        put_text(uuid, length, &device(handle)?.configured().uuid_text())
    }

    // Of a MIG device: its place in the whole one.
    fn nvmlDeviceGetIndex(handle: Handle, index: *mut c_uint) {
        let device = device(handle)?;
        put(index, device.configured().instance.map_or(device.index, |part| part.index) as c_uint)
    }

    fn nvmlDeviceGetMinorNumber(handle: Handle, number: *mut c_uint) {
        put(number, whole_device(handle)?.index as c_uint)
    }

    fn nvmlDeviceGetBrand(handle: Handle, brand: *mut c_uint) {
        device(handle)?;
        put(brand, BRAND_NVIDIA)
    }

    fn nvmlDeviceGetCudaComputeCapability(handle: Handle, major: *mut c_int, minor: *mut c_int) {
        let device = device(handle)?;
        needed(minor)?;
        put(major, device.configured().config.compute_major as c_int)?;
        put(minor, device.configured().config.compute_minor as c_int)
    }

    fn nvmlDeviceGetArchitecture(handle: Handle, architecture: *mut c_uint) {
        let device = device(handle)?;
        let config = &device.configured().config;
        put(architecture, card::architecture(config.compute_major, config.compute_minor))
    }

    fn nvmlDeviceGetNumGpuCores(handle: Handle, count: *mut c_uint) {
        let device = undivided_device(handle)?;
        needed(count)?;
        let config = &device.configured().config;
        let cores = card::cores_of_multiprocessor(config.compute_major, config.compute_minor);
        put(count, cores.ok_or(Error::NOT_SUPPORTED)? * config.multiprocessor_count)
    }

    // One device per board, which has the device's place as its number.
    fn nvmlDeviceGetBoardId(handle: Handle, board: *mut c_uint) {
        let [domain, bus, number] = device(handle)?.pci();
        put(board, domain << 16 | bus << 8 | number)
    }

    fn nvmlDeviceGetMultiGpuBoard(handle: Handle, is_multi: *mut c_uint) {
        device(handle)?;
        put(is_multi, 0)
    }

    fn nvmlDeviceOnSameBoard(handle: Handle, other: Handle, is_same: *mut c_int) {
        let (first, second) = (device(handle)?.index, device(other)?.index);
        put(is_same, (first == second).into())
    }
}
