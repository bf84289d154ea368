//! What a program hands over as code: PTX text, a fat binary with PTX in it, or machine code that cannot run.
//!
//! Fat binaries: a wrapper (`FATBIN_WRAPPER`) points to a header, which is followed by entries, each with its
//! own header. Compressed entries and cubins are skipped; the layout is that which `fatbinary` of the CUDA
//! toolkit writes.

use std::borrow::Cow;
use std::ffi::{CStr, c_void};

use turnus_bindings::CUerror;

use crate::space::Result;

const ELF: u32 = 0x464c_457f;
const FATBIN_WRAPPER: u32 = 0x4662_43b1;
const FATBIN: u32 = 0xba55_ed50;
const FATBIN_HEADER_BYTES_MIN: usize = 16;
const ENTRY_HEADER_BYTES_MIN: usize = 48;
const KIND_PTX: u16 = 1;
/// Flags of an entry: compressed by LZ4 in one of two forms, or by Zstandard.
const COMPRESSED: u64 = 0x1000 | 0x2000 | 0x8000;

/// The PTX text of an image.
///
/// Errors: `NO_BINARY_FOR_GPU` when there is machine code or compressed PTX only, `INVALID_IMAGE` for
/// anything else.
///
/// # Safety
/// `image` is what `cuModuleLoadData` takes: a zero-terminated text, a cubin or a fat binary, whole.
pub unsafe fn ptx_text<'a>(image: *const c_void) -> Result<Cow<'a, str>> {
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
                Ok(String::from_utf8_lossy(text))
            } else {
                Err(CUerror::INVALID_IMAGE)
            };
        }
        match image.cast::<u32>().read_unaligned() {
            ELF => Err(CUerror::NO_BINARY_FOR_GPU),
            FATBIN_WRAPPER => {
                let data = image.byte_add(8).cast::<*const c_void>().read_unaligned();
                if data.is_null() { Err(CUerror::INVALID_IMAGE) } else { from_fatbin(data) }
            }
            FATBIN => from_fatbin(image),
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
unsafe fn from_fatbin<'a>(data: *const c_void) -> Result<Cow<'a, str>> {
    // SAFETY: a header of at least 16 bytes is there; it says how long the whole is.
    let bytes: &'a [u8] = unsafe {
        let header = std::slice::from_raw_parts(data.cast::<u8>(), FATBIN_HEADER_BYTES_MIN);
        if number(header, 0, 4) != u64::from(FATBIN) {
            return Err(CUerror::INVALID_IMAGE);
        }
        let total = number(header, 6, 2) + number(header, 8, 8);
        std::slice::from_raw_parts(data.cast(), usize::try_from(total).map_err(|_| CUerror::INVALID_IMAGE)?)
    };
    let mut at = number(bytes, 6, 2) as usize;
    let mut newest: Option<(u64, &[u8])> = None;
    while at + ENTRY_HEADER_BYTES_MIN <= bytes.len() {
        let entry = &bytes[at..];
        let header_bytes = number(entry, 4, 4) as usize;
        let payload_bytes = number(entry, 8, 8) as usize;
        let Some(payload) =
            header_bytes.checked_add(payload_bytes).and_then(|end| entry.get(header_bytes..end))
        else {
            return Err(CUerror::INVALID_IMAGE);
        };
        let (architecture, flags) = (number(entry, 28, 4), number(entry, 40, 8));
        let usable = number(entry, 0, 2) as u16 == KIND_PTX && flags & COMPRESSED == 0;
        if usable && newest.is_none_or(|(best, _)| architecture > best) {
            newest = Some((architecture, payload));
        }
        at += header_bytes + payload_bytes;
    }
    let (_, payload) = newest.ok_or(CUerror::NO_BINARY_FOR_GPU)?;
    let text = payload.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text))
}

/// A little-endian number of `length` bytes at `offset`; both lie within the header that was checked.
fn number(bytes: &[u8], offset: usize, length: usize) -> u64 {
    bytes[offset..offset + length].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
