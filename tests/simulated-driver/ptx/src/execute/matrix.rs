//! mma and ldmatrix over the lanes of a warp (PTX ISA, "Matrix Fragments for mma" and "ldmatrix").
//!
//! Lane `4 * g + t` holds, in each register, neighbours along the dimension that is summed up: of row `g` of A, of
//! column `g` of B. Sums of floats are made in double and rounded once; in which order and with what intermediate
//! rounding a device adds is not documented.

use super::convert::{narrow, widen};
use super::memory::{access, addresses};
use super::registers::{Registers, lanes_of};
use super::{Failure, Machine};
use crate::program::{MatrixElement, MatrixProduct, MatrixSum, Place, Slot};
use crate::types::{LANE_COUNT, Lanes, ScalarType};

/// Columns of B and of the sum.
const COLUMNS: usize = 8;
/// Rows of a matrix of `ldmatrix`, and lanes that name them.
const LOADED_ROWS: usize = 8;

impl MatrixElement {
    fn bits(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 16,
            Self::TF32 => 32,
            Self::F64 => 64,
            Self::S8 | Self::U8 => 8,
        }
    }

    /// Elements of one register.
    fn per_register(self) -> usize {
        if self == Self::F64 { 1 } else { 32 / self.bits() }
    }

    fn value(self, register: u64, place: usize) -> f64 {
        let part = register >> (place * self.bits());
        match self {
            Self::F16 => widen(part & 0xffff, ScalarType::F16),
            Self::BF16 => widen(part & 0xffff, ScalarType::BF16),
            // The lowest bits of the fraction are not looked at.
            Self::TF32 => f64::from(f32::from_bits(part as u32 & !0x1fff)),
            Self::F64 => f64::from_bits(part),
            Self::S8 => f64::from(part as i8),
            Self::U8 => f64::from(part as u8),
        }
    }
}

impl MatrixProduct {
    /// Whether PTX has it, of what is executed.
    pub(crate) fn exists(self) -> bool {
        use MatrixElement::{BF16, F16, F64, S8, TF32, U8};
        let Self { rows, depth, a, b, sum, addend, saturate } = self;
        match (a, b) {
            (F16, F16) => {
                rows == 16
                    && matches!(depth, 8 | 16)
                    && sum == addend
                    && !saturate
                    && matches!(sum, MatrixSum::F16 | MatrixSum::F32)
            }
            (BF16, BF16) => {
                rows == 16
                    && matches!(depth, 8 | 16)
                    && (sum, addend, saturate) == (MatrixSum::F32, MatrixSum::F32, false)
            }
            (TF32, TF32) => {
                rows == 16
                    && matches!(depth, 4 | 8)
                    && (sum, addend, saturate) == (MatrixSum::F32, MatrixSum::F32, false)
            }
            (S8 | U8, S8 | U8) => {
                rows == 16 && matches!(depth, 16 | 32) && (sum, addend) == (MatrixSum::S32, MatrixSum::S32)
            }
            (F64, F64) => {
                (rows, depth, sum, addend, saturate) == (8, 4, MatrixSum::F64, MatrixSum::F64, false)
            }
            _ => false,
        }
    }

    /// Registers per lane of d, a, b and c.
    pub(crate) fn registers(self) -> [usize; 4] {
        let (rows, depth) = (usize::from(self.rows), usize::from(self.depth));
        let each = LANE_COUNT * self.a.per_register();
        let sums = |sum: MatrixSum| rows * COLUMNS / LANE_COUNT / if sum == MatrixSum::F16 { 2 } else { 1 };
        [sums(self.sum), rows * depth / each, COLUMNS * depth / each, sums(self.addend)]
    }
}

pub(super) fn multiply(
    registers: &mut Registers,
    active: u32,
    product: MatrixProduct,
    [d, a, b, c]: [&[Slot]; 4],
) {
    let (rows, depth) = (usize::from(product.rows), usize::from(product.depth));
    let row_groups = rows / 8;
    let mut left = vec![0.0; rows * depth];
    let mut right = vec![0.0; depth * COLUMNS];
    for lane in 0..LANE_COUNT {
        let (group, thread) = (lane / 4, lane % 4);
        let count = product.a.per_register();
        for (number, slot) in a.iter().enumerate() {
            let (row, first) =
                (group + 8 * (number % row_groups), thread * count + number / row_groups * 4 * count);
            for place in 0..count {
                left[row * depth + first + place] = product.a.value(registers.get(*slot)[lane], place);
            }
        }
        for (number, slot) in b.iter().enumerate() {
            let first = thread * count + number * 4 * count;
            for place in 0..count {
                right[(first + place) * COLUMNS + group] = product.b.value(registers.get(*slot)[lane], place);
            }
        }
    }
    let mut out = vec![[0; LANE_COUNT]; d.len()];
    for lane in 0..LANE_COUNT {
        for pair in 0..rows * COLUMNS / LANE_COUNT {
            let (row, column) = (lane / 4 + 8 * (pair / 2), lane % 4 * 2 + pair % 2);
            let addend = product.addend.read(c, registers, lane, pair);
            let products = (0..depth).map(|k| left[row * depth + k] * right[k * COLUMNS + column]);
            let sum = products.fold(addend, |sum, product| sum + product);
            product.sum.write(&mut out, lane, pair, sum, product.saturate);
        }
    }
    for (slot, lanes) in d.iter().zip(&out) {
        registers.set(*slot, active, lanes);
    }
}

impl MatrixSum {
    fn read(self, slots: &[Slot], registers: &Registers, lane: usize, pair: usize) -> f64 {
        match self {
            Self::F32 => f64::from(f32::from_bits(registers.get(slots[pair])[lane] as u32)),
            Self::F64 => f64::from_bits(registers.get(slots[pair])[lane]),
            Self::S32 => f64::from(registers.get(slots[pair])[lane] as i32),
            Self::F16 => {
                widen(registers.get(slots[pair / 2])[lane] >> (16 * (pair % 2)) & 0xffff, ScalarType::F16)
            }
        }
    }

    fn write(self, out: &mut [Lanes], lane: usize, pair: usize, sum: f64, saturate: bool) {
        match self {
            Self::F32 => out[pair][lane] = narrow(sum, ScalarType::F32),
            Self::F64 => out[pair][lane] = sum.to_bits(),
            // Exact: 32 products of bytes and a word need fewer bits than a double has.
            Self::S32 if saturate => out[pair][lane] = u64::from(sum as i32 as u32),
            Self::S32 => out[pair][lane] = u64::from(sum as i64 as u32),
            Self::F16 => out[pair / 2][lane] |= narrow(sum, ScalarType::F16) << (16 * (pair % 2)),
        }
    }
}

pub(super) fn load(
    machine: &mut Machine<'_>,
    registers: &mut Registers,
    local: &mut [u8],
    place: &Place,
    d: &[Slot],
    transposed: bool,
    active: u32,
) -> Result<(), Failure> {
    let naming = (LOADED_ROWS * d.len()) as u32;
    let mask = if naming == 32 { active } else { active & ((1 << naming) - 1) };
    let addresses = addresses(registers, place, mask)?;
    let mut rows = [[0u8; 16]; LANE_COUNT];
    access(machine, local, place, &addresses, mask, &mut |memory, addresses, mask| {
        lanes_of(mask).try_for_each(|lane| memory.load(addresses[lane], &mut rows[lane]))
    })?;
    for (matrix, slot) in d.iter().enumerate() {
        let half = |row: usize, column: usize| {
            let bytes = &rows[matrix * LOADED_ROWS + row][2 * column..][..2];
            u64::from(u16::from_le_bytes([bytes[0], bytes[1]]))
        };
        let lanes: Lanes = std::array::from_fn(|lane| {
            let (group, first) = (lane / 4, lane % 4 * 2);
            match transposed {
                false => half(group, first) | half(group, first + 1) << 16,
                true => half(first, group) | half(first + 1, group) << 16,
            }
        });
        registers.set(*slot, active, &lanes);
    }
    Ok(())
}
