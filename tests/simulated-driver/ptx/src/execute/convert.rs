//! cvt over the lanes of a warp (PTX ISA section 9.7.9.21).
//!
//! The frequent conversions have loops of their own; every other one goes value by value through `convert_one`.
//! Read next: `compare.rs`.

use super::float::{canonical_single, flush_single};
use super::registers::{Registers, map1};
use crate::program::{Conversion, Slot};
use crate::soft::{Format, Parts};
use crate::types::{Lanes, Rounding, ScalarType, sign_extend, width_mask};

pub(crate) fn convert(registers: &mut Registers, mask: u32, conversion: &Conversion, d: Slot, a: Slot) {
    let out = compute(conversion, registers.get(a));
    registers.set(d, mask, &out);
}

fn compute(conversion: &Conversion, x: &Lanes) -> Lanes {
    let Conversion { from, to, rounding, flush, saturate, register_bits, .. } = *conversion;
    let nearest = rounding == Rounding::NearestEven;
    if flush || saturate {
        return map1(x, |bits: u64| convert_one(conversion, bits));
    }
    match (from, to) {
        _ if from.is_integer() && to.is_integer() => {
            let (signed, from_bits, to_bits) = (from.is_signed(), from.bits(), to.bits());
            let extended = to.is_signed() && register_bits > to_bits;
            map1(x, move |bits: u64| {
                let value = if signed { sign_extend(bits, from_bits) } else { bits & width_mask(from_bits) };
                if extended {
                    sign_extend(value, to_bits) & width_mask(register_bits)
                } else {
                    value & width_mask(to_bits)
                }
            })
        }
        (ScalarType::S32, ScalarType::F32) if nearest => map1(x, |value: i32| value as f32),
        (ScalarType::U32, ScalarType::F32) if nearest => map1(x, |value: u32| value as f32),
        (ScalarType::S32, ScalarType::F64) => map1(x, |value: i32| f64::from(value)),
        (ScalarType::U32, ScalarType::F64) => map1(x, |value: u32| f64::from(value)),
        (ScalarType::F32, ScalarType::F64) => map1(x, |value: f32| f64::from(value)),
        (ScalarType::F64, ScalarType::F32) if nearest => map1(x, |value: f64| canonical_single(value as f32)),
        (ScalarType::F32, ScalarType::S32) => match rounding {
            Rounding::Zero => map1(x, |value: f32| value as i32),
            _ => map1(x, |value: f32| integral(f64::from(value), rounding) as i32),
        },
        _ => map1(x, |bits: u64| convert_one(conversion, bits)),
    }
}

/// Rounds to an integral value.
fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::NearestEven => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// The exact value of a float of any of the formats.
pub(crate) fn widen(bits: u64, element: ScalarType) -> f64 {
    match element {
        ScalarType::F64 => f64::from_bits(bits),
        ScalarType::F32 => f64::from(f32::from_bits(bits as u32)),
        _ => match Format::of(element).parts(bits & 0xffff) {
            Parts::NotANumber => f64::NAN,
            Parts::Infinite { negative } => {
                if negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
            Parts::Finite { negative, mantissa, exponent } => {
                let magnitude = mantissa as f64 * 2f64.powi(exponent);
                if negative { -magnitude } else { magnitude }
            }
        },
    }
}

fn convert_one(conversion: &Conversion, bits: u64) -> u64 {
    let Conversion { from, to, flush, .. } = *conversion;
    let bits = if flush && from == ScalarType::F32 { flush_single(bits & 0xffff_ffff) } else { bits };
    let out = match (from.is_float(), to.is_float()) {
        (false, false) => clamp_integer(integer_value(bits, from), conversion),
        (false, true) => integer_to_float(integer_value(bits, from), conversion),
        (true, false) => float_to_integer(widen(bits, from), conversion),
        (true, true) => float_to_float(widen(bits, from), conversion),
    };
    if flush && to == ScalarType::F32 { flush_single(out) } else { out }
}

fn integer_value(bits: u64, element: ScalarType) -> i128 {
    if element.is_signed() {
        i128::from(sign_extend(bits, element.bits()) as i64)
    } else {
        i128::from(bits & width_mask(element.bits()))
    }
}

/// Clamps to the range of the destination's type, and extends into its register.
fn clamp_integer(value: i128, conversion: &Conversion) -> u64 {
    let bits = conversion.to.bits();
    let (lowest, highest) = if conversion.to.is_signed() {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    let value = value.clamp(lowest, highest);
    value as u64 & width_mask(conversion.register_bits.max(bits))
}

fn integer_to_float(value: i128, conversion: &Conversion) -> u64 {
    if conversion.saturate {
        // Zero and one are exact in every format.
        return Format::of(conversion.to).round(
            false,
            value.clamp(0, 1) as u128,
            0,
            false,
            conversion.rounding,
        );
    }
    let magnitude = value.unsigned_abs();
    Format::of(conversion.to).round(value < 0, magnitude, 0, false, conversion.rounding)
}

fn float_to_integer(value: f64, conversion: &Conversion) -> u64 {
    let Conversion { from, to, rounding, .. } = *conversion;
    if value.is_nan() {
        // PTX ISA, "cvt": zero for narrow types, otherwise the top bit alone.
        let wide = from == ScalarType::F64 || to.bits() == 64;
        return if wide { 1 << (to.bits() - 1) } else { 0 };
    }
    clamp_integer(integral(value, rounding) as i128, conversion)
}

fn float_to_float(value: f64, conversion: &Conversion) -> u64 {
    let Conversion { to, rounding, saturate, .. } = *conversion;
    let value = if conversion.integral { integral(value, rounding) } else { value };
    let value = match saturate {
        true if value > 0.0 => value.min(1.0),
        true => 0.0,
        false => value,
    };
    narrow_with(value, to, rounding)
}

/// The nearest value of the format.
pub(crate) fn narrow(value: f64, to: ScalarType) -> u64 {
    narrow_with(value, to, Rounding::NearestEven)
}

fn narrow_with(value: f64, to: ScalarType, rounding: Rounding) -> u64 {
    let format = Format::of(to);
    match Format::DOUBLE.parts(value.to_bits()) {
        Parts::NotANumber => format.not_a_number(),
        Parts::Infinite { negative } => format.round(negative, 1, 1 << 14, false, Rounding::NearestEven),
        Parts::Finite { negative, mantissa, exponent } => {
            format.round(negative, mantissa, exponent, false, rounding)
        }
    }
}
