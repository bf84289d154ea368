//! Copies of two and three dimensions: CUDA driver API, `cuMemcpy2D` and `cuMemcpy3D`.
//!
//! Between linear memory of any kind and arrays; an array's own pitches count, not those of the structure.

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::stream_entry;
use crate::arrays::ARRAYS;
use crate::context::CONTEXTS;
use crate::copying::{copy_later, copy_now, device_memory, host_memory, unified_memory};
use crate::execution::{CopyEnd, CopyWork, Memory};
use crate::space::Result;
use crate::stream::{Default, StreamEntry, resolve};

stream_entry! {
    fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds [default] (p_copy: *const CUDA_MEMCPY2D) {
        let (entry, work) = plan(p_copy, std::ptr::null_mut(), default, plan_2d)?;
        run(work, |work| copy_now(&entry, work))
    }

    fn cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds [default] (p_copy: *const CUDA_MEMCPY2D) {
        let (entry, work) = plan(p_copy, std::ptr::null_mut(), default, plan_2d)?;
        run(work, |work| copy_now(&entry, work))
    }

    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz [default] (p_copy: *const CUDA_MEMCPY2D, h_stream: CUstream) {
        let (entry, work) = plan(p_copy, h_stream, default, plan_2d)?;
        run(work, |work| copy_later(&entry, work))
    }

    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds [default] (p_copy: *const CUDA_MEMCPY3D) {
        let (entry, work) = plan(p_copy, std::ptr::null_mut(), default, plan_3d)?;
        run(work, |work| copy_now(&entry, work))
    }

    fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds [default] (p_copy: *const CUDA_MEMCPY3D_PEER) {
        let (entry, work) = plan(p_copy, std::ptr::null_mut(), default, plan_3d_peer)?;
        run(work, |work| copy_now(&entry, work))
    }

    fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz [default] (p_copy: *const CUDA_MEMCPY3D_PEER, h_stream: CUstream) {
        let (entry, work) = plan(p_copy, h_stream, default, plan_3d_peer)?;
        run(work, |work| copy_later(&entry, work))
    }

    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz [default] (p_copy: *const CUDA_MEMCPY3D, h_stream: CUstream) {
        let (entry, work) = plan(p_copy, h_stream, default, plan_3d)?;
        run(work, |work| copy_later(&entry, work))
    }
}

/// # Safety
/// `description` is null or valid for reading.
unsafe fn plan<T>(
    description: *const T,
    stream: CUstream,
    default: Default,
    make: fn(&T) -> Result<Option<CopyWork>>,
) -> Result<(StreamEntry, Option<CopyWork>)> {
    let entry = resolve(stream, default)?;
    entry.context.queue.check()?;
    // SAFETY: the caller's promise.
    let description = unsafe { description.as_ref() }.ok_or(CUerror::INVALID_VALUE)?;
    Ok((entry, make(description)?))
}

pub(super) fn run(work: Option<CopyWork>, submit: impl FnOnce(CopyWork) -> Result<()>) -> CUresult {
    work.map_or(Ok(()), submit)
}

/// `CU_MEMORYTYPE_ARRAY`.
pub(super) const ARRAY: u32 = 3;

/// One end of a copy as the structures describe it.
pub(super) struct End {
    pub memory_type: u32,
    pub host: u64,
    pub device: u64,
    pub array: CUarray,
    pub x_bytes: u64,
    pub y: u64,
    pub z: u64,
    pub pitch_bytes: u64,
    pub height: u64,
}

fn plan_2d(copy: &CUDA_MEMCPY2D) -> Result<Option<CopyWork>> {
    let end = |memory_type: CUmemorytype, host, device, array, x, y, pitch| End {
        memory_type: memory_type.0,
        host,
        device,
        array,
        x_bytes: x as u64,
        y: y as u64,
        z: 0,
        pitch_bytes: pitch as u64,
        height: 0,
    };
    let source = end(
        copy.srcMemoryType,
        copy.srcHost as u64,
        copy.srcDevice,
        copy.srcArray,
        copy.srcXInBytes,
        copy.srcY,
        copy.srcPitch,
    );
    let destination = end(
        copy.dstMemoryType,
        copy.dstHost as u64,
        copy.dstDevice,
        copy.dstArray,
        copy.dstXInBytes,
        copy.dstY,
        copy.dstPitch,
    );
    combine(destination, source, [copy.WidthInBytes as u64, copy.Height as u64, 1])
}

/// As [`plan_3d`], after a look at the contexts: addresses say already which device they are of.
fn plan_3d_peer(copy: &CUDA_MEMCPY3D_PEER) -> Result<Option<CopyWork>> {
    for (memory_type, context) in
        [(copy.srcMemoryType, copy.srcContext), (copy.dstMemoryType, copy.dstContext)]
    {
        if memory_type == CU_MEMORYTYPE_DEVICE {
            CONTEXTS.get(context).map_err(|_| CUerror::INVALID_CONTEXT)?;
        }
    }
    plan_3d(&CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: copy.srcLOD,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        reserved0: std::ptr::null_mut(),
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstLOD: copy.dstLOD,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        reserved1: std::ptr::null_mut(),
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
    })
}

/// The work of a `CUDA_MEMCPY3D`; `None` when it has no bytes.
pub fn plan_3d(copy: &CUDA_MEMCPY3D) -> Result<Option<CopyWork>> {
    if copy.srcLOD != 0 || copy.dstLOD != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let source = End {
        memory_type: copy.srcMemoryType.0,
        host: copy.srcHost as u64,
        device: copy.srcDevice,
        array: copy.srcArray,
        x_bytes: copy.srcXInBytes as u64,
        y: copy.srcY as u64,
        z: copy.srcZ as u64,
        pitch_bytes: copy.srcPitch as u64,
        height: copy.srcHeight as u64,
    };
    let destination = End {
        memory_type: copy.dstMemoryType.0,
        host: copy.dstHost as u64,
        device: copy.dstDevice,
        array: copy.dstArray,
        x_bytes: copy.dstXInBytes as u64,
        y: copy.dstY as u64,
        z: copy.dstZ as u64,
        pitch_bytes: copy.dstPitch as u64,
        height: copy.dstHeight as u64,
    };
    combine(destination, source, [copy.WidthInBytes as u64, copy.Height as u64, copy.Depth as u64])
}

/// The copy between two ends, its extent in bytes, rows and slices; `None` when it has no bytes.
pub(super) fn combine(destination: End, source: End, extent: [u64; 3]) -> Result<Option<CopyWork>> {
    if extent.contains(&0) {
        return Ok(None);
    }
    // Between arrays the elements have one size (cuMemcpyAtoA).
    if destination.memory_type == ARRAY && source.memory_type == ARRAY {
        let element = |end: &End| ARRAYS.get(end.array).map(|array| array.shape.element_bytes());
        if element(&destination).ok() != element(&source).ok() {
            return Err(CUerror::INVALID_VALUE);
        }
    }
    Ok(Some(CopyWork {
        destination: place(destination, extent)?,
        source: place(source, extent)?,
        width_bytes: extent[0],
        height: extent[1],
        depth: extent[2],
    }))
}

/// A part of an array.
fn place_in_array(end: &End, [width_bytes, height, depth]: [u64; 3]) -> Result<CopyEnd> {
    let array = ARRAYS.get(end.array).map_err(|_| CUerror::INVALID_VALUE)?;
    let (shape, [_, rows, slices]) = (&array.shape, array.shape.full_extent());
    let element = shape.element_bytes();
    let within =
        |first: u64, count: u64, length: u64| first.checked_add(count).is_some_and(|end| end <= length);
    let inside = within(end.x_bytes, width_bytes, shape.row_bytes())
        && within(end.y, height, rows)
        && within(end.z, depth, slices);
    if !inside || !end.x_bytes.is_multiple_of(element) || !width_bytes.is_multiple_of(element) {
        return Err(CUerror::INVALID_VALUE);
    }
    let offset = end.z * shape.slice_bytes() + end.y * shape.row_bytes() + end.x_bytes;
    Ok(CopyEnd {
        memory: Memory::Device(array.base + offset),
        row_pitch_bytes: shape.row_bytes(),
        slice_pitch_bytes: shape.slice_bytes(),
    })
}

fn place(end: End, [width_bytes, height, depth]: [u64; 3]) -> Result<CopyEnd> {
    let invalid = CUerror::INVALID_VALUE;
    if end.memory_type == ARRAY {
        return place_in_array(&end, [width_bytes, height, depth]);
    }
    // A pitch of zero means rows without gaps.
    let pitch_bytes = if end.pitch_bytes == 0 { end.x_bytes + width_bytes } else { end.pitch_bytes };
    let rows = if end.height == 0 { end.y + height } else { end.height };
    if height * depth > 1 && pitch_bytes < end.x_bytes + width_bytes || depth > 1 && rows < end.y + height {
        return Err(invalid);
    }
    let slice_pitch_bytes = pitch_bytes.checked_mul(rows).ok_or(invalid)?;
    let offset = (slice_pitch_bytes.checked_mul(end.z))
        .and_then(|offset| offset.checked_add(pitch_bytes.checked_mul(end.y)?))
        .and_then(|offset| offset.checked_add(end.x_bytes))
        .ok_or(invalid)?;
    let bytes = (depth - 1) * slice_pitch_bytes + (height - 1) * pitch_bytes + width_bytes;
    let memory = match end.memory_type {
        1 => host_memory(end.host + offset, bytes)?,
        2 => device_memory(end.device + offset, bytes)?,
        4 => unified_memory(end.device + offset, bytes)?,
        _ => return Err(invalid),
    };
    Ok(CopyEnd { memory, row_pitch_bytes: pitch_bytes, slice_pitch_bytes })
}
