//! Arrays: opaque memory with a format and up to three dimensions, and arrays of ever smaller levels.
//!
//! CUDA driver API, `cuArray3DCreate` and `cuMipmappedArrayCreate`. The layout is rows without gaps, layers behind
//! one another, levels each at a multiple of 512 bytes; no program can see it. Copies: `entry/copy_shapes.rs`.

use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use crate::context::Context;
use crate::device::attributes;
use crate::driver::driver;
use crate::registry::Registry;
use crate::space::{ArrayMemory, Result};

const LEVEL_ALIGNMENT_BYTES: u64 = 512;
const KNOWN_FLAGS: u32 = CUDA_ARRAY3D_LAYERED
    | CUDA_ARRAY3D_SURFACE_LDST
    | CUDA_ARRAY3D_CUBEMAP
    | CUDA_ARRAY3D_TEXTURE_GATHER
    | CUDA_ARRAY3D_DEPTH_TEXTURE
    | CUDA_ARRAY3D_COLOR_ATTACHMENT
    | CUDA_ARRAY3D_SPARSE
    | CUDA_ARRAY3D_DEFERRED_MAPPING
    | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
const NOT_SIMULATED: u32 = CUDA_ARRAY3D_DEPTH_TEXTURE
    | CUDA_ARRAY3D_COLOR_ATTACHMENT
    | CUDA_ARRAY3D_SPARSE
    | CUDA_ARRAY3D_DEFERRED_MAPPING
    | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;

/// All arrays that programs know, levels of mipmapped ones too.
pub static ARRAYS: Registry<Arc<Array>> = Registry::new(12);
/// All mipmapped arrays.
pub static MIPMAPS: Registry<Arc<Mipmap>> = Registry::new(13);

/// An array.
#[derive(Debug)]
pub struct Array {
    /// Its handle.
    pub handle: usize,
    /// What it was made of; height and depth may be 0.
    pub shape: Shape,
    /// The context it belongs to.
    pub context: u64,
    /// The device.
    pub device: usize,
    /// Where its first byte lies.
    pub base: u64,
    /// A level of a mipmapped array, which goes with that.
    pub is_level: bool,
    /// Keeps the bytes.
    _memory: Arc<ArrayMemory>,
}

/// An array with levels.
#[derive(Debug)]
pub struct Mipmap {
    /// What level 0 is made of.
    pub shape: Shape,
    /// The context it belongs to.
    pub context: u64,
    /// The device.
    pub device: usize,
    /// Levels, with the offset of each.
    levels: Vec<(Shape, u64)>,
    handles: Mutex<Vec<Option<usize>>>,
    memory: Arc<ArrayMemory>,
}

/// Format and extent.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// In elements; height and depth are 0 where there is no such dimension.
    pub extent: [u64; 3],
    /// Of a component.
    pub format: CUarray_format,
    /// Components of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_...`.
    pub flags: u32,
}

/// Bytes of a component; 0 for formats that are not simulated, an error for what is no format.
fn component_bytes(format: CUarray_format, channels: u32) -> Result<u64> {
    // The normalised formats name their number of components, in groups of three.
    let with_channels = |bytes: u64, first: CUarray_format| {
        let named = [1, 2, 4][(format.0 - first.0) as usize % 3];
        if channels == named { Ok(bytes) } else { Err(CUerror::INVALID_VALUE) }
    };
    match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => Ok(1),
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => Ok(2),
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => Ok(4),
        CU_AD_FORMAT_UNORM_INT8X1
        | CU_AD_FORMAT_UNORM_INT8X2
        | CU_AD_FORMAT_UNORM_INT8X4
        | CU_AD_FORMAT_SNORM_INT8X1
        | CU_AD_FORMAT_SNORM_INT8X2
        | CU_AD_FORMAT_SNORM_INT8X4 => with_channels(1, CU_AD_FORMAT_UNORM_INT8X1),
        CU_AD_FORMAT_UNORM_INT16X1
        | CU_AD_FORMAT_UNORM_INT16X2
        | CU_AD_FORMAT_UNORM_INT16X4
        | CU_AD_FORMAT_SNORM_INT16X1
        | CU_AD_FORMAT_SNORM_INT16X2
        | CU_AD_FORMAT_SNORM_INT16X4 => with_channels(2, CU_AD_FORMAT_UNORM_INT16X1),
        // Block-compressed and planar formats.
        CUarray_format_enum(0x80..=0xff) => Err(CUerror::NOT_SUPPORTED),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Bytes of an element of this format.
pub fn element_bytes(format: CUarray_format, channels: u32) -> Result<u64> {
    if !matches!(channels, 1 | 2 | 4) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(component_bytes(format, channels)? * u64::from(channels))
}

impl Shape {
    /// Bytes of an element.
    pub fn element_bytes(&self) -> u64 {
        // The format was checked when the array was made.
        element_bytes(self.format, self.channels).unwrap_or(1)
    }

    /// Extent with 1 for dimensions that are not there.
    pub fn full_extent(&self) -> [u64; 3] {
        self.extent.map(|length| length.max(1))
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.extent[0] * self.element_bytes()
    }

    /// Bytes of a slice or layer.
    pub fn slice_bytes(&self) -> u64 {
        self.row_bytes() * self.full_extent()[1]
    }

    /// Bytes of everything.
    pub fn bytes(&self) -> u64 {
        self.slice_bytes() * self.full_extent()[2]
    }

    /// The shape of a level of a mipmapped array with this one as level 0.
    fn level(&self, level: u32) -> Shape {
        let halved = |length: u64| if length == 0 { 0 } else { (length >> level).max(1) };
        let [width, height, depth] = self.extent;
        let layers = self.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
        Shape { extent: [halved(width), halved(height), if layers { depth } else { halved(depth) }], ..*self }
    }

    /// The rules of `cuArray3DCreate`.
    fn check(&self, device: usize) -> Result<()> {
        let invalid = Err(CUerror::INVALID_VALUE);
        let [width, height, depth] = self.extent;
        let has = |flag: u32| self.flags & flag != 0;
        if width == 0 || self.flags & !KNOWN_FLAGS != 0 {
            return invalid;
        }
        element_bytes(self.format, self.channels)?;
        if has(NOT_SIMULATED) {
            return Err(CUerror::NOT_SUPPORTED);
        }
        let (layered, cube) = (has(CUDA_ARRAY3D_LAYERED), has(CUDA_ARRAY3D_CUBEMAP));
        if cube && (width != height || if layered { depth == 0 || depth % 6 != 0 } else { depth != 6 }) {
            return invalid;
        }
        if !cube && (layered && depth == 0 || !layered && depth > 0 && height == 0) {
            return invalid;
        }
        if has(CUDA_ARRAY3D_TEXTURE_GATHER) && (height == 0 || depth != 0 || layered || cube) {
            return invalid;
        }
        self.check_limits(device, layered, cube)
    }

    /// The table of limits in `cuArray3DCreate`: numbers of device attributes for each kind.
    fn check_limits(&self, device: usize, layered: bool, cube: bool) -> Result<()> {
        let [_, height, depth] = self.extent;
        let surface = self.flags & CUDA_ARRAY3D_SURFACE_LDST != 0;
        let gather = self.flags & CUDA_ARRAY3D_TEXTURE_GATHER != 0;
        let alternatives: &[[Option<u32>; 3]] = match (cube, layered, height > 0, depth > 0) {
            (true, true, ..) if surface => &[[Some(67), Some(67), Some(68)]],
            (true, true, ..) => &[[Some(53), Some(53), Some(54)]],
            (true, false, ..) if surface => &[[Some(66), Some(66), None]],
            (true, false, ..) => &[[Some(52), Some(52), None]],
            (_, true, true, _) if surface => &[[Some(63), Some(64), Some(65)]],
            (_, true, true, _) => &[[Some(27), Some(28), Some(29)]],
            (_, true, false, _) if surface => &[[Some(61), None, Some(62)]],
            (_, true, false, _) => &[[Some(42), None, Some(43)]],
            (_, _, _, true) if surface => &[[Some(58), Some(59), Some(60)]],
            (_, _, _, true) => &[[Some(24), Some(25), Some(26)], [Some(47), Some(48), Some(49)]],
            (_, _, true, _) if surface => &[[Some(56), Some(57), None]],
            (_, _, true, _) if gather => &[[Some(45), Some(46), None]],
            (_, _, true, _) => &[[Some(22), Some(23), None]],
            _ if surface => &[[Some(55), None, None]],
            _ => &[[Some(21), None, None]],
        };
        let device = &driver()?.arena.devices()[device];
        let within = |(length, limit): (&u64, &Option<u32>)| match limit {
            Some(number) => *length <= attributes::get(device, *number).unwrap_or(0) as u64,
            None => true,
        };
        let fits = |limits: &[Option<u32>; 3]| self.extent.iter().zip(limits).all(within);
        if alternatives.iter().any(fits) { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
    }
}

/// Makes an array; returns its handle.
pub fn create(context: &Context, shape: Shape) -> Result<usize> {
    shape.check(context.device)?;
    let memory = ArrayMemory::allocate(&driver()?.space, context.id(), context.device, shape.bytes())?;
    let array = Array {
        handle: ARRAYS.new_handle(),
        shape,
        context: context.id(),
        device: context.device,
        base: memory.base,
        is_level: false,
        _memory: Arc::new(memory),
    };
    let handle = array.handle;
    ARRAYS.put(handle, Arc::new(array));
    Ok(handle)
}

/// Makes a mipmapped array; returns its handle. The number of levels is cut to what the extent allows.
pub fn create_mipmap(context: &Context, shape: Shape, levels: u32) -> Result<usize> {
    shape.check(context.device)?;
    let layers = shape.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
    let counted = if layers { &shape.extent[..2] } else { &shape.extent[..] };
    let longest = counted.iter().copied().max().unwrap_or(1);
    let mut bytes = 0;
    let levels: Vec<(Shape, u64)> = (0..levels.clamp(1, longest.ilog2() + 1))
        .map(|number| {
            let (level, offset) = (shape.level(number), bytes);
            bytes += level.bytes().next_multiple_of(LEVEL_ALIGNMENT_BYTES);
            (level, offset)
        })
        .collect();
    let memory = ArrayMemory::allocate(&driver()?.space, context.id(), context.device, bytes)?;
    let handles = Mutex::new(vec![None; levels.len()]);
    let (id, device) = (context.id(), context.device);
    Ok(MIPMAPS.add(Arc::new(Mipmap {
        shape,
        context: id,
        device,
        levels,
        handles,
        memory: Arc::new(memory),
    })))
}

/// The array that a level is (`cuMipmappedArrayGetLevel`); the same one each time.
pub fn level_of(mipmap: &Mipmap, level: u32) -> Result<usize> {
    let (shape, offset) = *mipmap.levels.get(level as usize).ok_or(CUerror::INVALID_VALUE)?;
    let mut handles = mipmap.handles.lock();
    if let Some(handle) = handles[level as usize] {
        return Ok(handle);
    }
    let handle = ARRAYS.new_handle();
    handles[level as usize] = Some(handle);
    ARRAYS.put(
        handle,
        Arc::new(Array {
            handle,
            shape,
            context: mipmap.context,
            device: mipmap.device,
            base: mipmap.memory.base + offset,
            is_level: true,
            _memory: Arc::clone(&mipmap.memory),
        }),
    );
    Ok(handle)
}

/// Takes a mipmapped array and its levels out; the memory goes with what is returned.
pub fn remove_mipmap(handle: CUmipmappedArray) -> Result<Arc<Mipmap>> {
    let gone = MIPMAPS.remove(handle)?;
    for level in gone.handles.lock().iter().flatten() {
        drop(ARRAYS.remove(*level as CUarray));
    }
    Ok(gone)
}

/// The array whose bytes lie at a device address.
pub fn at_address(address: u64) -> Option<Arc<Array>> {
    let inside = |array: &Arc<Array>| address.wrapping_sub(array.base) < array.shape.bytes();
    ARRAYS.all().into_iter().find(inside)
}

/// The context is gone: so are its arrays.
pub fn forget_all_of(context: u64) {
    drop(MIPMAPS.remove_where(|mipmap| mipmap.context == context));
    drop(ARRAYS.remove_where(|array| array.context == context));
}
