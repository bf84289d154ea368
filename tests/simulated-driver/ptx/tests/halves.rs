//! Half precision, dot products and `cp.async` against models in double precision and plain integers.
//!
//! Sums and products of two f16 are exact in double, so one rounding of our own gives the right answer.

mod common;

use common::{Flat, Operands, Parameters, check, kernel, run};
use proptest::prelude::*;

/// Bits of the exponent and of the fraction.
const F16: (u32, u32) = (5, 10);
const BF16: (u32, u32) = (8, 7);

fn widen(bits: u64, (exponent_bits, fraction_bits): (u32, u32)) -> f64 {
    let negative = bits >> 15 & 1 == 1;
    let top = (1u64 << exponent_bits) - 1;
    let (exponent, fraction) = (bits >> fraction_bits & top, bits & ((1 << fraction_bits) - 1));
    let bias = (1i32 << (exponent_bits - 1)) - 1;
    let scale = |shift: i32| 2f64.powi(shift - bias - fraction_bits as i32);
    let magnitude = match exponent {
        0 => fraction as f64 * scale(1),
        _ if exponent == top && fraction == 0 => f64::INFINITY,
        _ if exponent == top => f64::NAN,
        _ => (fraction | 1 << fraction_bits) as f64 * scale(exponent as i32),
    };
    if negative { -magnitude } else { magnitude }
}

fn narrow(value: f64, (exponent_bits, fraction_bits): (u32, u32)) -> u64 {
    if value.is_nan() {
        return 0x7fff;
    }
    let sign = u64::from(value.is_sign_negative()) << 15;
    let bias = (1i32 << (exponent_bits - 1)) - 1;
    let magnitude = value.abs();
    let exponent = (magnitude.log2().floor() as i32).clamp(1 - bias, 1 << 12);
    let unit = 2f64.powi(exponent - fraction_bits as i32);
    // Exact: a division by a power of two.
    let steps = (magnitude / unit).round_ties_even();
    let largest = 2f64.powi(bias + 1);
    if magnitude.is_infinite() || steps * unit >= largest {
        return sign | ((1 << exponent_bits) - 1) << fraction_bits;
    }
    // Consecutive numbers of the format have consecutive bits.
    let first = if exponent == 1 - bias { 0 } else { ((exponent + bias - 1) as u64) << fraction_bits };
    sign | (first + steps as u64)
}

fn half() -> impl Strategy<Value = u64> {
    let edges =
        vec![0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x3c01];
    prop_oneof![0u64..=0xffff, prop::sample::select(edges), 0x3800u64..0x4400]
}

fn operands() -> impl Strategy<Value = Operands> {
    // The upper half is another number: packed instructions see both.
    let word = (half(), half()).prop_map(|(low, high)| low | high << 16);
    prop::array::uniform32(prop::array::uniform4(word))
}

fn each(a: u64, b: u64, model: impl Fn(u64, u64) -> u64) -> u64 {
    model(a & 0xffff, b & 0xffff) | model(a >> 16 & 0xffff, b >> 16 & 0xffff) << 16
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_model_knows_every_number_of_both_formats(bits in 0u64..=0xffff) {
        for format in [F16, BF16] {
            let value = widen(bits, format);
            prop_assert!(value.is_nan() || narrow(value, format) == bits, "{bits:#x}");
        }
    }

    #[test]
    fn sums_and_products_of_f16_are_rounded_once(operands in operands()) {
        let of = |model: fn(f64, f64) -> f64| {
            move |a: u64, b: u64| narrow(model(widen(a, F16), widen(b, F16)), F16)
        };
        for (name, model) in [("add", of(|a, b| a + b)), ("sub", of(|a, b| a - b)), ("mul", of(|a, b| a * b))] {
            check(&format!("{name}.f16 %d, %a0, %a1;"), 16, 16, &operands, |a, b, _, _| model(a, b));
            let packed = format!("{name}.rn.f16x2 %d, %a0, %a1;");
            check(&packed, 32, 32, &operands, |a, b, _, _| each(a, b, model));
        }
        let clamped = |a: u64, b: u64| {
            let sum = widen(a, F16) + widen(b, F16);
            narrow(if sum > 0.0 { sum.min(1.0) } else { 0.0 }, F16)
        };
        check("add.sat.f16 %d, %a0, %a1;", 16, 16, &operands, |a, b, _, _| clamped(a, b));
    }

    #[test]
    fn products_of_bf16_are_rounded_once(operands in operands()) {
        let product = |a: u64, b: u64| narrow(widen(a, BF16) * widen(b, BF16), BF16);
        check("mul.bf16 %d, %a0, %a1;", 16, 16, &operands, |a, b, _, _| product(a, b));
        check("mul.bf16x2 %d, %a0, %a1;", 32, 32, &operands, |a, b, _, _| each(a, b, product));
        // With an addend of zero, the fused form rounds the product.
        let zero = "mov.b16 %d, 0; fma.rn.bf16 %d, %a0, %a1, %d;";
        check(zero, 16, 16, &operands, |a, b, _, _| {
            let value = widen(a, BF16) * widen(b, BF16);
            if value == 0.0 { narrow(value + 0.0, BF16) } else { narrow(value, BF16) }
        });
    }

    #[test]
    fn halves_are_compared_and_chosen_as_numbers(operands in operands()) {
        for (format, name) in [(F16, "f16"), (BF16, "bf16")] {
            let text = format!("setp.gt.{name} %p9, %a0, %a1; selp.b16 %d, %a0, %a1, %p9;");
            check(&text, 16, 16, &operands, |a, b, _, _| {
                if widen(a, format) > widen(b, format) { a } else { b }
            });
            check(&format!("min.{name} %d, %a0, %a1;"), 16, 16, &operands, |a, b, _, _| {
                let (x, y) = (widen(a, format), widen(b, format));
                match (x.is_nan(), y.is_nan()) {
                    (true, true) => 0x7fff,
                    (true, false) => b,
                    (false, true) => a,
                    _ if x == y => a | b,
                    _ => if x < y { a } else { b },
                }
            });
            let set = format!("set.le.{name}.{name} %d, %a0, %a1;");
            check(&set, 16, 16, &operands, |a, b, _, _| {
                if widen(a, format) <= widen(b, format) { narrow(1.0, format) } else { 0 }
            });
            check(&format!("neg.{name}x2 %d, %a0;"), 32, 32, &operands, |a, _, _, _| a ^ 0x8000_8000);
        }
    }

    #[test]
    fn dot_products_add_up_bytes_and_halves(operands in prop::array::uniform32(prop::array::uniform4(any::<u64>()))) {
        let byte = |word: u64, index: u32| (word >> (8 * index)) as u8;
        check("dp4a.s32.u32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| {
            let sum: i64 = (0..4).map(|i| i64::from(byte(a, i) as i8) * i64::from(byte(b, i))).sum();
            u64::from((c as i64 + sum) as u32)
        });
        check("dp2a.hi.s32.s32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| {
            let part = |index: u32| i64::from((a >> (16 * index)) as i16);
            let sum: i64 = (0..2).map(|i| part(i) * i64::from(byte(b, i + 2) as i8)).sum();
            u64::from((c as i64 + sum) as u32)
        });
    }

    /// PTX ISA, "rcp.approx.ftz.f64": a relative error of at most 2^-20 or so, and an empty lower half.
    #[test]
    fn gross_reciprocals_lie_in_the_upper_half(value in 1e-300f64..1e300) {
        let numbers = [[value.to_bits(), 0, 0, 0]; 32];
        for (name, exact) in [("rcp", 1.0 / value), ("rsqrt", 1.0 / value.sqrt())] {
            let text = format!("{name}.approx.ftz.f64 %d, %a0;");
            let found = common::evaluate(&text, 64, 64, &numbers)[0];
            prop_assert_eq!(found & 0xffff_ffff, 0);
            let error = (f64::from_bits(found) - exact).abs() / exact;
            prop_assert!(error < 2f64.powi(-19), "{} of {} is off by {}", name, value, error);
        }
    }
}

#[test]
fn two_singles_become_a_pair_of_halves_the_first_above() {
    let one_and_two = u64::from(1f32.to_bits()) | u64::from(2f32.to_bits()) << 32;
    let operands = [[one_and_two & 0xffff_ffff, one_and_two >> 32, 0, 0]; 32];
    for (name, upper, lower) in [("f16x2", 0x3c00, 0x4000), ("bf16x2", 0x3f80, 0x4000)] {
        let text = format!("cvt.rn.{name}.f32 %d, %a0, %a1;");
        check(&text, 32, 32, &operands, |_, _, _, _| upper << 16 | lower);
    }
}

#[test]
fn asynchronous_copies_have_arrived_when_they_were_waited_for() {
    for bytes in [4usize, 8, 16] {
        let loads: String = (0..bytes / 4)
            .map(|word| {
                format!(
                    "ld.shared.u32 %r9, [%r8+{0}];\nst.global.u32 [%rd1+{1}], %r9;\n",
                    4 * word,
                    32 + 4 * word
                )
            })
            .collect();
        let body = format!(
            ".shared .align 16 .b8 room[1024];\nmov.u32 %r7, room;\nmad.lo.u32 %r8, %r0, 16, %r7;\n\
             cp.async.ca.shared.global [%r8], [%rd1], {bytes};\ncp.async.commit_group;\ncp.async.wait_group 0;\n\
             bar.sync 0;\n{loads}"
        );
        let mut memory = Flat::of((0..32 * 16u32).map(|word| (word + 1).to_le_bytes()));
        let before = memory.u32s(0, 32 * 16);
        run(&kernel(&body), 1, 32, &Parameters::default().pointer(0), &mut memory);
        let after = memory.u32s(0, 32 * 16);
        for thread in 0..32 {
            let copied = &after[16 * thread + 8..16 * thread + 8 + bytes / 4];
            assert_eq!(
                copied,
                &before[16 * thread..16 * thread + bytes / 4],
                "{bytes} bytes, thread {thread}"
            );
        }
    }
}
