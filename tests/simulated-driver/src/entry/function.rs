//! Functions and their attributes: CUDA driver API, "Execution Control".
//!
//! Everything here also takes a `CUkernel` in place of a function, where the driver does. What the values are
//! is in `module/mod.rs`; launches are in `launch.rs`.

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put, put_if_wanted};
use crate::device::attributes;
use crate::module::library::function_of;
use crate::module::{FUNCTIONS, Function};

const DYNAMIC_SHARED_BYTES_MAX: u32 = 8;
const CARVEOUT: u32 = 9;
/// Cluster size and its permission, which devices without clusters do not have.
const CLUSTER_ATTRIBUTES: std::ops::RangeInclusive<u32> = 10..=15;

entry! {
    fn cuFuncGetAttribute(pi: *mut c_int, attrib: CUfunction_attribute, hfunc: CUfunction) {
        let function = function_of(hfunc)?;
        put(pi, function.attribute(attrib.0).ok_or(CUerror::INVALID_VALUE)?)
    }

    fn cuFuncSetAttribute(hfunc: CUfunction, attrib: CUfunction_attribute, value: c_int) {
        set_attribute(&function_of(hfunc)?, attrib, value)
    }

    fn cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache) {
        function_of(hfunc)?;
        if config.0 > 3 { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
    }

    fn cuFuncSetSharedMemConfig(hfunc: CUfunction, config: CUsharedconfig) {
        function_of(hfunc)?;
        if config.0 > 2 { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
    }

    fn cuFuncGetName(name: *mut *const c_char, hfunc: CUfunction) {
        needed(name)?;
        put(name, function_of(hfunc)?.name.as_ptr())
    }

    fn cuFuncGetParamInfo(func: CUfunction, param_index: usize, param_offset: *mut usize, param_size: *mut usize) {
        needed(param_offset)?;
        let function = FUNCTIONS.get(func)?;
        let parameter = function.entry.parameters.get(param_index).ok_or(CUerror::INVALID_VALUE)?;
        put_if_wanted(param_size, parameter.size as usize);
        put(param_offset, parameter.offset as usize)
    }

    fn cuFuncGetParamCount(func: CUfunction, param_count: *mut usize) {
        put(param_count, FUNCTIONS.get(func)?.entry.parameters.len())
    }

    fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function: CUfunction) {
        put(state, CUfunctionLoadingState_enum(FUNCTIONS.get(function)?.is_loaded().into()))
    }

    fn cuFuncLoad(function: CUfunction) {
        FUNCTIONS.get(function)?.load()
    }
}

/// `cuFuncSetAttribute` on a function that was found.
pub(super) fn set_attribute(
    function: &Arc<Function>,
    attribute: CUfunction_attribute,
    value: c_int,
) -> CUresult {
    match attribute.0 {
        DYNAMIC_SHARED_BYTES_MAX => {
            let bytes = u32::try_from(value).map_err(|_| CUerror::INVALID_VALUE)?;
            let total = u64::from(bytes) + function.entry.static_shared_bytes();
            if total > u64::from(attributes::SHARED_BYTES_OPTIN) {
                return Err(CUerror::INVALID_VALUE);
            }
            function.settings.dynamic_shared_bytes_max.store(bytes, Ordering::Relaxed);
            Ok(())
        }
        CARVEOUT if (-1..=100).contains(&value) => {
            function.settings.carveout.store(value as u32, Ordering::Relaxed);
            Ok(())
        }
        number if CLUSTER_ATTRIBUTES.contains(&number) => Err(CUerror::NOT_SUPPORTED),
        // Not an attribute, or one that the compiler decided.
        _ => Err(CUerror::INVALID_VALUE),
    }
}
