//! Places of parameters and variables, and the first bytes of module variables.
//!
//! Checks sizes before anything is allocated. Read next: `names.rs`, which uses the places.

use crate::error::Error;
use crate::module::{GlobalVariable, Parameter, Relocation};
use crate::syntax::{FunctionSyntax, Initial, Linkage, Operand, VariableSyntax};
use crate::types::{ScalarType, width_mask};

/// Most bytes of parameters (PTX ISA section 5.2.1, since 8.1).
pub(crate) const PARAMETER_LIMIT: u64 = 32_764;
/// Most bytes of shared memory that a block of any device can have.
pub(crate) const SHARED_LIMIT: u64 = 227 << 10;
/// Most bytes of local memory per thread.
pub(crate) const LOCAL_LIMIT: u64 = 512 << 10;
/// Most bytes of one module variable.
const GLOBAL_LIMIT: u64 = 1 << 40;

/// Puts `size` bytes behind `end`; answers the offset and the new end.
pub(crate) fn place(
    end: u64,
    size: Option<u64>,
    align: u64,
    what: &'static str,
    limit: u64,
    line: u32,
) -> Result<(u64, u64), Error> {
    let offset = end.next_multiple_of(align.max(1));
    match size.and_then(|size| offset.checked_add(size)) {
        Some(end) if end <= limit => Ok((offset, end)),
        _ => Err(Error::TooLarge { what, limit, line }),
    }
}

/// Offsets of an entry's parameters, and the bytes they take.
pub(crate) fn parameters(entry: &FunctionSyntax<'_>) -> Result<(Vec<Parameter>, u64), Error> {
    let mut found = Vec::with_capacity(entry.parameters.len());
    let mut end = 0;
    for parameter in &entry.parameters {
        let variable = &parameter.variable;
        if parameter.in_register || variable.element == ScalarType::Predicate {
            return Err(Error::syntax(variable.line, "an entry takes .param parameters of sized types"));
        }
        let size = variable.size();
        let (offset, next) =
            place(end, size, variable.align, "size of the parameters", PARAMETER_LIMIT, variable.line)?;
        end = next;
        found.push(Parameter {
            name: variable.name.to_owned(),
            offset,
            size: next - offset,
            align: variable.align,
        });
    }
    Ok((found, end))
}

/// A module variable as the driver has to allocate it.
pub(crate) fn global(variable: &VariableSyntax<'_>) -> Result<GlobalVariable, Error> {
    let mut extents = variable.extents.clone();
    if let (Some(0), Some(Initial::List(list))) = (extents.first(), &variable.initial) {
        extents[0] = list.len() as u64;
    }
    let element = variable.element.bytes() * variable.vector;
    let size = extents.iter().try_fold(element, |size, extent| size.checked_mul(*extent));
    let (_, size) = place(0, size, 1, "size of a variable", GLOBAL_LIMIT, variable.line)?;
    let mut found = GlobalVariable {
        name: variable.name.to_owned(),
        size,
        align: variable.align,
        is_constant: variable.is_constant,
        is_extern: variable.linkage == Linkage::Extern,
        initial: Vec::new(),
        relocations: Vec::new(),
    };
    if let Some(initial) = &variable.initial {
        if variable.vector > 1 {
            extents.push(variable.vector);
        }
        fill(&mut found, variable, initial, &extents, 0)?;
    }
    Ok(found)
}

/// Writes one value or list at `offset`; `extents` are those of the part that begins there.
fn fill(
    found: &mut GlobalVariable,
    variable: &VariableSyntax<'_>,
    initial: &Initial<'_>,
    extents: &[u64],
    offset: u64,
) -> Result<(), Error> {
    match initial {
        Initial::Value(value) => fill_value(found, variable, value, offset),
        Initial::List(list) => {
            let inner = extents.get(1..).unwrap_or_default();
            let stride =
                inner.iter().try_fold(variable.element.bytes(), |size, extent| size.checked_mul(*extent));
            for (position, part) in list.iter().enumerate() {
                let place =
                    stride.and_then(|stride| stride.checked_mul(position as u64)?.checked_add(offset));
                let place = place
                    .ok_or_else(|| Error::syntax(variable.line, "initial values beyond the variable"))?;
                fill(found, variable, part, inner, place)?;
            }
            Ok(())
        }
    }
}

fn fill_value(
    found: &mut GlobalVariable,
    variable: &VariableSyntax<'_>,
    value: &Operand<'_>,
    offset: u64,
) -> Result<(), Error> {
    let width = variable.element.bytes();
    if offset.checked_add(width).is_none_or(|end| end > found.size) {
        return Err(Error::syntax(variable.line, "initial values beyond the variable"));
    }
    let bits = match value {
        Operand::Name { name, component: None } => relocate(found, variable, name, 0, offset)?,
        Operand::Offset { name, offset: addend } => relocate(found, variable, name, *addend, offset)?,
        _ => literal(value, variable.element)
            .ok_or_else(|| Error::syntax(variable.line, "an initial value is a number or an address"))?,
    };
    let end = (offset + width) as usize;
    if found.initial.len() < end {
        found.initial.resize(end, 0);
    }
    found.initial[offset as usize..end].copy_from_slice(&bits.to_le_bytes()[..width as usize]);
    Ok(())
}

fn relocate(
    found: &mut GlobalVariable,
    variable: &VariableSyntax<'_>,
    name: &str,
    addend: i64,
    offset: u64,
) -> Result<u64, Error> {
    if variable.element.bits() != 64 {
        return Err(Error::syntax(variable.line, "an address is an initial value of 64-bit variables only"));
    }
    found.relocations.push(Relocation { offset, symbol: name.to_owned(), addend });
    Ok(0)
}

/// The bits of a literal as a value of that type, or `None` when it is no literal or has no such value.
pub(crate) fn literal(operand: &Operand<'_>, element: ScalarType) -> Option<u64> {
    let bits = match (operand, element) {
        (Operand::Single(bits), ScalarType::F64) => f64::from(f32::from_bits(*bits)).to_bits(),
        (Operand::Single(bits), _) => u64::from(*bits),
        (Operand::Double(bits), ScalarType::F32) => u64::from((f64::from_bits(*bits) as f32).to_bits()),
        (Operand::Double(bits), _) => *bits,
        (Operand::Decimal(value), ScalarType::F32) => u64::from((*value as f32).to_bits()),
        (Operand::Decimal(value), ScalarType::F64) => value.to_bits(),
        (Operand::Integer(value), ScalarType::F32) => u64::from((*value as f32).to_bits()),
        (Operand::Integer(value), ScalarType::F64) => (*value as f64).to_bits(),
        (Operand::Integer(value), _) => *value as u64,
        _ => return None,
    };
    Some(bits & width_mask(element.bits()))
}
