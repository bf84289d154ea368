//! Integer arithmetic over the lanes of a warp, with wrapping as the hardware wraps.
//!
//! A division by zero answers all ones and a remainder by zero the dividend, as devices do. Read next: `bits.rs`.

use super::bits;
use super::registers::{Lane, Registers, map1, map2, map3};
use crate::program::{CarryOp, IntegerOp, Slot};
use crate::types::{LANE_COUNT, Lanes, ScalarType};

/// What the operations need to know of an integer type.
pub(crate) trait Integer: Lane + Ord {
    type Wide: Lane;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn mul_high(self, other: Self) -> Self;
    /// Product in twice the width plus `addend`; meaningful for up to 32 bits.
    fn mul_wide(self, other: Self, addend: u64) -> Self::Wide;
    fn add_saturating(self, other: Self) -> Self;
    fn sub_saturating(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn absolute(self) -> Self;
    fn negated(self) -> Self;
    fn difference(self, other: Self) -> Self;
    fn shift_right(self, count: u32) -> Self;
}

macro_rules! integer {
    ($($type:ty, $wide:ty, $double:ty, |$x:ident| $absolute:expr);* $(;)?) => {$(
        impl Integer for $type {
            type Wide = $wide;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn mul_high(self, other: Self) -> Self {
                ((self as $double * other as $double) >> <$type>::BITS) as $type
            }
            #[inline(always)]
            fn mul_wide(self, other: Self, addend: u64) -> $wide {
                (self as $wide).wrapping_mul(other as $wide).wrapping_add(addend as $wide)
            }
            #[inline(always)]
            fn add_saturating(self, other: Self) -> Self {
                self.saturating_add(other)
            }
            #[inline(always)]
            fn sub_saturating(self, other: Self) -> Self {
                self.saturating_sub(other)
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                if other == 0 { self } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn absolute(self) -> Self {
                let $x = self;
                $absolute
            }
            #[inline(always)]
            fn negated(self) -> Self {
                (0 as $type).wrapping_sub(self)
            }
            #[inline(always)]
            fn difference(self, other: Self) -> Self {
                self.abs_diff(other) as $type
            }
            #[inline(always)]
            fn shift_right(self, count: u32) -> Self {
                // A count of the width or more leaves copies of the sign.
                if count < <$type>::BITS { self >> count } else { (self >> (<$type>::BITS - 1)) >> 1 }
            }
        }
    )*};
}
integer! {
    u8, u16, u16, |x| x;
    u16, u32, u32, |x| x;
    u32, u64, u64, |x| x;
    u64, u64, u128, |x| x;
    i8, i16, i16, |x| x.wrapping_abs();
    i16, i32, i32, |x| x.wrapping_abs();
    i32, i64, i64, |x| x.wrapping_abs();
    i64, i64, i128, |x| x.wrapping_abs();
}

/// Runs `$body` with `$type` standing for the integer type of `$element`.
macro_rules! with_integer {
    ($element:expr, $type:ident => $body:expr) => {{
        use $crate::types::ScalarType as Scalar;
        match $element {
            Scalar::U8 | Scalar::B8 => {
                type $type = u8;
                $body
            }
            Scalar::U16 | Scalar::B16 => {
                type $type = u16;
                $body
            }
            Scalar::U32 | Scalar::B32 => {
                type $type = u32;
                $body
            }
            Scalar::S8 => {
                type $type = i8;
                $body
            }
            Scalar::S16 => {
                type $type = i16;
                $body
            }
            Scalar::S32 => {
                type $type = i32;
                $body
            }
            Scalar::S64 => {
                type $type = i64;
                $body
            }
            _ => {
                type $type = u64;
                $body
            }
        }
    }};
}
pub(crate) use with_integer;

pub(crate) fn integer(
    registers: &mut Registers,
    mask: u32,
    op: IntegerOp,
    element: ScalarType,
    d: Slot,
    s: [Slot; 4],
) {
    let [x, y, z, w] = s.map(|slot| registers.get(slot));
    let out = with_integer!(element, T => compute::<T>(op, x, y, z, w, element.bits()));
    registers.set(d, mask, &out);
}

#[inline(always)]
fn compute<T: Integer>(op: IntegerOp, x: &Lanes, y: &Lanes, z: &Lanes, w: &Lanes, width: u32) -> Lanes {
    match op {
        IntegerOp::Add => map2(x, y, T::add),
        IntegerOp::Sub => map2(x, y, T::sub),
        IntegerOp::Mul => map2(x, y, T::mul),
        IntegerOp::MulHigh => map2(x, y, T::mul_high),
        IntegerOp::MulWide => map2(x, y, |a: T, b: T| a.mul_wide(b, 0)),
        IntegerOp::Mad => map3(x, y, z, |a: T, b: T, c: T| a.mul(b).add(c)),
        IntegerOp::MadHigh => map3(x, y, z, |a: T, b: T, c: T| a.mul_high(b).add(c)),
        IntegerOp::MadWide => map3(x, y, z, |a: T, b: T, c: u64| a.mul_wide(b, c)),
        IntegerOp::AddSaturate => map2(x, y, T::add_saturating),
        IntegerOp::SubSaturate => map2(x, y, T::sub_saturating),
        IntegerOp::Div => map2(x, y, T::div),
        IntegerOp::Rem => map2(x, y, T::rem),
        IntegerOp::Min => map2(x, y, T::min),
        IntegerOp::Max => map2(x, y, T::max),
        IntegerOp::Abs => map1(x, T::absolute),
        IntegerOp::Neg => map1(x, T::negated),
        IntegerOp::AbsoluteDifference => map3(x, y, z, |a: T, b: T, c: T| a.difference(b).add(c)),
        IntegerOp::ShiftRight => map2(x, y, |a: T, count: u32| a.shift_right(count)),
        _ => bits::compute(op, x, y, z, w, width, T::from_lane(u64::MAX) < T::from_lane(0)),
    }
}

/// Arithmetic with the carry of each lane: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`.
pub(crate) fn carry(
    registers: &mut Registers,
    mask: u32,
    op: CarryOp,
    element: ScalarType,
    (reads, writes): (bool, bool),
    d: Slot,
    s: [Slot; 3],
) {
    let [x, y, z] = s.map(|slot| registers.get(slot));
    let bits = element.bits();
    let limit = 1u128 << bits;
    let widen = |value: u64| u128::from(value) % limit;
    let signed = |value: u64| i128::from(crate::types::sign_extend(value, bits) as i64);
    let mut out = [0; LANE_COUNT];
    let mut carried = 0;
    for lane in 0..LANE_COUNT {
        let carry_in = u128::from(reads && registers.carry >> lane & 1 == 1);
        let (a, b, c) = (widen(x[lane]), widen(y[lane]), widen(z[lane]));
        let (sum, carry_out) = match op {
            CarryOp::Add => (a + b + carry_in, a + b + carry_in >= limit),
            // The carry of a subtraction is that of a + !b + 1, so it is set where nothing was borrowed. The manual
            // speaks of a borrow; compilers read the flag with `addc` after `subc.cc` (division of 128 bits) and
            // take 1 for "no borrow".
            CarryOp::Sub => {
                let borrow = u128::from(reads) - carry_in;
                (a.wrapping_sub(b).wrapping_sub(borrow), a >= b + borrow)
            }
            CarryOp::Mad => {
                let low = a.wrapping_mul(b) % limit;
                (low + c + carry_in, low + c + carry_in >= limit)
            }
            CarryOp::MadHigh => {
                let high = if element.is_signed() {
                    ((signed(x[lane]) * signed(y[lane])) >> bits) as u128
                } else {
                    a.wrapping_mul(b) >> bits
                };
                let high = high % limit;
                (high + c + carry_in, high + c + carry_in >= limit)
            }
        };
        out[lane] = (sum % limit) as u64;
        carried |= u32::from(carry_out) << lane;
    }
    registers.set(d, mask, &out);
    if writes {
        registers.carry = (registers.carry & !mask) | (carried & mask);
    }
}
