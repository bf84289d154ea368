//! Memsets: CUDA driver API, `cuMemsetD8` and its kin.
//!
//! Asynchronous in both forms, as documented for device memory; the forms without a stream may not be called
//! while a capture forbids it.

use std::ffi::{c_uchar, c_uint, c_ushort};
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::stream_entry;
use crate::copying::device_memory;
use crate::execution::{FillWork, Work, check_unsafe_call};
use crate::space::Result;
use crate::stream::{Default, resolve};

macro_rules! fills {
    ($($type:ty, $bytes:literal: $now:ident $now_thread:ident $later:ident $later_thread:ident
        $now_2d:ident $now_2d_thread:ident $later_2d:ident $later_2d_thread:ident;)*) => {
        stream_entry! {$(
            fn $now | $now_thread [default] (dst_device: CUdeviceptr, value: $type, n: usize) {
                fill_now(default, || fill_work(dst_device, 0, value.into(), $bytes, n, 1))
            }
            fn $later | $later_thread [default] (dst_device: CUdeviceptr, value: $type, n: usize, h_stream: CUstream) {
                fill(h_stream, default, || fill_work(dst_device, 0, value.into(), $bytes, n, 1))
            }
            fn $now_2d | $now_2d_thread [default] (
                dst_device: CUdeviceptr, dst_pitch: usize, value: $type, width: usize, height: usize,
            ) {
                fill_now(default, || fill_work(dst_device, dst_pitch, value.into(), $bytes, width, height))
            }
            fn $later_2d | $later_2d_thread [default] (
                dst_device: CUdeviceptr, dst_pitch: usize, value: $type, width: usize, height: usize,
                h_stream: CUstream,
            ) {
                fill(h_stream, default, || fill_work(dst_device, dst_pitch, value.into(), $bytes, width, height))
            }
        )*}
    };
}

fills! {
    c_uchar, 1: cuMemsetD8_v2 cuMemsetD8_v2_ptds cuMemsetD8Async cuMemsetD8Async_ptsz
        cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD2D8Async cuMemsetD2D8Async_ptsz;
    c_ushort, 2: cuMemsetD16_v2 cuMemsetD16_v2_ptds cuMemsetD16Async cuMemsetD16Async_ptsz
        cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D16Async cuMemsetD2D16Async_ptsz;
    c_uint, 4: cuMemsetD32_v2 cuMemsetD32_v2_ptds cuMemsetD32Async cuMemsetD32Async_ptsz
        cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds cuMemsetD2D32Async cuMemsetD2D32Async_ptsz;
}

/// The fill, checked; `None` when it has no elements.
pub fn fill_work(
    destination: u64,
    pitch_bytes: usize,
    value: u32,
    element_bytes: u8,
    width: usize,
    height: usize,
) -> Result<Option<FillWork>> {
    let element = u64::from(element_bytes);
    let row_bytes = (width as u64).checked_mul(element).ok_or(CUerror::INVALID_VALUE)?;
    if row_bytes == 0 || height == 0 {
        return Ok(None);
    }
    let pitch_bytes = pitch_bytes as u64;
    let pitched = height > 1;
    if !destination.is_multiple_of(element)
        || pitched && (!pitch_bytes.is_multiple_of(element) || pitch_bytes < row_bytes)
    {
        return Err(CUerror::INVALID_VALUE);
    }
    let bytes = (height as u64 - 1).checked_mul(pitch_bytes).ok_or(CUerror::INVALID_VALUE)? + row_bytes;
    device_memory(destination, bytes)?;
    Ok(Some(FillWork {
        destination,
        row_pitch_bytes: pitch_bytes,
        value,
        element_bytes,
        width: width as u64,
        height: height as u64,
    }))
}

fn fill_now(default: Default, work: impl FnOnce() -> Result<Option<FillWork>>) -> CUresult {
    resolve(std::ptr::null_mut(), default)?.context.queue.check()?;
    check_unsafe_call()?;
    fill(std::ptr::null_mut(), default, work)
}

fn fill(stream: CUstream, default: Default, work: impl FnOnce() -> Result<Option<FillWork>>) -> CUresult {
    let entry = resolve(stream, default)?;
    entry.context.queue.check()?;
    match work()? {
        Some(work) => entry.context.queue.submit(&entry.stream, Work::Fill(Arc::new(work))),
        None => Ok(()),
    }
}
