//! Texture and surface objects and texture references: made, told again, refused where documented.
//!
//! Rules: CUDA driver API, cuTexObjectCreate, cuSurfObjectCreate, "Texture Reference Management".

use std::ffi::CStr;

use turnus_bindings::types::*;

use crate::common::{allocate, context, function, isolated, launch};

fn zeroed<T>() -> T {
    // SAFETY: used for plain structures of the header only.
    unsafe { std::mem::zeroed() }
}

fn array(extent: [usize; 3], flags: u32) -> CUarray {
    let mut said: CUDA_ARRAY3D_DESCRIPTOR = zeroed();
    [said.Width, said.Height, said.Depth] = extent;
    (said.Format, said.NumChannels, said.Flags) = (CU_AD_FORMAT_FLOAT, 1, flags);
    let mut array = std::ptr::null_mut();
    ok!(cuArray3DCreate_v2(&mut array, &said));
    array
}

fn of_array(array: CUarray) -> CUDA_RESOURCE_DESC {
    let mut resource: CUDA_RESOURCE_DESC = zeroed();
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    resource
}

fn of_linear(address: CUdeviceptr, bytes: usize) -> CUDA_RESOURCE_DESC {
    let mut resource: CUDA_RESOURCE_DESC = zeroed();
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = address;
    resource.res.linear.format = CU_AD_FORMAT_FLOAT;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = bytes;
    resource
}

fn of_pitched(address: CUdeviceptr, width: usize, height: usize, pitch: usize) -> CUDA_RESOURCE_DESC {
    let mut resource: CUDA_RESOURCE_DESC = zeroed();
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D.devPtr = address;
    resource.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
    resource.res.pitch2D.numChannels = 1;
    resource.res.pitch2D.width = width;
    resource.res.pitch2D.height = height;
    resource.res.pitch2D.pitchInBytes = pitch;
    resource
}

fn clamped() -> CUDA_TEXTURE_DESC {
    let mut sampling: CUDA_TEXTURE_DESC = zeroed();
    sampling.addressMode = [CU_TR_ADDRESS_MODE_CLAMP; 3];
    sampling
}

fn create(
    resource: &CUDA_RESOURCE_DESC,
    sampling: &CUDA_TEXTURE_DESC,
) -> Result<CUtexObject, turnus_bindings::CUerror> {
    let mut object = 0;
    call!(cuTexObjectCreate(&mut object, resource, sampling, std::ptr::null())).map(|()| object)
}

const INVALID: Result<CUtexObject, turnus_bindings::CUerror> = Err(turnus_bindings::CUerror::INVALID_VALUE);

#[test]
fn texture_objects_tell_what_they_were_made_of() {
    isolated("texture_objects_tell_what_they_were_made_of", &[], || {
        context();
        let (array, linear) = (array([32, 16, 0], 0), allocate(4096));
        let (mut pitched, mut pitch) = (0, 0);
        ok!(cuMemAllocPitch_v2(&mut pitched, &mut pitch, 400, 10, 4));
        let mut sampling = clamped();
        sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;
        sampling.flags = CU_TRSF_NORMALIZED_COORDINATES;
        let objects: Vec<CUtexObject> =
            [of_array(array), of_linear(linear, 4096), of_pitched(pitched, 100, 10, pitch)]
                .iter()
                .map(|resource| create(resource, &sampling).expect("a texture object"))
                .collect();
        assert!(objects.iter().all(|object| *object != 0));
        let mut resource: CUDA_RESOURCE_DESC = zeroed();
        ok!(cuTexObjectGetResourceDesc(&mut resource, objects[0]));
        assert_eq!(resource.resType, CU_RESOURCE_TYPE_ARRAY);
        // SAFETY: the member is that which the type names.
        assert_eq!(unsafe { resource.res.array.hArray }, array);
        ok!(cuTexObjectGetResourceDesc(&mut resource, objects[1]));
        // SAFETY: as above.
        assert_eq!(unsafe { (resource.res.linear.devPtr, resource.res.linear.sizeInBytes) }, (linear, 4096));
        ok!(cuTexObjectGetResourceDesc(&mut resource, objects[2]));
        // SAFETY: as above.
        assert_eq!(unsafe { (resource.res.pitch2D.height, resource.res.pitch2D.pitchInBytes) }, (10, pitch));
        let mut told: CUDA_TEXTURE_DESC = zeroed();
        ok!(cuTexObjectGetTextureDesc(&mut told, objects[0]));
        assert_eq!(told.filterMode, CU_TR_FILTER_MODE_LINEAR);
        assert_eq!(told.flags, CU_TRSF_NORMALIZED_COORDINATES);
        let mut view: CUDA_RESOURCE_VIEW_DESC = zeroed();
        assert!(call!(cuTexObjectGetResourceViewDesc(&mut view, objects[0])).is_err(), "no view was given");

        (view.format, view.width, view.height) = (CU_RES_VIEW_FORMAT_FLOAT_1X32, 32, 16);
        let mut seen = 0;
        ok!(cuTexObjectCreate(&mut seen, &of_array(array), &sampling, &view));
        view.width = 0;
        ok!(cuTexObjectGetResourceViewDesc(&mut view, seen));
        assert_eq!((view.format, view.width, view.height), (CU_RES_VIEW_FORMAT_FLOAT_1X32, 32, 16));
        ok!(cuTexObjectDestroy(seen));
        for object in objects {
            ok!(cuTexObjectDestroy(object));
            assert!(call!(cuTexObjectGetResourceDesc(&mut resource, object)).is_err());
        }
    });
}

#[test]
fn resources_that_cannot_be_textures_are_refused() {
    isolated("resources_that_cannot_be_textures_are_refused", &[], || {
        context();
        let linear = allocate(8192);
        let sampling = clamped();
        let good = of_linear(linear, 4096);
        let mut bad = good;
        bad.flags = 1;
        assert_eq!(create(&bad, &sampling), INVALID, "flags must be zero");
        assert_eq!(create(&of_linear(linear + 4, 64), &sampling), INVALID, "not aligned");
        let mut three = good;
        three.res.linear.numChannels = 3;
        assert_eq!(create(&three, &sampling), INVALID, "three channels");
        let mut alignment = 0;
        ok!(cuDeviceGetAttribute(&mut alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 0));
        let odd = 256 + alignment as usize / 2;
        assert_eq!(create(&of_pitched(linear, 64, 2, odd), &sampling), INVALID, "pitch not aligned");
        assert_eq!(create(&of_pitched(linear, 64, 2, 128), &sampling), INVALID, "rows overlap");
        let mut object = 0;
        let mut view: CUDA_RESOURCE_VIEW_DESC = zeroed();
        (view.format, view.width) = (CU_RES_VIEW_FORMAT_FLOAT_1X32, 1024);
        fails!(INVALID_VALUE, cuTexObjectCreate(&mut object, &good, &sampling, &view));
        fails!(INVALID_VALUE, cuTexObjectCreate(&mut object, std::ptr::null(), &sampling, std::ptr::null()));
        fails!(INVALID_VALUE, cuTexObjectCreate(&mut object, &good, std::ptr::null(), std::ptr::null()));
        fails!(INVALID_VALUE, cuTexObjectCreate(std::ptr::null_mut(), &good, &sampling, std::ptr::null()));
        let mut seamless = sampling;
        seamless.flags = CU_TRSF_SEAMLESS_CUBEMAP;
        assert_eq!(create(&good, &seamless), INVALID, "no cube");
    });
}

#[test]
fn surface_objects_need_arrays_made_for_them() {
    isolated("surface_objects_need_arrays_made_for_them", &[], || {
        context();
        let (mut surface, mut told): (CUsurfObject, CUDA_RESOURCE_DESC) = (0, zeroed());
        let able = array([32, 16, 0], CUDA_ARRAY3D_SURFACE_LDST);
        ok!(cuSurfObjectCreate(&mut surface, &of_array(able)));
        ok!(cuSurfObjectGetResourceDesc(&mut told, surface));
        // SAFETY: a surface is of an array.
        assert_eq!(unsafe { told.res.array.hArray }, able);
        ok!(cuSurfObjectDestroy(surface));
        assert!(call!(cuSurfObjectGetResourceDesc(&mut told, surface)).is_err());
        fails!(INVALID_VALUE, cuSurfObjectCreate(&mut surface, &of_array(array([32, 16, 0], 0))));
        fails!(INVALID_VALUE, cuSurfObjectCreate(&mut surface, &of_linear(allocate(4096), 4096)));
        fails!(INVALID_VALUE, cuSurfObjectCreate(&mut surface, std::ptr::null()));
    });
}

#[test]
fn mipmapped_arrays_are_read_with_normalised_coordinates() {
    isolated("mipmapped_arrays_are_read_with_normalised_coordinates", &[], || {
        context();
        let mut said: CUDA_ARRAY3D_DESCRIPTOR = zeroed();
        (said.Width, said.Height, said.Format, said.NumChannels) = (64, 64, CU_AD_FORMAT_FLOAT, 1);
        let mut mipmap = std::ptr::null_mut();
        ok!(cuMipmappedArrayCreate(&mut mipmap, &said, 4));
        let mut resource: CUDA_RESOURCE_DESC = zeroed();
        resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        resource.res.mipmap.hMipmappedArray = mipmap;
        assert_eq!(create(&resource, &clamped()), INVALID);
        let mut normalised = clamped();
        normalised.flags = CU_TRSF_NORMALIZED_COORDINATES;
        normalised.maxMipmapLevelClamp = 3.0;
        let object = create(&resource, &normalised).expect("a texture object");
        ok!(cuTexObjectDestroy(object));
    });
}

#[test]
fn texture_references_keep_what_is_set() {
    isolated("texture_references_keep_what_is_set", &[], || {
        context();
        let mut reference = std::ptr::null_mut();
        ok!(cuTexRefCreate(&mut reference));
        let (array, linear) = (array([32, 16, 0], 0), allocate(4096));
        let (mut told, mut address, mut offset) = (std::ptr::null_mut(), 0, 7);
        ok!(cuTexRefSetArray(reference, array, 1));
        ok!(cuTexRefGetArray(&mut told, reference));
        assert_eq!(told, array);
        assert!(call!(cuTexRefGetAddress_v2(&mut address, reference)).is_err(), "bound to an array");
        ok!(cuTexRefSetAddress_v2(&mut offset, reference, linear, 4096));
        ok!(cuTexRefGetAddress_v2(&mut address, reference));
        assert_eq!((address, offset), (linear, 0));
        assert!(call!(cuTexRefGetArray(&mut told, reference)).is_err());
        let (mut format, mut channels, mut mode) = (CU_AD_FORMAT_FLOAT, 0, CU_TR_ADDRESS_MODE_BORDER);
        ok!(cuTexRefSetFormat(reference, CU_AD_FORMAT_UNSIGNED_INT8, 4));
        ok!(cuTexRefGetFormat(&mut format, &mut channels, reference));
        assert_eq!((format, channels), (CU_AD_FORMAT_UNSIGNED_INT8, 4));
        ok!(cuTexRefSetAddressMode(reference, 1, CU_TR_ADDRESS_MODE_MIRROR));
        ok!(cuTexRefGetAddressMode(&mut mode, reference, 1));
        assert_eq!(mode, CU_TR_ADDRESS_MODE_MIRROR);
        let (mut filter, mut flags) = (CU_TR_FILTER_MODE_POINT, 0);
        ok!(cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR));
        ok!(cuTexRefGetFilterMode(&mut filter, reference));
        ok!(cuTexRefSetFlags(reference, CU_TRSF_READ_AS_INTEGER));
        ok!(cuTexRefGetFlags(&mut flags, reference));
        assert_eq!((filter, flags), (CU_TR_FILTER_MODE_LINEAR, CU_TRSF_READ_AS_INTEGER));
        ok!(cuTexRefDestroy(reference));
    });
}

/// Reads texel i of a one-dimensional texture into place i.
const READ_LINE: &CStr = c".version 7.0
.target sm_60
.address_size 64
.visible .entry read_line(.param .u64 texture, .param .u64 place)
{
    .reg .b32 %r<2>; .reg .f32 %f<5>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [texture]; ld.param.u64 %rd2, [place];
    mov.u32 %r1, %tid.x;
    tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}];
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.f32 [%rd4], %f1;
    ret;
}
";

/// Reads a plane at (i - 0.5, 1.5) into place i; copies row 1 of a surface to row 0 and to place i.
const READ_PLANE: &CStr = c".version 7.0
.target sm_60
.address_size 64
.visible .entry read_plane(.param .u64 texture, .param .u64 place)
{
    .reg .b32 %r<2>; .reg .f32 %f<9>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [texture]; ld.param.u64 %rd2, [place];
    mov.u32 %r1, %tid.x;
    cvt.rn.f32.u32 %f5, %r1;
    add.f32 %f6, %f5, 0fBF000000;
    mov.f32 %f7, 0f3FC00000;
    tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f6, %f7}];
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.f32 [%rd4], %f1;
    ret;
}
.visible .entry move_rows(.param .u64 surface, .param .u64 place)
{
    .reg .b32 %r<6>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [surface]; ld.param.u64 %rd2, [place];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, 1; mov.u32 %r4, 0;
    suld.b.2d.b32.zero %r5, [%rd1, {%r2, %r3}];
    sust.b.2d.b32.zero [%rd1, {%r2, %r4}], {%r5};
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r5;
    ret;
}
";

/// What a kernel that is given an object and a place stores there, for threads 0 to 7.
fn read_by(function: CUfunction, object: u64) -> [f32; 8] {
    let (place, mut back) = (allocate(32), [0.0_f32; 8]);
    assert_eq!(launch(function, 1, 8, std::ptr::null_mut(), &[&object, &place]), Ok(()));
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), place, 32));
    back
}

#[test]
fn kernels_read_linear_textures() {
    isolated("kernels_read_linear_textures", &[], || {
        context();
        let (read, linear) = (function(READ_LINE, c"read_line"), allocate(4096));
        let values: [f32; 8] = std::array::from_fn(|index| index as f32 * 1.5);
        ok!(cuMemcpyHtoD_v2(linear, values.as_ptr().cast(), 32));
        let object = create(&of_linear(linear, 4096), &clamped()).expect("a texture object");
        assert_eq!(read_by(read, object), values);
        let short = create(&of_linear(linear, 20), &clamped()).expect("a texture object");
        assert_eq!(read_by(read, short)[4..], [6.0, 0.0, 0.0, 0.0], "nothing is there beyond the end");
        // Small integers become fractions, unless they are to stay.
        let mut bytes = of_linear(linear, 4096);
        bytes.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT8;
        ok!(cuMemcpyHtoD_v2(linear, [0_u8, 51, 255, 102, 204, 0, 255, 153].as_ptr().cast(), 8));
        let object = create(&bytes, &clamped()).expect("a texture object");
        assert_eq!(read_by(read, object), [0.0, 0.2, 1.0, 0.4, 0.8, 0.0, 1.0, 0.6]);
        let mut whole = clamped();
        whole.flags = CU_TRSF_READ_AS_INTEGER;
        let object = create(&bytes, &whole).expect("a texture object");
        assert_eq!(read_by(read, object).map(f32::to_bits), [0, 51, 255, 102, 204, 0, 255, 153]);
    });
}

#[test]
fn kernels_read_planes_and_change_surfaces() {
    isolated("kernels_read_planes_and_change_surfaces", &[], || {
        context();
        let mut module = std::ptr::null_mut();
        ok!(cuModuleLoadData(&mut module, READ_PLANE.as_ptr().cast()));
        let (mut read, mut move_rows) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuModuleGetFunction(&mut read, module, c"read_plane".as_ptr()));
        ok!(cuModuleGetFunction(&mut move_rows, module, c"move_rows".as_ptr()));
        let array = array([6, 2, 0], CUDA_ARRAY3D_SURFACE_LDST);
        let values: [f32; 12] = std::array::from_fn(|index| index as f32);
        let mut into: CUDA_MEMCPY2D = zeroed();
        (into.srcMemoryType, into.srcHost, into.srcPitch) = (CU_MEMORYTYPE_HOST, values.as_ptr().cast(), 24);
        (into.dstMemoryType, into.dstArray) = (CU_MEMORYTYPE_ARRAY, array);
        (into.WidthInBytes, into.Height) = (24, 2);
        ok!(cuMemcpy2D_v2(&into));
        let object = create(&of_array(array), &clamped()).expect("a texture object");
        assert_eq!(
            read_by(read, object),
            [6.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 11.0],
            "clamped at both ends"
        );
        let mut bordered = clamped();
        bordered.addressMode = [CU_TR_ADDRESS_MODE_BORDER; 3];
        let object = create(&of_array(array), &bordered).expect("a texture object");
        assert_eq!(read_by(read, object), [0.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 0.0], "the border is 0");

        let mut surface = 0;
        ok!(cuSurfObjectCreate(&mut surface, &of_array(array)));
        assert_eq!(read_by(move_rows, surface), [6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 0.0, 0.0]);
        let (mut back, mut out): ([f32; 12], CUDA_MEMCPY2D) = ([0.0; 12], zeroed());
        (out.srcMemoryType, out.srcArray) = (CU_MEMORYTYPE_ARRAY, array);
        (out.dstMemoryType, out.dstHost, out.dstPitch) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast(), 24);
        (out.WidthInBytes, out.Height) = (24, 2);
        ok!(cuMemcpy2D_v2(&out));
        assert_eq!(back[..6], back[6..], "the rows are the same now");
        assert_eq!(back[..6], values[6..]);
    });
}
