//! Copies in batches and with attributes: CUDA driver API, `cuMemcpyBatchAsync` and `cuMemcpy3DBatchAsync`.
//!
//! A batch is checked as a whole and then submitted copy by copy, so that a refused one has no effect. Copies of a
//! batch run in the order of the list, which programs must not rely on. Hints of places are not looked at: only
//! managed memory could use them, and that lies on the host here.

use std::ffi::c_ulonglong;
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::copy_shapes::{ARRAY, End, combine};
use super::{put_if_wanted, stream_entry};
use crate::arrays::ARRAYS;
use crate::copying::{copy_later, unified_memory};
use crate::execution::{CopyWork, Memory, Work};
use crate::space::Result;
use crate::stream::{Default, StreamEntry, resolve};

/// `CU_MEMORYTYPE_UNIFIED`.
const UNIFIED: u32 = 4;
/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`, a hint.
const FLAGS: u32 = 1;

stream_entry! {
    fn cuMemcpyBatchAsync | cuMemcpyBatchAsync_ptsz [default] (
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attrs: *mut CUmemcpyAttributes,
        attrs_idxs: *mut usize,
        num_attrs: usize,
        fail_idx: *mut usize,
        h_stream: CUstream,
    ) {
        put_if_wanted(fail_idx, usize::MAX);
        let attributes = Spread { values: attrs, firsts: attrs_idxs, count: num_attrs };
        let refused = |index| put_if_wanted(fail_idx, index);
        linear_batch([dsts, srcs], sizes, count, &attributes, h_stream, default, refused)
    }

    fn cuMemcpyBatchAsync_v2 | cuMemcpyBatchAsync_v2_ptsz [default] (
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attrs: *mut CUmemcpyAttributes,
        attrs_idxs: *mut usize,
        num_attrs: usize,
        h_stream: CUstream,
    ) {
        let attributes = Spread { values: attrs, firsts: attrs_idxs, count: num_attrs };
        linear_batch([dsts, srcs], sizes, count, &attributes, h_stream, default, |_| ())
    }

    fn cuMemcpyWithAttributesAsync | cuMemcpyWithAttributesAsync_ptsz [default] (
        dst: CUdeviceptr,
        src: CUdeviceptr,
        size: usize,
        attr: *mut CUmemcpyAttributes,
        h_stream: CUstream,
    ) {
        let mut first = 0;
        let attributes = Spread { values: attr, firsts: &raw mut first, count: 1 };
        let (mut dst, mut src, mut size) = (dst, src, size);
        linear_batch([&raw mut dst, &raw mut src], &raw mut size, 1, &attributes, h_stream, default, |_| ())
    }

    fn cuMemcpy3DBatchAsync | cuMemcpy3DBatchAsync_ptsz [default] (
        num_ops: usize,
        op_list: *mut CUDA_MEMCPY3D_BATCH_OP,
        fail_idx: *mut usize,
        flags: c_ulonglong,
        h_stream: CUstream,
    ) {
        put_if_wanted(fail_idx, usize::MAX);
        box_batch(op_list, num_ops, flags, h_stream, default, |index| put_if_wanted(fail_idx, index))
    }

    fn cuMemcpy3DBatchAsync_v2 | cuMemcpy3DBatchAsync_v2_ptsz [default] (
        num_ops: usize,
        op_list: *mut CUDA_MEMCPY3D_BATCH_OP,
        flags: c_ulonglong,
        h_stream: CUstream,
    ) {
        box_batch(op_list, num_ops, flags, h_stream, default, |_| ())
    }

    fn cuMemcpy3DWithAttributesAsync | cuMemcpy3DWithAttributesAsync_ptsz [default] (
        op: *mut CUDA_MEMCPY3D_BATCH_OP,
        flags: c_ulonglong,
        h_stream: CUstream,
    ) {
        box_batch(op, 1, flags, h_stream, default, |_| ())
    }
}

/// An array of values with another array that says at which element of a batch each begins to hold.
pub(super) struct Spread<T> {
    pub values: *mut T,
    pub firsts: *mut usize,
    pub count: usize,
}

impl<T: Copy> Spread<T> {
    /// One value for each of `count` elements.
    ///
    /// # Safety
    /// Both arrays are null or have `self.count` elements.
    pub unsafe fn over(&self, count: usize) -> Result<Vec<T>> {
        if self.values.is_null() || self.firsts.is_null() || self.count == 0 || self.count > count {
            return Err(CUerror::INVALID_VALUE);
        }
        // SAFETY: not null, and as long as the caller promises.
        let (values, firsts) = unsafe {
            (
                std::slice::from_raw_parts(self.values, self.count),
                std::slice::from_raw_parts(self.firsts, self.count),
            )
        };
        let rising = firsts.windows(2).all(|pair| pair[0] < pair[1]);
        if firsts[0] != 0 || !rising || firsts[self.count - 1] >= count {
            return Err(CUerror::INVALID_VALUE);
        }
        let ends = firsts[1..].iter().copied().chain([count]);
        let parts = values.iter().zip(firsts.iter().zip(ends));
        Ok(parts.flat_map(|(value, (first, end))| std::iter::repeat_n(*value, end - first)).collect())
    }
}

/// The stream of a batch: not the legacy one, which the documentation rules out.
pub(super) fn stream_of_batch(handle: CUstream, default: Default) -> Result<StreamEntry> {
    let entry = resolve(handle, default)?;
    entry.context.queue.check()?;
    if matches!((handle as usize, default), (0, Default::Legacy) | (1, _)) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(entry)
}

/// # Safety
/// The arrays have the lengths that the documentation asks for; host ends as for `cuMemcpyAsync`.
unsafe fn linear_batch(
    [destinations, sources]: [*mut CUdeviceptr; 2],
    sizes: *mut usize,
    count: usize,
    attributes: &Spread<CUmemcpyAttributes>,
    stream: CUstream,
    default: Default,
    refused: impl Fn(usize),
) -> CUresult {
    let entry = stream_of_batch(stream, default)?;
    if destinations.is_null() || sources.is_null() || sizes.is_null() || count == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let attributes = unsafe { attributes.over(count) }?;
    let mut copies = Vec::with_capacity(count);
    for (index, attributes) in attributes.iter().enumerate() {
        // SAFETY: index < count.
        let [to, from] = unsafe { [destinations.add(index).read(), sources.add(index).read()] };
        // SAFETY: as above.
        let bytes = unsafe { sizes.add(index).read() } as u64;
        let plan = || {
            let order = order(attributes.srcAccessOrder, attributes.flags)?;
            if bytes == 0 {
                return Err(CUerror::INVALID_VALUE);
            }
            Ok((CopyWork::linear(unified_memory(to, bytes)?, unified_memory(from, bytes)?, bytes), order))
        };
        copies.push(plan().inspect_err(|_| refused(index))?);
    }
    // SAFETY: the caller's promise.
    copies.into_iter().try_for_each(|(copy, order)| unsafe { submit(&entry, copy, order) })
}

/// # Safety
/// As [`linear_batch`].
unsafe fn box_batch(
    operations: *mut CUDA_MEMCPY3D_BATCH_OP,
    count: usize,
    flags: c_ulonglong,
    stream: CUstream,
    default: Default,
    refused: impl Fn(usize),
) -> CUresult {
    let entry = stream_of_batch(stream, default)?;
    if operations.is_null() || count == 0 || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut copies = Vec::with_capacity(count);
    // SAFETY: the caller's promise.
    for (index, operation) in unsafe { std::slice::from_raw_parts(operations, count) }.iter().enumerate() {
        copies.push(plan_box(operation).inspect_err(|_| refused(index))?);
    }
    // SAFETY: the caller's promise.
    copies.into_iter().try_for_each(|(copy, order)| unsafe { submit(&entry, copy, order) })
}

fn plan_box(operation: &CUDA_MEMCPY3D_BATCH_OP) -> Result<(CopyWork, Order)> {
    let order = order(operation.srcAccessOrder, operation.flags)?;
    let extent = &operation.extent;
    let element = match (element_bytes(&operation.src)?, element_bytes(&operation.dst)?) {
        (None, None) => 1,
        (Some(bytes), None) | (None, Some(bytes)) => bytes,
        (Some(source), Some(destination)) if source == destination => source,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    let [source, destination] = [&operation.src, &operation.dst].map(|operand| end(operand, extent, element));
    let bytes = (extent.width as u64).checked_mul(element).ok_or(CUerror::INVALID_VALUE)?;
    let copy = combine(destination?, source?, [bytes, extent.height as u64, extent.depth as u64])?;
    // A width, height or depth of 0 is an error in a batch.
    Ok((copy.ok_or(CUerror::INVALID_VALUE)?, order))
}

/// The size of an array's elements; `None` for a pointer.
fn element_bytes(operand: &CUmemcpy3DOperand) -> Result<Option<u64>> {
    match operand.type_ {
        CU_MEMCPY_OPERAND_TYPE_POINTER => Ok(None),
        CU_MEMCPY_OPERAND_TYPE_ARRAY => {
            // SAFETY: the type says which variant it is; both are plain data.
            let handle = unsafe { operand.op.array.array };
            let array = ARRAYS.get(handle).map_err(|_| CUerror::INVALID_VALUE)?;
            Ok(Some(array.shape.element_bytes()))
        }
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// One end in bytes: lengths and offsets of operands count elements.
fn end(operand: &CUmemcpy3DOperand, extent: &CUextent3D, element: u64) -> Result<End> {
    let scaled = |count: usize| (count as u64).checked_mul(element).ok_or(CUerror::INVALID_VALUE);
    let nothing = End {
        memory_type: 0,
        host: 0,
        device: 0,
        array: std::ptr::null_mut(),
        x_bytes: 0,
        y: 0,
        z: 0,
        pitch_bytes: 0,
        height: 0,
    };
    if operand.type_ == CU_MEMCPY_OPERAND_TYPE_ARRAY {
        // SAFETY: the type says which variant it is.
        let array = unsafe { operand.op.array };
        let (y, z) = (array.offset.y as u64, array.offset.z as u64);
        return Ok(End {
            memory_type: ARRAY,
            array: array.array,
            x_bytes: scaled(array.offset.x)?,
            y,
            z,
            ..nothing
        });
    }
    // SAFETY: the type says which variant it is.
    let pointer = unsafe { operand.op.ptr };
    let short = |length: usize, least: usize| length != 0 && length < least;
    if short(pointer.rowLength, extent.width) || short(pointer.layerHeight, extent.height) {
        return Err(CUerror::INVALID_VALUE);
    }
    let height = pointer.layerHeight as u64;
    Ok(End {
        memory_type: UNIFIED,
        device: pointer.ptr,
        pitch_bytes: scaled(pointer.rowLength)?,
        height,
        ..nothing
    })
}

/// When a copy may read its source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// In stream order, or whenever it likes.
    Later,
    /// Before the call returns.
    Now,
}

fn order(order: CUmemcpySrcAccessOrder, flags: u32) -> Result<Order> {
    match order {
        _ if flags & !FLAGS != 0 => Err(CUerror::INVALID_VALUE),
        CU_MEMCPY_SRC_ACCESS_ORDER_STREAM | CU_MEMCPY_SRC_ACCESS_ORDER_ANY => Ok(Order::Later),
        CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL => Ok(Order::Now),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// # Safety
/// Host ends as for `cuMemcpyAsync`.
unsafe fn submit(entry: &StreamEntry, mut copy: CopyWork, order: Order) -> Result<()> {
    if order == Order::Now
        && let Memory::Host(pointer) = copy.source.memory
    {
        let (rows, slices) = (copy.height - 1, copy.depth - 1);
        let bytes =
            slices * copy.source.slice_pitch_bytes + rows * copy.source.row_pitch_bytes + copy.width_bytes;
        // SAFETY: the caller's promise: the source is readable now.
        let bytes = unsafe { std::slice::from_raw_parts(pointer.0.cast::<u8>(), bytes as usize) };
        copy.source.memory = Memory::Staged(Arc::from(bytes));
        return entry.context.queue.submit(&entry.stream, Work::Copy(Arc::new(copy)));
    }
    // SAFETY: the caller's promise.
    unsafe { copy_later(entry, copy) }
}
