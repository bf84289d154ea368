//! Arrays and mipmapped arrays: CUDA driver API, "Memory Management".
//!
//! Sparse arrays, arrays with memory mapped later, planar and block-compressed formats are not simulated; what
//! asks about them answers as for arrays that are none of these.

use std::ffi::c_uint;
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put};
use crate::arrays::{self, ARRAYS, Array, MIPMAPS, Shape};
use crate::context::{current, of_device};
use crate::driver::driver;
use crate::execution::check_unsafe_call;
use crate::space::Result;

entry! {
    fn cuArrayCreate(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR_v1) {
        let said = p_allocate_array.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let extent = [u64::from(said.Width), u64::from(said.Height), 0];
        create(p_handle, Shape { extent, format: said.Format, channels: said.NumChannels, flags: 0 })
    }

    fn cuArrayCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR) {
        let said = p_allocate_array.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let extent = [said.Width as u64, said.Height as u64, 0];
        create(p_handle, Shape { extent, format: said.Format, channels: said.NumChannels, flags: 0 })
    }

    fn cuArray3DCreate(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR_v1) {
        let said = p_allocate_array.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let extent = [u64::from(said.Width), u64::from(said.Height), u64::from(said.Depth)];
        create(p_handle, Shape { extent, format: said.Format, channels: said.NumChannels, flags: said.Flags })
    }

    fn cuArray3DCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR) {
        create(p_handle, shape_of(p_allocate_array.as_ref().ok_or(CUerror::INVALID_VALUE)?))
    }

    fn cuArrayGetDescriptor(p_array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR_v1, h_array: CUarray) {
        let shape = known(h_array)?.shape;
        put(p_array_descriptor, CUDA_ARRAY_DESCRIPTOR_v1 {
            Width: shape.extent[0] as c_uint,
            Height: shape.extent[1] as c_uint,
            Format: shape.format,
            NumChannels: shape.channels,
        })
    }

    fn cuArrayGetDescriptor_v2(p_array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR, h_array: CUarray) {
        let shape = known(h_array)?.shape;
        put(p_array_descriptor, CUDA_ARRAY_DESCRIPTOR {
            Width: shape.extent[0] as usize,
            Height: shape.extent[1] as usize,
            Format: shape.format,
            NumChannels: shape.channels,
        })
    }

    fn cuArray3DGetDescriptor(p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v1, h_array: CUarray) {
        let shape = known(h_array)?.shape;
        put(p_array_descriptor, CUDA_ARRAY3D_DESCRIPTOR_v1 {
            Width: shape.extent[0] as c_uint,
            Height: shape.extent[1] as c_uint,
            Depth: shape.extent[2] as c_uint,
            Format: shape.format,
            NumChannels: shape.channels,
            Flags: shape.flags,
        })
    }

    fn cuArray3DGetDescriptor_v2(p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, h_array: CUarray) {
        let shape = known(h_array)?.shape;
        put(p_array_descriptor, CUDA_ARRAY3D_DESCRIPTOR {
            Width: shape.extent[0] as usize,
            Height: shape.extent[1] as usize,
            Depth: shape.extent[2] as usize,
            Format: shape.format,
            NumChannels: shape.channels,
            Flags: shape.flags,
        })
    }

    fn cuArrayDestroy(h_array: CUarray) {
        let array = known(h_array)?;
        check_unsafe_call()?;
        // A level belongs to its mipmapped array (the code is from memory).
        if array.is_level {
            return Err(CUerror::INVALID_HANDLE);
        }
        wait_for(array.device);
        ARRAYS.remove(h_array).map(drop)
    }

    fn cuMipmappedArrayCreate(
        p_handle: *mut CUmipmappedArray,
        p_mipmapped_array_desc: *const CUDA_ARRAY3D_DESCRIPTOR,
        num_mipmap_levels: c_uint,
    ) {
        needed(p_handle)?;
        let said = p_mipmapped_array_desc.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let context = current::get_sound()?;
        check_unsafe_call()?;
        put(p_handle, arrays::create_mipmap(&context, shape_of(said), num_mipmap_levels)? as CUmipmappedArray)
    }

    fn cuMipmappedArrayGetLevel(p_level_array: *mut CUarray, h_mipmapped_array: CUmipmappedArray, level: c_uint) {
        needed(p_level_array)?;
        current::get_sound()?;
        put(p_level_array, arrays::level_of(&*MIPMAPS.get(h_mipmapped_array)?, level)? as CUarray)
    }

    fn cuMipmappedArrayDestroy(h_mipmapped_array: CUmipmappedArray) {
        current::get_sound()?;
        let device = MIPMAPS.get(h_mipmapped_array)?.device;
        check_unsafe_call()?;
        wait_for(device);
        arrays::remove_mipmap(h_mipmapped_array).map(drop)
    }

    // No simulated format has planes.
    fn cuArrayGetPlane(p_plane_array: *mut CUarray, h_array: CUarray, plane_idx: c_uint) {
        let _ = plane_idx;
        needed(p_plane_array)?;
        known(h_array)?;
        Err(CUerror::INVALID_VALUE)
    }

    // Only arrays whose memory is mapped later have requirements, and only sparse ones have these properties.
    fn cuArrayGetMemoryRequirements(
        memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        array: CUarray,
        device: CUdevice,
    ) {
        needed(memory_requirements)?;
        driver()?.index(device)?;
        known(array)?;
        Err(CUerror::INVALID_VALUE)
    }

    fn cuMipmappedArrayGetMemoryRequirements(
        memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        mipmap: CUmipmappedArray,
        device: CUdevice,
    ) {
        needed(memory_requirements)?;
        driver()?.index(device)?;
        MIPMAPS.get(mipmap)?;
        Err(CUerror::INVALID_VALUE)
    }

    fn cuArrayGetSparseProperties(sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray) {
        needed(sparse_properties)?;
        known(array)?;
        Err(CUerror::INVALID_VALUE)
    }

    fn cuMipmappedArrayGetSparseProperties(
        sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
        mipmap: CUmipmappedArray,
    ) {
        needed(sparse_properties)?;
        MIPMAPS.get(mipmap)?;
        Err(CUerror::INVALID_VALUE)
    }
}

fn shape_of(said: &CUDA_ARRAY3D_DESCRIPTOR) -> Shape {
    Shape {
        extent: [said.Width as u64, said.Height as u64, said.Depth as u64],
        format: said.Format,
        channels: said.NumChannels,
        flags: said.Flags,
    }
}

/// # Safety
/// `place` is null or valid for writing.
unsafe fn create(place: *mut CUarray, shape: Shape) -> CUresult {
    needed(place)?;
    let context = current::get_sound()?;
    check_unsafe_call()?;
    // SAFETY: the caller's promise.
    unsafe { put(place, arrays::create(&context, shape)? as CUarray) }
}

/// The array of a handle, in a thread with a sound context.
fn known(handle: CUarray) -> Result<Arc<Array>> {
    current::get_sound()?;
    ARRAYS.get(handle)
}

/// Work of the device may still use the memory.
fn wait_for(device: usize) {
    of_device(device).iter().for_each(|context| context.queue.wait_all());
}
