//! How devices lie to each other: on one host bridge, without links of their own.

use std::ffi::{c_uint, c_ulong};

use super::entry;
use crate::code::Error;
use crate::device::{Handle, device, handle, whole_device};
use crate::output::{needed, put};

/// `NVML_TOPOLOGY_INTERNAL` and `NVML_TOPOLOGY_HOSTBRIDGE`, and the highest level.
const INTERNAL: c_uint = 0;
const HOST_BRIDGE: c_uint = 30;
const LEVEL_MAX: c_uint = 50;
/// `NVML_P2P_STATUS_OK` and `NVML_P2P_STATUS_NOT_SUPPORTED`.
const P2P_OK: c_uint = 0;
const P2P_NOT_SUPPORTED: c_uint = 5;
/// `NVML_P2P_CAPS_INDEX_NVLINK`, and the last of `nvmlGpuP2PCapsIndex_t`.
const P2P_CAPABILITY_NVLINK: c_uint = 2;
const P2P_CAPABILITY_MAX: c_uint = 4;

entry! {
    fn nvmlDeviceGetTopologyCommonAncestor(first: Handle, second: Handle, level: *mut c_uint) {
        let is_same = whole_device(first)?.index == whole_device(second)?.index;
        put(level, if is_same { INTERNAL } else { HOST_BRIDGE })
    }

    fn nvmlDeviceGetTopologyNearestGpus(
        handle_of: Handle,
        level: c_uint,
        count: *mut c_uint,
        places: *mut Handle,
    ) {
        let device = whole_device(handle_of)?;
        needed(count)?;
        if level > LEVEL_MAX || !level.is_multiple_of(10) {
            return Err(Error::INVALID_ARGUMENT);
        }
        let others = (0..device.arena.whole_devices().len()).filter(|index| *index != device.index);
        let nearest: Vec<usize> = if level == HOST_BRIDGE { others.collect() } else { Vec::new() };
        let room = count.read_unaligned() as usize;
        if room > 0 {
            needed(places)?;
            for (at, index) in nearest.iter().take(room).enumerate() {
                put(places.add(at), handle(*index))?;
            }
        }
        put(count, if room == 0 { nearest.len() } else { nearest.len().min(room) } as c_uint)
    }

    // As the driver's peer access, which goes over the host bridge.
    fn nvmlDeviceGetP2PStatus(first: Handle, second: Handle, capability: c_uint, status: *mut c_uint) {
        let (first, second) = (whole_device(first)?, whole_device(second)?);
        needed(status)?;
        if capability > P2P_CAPABILITY_MAX {
            return Err(Error::INVALID_ARGUMENT);
        }
        let is_reached = first.index != second.index && first.arena.peer_access();
        let is_supported = is_reached && capability != P2P_CAPABILITY_NVLINK;
        put(status, if is_supported { P2P_OK } else { P2P_NOT_SUPPORTED })
    }

    // All processors are equally near.
    fn nvmlDeviceGetCpuAffinity(handle: Handle, words: c_uint, set: *mut c_ulong) {
        device(handle)?;
        needed(set)?;
        if words == 0 {
            return Err(Error::INVALID_ARGUMENT);
        }
        let bits = c_ulong::BITS as usize;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if processors > bits * words as usize {
            return Err(Error::INSUFFICIENT_SIZE);
        }
        for word in 0..words as usize {
            let here = processors.saturating_sub(word * bits).min(bits) as u32;
            let ones = c_ulong::MAX.checked_shr(c_ulong::BITS - here).unwrap_or(0);
            put(set.add(word), ones)?;
        }
        Ok(())
    }
}
