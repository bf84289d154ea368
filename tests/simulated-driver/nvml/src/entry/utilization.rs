//! How busy devices and processes are; engines that the simulator lacks are idle. NVML does not say it of devices in
//! MIG mode.

use std::ffi::{c_uint, c_ulonglong};

use super::entry;
use crate::card;
use crate::code::{Error, Result};
use crate::device::{Handle, undivided_device};
use crate::output::{needed, put, put_list};
use crate::types::{ProcessUtilization, Sample, Utilization};

/// What engines that never work are sampled at.
const SAMPLING_PERIOD_US: c_uint = 1_000_000;
/// `NVML_TOTAL_POWER_SAMPLES`, `NVML_GPU_UTILIZATION_SAMPLES` and `NVML_MEMORY_UTILIZATION_SAMPLES`.
const POWER: c_uint = 0;
const COMPUTE: c_uint = 1;
const COPIES: c_uint = 2;
const SAMPLING_TYPES: c_uint = 10;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED_INT: c_uint = 1;

entry! {
    fn nvmlDeviceGetUtilizationRates(handle: Handle, rates: *mut Utilization) {
        let device = undivided_device(handle)?;
        needed(rates)?;
        put(rates, Utilization { gpu: device.compute_percent()?, memory: device.copy_percent()? })
    }

    // What a process copies is not told apart, so its share of the memory is not known and 0.
    fn nvmlDeviceGetProcessUtilization(
        handle: Handle,
        samples: *mut ProcessUtilization,
        count: *mut c_uint,
        last_seen_us: c_ulonglong,
    ) {
        let device = undivided_device(handle)?;
        needed(count)?;
        let loads = device.process_loads()?.into_iter().filter(|load| load.time_us > last_seen_us);
        let list: Vec<ProcessUtilization> = loads
            .map(|load| ProcessUtilization {
                pid: load.pid,
                time_us: load.time_us,
                compute: load.percent,
                memory: 0,
                encoder: 0,
                decoder: 0,
            })
            .collect();
        if list.is_empty() {
            put(count, 0)?;
            return Err(Error::NOT_FOUND);
        }
        put_samples(count, samples, list)
    }

    fn nvmlDeviceGetSamples(
        handle: Handle,
        sampling_type: c_uint,
        last_seen_us: c_ulonglong,
        value_type: *mut c_uint,
        count: *mut c_uint,
        samples: *mut Sample,
    ) {
        let device = undivided_device(handle)?;
        needed(count)?;
        let loads = match sampling_type {
            POWER | COMPUTE => device.compute_samples()?,
            COPIES => device.copy_samples()?,
            other if other < SAMPLING_TYPES => return Err(Error::NOT_SUPPORTED),
            _ => return Err(Error::INVALID_ARGUMENT),
        };
        put(value_type, UNSIGNED_INT)?;
        let value = |percent| if sampling_type == POWER { card::power_mw(percent) } else { percent };
        let list: Vec<Sample> = loads
            .iter()
            .filter(|load| load.time_us > last_seen_us)
            .map(|load| Sample { time_us: load.time_us, value: value(load.percent).into() })
            .collect();
        if list.is_empty() {
            return Err(Error::NOT_FOUND);
        }
        if !samples.is_null() && count.read_unaligned() == 0 {
            return Err(Error::INVALID_ARGUMENT);
        }
        put_samples(count, samples, list)
    }

    fn nvmlDeviceGetEncoderUtilization(handle: Handle, percent: *mut c_uint, period_us: *mut c_uint) {
        put_idle(handle, percent, period_us)
    }

    fn nvmlDeviceGetDecoderUtilization(handle: Handle, percent: *mut c_uint, period_us: *mut c_uint) {
        put_idle(handle, percent, period_us)
    }

    fn nvmlDeviceGetJpgUtilization(handle: Handle, percent: *mut c_uint, period_us: *mut c_uint) {
        put_idle(handle, percent, period_us)
    }

    fn nvmlDeviceGetOfaUtilization(handle: Handle, percent: *mut c_uint, period_us: *mut c_uint) {
        put_idle(handle, percent, period_us)
    }

    fn nvmlDeviceGetEncoderStats(handle: Handle, sessions: *mut c_uint, rate: *mut c_uint, latency: *mut c_uint) {
        undivided_device(handle)?;
        needed(rate)?;
        needed(latency)?;
        put(sessions, 0)?;
        put(rate, 0)?;
        put(latency, 0)
    }

    fn nvmlDeviceGetFBCStats(handle: Handle, stats: *mut [c_uint; 3]) {
        undivided_device(handle)?;
        put(stats, [0; 3])
    }
}

/// Samples have a protocol of their own: without a place for them only their number is told, as success.
///
/// # Safety
/// As for [`put_list`].
unsafe fn put_samples<T>(count: *mut c_uint, places: *mut T, mut list: Vec<T>) -> Result<()> {
    if places.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { put(count, list.len() as c_uint) };
    }
    needed(count)?;
    // SAFETY: checked for null, else the caller's promise.
    list.truncate(unsafe { count.read_unaligned() } as usize);
    // SAFETY: the caller's promise.
    unsafe { put_list(count, places, list) }
}

/// # Safety
/// Both pointers are null or valid for writing.
unsafe fn put_idle(handle: Handle, percent: *mut c_uint, period_us: *mut c_uint) -> Result<()> {
    undivided_device(handle)?;
    needed(period_us)?;
    // SAFETY: the caller's promise.
    unsafe {
        put(percent, 0)?;
        put(period_us, SAMPLING_PERIOD_US)
    }
}
