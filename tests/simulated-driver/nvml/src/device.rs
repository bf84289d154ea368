//! Handles of devices and of MIG devices, and how they are found.
//!
//! A handle is the address of a byte of ours: it is compared and never followed, so that a foreign one does
//! no harm. NVML shows all devices of the machine; `CUDA_VISIBLE_DEVICES` does not concern it.

use std::ffi::c_void;
use std::sync::Arc;

use turnus_simulated_arena::{Arena, DEVICES_MAX, Device as Configured};

use crate::code::{Error, Result};
use crate::library;

/// `nvmlDevice_t`.
pub type Handle = *mut c_void;

static HANDLES: [u8; DEVICES_MAX] = [0; DEVICES_MAX];

/// A device of the open machine.
pub struct Device {
    pub arena: Arc<Arena>,
    pub index: usize,
}

/// The handle of the device with this index.
pub fn handle(index: usize) -> Handle {
    std::ptr::from_ref(&HANDLES[index]).cast_mut().cast()
}

/// The device of a handle that NVML answers for as a whole; MIG handles are not supported there.
pub fn whole_device(handle: Handle) -> Result<Device> {
    device(handle).and_then(|device| if device.is_part() { Err(Error::NOT_SUPPORTED) } else { Ok(device) })
}

/// A device that is not in MIG mode, nor a part of one.
pub fn undivided_device(handle: Handle) -> Result<Device> {
    whole_device(handle).and_then(|device| {
        if device.configured().is_divided() { Err(Error::NOT_SUPPORTED) } else { Ok(device) }
    })
}

/// The device, or MIG device, of a handle, unless it is foreign or the device is lost.
pub fn device(handle: Handle) -> Result<Device> {
    let arena = library::arena()?;
    let index = HANDLES.iter().position(|own| std::ptr::eq(own, handle.cast::<u8>()));
    let index = index.filter(|index| *index < arena.devices().len()).ok_or(Error::INVALID_ARGUMENT)?;
    Device { arena, index }.present()
}

/// The first device that fits.
pub fn find(fits: impl Fn(&Configured) -> bool) -> Result<Device> {
    let arena = library::arena()?;
    let index = arena.devices().iter().position(fits).ok_or(Error::NOT_FOUND)?;
    Device { arena, index }.present()
}

impl Device {
    fn present(self) -> Result<Self> {
        if self.arena.device_is_lost(self.index) { Err(Error::GPU_IS_LOST) } else { Ok(self) }
    }

    pub fn handle(&self) -> Handle {
        handle(self.index)
    }

    /// What the machine's configuration says of it.
    pub fn configured(&self) -> &Configured {
        &self.arena.devices()[self.index]
    }

    /// Whether it is a MIG device.
    pub fn is_part(&self) -> bool {
        self.configured().instance.is_some()
    }

    /// The devices whose tables say what is on it: itself, or its parts.
    pub fn places(&self) -> Vec<&Configured> {
        let own = self.configured();
        if own.is_divided() { self.arena.parts_of(self.index).collect() } else { vec![own] }
    }

    /// Domain, bus and device number.
    pub fn pci(&self) -> [u32; 3] {
        pci_numbers(&self.configured().pci_bus_id).unwrap_or_default()
    }
}

/// The numbers of `domain:bus:device.function` or `bus:device.function`; only function 0 exists.
pub fn pci_numbers(text: &str) -> Option<[u32; 3]> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<u32> =
        address.split(':').map(|part| u32::from_str_radix(part, 16).ok()).collect::<Option<_>>()?;
    let numbers = match parts.as_slice() {
        [domain, bus, device] => [*domain, *bus, *device],
        [bus, device] => [0, *bus, *device],
        _ => return None,
    };
    (function == "0").then_some(numbers)
}
