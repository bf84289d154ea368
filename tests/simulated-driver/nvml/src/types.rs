//! Layouts of the structures of NVML that are written here, and their versions.
//!
//! Names of fields are those of the documentation in our spelling. The sizes were checked against nvml.h of
//! nvidia-nvml-dev 13.5.37 (compiled), and the tests below keep them.

use std::ffi::{c_char, c_uint, c_ulonglong};

use crate::device::Handle;

/// `version` of a structure: its size and, in the top byte, its number.
pub const fn struct_version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memory {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryV2 {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// `nvmlBAR1Memory_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bar1Memory {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// `nvmlPciInfo_t` of `nvmlDeviceGetPciInfo_v3`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PciInfo {
    pub start: PciInfoV2,
    pub bus_id: [c_char; 32],
}

/// What the second version of the call writes; the structure of its time had reserved words behind.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PciInfoV2 {
    pub start: PciInfoV1,
    pub subsystem_id: c_uint,
}

/// What the first version of the call writes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PciInfoV1 {
    pub bus_id_legacy: [c_char; 16],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub device_id: c_uint,
}

/// `nvmlPciInfoExt_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PciInfoExt {
    pub version: c_uint,
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub device_id: c_uint,
    pub subsystem_id: c_uint,
    pub base_class: c_uint,
    pub sub_class: c_uint,
    pub bus_id: [c_char; 32],
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessInfoV1 {
    pub pid: c_uint,
    pub used_bytes: c_ulonglong,
}

/// `nvmlProcessInfo_v2_t`, and `nvmlProcessInfo_t` of the third version.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessInfo {
    pub pid: c_uint,
    pub used_bytes: c_ulonglong,
    pub gpu_instance: c_uint,
    pub compute_instance: c_uint,
}

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Utilization {
    pub gpu: c_uint,
    pub memory: c_uint,
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessUtilization {
    pub pid: c_uint,
    pub time_us: c_ulonglong,
    pub compute: c_uint,
    pub memory: c_uint,
    pub encoder: c_uint,
    pub decoder: c_uint,
}

/// `nvmlSample_t`; the value is a union of eight bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sample {
    pub time_us: c_ulonglong,
    pub value: c_ulonglong,
}

/// `nvmlFieldValue_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FieldValue {
    pub field: c_uint,
    pub scope: c_uint,
    pub time_us: i64,
    pub latency_us: i64,
    pub value_type: c_uint,
    pub result: c_uint,
    pub value: c_ulonglong,
}

/// `nvmlEventData_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventData {
    pub device: Handle,
    pub event_type: c_ulonglong,
    pub event_data: c_ulonglong,
    pub gpu_instance: c_uint,
    pub compute_instance: c_uint,
}

/// `nvmlEventData_t` of the first version of the call, which has no instances.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventDataV1 {
    pub device: Handle,
    pub event_type: c_ulonglong,
    pub event_data: c_ulonglong,
}

/// `nvmlEccErrorCounts_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EccErrorCounts {
    pub l1_cache: c_ulonglong,
    pub l2_cache: c_ulonglong,
    pub device_memory: c_ulonglong,
    pub register_file: c_ulonglong,
}

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttributes {
    pub multiprocessors: c_uint,
    pub copy_engines: c_uint,
    /// Decoders, encoders, JPEG and optical flow.
    pub other_engines: [c_uint; 4],
    pub gpu_instance_slices: c_uint,
    pub compute_instance_slices: c_uint,
    pub memory_mib: c_ulonglong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_header() {
        let sizes = [
            ("nvmlMemory_t", size_of::<Memory>(), 24),
            ("nvmlMemory_v2_t", size_of::<MemoryV2>(), 40),
            ("nvmlBAR1Memory_t", size_of::<Bar1Memory>(), 24),
            ("nvmlPciInfo_t", size_of::<PciInfo>(), 68),
            ("nvmlPciInfoExt_v1_t", size_of::<PciInfoExt>(), 64),
            ("nvmlProcessInfo_v1_t", size_of::<ProcessInfoV1>(), 16),
            ("nvmlProcessInfo_t", size_of::<ProcessInfo>(), 24),
            ("nvmlUtilization_t", size_of::<Utilization>(), 8),
            ("nvmlProcessUtilizationSample_t", size_of::<ProcessUtilization>(), 32),
            ("nvmlSample_t", size_of::<Sample>(), 16),
            ("nvmlFieldValue_t", size_of::<FieldValue>(), 40),
            ("nvmlDeviceAttributes_t", size_of::<DeviceAttributes>(), 40),
            ("nvmlEventData_t", size_of::<EventData>(), 32),
            ("nvmlEccErrorCounts_t", size_of::<EccErrorCounts>(), 32),
        ];
        for (name, ours, header) in sizes {
            assert_eq!(ours, header, "{name}");
        }
        assert_eq!(struct_version::<MemoryV2>(2), 0x0200_0028);
    }
}
