//! Power, energy and temperature, by the models of the card.

use std::ffi::{c_uint, c_ulonglong};

use super::entry;
use crate::card;
use crate::code::Error;
use crate::device::{Handle, whole_device};
use crate::output::{needed, put};

/// `NVML_TEMPERATURE_GPU`.
const SENSOR_GPU: c_uint = 0;
/// `NVML_FEATURE_ENABLED`.
const ENABLED: c_uint = 1;
/// `NVML_POWER_SOURCE_AC`.
const POWER_SOURCE_AC: c_uint = 0;

entry! {
    fn nvmlDeviceGetTemperature(handle: Handle, sensor: c_uint, celsius: *mut c_uint) {
        let device = whole_device(handle)?;
        needed(celsius)?;
        if sensor != SENSOR_GPU {
            return Err(Error::INVALID_ARGUMENT);
        }
        put(celsius, card::temperature_c(device.compute_percent()?))
    }

    fn nvmlDeviceGetPowerUsage(handle: Handle, milliwatts: *mut c_uint) {
        let device = whole_device(handle)?;
        needed(milliwatts)?;
        put(milliwatts, card::power_mw(device.compute_percent()?))
    }

    fn nvmlDeviceGetTotalEnergyConsumption(handle: Handle, millijoules: *mut c_ulonglong) {
        let device = whole_device(handle)?;
        needed(millijoules)?;
        put(millijoules, device.energy_mj()?)
    }

    fn nvmlDeviceGetPowerManagementMode(handle: Handle, mode: *mut c_uint) {
        whole_device(handle)?;
        put(mode, ENABLED)
    }

    fn nvmlDeviceGetPowerManagementLimit(handle: Handle, milliwatts: *mut c_uint) {
        whole_device(handle)?;
        put(milliwatts, card::POWER_LIMIT_MW)
    }

    fn nvmlDeviceGetPowerManagementDefaultLimit(handle: Handle, milliwatts: *mut c_uint) {
        whole_device(handle)?;
        put(milliwatts, card::POWER_LIMIT_MW)
    }

    fn nvmlDeviceGetEnforcedPowerLimit(handle: Handle, milliwatts: *mut c_uint) {
        whole_device(handle)?;
        put(milliwatts, card::POWER_LIMIT_MW)
    }

    fn nvmlDeviceGetPowerManagementLimitConstraints(handle: Handle, lowest: *mut c_uint, highest: *mut c_uint) {
        whole_device(handle)?;
        needed(highest)?;
        put(lowest, card::POWER_LIMIT_MIN_MW)?;
        put(highest, card::POWER_LIMIT_MW)
    }

    fn nvmlDeviceGetPowerSource(handle: Handle, source: *mut c_uint) {
        whole_device(handle)?;
        put(source, POWER_SOURCE_AC)
    }
}
