//! Primary contexts: CUDA driver API, "Primary Context Management".
//!
//! Counting, flags and the handle that survives a reset are in `context/primary.rs`; here are only the
//! arguments.

use std::ffi::{c_int, c_uint};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put};
use crate::context::{flags_are_valid, primary};
use crate::driver::driver;

entry! {
    fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) {
        needed(pctx)?;
        let driver = driver()?;
        let context = primary::retain(driver, driver.index(dev)?)?;
        put(pctx, context.handle as CUcontext)
    }

    fn cuDevicePrimaryCtxRelease(dev: CUdevice) {
        let driver = driver()?;
        primary::release(driver, driver.index(dev)?)
    }

    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) {
        let driver = driver()?;
        primary::release(driver, driver.index(dev)?)
    }

    fn cuDevicePrimaryCtxReset(dev: CUdevice) {
        let driver = driver()?;
        primary::reset(driver, driver.index(dev)?)
    }

    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) {
        let driver = driver()?;
        primary::reset(driver, driver.index(dev)?)
    }

    // The first version refused an active context; the second changes its flags.
    fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint) {
        let index = driver()?.index(dev)?;
        if primary::state(index).1 {
            return Err(CUerror::PRIMARY_CONTEXT_ACTIVE);
        }
        set_flags(dev, flags)
    }

    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) {
        set_flags(dev, flags)
    }

    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        needed(flags)?;
        needed(active)?;
        let (value, is_active) = primary::state(driver()?.index(dev)?);
        put(flags, value)?;
        put(active, c_int::from(is_active))
    }
}

fn set_flags(dev: CUdevice, flags: u32) -> CUresult {
    let index = driver()?.index(dev)?;
    if !flags_are_valid(flags) {
        return Err(CUerror::INVALID_VALUE);
    }
    primary::set_flags(index, flags);
    Ok(())
}
