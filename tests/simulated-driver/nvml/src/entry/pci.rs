//! The place of a device and its link: PCI addresses, generation, width, throughput.

use std::ffi::c_uint;

use turnus_simulated_arena::Direction;

use super::entry;
use crate::card;
use crate::code::Error;
use crate::device::{Device, Handle, device};
use crate::output::{fixed_text, needed, put};
use crate::types::{PciInfo, PciInfoExt, PciInfoV1, PciInfoV2, struct_version};

/// `NVML_BUS_TYPE_PCIE`.
const BUS_PCIE: c_uint = 2;
/// `NVML_PCIE_UTIL_TX_BYTES` and `_RX_BYTES`: as the device sees it, so it sends what the host reads.
const SENT: c_uint = 0;
const RECEIVED: c_uint = 1;

entry! {
    // The structures of the first two versions are smaller; their fields are remembered from headers of that
    // time (drivers before 375), and are the start of today's.
    fn nvmlDeviceGetPciInfo(handle: Handle, info: *mut PciInfoV1) {
        put(info, pci_info(&device(handle)?).start.start)
    }

    fn nvmlDeviceGetPciInfo_v2(handle: Handle, info: *mut PciInfoV2) {
        put(info, pci_info(&device(handle)?).start)
    }

    fn nvmlDeviceGetPciInfo_v3(handle: Handle, info: *mut PciInfo) {
        put(info, pci_info(&device(handle)?))
    }

    fn nvmlDeviceGetPciInfoExt(handle: Handle, info: *mut PciInfoExt) {
        let device = device(handle)?;
        needed(info)?;
        let version = (&raw const (*info).version).read_unaligned();
        if version != struct_version::<PciInfoExt>(1) {
            return Err(Error::ARGUMENT_VERSION_MISMATCH);
        }
        let PciInfo { start: PciInfoV2 { start, subsystem_id }, bus_id } = pci_info(&device);
        put(info, PciInfoExt {
            version,
            domain: start.domain,
            bus: start.bus,
            device: start.device,
            device_id: start.device_id,
            subsystem_id,
            base_class: card::PCI_BASE_CLASS,
            sub_class: card::PCI_SUB_CLASS,
            bus_id,
        })
    }

    fn nvmlDeviceGetBusType(handle: Handle, bus_type: *mut c_uint) {
        device(handle)?;
        put(bus_type, BUS_PCIE)
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration(handle: Handle, generation: *mut c_uint) {
        device(handle)?;
        put(generation, card::PCIE_GENERATION)
    }

    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(handle: Handle, generation: *mut c_uint) {
        device(handle)?;
        put(generation, card::PCIE_GENERATION)
    }

    fn nvmlDeviceGetCurrPcieLinkGeneration(handle: Handle, generation: *mut c_uint) {
        device(handle)?;
        put(generation, card::PCIE_GENERATION)
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(handle: Handle, width: *mut c_uint) {
        device(handle)?;
        put(width, card::PCIE_WIDTH)
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(handle: Handle, width: *mut c_uint) {
        device(handle)?;
        put(width, card::PCIE_WIDTH)
    }

    fn nvmlDeviceGetPcieSpeed(handle: Handle, speed: *mut c_uint) {
        device(handle)?;
        put(speed, card::PCIE_SPEED_MBPS)
    }

    fn nvmlDeviceGetPcieLinkMaxSpeed(handle: Handle, speed: *mut c_uint) {
        device(handle)?;
        put(speed, card::PCIE_SPEED_CLASS)
    }

    // The link of the simulator loses nothing.
    fn nvmlDeviceGetPcieReplayCounter(handle: Handle, count: *mut c_uint) {
        device(handle)?;
        put(count, 0)
    }

    fn nvmlDeviceGetPcieThroughput(handle: Handle, counter: c_uint, kb_per_s: *mut c_uint) {
        let device = device(handle)?;
        needed(kb_per_s)?;
        let direction = match counter {
            SENT => Direction::DeviceToHost,
            RECEIVED => Direction::HostToDevice,
            _ => return Err(Error::INVALID_ARGUMENT),
        };
        put(kb_per_s, device.link_kb_per_s(direction)?)
    }
}

fn pci_info(device: &Device) -> PciInfo {
    let [domain, bus, number] = device.pci();
    let bus_id_legacy = fixed_text(&format!("{domain:04X}:{bus:02X}:{number:02X}.0"));
    let start = PciInfoV1 { bus_id_legacy, domain, bus, device: number, device_id: card::PCI_DEVICE_ID };
    let start = PciInfoV2 { start, subsystem_id: card::PCI_SUBSYSTEM_ID };
    PciInfo { start, bus_id: fixed_text(&format!("{domain:08X}:{bus:02X}:{number:02X}.0")) }
}
