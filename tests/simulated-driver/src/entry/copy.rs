//! Linear copies: CUDA driver API, "Memory Management", `cuMemcpy` and its kin.
//!
//! A copy of no bytes checks the context and does nothing.

use std::ffi::c_void;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::stream_entry;
use crate::context::CONTEXTS;
use crate::copying::{copy_later, copy_now, device_memory, host_memory, unified_memory};
use crate::execution::{CopyWork, Memory};
use crate::space::Result;
use crate::stream::{Default, resolve};

stream_entry! {
    fn cuMemcpy | cuMemcpy_ptds [default] (dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize) {
        now(default, byte_count, dst, src, unified_memory, unified_memory)
    }

    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds [default] (
        dst_device: CUdeviceptr,
        src_host: *const c_void,
        byte_count: usize,
    ) {
        now(default, byte_count, dst_device, src_host as u64, device_memory, host_memory)
    }

    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds [default] (
        dst_host: *mut c_void,
        src_device: CUdeviceptr,
        byte_count: usize,
    ) {
        now(default, byte_count, dst_host as u64, src_device, host_memory, device_memory)
    }

    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds [default] (
        dst_device: CUdeviceptr,
        src_device: CUdeviceptr,
        byte_count: usize,
    ) {
        now(default, byte_count, dst_device, src_device, device_memory, device_memory)
    }

    fn cuMemcpyPeer | cuMemcpyPeer_ptds [default] (
        dst_device: CUdeviceptr,
        dst_context: CUcontext,
        src_device: CUdeviceptr,
        src_context: CUcontext,
        byte_count: usize,
    ) {
        check_contexts(dst_context, src_context)?;
        now(default, byte_count, dst_device, src_device, device_memory, device_memory)
    }

    fn cuMemcpyAsync | cuMemcpyAsync_ptsz [default] (
        dst: CUdeviceptr,
        src: CUdeviceptr,
        byte_count: usize,
        h_stream: CUstream,
    ) {
        later(h_stream, default, byte_count, dst, src, unified_memory, unified_memory)
    }

    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz [default] (
        dst_device: CUdeviceptr,
        src_host: *const c_void,
        byte_count: usize,
        h_stream: CUstream,
    ) {
        later(h_stream, default, byte_count, dst_device, src_host as u64, device_memory, host_memory)
    }

    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz [default] (
        dst_host: *mut c_void,
        src_device: CUdeviceptr,
        byte_count: usize,
        h_stream: CUstream,
    ) {
        later(h_stream, default, byte_count, dst_host as u64, src_device, host_memory, device_memory)
    }

    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz [default] (
        dst_device: CUdeviceptr,
        src_device: CUdeviceptr,
        byte_count: usize,
        h_stream: CUstream,
    ) {
        later(h_stream, default, byte_count, dst_device, src_device, device_memory, device_memory)
    }

    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz [default] (
        dst_device: CUdeviceptr,
        dst_context: CUcontext,
        src_device: CUdeviceptr,
        src_context: CUcontext,
        byte_count: usize,
        h_stream: CUstream,
    ) {
        check_contexts(dst_context, src_context)?;
        later(h_stream, default, byte_count, dst_device, src_device, device_memory, device_memory)
    }
}

type Classify = fn(u64, u64) -> Result<Memory>;

fn now(
    default: Default,
    bytes: usize,
    to: u64,
    from: u64,
    to_kind: Classify,
    from_kind: Classify,
) -> CUresult {
    let entry = resolve(std::ptr::null_mut(), default)?;
    entry.context.queue.check()?;
    if bytes == 0 {
        return Ok(());
    }
    let bytes = bytes as u64;
    copy_now(&entry, CopyWork::linear(to_kind(to, bytes)?, from_kind(from, bytes)?, bytes))
}

/// # Safety
/// As `cuMemcpyAsync`.
unsafe fn later(
    stream: CUstream,
    default: Default,
    bytes: usize,
    to: u64,
    from: u64,
    to_kind: Classify,
    from_kind: Classify,
) -> CUresult {
    let entry = resolve(stream, default)?;
    entry.context.queue.check()?;
    if bytes == 0 {
        return Ok(());
    }
    let bytes = bytes as u64;
    // SAFETY: the caller's promise.
    unsafe { copy_later(&entry, CopyWork::linear(to_kind(to, bytes)?, from_kind(from, bytes)?, bytes)) }
}

fn check_contexts(first: CUcontext, second: CUcontext) -> Result<()> {
    for context in [first, second] {
        CONTEXTS.get(context).map_err(|_| CUerror::INVALID_CONTEXT)?;
    }
    Ok(())
}
