//! Floating-point instructions and conversions against Rust's own IEEE arithmetic.
//!
//! Directed roundings have no counterpart in Rust: they are checked by what defines them, next to the nearest
//! result; `src/soft.rs` checks their arithmetic against the processor's.

mod common;

use common::{Operands, check};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = u64> {
    let singles = [
        0.0f32,
        -0.0,
        1.0,
        -1.5,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        2147483648.0,
        0.5,
        1.0e-45,
        16777217.0,
    ];
    let doubles = singles.map(f64::from).into_iter().chain([f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e300]);
    let bits: Vec<u64> =
        singles.iter().map(|single| u64::from(single.to_bits())).chain(doubles.map(f64::to_bits)).collect();
    prop_oneof![
        any::<u64>(),
        prop::sample::select(bits),
        (-1e3f32..1e3).prop_map(|single| u64::from(single.to_bits())),
        (-1e3f64..1e3).prop_map(f64::to_bits),
    ]
}

fn operands() -> impl Strategy<Value = Operands> {
    prop::array::uniform32(prop::array::uniform4(number()))
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// The bits of a single, not-a-number being canonical.
fn canonical(value: f32) -> u64 {
    u64::from(if value.is_nan() { 0x7fff_ffff } else { value.to_bits() })
}

fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// Checks a function of doubles, all not-a-numbers being equal.
fn check_double(instruction: &str, operands: &Operands, model: impl Fn(f64, f64, f64) -> f64) {
    let text = format!("{instruction} testp.notanumber.f64 %p9, %d; @%p9 mov.b64 %d, 0d7FF8000000000000;");
    check(&text, 64, 64, operands, |a, b, c, _| {
        let value = model(f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
        if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() }
    });
}

fn check_single(instruction: &str, operands: &Operands, model: impl Fn(f32, f32, f32) -> f32) {
    check(instruction, 32, 32, operands, |a, b, c, _| canonical(model(single(a), single(b), single(c))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn singles_round_to_nearest(operands in operands()) {
        check_single("add.f32 %d, %a0, %a1;", &operands, |a, b, _| a + b);
        check_single("sub.rn.f32 %d, %a0, %a1;", &operands, |a, b, _| a - b);
        check_single("mul.f32 %d, %a0, %a1;", &operands, |a, b, _| a * b);
        check_single("div.rn.f32 %d, %a0, %a1;", &operands, |a, b, _| a / b);
        check_single("fma.rn.f32 %d, %a0, %a1, %a2;", &operands, f32::mul_add);
        check_single("rcp.rn.f32 %d, %a0;", &operands, |a, _, _| 1.0 / a);
        check_single("sqrt.rn.f32 %d, %a0;", &operands, |a, _, _| a.sqrt());
    }

    #[test]
    fn doubles_round_to_nearest(operands in operands()) {
        check_double("add.f64 %d, %a0, %a1;", &operands, |a, b, _| a + b);
        check_double("sub.f64 %d, %a0, %a1;", &operands, |a, b, _| a - b);
        check_double("mul.rn.f64 %d, %a0, %a1;", &operands, |a, b, _| a * b);
        check_double("div.rn.f64 %d, %a0, %a1;", &operands, |a, b, _| a / b);
        check_double("fma.rn.f64 %d, %a0, %a1, %a2;", &operands, f64::mul_add);
        check_double("rcp.rn.f64 %d, %a0;", &operands, |a, _, _| 1.0 / a);
        check_double("sqrt.rn.f64 %d, %a0;", &operands, |a, _, _| a.sqrt());
    }

    #[test]
    fn flushing_and_saturation_happen_where_they_are_written(operands in operands()) {
        check_single("add.ftz.f32 %d, %a0, %a1;", &operands, |a, b, _| flushed(flushed(a) + flushed(b)));
        check_single("mul.ftz.f32 %d, %a0, %a1;", &operands, |a, b, _| flushed(flushed(a) * flushed(b)));
        check_single("mul.sat.f32 %d, %a0, %a1;", &operands, |a, b, _| {
            let product = a * b;
            if product > 0.0 { product.min(1.0) } else { 0.0 }
        });
    }

    #[test]
    fn directed_roundings_enclose_the_exact_value(operands in operands()) {
        // Sum and product of singles are compared in double, where they are exact or nearly so.
        for (op, exact) in [("add", (|a, b| a + b) as fn(f64, f64) -> f64), ("mul", |a, b| a * b)] {
            let run = |rounding: &str| {
                common::evaluate(&format!("{op}.{rounding}.f32 %d, %a0, %a1;"), 32, 32, &operands)
            };
            let (down, up, zero) = (run("rm"), run("rp"), run("rz"));
            for (lane, numbers) in operands.iter().enumerate() {
                let exact = exact(f64::from(single(numbers[0])), f64::from(single(numbers[1])));
                let (down, up, zero) = (single(down[lane]), single(up[lane]), single(zero[lane]));
                if exact.is_nan() {
                    prop_assert!(down.is_nan() && up.is_nan() && zero.is_nan());
                    continue;
                }
                prop_assert!(f64::from(down) <= exact && exact <= f64::from(up), "{down} {exact} {up}");
                prop_assert!(down == up || down.next_up() == up, "{down} and {up} are neighbours");
                prop_assert_eq!(zero.abs(), down.abs().min(up.abs()));
            }
        }
    }

    #[test]
    fn minimum_and_maximum_prefer_numbers(operands in operands()) {
        let pick = |a: f32, b: f32, smaller: bool| match (a.is_nan(), b.is_nan()) {
            (true, true) => f32::NAN,
            (true, _) => b,
            (_, true) => a,
            _ if a.total_cmp(&b).is_lt() == smaller => a,
            _ => b,
        };
        check_single("min.f32 %d, %a0, %a1;", &operands, |a, b, _| pick(a, b, true));
        check_single("max.f32 %d, %a0, %a1;", &operands, |a, b, _| pick(a, b, false));
        check_single("max.NaN.f32 %d, %a0, %a1;", &operands, |a, b, _| {
            if a.is_nan() || b.is_nan() { f32::NAN } else { pick(a, b, false) }
        });
    }

    #[test]
    fn sign_operations_only_touch_the_sign(operands in operands()) {
        check("neg.f32 %d, %a0;", 32, 32, &operands, |a, _, _, _| a ^ 0x8000_0000);
        check("abs.f32 %d, %a0;", 32, 32, &operands, |a, _, _, _| a & 0x7fff_ffff);
        check("neg.f64 %d, %a0;", 64, 64, &operands, |a, _, _, _| a ^ 1 << 63);
        check("abs.f64 %d, %a0;", 64, 64, &operands, |a, _, _, _| a & !(1 << 63));
        check("copysign.f32 %d, %a0, %a1;", 32, 32, &operands, |a, b, _, _| a & 0x8000_0000 | b & 0x7fff_ffff);
    }

    #[test]
    fn approximations_are_the_double_function_rounded(operands in operands()) {
        let wide = |f: fn(f64) -> f64| move |a: f32, _: f32, _: f32| f(f64::from(a)) as f32;
        check_single("ex2.approx.f32 %d, %a0;", &operands, wide(f64::exp2));
        check_single("lg2.approx.f32 %d, %a0;", &operands, wide(f64::log2));
        check_single("sin.approx.f32 %d, %a0;", &operands, wide(f64::sin));
        check_single("cos.approx.f32 %d, %a0;", &operands, wide(f64::cos));
        check_single("rsqrt.approx.f32 %d, %a0;", &operands, wide(|a| 1.0 / a.sqrt()));
        check_single("tanh.approx.f32 %d, %a0;", &operands, wide(f64::tanh));
        check_single("ex2.approx.ftz.f32 %d, %a0;", &operands, |a, _, _| {
            flushed(f64::from(flushed(a)).exp2() as f32)
        });
        check_single("div.approx.f32 %d, %a0, %a1;", &operands, |a, b, _| a / b);
    }

    #[test]
    fn comparisons_know_what_is_not_a_number(operands in operands()) {
        let compare = |op: &str, model: &dyn Fn(f32, f32) -> bool| {
            let text = format!("setp.{op}.f32 %p1, %a0, %a1; selp.b32 %d, 1, 0, %p1;");
            check(&text, 32, 32, &operands, |a, b, _, _| u64::from(model(single(a), single(b))));
        };
        let unordered = |a: f32, b: f32| a.is_nan() || b.is_nan();
        compare("eq", &|a, b| a == b);
        compare("ne", &|a, b| a != b && !unordered(a, b));
        compare("lt", &|a, b| a < b);
        compare("ge", &|a, b| a >= b);
        compare("equ", &|a, b| a == b || unordered(a, b));
        compare("neu", &|a, b| a != b);
        compare("ltu", &|a, b| a < b || unordered(a, b));
        compare("leu", &|a, b| a <= b || unordered(a, b));
        compare("gtu", &|a, b| a > b || unordered(a, b));
        compare("geu", &|a, b| a >= b || unordered(a, b));
        compare("num", &|a, b| !unordered(a, b));
        compare("nan", &unordered);
        check("set.gt.f32.f32 %d, %a0, %a1;", 32, 32, &operands, |a, b, _, _| {
            if single(a) > single(b) { u64::from(1f32.to_bits()) } else { 0 }
        });
    }

    #[test]
    fn floats_become_integers_with_every_rounding(operands in operands()) {
        let rounded = |value: f64, rounding: &str| match rounding {
            "rni" => value.round_ties_even(),
            "rzi" => value.trunc(),
            "rmi" => value.floor(),
            _ => value.ceil(),
        };
        for rounding in ["rni", "rzi", "rmi", "rpi"] {
            let single = |a: u64| rounded(f64::from(single(a)), rounding);
            let double = |a: u64| rounded(f64::from_bits(a), rounding);
            check(&format!("cvt.{rounding}.s32.f32 %d, %a0;"), 32, 32, &operands, |a, _, _, _| {
                u64::from(single(a) as i32 as u32)
            });
            check(&format!("cvt.{rounding}.u32.f32 %d, %a0;"), 32, 32, &operands, |a, _, _, _| {
                u64::from(single(a) as u32)
            });
            check(&format!("cvt.{rounding}.s16.f32 %d, %a0;"), 32, 16, &operands, |a, _, _, _| {
                u64::from(single(a) as i16 as u16)
            });
            check(&format!("cvt.{rounding}.s64.f64 %d, %a0;"), 64, 64, &operands, |a, _, _, _| {
                if double(a).is_nan() { 1 << 63 } else { double(a) as i64 as u64 }
            });
            check(&format!("cvt.{rounding}.u64.f32 %d, %a0;"), 32, 64, &operands, |a, _, _, _| {
                if single(a).is_nan() { 1 << 63 } else { single(a) as u64 }
            });
            check_double(&format!("cvt.{rounding}.f64.f64 %d, %a0;"), &operands, |a, _, _| rounded(a, rounding));
        }
    }

    #[test]
    fn integers_become_floats(operands in operands()) {
        check("cvt.rn.f32.s32 %d, %a0;", 32, 32, &operands, |a, _, _, _| u64::from((a as i32 as f32).to_bits()));
        check("cvt.rn.f32.u32 %d, %a0;", 32, 32, &operands, |a, _, _, _| u64::from((a as u32 as f32).to_bits()));
        check("cvt.rn.f32.s64 %d, %a0;", 64, 32, &operands, |a, _, _, _| u64::from((a as i64 as f32).to_bits()));
        check("cvt.rn.f64.s64 %d, %a0;", 64, 64, &operands, |a, _, _, _| (a as i64 as f64).to_bits());
        check("cvt.rn.f64.u64 %d, %a0;", 64, 64, &operands, |a, _, _, _| (a as f64).to_bits());
        check("cvt.rn.f64.s32 %d, %a0;", 32, 64, &operands, |a, _, _, _| f64::from(a as i32).to_bits());
        check("cvt.rn.f32.u8 %d, %a0;", 32, 32, &operands, |a, _, _, _| u64::from((a as u8 as f32).to_bits()));
        check("cvt.rz.f32.u32 %d, %a0;", 32, 32, &operands, |a, _, _, _| {
            let near = a as u32 as f32;
            u64::from(if f64::from(near) > a as f64 { near.next_down() } else { near }.to_bits())
        });
        check("cvt.rp.f32.u32 %d, %a0;", 32, 32, &operands, |a, _, _, _| {
            let near = a as u32 as f32;
            u64::from(if f64::from(near) < a as f64 { near.next_up() } else { near }.to_bits())
        });
    }

    #[test]
    fn floats_change_their_width(operands in operands()) {
        check("cvt.rn.f32.f64 %d, %a0;", 64, 32, &operands, |a, _, _, _| canonical(f64::from_bits(a) as f32));
        check("cvt.rz.f32.f64 %d, %a0;", 64, 32, &operands, |a, _, _, _| {
            let (exact, near) = (f64::from_bits(a), f64::from_bits(a) as f32);
            let beyond = f64::from(near).abs() > exact.abs();
            canonical(if beyond { f32::from_bits(near.to_bits() - 1) } else { near })
        });
        check_double("{ .reg .b32 %t; mov.b64 {%t, _}, %a0; cvt.f64.f32 %d, %t; }", &operands, |a, _, _| {
            f64::from(single(a.to_bits()))
        });
        check("cvt.sat.f32.f32 %d, %a0;", 32, 32, &operands, |a, _, _, _| {
            let a = single(a);
            u64::from(if a > 0.0 { a.min(1.0) } else { 0.0 }.to_bits())
        });
        check("cvt.ftz.f32.f32 %d, %a0;", 32, 32, &operands, |a, _, _, _| canonical(flushed(single(a))));
    }

    #[test]
    fn integers_change_their_width(operands in operands()) {
        check("cvt.s64.s32 %d, %a0;", 32, 64, &operands, |a, _, _, _| a as i32 as i64 as u64);
        check("cvt.u64.u32 %d, %a0;", 32, 64, &operands, |a, _, _, _| a);
        check("cvt.u32.u64 %d, %a0;", 64, 32, &operands, |a, _, _, _| a & 0xffff_ffff);
        check("cvt.s16.s8 %d, %a0;", 16, 16, &operands, |a, _, _, _| u64::from(a as i8 as i16 as u16));
        check("cvt.s8.s32 %d, %a0;", 32, 32, &operands, |a, _, _, _| u64::from(a as i8 as i32 as u32));
        check("cvt.u8.u32 %d, %a0;", 32, 32, &operands, |a, _, _, _| a & 0xff);
        check("cvt.sat.u8.s32 %d, %a0;", 32, 32, &operands, |a, _, _, _| (a as i32).clamp(0, 255) as u64);
        check("cvt.sat.s8.s32 %d, %a0;", 32, 32, &operands, |a, _, _, _| {
            u64::from((a as i32).clamp(-128, 127) as u32)
        });
        check("cvt.sat.s32.u64 %d, %a0;", 64, 32, &operands, |a, _, _, _| a.min(i32::MAX as u64));
    }
}

/// Every half converts to a single and back to itself, and the single has the value the format defines.
#[test]
fn halves_survive_the_way_through_singles() {
    for base in (0..=u16::MAX).step_by(32) {
        let halves: Vec<u64> = (0..32).map(|lane| u64::from(base + lane)).collect();
        let operands: Operands = std::array::from_fn(|lane| [halves[lane], 0, 0, 0]);
        let value = |half: u64| {
            let (exponent, fraction) = (half >> 10 & 31, (half & 1023) as f32);
            let magnitude = match exponent {
                0 => fraction * 2f32.powi(-24),
                31 if fraction == 0.0 => f32::INFINITY,
                31 => f32::NAN,
                _ => (1024.0 + fraction) * 2f32.powi(exponent as i32 - 25),
            };
            if half >> 15 == 1 { -magnitude } else { magnitude }
        };
        check("cvt.f32.f16 %d, %a0;", 16, 32, &operands, |half, _, _, _| canonical(value(half)));
        check("cvt.f32.f16 %f1, %a0; cvt.rn.f16.f32 %d, %f1;", 16, 16, &operands, |half, _, _, _| {
            if value(half).is_nan() { 0x7fff } else { half }
        });
    }
}

#[test]
fn halves_round_to_nearest_even() {
    let cases =
        [(1.0f32, 0x3c00u64), (65519.0, 0x7bff), (65520.0, 0x7c00), (1.0 + 1.0 / 2048.0, 0x3c00), (1e-8, 0)];
    let operands: Operands = std::array::from_fn(|lane| [u64::from(cases[lane % 5].0.to_bits()), 0, 0, 0]);
    let found = common::evaluate("cvt.rn.f16.f32 %d, %a0;", 32, 16, &operands);
    for (lane, found) in found.iter().enumerate() {
        assert_eq!(*found, cases[lane % 5].1, "half of {}", cases[lane % 5].0);
    }
    let operands: Operands = std::array::from_fn(|_| [u64::from(3.140625f32.to_bits()), 0, 0, 0]);
    let found = common::evaluate("cvt.rn.bf16.f32 %h1, %a0; cvt.f32.bf16 %d, %h1;", 32, 32, &operands);
    assert_eq!(single(found[0]), 3.140625);
}
