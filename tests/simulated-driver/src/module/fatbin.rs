//! Fat binaries: a header, then entries, each with its own header, with code for one architecture.
//!
//! The layout is that which `fatbinary` of CUDA 10 to 13 writes; it is not documented, and what stands here was
//! read off its output. Payloads are PTX text or ELF files, as they are or compressed by LZ4 or Zstandard.
//! Chooses nothing; see `image.rs`.

use std::borrow::Cow;
use std::io::Read as _;

use turnus_bindings::CUerror;

use crate::space::Result;

/// First word of the wrapper that compilers emit: magic, version, pointer to the fat binary.
pub const WRAPPER: u32 = 0x4662_43b1;
/// First word of a fat binary.
pub const MAGIC: u32 = 0xba55_ed50;
/// Bytes that tell how long the whole is.
pub const HEADER_BYTES_MIN: usize = 16;

const ENTRY_HEADER_BYTES_MIN: usize = 48;
/// With this many, a header says how long a compressed payload is and becomes.
const ENTRY_HEADER_BYTES_COMPRESSED: usize = 64;
const KIND_PTX: u64 = 1;
const KIND_ELF: u64 = 2;
const COMPRESSED_LZ4: u64 = 0x2000;
const COMPRESSED_ZSTANDARD: u64 = 0x8000;
/// Another compression, of toolkits before 11.
const COMPRESSED_OTHERWISE: u64 = 0x1000;
/// More than any payload becomes; a header that says more is damaged.
const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PTX text.
    Ptx,
    /// Machine code as an ELF file.
    Cubin,
    /// Something else: intermediate code of the linker, for instance.
    Other,
}

/// One entry, its payload as it stands.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// What it holds.
    pub kind: Kind,
    /// `10 * major + minor` of the compute capability that it is for.
    pub architecture: u32,
    header: &'a [u8],
    payload: &'a [u8],
}

/// Bytes of the fat binary whose first [`HEADER_BYTES_MIN`] bytes these are.
pub fn length(header: &[u8]) -> Result<usize> {
    if header.len() < HEADER_BYTES_MIN || number(header, 0, 4) != u64::from(MAGIC) {
        return Err(CUerror::INVALID_IMAGE);
    }
    let total = number(header, 6, 2).checked_add(number(header, 8, 8)).ok_or(CUerror::INVALID_IMAGE)?;
    usize::try_from(total).ok().filter(|total| *total >= HEADER_BYTES_MIN).ok_or(CUerror::INVALID_IMAGE)
}

/// The entries of a whole fat binary.
pub fn entries(bytes: &[u8]) -> Result<Vec<Entry<'_>>> {
    let mut at = number(bytes, 6, 2) as usize;
    let mut found = Vec::new();
    while at + ENTRY_HEADER_BYTES_MIN <= bytes.len() {
        let rest = &bytes[at..];
        let header_bytes = number(rest, 4, 4) as usize;
        let payload_bytes = number(rest, 8, 8) as usize;
        let end = header_bytes.checked_add(payload_bytes).filter(|end| *end <= rest.len());
        let (Some(end), true) = (end, header_bytes >= ENTRY_HEADER_BYTES_MIN) else {
            return Err(CUerror::INVALID_IMAGE);
        };
        let kind = match number(rest, 0, 2) {
            KIND_PTX => Kind::Ptx,
            KIND_ELF => Kind::Cubin,
            _ => Kind::Other,
        };
        let (header, payload) = (&rest[..header_bytes], &rest[header_bytes..end]);
        found.push(Entry { kind, architecture: number(rest, 28, 4) as u32, header, payload });
        at += end;
    }
    Ok(found)
}

impl<'a> Entry<'a> {
    /// The payload, decompressed if need be.
    ///
    /// Errors: `INVALID_IMAGE` when it is damaged, `NO_BINARY_FOR_GPU` for a compression that is not known.
    pub fn content(&self) -> Result<Cow<'a, [u8]>> {
        let flags = number(self.header, 40, 8);
        if flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTANDARD | COMPRESSED_OTHERWISE) == 0 {
            return Ok(Cow::Borrowed(self.payload));
        }
        if flags & COMPRESSED_OTHERWISE != 0 {
            return Err(CUerror::NO_BINARY_FOR_GPU);
        }
        if self.header.len() < ENTRY_HEADER_BYTES_COMPRESSED {
            return Err(CUerror::INVALID_IMAGE);
        }
        let (packed, whole) = (number(self.header, 16, 4) as usize, number(self.header, 56, 8) as usize);
        let packed = self.payload.get(..packed).ok_or(CUerror::INVALID_IMAGE)?;
        if whole > PAYLOAD_BYTES_MAX {
            return Err(CUerror::INVALID_IMAGE);
        }
        let content = if flags & COMPRESSED_LZ4 != 0 {
            lz4_flex::block::decompress(packed, whole).map_err(|_| CUerror::INVALID_IMAGE)?
        } else {
            let mut content = Vec::new();
            let decoder =
                ruzstd::decoding::StreamingDecoder::new(packed).map_err(|_| CUerror::INVALID_IMAGE)?;
            // One byte more than promised is enough to see that the promise is wrong.
            decoder.take(whole as u64 + 1).read_to_end(&mut content).map_err(|_| CUerror::INVALID_IMAGE)?;
            content
        };
        if content.len() == whole { Ok(Cow::Owned(content)) } else { Err(CUerror::INVALID_IMAGE) }
    }
}

/// A little-endian number of `length` bytes at `offset`; both lie within the header that was checked.
fn number(bytes: &[u8], offset: usize, length: usize) -> u64 {
    bytes[offset..offset + length].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
