//! Texture and surface objects and texture references: made, told again, refused where documented.
//!
//! Rules: CUDA driver API, cuTexObjectCreate, cuSurfObjectCreate, "Texture Reference Management".

use turnus_bindings::types::*;

use crate::common::{allocate, context, isolated};

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
