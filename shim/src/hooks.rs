//! THE list: every function of the driver that the shim hooks, one line each.
//!
//! What is not here reaches the driver directly, at no cost, by all three roads. Signatures come
//! from the bindings, so the compiler checks every handler against the driver's header; the
//! boundary's rules are in `boundary.rs`, the kinds of hooks explained at its macro. A test
//! compares this list with `bindings/src/class.rs`, where each decision has its class.
//!
//! Never here: what waits for work or orders it, host functions, frees of the driver's own
//! objects. Work can only finish if those always go on.

#![allow(non_snake_case, reason = "a hook has the name of its function")]
#![allow(clippy::too_many_arguments, reason = "the arguments are those of the driver's functions")]

use crate::boundary::{self, hook};
use crate::memory::{bounds, calls};
use crate::{driver, gate, headroom, unhandled};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;
use turnus_bindings::{driver_api, fns, types::*};

/// One name that a program may get from us.
#[derive(Debug)]
pub struct Entry {
    /// The exported name.
    pub name: &'static CStr,
    /// What the program gets.
    pub hook: *const c_void,
    pub(crate) real: &'static AtomicPtr<c_void>,
}

// SAFETY: the pointers are addresses of functions and statics, valid and unchanged for ever.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl Entry {
    /// Called once, when the driver is found.
    pub(crate) fn set_real(&self, pointer: *mut c_void) {
        self.real.store(pointer, Ordering::Release);
    }

    /// The driver's own pointer of this name, or null where this driver has no such function.
    pub(crate) fn real_pointer(&self, driver: &driver::Driver) -> *mut c_void {
        driver.symbol_at(self.name)
    }
}

/// 32-bit first versions of memory calls: an address of ours never fits, so they are the driver's.
mod first_versions {
    use crate::memory::calls;
    use turnus_bindings::CUresult;
    use turnus_bindings::types::{CUdevice, CUdeviceptr_v1, c_uint};

    pub(super) fn alloc(_: *mut CUdeviceptr_v1, _: c_uint) -> Option<CUresult> {
        None
    }

    pub(super) fn alloc_pitch(
        _: *mut CUdeviceptr_v1,
        _: *mut c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
    ) -> Option<CUresult> {
        None
    }

    pub(super) fn free(address: CUdeviceptr_v1) -> Option<CUresult> {
        calls::mem_free(address.into())
    }

    pub(super) fn get_address_range(
        _: *mut CUdeviceptr_v1,
        _: *mut c_uint,
        _: CUdeviceptr_v1,
    ) -> Option<CUresult> {
        None
    }

    /// # Safety
    /// `bytes` is null or may be written.
    pub(super) unsafe fn device_total_mem(bytes: *mut c_uint, device: CUdevice) -> Option<CUresult> {
        let mut total = 0usize;
        if bytes.is_null() {
            return None;
        }
        // SAFETY: points to a variable of this function.
        let result = unsafe { calls::device_total_mem(&mut total, device) }?;
        // SAFETY: not null, and the program's to be written by the contract of the call.
        unsafe { bytes.write(c_uint::try_from(total).unwrap_or(c_uint::MAX)) };
        Some(result)
    }
}

/// Calls that would let another process or device reach memory that moves.
mod exports {
    use crate::memory::calls;
    use core::ffi::c_void;
    use turnus_bindings::CUresult;
    use turnus_bindings::types::*;

    pub(super) fn ipc_handle(_: *mut CUipcMemHandle, address: CUdeviceptr) -> Option<CUresult> {
        calls::ipc_get_mem_handle(address)
    }

    pub(super) fn range_handle(
        _: *mut c_void,
        address: CUdeviceptr,
        _: usize,
        _: CUmemRangeHandleType,
        _: c_ulonglong,
    ) -> Option<CUresult> {
        calls::mem_get_handle_for_address_range(address)
    }

    pub(super) fn retain(_: *mut CUmemGenericAllocationHandle, address: *mut c_void) -> Option<CUresult> {
        calls::mem_retain_allocation_handle(address)
    }
}

/// `($)` hands the dollar sign to the inner macro, which must write one itself.
macro_rules! hooks {
    (($d:tt) $($name:ident => $kind:ident $(($handler:path))?;)*) => {
        /// The hooked names, in the order of the list.
        pub static HOOKED: &[Entry] = &[$(Entry {
            // SAFETY: the text ends with the NUL that concat! appends and has no other.
            name: unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
            hook: $name as *const c_void,
            real: &$name::REAL,
        }),*];

        macro_rules! hook_of {
            $(($name $d arguments:tt) => { hook! { $kind $(($handler))? $name $d arguments } };)*
            ($d other:ident $d arguments:tt) => {};
        }
    };
}

hooks! { ($)
    // The driver and what it hands out.
    cuInit => call(crate::lifecycle::initialise);
    cuGetProcAddress => call(crate::resolve::proc_address::get);
    cuGetProcAddress_v2 => call(crate::resolve::proc_address::get_v2);
    // Contexts.
    cuCtxCreate => call(crate::contexts::create);
    cuCtxCreate_v2 => call(crate::contexts::create);
    cuCtxCreate_v3 => call(crate::contexts::create_v3);
    cuCtxCreate_v4 => call(crate::contexts::create_v4);
    cuCtxDestroy => call(crate::contexts::destroy);
    cuCtxDestroy_v2 => call(crate::contexts::destroy);
    cuDevicePrimaryCtxRetain => call(crate::contexts::primary_retain);
    cuDevicePrimaryCtxRelease => call(crate::contexts::primary_release);
    cuDevicePrimaryCtxRelease_v2 => call(crate::contexts::primary_release);
    cuDevicePrimaryCtxReset => call(crate::contexts::primary_reset);
    cuDevicePrimaryCtxReset_v2 => call(crate::contexts::primary_reset);
    // Captures.
    cuStreamBeginCapture => gate(crate::capture::begin);
    cuStreamBeginCapture_ptsz => gate(crate::capture::begin);
    cuStreamBeginCapture_v2 => gate(crate::capture::begin_v2);
    cuStreamBeginCapture_v2_ptsz => gate(crate::capture::begin_v2);
    cuStreamBeginCaptureToGraph => gate(crate::capture::begin_to_graph);
    cuStreamBeginCaptureToGraph_ptsz => gate(crate::capture::begin_to_graph);
    cuStreamBeginRecaptureToGraph => gate(crate::capture::begin_recapture);
    cuStreamBeginRecaptureToGraph_ptsz => gate(crate::capture::begin_recapture);
    cuStreamEndCapture => call(crate::capture::end);
    cuStreamEndCapture_ptsz => call(crate::capture::end);
    // Memory. First versions have 32-bit addresses, which ours are not.
    cuMemAlloc => memory(first_versions::alloc);
    cuMemAlloc_v2 => memory(calls::mem_alloc);
    cuMemAllocPitch => memory(first_versions::alloc_pitch);
    cuMemAllocPitch_v2 => memory(calls::mem_alloc_pitch);
    cuMemFree => memory(first_versions::free);
    cuMemFree_v2 => memory(calls::mem_free);
    cuMemGetInfo => memory(calls::mem_get_info_v1);
    cuMemGetInfo_v2 => memory(calls::mem_get_info);
    cuDeviceTotalMem => memory(first_versions::device_total_mem);
    cuDeviceTotalMem_v2 => memory(calls::device_total_mem);
    cuMemGetAddressRange => memory(first_versions::get_address_range);
    cuMemGetAddressRange_v2 => memory(calls::mem_get_address_range);
    cuPointerGetAttribute => memory(calls::pointer_get_attribute);
    cuPointerGetAttributes => memory(calls::pointer_get_attributes);
    cuPointerSetAttribute => memory(calls::pointer_set_attribute);
    cuIpcGetMemHandle => memory(exports::ipc_handle);
    cuMemGetHandleForAddressRange => memory(exports::range_handle);
    cuMemRetainAllocationHandle => memory(exports::retain);
    // Kernels and graphs.
    cuLaunch => gate;
    cuLaunchGrid => gate;
    cuLaunchGridAsync => gate;
    cuLaunchKernel => gate;
    cuLaunchKernelEx => gate;
    cuLaunchKernelEx_ptsz => gate;
    cuLaunchKernel_ptsz => gate;
    cuLaunchCooperativeKernel => gate;
    cuLaunchCooperativeKernelMultiDevice => gate;
    cuLaunchCooperativeKernel_ptsz => gate;
    cuGraphLaunch => gate;
    cuGraphLaunch_ptsz => gate;
    cuGraphUpload => gate;
    cuGraphUpload_ptsz => gate;
    // Copies, fills and migration: all forms, also of arrays and in batches.
    cuMemcpy => checked(bounds::between);
    cuMemcpy2D => gate;
    cuMemcpy2DAsync => gate;
    cuMemcpy2DAsync_v2 => checked(bounds::planar_async);
    cuMemcpy2DAsync_v2_ptsz => checked(bounds::planar_async);
    cuMemcpy2DUnaligned => gate;
    cuMemcpy2DUnaligned_v2 => checked(bounds::planar);
    cuMemcpy2DUnaligned_v2_ptds => checked(bounds::planar);
    cuMemcpy2D_v2 => checked(bounds::planar);
    cuMemcpy2D_v2_ptds => checked(bounds::planar);
    cuMemcpy3D => gate;
    cuMemcpy3DAsync => gate;
    cuMemcpy3DAsync_v2 => checked(bounds::spatial_async);
    cuMemcpy3DAsync_v2_ptsz => checked(bounds::spatial_async);
    cuMemcpy3DBatchAsync => gate;
    cuMemcpy3DBatchAsync_ptsz => gate;
    cuMemcpy3DBatchAsync_v2 => gate;
    cuMemcpy3DBatchAsync_v2_ptsz => gate;
    cuMemcpy3DPeer => checked(bounds::spatial_peer);
    cuMemcpy3DPeerAsync => checked(bounds::spatial_peer_async);
    cuMemcpy3DPeerAsync_ptsz => checked(bounds::spatial_peer_async);
    cuMemcpy3DPeer_ptds => checked(bounds::spatial_peer);
    cuMemcpy3DWithAttributesAsync => gate;
    cuMemcpy3DWithAttributesAsync_ptsz => gate;
    cuMemcpy3D_v2 => checked(bounds::spatial);
    cuMemcpy3D_v2_ptds => checked(bounds::spatial);
    cuMemcpyAsync => checked(bounds::between_async);
    cuMemcpyAsync_ptsz => checked(bounds::between_async);
    cuMemcpyAtoA => gate;
    cuMemcpyAtoA_v2 => gate;
    cuMemcpyAtoA_v2_ptds => gate;
    cuMemcpyAtoD => gate;
    cuMemcpyAtoD_v2 => checked(bounds::from_array);
    cuMemcpyAtoD_v2_ptds => checked(bounds::from_array);
    cuMemcpyAtoH => gate;
    cuMemcpyAtoHAsync => gate;
    cuMemcpyAtoHAsync_v2 => gate;
    cuMemcpyAtoHAsync_v2_ptsz => gate;
    cuMemcpyAtoH_v2 => gate;
    cuMemcpyAtoH_v2_ptds => gate;
    cuMemcpyBatchAsync => gate;
    cuMemcpyBatchAsync_ptsz => gate;
    cuMemcpyBatchAsync_v2 => gate;
    cuMemcpyBatchAsync_v2_ptsz => gate;
    cuMemcpyDtoA => gate;
    cuMemcpyDtoA_v2 => checked(bounds::to_array);
    cuMemcpyDtoA_v2_ptds => checked(bounds::to_array);
    cuMemcpyDtoD => gate;
    cuMemcpyDtoDAsync => gate;
    cuMemcpyDtoDAsync_v2 => checked(bounds::between_async);
    cuMemcpyDtoDAsync_v2_ptsz => checked(bounds::between_async);
    cuMemcpyDtoD_v2 => checked(bounds::between);
    cuMemcpyDtoD_v2_ptds => checked(bounds::between);
    cuMemcpyDtoH => gate;
    cuMemcpyDtoHAsync => gate;
    cuMemcpyDtoHAsync_v2 => checked(bounds::to_host_async);
    cuMemcpyDtoHAsync_v2_ptsz => checked(bounds::to_host_async);
    cuMemcpyDtoH_v2 => checked(bounds::to_host);
    cuMemcpyDtoH_v2_ptds => checked(bounds::to_host);
    cuMemcpyHtoA => gate;
    cuMemcpyHtoAAsync => gate;
    cuMemcpyHtoAAsync_v2 => gate;
    cuMemcpyHtoAAsync_v2_ptsz => gate;
    cuMemcpyHtoA_v2 => gate;
    cuMemcpyHtoA_v2_ptds => gate;
    cuMemcpyHtoD => gate;
    cuMemcpyHtoDAsync => gate;
    cuMemcpyHtoDAsync_v2 => checked(bounds::to_device_async);
    cuMemcpyHtoDAsync_v2_ptsz => checked(bounds::to_device_async);
    cuMemcpyHtoD_v2 => checked(bounds::to_device);
    cuMemcpyHtoD_v2_ptds => checked(bounds::to_device);
    cuMemcpyPeer => checked(bounds::peer);
    cuMemcpyPeerAsync => checked(bounds::peer_async);
    cuMemcpyPeerAsync_ptsz => checked(bounds::peer_async);
    cuMemcpyPeer_ptds => checked(bounds::peer);
    cuMemcpyWithAttributesAsync => checked(bounds::with_attributes);
    cuMemcpyWithAttributesAsync_ptsz => checked(bounds::with_attributes);
    cuMemcpy_ptds => checked(bounds::between);
    cuMemsetD16 => gate;
    cuMemsetD16Async => checked(bounds::fill_async);
    cuMemsetD16Async_ptsz => checked(bounds::fill_async);
    cuMemsetD16_v2 => checked(bounds::fill);
    cuMemsetD16_v2_ptds => checked(bounds::fill);
    cuMemsetD2D16 => gate;
    cuMemsetD2D16Async => checked(bounds::fill_rows_async);
    cuMemsetD2D16Async_ptsz => checked(bounds::fill_rows_async);
    cuMemsetD2D16_v2 => checked(bounds::fill_rows);
    cuMemsetD2D16_v2_ptds => checked(bounds::fill_rows);
    cuMemsetD2D32 => gate;
    cuMemsetD2D32Async => checked(bounds::fill_rows_async);
    cuMemsetD2D32Async_ptsz => checked(bounds::fill_rows_async);
    cuMemsetD2D32_v2 => checked(bounds::fill_rows);
    cuMemsetD2D32_v2_ptds => checked(bounds::fill_rows);
    cuMemsetD2D8 => gate;
    cuMemsetD2D8Async => checked(bounds::fill_rows_async);
    cuMemsetD2D8Async_ptsz => checked(bounds::fill_rows_async);
    cuMemsetD2D8_v2 => checked(bounds::fill_rows);
    cuMemsetD2D8_v2_ptds => checked(bounds::fill_rows);
    cuMemsetD32 => gate;
    cuMemsetD32Async => checked(bounds::fill_async);
    cuMemsetD32Async_ptsz => checked(bounds::fill_async);
    cuMemsetD32_v2 => checked(bounds::fill);
    cuMemsetD32_v2_ptds => checked(bounds::fill);
    cuMemsetD8 => gate;
    cuMemsetD8Async => checked(bounds::fill_async);
    cuMemsetD8Async_ptsz => checked(bounds::fill_async);
    cuMemsetD8_v2 => checked(bounds::fill);
    cuMemsetD8_v2_ptds => checked(bounds::fill);
    cuMemPrefetchAsync => gate;
    cuMemPrefetchAsync_ptsz => gate;
    cuMemPrefetchAsync_v2 => gate;
    cuMemPrefetchAsync_v2_ptsz => gate;
    cuMemPrefetchBatchAsync => gate;
    cuMemPrefetchBatchAsync_ptsz => gate;
    cuMemDiscardAndPrefetchBatchAsync => gate;
    cuMemDiscardAndPrefetchBatchAsync_ptsz => gate;
    cuMemDiscardBatchAsync => gate;
    cuMemDiscardBatchAsync_ptsz => gate;
    cuMemBatchDecompressAsync => gate;
    cuMemBatchDecompressAsync_ptsz => gate;
    cuFabricCpyBatchAsync => gate;
    cuFabricCpyBatchAsync_ptsz => gate;
    cuStreamAttachMemAsync => gate;
    cuStreamAttachMemAsync_ptsz => gate;
    // Words of device memory that the device itself writes or awaits.
    cuStreamBatchMemOp => gate;
    cuStreamBatchMemOp_ptsz => gate;
    cuStreamBatchMemOp_v2 => gate;
    cuStreamBatchMemOp_v2_ptsz => gate;
    cuStreamWaitValue32 => gate;
    cuStreamWaitValue32_ptsz => gate;
    cuStreamWaitValue32_v2 => gate;
    cuStreamWaitValue32_v2_ptsz => gate;
    cuStreamWaitValue64 => gate;
    cuStreamWaitValue64_ptsz => gate;
    cuStreamWaitValue64_v2 => gate;
    cuStreamWaitValue64_v2_ptsz => gate;
    cuStreamWriteValue32 => gate;
    cuStreamWriteValue32_ptsz => gate;
    cuStreamWriteValue32_v2 => gate;
    cuStreamWriteValue32_v2_ptsz => gate;
    cuStreamWriteValue64 => gate;
    cuStreamWriteValue64_ptsz => gate;
    cuStreamWriteValue64_v2 => gate;
    cuStreamWriteValue64_v2_ptsz => gate;
    // Addresses handed to the driver, which may look at what lies there though nothing runs.
    cuGraphAddBatchMemOpNode => gate;
    cuGraphAddKernelNode => gate;
    cuGraphAddKernelNode_v2 => gate;
    cuGraphAddMemcpyNode => gate;
    cuGraphAddMemsetNode => gate;
    cuGraphAddNode => gate;
    cuGraphAddNode_v2 => gate;
    cuGraphAddNode_v3 => gate;
    cuGraphBatchMemOpNodeSetParams => gate;
    cuGraphKernelNodeSetParams => gate;
    cuGraphKernelNodeSetParams_v2 => gate;
    cuGraphMemcpyNodeSetParams => gate;
    cuGraphMemsetNodeSetParams => gate;
    cuGraphNodeSetParams => gate;
    cuGraphNodeSetParams_v2 => gate;
    cuGraphExecBatchMemOpNodeSetParams => gate;
    cuGraphExecChildGraphNodeSetParams => gate;
    cuGraphExecKernelNodeSetParams => gate;
    cuGraphExecKernelNodeSetParams_v2 => gate;
    cuGraphExecMemcpyNodeSetParams => gate;
    cuGraphExecMemsetNodeSetParams => gate;
    cuGraphExecNodeSetParams => gate;
    cuGraphExecUpdate => gate;
    cuGraphExecUpdate_v2 => gate;
    cuTexRefSetAddress => gate;
    cuTexRefSetAddress_v2 => gate;
    cuTexRefSetAddress2D => gate;
    cuTexRefSetAddress2D_v2 => gate;
    cuTexRefSetAddress2D_v3 => gate;
    cuTexObjectCreate => gate;
    cuSurfObjectCreate => gate;
    // Instantiating also takes memory of the driver.
    cuGraphInstantiate => gate_room;
    cuGraphInstantiateWithFlags => gate_room;
    cuGraphInstantiateWithParams => gate_room;
    cuGraphInstantiateWithParams_ptsz => gate_room;
    cuGraphInstantiate_v2 => gate_room;
    // Code takes memory of the driver. Not inside the gate: compiling may take minutes.
    cuModuleLoad => room;
    cuModuleLoadData => room;
    cuModuleLoadDataEx => room;
    cuModuleLoadFatBinary => room;
    cuLibraryLoadData => room;
    cuLibraryLoadFromFile => room;
    cuCtxSetLimit => room;
}

macro_rules! all_hooks {
    ($(fn $name:ident $arguments:tt -> $result:ty;)*) => { $(hook_of! { $name $arguments })* };
}
driver_api!(all_hooks);

/// All entries, hooked and counted ones, sorted by name.
pub(crate) fn entries() -> &'static [&'static Entry] {
    static SORTED: OnceLock<Vec<&'static Entry>> = OnceLock::new();
    SORTED.get_or_init(|| {
        let mut entries: Vec<_> = HOOKED.iter().chain(unhandled::COUNTED).collect();
        entries.sort_by_key(|entry| entry.name);
        entries
    })
}

/// The entry of exactly this name.
pub(crate) fn by_name(name: &CStr) -> Option<&'static Entry> {
    let entries = entries();
    entries.binary_search_by_key(&name, |entry| entry.name).ok().map(|index| entries[index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnus_bindings::class::{Handling, names_with};

    fn names(entries: &[Entry]) -> Vec<&'static str> {
        let mut names: Vec<_> = entries.iter().map(|entry| entry.name.to_str().expect("ascii")).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_list_is_exactly_what_the_class_table_calls_hooked() {
        assert_eq!(names(HOOKED), names_with(Handling::Hooked).collect::<Vec<_>>());
    }

    #[test]
    fn what_the_class_table_calls_not_handled_yet_is_counted() {
        assert_eq!(names(unhandled::COUNTED), names_with(Handling::NotHandledYet).collect::<Vec<_>>());
    }

    #[test]
    fn interposition_only_exact_names_are_found() {
        assert!(by_name(c"cuMemcpyHtoD_v2").is_some());
        for name in [c"cuMemcpyHtoD_v", c"cuMemcpyHtoD_v22", c"cudnnCreate", c"cuda", c"cu", c"cuNewThing"] {
            assert!(by_name(name).is_none(), "{name:?}");
        }
    }

    #[test]
    fn work_on_every_kind_of_default_stream_is_gated() {
        for name in [
            c"cuLaunchKernel",
            c"cuLaunchKernel_ptsz",
            c"cuMemcpyHtoD_v2_ptds",
            c"cuMemsetD8_v2",
            c"cuLaunch",
        ] {
            assert!(by_name(name).is_some(), "{name:?}");
        }
    }
}
