//! Device memory: capacity and use, as the driver's own queries answer from the same tables.

use std::ffi::c_uint;

use super::entry;
use crate::card;
use crate::code::{Error, Result};
use crate::device::{Device, Handle, device};
use crate::library::arena_error;
use crate::output::{needed, put};
use crate::types::{Bar1Memory, Memory, MemoryV2, struct_version};

entry! {
    fn nvmlDeviceGetMemoryInfo(handle: Handle, memory: *mut Memory) {
        let device = device(handle)?;
        needed(memory)?;
        put(memory, usage(&device)?)
    }

    // The driver of the simulator reserves nothing for itself.
    fn nvmlDeviceGetMemoryInfo_v2(handle: Handle, memory: *mut MemoryV2) {
        let device = device(handle)?;
        needed(memory)?;
        let version = (&raw const (*memory).version).read_unaligned();
        if version != struct_version::<MemoryV2>(2) {
            return Err(Error::ARGUMENT_VERSION_MISMATCH);
        }
        let Memory { total, free, used } = usage(&device)?;
        put(memory, MemoryV2 { version, total, reserved: 0, free, used })
    }

    // A window on all of the memory, as data-centre cards have; nothing of the simulator is mapped through it.
    fn nvmlDeviceGetBAR1MemoryInfo(handle: Handle, memory: *mut Bar1Memory) {
        let total = device(handle)?.configured().config.memory_bytes.next_power_of_two();
        put(memory, Bar1Memory { total, free: total, used: 0 })
    }

    fn nvmlDeviceGetMemoryBusWidth(handle: Handle, width: *mut c_uint) {
        device(handle)?;
        put(width, card::MEMORY_BUS_BITS)
    }
}

fn usage(device: &Device) -> Result<Memory> {
    let mut used = 0;
    for place in device.places() {
        let memory = device.arena.memory(place.index).map_err(arena_error)?;
        used += memory.total_bytes - memory.free_bytes;
    }
    let total = device.configured().config.memory_bytes;
    Ok(Memory { total, free: total - used, used })
}
