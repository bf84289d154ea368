//! Linear memory, host memory, copies of all shapes, and what the driver says about pointers.
//!
//! Virtual memory management has a file of its own, and so have the errors that end a context (`faults.rs`).
//! Expected values are those that the driver's documentation states.

use std::ffi::c_void;

use crate::common::{access, allocate, context, free_bytes, isolated, more_than_there_is, properties, unit};
use turnus_bindings::types::*;

/// One attribute of a pointer, as a number of at most 8 bytes.
fn attribute(attribute: CUpointer_attribute, address: u64) -> Result<u64, turnus_bindings::CUerror> {
    let mut value = 0_u64;
    call!(cuPointerGetAttribute((&raw mut value).cast(), attribute, address)).map(|()| value)
}

#[test]
fn small_allocations_share_a_block_and_large_ones_do_not() {
    isolated("small_allocations_share_a_block_and_large_ones_do_not", &[], || {
        context();
        let before = free_bytes();
        let small: Vec<u64> = (0..10).map(|_| allocate(100)).collect();
        assert_eq!(free_bytes(), before - unit());
        assert!(small.iter().all(|address| address % 256 == 0));
        let large = allocate(unit() + 1);
        assert_eq!(free_bytes(), before - 3 * unit());
        let (mut base, mut bytes) = (0, 0);
        ok!(cuMemGetAddressRange_v2(&mut base, &mut bytes, small[3] + 50));
        assert_eq!((base, bytes), (small[3], 100));
        ok!(cuMemGetAddressRange_v2(&mut base, &mut bytes, large + unit() as u64));
        assert_eq!((base, bytes), (large, unit() + 1));
        for address in small {
            ok!(cuMemFree_v2(address));
        }
        ok!(cuMemFree_v2(large));
        assert_eq!(free_bytes(), before);
        fails!(INVALID_VALUE, cuMemFree_v2(large));
        fails!(INVALID_VALUE, cuMemGetAddressRange_v2(&mut base, &mut bytes, large));
        let mut address = 0;
        fails!(INVALID_VALUE, cuMemAlloc_v2(&mut address, 0));
        fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, more_than_there_is()));
        let mut pitch = 0;
        ok!(cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 3, 4));
        assert_eq!(pitch, 1024);
        fails!(INVALID_VALUE, cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 3, 5));
    });
}

#[test]
fn pointer_attributes_tell_the_kinds_of_memory_apart() {
    isolated("pointer_attributes_tell_the_kinds_of_memory_apart", &[], || {
        let current = context();
        let device = allocate(1000);
        let mut pinned = std::ptr::null_mut();
        ok!(cuMemHostAlloc(&mut pinned, 5000, 0));
        let (mut mapped, mut handle) = (0, 0);
        ok!(cuMemAddressReserve(&mut mapped, 2 * unit(), 0, 0, 0));
        ok!(cuMemCreate(&mut handle, unit(), &properties(1), 0));
        ok!(cuMemMap(mapped, unit(), 0, handle, 0));
        ok!(cuMemSetAccess(mapped, unit(), &access(3), 1));
        let own = [0_u8; 100];
        let (host, unknown) = (pinned as u64, own.as_ptr() as u64);

        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, device + 1), Ok(current as u64));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, mapped), Ok(0), "mapped memory has no context");
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device), Ok(2));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host), Ok(1));
        assert!(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown).is_err());
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, host + 9), Ok(host + 9));
        assert!(attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, device).is_err());
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, host), Ok(host));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, device), Ok(0));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, mapped), Ok(0));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, device + 500), Ok(device));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, device), Ok(1000));
        assert_eq!(
            attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, mapped),
            Ok(2 * unit() as u64),
            "the reservation"
        );
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, mapped), Ok(unit() as u64));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_MAPPED, mapped), Ok(1));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_MAPPED, mapped + unit() as u64), Ok(0), "reserved only");
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, mapped), Ok(1));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, device), Ok(0));
        let first = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, device).expect("an id");
        ok!(cuMemFree_v2(device));
        let again = allocate(1000);
        assert_eq!(again, device, "the address is used again");
        assert_ne!(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, again), Ok(first), "the id is not");
        let on = 1_u32;
        ok!(cuPointerSetAttribute((&raw const on).cast(), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, again));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, again), Ok(1));

        // The batch query answers nothing for unknown memory instead of an error.
        let (mut kind, mut owner, mut ordinal) = (9_u32, 9_u64, 9_i32);
        let mut attributes = [
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_CONTEXT,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        ];
        let mut places: [*mut c_void; 3] =
            [(&raw mut kind).cast(), (&raw mut owner).cast(), (&raw mut ordinal).cast()];
        ok!(cuPointerGetAttributes(3, attributes.as_mut_ptr(), places.as_mut_ptr(), unknown));
        assert_eq!((kind, owner, ordinal), (0, 0, -2));
        ok!(cuPointerGetAttributes(3, attributes.as_mut_ptr(), places.as_mut_ptr(), again));
        assert_eq!((kind, owner, ordinal), (2, current as u64, 0));
    });
}

#[test]
fn host_memory_is_registered_once_and_reached_by_kernels() {
    isolated("host_memory_is_registered_once_and_reached_by_kernels", &[], || {
        context();
        let kernel = crate::common::function(crate::common::STORE_ONE, c"store_one");
        let mut own = vec![0_u32; 4096];
        let start: *mut c_void = own.as_mut_ptr().cast();
        let place = start as u64 + 64;
        ok!(cuMemHostRegister_v2(start, 16384, 0));
        fails!(HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(start.wrapping_byte_add(4096), 4096, 0));
        let mut alias = 0;
        ok!(cuMemHostGetDevicePointer_v2(&mut alias, start, 0));
        assert_eq!(alias, start as u64);
        assert_eq!(crate::common::launch(kernel, 1, 1, std::ptr::null_mut(), &[&place]), Ok(()));
        ok!(cuCtxSynchronize());
        // SAFETY: element 16 lies in the vector; the device wrote it behind the compiler's back.
        assert_eq!(unsafe { start.cast::<u32>().add(16).read_volatile() }, 1);
        ok!(cuMemHostUnregister(start));
        fails!(HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(start));
        fails!(INVALID_VALUE, cuMemHostRegister_v2(std::ptr::without_provenance_mut(4096), 4096, 0));
        fails!(INVALID_VALUE, cuMemHostRegister_v2(start, 0, 0));

        let mut pinned = std::ptr::null_mut();
        ok!(cuMemAllocHost_v2(&mut pinned, 100));
        let mut flags = 0;
        ok!(cuMemHostGetFlags(&mut flags, pinned));
        assert_eq!(flags & 2, 2, "mapped");
        fails!(HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pinned));
        fails!(INVALID_VALUE, cuMemFreeHost(start));
        ok!(cuMemFreeHost(pinned));
        fails!(INVALID_VALUE, cuMemFreeHost(pinned));
        // Memory that is not registered is out of reach.
        assert_eq!(crate::common::launch(kernel, 1, 1, std::ptr::null_mut(), &[&place]), Ok(()));
        fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
    });
}

#[test]
fn copies_follow_the_addresses() {
    isolated("copies_follow_the_addresses", &[], || {
        context();
        let bytes: Vec<u8> = (0..200_000).map(|index| (index % 251) as u8).collect();
        let (first, second) = (allocate(bytes.len()), allocate(bytes.len()));
        let mut back = vec![0_u8; bytes.len()];
        let (from, to) = (bytes.as_ptr() as u64, back.as_mut_ptr() as u64);
        ok!(cuMemcpy(first, from, bytes.len()));
        ok!(cuMemcpy(second, first, bytes.len()));
        ok!(cuMemcpy(to, second, bytes.len()));
        assert_eq!(back, bytes);
        back.fill(0);
        ok!(cuMemcpy(to, from, bytes.len()));
        assert_eq!(back, bytes, "host to host");
        // Overlapping ranges, in both directions.
        ok!(cuMemcpyDtoD_v2(first + 1000, first, 150_000));
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), first, bytes.len()));
        assert_eq!(back[1000..151_000], bytes[..150_000]);
        assert_eq!(back[151_000..], bytes[151_000..]);
        ok!(cuMemcpyDtoD_v2(second, second + 777, 150_000));
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), second, bytes.len()));
        assert_eq!(back[..150_000], bytes[777..150_777]);
    });
}

#[test]
fn an_asynchronous_copy_takes_a_small_pageable_source_at_once() {
    isolated("an_asynchronous_copy_takes_a_small_pageable_source_at_once", &[], || {
        context();
        let kernel = crate::common::function(crate::common::WAIT_FOR_FLAG, c"wait_for_flag");
        let mut flag = std::ptr::null_mut();
        ok!(cuMemHostAlloc(&mut flag, 4096, 0));
        let mut stream = std::ptr::null_mut();
        ok!(cuStreamCreate(&mut stream, 1));
        let place = allocate(100);
        assert_eq!(crate::common::launch(kernel, 1, 1, stream, &[&(flag as u64)]), Ok(()));
        let mut source = [7_u8; 100];
        ok!(cuMemcpyHtoDAsync_v2(place, source.as_ptr().cast(), 100, stream));
        source.fill(9);
        // SAFETY: pinned memory of ours; the kernel only reads it.
        unsafe { flag.cast::<u32>().write_volatile(1) };
        let mut back = [0_u8; 100];
        ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), place, 100, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(back, [7; 100]);
    });
}

#[test]
fn rectangles_and_boxes_are_copied_and_filled() {
    isolated("rectangles_and_boxes_are_copied_and_filled", &[], || {
        context();
        let (mut place, mut pitch) = (0, 0);
        ok!(cuMemAllocPitch_v2(&mut place, &mut pitch, 100, 8, 4));
        ok!(cuMemsetD2D8_v2(place, pitch, 1, 100, 8));
        ok!(cuMemsetD2D16_v2(place + 2, pitch, 0x0203, 3, 2));
        ok!(cuMemsetD2D32_v2(place, pitch, 0x0405_0607, 1, 1));
        // SAFETY: all-zero is a valid value.
        let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
        let mut back = vec![0_u8; 20 * 3];
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        (copy.srcDevice, copy.srcPitch) = (place, pitch);
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        (copy.dstHost, copy.dstPitch) = (back.as_mut_ptr().cast(), 20);
        (copy.WidthInBytes, copy.Height) = (10, 3);
        ok!(cuMemcpy2D_v2(&copy));
        assert_eq!(back[..12], [7, 6, 5, 4, 3, 2, 3, 2, 1, 1, 0, 0], "first row, then the gap of the target");
        assert_eq!(back[20..30], [1, 1, 3, 2, 3, 2, 3, 2, 1, 1]);
        assert_eq!(back[40..50], [1; 10]);
        copy.srcPitch = 5;
        fails!(INVALID_VALUE, cuMemcpy2D_v2(&copy));
        copy.srcPitch = pitch;
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        assert!(call!(cuMemcpy2D_v2(&copy)).is_err(), "no array is named");

        // SAFETY: all-zero is a valid value.
        let mut cube: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        let source: Vec<u8> = (0..4 * 3 * 2).collect();
        let target = allocate(1000);
        ok!(cuMemsetD8_v2(target, 0, 1000));
        cube.srcMemoryType = CU_MEMORYTYPE_HOST;
        (cube.srcHost, cube.srcPitch, cube.srcHeight) = (source.as_ptr().cast(), 4, 3);
        cube.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        (cube.dstDevice, cube.dstPitch, cube.dstHeight) = (target, 10, 5);
        cube.dstXInBytes = 1;
        (cube.WidthInBytes, cube.Height, cube.Depth) = (4, 3, 2);
        ok!(cuMemcpy3D_v2(&cube));
        let mut whole = vec![0_u8; 100];
        ok!(cuMemcpyDtoH_v2(whole.as_mut_ptr().cast(), target, 100));
        for z in 0..2 {
            for y in 0..3 {
                let from = (z * 3 + y) * 4;
                let to = z * 50 + y * 10 + 1;
                assert_eq!(whole[to..to + 4], source[from..from + 4], "row {y} of slice {z}");
            }
        }
    });
}
