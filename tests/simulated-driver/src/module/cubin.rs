//! Machine code: which kernels and variables an ELF file of the CUDA compiler has.
//!
//! The code itself is never read. What a launch has to know (parameters, shared memory, most threads) and the
//! variables with their contents become a PTX text with empty kernels, so that everything that handles PTX
//! handles it too; `builtin.rs` decides what the kernels do. The section names and the records of `.nv.info`
//! are not documented; they were read off cubins of CUDA 10 to 13.

use std::fmt::Write as _;

use object::read::elf::{ElfFile64, FileHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolFlags, SymbolKind};
use turnus_bindings::CUerror;

use crate::space::Result;

/// First word of an ELF file.
pub const MAGIC: u32 = 0x464c_457f;
/// Bytes of an ELF64 header.
pub const HEADER_BYTES: usize = 64;

const MACHINE_CUDA: u16 = 190;
/// `st_other`: the function is a kernel.
const ENTRY: u8 = 0x10;
/// From this ABI version on, the architecture stands in another byte of the flags.
const ABI_WITH_WIDE_FLAGS: u8 = 8;

/// A record of `.nv.info.<kernel>`: format, attribute, value.
const SIZED: u8 = 4;
const SHORT: u8 = 3;
const PARAMETER: u8 = 0x17;
const PARAMETER_BYTES: u8 = 0x19;
const THREADS_MAX: u8 = 0x05;
const THREADS_REQUIRED: u8 = 0x10;

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// What a cubin is and has.
#[derive(Debug)]
pub struct Cubin {
    /// `10 * major + minor` of the compute capability that it is for.
    pub architecture: u32,
    /// Names of the kernels.
    pub kernels: Vec<String>,
    /// The same kernels with empty bodies, and the variables.
    pub text: String,
}

/// Bytes of the ELF file that begins with this header.
pub fn length(header: &[u8; HEADER_BYTES]) -> Result<usize> {
    let number = |at: usize, bytes: usize| {
        header[at..at + bytes].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte))
    };
    let table = |offset: u64, size: u64, count: u64| size.checked_mul(count)?.checked_add(offset);
    let sections = table(number(40, 8), number(58, 2), number(60, 2));
    let segments = table(number(32, 8), number(54, 2), number(56, 2));
    // The tables come last in what the compiler writes.
    let end = sections.max(segments).ok_or(CUerror::INVALID_IMAGE)?;
    usize::try_from(end)
        .ok()
        .filter(|end| (HEADER_BYTES..1 << 32).contains(end))
        .ok_or(CUerror::INVALID_IMAGE)
}

/// Reads a whole cubin.
pub fn read(bytes: &[u8]) -> Result<Cubin> {
    let damaged = |_: object::Error| CUerror::INVALID_IMAGE;
    let file = Elf::parse(bytes).map_err(damaged)?;
    let header = file.elf_header();
    if header.e_machine(LittleEndian) != MACHINE_CUDA || file.sections().next().is_none() {
        return Err(CUerror::INVALID_IMAGE);
    }
    let flags = header.e_flags(LittleEndian);
    let wide = header.e_ident().abi_version >= ABI_WITH_WIDE_FLAGS;
    let architecture = if wide { flags >> 8 & 0xff } else { flags & 0xff };
    let mut text = format!(".version 8.0\n.target sm_{architecture}\n.address_size 64\n");
    let mut kernels = Vec::new();
    for symbol in file.symbols() {
        let Ok(name) = symbol.name() else { continue };
        match symbol.kind() {
            SymbolKind::Data => declare_variable(&mut text, &file, &symbol)?,
            _ if is_kernel(symbol.flags()) => {
                declare_kernel(&mut text, &file, name)?;
                kernels.push(name.to_owned());
            }
            _ => {}
        }
    }
    Ok(Cubin { architecture, kernels, text })
}

fn is_kernel(flags: SymbolFlags<object::SectionIndex, object::SymbolIndex>) -> bool {
    let SymbolFlags::Elf { st_info, st_other } = flags else { return false };
    st_info & 0xf == object::elf::STT_FUNC && st_other & ENTRY != 0
}

/// Variables in global and constant memory; those of the compiler have no symbol.
fn declare_variable<'a>(
    text: &mut String,
    file: &Elf<'a>,
    symbol: &impl object::ObjectSymbol<'a>,
) -> Result<()> {
    let damaged = |_: object::Error| CUerror::INVALID_IMAGE;
    let Some(index) = symbol.section_index() else { return Ok(()) };
    let section = file.section_by_index(index).map_err(damaged)?;
    let (name, place) = (symbol.name().map_err(damaged)?, section.name().map_err(damaged)?);
    let space = match place {
        ".nv.constant3" => "const",
        _ if place.starts_with(".nv.global") => "global",
        _ => return Ok(()),
    };
    let align = section.align().clamp(1, 256);
    let _ = write!(text, ".visible .{space} .align {align} .b8 {name}[{}]", symbol.size().max(1));
    let data = section.data().map_err(damaged)?;
    if !data.is_empty() {
        let start = symbol.address() as usize;
        let end = start.checked_add(symbol.size() as usize).ok_or(CUerror::INVALID_IMAGE)?;
        let bytes = data.get(start..end).ok_or(CUerror::INVALID_IMAGE)?;
        let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
        if !numbers.is_empty() {
            let _ = write!(text, " = {{{}}}", numbers.join(","));
        }
    }
    text.push_str(";\n");
    Ok(())
}

/// What is known of a kernel, as far as a launch needs it.
#[derive(Debug, Default)]
struct Facts {
    /// Ordinal, offset, size in bytes.
    parameters: Vec<(u32, u64, u64)>,
    parameter_bytes: u64,
    threads_max: Option<[u32; 3]>,
    threads_required: Option<[u32; 3]>,
}

fn declare_kernel(text: &mut String, file: &Elf<'_>, name: &str) -> Result<()> {
    let info = file.section_by_name(&format!(".nv.info.{name}"));
    let facts = match info {
        Some(section) => facts(section.data().map_err(|_| CUerror::INVALID_IMAGE)?)?,
        None => Facts::default(),
    };
    let shared = file.section_by_name(&format!(".nv.shared.{name}")).map_or(0, |section| section.size());
    let _ = writeln!(text, ".visible .entry {name}(");
    let parameters: Vec<String> = layout(&facts)?
        .iter()
        .enumerate()
        .map(|(index, (align, bytes))| format!(".param .align {align} .b8 {name}_param_{index}[{bytes}]"))
        .collect();
    let _ = writeln!(text, "{})", parameters.join(",\n"));
    for (directive, threads) in [("maxntid", facts.threads_max), ("reqntid", facts.threads_required)] {
        if let Some([x, y, z]) = threads {
            let _ = writeln!(text, ".{directive} {x}, {y}, {z}");
        }
    }
    text.push_str("{\n");
    if shared > 0 {
        let _ = writeln!(text, ".shared .align 16 .b8 shared_of_kernel[{shared}];");
    }
    text.push_str("ret;\n}\n");
    Ok(())
}

/// Alignment and size of each parameter, so that they come to lie at their offsets. Of a type's alignment the
/// cubin says nothing; the largest that the offset allows is as good.
fn layout(facts: &Facts) -> Result<Vec<(u64, u64)>> {
    let mut parameters = facts.parameters.clone();
    parameters.sort_unstable();
    let mut end = 0u64;
    let mut placed = Vec::new();
    for (_, offset, bytes) in parameters {
        let align = if offset == 0 { 16 } else { (1 << offset.trailing_zeros()).min(16) };
        if offset < end || end.next_multiple_of(align) != offset || bytes == 0 {
            return Err(CUerror::INVALID_IMAGE);
        }
        placed.push((align, bytes));
        end = offset + bytes;
    }
    if placed.is_empty() && facts.parameter_bytes > 0 {
        placed.push((8, facts.parameter_bytes));
    }
    Ok(placed)
}

/// The records of `.nv.info.<kernel>`.
fn facts(mut records: &[u8]) -> Result<Facts> {
    let mut facts = Facts::default();
    while let [format, attribute, low, high, rest @ ..] = records {
        let short = u16::from_le_bytes([*low, *high]);
        let bytes = if *format == SIZED { usize::from(short) } else { 0 };
        let value = rest.get(..bytes).ok_or(CUerror::INVALID_IMAGE)?;
        records = &rest[bytes..];
        let word = |index: usize| {
            let bytes = value.get(4 * index..4 * index + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let three = || Some([word(0)?, word(1)?, word(2)?]);
        match (*format, *attribute) {
            (SHORT, PARAMETER_BYTES) => facts.parameter_bytes = short.into(),
            (SIZED, THREADS_MAX) => facts.threads_max = three(),
            (SIZED, THREADS_REQUIRED) => facts.threads_required = three(),
            (SIZED, PARAMETER) => {
                let (Some(place), Some(size)) = (word(1), word(2)) else {
                    return Err(CUerror::INVALID_IMAGE);
                };
                facts.parameters.push((place & 0xffff, u64::from(place >> 16), u64::from(size >> 18)));
            }
            _ => {}
        }
    }
    Ok(facts)
}
