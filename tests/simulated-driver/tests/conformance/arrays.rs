//! Arrays as opaque memory: made in all shapes, described, copied to and from, with their memory given back.
//!
//! Rules: CUDA driver API, cuArray3DCreate, cuMipmappedArrayCreate, cuMemcpy2D, cuMemcpy3D and cuMemcpyAtoA.

use std::ffi::c_void;

use turnus_bindings::types::*;

use crate::common::{allocate, context, isolated};

fn described(
    extent: [usize; 3],
    format: CUarray_format,
    channels: u32,
    flags: u32,
) -> CUDA_ARRAY3D_DESCRIPTOR {
    let [width, height, depth] = extent;
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    }
}

fn array(extent: [usize; 3], format: CUarray_format, channels: u32, flags: u32) -> CUarray {
    let mut array = std::ptr::null_mut();
    ok!(cuArray3DCreate_v2(&mut array, &described(extent, format, channels, flags)));
    assert!(!array.is_null());
    array
}

fn outcome(extent: [usize; 3], format: CUarray_format, channels: u32, flags: u32) -> CUresult {
    let mut array = std::ptr::null_mut();
    let outcome = call!(cuArray3DCreate_v2(&mut array, &described(extent, format, channels, flags)));
    if outcome.is_ok() {
        ok!(cuArrayDestroy(array));
    }
    outcome
}

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    free
}

/// Bytes that tell their place.
fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 7 + index / 251) as u8).collect()
}

fn zeroed_2d() -> CUDA_MEMCPY2D {
    // SAFETY: all-zero is a valid value.
    unsafe { std::mem::zeroed() }
}

fn zeroed_3d() -> CUDA_MEMCPY3D {
    // SAFETY: all-zero is a valid value.
    unsafe { std::mem::zeroed() }
}

const BYTE: CUarray_format = CU_AD_FORMAT_UNSIGNED_INT8;
const INVALID: CUresult = Err(turnus_bindings::CUerror::INVALID_VALUE);

#[test]
fn arrays_of_all_shapes_say_what_they_are() {
    isolated("arrays_of_all_shapes_say_what_they_are", &[], || {
        context();
        let shapes = [
            ([64, 0, 0], 0),
            ([64, 32, 0], CUDA_ARRAY3D_SURFACE_LDST),
            ([16, 8, 4], 0),
            ([64, 0, 5], CUDA_ARRAY3D_LAYERED),
            ([64, 32, 5], CUDA_ARRAY3D_LAYERED),
            ([16, 16, 6], CUDA_ARRAY3D_CUBEMAP),
            ([16, 16, 12], CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED),
            ([64, 32, 0], CUDA_ARRAY3D_TEXTURE_GATHER),
        ];
        for (extent, flags) in shapes {
            let array = array(extent, CU_AD_FORMAT_FLOAT, 4, flags);
            let mut told = described([0; 3], BYTE, 0, 0);
            ok!(cuArray3DGetDescriptor_v2(&mut told, array));
            assert_eq!([told.Width, told.Height, told.Depth], extent);
            assert_eq!((told.Format, told.NumChannels, told.Flags), (CU_AD_FORMAT_FLOAT, 4, flags));
            ok!(cuArrayDestroy(array));
        }
        let said = CUDA_ARRAY_DESCRIPTOR { Width: 20, Height: 10, Format: BYTE, NumChannels: 2 };
        let (mut array, mut told) = (std::ptr::null_mut(), said);
        ok!(cuArrayCreate_v2(&mut array, &said));
        told.Width = 0;
        ok!(cuArrayGetDescriptor_v2(&mut told, array));
        assert_eq!((told.Width, told.Height, told.Format, told.NumChannels), (20, 10, BYTE, 2));
        // None of these is sparse, planar or mapped later.
        let (mut plane, mut requirements, mut sparse) = (array, zeroed(), zeroed());
        fails!(INVALID_VALUE, cuArrayGetPlane(&mut plane, array, 0));
        fails!(INVALID_VALUE, cuArrayGetMemoryRequirements(&mut requirements, array, 0));
        fails!(INVALID_VALUE, cuArrayGetSparseProperties(&mut sparse, array));
    });
}

fn zeroed<T>() -> T {
    // SAFETY: used for plain structures of the header only.
    unsafe { std::mem::zeroed() }
}

#[test]
fn arrays_that_cannot_be_are_refused() {
    isolated("arrays_that_cannot_be_are_refused", &[], || {
        context();
        assert_eq!(outcome([0, 4, 0], BYTE, 1, 0), INVALID, "no width");
        assert_eq!(outcome([4, 4, 0], BYTE, 3, 0), INVALID, "three channels");
        assert_eq!(outcome([4, 4, 0], BYTE, 0, 0), INVALID, "no channels");
        assert_eq!(outcome([4, 4, 0], CUarray_format_enum(7), 1, 0), INVALID, "no format");
        assert_eq!(outcome([4, 0, 4], BYTE, 1, 0), INVALID, "depth without height");
        assert_eq!(outcome([4, 4, 0], BYTE, 1, CUDA_ARRAY3D_LAYERED), INVALID, "no layers");
        assert_eq!(outcome([4, 8, 6], BYTE, 1, CUDA_ARRAY3D_CUBEMAP), INVALID, "faces that are no squares");
        assert_eq!(outcome([4, 4, 5], BYTE, 1, CUDA_ARRAY3D_CUBEMAP), INVALID, "five faces");
        let both = CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED;
        assert_eq!(outcome([4, 4, 8], BYTE, 1, both), INVALID, "a cube and a third");
        let mut limit = 0;
        ok!(cuDeviceGetAttribute(&mut limit, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 0));
        assert_eq!(outcome([limit as usize, 0, 0], BYTE, 1, 0), Ok(()));
        assert_eq!(outcome([limit as usize + 1, 0, 0], BYTE, 1, 0), INVALID, "too wide");
        let mut array = std::ptr::null_mut();
        fails!(INVALID_VALUE, cuArray3DCreate_v2(&mut array, std::ptr::null()));
        fails!(INVALID_VALUE, cuArray3DCreate_v2(std::ptr::null_mut(), &described([4, 0, 0], BYTE, 1, 0)));
        let stray: CUarray = std::ptr::without_provenance_mut(0x1230);
        let mut told = described([0; 3], BYTE, 0, 0);
        fails!(INVALID_HANDLE, cuArrayDestroy(stray));
        fails!(INVALID_HANDLE, cuArrayDestroy(std::ptr::null_mut()));
        fails!(INVALID_HANDLE, cuArray3DGetDescriptor_v2(&mut told, stray));
        let array = self::array([4, 0, 0], BYTE, 1, 0);
        fails!(INVALID_VALUE, cuArray3DGetDescriptor_v2(std::ptr::null_mut(), array));
        ok!(cuArrayDestroy(array));
        fails!(INVALID_HANDLE, cuArrayDestroy(array));
    });
}

#[test]
fn arrays_take_memory_of_the_device() {
    isolated("arrays_take_memory_of_the_device", &[], || {
        context();
        let before = free_bytes();
        let large = array([1024, 1024, 0], CU_AD_FORMAT_FLOAT, 1, 0);
        assert!(before - free_bytes() >= 4 << 20);
        ok!(cuArrayDestroy(large));
        assert_eq!(free_bytes(), before);
        let mut limits = [0; 3];
        let numbers = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH,
        ];
        for (limit, number) in limits.iter_mut().zip(numbers) {
            ok!(cuDeviceGetAttribute(limit, number, 0));
        }
        let extent = limits.map(|limit| limit as usize);
        let full = outcome(extent, CU_AD_FORMAT_FLOAT, 4, 0);
        assert_eq!(
            full,
            Err(turnus_bindings::CUerror::OUT_OF_MEMORY),
            "{extent:?} is more than any card has"
        );
        assert_eq!(free_bytes(), before);
    });
}

#[test]
fn linear_copies_find_their_place_in_arrays() {
    isolated("linear_copies_find_their_place_in_arrays", &[], || {
        context();
        let (first, second) = (array([256, 0, 0], BYTE, 4, 0), array([256, 0, 0], BYTE, 4, 0));
        let (source, device, mut back) = (pattern(1024), allocate(1024), vec![0_u8; 1024]);
        ok!(cuMemcpyHtoA_v2(first, 0, source.as_ptr().cast(), 1024));
        ok!(cuMemcpyAtoA_v2(second, 64, first, 512, 128));
        ok!(cuMemcpyAtoD_v2(device, second, 64, 128));
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), device, 128));
        assert_eq!(back[..128], source[512..640]);
        ok!(cuMemcpyDtoA_v2(second, 0, device, 64));
        ok!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), second, 0, 64));
        assert_eq!(back[..64], source[512..576]);

        let mut stream = std::ptr::null_mut();
        ok!(cuStreamCreate(&mut stream, 1));
        ok!(cuMemcpyHtoAAsync_v2(second, 256, source.as_ptr().cast(), 256, stream));
        ok!(cuMemcpyAtoHAsync_v2(back.as_mut_ptr().cast(), second, 256, 256, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(back[..256], source[..256]);

        fails!(INVALID_VALUE, cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), second, 1020, 8));
        fails!(INVALID_VALUE, cuMemcpyHtoA_v2(second, 1024, source.as_ptr().cast(), 4));
        let wide = array([256, 0, 0], CU_AD_FORMAT_FLOAT, 4, 0);
        assert!(call!(cuMemcpyAtoA_v2(wide, 0, second, 0, 64)).is_err(), "elements of another size");
        let stray: CUarray = std::ptr::without_provenance_mut(0x1230);
        assert!(call!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), stray, 0, 4)).is_err());
    });
}

#[test]
fn rows_go_in_and_out_of_arrays() {
    isolated("rows_go_in_and_out_of_arrays", &[], || {
        context();
        let (width, height) = (40, 12);
        let array = array([width, height, 0], CU_AD_FORMAT_UNSIGNED_INT16, 1, 0);
        let row = 2 * width;
        let source = pattern(row * height);
        let mut into = zeroed_2d();
        (into.srcMemoryType, into.srcHost, into.srcPitch) = (CU_MEMORYTYPE_HOST, source.as_ptr().cast(), row);
        (into.dstMemoryType, into.dstArray) = (CU_MEMORYTYPE_ARRAY, array);
        (into.WidthInBytes, into.Height) = (row, height);
        ok!(cuMemcpy2D_v2(&into));
        // A part, into pitched device memory and from there to the host.
        let (mut device, mut pitch) = (0, 0);
        ok!(cuMemAllocPitch_v2(&mut device, &mut pitch, row, height, 4));
        let mut part = zeroed_2d();
        (part.srcMemoryType, part.srcArray, part.srcXInBytes, part.srcY) =
            (CU_MEMORYTYPE_ARRAY, array, 10, 3);
        (part.dstMemoryType, part.dstDevice, part.dstPitch) = (CU_MEMORYTYPE_DEVICE, device, pitch);
        (part.WidthInBytes, part.Height) = (20, 4);
        ok!(cuMemcpy2D_v2(&part));
        let mut back = vec![0_u8; 80];
        let mut out = zeroed_2d();
        (out.srcMemoryType, out.srcDevice, out.srcPitch) = (CU_MEMORYTYPE_DEVICE, device, pitch);
        (out.dstMemoryType, out.dstHost, out.dstPitch) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast(), 20);
        (out.WidthInBytes, out.Height) = (20, 4);
        ok!(cuMemcpy2D_v2(&out));
        for y in 0..4 {
            let from = (y + 3) * row + 10;
            assert_eq!(back[y * 20..][..20], source[from..from + 20], "row {y}");
        }
        // What leaves the array, or cuts an element, is refused.
        for (x, y, bytes, rows) in
            [(row, 0, 2, 1), (0, height, 2, 1), (row - 2, 0, 4, 1), (0, 0, row, height + 1)]
        {
            (part.srcXInBytes, part.srcY, part.WidthInBytes, part.Height) = (x, y, bytes, rows);
            fails!(INVALID_VALUE, cuMemcpy2D_v2(&part));
        }
        (part.srcXInBytes, part.srcY, part.WidthInBytes, part.Height) = (1, 0, 2, 1);
        fails!(INVALID_VALUE, cuMemcpy2D_v2(&part));
        (part.srcXInBytes, part.srcArray) = (0, std::ptr::null_mut());
        assert!(call!(cuMemcpy2D_v2(&part)).is_err());
    });
}

#[test]
fn boxes_and_layers_go_in_and_out_of_arrays() {
    isolated("boxes_and_layers_go_in_and_out_of_arrays", &[], || {
        context();
        let [width, height, depth] = [16, 6, 5];
        let solid = array([width, height, depth], BYTE, 1, 0);
        let layered = array([width, height, depth], BYTE, 1, CUDA_ARRAY3D_LAYERED);
        let (source, mut back) = (pattern(width * height * depth), vec![0_u8; width * height * depth]);
        let mut into = zeroed_3d();
        (into.srcMemoryType, into.srcHost) = (CU_MEMORYTYPE_HOST, source.as_ptr().cast());
        (into.srcPitch, into.srcHeight) = (width, height);
        (into.dstMemoryType, into.dstArray) = (CU_MEMORYTYPE_ARRAY, solid);
        (into.WidthInBytes, into.Height, into.Depth) = (width, height, depth);
        ok!(cuMemcpy3D_v2(&into));
        // Slices 2 and 3 become layers 1 and 2.
        let mut across = zeroed_3d();
        (across.srcMemoryType, across.srcArray, across.srcZ) = (CU_MEMORYTYPE_ARRAY, solid, 2);
        (across.dstMemoryType, across.dstArray, across.dstZ) = (CU_MEMORYTYPE_ARRAY, layered, 1);
        (across.WidthInBytes, across.Height, across.Depth) = (width, height, 2);
        ok!(cuMemcpy3D_v2(&across));
        let mut out = zeroed_3d();
        (out.srcMemoryType, out.srcArray, out.srcXInBytes, out.srcY, out.srcZ) =
            (CU_MEMORYTYPE_ARRAY, layered, 4, 1, 1);
        (out.dstMemoryType, out.dstHost) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast());
        (out.dstPitch, out.dstHeight) = (8, 3);
        (out.WidthInBytes, out.Height, out.Depth) = (8, 3, 2);
        ok!(cuMemcpy3D_v2(&out));
        for z in 0..2 {
            for y in 0..3 {
                let from = ((z + 2) * height + y + 1) * width + 4;
                assert_eq!(back[(z * 3 + y) * 8..][..8], source[from..from + 8], "layer {z}, row {y}");
            }
        }
        out.srcZ = depth - 1;
        fails!(INVALID_VALUE, cuMemcpy3D_v2(&out));
        // In stream order, between arrays.
        let mut stream = std::ptr::null_mut();
        ok!(cuStreamCreate(&mut stream, 1));
        ok!(cuMemcpy3DAsync_v2(&across, stream));
        ok!(cuStreamSynchronize(stream));
    });
}

#[test]
fn mipmapped_arrays_have_levels() {
    isolated("mipmapped_arrays_have_levels", &[], || {
        context();
        let (before, mut mipmap) = (free_bytes(), std::ptr::null_mut());
        let said = described([64, 16, 0], CU_AD_FORMAT_FLOAT, 1, 0);
        ok!(cuMipmappedArrayCreate(&mut mipmap, &said, 100));
        let mut levels = Vec::new();
        for level in 0..7 {
            let (mut array, mut told) = (std::ptr::null_mut(), described([0; 3], BYTE, 0, 0));
            ok!(cuMipmappedArrayGetLevel(&mut array, mipmap, level));
            ok!(cuArray3DGetDescriptor_v2(&mut told, array));
            assert_eq!([told.Width, told.Height], [64 >> level, (16 >> level).max(1)], "level {level}");
            levels.push(array);
        }
        let mut array = std::ptr::null_mut();
        fails!(INVALID_VALUE, cuMipmappedArrayGetLevel(&mut array, mipmap, 7));
        let (one, two, mut back) = ([1.0_f32; 32], [2.0_f32; 16], [0.0_f32; 32]);
        let copy = |array: CUarray, width: usize, values: *const f32| {
            let mut into = zeroed_2d();
            (into.srcMemoryType, into.srcHost) = (CU_MEMORYTYPE_HOST, values.cast::<c_void>());
            (into.dstMemoryType, into.dstArray) = (CU_MEMORYTYPE_ARRAY, array);
            (into.WidthInBytes, into.Height) = (4 * width, 1);
            ok!(cuMemcpy2D_v2(&into));
        };
        copy(levels[1], 32, one.as_ptr());
        copy(levels[2], 16, two.as_ptr());
        let mut out = zeroed_2d();
        (out.srcMemoryType, out.srcArray) = (CU_MEMORYTYPE_ARRAY, levels[1]);
        (out.dstMemoryType, out.dstHost) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast());
        (out.WidthInBytes, out.Height) = (128, 1);
        ok!(cuMemcpy2D_v2(&out));
        assert_eq!(back, one, "levels have bytes of their own");
        ok!(cuMipmappedArrayDestroy(mipmap));
        assert_eq!(free_bytes(), before);
        fails!(INVALID_HANDLE, cuMipmappedArrayDestroy(mipmap));
    });
}

#[test]
fn copies_of_arrays_are_captured() {
    isolated("copies_of_arrays_are_captured", &[], || {
        context();
        let array = array([64, 4, 0], BYTE, 1, 0);
        let (device, other, mut stream) = (allocate(64), allocate(64), std::ptr::null_mut());
        ok!(cuMemsetD8_v2(device, 0x5a, 64));
        ok!(cuCtxSynchronize());
        ok!(cuStreamCreate(&mut stream, 1));
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        let mut into = zeroed_2d();
        (into.srcMemoryType, into.srcDevice) = (CU_MEMORYTYPE_DEVICE, device);
        (into.dstMemoryType, into.dstArray, into.dstXInBytes, into.dstY) = (CU_MEMORYTYPE_ARRAY, array, 8, 2);
        (into.WidthInBytes, into.Height) = (16, 1);
        ok!(cuMemcpy2DAsync_v2(&into, stream));
        let (mut graph, mut node, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 1);
        ok!(cuStreamEndCapture(stream, &mut graph));
        ok!(cuGraphGetNodes(graph, &mut node, &mut count));
        let mut told = zeroed_3d();
        ok!(cuGraphMemcpyNodeGetParams(node, &mut told));
        assert_eq!((told.dstMemoryType, told.dstArray), (CU_MEMORYTYPE_ARRAY, array));
        assert_eq!((told.dstXInBytes, told.dstY, told.dstZ, told.WidthInBytes), (8, 2, 0, 16));
        let mut exec = std::ptr::null_mut();
        ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        let mut out = zeroed_2d();
        (out.srcMemoryType, out.srcArray, out.srcXInBytes, out.srcY) = (CU_MEMORYTYPE_ARRAY, array, 8, 2);
        (out.dstMemoryType, out.dstDevice) = (CU_MEMORYTYPE_DEVICE, other);
        (out.WidthInBytes, out.Height) = (16, 1);
        ok!(cuMemcpy2D_v2(&out));
        let mut back = [0_u8; 16];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), other, 16));
        assert_eq!(back, [0x5a; 16]);
    });
}

#[test]
fn arrays_go_with_their_context() {
    isolated("arrays_go_with_their_context", &[], || {
        ok!(cuInit(0));
        let mut primary = std::ptr::null_mut();
        ok!(cuDevicePrimaryCtxRetain(&mut primary, 0));
        ok!(cuCtxSetCurrent(primary));
        let (own, before) = (array([64, 64, 0], BYTE, 1, 0), free_bytes());
        let large = array([1024, 1024, 0], CU_AD_FORMAT_FLOAT, 1, 0);
        ok!(cuDevicePrimaryCtxReset_v2(0));
        let mut told = described([0; 3], BYTE, 0, 0);
        assert!(call!(cuArray3DGetDescriptor_v2(&mut told, large)).is_err());
        ok!(cuDevicePrimaryCtxRetain(&mut primary, 0));
        ok!(cuCtxSetCurrent(primary));
        assert!(free_bytes() >= before, "the memory is free again");
        fails!(INVALID_HANDLE, cuArray3DGetDescriptor_v2(&mut told, own));
    });
}
