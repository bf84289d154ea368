//! Floating-point arithmetic over the lanes of a warp.
//!
//! Round-to-nearest uses the processor's own exact operations, other roundings `soft.rs`. The `.approx` functions
//! are computed in double and rounded once, which is at least as exact as a device. Results that are not a number
//! are the canonical one for singles (PTX ISA section 9.7.3). Read next: `convert.rs`.

use super::registers::{Lane, Registers, map1, map2, map3};
use crate::program::{FloatOp, FloatShape, FloatTest, Slot};
use crate::soft::Format;
use crate::types::{Lanes, Rounding};

/// What the operations need to know of `f32` and `f64`.
pub(crate) trait Real: Lane + PartialOrd {
    const FORMAT: Format;
    const ONE: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn fma(self, other: Self, addend: Self) -> Self;
    fn sqrt(self) -> Self;
    fn is_not_a_number(self) -> bool;
    /// Its bits, or those of the canonical not-a-number.
    fn canonical(self) -> u64;
    fn widen(self) -> f64;
    fn narrow(value: f64) -> Self;
    fn sign() -> u64;
}

impl Real for f32 {
    const FORMAT: Format = Format::SINGLE;
    const ONE: Self = 1.0;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self - other
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self * other
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self / other
    }
    /// The product is exact in double. The sum is rounded to odd there, so that the second rounding is right;
    /// faster than a call per lane where the build's target has no fused instruction.
    #[inline(always)]
    fn fma(self, other: Self, addend: Self) -> Self {
        let (product, addend) = (f64::from(self) * f64::from(other), f64::from(addend));
        let sum = product + addend;
        let taken = sum - product;
        let error = (product - (sum - taken)) + (addend - taken);
        let bits = sum.to_bits();
        // Not "!= 0.0": the error of an infinite sum is not a number and must not count.
        let inexact = (error < 0.0) | (error > 0.0);
        let step = if (error > 0.0) == (sum > 0.0) { 1 } else { u64::MAX };
        let adjust = if inexact & (bits & 1 == 0) { step } else { 0 };
        f64::from_bits(bits.wrapping_add(adjust)) as f32
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }
    #[inline(always)]
    fn is_not_a_number(self) -> bool {
        self.is_nan()
    }
    #[inline(always)]
    fn canonical(self) -> u64 {
        canonical_single(self)
    }
    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn narrow(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn sign() -> u64 {
        1 << 31
    }
}

impl Real for f64 {
    const FORMAT: Format = Format::DOUBLE;
    const ONE: Self = 1.0;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self - other
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self * other
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self / other
    }
    #[inline(always)]
    fn fma(self, other: Self, addend: Self) -> Self {
        self.mul_add(other, addend)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }
    #[inline(always)]
    fn is_not_a_number(self) -> bool {
        self.is_nan()
    }
    #[inline(always)]
    fn canonical(self) -> u64 {
        self.to_bits()
    }
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
    #[inline(always)]
    fn narrow(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn sign() -> u64 {
        1 << 63
    }
}

/// The bits of a single, with the canonical not-a-number for any other. Compares bits: the compiler may take
/// any not-a-number for any other as long as they are floats.
#[inline(always)]
pub(crate) fn canonical_single(value: f32) -> u64 {
    let bits = value.to_bits();
    u64::from(if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { bits })
}

/// A single with subnormals replaced by a zero of their sign.
pub(crate) fn flush_single(bits: u64) -> u64 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

/// Clamps a single to [0, 1]; not-a-number becomes zero.
pub(crate) fn saturate_single(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

pub(crate) fn float(
    registers: &mut Registers,
    mask: u32,
    op: FloatOp,
    shape: FloatShape,
    d: Slot,
    s: [Slot; 3],
) {
    let [x, y, z] = s.map(|slot| registers.get(slot));
    let mut out = if shape.double {
        compute::<f64>(op, shape.rounding, x, y, z)
    } else if shape.flush {
        let [x, y, z] = [x, y, z].map(|lanes| map1(lanes, flush_single));
        compute::<f32>(op, shape.rounding, &x, &y, &z)
    } else {
        compute::<f32>(op, shape.rounding, x, y, z)
    };
    if shape.flush {
        out = map1(&out, flush_single);
    }
    if shape.saturate {
        out = map1(&out, saturate_single);
    }
    registers.set(d, mask, &out);
}

fn compute<T: Real>(op: FloatOp, rounding: Rounding, x: &Lanes, y: &Lanes, z: &Lanes) -> Lanes {
    if rounding != Rounding::NearestEven {
        return compute_soft::<T>(op, rounding, x, y, z);
    }
    match op {
        FloatOp::Add => map2(x, y, |a: T, b: T| a.add(b).canonical()),
        FloatOp::Sub => map2(x, y, |a: T, b: T| a.sub(b).canonical()),
        FloatOp::Mul => map2(x, y, |a: T, b: T| a.mul(b).canonical()),
        FloatOp::Div => map2(x, y, |a: T, b: T| a.div(b).canonical()),
        FloatOp::Fma => map3(x, y, z, |a: T, b: T, c: T| a.fma(b, c).canonical()),
        FloatOp::Min { nan } => map2(x, y, move |a: T, b: T| smaller(a, b, nan)),
        FloatOp::Max { nan } => map2(x, y, move |a: T, b: T| larger(a, b, nan)),
        FloatOp::Neg => map1(x, |bits: u64| bits ^ T::sign()),
        FloatOp::Abs => map1(x, |bits: u64| bits & !T::sign()),
        FloatOp::CopySign => map2(x, y, |sign: u64, value: u64| sign & T::sign() | value & !T::sign()),
        FloatOp::Reciprocal => map1(x, |a: T| T::ONE.div(a).canonical()),
        FloatOp::SquareRoot => map1(x, |a: T| a.sqrt().canonical()),
        FloatOp::ReciprocalSquareRoot => map1(x, |a: T| T::narrow(1.0 / a.widen().sqrt()).canonical()),
        FloatOp::Exp2 => map1(x, |a: T| T::narrow(a.widen().exp2()).canonical()),
        FloatOp::Log2 => map1(x, |a: T| T::narrow(a.widen().log2()).canonical()),
        FloatOp::Sin => map1(x, |a: T| T::narrow(a.widen().sin()).canonical()),
        FloatOp::Cos => map1(x, |a: T| T::narrow(a.widen().cos()).canonical()),
        FloatOp::GrossReciprocal => map1(x, |a: T| T::narrow(gross(a.widen(), |a| 1.0 / a)).canonical()),
        FloatOp::GrossReciprocalSquareRoot => {
            map1(x, |a: T| T::narrow(gross(a.widen(), |a| 1.0 / a.sqrt())).canonical())
        }
        FloatOp::Tanh => map1(x, |a: T| T::narrow(a.widen().tanh()).canonical()),
    }
}

/// PTX ISA, "rcp.approx.ftz.f64": operand and result have 20 bits of fraction in the upper half and zeros in the
/// lower; subnormals count as zero.
fn gross(value: f64, function: impl Fn(f64) -> f64) -> f64 {
    const LOW: u64 = 0xffff_ffff;
    let flush = |value: f64| if value.is_subnormal() { 0f64.copysign(value) } else { value };
    let result = function(flush(f64::from_bits(value.to_bits() & !LOW)));
    if result.is_nan() {
        return f64::from_bits(0x7fff_ffff_0000_0000);
    }
    if result.is_infinite() {
        return result;
    }
    // The fraction may carry into the exponent, as it should.
    flush(f64::from_bits(result.to_bits().wrapping_add(1 << 31) & !LOW))
}

/// The operations that exist with directed roundings.
fn compute_soft<T: Real>(op: FloatOp, rounding: Rounding, x: &Lanes, y: &Lanes, z: &Lanes) -> Lanes {
    let format = T::FORMAT;
    match op {
        FloatOp::Sub => map2(x, y, |a: u64, b: u64| format.add(a, b ^ T::sign(), rounding)),
        FloatOp::Mul => map2(x, y, |a: u64, b: u64| format.mul(a, b, rounding)),
        FloatOp::Div => map2(x, y, |a: u64, b: u64| format.div(a, b, rounding)),
        FloatOp::Fma => map3(x, y, z, |a: u64, b: u64, c: u64| format.fma(a, b, c, rounding)),
        FloatOp::Reciprocal => map1(x, |a: u64| format.div(T::ONE.to_lane(), a, rounding)),
        FloatOp::SquareRoot => map1(x, |a: u64| format.sqrt(a, rounding)),
        // Only these reach this place; `compile/arithmetic.rs` gives no rounding to any other.
        _ => map2(x, y, |a: u64, b: u64| format.add(a, b, rounding)),
    }
}

/// The smaller operand; the number where one is none, unless `nan`. Negative zero is below zero.
#[inline(always)]
fn smaller<T: Real>(a: T, b: T, nan: bool) -> u64 {
    match (a.is_not_a_number(), b.is_not_a_number()) {
        (true, _) => if nan { a } else { b }.canonical(),
        (_, true) => if nan { b } else { a }.canonical(),
        _ if a < b => a.to_lane(),
        _ if b < a => b.to_lane(),
        _ => a.to_lane() | b.to_lane(),
    }
}

#[inline(always)]
fn larger<T: Real>(a: T, b: T, nan: bool) -> u64 {
    match (a.is_not_a_number(), b.is_not_a_number()) {
        (true, _) => if nan { a } else { b }.canonical(),
        (_, true) => if nan { b } else { a }.canonical(),
        _ if a > b => a.to_lane(),
        _ if b > a => b.to_lane(),
        _ => a.to_lane() & b.to_lane(),
    }
}

/// `testp` for one value.
pub(crate) fn test(test: FloatTest, double: bool, bits: u64) -> bool {
    let class = if double { f64::from_bits(bits).classify() } else { f32::from_bits(bits as u32).classify() };
    use std::num::FpCategory::{Infinite, Nan, Normal, Subnormal};
    match test {
        FloatTest::Finite => !matches!(class, Infinite | Nan),
        FloatTest::Infinite => class == Infinite,
        FloatTest::Number => class != Nan,
        FloatTest::NotANumber => class == Nan,
        FloatTest::Normal => class == Normal,
        FloatTest::Subnormal => class == Subnormal,
    }
}
