//! Contexts: CUDA driver API, "Context Management" and its deprecated part.
//!
//! Primary contexts have a file of their own. What a context is, and which one is current, is in `context`
//! beside this directory.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put, put_if_wanted};
use crate::configuration;
use crate::context::{CONTEXTS, Context, FLAG_MAP_HOST, current, flags_are_valid, limits};
use crate::driver::driver;
use crate::pools;
use crate::space::Result;

/// Priorities of streams: lower numbers come first.
const LEAST_PRIORITY: c_int = 0;
/// See `LEAST_PRIORITY`.
const GREATEST_PRIORITY: c_int = -5;
/// What contexts of the first version of `cuCtxCreate` report as API version.
const FIRST_API_VERSION: u32 = 3010;

entry! {
    fn cuCtxCreate(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) {
        create(pctx, flags, dev, FIRST_API_VERSION)
    }

    fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) {
        create(pctx, flags, dev, 3020)
    }

    fn cuCtxCreate_v3(
        pctx: *mut CUcontext,
        params_array: *mut CUexecAffinityParam,
        num_params: c_int,
        flags: c_uint,
        dev: CUdevice,
    ) {
        if num_params < 0 || (num_params > 0 && params_array.is_null()) {
            return Err(CUerror::INVALID_VALUE);
        }
        if num_params > 0 {
            return Err(CUerror::UNSUPPORTED_EXEC_AFFINITY);
        }
        create(pctx, flags, dev, configuration::driver_version())
    }

    fn cuCtxCreate_v4(pctx: *mut CUcontext, ctx_create_params: *mut CUctxCreateParams, flags: c_uint, dev: CUdevice) {
        if let Some(parameters) = ctx_create_params.as_ref() {
            if parameters.numExecAffinityParams != 0 {
                return Err(CUerror::UNSUPPORTED_EXEC_AFFINITY);
            }
            if !parameters.cigParams.is_null() {
                return Err(CUerror::NOT_SUPPORTED);
            }
        }
        create(pctx, flags, dev, configuration::driver_version())
    }

    fn cuCtxDestroy(ctx: CUcontext) {
        destroy(ctx)
    }

    fn cuCtxDestroy_v2(ctx: CUcontext) {
        destroy(ctx)
    }

    fn cuCtxAttach(pctx: *mut CUcontext, flags: c_uint) {
        needed(pctx)?;
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let context = current::get()?;
        context.users.fetch_add(1, Ordering::Relaxed);
        put(pctx, context.handle as CUcontext)
    }

    fn cuCtxDetach(ctx: CUcontext) {
        let context = living(ctx)?;
        if context.users.fetch_sub(1, Ordering::Relaxed) > 1 {
            return Ok(());
        }
        destroy(ctx)
    }

    fn cuCtxPushCurrent(ctx: CUcontext) {
        current::push(living(ctx)?)
    }

    fn cuCtxPushCurrent_v2(ctx: CUcontext) {
        current::push(living(ctx)?)
    }

    fn cuCtxPopCurrent(pctx: *mut CUcontext) {
        let context = current::pop()?;
        put_if_wanted(pctx, context.handle as CUcontext);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(pctx: *mut CUcontext) {
        let context = current::pop()?;
        put_if_wanted(pctx, context.handle as CUcontext);
        Ok(())
    }

    fn cuCtxSetCurrent(ctx: CUcontext) {
        let context = if ctx.is_null() { None } else { Some(living(ctx)?) };
        current::set(context)
    }

    fn cuCtxGetCurrent(pctx: *mut CUcontext) {
        needed(pctx)?;
        let handle = current::peek()?.map_or(0, |context| context.handle);
        put(pctx, handle as CUcontext)
    }

    fn cuCtxGetDevice(device: *mut CUdevice) {
        put(device, ordinal_of(&current::get()?)?)
    }

    fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext) {
        put(device, ordinal_of(&given_or_current(ctx)?)?)
    }

    fn cuCtxGetFlags(flags: *mut c_uint) {
        put(flags, current::get()?.flags.load(Ordering::Relaxed))
    }

    fn cuCtxSetFlags(flags: c_uint) {
        let context = current::get()?;
        if !flags_are_valid(flags) {
            return Err(CUerror::INVALID_VALUE);
        }
        context.flags.store(flags | FLAG_MAP_HOST, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetId(ctx: CUcontext, ctx_id: *mut c_ulonglong) {
        put(ctx_id, given_or_current(ctx)?.id())
    }

    fn cuCtxSynchronize() {
        current::get()?.queue.synchronize_all()?;
        pools::synchronised()
    }

    fn cuCtxSynchronize_v2(ctx: CUcontext) {
        given_or_current(ctx)?.queue.synchronize_all()?;
        pools::synchronised()
    }

    fn cuCtxGetLimit(pvalue: *mut usize, limit: CUlimit) {
        needed(pvalue)?;
        put(pvalue, current::get()?.limits.lock().get(limit.0)?)
    }

    fn cuCtxSetLimit(limit: CUlimit, value: usize) {
        let context = current::get()?;
        if limit.0 == limits::STACK_BYTES {
            return context.set_stack_bytes(driver()?, value);
        }
        // Kernels may hold parts of the heap: from the first module that uses it on, its size stays.
        if limit.0 == limits::HEAP_BYTES && context.heap.lock().is_some() {
            return Err(CUerror::INVALID_VALUE);
        }
        context.limits.lock().set(limit.0, value)?;
        if limit.0 == limits::PRINT_BYTES {
            context.queue.output().set_room(value);
        }
        Ok(())
    }

    fn cuCtxGetCacheConfig(pconfig: *mut CUfunc_cache) {
        put(pconfig, CUfunc_cache_enum(current::get()?.cache_config.load(Ordering::Relaxed)))
    }

    fn cuCtxSetCacheConfig(config: CUfunc_cache) {
        if config.0 > 3 {
            return Err(CUerror::INVALID_VALUE);
        }
        current::get()?.cache_config.store(config.0, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetSharedMemConfig(p_config: *mut CUsharedconfig) {
        // Banks of 4 bytes since compute capability 5.0, whatever was asked for.
        current::get()?;
        put(p_config, CUsharedconfig_enum(1))
    }

    fn cuCtxSetSharedMemConfig(config: CUsharedconfig) {
        if config.0 > 2 {
            return Err(CUerror::INVALID_VALUE);
        }
        current::get()?.shared_config.store(config.0, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint) {
        put(version, given_or_current(ctx)?.api_version)
    }

    fn cuCtxGetStreamPriorityRange(least_priority: *mut c_int, greatest_priority: *mut c_int) {
        current::get()?;
        put_if_wanted(least_priority, LEAST_PRIORITY);
        put_if_wanted(greatest_priority, GREATEST_PRIORITY);
        Ok(())
    }

    fn cuCtxResetPersistingL2Cache() {
        current::get()?;
        Err(CUerror::NOT_SUPPORTED)
    }

}

/// The context of a handle.
fn living(handle: CUcontext) -> Result<Arc<Context>> {
    CONTEXTS.get(handle).map_err(|_| CUerror::INVALID_CONTEXT)
}

fn given_or_current(handle: CUcontext) -> Result<Arc<Context>> {
    if handle.is_null() { current::get() } else { living(handle) }
}

fn ordinal_of(context: &Arc<Context>) -> Result<CUdevice> {
    driver()?.ordinal(context.device).ok_or(CUerror::INVALID_CONTEXT)
}

/// # Safety
/// As `cuCtxCreate`.
unsafe fn create(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice, api_version: u32) -> CUresult {
    needed(pctx)?;
    let driver = driver()?;
    let device = driver.index(dev)?;
    if !flags_are_valid(flags) {
        return Err(CUerror::INVALID_VALUE);
    }
    let context = Context::create(driver, device, flags, api_version, None)?;
    let handle = context.handle;
    current::push(context)?;
    // SAFETY: the caller's promise.
    unsafe { put(pctx, handle as CUcontext) }
}

fn destroy(handle: CUcontext) -> CUresult {
    let context = living(handle)?;
    if context.primary {
        // Primary contexts end by release or reset.
        return Err(CUerror::INVALID_CONTEXT);
    }
    current::remove_if_on_top(&context)?;
    context.destroy(driver()?)
}
