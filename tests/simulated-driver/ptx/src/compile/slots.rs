//! Operands become slots: registers, literals, addresses of variables, special registers.
//!
//! Whatever is known before the first instruction shares one slot per value. Read next: `execute/registers.rs`,
//! which fills these slots.

use super::Compiler;
use super::layout::literal;
use super::names::{Origin, Register, Variable};
use crate::error::Error;
use crate::program::{Clock, Guard, IntegerOp, Op, PredicateSlot, Slot, SlotSource, Special};
use crate::syntax::{InstructionSyntax, Operand};
use crate::types::ScalarType;

/// Most slots, and most predicates, of one kernel.
const SLOT_LIMIT: usize = u16::MAX as usize;

impl<'a> Compiler<'_, 'a> {
    pub(super) fn new_slot(&mut self, line: u32) -> Result<Slot, Error> {
        self.push_slot(SlotSource::Register, line)
    }

    fn push_slot(&mut self, source: SlotSource, line: u32) -> Result<Slot, Error> {
        let slot = self.program.slots.len();
        if slot >= SLOT_LIMIT {
            return Err(Error::TooLarge { what: "number of registers", limit: SLOT_LIMIT as u64, line });
        }
        self.program.slots.push(source);
        Ok(slot as Slot)
    }

    pub(super) fn new_predicate(&mut self, line: u32) -> Result<PredicateSlot, Error> {
        let predicate = self.program.predicate_count;
        if usize::from(predicate) >= SLOT_LIMIT {
            return Err(Error::TooLarge { what: "number of predicates", limit: SLOT_LIMIT as u64, line });
        }
        self.program.predicate_count += 1;
        Ok(predicate)
    }

    /// The slot that holds what `source` gives.
    pub(super) fn known(&mut self, source: SlotSource, line: u32) -> Result<Slot, Error> {
        if let Some(slot) = self.known_slots.get(&source) {
            return Ok(*slot);
        }
        let slot = self.push_slot(source.clone(), line)?;
        self.known_slots.insert(source, slot);
        Ok(slot)
    }

    pub(super) fn constant(&mut self, value: u64, line: u32) -> Result<Slot, Error> {
        self.known(SlotSource::Constant(value), line)
    }

    /// The address of a variable in its own space, plus `addend`.
    pub(super) fn address(
        &mut self,
        name: &str,
        variable: Variable,
        addend: i64,
        line: u32,
    ) -> Result<Slot, Error> {
        let addend = addend as u64;
        let source = match variable.origin {
            Origin::Offset(offset) => SlotSource::Constant(offset.wrapping_add(addend)),
            Origin::Symbol => SlotSource::Symbol(name.to_owned(), addend),
            Origin::DynamicShared => SlotSource::DynamicShared(addend),
            Origin::Relative { slot, offset } => {
                let addend = offset.wrapping_add(addend);
                if addend == 0 {
                    return Ok(slot);
                }
                let (d, addend) = (self.new_slot(line)?, self.constant(addend, line)?);
                let op =
                    Op::Integer { op: IntegerOp::Add, element: ScalarType::U64, d, s: [slot, addend, 0, 0] };
                self.emit(None, op, line)?;
                return Ok(d);
            }
        };
        self.known(source, line)
    }

    /// The slot of a source operand that is read as `element`.
    pub(super) fn value(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        operand: &Operand<'a>,
        element: ScalarType,
    ) -> Result<Slot, Error> {
        let line = instruction.line;
        if let Some(bits) = literal(operand, element) {
            return self.constant(bits, line);
        }
        let (name, component, offset) = match operand {
            Operand::Name { name, component } => (*name, *component, 0),
            Operand::Offset { name, offset } => (*name, None, *offset),
            _ => return Err(Error::syntax(line, "expected a register, a number or a variable")),
        };
        if component.is_none() && offset == 0 {
            match self.register(name, line)? {
                Some(Register::Value { slot, .. }) => return Ok(slot),
                Some(Register::Predicate(_)) => {
                    return Err(Error::syntax(line, format!("{name} is a predicate, not a value")));
                }
                None => {}
            }
        }
        if let Some(slot) = self.special(name, component, line)? {
            return Ok(slot);
        }
        match (self.variable(name), component, self.functions.address(name)) {
            (Some(variable), None, _) => self.address(name, variable, offset, line),
            (None, None, Some(address)) => self.constant(address.wrapping_add_signed(offset), line),
            _ => Err(Error::Undefined { name: full_name(name, component), line }),
        }
    }

    /// Source operands `first..first + N`, all read as `element`.
    pub(super) fn values<const N: usize>(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        first: usize,
        element: ScalarType,
    ) -> Result<[Slot; N], Error> {
        let mut slots = [0; N];
        for (position, slot) in slots.iter_mut().enumerate() {
            let operand = operand(instruction, first + position)?;
            *slot = self.value(instruction, operand, element)?;
        }
        Ok(slots)
    }

    /// The slot of a destination that takes at least `bits`, and its width. `_` takes anything.
    pub(super) fn destination(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        operand: &Operand<'a>,
        bits: u32,
    ) -> Result<(Slot, u32), Error> {
        let line = instruction.line;
        let Operand::Name { name, component: None } = operand else {
            return Err(Error::syntax(line, "expected a register to write"));
        };
        if *name == "_" {
            return Ok((self.new_slot(line)?, 64));
        }
        match self.register(name, line)? {
            Some(Register::Value { slot, bits: width }) if width >= bits => Ok((slot, width)),
            Some(Register::Value { bits: width, .. }) => {
                Err(Error::syntax(line, format!("{name} has {width} bits where {bits} are written")))
            }
            Some(Register::Predicate(_)) => {
                Err(Error::syntax(line, format!("{name} is a predicate, not a value")))
            }
            None => Err(Error::Undefined { name: (*name).to_owned(), line }),
        }
    }

    /// The first operand as a destination.
    pub(super) fn result(&mut self, instruction: &InstructionSyntax<'a>, bits: u32) -> Result<Slot, Error> {
        let target = operand(instruction, 0)?;
        Ok(self.destination(instruction, target, bits)?.0)
    }

    /// A predicate that is read: `p` or `!p`.
    pub(super) fn predicate(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        operand: &Operand<'a>,
    ) -> Result<Guard, Error> {
        let line = instruction.line;
        match operand {
            Operand::Not(inner) => {
                let guard = self.predicate(instruction, inner)?;
                Ok(Guard { negated: !guard.negated, ..guard })
            }
            Operand::Name { name, component: None } => self.predicate_name(name, line),
            Operand::Integer(value) => {
                let predicate = self.new_predicate(line)?;
                self.emit(None, Op::PredicateConstant { d: predicate, value: *value != 0 }, line)?;
                Ok(Guard { predicate, negated: false })
            }
            _ => Err(Error::syntax(line, "expected a predicate")),
        }
    }

    fn predicate_name(&mut self, name: &'a str, line: u32) -> Result<Guard, Error> {
        match self.register(name, line)? {
            Some(Register::Predicate(predicate)) => Ok(Guard { predicate, negated: false }),
            Some(Register::Value { .. }) => {
                Err(Error::syntax(line, format!("{name} is a value, not a predicate")))
            }
            None => Err(Error::Undefined { name: name.to_owned(), line }),
        }
    }

    /// A predicate that is written, or `None` for `_`.
    pub(super) fn predicate_destination(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        operand: &Operand<'a>,
    ) -> Result<Option<PredicateSlot>, Error> {
        match operand {
            Operand::Name { name: "_", .. } => Ok(None),
            Operand::Name { name, component: None } => {
                Ok(Some(self.predicate_name(name, instruction.line)?.predicate))
            }
            _ => Err(Error::syntax(instruction.line, "expected a predicate to write")),
        }
    }

    /// The instruction's own guard.
    pub(super) fn guard(&mut self, instruction: &InstructionSyntax<'a>) -> Result<Option<Guard>, Error> {
        let Some((name, negated)) = instruction.guard else { return Ok(None) };
        Ok(Some(Guard { negated, ..self.predicate_name(name, instruction.line)? }))
    }

    /// Appends `op` under the instruction's guard.
    pub(super) fn emit_guarded(&mut self, instruction: &InstructionSyntax<'a>, op: Op) -> Result<(), Error> {
        let guard = self.guard(instruction)?;
        self.emit(guard, op, instruction.line)
    }

    fn special(&mut self, name: &str, component: Option<&str>, line: u32) -> Result<Option<Slot>, Error> {
        if name == "WARP_SZ" && component.is_none() {
            return self.constant(32, line).map(Some);
        }
        let clock = match (name, component) {
            ("%clock" | "%globaltimer_lo", None) => Some(Clock::Low),
            ("%clock_hi" | "%globaltimer_hi", None) => Some(Clock::High),
            ("%clock64" | "%globaltimer", None) => Some(Clock::Full),
            _ => None,
        };
        if let Some(part) = clock {
            let d = self.new_slot(line)?;
            self.emit(None, Op::ReadClock { d, part }, line)?;
            return Ok(Some(d));
        }
        // What the driver says in the other environment registers is not documented.
        if is_environment(name) && component.is_none() && !matches!(name, "%envreg1" | "%envreg2") {
            return self.constant(0, line).map(Some);
        }
        match special(name, component) {
            Some(special) => self.known(SlotSource::Special(special), line).map(Some),
            None => Ok(None),
        }
    }

    /// The base slot, offset and, where it is named, the variable of `[base+offset]`.
    pub(super) fn place_parts(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        operand: &Operand<'a>,
    ) -> Result<(Slot, i64, Option<Variable>), Error> {
        let Operand::Address { base, offset } = operand else {
            return Err(Error::syntax(instruction.line, "expected an address in brackets"));
        };
        if let Operand::Name { name, component: None } = &**base
            && self.register(name, instruction.line)?.is_none()
            && let Some(variable) = self.variable(name)
        {
            if let Origin::Relative { slot, offset: own } = variable.origin {
                return Ok((slot, offset.wrapping_add_unsigned(own), Some(variable)));
            }
            let slot = self.address(name, variable, 0, instruction.line)?;
            return Ok((slot, *offset, Some(variable)));
        }
        Ok((self.value(instruction, base, ScalarType::B64)?, *offset, None))
    }
}

/// Operand number `position` of the instruction.
pub(super) fn operand<'i, 'a>(
    instruction: &'i InstructionSyntax<'a>,
    position: usize,
) -> Result<&'i Operand<'a>, Error> {
    let missing = || Error::syntax(instruction.line, format!("operand {} is missing", position + 1));
    instruction.operands.get(position).ok_or_else(missing)
}

fn full_name(name: &str, component: Option<&str>) -> String {
    component.map_or_else(|| name.to_owned(), |component| format!("{name}.{component}"))
}

/// `%envreg0` to `%envreg31`.
fn is_environment(name: &str) -> bool {
    let number = name.strip_prefix("%envreg").and_then(|digits| digits.parse::<u32>().ok());
    number.is_some_and(|number| number < 32)
}

fn special(name: &str, component: Option<&str>) -> Option<Special> {
    if let Some(component) = component {
        let axis = match component {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            _ => return None,
        };
        return Some(match name {
            "%tid" => Special::Thread(axis),
            "%ntid" => Special::BlockExtent(axis),
            "%ctaid" => Special::Block(axis),
            "%nctaid" => Special::GridExtent(axis),
            _ => return None,
        });
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::WarpCount,
        "%smid" => Special::Processor,
        "%nsmid" => Special::ProcessorCount,
        "%gridid" => Special::Grid,
        "%lanemask_eq" => Special::MaskEqual,
        "%lanemask_lt" => Special::MaskLess,
        "%lanemask_le" => Special::MaskLessEqual,
        "%lanemask_gt" => Special::MaskGreater,
        "%lanemask_ge" => Special::MaskGreaterEqual,
        "%dynamic_smem_size" => Special::DynamicSharedBytes,
        "%total_smem_size" => Special::TotalSharedBytes,
        "%envreg1" => Special::Workspace { upper: true },
        "%envreg2" => Special::Workspace { upper: false },
        _ => return None,
    })
}
