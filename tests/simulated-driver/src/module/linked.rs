//! The image that linking makes: an ELF file for the device, with the linked texts in a section of its own.
//!
//! It looks like machine code to those who look at the head of a file only, and `image.rs` knows it by its
//! section. Texts are linked again when it is loaded. Read next: `link.rs`.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _};
use turnus_bindings::CUerror;
use turnus_simulated_ptx as ptx;

use super::cubin::{self, HEADER_BYTES};
use super::{builtin, jit};
use crate::space::Result;

const SECTION: &str = ".simulated_driver.linked";
const SECTION_HEADER_BYTES: u64 = 64;
/// Kinds of inputs.
const TEXT: u8 = 0;
/// See `TEXT`.
const CUBIN: u8 = 1;

/// One input of a link.
#[derive(Clone, Debug)]
pub enum Input {
    /// PTX, with its name.
    Text(String, String),
    /// Machine code.
    Cubin(Vec<u8>),
}

/// What is linked, as texts.
pub fn texts(inputs: &[Input]) -> Vec<ptx::Input<'_>> {
    let texts = inputs.iter().filter_map(|input| match input {
        Input::Text(name, text) => Some(ptx::Input { name, text }),
        Input::Cubin(_) => None,
    });
    texts.collect()
}

/// Links the inputs into one module.
///
/// # Safety
/// The log's buffers are valid.
pub unsafe fn module_of(inputs: &[Input], log: &jit::Log) -> Result<ptx::Module> {
    let mut module = ptx::Module::link(&texts(inputs)).map_err(|error| {
        // SAFETY: the caller's promise.
        unsafe { log.report(&error.to_string()) };
        match error {
            ptx::LinkError::Input { .. } => CUerror::INVALID_PTX,
            ptx::LinkError::Conflict(_) => CUerror::INVALID_SOURCE,
            ptx::LinkError::Undefined(_) => CUerror::UNKNOWN,
        }
    })?;
    for input in inputs {
        if let Input::Cubin(bytes) = input {
            // SAFETY: the caller's promise.
            module.merge(unsafe { builtin::module_of(&cubin::read(bytes)?, log)? });
        }
    }
    Ok(module)
}

/// The image of linked inputs.
pub fn pack(inputs: &[Input], architecture: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    for input in inputs {
        let (kind, parts): (u8, [&[u8]; 2]) = match input {
            Input::Text(name, text) => (TEXT, [name.as_bytes(), text.as_bytes()]),
            Input::Cubin(bytes) => (CUBIN, [&[], bytes]),
        };
        payload.push(kind);
        for part in parts {
            payload.extend((part.len() as u64).to_le_bytes());
            payload.extend(part);
        }
    }
    let names = format!("\0{SECTION}\0.shstrtab\0").into_bytes();
    let names_at = HEADER_BYTES + payload.len();
    let table_at = (names_at + names.len()).next_multiple_of(8);
    let mut image = header(table_at as u64, architecture);
    image.extend(&payload);
    image.extend(&names);
    image.resize(table_at, 0);
    image.extend(section(0, 0, 0, 0));
    image.extend(section(1, object::elf::SHT_PROGBITS, HEADER_BYTES as u64, payload.len() as u64));
    let own_name = 2 + SECTION.len() as u32;
    image.extend(section(own_name, object::elf::SHT_STRTAB, names_at as u64, names.len() as u64));
    image
}

/// An ELF64 header with a table of three sections, the last with their names.
fn header(table_at: u64, architecture: u32) -> Vec<u8> {
    const MACHINE_CUDA: u16 = 190;
    const ABI_CUDA: u8 = 51;
    const ABI_VERSION: u8 = 7;
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, ABI_CUDA, ABI_VERSION];
    bytes.resize(16, 0);
    bytes.extend(2u16.to_le_bytes());
    bytes.extend(MACHINE_CUDA.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(table_at.to_le_bytes());
    bytes.extend(architecture.to_le_bytes());
    for number in [HEADER_BYTES as u16, 0, 0, SECTION_HEADER_BYTES as u16, 3, 2] {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

fn section(name: u32, kind: u32, offset: u64, bytes: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(name.to_le_bytes());
    out.extend(kind.to_le_bytes());
    for number in [0, 0, offset, bytes] {
        out.extend(u64::to_le_bytes(number));
    }
    out.extend([0; 8]);
    for number in [1, 0] {
        out.extend(u64::to_le_bytes(number));
    }
    out
}

/// The inputs of an image that `pack` made, or `None` for any other file.
pub fn unpack(image: &[u8]) -> Result<Option<Vec<Input>>> {
    let damaged = |_: object::Error| CUerror::INVALID_IMAGE;
    let file = ElfFile64::<LittleEndian>::parse(image).map_err(damaged)?;
    let Some(section) = file.section_by_name(SECTION) else { return Ok(None) };
    let mut rest = section.data().map_err(damaged)?;
    let mut inputs = Vec::new();
    while let Some((kind, behind)) = rest.split_first() {
        rest = behind;
        let name = part(&mut rest)?;
        let content = part(&mut rest)?;
        inputs.push(match *kind {
            TEXT => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Input::Text(text(name), text(content))
            }
            CUBIN => Input::Cubin(content.to_vec()),
            _ => return Err(CUerror::INVALID_IMAGE),
        });
    }
    Ok(Some(inputs))
}

/// A length and as many bytes.
fn part<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<8>().ok_or(CUerror::INVALID_IMAGE)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| CUerror::INVALID_IMAGE)?;
    let (found, behind) = behind.split_at_checked(length).ok_or(CUerror::INVALID_IMAGE)?;
    *rest = behind;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_holds_what_was_linked() {
        let inputs = [Input::Text("a".into(), "text of a".into()), Input::Cubin(vec![1, 2, 3])];
        let image = pack(&inputs, 86);
        let head: &[u8; HEADER_BYTES] = image.first_chunk().expect("a header");
        assert_eq!(cubin::length(head), Ok(image.len()));
        assert_eq!(cubin::read(&image).expect("an ELF file of the device").architecture, 86);
        let found = unpack(&image).expect("whole").expect("its own");
        assert!(matches!(&found[..], [Input::Text(name, text), Input::Cubin(bytes)]
            if name == "a" && text == "text of a" && bytes == &[1, 2, 3]));
        for length in 0..image.len() {
            assert!(!matches!(unpack(&image[..length]), Ok(Some(_))), "cut off at {length}");
        }
    }
}
