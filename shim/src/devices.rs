//! Devices of this process: their ordinals here, their UUIDs everywhere else.
//!
//! Only asks the driver; keeps nothing.

use crate::real::Api;
use turnus_bindings::CUerror;
use turnus_bindings::types::{CUdevice, CUuuid};
use turnus_protocol::{DeviceUuid, name};

/// The device's key. `cuDeviceGetUuid_v2` tells MIG instances apart; older drivers have only the
/// first version.
pub(crate) fn uuid_of(api: &Api, ordinal: CUdevice) -> Result<DeviceUuid, CUerror> {
    // SAFETY: all-zero bytes are a valid CUuuid.
    let mut uuid: CUuuid = unsafe { core::mem::zeroed() };
    // SAFETY: `uuid` may be written; the driver checks the ordinal.
    match unsafe { api.cuDeviceGetUuid_v2(&mut uuid, ordinal) } {
        // SAFETY: as above.
        Err(CUerror::NOT_FOUND) => unsafe { api.cuDeviceGetUuid(&mut uuid, ordinal) }?,
        other => other?,
    }
    Ok(DeviceUuid(uuid.bytes.map(|byte| byte as u8)))
}

/// The device's name, made safe to show.
pub(crate) fn name_of(api: &Api, ordinal: CUdevice) -> String {
    let mut text = [0u8; 256];
    // SAFETY: the buffer may be written for its whole length, which is given.
    let result = unsafe { api.cuDeviceGetName(text.as_mut_ptr().cast(), text.len() as i32, ordinal) };
    let length = text.iter().position(|byte| *byte == 0).unwrap_or(0);
    name::clean(&String::from_utf8_lossy(if result.is_ok() { &text[..length] } else { b"" }))
}
