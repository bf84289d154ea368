//! tex, suld, sust: reads through texture objects and accesses to surfaces (PTX ISA section 9.7.10).
//!
//! Without levels, gradients, offsets, comparisons and cubes. What an object is the caller decides when the
//! instruction runs. Read next: `execute/texture.rs`.

use super::Compiler;
use super::modifiers::Modifiers;
use super::slots::operand;
use crate::error::Error;
use crate::program::{Op, Slot, Texel};
use crate::syntax::{InstructionSyntax, Operand};
use crate::texture::{Geometry, Outside};
use crate::types::ScalarType;

const GEOMETRIES: [(&str, Geometry); 5] = [
    ("1d", Geometry::Line),
    ("2d", Geometry::Plane),
    ("3d", Geometry::Solid),
    ("a1d", Geometry::Lines),
    ("a2d", Geometry::Planes),
];

impl<'a> Compiler<'_, 'a> {
    pub(super) fn texture(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let geometry = modifiers.require(&GEOMETRIES)?;
        if !modifiers.take("v4") {
            return Err(modifiers.unsupported());
        }
        let known = |element| matches!(element, ScalarType::F32 | ScalarType::S32 | ScalarType::U32);
        modifiers.element_if(known)?;
        let place = modifiers.element_if(|element| matches!(element, ScalarType::F32 | ScalarType::S32))?;
        modifiers.finish(2..=2)?;
        let Operand::Vector(targets) = operand(instruction, 0)? else { return Err(modifiers.unsupported()) };
        if targets.len() != 4 {
            return Err(modifiers.unsupported());
        }
        let mut d: [Slot; 4] = [0; 4];
        for (slot, target) in d.iter_mut().zip(targets) {
            *slot = self.destination(instruction, target, 32)?.0;
        }
        let texel = self.texel(instruction, modifiers, operand(instruction, 1)?, geometry, place)?;
        self.emit_guarded(instruction, Op::Texture { texel: Box::new(texel), d })
    }

    pub(super) fn surface(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let stores = instruction.opcode == "sust";
        if !modifiers.take("b") {
            return Err(modifiers.unsupported());
        }
        modifiers.discard(|word| matches!(word, "ca" | "cg" | "cs" | "cv" | "wb" | "wt"));
        let geometry = modifiers.require(&GEOMETRIES)?;
        let count = modifiers.choose(&[("v2", 2), ("v4", 4)]).unwrap_or(1_u8);
        let outside = modifiers.require(&[
            ("trap", Outside::Trap),
            ("clamp", Outside::Clamp),
            ("zero", Outside::Zero),
        ])?;
        let element = modifiers.element_if(|element| {
            use ScalarType::{B8, B16, B32, B64};
            matches!(element, B8 | B16 | B32 | B64) && element.bytes() * u64::from(count) <= 16
        })?;
        modifiers.finish(2..=2)?;
        let (values, place) = if stores { (1, 0) } else { (0, 1) };
        let values = match operand(instruction, values)? {
            Operand::Vector(parts) if parts.len() == usize::from(count) => parts,
            single if count == 1 => std::slice::from_ref(single),
            _ => return Err(modifiers.unsupported()),
        };
        let mut slots: [Slot; 4] = [0; 4];
        for (slot, value) in slots.iter_mut().zip(values) {
            *slot = match stores {
                true => self.value(instruction, value, element)?,
                false => self.destination(instruction, value, element.bits())?.0,
            };
        }
        let place = operand(instruction, place)?;
        let texel = Box::new(self.texel(instruction, modifiers, place, geometry, ScalarType::S32)?);
        let width = element.bytes() as u8;
        self.emit_guarded(instruction, Op::Surface { texel, outside, stores, slots, width, count })
    }

    /// `[object, {coordinates}]`, the coordinates of the type named.
    fn texel(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &Modifiers<'_, 'a>,
        place: &Operand<'a>,
        geometry: Geometry,
        element: ScalarType,
    ) -> Result<Texel, Error> {
        let Operand::Texel { object, coordinates } = place else { return Err(modifiers.unsupported()) };
        let object = self.value(instruction, object, ScalarType::B64)?;
        // The third dimension and layers of planes are written with padding to four.
        let (layered, dimensions, written) = match geometry {
            Geometry::Line => (false, 1, 1..=1),
            Geometry::Plane => (false, 2, 2..=2),
            Geometry::Solid => (false, 3, 3..=4),
            Geometry::Lines => (true, 1, 2..=2),
            Geometry::Planes => (true, 2, 3..=4),
        };
        if !written.contains(&coordinates.len()) {
            return Err(modifiers.unsupported());
        }
        let (layer, rest) =
            if layered { (coordinates.first(), &coordinates[1..]) } else { (None, &coordinates[..]) };
        let layer = match layer {
            Some(layer) => Some(self.value(instruction, layer, ScalarType::U32)?),
            None => None,
        };
        let mut at: [Slot; 3] = [self.constant(0, instruction.line)?; 3];
        for (slot, coordinate) in at.iter_mut().zip(&rest[..dimensions]) {
            *slot = self.value(instruction, coordinate, element)?;
        }
        Ok(Texel { object, geometry, at, layer, real: element == ScalarType::F32 })
    }
}
