//! The driver's functions that the shim itself calls, typed, and nothing more.
//!
//! The driver is never linked: `driver.rs` finds it, this module looks names up in it. A function
//! that this driver lacks answers `CUDA_ERROR_NOT_FOUND` when called. Add a name to the list below
//! and it becomes a method of [`Api`]; the signature comes from the bindings.

#![allow(non_snake_case, reason = "a method has the name of its function")]

use crate::driver;
use std::sync::OnceLock;
use turnus_bindings::{CUerror, CUresult, driver_api, fns, types::*};

/// `($)` hands the dollar sign to the inner macro, which must write one itself.
macro_rules! own_calls {
    (($d:tt) $($name:ident)*) => {
        /// Pointers into the real driver; `None` where this driver has no such function.
        #[derive(Debug)]
        pub(crate) struct Api { $($name: Option<fns::$name>,)* }

        impl Api {
            fn load(driver: &driver::Driver) -> Api {
                Api { $($name: driver.symbol(concat!(stringify!($name), "\0")).map(|address| {
                    // SAFETY: the address is that of the function of this name in the real
                    // driver, whose signature the bindings took from the driver's header.
                    unsafe { std::mem::transmute::<*mut core::ffi::c_void, fns::$name>(address) }
                }),)* }
            }
        }

        macro_rules! method {
            $(($name ($d($d argument:ident: $d type:ty),*)) => {
                impl Api {
                    /// Calls the driver's function of this name.
                    ///
                    /// # Safety
                    /// As the driver API asks of this function's caller.
                    pub(crate) unsafe fn $name(&self, $d($d argument: $d type),*) -> CUresult {
                        match self.$name {
                            // SAFETY: the caller keeps the function's contract.
                            Some(function) => unsafe { function($d($d argument),*) },
                            None => Err(CUerror::NOT_FOUND),
                        }
                    }
                }
            };)*
            ($d other:ident $d arguments:tt) => {};
        }
    };
}

own_calls! { ($)
    cuCtxGetCurrent
    cuCtxGetDevice
    cuCtxGetFlags
    cuCtxPopCurrent_v2
    cuCtxPushCurrent_v2
    cuCtxSetFlags
    cuCtxSynchronize
    cuDeviceGetAttribute
    cuDeviceGetName
    cuDeviceGetUuid
    cuDeviceGetUuid_v2
    cuDevicePrimaryCtxGetState
    cuDeviceTotalMem_v2
    cuEventCreate
    cuEventDestroy_v2
    cuEventRecord
    cuEventSynchronize
    cuMemAddressFree
    cuMemAddressReserve
    cuMemCreate
    cuMemFreeHost
    cuMemGetAllocationGranularity
    cuMemGetInfo_v2
    cuMemHostAlloc
    cuMemMap
    cuMemRelease
    cuMemSetAccess
    cuMemUnmap
    cuMemcpyDtoHAsync_v2
    cuMemcpyHtoDAsync_v2
    cuPointerGetAttribute
    cuStreamCreate
    cuStreamDestroy_v2
    cuStreamSynchronize
    cuThreadExchangeStreamCaptureMode
}

macro_rules! methods {
    ($(fn $name:ident $arguments:tt -> $result:ty;)*) => { $(method!($name $arguments);)* };
}
driver_api!(methods);

/// The driver's functions; `None` when there is no driver in this process and none can be loaded.
pub(crate) fn api() -> Option<&'static Api> {
    static API: OnceLock<Api> = OnceLock::new();
    if let Some(api) = API.get() {
        return Some(api);
    }
    let driver = driver::get_or_load()?;
    Some(API.get_or_init(|| Api::load(driver)))
}
