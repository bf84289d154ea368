//! The functions of a module: which there are, what their addresses are, and whose address is taken.
//!
//! An address is a number that means something only to a call: nothing can be read there. Read next: `calls.rs`.

use std::collections::{HashMap, HashSet};

use crate::error::Error;
use crate::module::GlobalVariable;
use crate::syntax::{FunctionSyntax, Initial, InstructionSyntax, ModuleSyntax, Operand, Statement};

/// Where the addresses of functions lie in the generic address space.
const FUNCTION_WINDOW: u64 = 4 << 60;
/// Bytes between two addresses; devices align functions likewise.
const FUNCTION_ALIGN: u64 = 128;

/// What to do with calls of functions that are declared and nowhere defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undefined {
    Refused,
    /// They fail when they are made: for texts that are checked before they are linked.
    Allowed,
}

pub(crate) struct Functions<'m, 'a> {
    /// Functions and kernels; a definition hides declarations.
    pub(crate) by_name: HashMap<&'a str, &'m FunctionSyntax<'a>>,
    addresses: HashMap<&'a str, u64>,
    /// Functions whose address is used as a value, in the order of the text.
    pub(crate) taken: Vec<&'a str>,
    pub(crate) undefined: Undefined,
}

impl<'m, 'a> Functions<'m, 'a> {
    /// Collects the functions of a module.
    pub(crate) fn of(module: &'m ModuleSyntax<'a>, undefined: Undefined) -> Result<Self, Error> {
        let mut by_name: HashMap<&str, &FunctionSyntax<'_>> = HashMap::new();
        let mut addresses = HashMap::new();
        for function in &module.functions {
            let next = FUNCTION_WINDOW + FUNCTION_ALIGN * (addresses.len() as u64 + 1);
            addresses.entry(function.name).or_insert(next);
            match by_name.get(function.name) {
                Some(earlier) if earlier.body.is_some() && function.body.is_some() => {
                    return Err(Error::syntax(function.line, format!("{} is defined twice", function.name)));
                }
                Some(earlier) if earlier.body.is_some() => {}
                _ => {
                    by_name.insert(function.name, function);
                }
            }
        }
        let mut functions = Self { by_name, addresses, taken: Vec::new(), undefined };
        functions.find_taken(module);
        Ok(functions)
    }

    /// The address of the function of that name.
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        self.addresses.get(name).copied()
    }

    /// Writes the addresses of functions into a variable that holds some.
    pub(crate) fn relocate(&self, variable: &mut GlobalVariable) {
        let initial = &mut variable.initial;
        variable.relocations.retain(|relocation| {
            let Some(address) = self.addresses.get(relocation.symbol.as_str()) else { return true };
            let value = address.wrapping_add_signed(relocation.addend).to_le_bytes();
            let at = relocation.offset as usize;
            if let Some(place) = initial.get_mut(at..at + value.len()) {
                place.copy_from_slice(&value);
            }
            false
        });
    }

    fn find_taken(&mut self, module: &ModuleSyntax<'a>) {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        let mut take = |name: &'a str| {
            if self.addresses.contains_key(name) && seen.insert(name) {
                found.push(name);
            }
        };
        for initial in module.variables.iter().filter_map(|variable| variable.initial.as_ref()) {
            initial_names(initial, &mut take);
        }
        for body in module.functions.iter().filter_map(|function| function.body.as_ref()) {
            statement_names(body, &mut take);
        }
        self.taken = found;
    }
}

pub(crate) fn initial_names<'a>(initial: &Initial<'a>, take: &mut impl FnMut(&'a str)) {
    match initial {
        Initial::Value(value) => operand_names(value, take),
        Initial::List(list) => list.iter().for_each(|part| initial_names(part, take)),
    }
}

/// The names that a body uses, of whatever they are.
pub(crate) fn used_names<'a>(body: &[Statement<'a>], take: &mut impl FnMut(&'a str)) {
    for statement in body {
        match statement {
            Statement::Block(inner) => used_names(inner, take),
            Statement::Instruction(instruction) => {
                instruction.operands.iter().for_each(|operand| operand_names(operand, take));
            }
            _ => {}
        }
    }
}

fn statement_names<'a>(body: &[Statement<'a>], take: &mut impl FnMut(&'a str)) {
    for statement in body {
        match statement {
            Statement::Block(inner) => statement_names(inner, take),
            // A direct call takes no address.
            Statement::Instruction(InstructionSyntax { opcode: "call" | "bra", .. }) => {}
            Statement::Instruction(instruction) => {
                instruction.operands.iter().for_each(|operand| operand_names(operand, take));
            }
            _ => {}
        }
    }
}

fn operand_names<'a>(operand: &Operand<'a>, take: &mut impl FnMut(&'a str)) {
    match operand {
        Operand::Name { name, component: None } | Operand::Offset { name, .. } => take(name),
        Operand::Vector(parts) | Operand::List(parts) => {
            parts.iter().for_each(|part| operand_names(part, take));
        }
        Operand::Address { base, .. } => operand_names(base, take),
        _ => {}
    }
}
