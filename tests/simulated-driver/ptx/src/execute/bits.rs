//! Logic, shifts and bit fields over the lanes of a warp (PTX ISA sections 9.7.8 and 9.7.1).
//!
//! Shift counts clamp; they do not wrap. Read next: `float.rs`.

use super::registers::{map1, map2, map3};
use crate::program::{DotHalf, DotShape, IntegerOp, PermuteMode, SimdOp, SimdShape};
use crate::types::{LANE_COUNT, Lanes, sign_extend, width_mask};

/// The operations that look at bits only, and at the sign where `signed` says so.
pub(crate) fn compute(
    op: IntegerOp,
    x: &Lanes,
    y: &Lanes,
    z: &Lanes,
    w: &Lanes,
    width: u32,
    signed: bool,
) -> Lanes {
    let all = width_mask(width);
    match op {
        IntegerOp::And => map2(x, y, move |a: u64, b: u64| a & b & all),
        IntegerOp::Or => map2(x, y, move |a: u64, b: u64| (a | b) & all),
        IntegerOp::Xor => map2(x, y, move |a: u64, b: u64| (a ^ b) & all),
        IntegerOp::Not => map1(x, move |a: u64| !a & all),
        IntegerOp::LogicalNot => map1(x, move |a: u64| u64::from(a & all == 0)),
        IntegerOp::ShiftLeft => map2(x, y, move |a: u64, count: u32| {
            let shifted = a << (count & 63) & all;
            if count < width { shifted } else { 0 }
        }),
        IntegerOp::Funnel { left, wrap } => map3(x, y, z, move |low: u32, high: u32, count: u32| {
            let count = if wrap { count & 31 } else { count.min(32) };
            let joined = u64::from(high) << 32 | u64::from(low);
            if left { ((joined << count) >> 32) as u32 } else { (joined >> count) as u32 }
        }),
        IntegerOp::Lop3 => {
            each(x, y, z, w, |a, b, c, table| lop3(a as u32, b as u32, c as u32, table as u32))
        }
        IntegerOp::PopulationCount => map1(x, move |a: u64| u64::from((a & all).count_ones())),
        IntegerOp::LeadingZeros => {
            map1(x, move |a: u64| u64::from((a & all).leading_zeros().saturating_sub(64 - width)))
        }
        IntegerOp::FindBit { shift } => map1(x, move |a: u64| find_bit(a, width, signed, shift)),
        IntegerOp::Reverse => map1(x, move |a: u64| a.reverse_bits() >> (64 - width)),
        IntegerOp::ExtractField => {
            map3(x, y, z, move |a: u64, start: u32, count: u32| extract(a, start, count, width, signed))
        }
        IntegerOp::InsertField => each(x, y, z, w, move |a, b, start, count| {
            insert(a, b, start as u32 & 0xff, count as u32 & 0xff, width)
        }),
        IntegerOp::Permute(mode) => {
            map3(x, y, z, move |a: u32, b: u32, control: u32| permute(a, b, control, mode))
        }
        IntegerOp::Dot(shape) => map3(x, y, z, move |a: u32, b: u32, c: u32| dot(a, b, c, shape)),
        IntegerOp::Mul24 { high, adds } => map3(x, y, z, move |a: u32, b: u32, c: u32| {
            let part = |value: u32| {
                if signed { i64::from((value << 8) as i32 >> 8) } else { i64::from(value & 0xff_ffff) }
            };
            let product = part(a) * part(b);
            let word = if high { product >> 16 } else { product } as u32;
            if adds { word.wrapping_add(c) } else { word }
        }),
        IntegerOp::FindSet => map3(x, y, z, find_set),
        IntegerOp::Mask { wrap } => map2(x, y, move |start: u32, count: u32| {
            let limit = |value: u32| if wrap { value & 31 } else { value.min(32) };
            (width_mask(limit(count)) << limit(start)) as u32
        }),
        IntegerOp::Extend { wrap } => map2(x, y, move |a: u32, count: u32| {
            let count = if wrap { count & 31 } else { count.min(32) };
            let part = u64::from(a) & width_mask(count);
            if signed && count > 0 { sign_extend(part, count) as u32 } else { part as u32 }
        }),
        IntegerOp::Simd(shape) => map3(x, y, z, move |a: u32, b: u32, c: u32| simd(a, b, c, shape)),
        // The arithmetic operations are `integer.rs`'s.
        _ => *x,
    }
}

fn each(x: &Lanes, y: &Lanes, z: &Lanes, w: &Lanes, f: impl Fn(u64, u64, u64, u64) -> u64) -> Lanes {
    let mut out = [0; LANE_COUNT];
    for lane in 0..LANE_COUNT {
        out[lane] = f(x[lane], y[lane], z[lane], w[lane]);
    }
    out
}

/// Any function of three bits: bit `abc` of `table`.
fn lop3(a: u32, b: u32, c: u32, table: u32) -> u64 {
    let mut out = 0;
    for row in 0..8 {
        if table >> row & 1 == 1 {
            let pick = |value: u32, bit: u32| if row >> bit & 1 == 1 { value } else { !value };
            out |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    u64::from(out)
}

/// Place of the highest bit that differs from the sign, or all ones.
fn find_bit(a: u64, width: u32, signed: bool, shift: bool) -> u64 {
    let flip = if signed && (sign_extend(a, width) as i64) < 0 { u64::MAX } else { 0 };
    let value = (a ^ flip) & width_mask(width);
    if value == 0 {
        return u64::from(u32::MAX);
    }
    let place = 63 - value.leading_zeros();
    u64::from(if shift { width - 1 - place } else { place })
}

fn extract(a: u64, start: u32, count: u32, width: u32, signed: bool) -> u64 {
    let (start, count) = (start & 0xff, count & 0xff);
    let a = if signed { sign_extend(a, width) } else { a & width_mask(width) };
    if count == 0 {
        return 0;
    }
    // Beyond the top the field continues with the sign, or with zeros.
    let from_start =
        if signed { ((a as i64) >> start.min(63)) as u64 } else { a.checked_shr(start).unwrap_or(0) };
    let field = if signed {
        // The sign of the field is its own top bit, or that of the value when it reaches beyond it.
        sign_extend(from_start, count.min(64))
    } else {
        from_start & width_mask(count)
    };
    field & width_mask(width)
}

fn insert(field: u64, into: u64, start: u32, count: u32, width: u32) -> u64 {
    if start >= width {
        return into & width_mask(width);
    }
    let place = width_mask(count) << start;
    (into & !place | (field << start) & place) & width_mask(width)
}

fn permute(a: u32, b: u32, control: u32, mode: PermuteMode) -> u32 {
    let joined = u64::from(b) << 32 | u64::from(a);
    let byte = |index: u32| (joined >> (8 * (index & 7))) as u8;
    let c = control & 3;
    let pick: [u8; 4] = match mode {
        PermuteMode::Index => [0, 4, 8, 12].map(|place| {
            let selector = control >> place;
            let value = byte(selector);
            // The top bit of a selector asks for eight copies of the byte's sign.
            if selector & 8 != 0 { ((value as i8) >> 7) as u8 } else { value }
        }),
        PermuteMode::Forward4 => [0, 1, 2, 3].map(|place| byte(c + place)),
        PermuteMode::Backward4 => [0u32, 1, 2, 3].map(|place| byte(c.wrapping_sub(place))),
        PermuteMode::Replicate8 => [byte(c); 4],
        PermuteMode::EdgeLeft => [0, 1, 2, 3].map(|place: u32| byte(place.max(c))),
        PermuteMode::EdgeRight => [0, 1, 2, 3].map(|place: u32| byte(place.min(c))),
        PermuteMode::Replicate16 => {
            let half = (c & 1) * 2;
            [byte(half), byte(half + 1), byte(half), byte(half + 1)]
        }
    };
    u32::from_le_bytes(pick)
}

/// PTX ISA, "fns": the place of the `offset`-th set bit from `base` on, upwards or downwards, or all ones.
fn find_set(mask: u32, base: u32, offset: i32) -> u32 {
    if offset == 0 {
        return if base < 32 && mask >> base & 1 == 1 { base } else { u32::MAX };
    }
    let step = if offset > 0 { 1 } else { -1 };
    let mut left = offset.unsigned_abs();
    let mut place = i64::from(base);
    while (0..32).contains(&place) {
        if mask >> place & 1 == 1 {
            left -= 1;
            if left == 0 {
                return place as u32;
            }
        }
        place += step;
    }
    u32::MAX
}

/// `vadd4` and its kin.
fn simd(a: u32, b: u32, c: u32, shape: SimdShape) -> u32 {
    let bits = 32 / shape.parts;
    let mask = (1u64 << bits) - 1;
    let part = |word: u32, index: u32, signed: bool| {
        let value = u64::from(word >> (bits * index)) & mask;
        if signed { sign_extend(value, bits) as i64 } else { value as i64 }
    };
    let (mut out, mut sum) = (0u32, i64::from(c as i32));
    for index in 0..shape.parts {
        let (x, y) = (part(a, index, shape.a_signed), part(b, index, shape.b_signed));
        let value = match shape.op {
            SimdOp::Add => x + y,
            SimdOp::Sub => x - y,
            // Halves are rounded away from zero, as the PTX ISA shows it.
            SimdOp::Average => (x + y + i64::from(x + y >= 0)) >> 1,
            SimdOp::AbsoluteDifference => (x - y).abs(),
            SimdOp::Min => x.min(y),
            SimdOp::Max => x.max(y),
        };
        let (lowest, highest) =
            if shape.d_signed { (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1) } else { (0, mask as i64) };
        let value = if shape.saturate { value.clamp(lowest, highest) } else { value };
        sum += value;
        out |= ((value as u64 & mask) as u32) << (bits * index);
    }
    if shape.accumulate { sum as u32 } else { out }
}

/// `dp4a` and `dp2a`.
fn dot(a: u32, b: u32, c: u32, shape: DotShape) -> u32 {
    let byte = |index: u32| {
        let byte = (b >> (8 * index)) as u8;
        if shape.b_signed { i64::from(byte as i8) } else { i64::from(byte) }
    };
    let first = |index: u32, bits: u32| {
        let part = a >> (bits * index) & ((1 << bits) - 1);
        let unused = 32 - bits;
        if shape.a_signed { i64::from((part << unused) as i32 >> unused) } else { i64::from(part) }
    };
    let sum: i64 = match shape.halves {
        None => (0..4).map(|index| first(index, 8) * byte(index)).sum(),
        Some(half) => {
            let start = if half == DotHalf::High { 2 } else { 0 };
            (0..2).map(|index| first(index, 16) * byte(start + index)).sum()
        }
    };
    (i64::from(c) + sum) as u32
}
