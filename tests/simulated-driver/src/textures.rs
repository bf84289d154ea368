//! Texture and surface objects, and texture references: what they are made of, checked as documented.
//!
//! CUDA driver API, "Texture Object Management", "Surface Object Management", "Texture Reference Management". They
//! belong to the context in which they were made. How kernels read through them: `sampling.rs`.

use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use crate::arrays::{ARRAYS, MIPMAPS, Shape, element_bytes};
use crate::copying::device_memory;
use crate::device::attributes;
use crate::driver::driver;
use crate::registry::Registry;
use crate::space::Result;

/// Attributes: alignment of addresses and pitches; most elements of linear memory; width, height and pitch of
/// pitched memory.
const ALIGNMENT: u32 = 14;
const PITCH_ALIGNMENT: u32 = 51;
const LINEAR_WIDTH: u32 = 69;
const PITCHED_WIDTH: u32 = 70;
const PITCHED_HEIGHT: u32 = 71;
const PITCHED_PITCH: u32 = 72;

const KNOWN_FLAGS: u32 = CU_TRSF_READ_AS_INTEGER
    | CU_TRSF_NORMALIZED_COORDINATES
    | CU_TRSF_SRGB
    | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION
    | CU_TRSF_SEAMLESS_CUBEMAP;

/// All texture objects.
pub static TEXTURES: Registry<Arc<Texture>> = Registry::new(14);
/// All surface objects.
pub static SURFACES: Registry<Arc<Surface>> = Registry::new(15);
/// All texture references.
pub static REFERENCES: Registry<Arc<Reference>> = Registry::new(16);

/// A texture object.
pub struct Texture {
    /// What it reads.
    pub resource: CUDA_RESOURCE_DESC,
    /// How.
    pub sampling: CUDA_TEXTURE_DESC,
    /// Seen as what, if that was said.
    pub view: Option<CUDA_RESOURCE_VIEW_DESC>,
    /// The context it belongs to.
    pub context: u64,
}

/// A surface object.
pub struct Surface {
    /// What it reads and writes.
    pub resource: CUDA_RESOURCE_DESC,
    /// The context it belongs to.
    pub context: u64,
}

/// A texture reference.
pub struct Reference {
    /// The context it belongs to.
    pub context: u64,
    /// What was set.
    pub state: Mutex<ReferenceState>,
}

/// What can be set of a texture reference.
pub struct ReferenceState {
    /// The array it reads.
    pub array: CUarray,
    /// The mipmapped array it reads.
    pub mipmap: CUmipmappedArray,
    /// The linear memory it reads.
    pub address: CUdeviceptr,
    /// Of a component.
    pub format: CUarray_format,
    /// Components of an element.
    pub channels: u32,
    /// How it reads; also the flags.
    pub sampling: CUDA_TEXTURE_DESC,
}

macro_rules! only_values {
    ($($type:ty)*) => {$(
        // SAFETY: the handles and addresses inside are values; nothing follows them.
        unsafe impl Send for $type {}
        // SAFETY: as above.
        unsafe impl Sync for $type {}
    )*};
}
only_values! { Texture Surface ReferenceState }

/// What a resource turns out to be.
pub enum Resource {
    /// An array, or a mipmapped one with true.
    Array(Shape, bool),
    /// Linear memory.
    Linear,
    /// Pitched memory.
    Pitched,
}

fn limit(device: usize, attribute: u32) -> Result<usize> {
    let value = attributes::get(&driver()?.arena.devices()[device], attribute);
    Ok(value.and_then(|value| usize::try_from(value).ok()).unwrap_or(0))
}

fn check(allowed: bool) -> Result<()> {
    if allowed { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}

/// The rules for `CUDA_RESOURCE_DESC`.
pub fn check_resource(resource: &CUDA_RESOURCE_DESC, device: usize) -> Result<Resource> {
    check(resource.flags == 0)?;
    let invalid = |_| CUerror::INVALID_VALUE;
    // SAFETY: the member read is that which the type names; all are plain values.
    unsafe {
        match resource.resType {
            CU_RESOURCE_TYPE_ARRAY => {
                let array = ARRAYS.get(resource.res.array.hArray).map_err(invalid)?;
                Ok(Resource::Array(array.shape, false))
            }
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                let mipmap = MIPMAPS.get(resource.res.mipmap.hMipmappedArray).map_err(invalid)?;
                Ok(Resource::Array(mipmap.shape, true))
            }
            CU_RESOURCE_TYPE_LINEAR => {
                let linear = resource.res.linear;
                let element = element_bytes(linear.format, linear.numChannels)? as usize;
                let fits = linear.sizeInBytes / element <= limit(device, LINEAR_WIDTH)?;
                check(fits && linear.devPtr.is_multiple_of(limit(device, ALIGNMENT)? as u64))?;
                device_memory(linear.devPtr, linear.sizeInBytes as u64)?;
                Ok(Resource::Linear)
            }
            CU_RESOURCE_TYPE_PITCH2D => {
                let pitched = resource.res.pitch2D;
                let row = element_bytes(pitched.format, pitched.numChannels)? as usize * pitched.width;
                let (width, height) = (limit(device, PITCHED_WIDTH)?, limit(device, PITCHED_HEIGHT)?);
                let (pitch, unit) = (limit(device, PITCHED_PITCH)?, limit(device, PITCH_ALIGNMENT)?);
                check((1..=width).contains(&pitched.width) && (1..=height).contains(&pitched.height))?;
                check(pitched.pitchInBytes >= row && pitched.pitchInBytes <= pitch)?;
                check(pitched.pitchInBytes.is_multiple_of(unit))?;
                check(pitched.devPtr.is_multiple_of(limit(device, ALIGNMENT)? as u64))?;
                let bytes = (pitched.height - 1) * pitched.pitchInBytes + row;
                device_memory(pitched.devPtr, bytes as u64)?;
                Ok(Resource::Pitched)
            }
            _ => Err(CUerror::INVALID_VALUE),
        }
    }
}

/// The rules for `CUDA_TEXTURE_DESC`; the anisotropy is cut to what there is.
pub fn check_sampling(sampling: &mut CUDA_TEXTURE_DESC, resource: &Resource) -> Result<()> {
    let has = |flag: u32| sampling.flags & flag != 0;
    check(sampling.flags & !KNOWN_FLAGS == 0 && sampling.reserved == [0; 12])?;
    check(sampling.addressMode.iter().all(|mode| mode.0 <= CU_TR_ADDRESS_MODE_BORDER.0))?;
    check(sampling.filterMode.0 <= 1 && sampling.mipmapFilterMode.0 <= 1)?;
    if let Resource::Array(shape, mipmapped) = resource {
        // Mipmapped arrays need normalised coordinates.
        check(!mipmapped || has(CU_TRSF_NORMALIZED_COORDINATES))?;
        check(!has(CU_TRSF_SEAMLESS_CUBEMAP) || shape.flags & CUDA_ARRAY3D_CUBEMAP != 0)?;
    } else {
        check(!has(CU_TRSF_SEAMLESS_CUBEMAP))?;
    }
    sampling.maxAnisotropy = sampling.maxAnisotropy.clamp(1, 16);
    Ok(())
}

/// The rules for `CUDA_RESOURCE_VIEW_DESC`, for views that are not block-compressed.
pub fn check_view(view: &CUDA_RESOURCE_VIEW_DESC, resource: &Resource) -> Result<()> {
    let Resource::Array(shape, mipmapped) = resource else { return Err(CUerror::INVALID_VALUE) };
    // From the first block-compressed format on.
    if view.format.0 >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1.0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let same = shape.extent == [view.width as u64, view.height as u64, view.depth as u64];
    check(same && view.firstMipmapLevel <= view.lastMipmapLevel && view.firstLayer <= view.lastLayer)?;
    check(*mipmapped || view.lastMipmapLevel == 0)?;
    let layered = shape.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
    check(if layered { u64::from(view.lastLayer) < shape.extent[2] } else { view.lastLayer == 0 })
}

/// The rules for the resource of a surface: an array that was made for it.
pub fn check_surface(resource: &CUDA_RESOURCE_DESC, device: usize) -> Result<()> {
    check(resource.resType == CU_RESOURCE_TYPE_ARRAY)?;
    match check_resource(resource, device)? {
        Resource::Array(shape, _) => check(shape.flags & CUDA_ARRAY3D_SURFACE_LDST != 0),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

impl Default for ReferenceState {
    fn default() -> Self {
        // SAFETY: all-zero is a valid value.
        let mut sampling: CUDA_TEXTURE_DESC = unsafe { std::mem::zeroed() };
        sampling.maxAnisotropy = 1;
        ReferenceState {
            array: std::ptr::null_mut(),
            mipmap: std::ptr::null_mut(),
            address: 0,
            format: CU_AD_FORMAT_FLOAT,
            channels: 1,
            sampling,
        }
    }
}

/// The context is gone: so is what belongs to it.
pub fn forget_all_of(context: u64) {
    drop(TEXTURES.remove_where(|texture| texture.context == context));
    drop(SURFACES.remove_where(|surface| surface.context == context));
    drop(REFERENCES.remove_where(|reference| reference.context == context));
}
