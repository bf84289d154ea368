//! add, sub, mul, mad, fma, div, rem, abs, neg, min, max, sad, carries, and the floating-point functions.
//!
//! One opcode serves integers and floats; the type decides. Read next: `execute/integer.rs`, `execute/float.rs`.

use super::Compiler;
use super::half::PACKED;
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::program::{CarryOp, FloatOp, FloatShape, IntegerOp, Op, Slot};
use crate::syntax::InstructionSyntax;
use crate::types::{Rounding, ScalarType};

/// Which part of a product is wanted.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Low,
    High,
    Wide,
}

const PARTS: [(&str, Part); 3] = [("lo", Part::Low), ("hi", Part::High), ("wide", Part::Wide)];

impl<'a> Compiler<'_, 'a> {
    pub(super) fn arithmetic(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        if modifiers.take("cc") {
            return self.carry_chain(instruction, modifiers, false, true);
        }
        if let Some(element) = modifiers.choose(&PACKED) {
            return self.half(instruction, modifiers, element, true);
        }
        let element = modifiers.element()?;
        match element {
            ScalarType::F16 | ScalarType::BF16 => self.half(instruction, modifiers, element, false),
            ScalarType::F32 | ScalarType::F64 => self.float(instruction, modifiers, element),
            _ if element.is_integer() && element.bits() >= 16 => {
                self.integer(instruction, modifiers, element)
            }
            _ => Err(modifiers.unsupported()),
        }
    }

    fn integer(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
        element: ScalarType,
    ) -> Result<(), Error> {
        let saturates = element == ScalarType::S32 && modifiers.take("sat");
        let part = modifiers.choose(&PARTS);
        let narrow = element.bits() < 64;
        let (op, sources) = match (instruction.opcode, part) {
            ("add", None) if saturates => (IntegerOp::AddSaturate, 2),
            ("sub", None) if saturates => (IntegerOp::SubSaturate, 2),
            _ if saturates => return Err(modifiers.unsupported()),
            ("add", None) => (IntegerOp::Add, 2),
            ("sub", None) => (IntegerOp::Sub, 2),
            ("mul", Some(Part::Low)) => (IntegerOp::Mul, 2),
            ("mul", Some(Part::High)) => (IntegerOp::MulHigh, 2),
            ("mul", Some(Part::Wide)) if narrow => (IntegerOp::MulWide, 2),
            ("mad", Some(Part::Low)) => (IntegerOp::Mad, 3),
            ("mad", Some(Part::High)) => (IntegerOp::MadHigh, 3),
            ("mad", Some(Part::Wide)) if narrow => (IntegerOp::MadWide, 3),
            ("div", None) => (IntegerOp::Div, 2),
            ("rem", None) => (IntegerOp::Rem, 2),
            ("min", None) => (IntegerOp::Min, 2),
            ("max", None) => (IntegerOp::Max, 2),
            ("abs", None) => (IntegerOp::Abs, 1),
            ("neg", None) => (IntegerOp::Neg, 1),
            ("sad", None) => (IntegerOp::AbsoluteDifference, 3),
            _ => return Err(modifiers.unsupported()),
        };
        modifiers.finish(sources + 1..=sources + 1)?;
        let sign_matters = !matches!(op, IntegerOp::Add | IntegerOp::Sub | IntegerOp::Mul | IntegerOp::Mad);
        let executed = if sign_matters { element } else { element.unsigned() };
        let wide = part == Some(Part::Wide);
        let bits = if wide { 2 * element.bits() } else { element.bits() };
        let mut s = [0; 4];
        for (position, slot) in s.iter_mut().enumerate().take(sources) {
            // The addend of a wide product has the width of the result.
            let read = if wide && position == 2 { double_width(element) } else { element };
            *slot = self.value(instruction, &instruction.operands[position + 1], read)?;
        }
        let d = self.result(instruction, bits)?;
        self.emit_guarded(instruction, Op::Integer { op, element: executed, d, s })
    }

    /// `addc`, `subc`, `madc`: they read the carry, and write it with `.cc`.
    pub(super) fn carry(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
        reads: bool,
    ) -> Result<(), Error> {
        let writes = modifiers.take("cc");
        self.carry_chain(instruction, modifiers, reads, writes)
    }

    fn carry_chain(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
        reads: bool,
        writes: bool,
    ) -> Result<(), Error> {
        let element = modifiers.element_if(|element| element.is_integer() && element.bits() >= 32)?;
        let part = modifiers.choose(&PARTS);
        let (op, sources) = match (instruction.opcode, part) {
            ("add" | "addc", None) => (CarryOp::Add, 2),
            ("sub" | "subc", None) => (CarryOp::Sub, 2),
            ("mad" | "madc", Some(Part::Low)) => (CarryOp::Mad, 3),
            ("mad" | "madc", Some(Part::High)) => (CarryOp::MadHigh, 3),
            _ => return Err(modifiers.unsupported()),
        };
        modifiers.finish(sources + 1..=sources + 1)?;
        let mut s = [0; 3];
        for (position, slot) in s.iter_mut().enumerate().take(sources) {
            *slot = self.value(instruction, &instruction.operands[position + 1], element)?;
        }
        let d = self.result(instruction, element.bits())?;
        self.emit_guarded(instruction, Op::Carry { op, element, reads, writes, d, s })
    }

    fn float(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
        element: ScalarType,
    ) -> Result<(), Error> {
        let double = element == ScalarType::F64;
        let rounding = modifiers.rounding();
        let approximate = modifiers.take("approx") || modifiers.take("full");
        let flush = modifiers.take("ftz");
        let saturate = !double && modifiers.take("sat");
        let nan = !double && modifiers.take("NaN");
        let by_magnitude = !double && modifiers.take("xorsign") && modifiers.take("abs");
        let (op, sources) = match instruction.opcode {
            "add" => (FloatOp::Add, 2),
            "sub" => (FloatOp::Sub, 2),
            "mul" => (FloatOp::Mul, 2),
            "mad" | "fma" if rounding.is_some() => (FloatOp::Fma, 3),
            "div" => (FloatOp::Div, 2),
            "min" => (FloatOp::Min { nan }, 2),
            "max" => (FloatOp::Max { nan }, 2),
            "abs" => (FloatOp::Abs, 1),
            "neg" => (FloatOp::Neg, 1),
            "copysign" => (FloatOp::CopySign, 2),
            // Only these doubles know it.
            "rcp" if double && flush && approximate => (FloatOp::GrossReciprocal, 1),
            "rsqrt" if double && flush && approximate => (FloatOp::GrossReciprocalSquareRoot, 1),
            _ if double && flush => return Err(modifiers.unsupported()),
            "rcp" => (FloatOp::Reciprocal, 1),
            "sqrt" => (FloatOp::SquareRoot, 1),
            "rsqrt" => (FloatOp::ReciprocalSquareRoot, 1),
            "ex2" if !double => (FloatOp::Exp2, 1),
            "lg2" if !double => (FloatOp::Log2, 1),
            "sin" if !double => (FloatOp::Sin, 1),
            "cos" if !double => (FloatOp::Cos, 1),
            "tanh" if !double => (FloatOp::Tanh, 1),
            _ => return Err(modifiers.unsupported()),
        };
        let rule = FloatRule::of(op);
        let consistent = match rule {
            FloatRule::Rounded => !approximate,
            FloatRule::RoundedOrApproximate => approximate != rounding.is_some() && !(double && approximate),
            FloatRule::Approximate => approximate && rounding.is_none(),
            FloatRule::Exact => !approximate && rounding.is_none(),
        };
        let saturable = matches!(op, FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Fma);
        let reads_nan = matches!(op, FloatOp::Min { .. } | FloatOp::Max { .. });
        if !consistent || (saturate && !saturable) || ((nan || by_magnitude) && !reads_nan) {
            return Err(modifiers.unsupported());
        }
        modifiers.finish(sources + 1..=sources + 1)?;
        let mut s: [Slot; 3] = [0; 3];
        for (position, slot) in s.iter_mut().enumerate().take(sources) {
            *slot = self.value(instruction, &instruction.operands[position + 1], element)?;
        }
        let d = self.result(instruction, element.bits())?;
        let flush = flush && !double;
        let shape =
            FloatShape { double, rounding: rounding.unwrap_or(Rounding::NearestEven), flush, saturate };
        if by_magnitude {
            return self.choose_by_magnitude(instruction, op, shape, d, s);
        }
        self.emit_guarded(instruction, Op::Float { op, shape, d, s })
    }

    /// `.xorsign.abs`: of the magnitudes, with the exclusive or of the signs.
    fn choose_by_magnitude(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        op: FloatOp,
        shape: FloatShape,
        d: Slot,
        [a, b, _]: [Slot; 3],
    ) -> Result<(), Error> {
        let line = instruction.line;
        let [x, y, sign] = [self.new_slot(line)?, self.new_slot(line)?, self.new_slot(line)?];
        let exact = FloatShape { flush: false, ..shape };
        for (magnitude, from) in [(x, a), (y, b)] {
            let s = [from, 0, 0];
            self.emit_guarded(instruction, Op::Float { op: FloatOp::Abs, shape: exact, d: magnitude, s })?;
        }
        let (element, s) = (ScalarType::U32, [a, b, 0, 0]);
        self.emit_guarded(instruction, Op::Integer { op: IntegerOp::Xor, element, d: sign, s })?;
        self.emit_guarded(instruction, Op::Float { op, shape, d: x, s: [x, y, 0] })?;
        let s = [sign, x, 0];
        self.emit_guarded(instruction, Op::Float { op: FloatOp::CopySign, shape: exact, d, s })
    }
}

/// Which of `.rn`-like and `.approx` an operation takes.
enum FloatRule {
    /// A rounding, or none.
    Rounded,
    RoundedOrApproximate,
    Approximate,
    Exact,
}

impl FloatRule {
    fn of(op: FloatOp) -> Self {
        match op {
            FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Fma => Self::Rounded,
            FloatOp::Div | FloatOp::Reciprocal | FloatOp::SquareRoot => Self::RoundedOrApproximate,
            FloatOp::ReciprocalSquareRoot
            | FloatOp::GrossReciprocal
            | FloatOp::GrossReciprocalSquareRoot
            | FloatOp::Exp2
            | FloatOp::Log2
            | FloatOp::Sin
            | FloatOp::Cos
            | FloatOp::Tanh => Self::Approximate,
            FloatOp::Min { .. } | FloatOp::Max { .. } | FloatOp::Neg | FloatOp::Abs | FloatOp::CopySign => {
                Self::Exact
            }
        }
    }
}

fn double_width(element: ScalarType) -> ScalarType {
    match element.bits() {
        16 => ScalarType::B32,
        _ => ScalarType::B64,
    }
}
