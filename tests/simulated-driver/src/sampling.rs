//! What kernels read through textures, and do to surfaces: the texel that coordinates name, as the driver made it.
//!
//! Point reads of linear, pitched and array memory, in all address modes. What is not simulated (filtering, sRGB,
//! levels, views) ends the kernel and says so on stderr. Rules: CUDA C++ programming guide, "Texture Fetching".

use std::sync::Arc;

use turnus_bindings::types::*;
use turnus_simulated_ptx::{Coordinates, DeviceMemory, Fault, Fetch, Geometry, Outside, SurfaceAccess};

use crate::arrays::{ARRAYS, Array, element_bytes};
use crate::textures::{SURFACES, TEXTURES, Texture};

/// Memory with texels in it.
struct Source {
    base: u64,
    format: CUarray_format,
    channels: u32,
    /// Texels by dimension; the last is slices or layers.
    extent: [u64; 3],
    row_bytes: u64,
    slice_bytes: u64,
}

fn of_array(array: &Array) -> Source {
    let shape = &array.shape;
    Source {
        base: array.base,
        format: shape.format,
        channels: shape.channels,
        extent: shape.full_extent(),
        row_bytes: shape.row_bytes(),
        slice_bytes: shape.slice_bytes(),
    }
}

fn refused(object: u64, what: &str) -> Fault {
    eprintln!("simulated driver: a kernel uses {what}, which is not simulated");
    Fault { address: object }
}

/// One read through a texture object.
pub fn fetch(memory: &mut dyn DeviceMemory, fetch: &Fetch) -> Result<[u32; 4], Fault> {
    let fault = Fault { address: fetch.object };
    let texture: Arc<Texture> = TEXTURES.get(fetch.object as *mut ()).map_err(|_| fault)?;
    let sampling = &texture.sampling;
    if sampling.flags & CU_TRSF_SRGB != 0 {
        return Err(refused(fetch.object, "an sRGB texture"));
    }
    if texture.view.is_some() {
        return Err(refused(fetch.object, "a texture with a view"));
    }
    let resource = &texture.resource;
    // SAFETY: the member read is that which the type names; all are plain values.
    let source = unsafe {
        match resource.resType {
            CU_RESOURCE_TYPE_ARRAY => of_array(&*ARRAYS.get(resource.res.array.hArray).map_err(|_| fault)?),
            CU_RESOURCE_TYPE_LINEAR => {
                let linear = resource.res.linear;
                let element = element_bytes(linear.format, linear.numChannels).map_err(|_| fault)?;
                let row_bytes = linear.sizeInBytes as u64;
                let (format, channels) = (linear.format, linear.numChannels);
                let extent = [row_bytes / element, 1, 1];
                Source { base: linear.devPtr, format, channels, extent, row_bytes, slice_bytes: row_bytes }
            }
            CU_RESOURCE_TYPE_PITCH2D => {
                let pitched = resource.res.pitch2D;
                let (width, height) = (pitched.width as u64, pitched.height as u64);
                let row_bytes = pitched.pitchInBytes as u64;
                Source {
                    base: pitched.devPtr,
                    format: pitched.format,
                    channels: pitched.numChannels,
                    extent: [width, height, 1],
                    row_bytes,
                    slice_bytes: row_bytes * height,
                }
            }
            _ => return Err(refused(fetch.object, "a mipmapped texture")),
        }
    };
    let is_linear = resource.resType == CU_RESOURCE_TYPE_LINEAR;
    if sampling.filterMode != CU_TR_FILTER_MODE_POINT && !is_linear {
        return Err(refused(fetch.object, "a filtered texture"));
    }
    match place(&source, sampling, fetch, is_linear) {
        Some(address) => texel(memory, &source, sampling, address),
        None if is_linear => Ok([0; 4]),
        None => Ok(sampling.borderColor.map(f32::to_bits)),
    }
}

/// The address of a texel; none beyond linear memory or a border.
fn place(source: &Source, sampling: &CUDA_TEXTURE_DESC, fetch: &Fetch, is_linear: bool) -> Option<u64> {
    let dimensions = match fetch.geometry {
        Geometry::Line | Geometry::Lines => 1,
        Geometry::Plane | Geometry::Planes => 2,
        Geometry::Solid => 3,
    };
    let mut at = [0; 3];
    for (dimension, place) in at.iter_mut().enumerate().take(dimensions) {
        let (length, mode) = (source.extent[dimension], sampling.addressMode[dimension]);
        *place = match fetch.at {
            Coordinates::Whole(at) if is_linear => {
                u64::try_from(at[dimension]).ok().filter(|place| *place < length)?
            }
            Coordinates::Whole(at) => inside(f64::from(at[dimension]), length, mode, false)?,
            Coordinates::Real(at) => {
                let normalised = sampling.flags & CU_TRSF_NORMALIZED_COORDINATES != 0;
                inside(f64::from(at[dimension]), length, mode, normalised)?
            }
        };
    }
    if matches!(fetch.geometry, Geometry::Lines | Geometry::Planes) {
        // Layers are clamped (programming guide, "Layered Textures").
        at[2] = u64::from(fetch.layer).min(source.extent[2] - 1);
    }
    let element = element_bytes(source.format, source.channels).ok()?;
    Some(source.base + at[2] * source.slice_bytes + at[1] * source.row_bytes + at[0] * element)
}

/// A coordinate as a place of the dimension, by its address mode; none beyond a border. Without normalised
/// coordinates there is only clamping and the border.
fn inside(at: f64, length: u64, mode: CUaddress_mode, normalised: bool) -> Option<u64> {
    let last = (length - 1) as f64;
    let scaled = match mode {
        _ if !normalised => at,
        CU_TR_ADDRESS_MODE_WRAP => (at - at.floor()) * length as f64,
        CU_TR_ADDRESS_MODE_MIRROR => {
            let part = at - at.floor();
            let mirrored = if at.floor().rem_euclid(2.0) == 0.0 { part } else { 1.0 - part };
            mirrored * length as f64
        }
        _ => at * length as f64,
    };
    let whole = scaled.floor();
    if mode == CU_TR_ADDRESS_MODE_BORDER && !(0.0..=last).contains(&whole) {
        return None;
    }
    // What is no number goes to 0, as casts do.
    Some(whole.clamp(0.0, last) as u64)
}

/// The four components at an address; those that the format lacks are 0.
fn texel(
    memory: &mut dyn DeviceMemory,
    source: &Source,
    sampling: &CUDA_TEXTURE_DESC,
    address: u64,
) -> Result<[u32; 4], Fault> {
    let fault = Fault { address };
    let bytes = element_bytes(source.format, source.channels).map_err(|_| fault)? as usize;
    let mut found = [0; 16];
    memory.load(address, &mut found[..bytes])?;
    let as_integer = sampling.flags & CU_TRSF_READ_AS_INTEGER != 0;
    let mut components = [0; 4];
    let width = bytes / source.channels as usize;
    for (component, part) in components.iter_mut().zip(found[..bytes].chunks(width)) {
        let mut word = [0; 4];
        word[..width].copy_from_slice(part);
        *component = converted(source.format, u32::from_le_bytes(word), as_integer);
    }
    Ok(components)
}

fn converted(format: CUarray_format, bits: u32, as_integer: bool) -> u32 {
    let signed = |width: u32| ((bits << (32 - width)) as i32) >> (32 - width);
    let real = |value: f32| value.to_bits();
    match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_UNSIGNED_INT16 if as_integer => bits,
        CU_AD_FORMAT_SIGNED_INT8 if as_integer => signed(8) as u32,
        CU_AD_FORMAT_SIGNED_INT16 if as_integer => signed(16) as u32,
        CU_AD_FORMAT_UNSIGNED_INT8 => real(bits as f32 / 255.0),
        CU_AD_FORMAT_UNSIGNED_INT16 => real(bits as f32 / 65535.0),
        CU_AD_FORMAT_SIGNED_INT8 => real((signed(8) as f32 / 127.0).max(-1.0)),
        CU_AD_FORMAT_SIGNED_INT16 => real((signed(16) as f32 / 32767.0).max(-1.0)),
        CU_AD_FORMAT_HALF => real(half(bits)),
        CU_AD_FORMAT_UNORM_INT8X1 | CU_AD_FORMAT_UNORM_INT8X2 | CU_AD_FORMAT_UNORM_INT8X4 => {
            real(bits as f32 / 255.0)
        }
        CU_AD_FORMAT_UNORM_INT16X1 | CU_AD_FORMAT_UNORM_INT16X2 | CU_AD_FORMAT_UNORM_INT16X4 => {
            real(bits as f32 / 65535.0)
        }
        CU_AD_FORMAT_SNORM_INT8X1 | CU_AD_FORMAT_SNORM_INT8X2 | CU_AD_FORMAT_SNORM_INT8X4 => {
            real((signed(8) as f32 / 127.0).max(-1.0))
        }
        CU_AD_FORMAT_SNORM_INT16X1 | CU_AD_FORMAT_SNORM_INT16X2 | CU_AD_FORMAT_SNORM_INT16X4 => {
            real((signed(16) as f32 / 32767.0).max(-1.0))
        }
        // 32 bits are read as they are.
        _ => bits,
    }
}

/// A half-precision number.
fn half(bits: u32) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = ((bits >> 10 & 31) as i32, (bits & 0x3ff) as f32);
    match exponent {
        0 => sign * fraction * 2.0_f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * 2.0_f32.powi(exponent - 15),
    }
}

/// The address of a surface access of so many bytes; none for a place outside that is to be ignored.
fn surface_place(access: &SurfaceAccess, bytes: u64) -> Result<Option<u64>, Fault> {
    let fault = Fault { address: access.object };
    let surface = SURFACES.get(access.object as *mut ()).map_err(|_| fault)?;
    // SAFETY: a surface is of an array.
    let array = unsafe { surface.resource.res.array.hArray };
    let source = of_array(&*ARRAYS.get(array).map_err(|_| fault)?);
    let [x, y, z] = access.at.map(i64::from);
    let (y, z) = match access.geometry {
        Geometry::Line => (0, 0),
        Geometry::Lines => (0, i64::from(access.layer)),
        Geometry::Plane => (y, 0),
        Geometry::Planes => (y, i64::from(access.layer)),
        Geometry::Solid => (y, z),
    };
    let last = [source.row_bytes.saturating_sub(bytes), source.extent[1] - 1, source.extent[2] - 1];
    let within = [x, y, z].iter().zip(&last).all(|(at, last)| (0..=*last as i64).contains(at));
    let place = match access.outside {
        _ if within && bytes <= source.row_bytes => [x, y, z],
        Outside::Zero => return Ok(None),
        Outside::Clamp => {
            [x.clamp(0, last[0] as i64), y.clamp(0, last[1] as i64), z.clamp(0, last[2] as i64)]
        }
        Outside::Trap => return Err(fault),
    };
    let [x, y, z] = place.map(|at| at as u64);
    if !x.is_multiple_of(bytes) {
        return Err(fault);
    }
    Ok(Some(source.base + z * source.slice_bytes + y * source.row_bytes + x))
}

/// Reads bytes of a surface.
pub fn load_surface(
    memory: &mut dyn DeviceMemory,
    access: &SurfaceAccess,
    bytes: &mut [u8],
) -> Result<(), Fault> {
    match surface_place(access, bytes.len() as u64)? {
        Some(address) => memory.load(address, bytes),
        None => {
            bytes.fill(0);
            Ok(())
        }
    }
}

/// Writes bytes to a surface.
pub fn store_surface(
    memory: &mut dyn DeviceMemory,
    access: &SurfaceAccess,
    bytes: &[u8],
) -> Result<(), Fault> {
    match surface_place(access, bytes.len() as u64)? {
        Some(address) => memory.store(address, bytes),
        None => Ok(()),
    }
}
