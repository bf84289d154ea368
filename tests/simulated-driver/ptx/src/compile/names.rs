//! Scopes: which register, variable or label a name stands for at a place in the text.
//!
//! Registers declared as a range (`%r<5>`) get a slot when they are first used, so that a range's size costs
//! nothing. Read next: `slots.rs`.

use std::collections::HashMap;

use super::layout::{self, LOCAL_LIMIT, SHARED_LIMIT, place};
use super::{Compiler, LabelId};
use crate::error::Error;
use crate::program::{PredicateSlot, Slot};
use crate::syntax::{FunctionSyntax, Linkage, RegisterSyntax, Statement, VariableSyntax};
use crate::types::{ScalarType, Space};

#[derive(Default)]
pub(crate) struct Scope<'a> {
    registers: HashMap<&'a str, Register>,
    ranges: Vec<(&'a str, u64, ScalarType)>,
    pub(super) variables: HashMap<&'a str, Variable>,
    labels: HashMap<&'a str, LabelId>,
    tables: HashMap<&'a str, u32>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Register {
    Value { slot: Slot, bits: u32 },
    Predicate(PredicateSlot),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Variable {
    pub(crate) space: Space,
    pub(crate) origin: Origin,
    pub(crate) size: u64,
}

/// Where a variable begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// At this offset of its space.
    Offset(u64),
    /// At the device address that the launch gives for its name.
    Symbol,
    /// Behind the static shared memory.
    DynamicShared,
    /// At an address that a register holds, plus a number: variables of a function with code of its own.
    Relative { slot: Slot, offset: u64 },
}

impl<'a> Compiler<'_, 'a> {
    fn scope(&mut self) -> &mut Scope<'a> {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::default());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    pub(super) fn declare_globals(&mut self) -> Result<(), Error> {
        for variable in &self.module.variables {
            let size = variable.size().unwrap_or(0);
            let found = match variable.space {
                Space::Shared if is_dynamic(variable) => {
                    Variable { space: Space::Shared, origin: Origin::DynamicShared, size: 0 }
                }
                Space::Shared => {
                    let origin = Origin::Offset(self.shared_place("", variable)?);
                    Variable { space: Space::Shared, origin, size }
                }
                _ => Variable { space: Space::Global, origin: Origin::Symbol, size },
            };
            self.globals.insert(variable.name, found);
        }
        Ok(())
    }

    /// Declares the parameters of the entry; answers their bytes.
    pub(super) fn declare_entry_parameters(&mut self, entry: &FunctionSyntax<'a>) -> Result<u64, Error> {
        let (places, bytes) = layout::parameters(entry)?;
        for (parameter, place) in entry.parameters.iter().zip(places) {
            let variable =
                Variable { space: Space::Parameter, origin: Origin::Offset(place.offset), size: place.size };
            self.scope().variables.insert(parameter.variable.name, variable);
        }
        Ok(bytes)
    }

    /// Declares a variable inside a function.
    pub(super) fn declare_variable(&mut self, variable: &VariableSyntax<'a>) -> Result<(), Error> {
        if variable.initial.is_some() || variable.space == Space::Global {
            return Err(Error::syntax(variable.line, "variables with a value belong to the module"));
        }
        let size = variable.size().unwrap_or(0);
        let found = if variable.space == Space::Shared {
            let function = self.calls.last().copied().unwrap_or_default();
            let offset = self.shared_place(function, variable)?;
            Variable { space: Space::Shared, origin: Origin::Offset(offset), size }
        } else {
            self.new_local(variable.size(), variable.align, variable.line)?
        };
        self.bind_variable(variable.name, found);
        Ok(())
    }

    /// Declares a variable under a name.
    pub(super) fn bind_variable(&mut self, name: &'a str, variable: Variable) {
        self.scope().variables.insert(name, variable);
    }

    /// Room for a variable in local memory.
    pub(super) fn new_local(&mut self, size: Option<u64>, align: u64, line: u32) -> Result<Variable, Error> {
        let end = self.frame.map_or(self.program.local_bytes, |frame| frame.bytes);
        let (offset, end) = place(end, size, align, "size of local memory", LOCAL_LIMIT, line)?;
        let origin = match &mut self.frame {
            Some(frame) => {
                frame.bytes = end;
                Origin::Relative { slot: frame.slot, offset }
            }
            None => {
                self.program.local_bytes = end;
                Origin::Offset(offset)
            }
        };
        Ok(Variable { space: Space::Local, origin, size: size.unwrap_or(0) })
    }

    /// A shared variable has one place however often its function is inlined.
    fn shared_place(&mut self, function: &'a str, variable: &VariableSyntax<'a>) -> Result<u64, Error> {
        if let Some(offset) = self.shared_places.get(&(function, variable.name)) {
            return Ok(*offset);
        }
        let end = self.program.static_shared_bytes;
        let (offset, end) = place(
            end,
            variable.size(),
            variable.align,
            "size of shared memory",
            SHARED_LIMIT,
            variable.line,
        )?;
        self.program.static_shared_bytes = end;
        self.shared_places.insert((function, variable.name), offset);
        Ok(offset)
    }

    pub(super) fn declare_registers(&mut self, element: ScalarType, names: &[RegisterSyntax<'a>]) {
        for register in names {
            // A name without a range is the range of that name alone.
            let (name, count) = (register.name, register.count.unwrap_or(u64::MAX));
            self.scope().ranges.push((name, count, element));
        }
    }

    /// The register of that name, if one is declared.
    pub(super) fn register(&mut self, name: &'a str, line: u32) -> Result<Option<Register>, Error> {
        for depth in (0..self.scopes.len()).rev() {
            if let Some(register) = self.scopes[depth].registers.get(name) {
                return Ok(Some(*register));
            }
            // The latest declaration wins.
            let declared =
                self.scopes[depth].ranges.iter().rev().find(|range| in_range(name, range)).copied();
            if let Some((_, _, element)) = declared {
                let register = self.new_register(element, line)?;
                self.scopes[depth].registers.insert(name, register);
                return Ok(Some(register));
            }
        }
        Ok(None)
    }

    pub(super) fn new_register(&mut self, element: ScalarType, line: u32) -> Result<Register, Error> {
        Ok(match element {
            ScalarType::Predicate => Register::Predicate(self.new_predicate(line)?),
            _ => Register::Value { slot: self.new_slot(line)?, bits: element.bits() },
        })
    }

    /// Declares one register under a name that is not from a range.
    pub(super) fn bind_register(&mut self, name: &'a str, register: Register) {
        self.scope().registers.insert(name, register);
    }

    pub(super) fn variable(&self, name: &str) -> Option<Variable> {
        let local = self.scopes.iter().rev().find_map(|scope| scope.variables.get(name));
        local.or_else(|| self.globals.get(name)).copied()
    }

    /// Numbers the labels and branch tables of a block before its instructions name them.
    pub(super) fn declare_labels(&mut self, body: &[Statement<'a>]) -> Result<(), Error> {
        for statement in body {
            if let Statement::Label { name, line } = statement {
                let label = self.new_label();
                if self.scope().labels.insert(name, label).is_some() {
                    return Err(Error::syntax(*line, format!("label {name} is placed twice")));
                }
            }
        }
        for statement in body {
            if let Statement::BranchTargets { name, targets, line } = statement {
                let labels =
                    targets.iter().map(|target| self.label(target, *line)).collect::<Result<_, _>>()?;
                let table = self.label_tables.len() as u32;
                self.label_tables.push(labels);
                self.scope().tables.insert(name, table);
            }
        }
        Ok(())
    }

    pub(super) fn new_label(&mut self) -> LabelId {
        self.labels.push(None);
        (self.labels.len() - 1) as LabelId
    }

    /// Gives a label the position of the next instruction.
    pub(super) fn set_label(&mut self, label: LabelId) {
        self.labels[label as usize] = Some(self.program.code.len() as u32);
    }

    pub(super) fn place_label(&mut self, name: &str, line: u32) -> Result<(), Error> {
        let label = self.label(name, line)?;
        self.set_label(label);
        Ok(())
    }

    pub(super) fn label(&self, name: &str, line: u32) -> Result<LabelId, Error> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.labels.get(name));
        found.copied().ok_or_else(|| Error::Undefined { name: name.to_owned(), line })
    }

    pub(super) fn table(&self, name: &str, line: u32) -> Result<u32, Error> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.tables.get(name));
        found.copied().ok_or_else(|| Error::Undefined { name: name.to_owned(), line })
    }
}

fn is_dynamic(variable: &VariableSyntax<'_>) -> bool {
    variable.linkage == Linkage::Extern || variable.size() == Some(0)
}

/// Whether `%r7` lies in the range `%r<8>`; a count of `u64::MAX` stands for the name alone.
fn in_range(name: &str, (prefix, count, _): &(&str, u64, ScalarType)) -> bool {
    if *count == u64::MAX {
        return name == *prefix;
    }
    let Some(digits) = name.strip_prefix(prefix) else { return false };
    let canonical = digits == "0" || !digits.starts_with('0');
    canonical
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && digits.parse().is_ok_and(|n: u64| n < *count)
}
