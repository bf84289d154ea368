//! IEEE 754 arithmetic in integers, exact before one rounding, for the roundings and formats that the processor's
//! own instructions do not offer: `.rz`, `.rm`, `.rp`, half precision.
//!
//! Slow and plain on purpose; `execute/float.rs` uses it only off the fast path, and tests use it as the
//! reference for the fast path.

use crate::types::{Rounding, ScalarType};

/// Layout of a binary floating-point format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
}

/// A number taken apart: `mantissa * 2^exponent`, negative if `negative`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Parts {
    NotANumber,
    Infinite { negative: bool },
    Finite { negative: bool, mantissa: u128, exponent: i32 },
}

impl Format {
    pub(crate) const SINGLE: Self = Self { exponent_bits: 8, fraction_bits: 23 };
    pub(crate) const DOUBLE: Self = Self { exponent_bits: 11, fraction_bits: 52 };

    pub(crate) fn of(element: ScalarType) -> Self {
        match element {
            ScalarType::F16 => Self { exponent_bits: 5, fraction_bits: 10 },
            ScalarType::BF16 => Self { exponent_bits: 8, fraction_bits: 7 },
            ScalarType::F32 => Self::SINGLE,
            _ => Self::DOUBLE,
        }
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    fn sign_place(self) -> u32 {
        self.exponent_bits + self.fraction_bits
    }

    fn highest_exponent(self) -> u64 {
        (1 << self.exponent_bits) - 1
    }

    fn infinity(self) -> u64 {
        self.highest_exponent() << self.fraction_bits
    }

    /// Canonical not-a-number of PTX: all ones below the sign for formats up to single.
    pub(crate) fn not_a_number(self) -> u64 {
        if self.fraction_bits == Self::DOUBLE.fraction_bits {
            return 0xfff8_0000_0000_0000;
        }
        self.infinity() | ((1 << self.fraction_bits) - 1)
    }

    pub(crate) fn is_subnormal(self, bits: u64) -> bool {
        bits >> self.fraction_bits & self.highest_exponent() == 0
    }

    pub(crate) fn parts(self, bits: u64) -> Parts {
        let negative = bits >> self.sign_place() & 1 == 1;
        let exponent = bits >> self.fraction_bits & self.highest_exponent();
        let fraction = bits & ((1 << self.fraction_bits) - 1);
        let lowest = 1 - self.bias() - self.fraction_bits as i32;
        if exponent == self.highest_exponent() {
            return if fraction == 0 { Parts::Infinite { negative } } else { Parts::NotANumber };
        }
        if exponent == 0 {
            return Parts::Finite { negative, mantissa: u128::from(fraction), exponent: lowest };
        }
        let mantissa = u128::from(fraction | 1 << self.fraction_bits);
        Parts::Finite { negative, mantissa, exponent: lowest + exponent as i32 - 1 }
    }

    fn signed(self, negative: bool, magnitude: u64) -> u64 {
        magnitude | u64::from(negative) << self.sign_place()
    }

    /// Rounds once. With `inexact` the true magnitude lies a little above `mantissa * 2^exponent`; the mantissa
    /// then has more bits than the format.
    pub(crate) fn round(
        self,
        negative: bool,
        mantissa: u128,
        exponent: i32,
        inexact: bool,
        rounding: Rounding,
    ) -> u64 {
        if mantissa == 0 {
            return self.signed(negative, 0);
        }
        let top = 127 - mantissa.leading_zeros() as i32;
        let lowest = 1 - self.bias() - self.fraction_bits as i32;
        let unit = (exponent + top - self.fraction_bits as i32).max(lowest);
        let shift = unit - exponent;
        let (mut kept, half, rest) = match shift {
            ..=0 => (mantissa << -shift, false, inexact),
            1..=127 => {
                let half = mantissa >> (shift - 1) & 1 == 1;
                let rest = mantissa & ((1u128 << (shift - 1)) - 1) != 0 || inexact;
                (mantissa >> shift, half, rest)
            }
            128 => (0, mantissa >> 127 == 1, mantissa << 1 != 0 || inexact),
            _ => (0, false, true),
        };
        let away = match rounding {
            Rounding::NearestEven => half && (rest || kept & 1 == 1),
            Rounding::Zero => false,
            Rounding::Down => negative && (half || rest),
            Rounding::Up => !negative && (half || rest),
        };
        kept += u128::from(away);
        // A kept part without the leading bit is subnormal: its exponent field is zero.
        let hidden = 1u128 << self.fraction_bits;
        let field = if kept < hidden { 0 } else { (unit - lowest + 1) as u128 };
        let magnitude = if kept < hidden { kept } else { (field << self.fraction_bits) + (kept - hidden) };
        if magnitude >= u128::from(self.infinity()) {
            let to_infinity = match rounding {
                Rounding::NearestEven => true,
                Rounding::Zero => false,
                Rounding::Down => negative,
                Rounding::Up => !negative,
            };
            return self.signed(negative, self.infinity() - u64::from(!to_infinity));
        }
        self.signed(negative, magnitude as u64)
    }

    /// `a * b + c`.
    pub(crate) fn fma(self, a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
        let (a, b, c) = (self.parts(a), self.parts(b), self.parts(c));
        let product = match (a, b) {
            (Parts::NotANumber, _) | (_, Parts::NotANumber) => return self.not_a_number(),
            (Parts::Infinite { negative: x }, other) | (other, Parts::Infinite { negative: x }) => {
                let (zero, y) = match other {
                    Parts::Finite { negative, mantissa, .. } => (mantissa == 0, negative),
                    Parts::Infinite { negative } => (false, negative),
                    Parts::NotANumber => (true, false),
                };
                if zero {
                    return self.not_a_number();
                }
                Parts::Infinite { negative: x != y }
            }
            (
                Parts::Finite { negative: x, mantissa: m, exponent: e },
                Parts::Finite { negative: y, mantissa: n, exponent: f },
            ) => Parts::Finite { negative: x != y, mantissa: m * n, exponent: e + f },
        };
        self.sum(product, c, rounding)
    }

    pub(crate) fn add(self, a: u64, b: u64, rounding: Rounding) -> u64 {
        self.sum(self.parts(a), self.parts(b), rounding)
    }

    pub(crate) fn mul(self, a: u64, b: u64, rounding: Rounding) -> u64 {
        // Adding a zero of the product's sign changes nothing, not even the sign of a zero.
        let negative = (a ^ b) >> self.sign_place() & 1 == 1;
        self.fma(a, b, self.signed(negative, 0), rounding)
    }

    fn sum(self, a: Parts, b: Parts, rounding: Rounding) -> u64 {
        let ((x, m, e), (y, n, f)) = match (a, b) {
            (Parts::NotANumber, _) | (_, Parts::NotANumber) => return self.not_a_number(),
            (Parts::Infinite { negative: x }, Parts::Infinite { negative: y }) if x != y => {
                return self.not_a_number();
            }
            (Parts::Infinite { negative }, _) | (_, Parts::Infinite { negative }) => {
                return self.signed(negative, self.infinity());
            }
            (
                Parts::Finite { negative: x, mantissa: m, exponent: e },
                Parts::Finite { negative: y, mantissa: n, exponent: f },
            ) => ((x, m, e), (y, n, f)),
        };
        let cancelled = rounding == Rounding::Down;
        match (m, n) {
            (0, 0) => return self.signed(if x == y { x } else { cancelled }, 0),
            (0, _) => return self.round(y, n, f, false, rounding),
            (_, 0) => return self.round(x, m, e, false, rounding),
            _ => {}
        }
        // Both with the top bit at place 125; the smaller one is shifted right, its lost bits kept as one bit.
        let lift = |mantissa: u128, exponent: i32| {
            let shift = mantissa.leading_zeros() as i32 - 2;
            (mantissa << shift, exponent - shift)
        };
        let ((m, e), (n, f)) = (lift(m, e), lift(n, f));
        let ((x, m, e), (y, n, f)) =
            if (e, m) >= (f, n) { ((x, m, e), (y, n, f)) } else { ((y, n, f), (x, m, e)) };
        let distance = (e - f) as u32;
        let lost = if distance >= 127 { true } else { n & ((1u128 << distance) - 1) != 0 };
        let aligned = if distance >= 127 { 0 } else { n >> distance } | u128::from(lost);
        if x == y {
            return self.round(x, m + aligned, e, false, rounding);
        }
        match m - aligned {
            0 => self.signed(cancelled, 0),
            difference => self.round(x, difference, e, false, rounding),
        }
    }

    pub(crate) fn div(self, a: u64, b: u64, rounding: Rounding) -> u64 {
        let negative = (a ^ b) >> self.sign_place() & 1 == 1;
        match (self.parts(a), self.parts(b)) {
            (Parts::NotANumber, _)
            | (_, Parts::NotANumber)
            | (Parts::Infinite { .. }, Parts::Infinite { .. }) => self.not_a_number(),
            (Parts::Infinite { .. }, _) => self.signed(negative, self.infinity()),
            (_, Parts::Infinite { .. }) => self.signed(negative, 0),
            (Parts::Finite { mantissa: 0, .. }, Parts::Finite { mantissa: 0, .. }) => self.not_a_number(),
            (_, Parts::Finite { mantissa: 0, .. }) => self.signed(negative, self.infinity()),
            (Parts::Finite { mantissa: 0, .. }, _) => self.signed(negative, 0),
            (
                Parts::Finite { mantissa: m, exponent: e, .. },
                Parts::Finite { mantissa: n, exponent: f, .. },
            ) => {
                let shift = m.leading_zeros() as i32 - 1;
                let dividend = m << shift;
                self.round(negative, dividend / n, e - shift - f, !dividend.is_multiple_of(n), rounding)
            }
        }
    }

    pub(crate) fn sqrt(self, a: u64, rounding: Rounding) -> u64 {
        match self.parts(a) {
            Parts::Finite { mantissa: 0, .. } => a,
            Parts::Finite { negative: false, mantissa, exponent } => {
                let room = mantissa.leading_zeros() as i32 - 1;
                let shift = room - (exponent - room).rem_euclid(2);
                let radicand = mantissa << shift;
                let root = radicand.isqrt();
                self.round(false, root, (exponent - shift) / 2, root * root != radicand, rounding)
            }
            Parts::Infinite { negative: false } => a,
            _ => self.not_a_number(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn single() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), 0u32..64, 0x3f7f_fff0u32..0x3f80_0010, 0x7f7f_fff0u32..0x7f80_0002]
    }

    fn double() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            0u64..64,
            any::<i16>().prop_map(|near| 1f64.to_bits().wrapping_add(near as u64))
        ]
    }

    fn same_single(soft: u64, hard: f32) -> bool {
        f32::from_bits(soft as u32).is_nan() == hard.is_nan()
            && (hard.is_nan() || soft == u64::from(hard.to_bits()))
    }

    fn same_double(soft: u64, hard: f64) -> bool {
        f64::from_bits(soft).is_nan() == hard.is_nan() && (hard.is_nan() || soft == hard.to_bits())
    }

    /// A directed result lies on its side of the nearest one, at most one step away.
    fn encloses(format: Format, run: impl Fn(Rounding) -> u64) -> bool {
        let value = |bits: u64| match format.parts(bits) {
            Parts::NotANumber => f64::NAN,
            _ if format.fraction_bits == 23 => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from_bits(bits),
        };
        let [near, down, up, zero] =
            [Rounding::NearestEven, Rounding::Down, Rounding::Up, Rounding::Zero].map(|r| value(run(r)));
        let next = |value: f64| {
            if format.fraction_bits == 23 { f64::from((value as f32).next_up()) } else { value.next_up() }
        };
        near.is_nan() && down.is_nan() && up.is_nan() && zero.is_nan()
            || (near == down || near == up)
                && (down == up || next(down) == up)
                && zero.abs() == down.abs().min(up.abs())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn singles_agree_with_the_processor(a in single(), b in single(), c in single()) {
            let near = Rounding::NearestEven;
            let format = Format::SINGLE;
            let [x, y, z] = [a, b, c].map(f32::from_bits);
            let [a, b, c] = [a, b, c].map(u64::from);
            prop_assert!(same_single(format.add(a, b, near), x + y));
            prop_assert!(same_single(format.mul(a, b, near), x * y));
            prop_assert!(same_single(format.div(a, b, near), x / y));
            prop_assert!(same_single(format.sqrt(a, near), x.sqrt()));
            prop_assert!(same_single(format.fma(a, b, c, near), x.mul_add(y, z)));
        }

        #[test]
        fn doubles_agree_with_the_processor(a in double(), b in double(), c in double()) {
            let near = Rounding::NearestEven;
            let format = Format::DOUBLE;
            let [x, y, z] = [a, b, c].map(f64::from_bits);
            prop_assert!(same_double(format.add(a, b, near), x + y));
            prop_assert!(same_double(format.mul(a, b, near), x * y));
            prop_assert!(same_double(format.div(a, b, near), x / y));
            prop_assert!(same_double(format.sqrt(a, near), x.sqrt()));
            prop_assert!(same_double(format.fma(a, b, c, near), x.mul_add(y, z)));
        }

        #[test]
        fn directed_roundings_are_neighbours(a in double(), b in double(), c in double()) {
            for format in [Format::SINGLE, Format::DOUBLE] {
                let [a, b, c] = [a, b, c].map(|bits| if format.fraction_bits == 23 { bits & 0xffff_ffff } else { bits });
                prop_assert!(encloses(format, |r| format.add(a, b, r)));
                prop_assert!(encloses(format, |r| format.mul(a, b, r)));
                prop_assert!(encloses(format, |r| format.div(a, b, r)));
                prop_assert!(encloses(format, |r| format.fma(a, b, c, r)));
                prop_assert!(encloses(format, |r| format.sqrt(a, r)));
            }
        }
    }
}
