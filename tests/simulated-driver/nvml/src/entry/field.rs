//! Values by number (`NVML_FI_DEV_...`): those that the simulated functions answer too.
//!
//! The call itself succeeds; each value has a status of its own.

use std::ffi::c_int;
use std::time::{SystemTime, UNIX_EPOCH};

use super::entry;
use crate::card;
use crate::code::{Error, Result, to_code};
use crate::device::{Device, Handle, device};
use crate::output::needed;
use crate::types::FieldValue;

/// `NVML_VALUE_TYPE_UNSIGNED_INT` and `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const UNSIGNED_INT: u32 = 1;
const UNSIGNED_LONG_LONG: u32 = 3;

entry! {
    fn nvmlDeviceGetFieldValues(handle: Handle, count: c_int, values: *mut FieldValue) {
        let device = device(handle)?;
        needed(values)?;
        let count = usize::try_from(count).map_err(|_| Error::INVALID_ARGUMENT)?;
        for at in 0..count {
            let place = values.add(at);
            let mut value = place.read_unaligned();
            let found = find(&device, value.field, value.scope);
            value.result = to_code(found.map(|_| ()));
            if let Ok((value_type, number)) = found {
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                value.time_us = since_1970.as_micros() as i64;
                value.latency_us = 0;
                (value.value_type, value.value) = (value_type, number);
            }
            place.write_unaligned(value);
        }
        Ok(())
    }
}

/// Type and value of a field. Power has scopes; there are no readings but those of the device as a whole.
fn find(device: &Device, field: u32, scope: u32) -> Result<(u32, u64)> {
    let power = |value: u32| Ok((UNSIGNED_INT, value.into()));
    match field {
        185..=192 if scope != 0 => Err(Error::NOT_SUPPORTED),
        // ECC is on now and after a restart; single and double bit errors, volatile and aggregate.
        1 | 2 => Ok((UNSIGNED_INT, 1)),
        3..=6 => Ok((UNSIGNED_LONG_LONG, 0)),
        // Energy, under its two numbers.
        83 | 191 => Ok((UNSIGNED_LONG_LONG, device.energy_mj()?)),
        // Replays of the link; remapped rows: corrected, uncorrected, pending, failed.
        94 | 142..=145 => Ok((UNSIGNED_INT, 0)),
        // Power: average of the last second, current, limits.
        185 | 186 => power(card::power_mw(device.compute_percent()?)),
        187 => power(card::POWER_LIMIT_MIN_MW),
        188..=190 | 192 => power(card::POWER_LIMIT_MW),
        _ => Err(Error::NOT_SUPPORTED),
    }
}
