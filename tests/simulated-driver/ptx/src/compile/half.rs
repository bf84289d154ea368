//! Arithmetic in half precision: f16 and bf16, alone or two in a register.
//!
//! What singles and doubles do is in `arithmetic.rs`; packed conversions in `convert.rs`. Read next:
//! `execute/half.rs`.

use super::Compiler;
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::program::{FloatOp, HalfShape, Op};
use crate::syntax::InstructionSyntax;
use crate::types::{Rounding, ScalarType};

/// Types of two halves in 32 bits.
pub(super) const PACKED: [(&str, ScalarType); 2] = [("f16x2", ScalarType::F16), ("bf16x2", ScalarType::BF16)];

impl<'a> Compiler<'_, 'a> {
    pub(super) fn half(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
        element: ScalarType,
        packed: bool,
    ) -> Result<(), Error> {
        let rounding = modifiers.rounding();
        let approximate = modifiers.take("approx");
        let is_f16 = element == ScalarType::F16;
        let (flush, saturate) = (modifiers.take("ftz"), is_f16 && modifiers.take("sat"));
        let (relu, nan) = (modifiers.take("relu"), modifiers.take("NaN"));
        let (op, sources) = match instruction.opcode {
            "add" => (FloatOp::Add, 2),
            "sub" => (FloatOp::Sub, 2),
            "mul" => (FloatOp::Mul, 2),
            "fma" if rounding.is_some() => (FloatOp::Fma, 3),
            "min" => (FloatOp::Min { nan }, 2),
            "max" => (FloatOp::Max { nan }, 2),
            "abs" => (FloatOp::Abs, 1),
            "neg" => (FloatOp::Neg, 1),
            "ex2" if approximate => (FloatOp::Exp2, 1),
            "tanh" if approximate => (FloatOp::Tanh, 1),
            _ => return Err(modifiers.unsupported()),
        };
        let rounded = matches!(op, FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Fma);
        let chosen = matches!(op, FloatOp::Min { .. } | FloatOp::Max { .. });
        // Only f16, and the exponential of both, know subnormals to flush.
        let flushable = is_f16 || op == FloatOp::Exp2;
        let valid = match rounding {
            Some(Rounding::NearestEven) => rounded,
            Some(_) => false,
            None => true,
        } && approximate == matches!(op, FloatOp::Exp2 | FloatOp::Tanh)
            && (!saturate || rounded)
            && (!relu || op == FloatOp::Fma)
            && (!nan || chosen)
            && (!flush || flushable);
        if !valid {
            return Err(modifiers.unsupported());
        }
        modifiers.finish(sources + 1..=sources + 1)?;
        let read = if packed { ScalarType::B32 } else { element };
        let mut s = [0; 3];
        for (position, slot) in s.iter_mut().enumerate().take(sources) {
            *slot = self.value(instruction, &instruction.operands[position + 1], read)?;
        }
        let d = self.result(instruction, read.bits())?;
        let shape = HalfShape { element, packed, flush, saturate, relu };
        self.emit_guarded(instruction, Op::Half { op, shape, d, s })
    }
}
