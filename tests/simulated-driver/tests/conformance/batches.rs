//! Copies, prefetches and discards in batches, copies with attributes, attributes of streams.
//!
//! Expected values are those that the driver's documentation states. Drivers before 12.8 have no batches.

use std::ffi::c_void;

use crate::common::{allocate, context, isolated};
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

fn stream() -> CUstream {
    let mut stream = std::ptr::null_mut();
    ok!(cuStreamCreate(&mut stream, 1));
    stream
}

/// Runs `body` unless the driver is too old for batches.
fn with_batches(name: &str, body: impl FnOnce()) {
    isolated(name, &[], || {
        let mut version = 0;
        ok!(cuDriverGetVersion(&mut version));
        if version < 13000 {
            return println!("NOT RUN: needs a driver for CUDA 13.0");
        }
        context();
        body();
    });
}

fn attributes(order: CUmemcpySrcAccessOrder) -> CUmemcpyAttributes {
    // SAFETY: all-zero is a valid value.
    let mut attributes: CUmemcpyAttributes = unsafe { std::mem::zeroed() };
    attributes.srcAccessOrder = order;
    attributes
}

fn bytes_at(address: CUdeviceptr, count: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; count];
    ok!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast::<c_void>(), address, count));
    bytes
}

#[test]
fn a_batch_copies_every_part_and_refuses_itself_as_a_whole() {
    with_batches("a_batch_copies_every_part_and_refuses_itself_as_a_whole", || {
        let (stream, place, other) = (stream(), allocate(300), allocate(300));
        ok!(cuMemsetD8_v2(place, 0, 300));
        ok!(cuMemsetD8_v2(other, 9, 300));
        ok!(cuCtxSynchronize());
        let mut short = [1_u8; 100];
        let long = [2_u8; 100];
        let mut back = [0_u8; 100];
        let mut to = [place, place + 100, back.as_mut_ptr() as u64];
        let mut from = [short.as_ptr() as u64, long.as_ptr() as u64, other];
        let mut sizes = [100, 50, 100];
        let mut kinds = [
            attributes(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
            attributes(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
        ];
        let mut firsts = [0, 1];
        let mut batch = |kinds: &mut [CUmemcpyAttributes], firsts: &mut [usize], count: usize, stream| {
            call!(cuMemcpyBatchAsync_v2(
                to.as_mut_ptr(),
                from.as_mut_ptr(),
                sizes.as_mut_ptr(),
                count,
                kinds.as_mut_ptr(),
                firsts.as_mut_ptr(),
                kinds.len(),
                stream
            ))
        };
        let invalid = Err(CUerror::INVALID_VALUE);
        assert_eq!(batch(&mut kinds, &mut [1, 2], 3, stream), invalid, "the first begins at 0");
        assert_eq!(batch(&mut kinds, &mut [0, 3], 3, stream), invalid, "beyond the batch");
        assert_eq!(batch(&mut kinds, &mut [0, 0], 3, stream), invalid, "not rising");
        assert_eq!(batch(&mut kinds, &mut firsts, 0, stream), invalid);
        assert_eq!(batch(&mut kinds, &mut firsts, 3, std::ptr::null_mut()), invalid, "the legacy stream");
        let mut none = [attributes(CUmemcpySrcAccessOrder_enum(0)), kinds[1]];
        assert_eq!(batch(&mut none, &mut firsts, 3, stream), invalid, "no order");
        ok!(cuStreamSynchronize(stream));
        assert_eq!(bytes_at(place, 150), [0; 150], "what was refused did nothing");
        assert_eq!(batch(&mut kinds, &mut firsts, 3, stream), Ok(()));
        short.fill(7);
        ok!(cuStreamSynchronize(stream));
        assert_eq!(bytes_at(place, 100), [1; 100], "read before the call returned");
        assert_eq!(bytes_at(place + 100, 51), [[2; 50].as_slice(), &[0]].concat());
        assert_eq!(back, [9; 100]);

        let mut kind = attributes(CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
        ok!(cuMemcpyWithAttributesAsync(place, other, 10, &mut kind, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(bytes_at(place, 11), [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1]);
    });
}

#[test]
fn boxes_are_copied_in_batches_too() {
    with_batches("boxes_are_copied_in_batches_too", || {
        let (stream, place) = (stream(), allocate(1000));
        ok!(cuMemsetD8_v2(place, 0, 1000));
        // The stream does not wait for the legacy one.
        ok!(cuCtxSynchronize());
        let source: Vec<u8> = (1..=24).collect();
        // SAFETY: all-zero is a valid value.
        let mut operation: CUDA_MEMCPY3D_BATCH_OP = unsafe { std::mem::zeroed() };
        (operation.src.type_, operation.dst.type_) =
            (CU_MEMCPY_OPERAND_TYPE_POINTER, CU_MEMCPY_OPERAND_TYPE_POINTER);
        operation.src.op.ptr.ptr = source.as_ptr() as u64;
        operation.dst.op.ptr.ptr = place;
        operation.dst.op.ptr.rowLength = 10;
        operation.dst.op.ptr.layerHeight = 5;
        operation.extent = CUextent3D_st { width: 4, height: 3, depth: 2 };
        operation.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        ok!(cuMemcpy3DBatchAsync_v2(1, &mut operation, 0, stream));
        ok!(cuStreamSynchronize(stream));
        let whole = bytes_at(place, 100);
        for (z, y) in [(0, 0), (0, 2), (1, 0), (1, 2)] {
            let (from, to) = ((z * 3 + y) * 4, z * 50 + y * 10);
            assert_eq!(whole[to..to + 5], [&source[from..from + 4], &[0]].concat(), "row {y} of layer {z}");
        }
        fails!(INVALID_VALUE, cuMemcpy3DBatchAsync_v2(1, &mut operation, 1, stream));
        fails!(INVALID_VALUE, cuMemcpy3DBatchAsync_v2(0, &mut operation, 0, stream));
        let mut short = operation;
        short.dst.op.ptr.rowLength = 3;
        fails!(INVALID_VALUE, cuMemcpy3DBatchAsync_v2(1, &mut short, 0, stream));
        let mut flat = operation;
        flat.extent.height = 0;
        fails!(INVALID_VALUE, cuMemcpy3DBatchAsync_v2(1, &mut flat, 0, stream));
    });
}

#[test]
fn boxes_are_copied_between_contexts() {
    isolated("boxes_are_copied_between_contexts", &[], || {
        let first = context();
        let from = allocate(100);
        ok!(cuMemsetD8_v2(from, 5, 100));
        ok!(cuCtxSynchronize());
        let second = context();
        let to = allocate(100);
        ok!(cuMemsetD8_v2(to, 0, 100));
        ok!(cuCtxSynchronize());
        // SAFETY: all-zero is a valid value.
        let mut copy: CUDA_MEMCPY3D_PEER = unsafe { std::mem::zeroed() };
        (copy.srcMemoryType, copy.srcDevice, copy.srcContext) = (CU_MEMORYTYPE_DEVICE, from, first);
        (copy.dstMemoryType, copy.dstDevice, copy.dstContext) = (CU_MEMORYTYPE_DEVICE, to, second);
        (copy.srcPitch, copy.dstPitch) = (20, 10);
        (copy.WidthInBytes, copy.Height, copy.Depth) = (4, 3, 1);
        ok!(cuMemcpy3DPeer(&copy));
        ok!(cuCtxSynchronize());
        assert_eq!(
            bytes_at(to, 25),
            [[5, 5, 5, 5, 0, 0, 0, 0, 0, 0].repeat(2).as_slice(), &[5, 5, 5, 5, 0]].concat()
        );
        copy.srcContext = std::ptr::null_mut();
        fails!(INVALID_CONTEXT, cuMemcpy3DPeer(&copy));
    });
}

#[test]
fn managed_memory_is_prefetched_and_discarded_in_batches() {
    with_batches("managed_memory_is_prefetched_and_discarded_in_batches", || {
        let (stream, mut managed) = (stream(), [0; 2]);
        for place in &mut managed {
            ok!(cuMemAllocManaged(place, 1 << 16, 1));
        }
        let mut sizes = [1 << 16; 2];
        // SAFETY: all-zero is a valid value.
        let mut places: [CUmemLocation; 2] = unsafe { std::mem::zeroed() };
        (places[0].type_, places[1].type_) = (CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST);
        let mut firsts = [0, 1];
        ok!(cuMemPrefetchBatchAsync(
            managed.as_mut_ptr(),
            sizes.as_mut_ptr(),
            2,
            places.as_mut_ptr(),
            firsts.as_mut_ptr(),
            2,
            0,
            stream
        ));
        ok!(cuStreamSynchronize(stream));
        let last = |address| {
            let mut value = 77_i32;
            let kind = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
            ok!(cuMemRangeGetAttribute((&raw mut value).cast(), 4, kind, address, 1 << 16));
            value
        };
        assert_eq!(managed.map(last), [0, -1]);
        ok!(cuMemDiscardBatchAsync(managed.as_mut_ptr(), sizes.as_mut_ptr(), 2, 0, stream));
        ok!(cuMemDiscardAndPrefetchBatchAsync(
            managed.as_mut_ptr(),
            sizes.as_mut_ptr(),
            2,
            places.as_mut_ptr(),
            firsts.as_mut_ptr(),
            1,
            0,
            stream
        ));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(managed.map(last), [0, 0]);
        let mut plain = [allocate(100)];
        fails!(INVALID_VALUE, cuMemDiscardBatchAsync(plain.as_mut_ptr(), sizes.as_mut_ptr(), 1, 0, stream));
        fails!(INVALID_VALUE, cuMemDiscardBatchAsync(managed.as_mut_ptr(), sizes.as_mut_ptr(), 2, 1, stream));
    });
}

#[test]
fn a_stream_keeps_its_attributes_and_hands_them_on() {
    isolated("a_stream_keeps_its_attributes_and_hands_them_on", &[], || {
        context();
        let (first, second) = (stream(), stream());
        let policy = |stream: CUstream| {
            let mut value = CUlaunchAttributeValue_union { pad: [0; 64] };
            ok!(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &mut value));
            // SAFETY: the variant that was asked for.
            unsafe { value.syncPolicy }
        };
        assert_eq!(policy(first), CU_SYNC_POLICY_AUTO);
        let mut value = CUlaunchAttributeValue_union { pad: [0; 64] };
        value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
        ok!(cuStreamSetAttribute(first, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
        assert_eq!((policy(first), policy(second)), (CU_SYNC_POLICY_BLOCKING_SYNC, CU_SYNC_POLICY_AUTO));
        ok!(cuStreamCopyAttributes(second, first));
        assert_eq!(policy(second), CU_SYNC_POLICY_BLOCKING_SYNC);
        value.syncPolicy = CUsynchronizationPolicy_enum(99);
        fails!(
            INVALID_VALUE,
            cuStreamSetAttribute(first, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value)
        );
        fails!(INVALID_VALUE, cuStreamGetAttribute(first, CUlaunchAttributeID_enum(99), &mut value));
        fails!(
            INVALID_VALUE,
            cuStreamSetAttribute(first, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, std::ptr::null())
        );
    });
}
