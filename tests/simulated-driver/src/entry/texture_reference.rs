//! Texture references, the old way to textures: CUDA driver API, "Texture Reference Management" (deprecated).
//!
//! They keep what is set and tell it. No kernel reads through them: code with references does not load, and so
//! no module has any.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put, put_if_wanted};
use crate::arrays::{ARRAYS, MIPMAPS, element_bytes};
use crate::context::current;
use crate::copying::device_memory;
use crate::device::attributes;
use crate::driver::driver;
use crate::module::MODULES;
use crate::space::Result;
use crate::textures::{REFERENCES, Reference, ReferenceState};

/// Attribute: alignment of the addresses of textures.
const ALIGNMENT: u32 = 14;
/// `CU_TRSA_OVERRIDE_FORMAT`, which setting an array needs.
const OVERRIDE_FORMAT: u32 = 1;

/// `cuTexRefSet...`: the reference, one value, how it is kept.
macro_rules! setters {
    ($($name:ident($argument:ident: $type:ty, |$state:ident| $set:expr);)*) => {
        entry! {$(
            fn $name(h_tex_ref: CUtexref, $argument: $type) {
                change(h_tex_ref, |$state| $set)
            }
        )*}
    };
}

/// `cuTexRefGet...`: where to, the reference, the value.
macro_rules! getters {
    ($($name:ident($type:ty, |$state:ident| $get:expr);)*) => {
        entry! {$(
            fn $name(place: *mut $type, h_tex_ref: CUtexref) {
                needed(place)?;
                let reference = reference(h_tex_ref)?;
                let $state = reference.state.lock();
                put(place, $get)
            }
        )*}
    };
}

setters! {
    cuTexRefSetFlags(flags: c_uint, |state| {
        state.sampling.flags = flags;
        Ok(())
    });
    cuTexRefSetFilterMode(mode: CUfilter_mode, |state| {
        state.sampling.filterMode = filter(mode)?;
        Ok(())
    });
    cuTexRefSetMipmapFilterMode(mode: CUfilter_mode, |state| {
        state.sampling.mipmapFilterMode = filter(mode)?;
        Ok(())
    });
    cuTexRefSetMipmapLevelBias(bias: f32, |state| {
        state.sampling.mipmapLevelBias = bias;
        Ok(())
    });
    cuTexRefSetMaxAnisotropy(most: c_uint, |state| {
        state.sampling.maxAnisotropy = most.clamp(1, 16);
        Ok(())
    });
}

getters! {
    cuTexRefGetFlags(c_uint, |state| state.sampling.flags);
    cuTexRefGetFilterMode(CUfilter_mode, |state| state.sampling.filterMode);
    cuTexRefGetMipmapFilterMode(CUfilter_mode, |state| state.sampling.mipmapFilterMode);
    cuTexRefGetMipmapLevelBias(f32, |state| state.sampling.mipmapLevelBias);
    cuTexRefGetMaxAnisotropy(c_int, |state| state.sampling.maxAnisotropy as c_int);
    cuTexRefGetAddress_v2(CUdeviceptr, |state| bound(state.address != 0, state.address)?);
    cuTexRefGetArray(CUarray, |state| bound(!state.array.is_null(), state.array)?);
    cuTexRefGetMipmappedArray(CUmipmappedArray, |state| bound(!state.mipmap.is_null(), state.mipmap)?);
}

entry! {
    fn cuTexRefCreate(p_tex_ref: *mut CUtexref) {
        needed(p_tex_ref)?;
        let context = current::get_sound()?.id();
        let state = Mutex::new(ReferenceState::default());
        put(p_tex_ref, REFERENCES.add(Arc::new(Reference { context, state })) as CUtexref)
    }

    fn cuTexRefDestroy(h_tex_ref: CUtexref) {
        current::get_sound()?;
        REFERENCES.remove(h_tex_ref).map(drop).map_err(|_| CUerror::INVALID_VALUE)
    }

    fn cuTexRefSetArray(h_tex_ref: CUtexref, h_array: CUarray, flags: c_uint) {
        let shape = ARRAYS.get(h_array).map_err(|_| CUerror::INVALID_VALUE)?.shape;
        check(flags == OVERRIDE_FORMAT)?;
        change(h_tex_ref, |state| {
            unbind(state);
            (state.array, state.format, state.channels) = (h_array, shape.format, shape.channels);
            Ok(())
        })
    }

    fn cuTexRefSetMipmappedArray(h_tex_ref: CUtexref, h_mipmapped_array: CUmipmappedArray, flags: c_uint) {
        let shape = MIPMAPS.get(h_mipmapped_array).map_err(|_| CUerror::INVALID_VALUE)?.shape;
        check(flags == OVERRIDE_FORMAT)?;
        change(h_tex_ref, |state| {
            unbind(state);
            (state.mipmap, state.format, state.channels) = (h_mipmapped_array, shape.format, shape.channels);
            Ok(())
        })
    }

    fn cuTexRefSetAddress_v2(byte_offset: *mut usize, h_tex_ref: CUtexref, dptr: CUdeviceptr, bytes: usize) {
        device_memory(dptr, bytes as u64)?;
        let offset = dptr % alignment()?;
        // Without a place for the offset the address has to be aligned.
        check(offset == 0 || !byte_offset.is_null())?;
        change(h_tex_ref, |state| {
            unbind(state);
            state.address = dptr;
            Ok(())
        })?;
        put_if_wanted(byte_offset, offset as usize);
        Ok(())
    }

    fn cuTexRefSetAddress2D_v2(
        h_tex_ref: CUtexref,
        desc: *const CUDA_ARRAY_DESCRIPTOR,
        dptr: CUdeviceptr,
        pitch: usize,
    ) {
        set_pitched(h_tex_ref, desc, dptr, pitch)
    }

    fn cuTexRefSetAddress2D_v3(
        h_tex_ref: CUtexref,
        desc: *const CUDA_ARRAY_DESCRIPTOR,
        dptr: CUdeviceptr,
        pitch: usize,
    ) {
        set_pitched(h_tex_ref, desc, dptr, pitch)
    }

    fn cuTexRefSetFormat(h_tex_ref: CUtexref, fmt: CUarray_format, num_packed_components: c_int) {
        let channels = num_packed_components as u32;
        element_bytes(fmt, channels)?;
        change(h_tex_ref, |state| {
            (state.format, state.channels) = (fmt, channels);
            Ok(())
        })
    }

    fn cuTexRefGetFormat(p_format: *mut CUarray_format, p_num_channels: *mut c_int, h_tex_ref: CUtexref) {
        let reference = reference(h_tex_ref)?;
        let state = reference.state.lock();
        put_if_wanted(p_format, state.format);
        put_if_wanted(p_num_channels, state.channels as c_int);
        Ok(())
    }

    fn cuTexRefSetAddressMode(h_tex_ref: CUtexref, dim: c_int, am: CUaddress_mode) {
        check((0..3).contains(&dim) && am.0 <= CU_TR_ADDRESS_MODE_BORDER.0)?;
        change(h_tex_ref, |state| {
            state.sampling.addressMode[dim as usize] = am;
            Ok(())
        })
    }

    fn cuTexRefGetAddressMode(pam: *mut CUaddress_mode, h_tex_ref: CUtexref, dim: c_int) {
        check((0..3).contains(&dim))?;
        let reference = reference(h_tex_ref)?;
        let mode = reference.state.lock().sampling.addressMode[dim as usize];
        put(pam, mode)
    }

    fn cuTexRefSetMipmapLevelClamp(h_tex_ref: CUtexref, min_mipmap_level_clamp: f32, max_mipmap_level_clamp: f32) {
        change(h_tex_ref, |state| {
            state.sampling.minMipmapLevelClamp = min_mipmap_level_clamp;
            state.sampling.maxMipmapLevelClamp = max_mipmap_level_clamp;
            Ok(())
        })
    }

    fn cuTexRefGetMipmapLevelClamp(
        pmin_mipmap_level_clamp: *mut f32,
        pmax_mipmap_level_clamp: *mut f32,
        h_tex_ref: CUtexref,
    ) {
        let reference = reference(h_tex_ref)?;
        let state = reference.state.lock();
        put(pmin_mipmap_level_clamp, state.sampling.minMipmapLevelClamp)?;
        put(pmax_mipmap_level_clamp, state.sampling.maxMipmapLevelClamp)
    }

    fn cuTexRefSetBorderColor(h_tex_ref: CUtexref, p_border_color: *mut f32) {
        needed(p_border_color)?;
        let color = p_border_color.cast::<[f32; 4]>().read();
        change(h_tex_ref, |state| {
            state.sampling.borderColor = color;
            Ok(())
        })
    }

    fn cuTexRefGetBorderColor(p_border_color: *mut f32, h_tex_ref: CUtexref) {
        needed(p_border_color)?;
        let color = reference(h_tex_ref)?.state.lock().sampling.borderColor;
        put(p_border_color.cast(), color)
    }

    fn cuModuleGetTexRef(p_tex_ref: *mut CUtexref, hmod: CUmodule, name: *const c_char) {
        needed(p_tex_ref)?;
        needed(name)?;
        MODULES.get(hmod)?;
        Err(CUerror::NOT_FOUND)
    }

    fn cuModuleGetSurfRef(p_surf_ref: *mut CUsurfref, hmod: CUmodule, name: *const c_char) {
        needed(p_surf_ref)?;
        needed(name)?;
        MODULES.get(hmod)?;
        Err(CUerror::NOT_FOUND)
    }
}

fn check(allowed: bool) -> Result<()> {
    if allowed { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}

fn filter(mode: CUfilter_mode) -> Result<CUfilter_mode> {
    check(mode.0 <= 1).map(|()| mode)
}

/// What the reference is bound to, if it is that.
fn bound<T>(is: bool, value: T) -> Result<T> {
    check(is).map(|()| value)
}

fn alignment() -> Result<u64> {
    let context = current::get_sound()?;
    Ok(attributes::get(&driver()?.arena.devices()[context.device], ALIGNMENT).unwrap_or(1) as u64)
}

fn reference(handle: CUtexref) -> Result<Arc<Reference>> {
    current::get_sound()?;
    REFERENCES.get(handle).map_err(|_| CUerror::INVALID_VALUE)
}

fn change(handle: CUtexref, change: impl FnOnce(&mut ReferenceState) -> CUresult) -> CUresult {
    let reference = reference(handle)?;
    let mut state = reference.state.lock();
    change(&mut state)
}

/// What was bound before is not any more.
fn unbind(state: &mut ReferenceState) {
    (state.array, state.mipmap, state.address) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
}

/// # Safety
/// As `cuTexRefSetAddress2D`.
unsafe fn set_pitched(
    handle: CUtexref,
    description: *const CUDA_ARRAY_DESCRIPTOR,
    address: CUdeviceptr,
    pitch: usize,
) -> CUresult {
    // SAFETY: the caller's promise.
    let said = unsafe { description.as_ref() }.ok_or(CUerror::INVALID_VALUE)?;
    let row = element_bytes(said.Format, said.NumChannels)? as usize * said.Width;
    check(said.Height > 0 && row > 0 && pitch >= row && address.is_multiple_of(alignment()?))?;
    device_memory(address, ((said.Height - 1) * pitch + row) as u64)?;
    change(handle, |state| {
        unbind(state);
        (state.address, state.format, state.channels) = (address, said.Format, said.NumChannels);
        Ok(())
    })
}
