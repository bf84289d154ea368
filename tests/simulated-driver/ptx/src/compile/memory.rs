//! ld, st, atom, red, cp.async, fences and hints.
//!
//! Cache operators and eviction hints change no result and are skipped. Read next: `execute/memory.rs`.

use super::Compiler;
use super::half::PACKED;
use super::modifiers::Modifiers;
use super::slots::operand;
use crate::error::Error;
use crate::program::{AtomicOp, Compare, Comparison, Guard, IntegerOp, Logic, Op, Place, Slot};
use crate::syntax::{InstructionSyntax, Operand};
use crate::types::{ScalarType, Space};

const SPACES: [(&str, Space); 8] = [
    ("global", Space::Global),
    ("const", Space::Global),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    ("local", Space::Local),
    ("param", Space::Parameter),
    ("param::entry", Space::Parameter),
    ("param::func", Space::Parameter),
];

/// Words that order accesses among threads. Here every access is performed in program order.
fn is_ordering(word: &str) -> bool {
    matches!(word, "relaxed" | "acquire" | "release" | "acq_rel" | "volatile" | "mmio")
}

fn is_hint(word: &str) -> bool {
    matches!(word, "weak" | "cta" | "gpu" | "sys" | "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "nc")
        || word.starts_with("L1::")
        || (word.starts_with("L2::") && word != "L2::cache_hint")
}

impl<'a> Compiler<'_, 'a> {
    /// The place of `[base+offset]` in the named space, or in the variable's own.
    pub(super) fn place(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        target: &Operand<'a>,
        space: Option<Space>,
        element: ScalarType,
        count: u8,
    ) -> Result<Place, Error> {
        let (base, offset, variable) = self.place_parts(instruction, target)?;
        let space = match (space, variable) {
            // What a call passes lies in the caller's local memory.
            (Some(Space::Parameter), Some(variable)) => variable.space,
            (Some(Space::Parameter), None) if self.calls.len() > 1 => Space::Local,
            (Some(space), _) => space,
            (None, Some(variable)) => variable.space,
            (None, None) => Space::Generic,
        };
        Ok(Place { space, base, offset, width: element.bytes() as u8, count })
    }

    pub(super) fn load(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let mut polls = false;
        for word in &instruction.modifiers {
            polls |= is_ordering(word);
        }
        modifiers.discard(|word| is_ordering(word) || is_hint(word));
        let space = modifiers.choose(&SPACES);
        let count = modifiers.choose(&[("v2", 2), ("v4", 4)]).unwrap_or(1u8);
        let element = accessed_type(modifiers, count)?;
        modifiers.finish(2..=2)?;
        let targets = parts(modifiers, operand(instruction, 0)?, count)?;
        let mut d: [Slot; 4] = [0; 4];
        let mut extend = None;
        for (slot, target) in d.iter_mut().zip(targets) {
            let (register, bits) = self.destination(instruction, target, element.bits())?;
            *slot = register;
            if element.is_signed() && bits > element.bits() {
                extend = Some((element.bits() as u8, bits as u8));
            }
        }
        let place = self.place(instruction, operand(instruction, 1)?, space, element, count)?;
        if place.space == Space::Parameter
            && let Some(offset) = self.parameter_offset(instruction, place)?
        {
            for (position, d) in d.into_iter().enumerate().take(usize::from(count)) {
                let offset = offset + position as u32 * u32::from(place.width);
                self.emit_guarded(instruction, Op::LoadParameter { offset, width: place.width, d, extend })?;
            }
            return Ok(());
        }
        self.emit_guarded(instruction, Op::Load { place, d, extend, polls })
    }

    /// The offset of a parameter access by name, which must lie within the parameters.
    fn parameter_offset(
        &self,
        instruction: &InstructionSyntax<'a>,
        place: Place,
    ) -> Result<Option<u32>, Error> {
        let source = &self.program.slots[usize::from(place.base)];
        let crate::program::SlotSource::Constant(base) = source else { return Ok(None) };
        let bytes = i128::from(place.width) * i128::from(place.count);
        let offset = i128::from(*base) + i128::from(place.offset);
        if offset < 0 || offset + bytes > i128::from(self.program.parameter_bytes) {
            return Err(Error::syntax(instruction.line, "a load beyond the parameters"));
        }
        Ok(Some(offset as u32))
    }

    pub(super) fn store(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        modifiers.discard(|word| is_ordering(word) || is_hint(word));
        let space = modifiers.choose(&SPACES);
        let count = modifiers.choose(&[("v2", 2), ("v4", 4)]).unwrap_or(1u8);
        let element = accessed_type(modifiers, count)?;
        modifiers.finish(2..=2)?;
        let place = self.place(instruction, operand(instruction, 0)?, space, element, count)?;
        if place.space == Space::Parameter {
            return Err(Error::syntax(instruction.line, "a kernel's parameters are read-only"));
        }
        let sources = parts(modifiers, operand(instruction, 1)?, count)?;
        let mut s: [Slot; 4] = [0; 4];
        for (slot, source) in s.iter_mut().zip(sources) {
            *slot = self.value(instruction, source, element)?;
        }
        self.emit_guarded(instruction, Op::Store { place, s })
    }

    pub(super) fn atomic(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        modifiers.discard(|word| is_ordering(word) || matches!(word, "cta" | "gpu" | "sys"));
        let space = modifiers.choose(&SPACES[..4]);
        let op = modifiers.require(&[
            ("add", AtomicOp::Add),
            ("min", AtomicOp::Min),
            ("max", AtomicOp::Max),
            ("and", AtomicOp::And),
            ("or", AtomicOp::Or),
            ("xor", AtomicOp::Xor),
            ("exch", AtomicOp::Exchange),
            ("cas", AtomicOp::CompareAndSwap),
            ("inc", AtomicOp::Increment),
            ("dec", AtomicOp::Decrement),
        ])?;
        if let Some(half) = self.atomic_half(modifiers, op) {
            return self.atomic_operands(instruction, modifiers, space, half);
        }
        let element = modifiers.element_if(|element| element.bits() >= 32 || element == ScalarType::B16)?;
        if !atomic_exists(op, element) {
            return Err(modifiers.unsupported());
        }
        self.atomic_operands(instruction, modifiers, space, (op, element, element))
    }

    /// `.add.noftz` of halves: operation, type of a half, type of the word in memory.
    fn atomic_half(
        &self,
        modifiers: &mut Modifiers<'_, 'a>,
        op: AtomicOp,
    ) -> Option<(AtomicOp, ScalarType, ScalarType)> {
        if op != AtomicOp::Add || !modifiers.take("noftz") {
            return None;
        }
        if let Some(element) = modifiers.choose(&PACKED) {
            return Some((AtomicOp::AddHalves, element, ScalarType::B32));
        }
        let single = [("f16", ScalarType::F16), ("bf16", ScalarType::BF16)];
        modifiers.choose(&single).map(|element| (op, element, ScalarType::B16))
    }

    fn atomic_operands(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
        space: Option<Space>,
        (op, element, word): (AtomicOp, ScalarType, ScalarType),
    ) -> Result<(), Error> {
        let answers = instruction.opcode == "atom";
        let exchanges = matches!(op, AtomicOp::Exchange | AtomicOp::CompareAndSwap);
        if exchanges && !answers {
            return Err(modifiers.unsupported());
        }
        let first = usize::from(answers);
        let values = if op == AtomicOp::CompareAndSwap { 2 } else { 1 };
        modifiers.finish(first + 1 + values..=first + 1 + values)?;
        let d = if answers { Some(self.result(instruction, word.bits())?) } else { None };
        let place = self.place(instruction, operand(instruction, first)?, space, word, 1)?;
        let [b] = self.values(instruction, first + 1, word)?;
        let c =
            if values == 2 { self.value(instruction, operand(instruction, first + 2)?, word)? } else { b };
        self.emit_guarded(instruction, Op::Atomic { place, op, element, d, b, c })
    }

    /// `cp.async`: a copy from global to shared memory, done at once, so that waiting for it is nothing.
    pub(super) fn copy_async(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        if !modifiers.take("async") {
            return Err(modifiers.unsupported());
        }
        if modifiers.take("commit_group") || modifiers.take("wait_all") {
            return modifiers.finish(0..=0);
        }
        if modifiers.take("wait_group") {
            return modifiers.finish(1..=1);
        }
        modifiers.discard(is_hint);
        let spaces = modifiers.take("shared") || modifiers.take("shared::cta");
        if !(spaces && modifiers.take("global")) {
            return Err(modifiers.unsupported());
        }
        modifiers.finish(3..=4)?;
        let count = match operand(instruction, 2)? {
            Operand::Integer(4) => 1,
            Operand::Integer(8) => 2,
            Operand::Integer(16) => 4,
            _ => return Err(modifiers.unsupported()),
        };
        let to =
            self.place(instruction, operand(instruction, 0)?, Some(Space::Shared), ScalarType::B32, count)?;
        let from =
            self.place(instruction, operand(instruction, 1)?, Some(Space::Global), ScalarType::B32, count)?;
        let mut parts: [Slot; 4] = [0; 4];
        for part in parts.iter_mut().take(usize::from(count)) {
            *part = self.new_slot(instruction.line)?;
        }
        if instruction.operands.len() == 4 {
            self.load_some(instruction, from, &parts[..usize::from(count)])?;
            return self.emit_guarded(instruction, Op::Store { place: to, s: parts });
        }
        self.emit_guarded(instruction, Op::Load { place: from, d: parts, extend: None, polls: false })?;
        self.emit_guarded(instruction, Op::Store { place: to, s: parts })
    }

    /// Loads words as far as the fourth operand says, in bytes, and zeros for the rest.
    fn load_some(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        from: Place,
        parts: &[Slot],
    ) -> Result<(), Error> {
        let line = instruction.line;
        let [bytes] = self.values(instruction, 3, ScalarType::U32)?;
        let own = self.guard(instruction)?;
        let (zero, eight) = (self.constant(0, line)?, self.constant(3, line)?);
        for (word, part) in parts.iter().enumerate() {
            let begun = self.constant(4 * word as u64, line)?;
            let predicate = self.new_predicate(line)?;
            let (comparison, element) = (Comparison::Greater, ScalarType::U32);
            let compare = Compare { comparison, element, flush: false, a: bytes, b: begun, combine: None };
            self.emit(None, Op::Compare { compare: Box::new(compare), d: predicate, opposite: None }, line)?;
            let wanted = Guard { predicate, negated: false };
            if let Some(own) = own {
                let op = Op::PredicateLogic { op: Logic::And, d: predicate, a: wanted, b: own };
                self.emit(None, op, line)?;
            }
            self.emit(own, Op::Copy { d: *part, a: zero }, line)?;
            let place = Place { count: 1, offset: from.offset.wrapping_add(4 * word as i64), ..from };
            let load = Op::Load { place, d: [*part, 0, 0, 0], extend: None, polls: false };
            self.emit(Some(wanted), load, line)?;
            // Of the last word only the bytes that are asked for.
            let bits = self.new_slot(line)?;
            let s = [bytes, begun, 0, 0];
            self.emit(Some(wanted), Op::Integer { op: IntegerOp::Sub, element, d: bits, s }, line)?;
            let s = [bits, eight, 0, 0];
            self.emit(Some(wanted), Op::Integer { op: IntegerOp::ShiftLeft, element, d: bits, s }, line)?;
            let s = [*part, zero, bits, 0];
            self.emit(Some(wanted), Op::Integer { op: IntegerOp::ExtractField, element, d: *part, s }, line)?;
        }
        Ok(())
    }

    pub(super) fn fence_or_hint(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        match instruction.opcode {
            "membar" | "fence" => {
                modifiers.discard(|word| matches!(word, "cta" | "gl" | "gpu" | "sys" | "sc" | "acq_rel"));
                modifiers.finish(0..=0)?;
                self.emit_guarded(instruction, Op::Fence)
            }
            "nanosleep" => {
                modifiers.element_if(|element| element == ScalarType::U32)?;
                modifiers.finish(1..=1)?;
                self.emit_guarded(instruction, Op::Pause)
            }
            "pmevent" => modifiers.finish(1..=1),
            // A prefetch changes no result, not even when its address is wrong.
            _ => {
                modifiers.discard(|word| matches!(word, "global" | "local" | "L1" | "L2") || is_hint(word));
                modifiers.finish(1..=1)
            }
        }
    }
}

fn accessed_type(modifiers: &mut Modifiers<'_, '_>, count: u8) -> Result<ScalarType, Error> {
    let known = |element| !matches!(element, ScalarType::Predicate | ScalarType::F16 | ScalarType::BF16);
    modifiers.element_if(|element| known(element) && element.bytes() * u64::from(count) <= 16)
}

/// The registers of a vector, or the one register of a scalar.
fn parts<'o, 'a>(
    modifiers: &Modifiers<'_, 'a>,
    operand: &'o Operand<'a>,
    count: u8,
) -> Result<&'o [Operand<'a>], Error> {
    match operand {
        Operand::Vector(parts) if parts.len() == usize::from(count) => Ok(parts),
        Operand::Vector(_) => Err(modifiers.unsupported()),
        _ if count == 1 => Ok(std::slice::from_ref(operand)),
        _ => Err(modifiers.unsupported()),
    }
}

/// The combinations of PTX ISA section "atom" that are executed.
fn atomic_exists(op: AtomicOp, element: ScalarType) -> bool {
    use ScalarType::{B16, B32, B64, F32, F64, S32, S64, U32, U64};
    if element == B16 {
        return op == AtomicOp::CompareAndSwap;
    }
    match op {
        AtomicOp::Add | AtomicOp::AddHalves => matches!(element, U32 | S32 | U64 | S64 | F32 | F64),
        AtomicOp::Min | AtomicOp::Max => matches!(element, U32 | S32 | U64 | S64),
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => matches!(element, B32 | B64 | U32 | U64 | S32 | S64),
        AtomicOp::Exchange | AtomicOp::CompareAndSwap => {
            matches!(element, B32 | B64 | U32 | U64 | S32 | S64 | F32 | F64)
        }
        AtomicOp::Increment | AtomicOp::Decrement => element == U32,
    }
}
