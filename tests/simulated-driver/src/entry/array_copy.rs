//! Linear copies with arrays: CUDA driver API, `cuMemcpyAtoA` and its kin.
//!
//! Offsets are in bytes from the array's first element; the documentation speaks of arrays of one dimension, and
//! in others the rows are taken as one. Offset and length are multiples of the element. Copies of two and three
//! dimensions: `copy_shapes.rs`.

use std::ffi::c_void;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::stream_entry;
use crate::arrays::{ARRAYS, Array};
use crate::copying::{copy_later, copy_now, device_memory, host_memory};
use crate::execution::{CopyWork, Memory};
use crate::space::Result;
use crate::stream::{Default, StreamEntry, resolve};

stream_entry! {
    fn cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds [default] (
        dst_array: CUarray,
        dst_offset: usize,
        src_array: CUarray,
        src_offset: usize,
        byte_count: usize,
    ) {
        let entry = sound(std::ptr::null_mut(), default)?;
        let (to, from) = (array(dst_array)?, array(src_array)?);
        if to.shape.element_bytes() != from.shape.element_bytes() {
            return Err(CUerror::INVALID_VALUE);
        }
        let bytes = byte_count as u64;
        let ends = (part(&to, dst_offset, bytes)?, part(&from, src_offset, bytes)?);
        now(&entry, ends.0, ends.1, bytes)
    }

    fn cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds [default] (
        dst_device: CUdeviceptr,
        src_array: CUarray,
        src_offset: usize,
        byte_count: usize,
    ) {
        let (entry, bytes) = (sound(std::ptr::null_mut(), default)?, byte_count as u64);
        let from = part(&*array(src_array)?, src_offset, bytes)?;
        now(&entry, other(bytes, || device_memory(dst_device, bytes))?, from, bytes)
    }

    fn cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds [default] (
        dst_array: CUarray,
        dst_offset: usize,
        src_device: CUdeviceptr,
        byte_count: usize,
    ) {
        let (entry, bytes) = (sound(std::ptr::null_mut(), default)?, byte_count as u64);
        let to = part(&*array(dst_array)?, dst_offset, bytes)?;
        now(&entry, to, other(bytes, || device_memory(src_device, bytes))?, bytes)
    }

    fn cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds [default] (
        dst_host: *mut c_void,
        src_array: CUarray,
        src_offset: usize,
        byte_count: usize,
    ) {
        let (entry, bytes) = (sound(std::ptr::null_mut(), default)?, byte_count as u64);
        let from = part(&*array(src_array)?, src_offset, bytes)?;
        now(&entry, other(bytes, || host_memory(dst_host as u64, bytes))?, from, bytes)
    }

    fn cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds [default] (
        dst_array: CUarray,
        dst_offset: usize,
        src_host: *const c_void,
        byte_count: usize,
    ) {
        let (entry, bytes) = (sound(std::ptr::null_mut(), default)?, byte_count as u64);
        let to = part(&*array(dst_array)?, dst_offset, bytes)?;
        now(&entry, to, other(bytes, || host_memory(src_host as u64, bytes))?, bytes)
    }

    fn cuMemcpyAtoHAsync_v2 | cuMemcpyAtoHAsync_v2_ptsz [default] (
        dst_host: *mut c_void,
        src_array: CUarray,
        src_offset: usize,
        byte_count: usize,
        h_stream: CUstream,
    ) {
        let (entry, bytes) = (sound(h_stream, default)?, byte_count as u64);
        let from = part(&*array(src_array)?, src_offset, bytes)?;
        later(&entry, other(bytes, || host_memory(dst_host as u64, bytes))?, from, bytes)
    }

    fn cuMemcpyHtoAAsync_v2 | cuMemcpyHtoAAsync_v2_ptsz [default] (
        dst_array: CUarray,
        dst_offset: usize,
        src_host: *const c_void,
        byte_count: usize,
        h_stream: CUstream,
    ) {
        let (entry, bytes) = (sound(h_stream, default)?, byte_count as u64);
        let to = part(&*array(dst_array)?, dst_offset, bytes)?;
        later(&entry, to, other(bytes, || host_memory(src_host as u64, bytes))?, bytes)
    }
}

fn sound(stream: CUstream, default: Default) -> Result<StreamEntry> {
    let entry = resolve(stream, default)?;
    entry.context.queue.check()?;
    Ok(entry)
}

fn array(handle: CUarray) -> Result<std::sync::Arc<Array>> {
    ARRAYS.get(handle).map_err(|_| CUerror::INVALID_VALUE)
}

/// Bytes of an array, checked.
fn part(array: &Array, offset: usize, bytes: u64) -> Result<Memory> {
    let (offset, element) = (offset as u64, array.shape.element_bytes());
    let inside = offset.checked_add(bytes).is_some_and(|end| end <= array.shape.bytes());
    if !inside || !offset.is_multiple_of(element) || !bytes.is_multiple_of(element) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Memory::Device(array.base + offset))
}

/// The end that is not an array; without bytes it is not looked at.
fn other(bytes: u64, find: impl FnOnce() -> Result<Memory>) -> Result<Memory> {
    if bytes == 0 { Ok(Memory::Device(0)) } else { find() }
}

fn now(entry: &StreamEntry, to: Memory, from: Memory, bytes: u64) -> CUresult {
    if bytes == 0 { Ok(()) } else { copy_now(entry, CopyWork::linear(to, from, bytes)) }
}

/// # Safety
/// As `cuMemcpyHtoAAsync`.
unsafe fn later(entry: &StreamEntry, to: Memory, from: Memory, bytes: u64) -> CUresult {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { copy_later(entry, CopyWork::linear(to, from, bytes)) }
}
