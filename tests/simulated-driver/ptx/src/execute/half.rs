//! Half precision over the lanes of a warp: one value, or two in a register, at a time through `soft.rs`.
//!
//! The `.approx` functions are computed in double and rounded once, as in `float.rs`.

use super::convert::{narrow, widen};
use super::registers::{Registers, map3};
use crate::program::{FloatOp, HalfShape, Slot};
use crate::soft::Format;
use crate::types::Rounding;

const SIGN: u64 = 0x8000;

pub(crate) fn half(
    registers: &mut Registers,
    mask: u32,
    op: FloatOp,
    shape: HalfShape,
    d: Slot,
    s: [Slot; 3],
) {
    let [x, y, z] = s.map(|slot| registers.get(slot));
    let one = |a: u64, b: u64, c: u64| compute(op, shape, [a, b, c].map(|value| value & 0xffff));
    let out = if shape.packed {
        map3(x, y, z, |a: u64, b: u64, c: u64| one(a, b, c) | one(a >> 16, b >> 16, c >> 16) << 16)
    } else {
        map3(x, y, z, one)
    };
    registers.set(d, mask, &out);
}

fn compute(op: FloatOp, shape: HalfShape, operands: [u64; 3]) -> u64 {
    let format = Format::of(shape.element);
    let nearest = Rounding::NearestEven;
    let flushed = |value| if shape.flush { flush(format, value) } else { value };
    let [a, b, c] = operands.map(flushed);
    let real = |value| widen(value, shape.element);
    let out = match op {
        FloatOp::Sub => format.add(a, b ^ SIGN, nearest),
        FloatOp::Mul => format.mul(a, b, nearest),
        FloatOp::Fma => format.fma(a, b, c, nearest),
        FloatOp::Neg => return operands[0] ^ SIGN,
        FloatOp::Abs => return operands[0] & !SIGN,
        FloatOp::Min { nan } => choose(format, [a, b], [real(a), real(b)], nan, true),
        FloatOp::Max { nan } => choose(format, [a, b], [real(a), real(b)], nan, false),
        FloatOp::Exp2 => narrow(real(a).exp2(), shape.element),
        FloatOp::Tanh => narrow(real(a).tanh(), shape.element),
        // Addition; `compile/half.rs` lets nothing else through.
        _ => format.add(a, b, nearest),
    };
    let out = flushed(out);
    let value = real(out);
    if shape.saturate && (value.is_nan() || value <= 0.0) {
        0
    } else if shape.saturate && value > 1.0 {
        narrow(1.0, shape.element)
    } else if shape.relu && value < 0.0 {
        0
    } else {
        out
    }
}

/// A zero of its sign instead of a subnormal.
fn flush(format: Format, value: u64) -> u64 {
    if format.is_subnormal(value) { value & SIGN } else { value }
}

/// The smaller or larger operand; the number where one is none, unless `nan`. Negative zero is below zero.
fn choose(format: Format, bits: [u64; 2], values: [f64; 2], nan: bool, smaller: bool) -> u64 {
    let ([a, b], [x, y]) = (bits, values);
    match (x.is_nan(), y.is_nan()) {
        (true, true) => format.not_a_number(),
        (true, false) | (false, true) if nan => format.not_a_number(),
        (true, false) => b,
        (false, true) => a,
        _ if x == y => {
            if smaller {
                a | b
            } else {
                a & b
            }
        }
        _ => {
            if (x < y) == smaller {
                a
            } else {
                b
            }
        }
    }
}
