//! Device management: CUDA driver API, "Device Management" and its deprecated part.
//!
//! All answers come from the configuration of the simulated machine and from `device/attributes.rs`.

use std::ffi::{CStr, c_char, c_int, c_uint};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;
use turnus_simulated_arena::Device;

use super::{entry, needed, put, put_text};
use crate::device::attributes;
use crate::driver::{arena_error, driver};
use crate::space::Result;

entry! {
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) {
        needed(device)?;
        driver()?.index(ordinal)?;
        put(device, ordinal)
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        put(count, driver()?.device_count() as c_int)
    }

    fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice) {
        let device = driver()?.device(dev)?;
        put_text(name, usize::try_from(len).unwrap_or(0), &device.config.name)
    }

    // Of a MIG device, that of the whole one: the second version came with MIG.
    fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) {
        let driver = driver()?;
        put(uuid, uuid_of(&driver.arena.devices()[driver.device(dev)?.whole()]))
    }

    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) {
        put(uuid, uuid_of(driver()?.device(dev)?))
    }

    // The first version cannot count beyond 4 GiB.
    fn cuDeviceTotalMem(bytes: *mut c_uint, dev: CUdevice) {
        put(bytes, c_uint::try_from(total_bytes(dev)?).unwrap_or(c_uint::MAX))
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) {
        put(bytes, total_bytes(dev)?)
    }

    fn cuDeviceGetAttribute(pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice) {
        needed(pi)?;
        let driver = driver()?;
        let device = driver.device(dev)?;
        // The only one that may change.
        if attrib.0 == attributes::COMPUTE_MODE {
            return put(pi, driver.arena.compute_mode(device.index).map_err(arena_error)? as c_int);
        }
        put(pi, attributes::get(device, attrib.0).ok_or(CUerror::INVALID_VALUE)?)
    }

    fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice) {
        let device = driver()?.device(dev)?;
        needed(minor)?;
        put(major, device.config.compute_major as c_int)?;
        put(minor, device.config.compute_minor as c_int)
    }

    fn cuDeviceGetProperties(prop: *mut CUdevprop, dev: CUdevice) {
        needed(prop)?;
        let device = driver()?.device(dev)?;
        let value = |attribute| attributes::get(device, attribute).unwrap_or(0);
        put(prop, CUdevprop {
            maxThreadsPerBlock: value(1),
            maxThreadsDim: [value(2), value(3), value(4)],
            maxGridSize: [value(5), value(6), value(7)],
            sharedMemPerBlock: value(8),
            totalConstantMemory: value(9),
            SIMDWidth: value(10),
            memPitch: value(11),
            regsPerBlock: value(12),
            clockRate: value(13),
            textureAlign: value(14),
        })
    }

    fn cuDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, dev: CUdevice) {
        let device = driver()?.device(dev)?;
        put_text(pci_bus_id, usize::try_from(len).unwrap_or(0), &device.pci_bus_id.to_ascii_uppercase())
    }

    fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, pci_bus_id: *const c_char) {
        needed(dev)?;
        needed(pci_bus_id)?;
        let wanted = CStr::from_ptr(pci_bus_id).to_str().map_err(|_| CUerror::INVALID_VALUE)?;
        let wanted = pci_numbers(wanted).ok_or(CUerror::INVALID_VALUE)?;
        let driver = driver()?;
        let found = (0..driver.device_count() as c_int)
            .find(|&ordinal| driver.device(ordinal).is_ok_and(|device| pci_numbers(&device.pci_bus_id) == Some(wanted)));
        put(dev, found.ok_or(CUerror::INVALID_DEVICE)?)
    }

    fn cuDeviceGetExecAffinitySupport(pi: *mut c_int, _type: CUexecAffinityType, dev: CUdevice) {
        driver()?.device(dev)?;
        put(pi, 0)
    }
}

fn uuid_of(device: &Device) -> CUuuid {
    CUuuid { bytes: device.uuid.map(|byte| byte as c_char) }
}

fn total_bytes(ordinal: CUdevice) -> Result<usize> {
    let driver = driver()?;
    let memory = driver.arena.memory(driver.index(ordinal)?).map_err(arena_error)?;
    Ok(memory.total_bytes as usize)
}

/// Domain, bus, device and function; domain and function may be missing.
fn pci_numbers(text: &str) -> Option<(u32, u32, u32, u32)> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<u32> =
        address.split(':').map(|part| u32::from_str_radix(part, 16).ok()).collect::<Option<_>>()?;
    let function = u32::from_str_radix(function, 16).ok()?;
    match parts.as_slice() {
        [domain, bus, device] => Some((*domain, *bus, *device, function)),
        [bus, device] => Some((0, *bus, *device, function)),
        _ => None,
    }
}
