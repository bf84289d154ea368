//! Logic, shifts and bit fields: and, or, xor, not, cnot, shl, shr, shf, lop3, popc, clz, bfind, brev, bfe, bfi,
//! prmt, dp4a, dp2a, mul24, mad24, fns, bmsk, szext, and the video instructions on parts of words.
//!
//! Read next: `execute/bits.rs`.

use super::Compiler;
use super::modifiers::Modifiers;
use super::slots::operand;
use crate::error::Error;
use crate::program::{DotHalf, DotShape, Guard, IntegerOp, Logic, Op, PermuteMode, SimdOp, SimdShape};
use crate::syntax::InstructionSyntax;
use crate::types::ScalarType;

impl<'a> Compiler<'_, 'a> {
    pub(super) fn bits(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let shift_amount = instruction.opcode == "bfind" && modifiers.take("shiftamt");
        let left = instruction.opcode == "shf" && modifiers.take("l");
        let right = instruction.opcode == "shf" && modifiers.take("r");
        let wrap = instruction.opcode == "shf" && modifiers.take("wrap");
        let clamp = instruction.opcode == "shf" && modifiers.take("clamp");
        let mode = if instruction.opcode == "prmt" { permute_mode(modifiers) } else { PermuteMode::Index };
        let element = modifiers.element()?;
        if element == ScalarType::Predicate {
            return self.predicate_logic(instruction, modifiers);
        }
        let bits = element.bits();
        if !element.is_integer() || bits < 16 {
            return Err(modifiers.unsupported());
        }
        let (narrowest, op, sources) = match instruction.opcode {
            "and" => (16, IntegerOp::And, 2),
            "or" => (16, IntegerOp::Or, 2),
            "xor" => (16, IntegerOp::Xor, 2),
            "not" => (16, IntegerOp::Not, 1),
            "cnot" => (16, IntegerOp::LogicalNot, 1),
            "shl" => (16, IntegerOp::ShiftLeft, 2),
            "shr" => (16, IntegerOp::ShiftRight, 2),
            "shf" if left != right && wrap != clamp && bits == 32 => {
                (32, IntegerOp::Funnel { left, wrap }, 3)
            }
            "lop3" if bits == 32 => (32, IntegerOp::Lop3, 4),
            "popc" => (32, IntegerOp::PopulationCount, 1),
            "clz" => (32, IntegerOp::LeadingZeros, 1),
            "bfind" => (32, IntegerOp::FindBit { shift: shift_amount }, 1),
            "brev" => (32, IntegerOp::Reverse, 1),
            "bfe" => (32, IntegerOp::ExtractField, 3),
            "bfi" => (32, IntegerOp::InsertField, 4),
            "prmt" if bits == 32 => (32, IntegerOp::Permute(mode), 3),
            _ => return Err(modifiers.unsupported()),
        };
        if bits < narrowest {
            return Err(modifiers.unsupported());
        }
        modifiers.finish(sources + 1..=sources + 1)?;
        let mut s = [0; 4];
        for (position, slot) in s.iter_mut().enumerate().take(sources) {
            // Shift counts, field places and lengths are 32 bits wide whatever is shifted.
            let read = match (op, position) {
                (IntegerOp::ShiftLeft | IntegerOp::ShiftRight, 1) => ScalarType::U32,
                (IntegerOp::ExtractField, 1 | 2) | (IntegerOp::InsertField, 2 | 3) => ScalarType::U32,
                _ => element,
            };
            *slot = self.value(instruction, &instruction.operands[position + 1], read)?;
        }
        let counts =
            matches!(op, IntegerOp::PopulationCount | IntegerOp::LeadingZeros | IntegerOp::FindBit { .. });
        let d = self.result(instruction, if counts { 32 } else { bits })?;
        self.emit_guarded(instruction, Op::Integer { op, element, d, s })
    }

    /// `dp4a`, `dp2a`: the types of `a` and `b` are told one by one; the sum has 32 bits and wraps.
    pub(super) fn dot_product(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let halves = match instruction.opcode {
            "dp2a" => Some(modifiers.require(&[("lo", DotHalf::Low), ("hi", DotHalf::High)])?),
            _ => None,
        };
        let known = |element| matches!(element, ScalarType::U32 | ScalarType::S32);
        let (a, b) = (modifiers.element_if(known)?, modifiers.element_if(known)?);
        modifiers.finish(4..=4)?;
        let [x, y, z] = self.values(instruction, 1, ScalarType::U32)?;
        let shape = DotShape { a_signed: a.is_signed(), b_signed: b.is_signed(), halves };
        let d = self.result(instruction, 32)?;
        let op = IntegerOp::Dot(shape);
        self.emit_guarded(instruction, Op::Integer { op, element: ScalarType::U32, d, s: [x, y, z, 0] })
    }

    /// `mul24`, `mad24`, `fns`, `bmsk`, `szext`.
    pub(super) fn odd_bits(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let adds = instruction.opcode == "mad24";
        let (op, sources) = match instruction.opcode {
            "mul24" | "mad24" => {
                let high = modifiers.require(&[("lo", false), ("hi", true)])?;
                (IntegerOp::Mul24 { high, adds }, if adds { 3 } else { 2 })
            }
            "fns" => (IntegerOp::FindSet, 3),
            opcode => {
                let wrap = modifiers.require(&[("clamp", false), ("wrap", true)])?;
                (if opcode == "bmsk" { IntegerOp::Mask { wrap } } else { IntegerOp::Extend { wrap } }, 2)
            }
        };
        let bare = matches!(op, IntegerOp::FindSet | IntegerOp::Mask { .. });
        let element = modifiers.element_if(|element| match element {
            ScalarType::B32 => bare,
            ScalarType::U32 | ScalarType::S32 => !bare,
            _ => false,
        })?;
        modifiers.finish(sources + 1..=sources + 1)?;
        let mut s = [0; 4];
        for (position, slot) in s.iter_mut().enumerate().take(sources) {
            *slot = self.value(instruction, operand(instruction, position + 1)?, ScalarType::U32)?;
        }
        let d = self.result(instruction, 32)?;
        self.emit_guarded(instruction, Op::Integer { op, element, d, s })
    }

    /// `vadd4` and its kin: all parts of a word, `.sat` and the sum of the parts with `.add`.
    pub(super) fn simd(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let (name, parts) = instruction.opcode.split_at(instruction.opcode.len() - 1);
        let op = match name {
            "vadd" => SimdOp::Add,
            "vsub" => SimdOp::Sub,
            "vavrg" => SimdOp::Average,
            "vabsdiff" => SimdOp::AbsoluteDifference,
            "vmin" => SimdOp::Min,
            _ => SimdOp::Max,
        };
        let known = |element| matches!(element, ScalarType::U32 | ScalarType::S32);
        let (d_type, a_type) = (modifiers.element_if(known)?, modifiers.element_if(known)?);
        let b_type = modifiers.element_if(known)?;
        let (saturate, accumulate) = (modifiers.take("sat"), modifiers.take("add"));
        if saturate && accumulate {
            return Err(modifiers.unsupported());
        }
        modifiers.finish(4..=4)?;
        let [x, y, z] = self.values(instruction, 1, ScalarType::U32)?;
        let d = self.result(instruction, 32)?;
        let shape = SimdShape {
            op,
            parts: if parts == "2" { 2 } else { 4 },
            a_signed: a_type.is_signed(),
            b_signed: b_type.is_signed(),
            d_signed: d_type.is_signed(),
            saturate,
            accumulate,
        };
        let op = IntegerOp::Simd(shape);
        self.emit_guarded(instruction, Op::Integer { op, element: ScalarType::U32, d, s: [x, y, z, 0] })
    }

    fn predicate_logic(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let (logic, sources) = match instruction.opcode {
            "and" => (Logic::And, 2),
            "or" => (Logic::Or, 2),
            "xor" => (Logic::Xor, 2),
            "not" => (Logic::And, 1),
            _ => return Err(modifiers.unsupported()),
        };
        modifiers.finish(sources + 1..=sources + 1)?;
        let mut a = self.predicate(instruction, operand(instruction, 1)?)?;
        let b = if sources == 2 {
            self.predicate(instruction, operand(instruction, 2)?)?
        } else {
            a = Guard { negated: !a.negated, ..a };
            a
        };
        match self.predicate_destination(instruction, operand(instruction, 0)?)? {
            Some(d) => self.emit_guarded(instruction, Op::PredicateLogic { op: logic, d, a, b }),
            None => Ok(()),
        }
    }
}

fn permute_mode(modifiers: &mut Modifiers<'_, '_>) -> PermuteMode {
    let modes = [
        ("f4e", PermuteMode::Forward4),
        ("b4e", PermuteMode::Backward4),
        ("rc8", PermuteMode::Replicate8),
        ("ecl", PermuteMode::EdgeLeft),
        ("ecr", PermuteMode::EdgeRight),
        ("rc16", PermuteMode::Replicate16),
    ];
    modifiers.choose(&modes).unwrap_or(PermuteMode::Index)
}
