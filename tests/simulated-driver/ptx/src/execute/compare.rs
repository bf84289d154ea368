//! setp, set, testp, slct: comparisons that give a mask of lanes.
//!
//! Read next: `memory.rs`.

use super::convert::widen;
use super::float::{self, Real, flush_single};
use super::integer::with_integer;
use super::registers::{Registers, map1, mask2};
use crate::program::{Compare, Comparison, FloatTest, Guard, Logic, PredicateSlot, Slot};
use crate::soft::Format;
use crate::types::{LANE_COUNT, Lanes, ScalarType};

/// The lanes where the comparison holds, before it is combined.
fn holds(registers: &Registers, compare: &Compare) -> u32 {
    let (x, y) = (registers.get(compare.a), registers.get(compare.b));
    match compare.element {
        ScalarType::F32 if compare.flush => {
            holds_real::<f32>(compare.comparison, &map1(x, flush_single), &map1(y, flush_single))
        }
        ScalarType::F32 => holds_real::<f32>(compare.comparison, x, y),
        ScalarType::F64 => holds_real::<f64>(compare.comparison, x, y),
        element @ (ScalarType::F16 | ScalarType::BF16) => {
            let double = |bits: u64| {
                let bits = bits & 0xffff;
                let subnormal = compare.flush && Format::of(element).is_subnormal(bits);
                widen(if subnormal { bits & 0x8000 } else { bits }, element).to_bits()
            };
            holds_real::<f64>(compare.comparison, &map1(x, double), &map1(y, double))
        }
        element => with_integer!(element, T => match compare.comparison {
            Comparison::Equal => mask2(x, y, |a: T, b: T| a == b),
            Comparison::NotEqual => mask2(x, y, |a: T, b: T| a != b),
            Comparison::Less => mask2(x, y, |a: T, b: T| a < b),
            Comparison::LessEqual => mask2(x, y, |a: T, b: T| a <= b),
            Comparison::Greater => mask2(x, y, |a: T, b: T| a > b),
            // The unordered ones are the floats'; `compile/moves.rs` lets no other pair through.
            _ => mask2(x, y, |a: T, b: T| a >= b),
        }),
    }
}

fn holds_real<T: Real>(comparison: Comparison, x: &Lanes, y: &Lanes) -> u32 {
    let unordered = || mask2(x, y, |a: T, b: T| a.is_not_a_number() | b.is_not_a_number());
    match comparison {
        Comparison::Equal => mask2(x, y, |a: T, b: T| a == b),
        // An ordered "not equal" is false for what is not a number.
        Comparison::NotEqual => mask2(x, y, |a: T, b: T| (a < b) | (a > b)),
        Comparison::Less => mask2(x, y, |a: T, b: T| a < b),
        Comparison::LessEqual => mask2(x, y, |a: T, b: T| a <= b),
        Comparison::Greater => mask2(x, y, |a: T, b: T| a > b),
        Comparison::GreaterEqual => mask2(x, y, |a: T, b: T| a >= b),
        Comparison::EqualUnordered => mask2(x, y, |a: T, b: T| a == b) | unordered(),
        Comparison::NotEqualUnordered => mask2(x, y, |a: T, b: T| a != b),
        Comparison::LessUnordered => mask2(x, y, |a: T, b: T| a < b) | unordered(),
        Comparison::LessEqualUnordered => mask2(x, y, |a: T, b: T| a <= b) | unordered(),
        Comparison::GreaterUnordered => mask2(x, y, |a: T, b: T| a > b) | unordered(),
        Comparison::GreaterEqualUnordered => mask2(x, y, |a: T, b: T| a >= b) | unordered(),
        Comparison::Ordered => !unordered(),
        Comparison::Unordered => unordered(),
    }
}

/// Combines two masks.
pub(crate) fn combine(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

/// Outcome and opposite outcome; each is combined with the predicate by itself.
fn outcomes(registers: &Registers, compare: &Compare) -> (u32, u32) {
    let found = holds(registers, compare);
    match compare.combine {
        None => (found, !found),
        Some((logic, guard)) => {
            let with = registers.guard(guard);
            (combine(logic, found, with), combine(logic, !found, with))
        }
    }
}

pub(crate) fn compare(
    registers: &mut Registers,
    mask: u32,
    compare: &Compare,
    d: PredicateSlot,
    opposite: Option<PredicateSlot>,
) {
    let (found, other) = outcomes(registers, compare);
    registers.set_predicate(d, mask, found);
    if let Some(opposite) = opposite {
        registers.set_predicate(opposite, mask, other);
    }
}

pub(crate) fn compare_value(registers: &mut Registers, mask: u32, compare: &Compare, d: Slot, ones: u64) {
    let (found, _) = outcomes(registers, compare);
    let mut out = [0; LANE_COUNT];
    for (lane, value) in out.iter_mut().enumerate() {
        *value = if found >> lane & 1 == 1 { ones } else { 0 };
    }
    registers.set(d, mask, &out);
}

/// `d = a` in the lanes of `chosen`, else `b`.
pub(crate) fn select(registers: &mut Registers, mask: u32, chosen: u32, d: Slot, a: Slot, b: Slot) {
    let (x, y) = (registers.get(a), registers.get(b));
    let mut out = [0; LANE_COUNT];
    for lane in 0..LANE_COUNT {
        out[lane] = if chosen >> lane & 1 == 1 { x[lane] } else { y[lane] };
    }
    registers.set(d, mask, &out);
}

/// The lanes where `c` is not negative, for `slct`.
pub(crate) fn not_negative(registers: &Registers, element: ScalarType, c: Slot) -> u32 {
    let zero = [0; LANE_COUNT];
    if element == ScalarType::F32 {
        mask2(registers.get(c), &zero, |c: f32, zero: f32| c >= zero)
    } else {
        mask2(registers.get(c), &zero, |c: i32, zero: i32| c >= zero)
    }
}

pub(crate) fn test_float(
    registers: &mut Registers,
    mask: u32,
    test: FloatTest,
    double: bool,
    d: PredicateSlot,
    a: Slot,
) {
    let zero = [0; LANE_COUNT];
    let found = mask2(registers.get(a), &zero, |bits: u64, _: u64| float::test(test, double, bits));
    registers.set_predicate(d, mask, found);
}

pub(crate) fn predicate_logic(
    registers: &mut Registers,
    mask: u32,
    logic: Logic,
    d: PredicateSlot,
    a: Guard,
    b: Guard,
) {
    let value = combine(logic, registers.guard(a), registers.guard(b));
    registers.set_predicate(d, mask, value);
}
