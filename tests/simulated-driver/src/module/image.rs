//! What a program hands over as code: PTX text, machine code, or a fat binary with several of them.
//!
//! Of a fat binary the newest PTX that the device can run is taken; only if there is none, the newest machine
//! code for it. A card prefers the machine code, but here only PTX can be executed, and both are compiled from
//! one source. `fatbin.rs` and `cubin.rs` have the formats, `builtin.rs` what machine code does.

use std::borrow::Cow;
use std::ffi::{CStr, c_void};

use turnus_bindings::CUerror;
use turnus_simulated_ptx as ptx;

use super::fatbin::{self, Entry, Kind};
use super::{builtin, compile, cubin, jit, link, linked};
use crate::space::Result;

/// What was found for a device.
#[derive(Debug)]
pub enum Image<'a> {
    /// PTX text.
    Ptx(Cow<'a, str>),
    /// Machine code, or what was linked here.
    Cubin(Cow<'a, [u8]>),
}

/// Compiles an image for a device of compute capability `(major, minor)`.
///
/// Errors: `NO_BINARY_FOR_GPU` when nothing in it is for this device or can be executed, `INVALID_PTX` when its
/// PTX cannot, `INVALID_IMAGE` for anything that is no image.
///
/// # Safety
/// `image` is what `cuModuleLoadData` takes: a zero-terminated text, a cubin or a fat binary, whole; the log's
/// buffers are valid.
pub unsafe fn module_of(image: *const c_void, capability: (u32, u32), log: &jit::Log) -> Result<ptx::Module> {
    // SAFETY: the caller's promise.
    unsafe {
        match find(image, capability)? {
            Image::Ptx(text) => compile(&text, capability, log),
            Image::Cubin(bytes) => {
                let cubin = cubin::read(&bytes)?;
                if !runs_on(cubin.architecture, capability) {
                    return Err(CUerror::NO_BINARY_FOR_GPU);
                }
                let module = match linked::unpack(&bytes)? {
                    Some(inputs) => linked::module_of(&inputs, log)?,
                    None => builtin::module_of(&cubin, log)?,
                };
                log.finish();
                Ok(module)
            }
        }
    }
}

/// The part of a cubin or fat binary in memory that is for a device of compute capability `(major, minor)`.
///
/// Errors: as `module_of`; `INVALID_IMAGE` also for one that is longer than `bytes`.
pub fn part_of(bytes: &[u8], capability: (u32, u32)) -> Result<Image<'_>> {
    match bytes.first_chunk().map(|first| u32::from_le_bytes(*first)) {
        Some(cubin::MAGIC) if link::holds_whole_cubin(bytes) => {
            let architecture = cubin::read(bytes)?.architecture;
            if runs_on(architecture, capability) {
                Ok(Image::Cubin(Cow::Borrowed(bytes)))
            } else {
                Err(CUerror::NO_BINARY_FOR_GPU)
            }
        }
        Some(fatbin::MAGIC) => {
            let length = fatbin::length(bytes)?;
            choose(bytes.get(..length).ok_or(CUerror::INVALID_IMAGE)?, capability)
        }
        _ => Err(CUerror::INVALID_IMAGE),
    }
}

/// Machine code runs on devices of its major version from its minor version on (CUDA C++ Programming Guide,
/// "Binary Compatibility").
fn runs_on(architecture: u32, (major, minor): (u32, u32)) -> bool {
    architecture / 10 == major && architecture % 10 <= minor
}

/// # Safety
/// As `module_of`.
unsafe fn find<'a>(image: *const c_void, capability: (u32, u32)) -> Result<Image<'a>> {
    if image.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the shortest image, an empty text, has one byte; the others are read only as far as the bytes
    // before say that there are more.
    unsafe {
        let first = image.cast::<u8>();
        if !matches!(*first, 0x7f | 0xb1 | 0x50) {
            let text = CStr::from_ptr(image.cast()).to_bytes();
            return if looks_like_text(text) {
                Ok(Image::Ptx(String::from_utf8_lossy(text)))
            } else {
                Err(CUerror::INVALID_IMAGE)
            };
        }
        match image.cast::<u32>().read_unaligned() {
            cubin::MAGIC => {
                let length = cubin::length(&*image.cast())?;
                Ok(Image::Cubin(Cow::Borrowed(std::slice::from_raw_parts(first, length))))
            }
            fatbin::WRAPPER => {
                let data = image.byte_add(8).cast::<*const c_void>().read_unaligned();
                if data.is_null() { Err(CUerror::INVALID_IMAGE) } else { choose(whole(data)?, capability) }
            }
            fatbin::MAGIC => choose(whole(image)?, capability),
            _ => Err(CUerror::INVALID_IMAGE),
        }
    }
}

/// A PTX text consists of printable characters and white space.
fn looks_like_text(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.iter().take(64).all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..))
}

/// # Safety
/// `data` is a whole fat binary.
unsafe fn whole<'a>(data: *const c_void) -> Result<&'a [u8]> {
    // SAFETY: a header of at least 16 bytes is there; it says how long the whole is.
    unsafe {
        let header = std::slice::from_raw_parts(data.cast::<u8>(), fatbin::HEADER_BYTES_MIN);
        Ok(std::slice::from_raw_parts(data.cast(), fatbin::length(header)?))
    }
}

fn choose<'a>(bytes: &'a [u8], capability: (u32, u32)) -> Result<Image<'a>> {
    let entries = fatbin::entries(bytes)?;
    let best = |kind: Kind, fits: &dyn Fn(u32) -> bool| -> Option<Entry<'a>> {
        let candidates = entries.iter().filter(|entry| entry.kind == kind && fits(entry.architecture));
        candidates.max_by_key(|entry| entry.architecture).copied()
    };
    let (major, minor) = capability;
    if let Some(entry) = best(Kind::Ptx, &|architecture| architecture <= 10 * major + minor) {
        let content = entry.content()?;
        let text = content.split(|&byte| byte == 0).next().unwrap_or_default();
        return Ok(Image::Ptx(Cow::Owned(String::from_utf8_lossy(text).into_owned())));
    }
    let entry = best(Kind::Cubin, &|architecture| runs_on(architecture, capability));
    Ok(Image::Cubin(entry.ok_or(CUerror::NO_BINARY_FOR_GPU)?.content()?))
}
