//! Clocks and performance states: the boost clock while something runs, the idle clock else.

use std::ffi::{c_uint, c_ulonglong};

use super::entry;
use crate::card;
use crate::code::{Error, Result};
use crate::device::{Device, Handle, whole_device};
use crate::output::{needed, put};

/// `nvmlClockType_t`; there is no video engine.
const GRAPHICS: c_uint = 0;
const MULTIPROCESSORS: c_uint = 1;
const MEMORY: c_uint = 2;
const VIDEO: c_uint = 3;
/// `nvmlClockId_t`; the other two are about clocks that applications set.
const CURRENT: c_uint = 0;
const APPLICATION_DEFAULT: c_uint = 2;
const CUSTOMER_BOOST_MAX: c_uint = 3;
/// `nvmlClocksEventReasonGpuIdle`.
const REASON_IDLE: c_ulonglong = 1;
/// `NVML_PSTATE_0`, the only one of data-centre cards at work and at rest.
const PSTATE_0: c_uint = 0;

entry! {
    fn nvmlDeviceGetClockInfo(handle: Handle, clock_type: c_uint, megahertz: *mut c_uint) {
        let device = whole_device(handle)?;
        needed(megahertz)?;
        put(megahertz, current(&device, clock_type)?)
    }

    fn nvmlDeviceGetMaxClockInfo(handle: Handle, clock_type: c_uint, megahertz: *mut c_uint) {
        whole_device(handle)?;
        needed(megahertz)?;
        put(megahertz, highest(clock_type)?)
    }

    fn nvmlDeviceGetMaxCustomerBoostClock(handle: Handle, clock_type: c_uint, megahertz: *mut c_uint) {
        whole_device(handle)?;
        needed(megahertz)?;
        put(megahertz, highest(clock_type)?)
    }

    fn nvmlDeviceGetClock(handle: Handle, clock_type: c_uint, clock: c_uint, megahertz: *mut c_uint) {
        let device = whole_device(handle)?;
        needed(megahertz)?;
        let value = match clock {
            CURRENT => current(&device, clock_type)?,
            CUSTOMER_BOOST_MAX => highest(clock_type)?,
            other if other <= APPLICATION_DEFAULT => return Err(Error::NOT_SUPPORTED),
            _ => return Err(Error::INVALID_ARGUMENT),
        };
        put(megahertz, value)
    }

    fn nvmlDeviceGetPerformanceState(handle: Handle, state: *mut c_uint) {
        whole_device(handle)?;
        put(state, PSTATE_0)
    }

    fn nvmlDeviceGetPowerState(handle: Handle, state: *mut c_uint) {
        whole_device(handle)?;
        put(state, PSTATE_0)
    }

    fn nvmlDeviceGetCurrentClocksThrottleReasons(handle: Handle, reasons: *mut c_ulonglong) {
        let device = whole_device(handle)?;
        needed(reasons)?;
        put(reasons, current_reasons(&device)?)
    }

    fn nvmlDeviceGetCurrentClocksEventReasons(handle: Handle, reasons: *mut c_ulonglong) {
        let device = whole_device(handle)?;
        needed(reasons)?;
        put(reasons, current_reasons(&device)?)
    }

    fn nvmlDeviceGetSupportedClocksThrottleReasons(handle: Handle, reasons: *mut c_ulonglong) {
        whole_device(handle)?;
        put(reasons, REASON_IDLE)
    }

    fn nvmlDeviceGetSupportedClocksEventReasons(handle: Handle, reasons: *mut c_ulonglong) {
        whole_device(handle)?;
        put(reasons, REASON_IDLE)
    }
}

fn is_idle(device: &Device) -> Result<bool> {
    Ok(device.compute_percent()? == 0)
}

fn current_reasons(device: &Device) -> Result<c_ulonglong> {
    Ok(if is_idle(device)? { REASON_IDLE } else { 0 })
}

fn highest(clock_type: c_uint) -> Result<c_uint> {
    match clock_type {
        GRAPHICS | MULTIPROCESSORS => Ok(card::SM_CLOCK_MHZ),
        MEMORY => Ok(card::MEMORY_CLOCK_MHZ),
        VIDEO => Err(Error::NOT_SUPPORTED),
        _ => Err(Error::INVALID_ARGUMENT),
    }
}

fn current(device: &Device, clock_type: c_uint) -> Result<c_uint> {
    let highest = highest(clock_type)?;
    let slows_down = clock_type != MEMORY && is_idle(device)?;
    Ok(if slows_down { card::SM_CLOCK_IDLE_MHZ } else { highest })
}
