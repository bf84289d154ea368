//! mma and ldmatrix: products of small matrices whose parts the lanes of a warp hold.
//!
//! Shapes and types are those of PTX ISA, "Matrix multiply-accumulate operation using mma instruction", that are
//! listed in `SHAPES`. Read next: `execute/matrix.rs`.

use super::Compiler;
use super::modifiers::Modifiers;
use super::slots::operand;
use crate::error::Error;
use crate::program::{Collective, MatrixElement, MatrixProduct, MatrixSum, Op, Slot};
use crate::syntax::{InstructionSyntax, Operand};
use crate::types::{ScalarType, Space};

/// Rows and the number of products that are summed up, by the shape's name.
const SHAPES: [(&str, (u8, u8)); 6] = [
    ("m16n8k4", (16, 4)),
    ("m16n8k8", (16, 8)),
    ("m16n8k16", (16, 16)),
    ("m16n8k32", (16, 32)),
    ("m16n8k64", (16, 64)),
    ("m8n8k4", (8, 4)),
];

const ELEMENTS: [(&str, MatrixElement); 6] = [
    ("f16", MatrixElement::F16),
    ("bf16", MatrixElement::BF16),
    ("tf32", MatrixElement::TF32),
    ("f64", MatrixElement::F64),
    ("s8", MatrixElement::S8),
    ("u8", MatrixElement::U8),
];

const SUMS: [(&str, MatrixSum); 4] =
    [("f32", MatrixSum::F32), ("f16", MatrixSum::F16), ("f64", MatrixSum::F64), ("s32", MatrixSum::S32)];

fn find<T: Copy>(table: &[(&str, T)], word: Option<&str>) -> Option<T> {
    table.iter().find(|(known, _)| Some(*known) == word).map(|(_, value)| *value)
}

impl<'a> Compiler<'_, 'a> {
    pub(super) fn matrix_multiply(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let plain = modifiers.take("sync") && modifiers.take("aligned");
        let shape = modifiers.choose(&SHAPES);
        let order = modifiers.take("row") && modifiers.take("col");
        let saturate = modifiers.take("satfinite");
        // What is left are the types of d, a, b and c.
        let words = modifiers.rest();
        let word = |place: usize| words.get(place).copied();
        let (Some((rows, depth)), Some(d_sum), Some(a), Some(b), Some(c_sum), true, 4) = (
            shape,
            find(&SUMS, word(0)),
            find(&ELEMENTS, word(1)),
            find(&ELEMENTS, word(2)),
            find(&SUMS, word(3)),
            plain && order,
            words.len(),
        ) else {
            return Err(modifiers.unsupported());
        };
        let product = MatrixProduct { rows, depth, a, b, sum: d_sum, addend: c_sum, saturate };
        if !product.exists() || instruction.operands.len() != 4 {
            return Err(modifiers.unsupported());
        }
        let [d_count, a_count, b_count, c_count] = product.registers();
        let sum_type = |sum: MatrixSum| if sum == MatrixSum::F64 { ScalarType::B64 } else { ScalarType::B32 };
        let part_type = if a == MatrixElement::F64 { ScalarType::B64 } else { ScalarType::B32 };
        let a = self.registers_of(instruction, modifiers, 1, a_count, part_type)?;
        let b = self.registers_of(instruction, modifiers, 2, b_count, part_type)?;
        let c = self.registers_of(instruction, modifiers, 3, c_count, sum_type(c_sum))?;
        let d = self.targets_of(instruction, modifiers, 0, d_count, sum_type(d_sum).bits())?;
        let members = Some(self.constant(u64::from(u32::MAX), instruction.line)?);
        let kind = Box::new(Collective::MatrixMultiply { product, d, a, b, c });
        self.emit_guarded(instruction, Op::Collective { kind, members })
    }

    /// `ldmatrix`: rows of eight halves, of which each lane of eight names one, are spread over the warp.
    pub(super) fn load_matrix(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let plain = modifiers.take("sync") && modifiers.take("aligned") && modifiers.take("m8n8");
        let count = modifiers.choose(&[("x1", 1usize), ("x2", 2), ("x4", 4)]);
        let transposed = modifiers.take("trans");
        let space = match (modifiers.take("shared") || modifiers.take("shared::cta"), plain) {
            (true, true) => Space::Shared,
            (false, true) => Space::Generic,
            _ => return Err(modifiers.unsupported()),
        };
        modifiers.element_if(|element| element == ScalarType::B16)?;
        modifiers.finish(2..=2)?;
        let Some(count) = count else { return Err(modifiers.unsupported()) };
        let d = self.targets_of(instruction, modifiers, 0, count, 32)?;
        let place = self.place(instruction, operand(instruction, 1)?, Some(space), ScalarType::B64, 2)?;
        self.emit_guarded(instruction, Op::LoadMatrix { place, d, transposed })
    }

    fn registers_of(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &Modifiers<'_, 'a>,
        position: usize,
        count: usize,
        element: ScalarType,
    ) -> Result<Box<[Slot]>, Error> {
        let parts = vector(modifiers, operand(instruction, position)?, count)?;
        parts.iter().map(|part| self.value(instruction, part, element)).collect()
    }

    fn targets_of(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &Modifiers<'_, 'a>,
        position: usize,
        count: usize,
        bits: u32,
    ) -> Result<Box<[Slot]>, Error> {
        let parts = vector(modifiers, operand(instruction, position)?, count)?;
        parts.iter().map(|part| Ok(self.destination(instruction, part, bits)?.0)).collect()
    }
}

/// The registers of a vector of that length; one register may stand alone.
fn vector<'o, 'a>(
    modifiers: &Modifiers<'_, 'a>,
    operand: &'o Operand<'a>,
    count: usize,
) -> Result<&'o [Operand<'a>], Error> {
    match operand {
        Operand::Vector(parts) if parts.len() == count => Ok(parts),
        Operand::Vector(_) => Err(modifiers.unsupported()),
        single if count == 1 => Ok(std::slice::from_ref(single)),
        _ => Err(modifiers.unsupported()),
    }
}
