//! cvt: between integers and floats of all widths, with rounding and saturation.
//!
//! Read next: `execute/convert.rs`.

use super::Compiler;
use super::half::PACKED;
use super::modifiers::Modifiers;
use super::slots::operand;
use crate::error::Error;
use crate::program::{Conversion, Op};
use crate::syntax::InstructionSyntax;
use crate::types::{Rounding, ScalarType};

impl<'a> Compiler<'_, 'a> {
    pub(super) fn convert(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let integral = modifiers.choose(&[
            ("rni", Rounding::NearestEven),
            ("rzi", Rounding::Zero),
            ("rmi", Rounding::Down),
            ("rpi", Rounding::Up),
        ]);
        let rounding = modifiers.rounding();
        let flush = modifiers.take("ftz");
        let saturate = modifiers.take("sat");
        if let Some(half) = modifiers.choose(&PACKED) {
            let plain = integral.is_none() && !flush && !saturate;
            return match rounding {
                Some(rounding) if plain => self.convert_packed(instruction, modifiers, half, rounding),
                _ => Err(modifiers.unsupported()),
            };
        }
        let to = modifiers.element_if(|element| element != ScalarType::Predicate)?;
        let from = modifiers.element_if(|element| element != ScalarType::Predicate)?;
        modifiers.finish(2..=2)?;
        let narrows = from.is_float() && to.is_float() && to.bits() < from.bits();
        let valid = match (from.is_float(), to.is_float()) {
            (false, false) => integral.is_none() && rounding.is_none() && !flush,
            (true, false) => integral.is_some() && rounding.is_none(),
            (false, true) => integral.is_none() && rounding.is_some(),
            // Between floats of one width only rounding to integral values changes anything.
            (true, true) if narrows => integral.is_none() && rounding.is_some(),
            (true, true) => rounding.is_none() && (integral.is_none() || from == to),
        };
        if !valid {
            return Err(modifiers.unsupported());
        }
        let a = self.value(instruction, operand(instruction, 1)?, from)?;
        let (d, register_bits) = self.destination(instruction, operand(instruction, 0)?, to.bits())?;
        let conversion = Box::new(Conversion {
            from,
            to,
            rounding: integral.or(rounding).unwrap_or(Rounding::NearestEven),
            integral: integral.is_some(),
            flush,
            saturate,
            register_bits,
        });
        self.emit_guarded(instruction, Op::Convert { conversion, d, a })
    }
    /// `cvt.rn.f16x2.f32 d, a, b`: `a` becomes the upper half, `b` the lower.
    fn convert_packed(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
        to: ScalarType,
        rounding: Rounding,
    ) -> Result<(), Error> {
        let from = modifiers.element_if(|element| element == ScalarType::F32)?;
        modifiers.finish(3..=3)?;
        let [upper, lower] = self.values(instruction, 1, from)?;
        let d = self.result(instruction, 32)?;
        let mut parts = [0; 4];
        for (part, a) in parts.iter_mut().zip([lower, upper]) {
            *part = self.new_slot(instruction.line)?;
            let conversion = Box::new(Conversion {
                from,
                to,
                rounding,
                integral: false,
                flush: false,
                saturate: false,
                register_bits: 16,
            });
            self.emit_guarded(instruction, Op::Convert { conversion, d: *part, a })?;
        }
        self.emit_guarded(instruction, Op::Pack { d, parts, count: 2, bits: 16 })
    }
}
