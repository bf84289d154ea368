//! Integer instructions against Rust's arithmetic and, for bit fields, against the definitions in the PTX manual
//! written bit by bit.
//!
//! Each property runs one instruction on 32 lanes with different operands. Read next: `floats.rs`.

mod common;

use common::{Operands, check};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = u64> {
    let edges = vec![
        0,
        1,
        2,
        31,
        32,
        33,
        63,
        64,
        0x7f,
        0x80,
        0x7fff,
        0x8000,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        i64::MAX as u64,
        i64::MIN as u64,
        u64::MAX,
    ];
    prop_oneof![any::<u64>(), prop::sample::select(edges), 0u64..70]
}

fn operands() -> impl Strategy<Value = Operands> {
    prop::array::uniform32(prop::array::uniform4(number()))
}

/// Checks one family for a signed and an unsigned type of one width.
macro_rules! arithmetic {
    ($operands:expr, $bits:expr, $u:ty, $s:ty, $double_u:ty, $double_s:ty) => {{
        let (operands, bits): (&Operands, u32) = ($operands, $bits);
        let two = |op: &str, model: &dyn Fn(u64, u64) -> u64| {
            check(&format!("{op} %d, %a0, %a1;"), bits, bits, operands, |a, b, _, _| model(a, b));
        };
        two(&format!("add.u{bits}"), &|a, b| (a as $u).wrapping_add(b as $u) as u64);
        two(&format!("add.s{bits}"), &|a, b| (a as $u).wrapping_add(b as $u) as u64);
        two(&format!("sub.s{bits}"), &|a, b| (a as $u).wrapping_sub(b as $u) as u64);
        two(&format!("mul.lo.s{bits}"), &|a, b| (a as $u).wrapping_mul(b as $u) as u64);
        two(&format!("mul.hi.u{bits}"), &|a, b| {
            ((a as $u as $double_u * b as $u as $double_u) >> bits) as $u as u64
        });
        two(&format!("mul.hi.s{bits}"), &|a, b| {
            ((a as $s as $double_s * b as $s as $double_s) >> bits) as $u as u64
        });
        two(&format!("div.u{bits}"), &|a, b| (a as $u).checked_div(b as $u).unwrap_or(<$u>::MAX) as u64);
        two(&format!("div.s{bits}"), &|a, b| {
            if b as $s == 0 { <$u>::MAX as u64 } else { (a as $s).wrapping_div(b as $s) as $u as u64 }
        });
        two(&format!("rem.u{bits}"), &|a, b| (a as $u).checked_rem(b as $u).unwrap_or(a as $u) as u64);
        two(&format!("rem.s{bits}"), &|a, b| {
            if b as $s == 0 { a } else { (a as $s).wrapping_rem(b as $s) as $u as u64 }
        });
        two(&format!("min.u{bits}"), &|a, b| (a as $u).min(b as $u) as u64);
        two(&format!("min.s{bits}"), &|a, b| (a as $s).min(b as $s) as $u as u64);
        two(&format!("max.u{bits}"), &|a, b| (a as $u).max(b as $u) as u64);
        two(&format!("max.s{bits}"), &|a, b| (a as $s).max(b as $s) as $u as u64);
        two(&format!("and.b{bits}"), &|a, b| a & b);
        two(&format!("or.b{bits}"), &|a, b| a | b);
        two(&format!("xor.b{bits}"), &|a, b| a ^ b);
        check(&format!("abs.s{bits} %d, %a0;"), bits, bits, operands, |a, _, _, _| {
            (a as $s).wrapping_abs() as $u as u64
        });
    }};
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn shifts_clamp_their_count(operands in operands()) {
        check("shl.b64 %d, %a0, %c1;", 64, 64, &operands, |a, count, _, _| a.checked_shl(count as u32).unwrap_or(0));
        check("shl.b32 %d, %a0, %c1;", 32, 32, &operands, |a, count, _, _| {
            u64::from((a as u32).checked_shl(count as u32).unwrap_or(0))
        });
        check("shl.b16 %d, %a0, %c1;", 16, 16, &operands.map(|o| o.map(|n| n & 0xffff)), |a, count, _, _| {
            u64::from((a as u16).checked_shl(count as u32).unwrap_or(0))
        });
        check("shr.u64 %d, %a0, %c1;", 64, 64, &operands, |a, count, _, _| a.checked_shr(count as u32).unwrap_or(0));
        check("shr.u32 %d, %a0, %c1;", 32, 32, &operands, |a, count, _, _| {
            u64::from((a as u32).checked_shr(count as u32).unwrap_or(0))
        });
        check("shr.s64 %d, %a0, %c1;", 64, 64, &operands, |a, count, _, _| {
            (a as i64 >> (count as u32).min(63)) as u64
        });
        check("shr.s32 %d, %a0, %c1;", 32, 32, &operands, |a, count, _, _| {
            u64::from((a as i32 >> (count as u32).min(31)) as u32)
        });
    }

    #[test]
    fn funnel_shifts_join_two_words(operands in operands()) {
        let joined = |a: u64, b: u64| b << 32 | a;
        check("shf.l.wrap.b32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| (joined(a, b) << (c & 31)) >> 32);
        check("shf.r.wrap.b32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| {
            (joined(a, b) >> (c & 31)) & 0xffff_ffff
        });
        check("shf.l.clamp.b32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| (joined(a, b) << c.min(32)) >> 32);
        check("shf.r.clamp.b32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| {
            (joined(a, b) >> c.min(32)) & 0xffff_ffff
        });
    }

    #[test]
    fn products_widen(operands in operands()) {
        check("mul.wide.u32 %d, %a0, %a1;", 32, 64, &operands, |a, b, _, _| a * b);
        check("mul.wide.s32 %d, %a0, %a1;", 32, 64, &operands, |a, b, _, _| {
            (i64::from(a as i32) * i64::from(b as i32)) as u64
        });
        check("mul.wide.u16 %d, %a0, %a1;", 16, 32, &operands, |a, b, _, _| a * b);
        check("mul.wide.s16 %d, %a0, %a1;", 16, 32, &operands, |a, b, _, _| {
            u64::from((i32::from(a as i16) * i32::from(b as i16)) as u32)
        });
        check("{ .reg .b64 %t; ld.global.b64 %t, [%rd1+16]; mad.wide.u32 %d, %a0, %a1, %t; }", 32, 64,
            &operands.map(|[a, b, c, d]| [a, b, c & 0xffff_ffff, d]),
            |a, b, c, _| (a * b).wrapping_add(c));
        check("mad.lo.s32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| {
            u64::from((a as u32).wrapping_mul(b as u32).wrapping_add(c as u32))
        });
        check("mad.hi.u32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| {
            u64::from(((a * b) >> 32) as u32).wrapping_add(c) & 0xffff_ffff
        });
        check("mad.lo.s64 %d, %a0, %a1, %a2;", 64, 64, &operands, |a, b, c, _| a.wrapping_mul(b).wrapping_add(c));
        check("sad.s32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| {
            u64::from((a as i32).abs_diff(b as i32).wrapping_add(c as u32))
        });
        check("add.sat.s32 %d, %a0, %a1;", 32, 32, &operands, |a, b, _, _| {
            u64::from((a as i32).saturating_add(b as i32) as u32)
        });
        check("sub.sat.s32 %d, %a0, %a1;", 32, 32, &operands, |a, b, _, _| {
            u64::from((a as i32).saturating_sub(b as i32) as u32)
        });
    }

    #[test]
    fn carries_chain_to_wide_sums(operands in operands()) {
        let wide = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
        check("add.cc.u64 %rd9, %a0, %a2; addc.u64 %d, %a1, %a3;", 64, 64, &operands, |a, b, c, d| {
            (wide(a, b).wrapping_add(wide(c, d)) >> 64) as u64
        });
        check("sub.cc.u64 %rd9, %a0, %a2; subc.u64 %d, %a1, %a3;", 64, 64, &operands, |a, b, c, d| {
            (wide(a, b).wrapping_sub(wide(c, d)) >> 64) as u64
        });
        // As compilers ask whether a subtraction borrowed: 1 says that it did not.
        check("sub.cc.u64 %rd9, %a0, %a1; addc.u64 %d, 0, 0;", 64, 64, &operands, |a, b, _, _| u64::from(a >= b));
        let chain = "sub.cc.u64 %rd9, %a0, %a2; subc.cc.u64 %rd9, %a1, %a3; addc.u64 %d, 0, 0;";
        check(chain, 64, 64, &operands, |a, b, c, d| {
            let wide = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
            u64::from(wide(b, a) >= wide(d, c))
        });
        // 64 bits of a product of 32-bit words and an addend, word by word.
        check("mad.lo.cc.u32 %r9, %a0, %a1, %a2; madc.hi.u32 %d, %a0, %a1, %a3;", 32, 32, &operands, |a, b, c, d| {
            ((a * b).wrapping_add(d << 32 | c)) >> 32
        });
    }

    #[test]
    fn bits_are_counted_and_found(operands in operands()) {
        check("popc.b64 %d, %a0;", 64, 32, &operands, |a, _, _, _| u64::from(a.count_ones()));
        check("popc.b32 %d, %a0;", 32, 32, &operands, |a, _, _, _| u64::from(a.count_ones()));
        check("clz.b64 %d, %a0;", 64, 32, &operands, |a, _, _, _| u64::from(a.leading_zeros()));
        check("clz.b32 %d, %a0;", 32, 32, &operands, |a, _, _, _| u64::from((a as u32).leading_zeros()));
        check("brev.b64 %d, %a0;", 64, 64, &operands, |a, _, _, _| a.reverse_bits());
        check("brev.b32 %d, %a0;", 32, 32, &operands, |a, _, _, _| u64::from((a as u32).reverse_bits()));
        let none = u64::from(u32::MAX);
        check("bfind.u32 %d, %a0;", 32, 32, &operands, |a, _, _, _| if a == 0 { none } else { u64::from(a.ilog2()) });
        check("bfind.s32 %d, %a0;", 32, 32, &operands, |a, _, _, _| {
            let a = a as i32;
            let a = if a < 0 { !a } else { a };
            if a == 0 { none } else { u64::from(a.ilog2()) }
        });
        check("bfind.shiftamt.u64 %d, %a0;", 64, 32, &operands, |a, _, _, _| {
            if a == 0 { none } else { u64::from(a.leading_zeros()) }
        });
        check("not.b32 %d, %a0;", 32, 32, &operands, |a, _, _, _| a ^ 0xffff_ffff);
        check("cnot.b32 %d, %a0;", 32, 32, &operands, |a, _, _, _| u64::from(a == 0));
        check("neg.s64 %d, %a0;", 64, 64, &operands, |a, _, _, _| a.wrapping_neg());
    }

    #[test]
    fn bit_fields_follow_the_manual(operands in operands()) {
        for (op, bits, signed) in [("u32", 32, false), ("s32", 32, true), ("u64", 64, false), ("s64", 64, true)] {
            check(&format!("bfe.{op} %d, %a0, %c1, %c2;"), bits, bits, &operands, |a, start, count, _| {
                let (start, count, top) = (start & 0xff, count & 0xff, u64::from(bits) - 1);
                let bit = |place: u64| a >> place & 1;
                let sign = if !signed || count == 0 { 0 } else { bit((start + count - 1).min(top)) };
                let pick = |i: u64| if i < count && start + i <= top { bit(start + i) } else { sign };
                (0..=top).map(|i| pick(i) << i).sum()
            });
        }
        for bits in [32, 64] {
            check(&format!("bfi.b{bits} %d, %a0, %a1, %c2, %c3;"), bits, bits, &operands, |a, b, start, count| {
                let (start, count, top) = (start & 0xff, count & 0xff, u64::from(bits) - 1);
                let inside = |i: u64| i >= start && i < start + count;
                (0..=top).map(|i| (if inside(i) { a >> (i - start) & 1 } else { b >> i & 1 }) << i).sum()
            });
        }
    }

    #[test]
    fn bytes_are_permuted(operands in operands()) {
        check("prmt.b32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| {
            let joined = b << 32 | a;
            (0..4).map(|i| {
                let selector = c >> (4 * i) & 15;
                let byte = joined >> (8 * (selector & 7)) & 0xff;
                let byte = if selector & 8 == 0 { byte } else if byte & 0x80 == 0 { 0 } else { 0xff };
                byte << (8 * i)
            }).sum()
        });
        // The tables of the manual: which byte of the eight lands in bytes 3, 2, 1, 0.
        let tables = [
            ("f4e", [0x3210, 0x4321, 0x5432, 0x6543]),
            ("b4e", [0x5670, 0x6701, 0x7012, 0x0123]),
            ("rc8", [0x0000, 0x1111, 0x2222, 0x3333]),
            ("ecl", [0x3210, 0x3211, 0x3222, 0x3333]),
            ("ecr", [0x0000, 0x1110, 0x2210, 0x3210]),
            ("rc16", [0x1010, 0x3232, 0x1010, 0x3232]),
        ];
        for (mode, table) in tables {
            check(&format!("prmt.b32.{mode} %d, %a0, %a1, %a2;"), 32, 32, &operands, |a, b, c, _| {
                let joined = b << 32 | a;
                let places: u64 = table[(c & 3) as usize];
                (0..4).map(|i| (joined >> (8 * (places >> (4 * i) & 7)) & 0xff) << (8 * i)).sum()
            });
        }
    }

    #[test]
    fn lop3_is_any_function_of_three_bits(operands in operands(), table in any::<u8>()) {
        check(&format!("lop3.b32 %d, %a0, %a1, %a2, {table};"), 32, 32, &operands, |a, b, c, _| {
            (0..32).map(|i| {
                let row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
                (u64::from(table) >> row & 1) << i
            }).sum()
        });
    }

    #[test]
    fn arithmetic_wraps_at_every_width(operands in operands()) {
        arithmetic!(&operands, 16, u16, i16, u32, i32);
        arithmetic!(&operands, 32, u32, i32, u64, i64);
        arithmetic!(&operands, 64, u64, i64, u128, i128);
    }

    #[test]
    fn comparisons_respect_sign_and_width(operands in operands()) {
        let compare = |op: &str, bits: u32, model: &dyn Fn(u64, u64) -> bool| {
            let text = format!("setp.{op} %p1, %a0, %a1; selp.b{bits} %d, 1, 0, %p1;");
            check(&text, bits, bits, &operands, |a, b, _, _| u64::from(model(a, b)));
        };
        compare("lt.s32", 32, &|a, b| (a as i32) < b as i32);
        compare("le.s16", 16, &|a, b| a as i16 <= b as i16);
        compare("gt.s64", 64, &|a, b| a as i64 > b as i64);
        compare("ge.u32", 32, &|a, b| a >= b);
        compare("lo.u64", 64, &|a, b| a < b);
        compare("ls.u32", 32, &|a, b| a <= b);
        compare("hi.u16", 16, &|a, b| a > b);
        compare("hs.u64", 64, &|a, b| a >= b);
        compare("eq.b64", 64, &|a, b| a == b);
        compare("ne.s32", 32, &|a, b| a != b);
    }

    #[test]
    fn comparisons_combine_with_predicates(operands in operands()) {
        for (word, combine) in [("and", 0), ("or", 1), ("xor", 2)] {
            let text = format!(
                "setp.lt.u32 %p1, %a2, %a3; setp.lt.{word}.u32 %p2|%p3, %a0, %a1, !%p1;
                 selp.u32 %r1, 1, 0, %p2; selp.u32 %r2, 2, 0, %p3; or.b32 %d, %r1, %r2;"
            );
            check(&text, 32, 32, &operands, |a, b, c, d| {
                let other = c >= d;
                let join = |found: bool| match combine {
                    0 => found & other,
                    1 => found | other,
                    _ => found ^ other,
                };
                u64::from(join(a < b)) | u64::from(join(a >= b)) << 1
            });
        }
        check("set.lt.u32.s32 %d, %a0, %a1;", 32, 32, &operands, |a, b, _, _| {
            if (a as i32) < b as i32 { 0xffff_ffff } else { 0 }
        });
        check("slct.b32.s32 %d, %a0, %a1, %a2;", 32, 32, &operands, |a, b, c, _| if c as i32 >= 0 { a } else { b });
    }

    #[test]
    fn predicates_have_logic_of_their_own(operands in operands()) {
        let text = "setp.lt.u32 %p1, %a0, %a1; setp.lt.u32 %p2, %a2, %a3; and.pred %p3, %p1, %p2;
            or.pred %p4, %p1, !%p2; xor.pred %p5, %p1, %p2; not.pred %p6, %p1; mov.pred %p7, %p2;
            mov.b32 %d, 0; @%p3 add.u32 %d, %d, 1; @%p4 add.u32 %d, %d, 2; @%p5 add.u32 %d, %d, 4;
            @%p6 add.u32 %d, %d, 8; @!%p7 add.u32 %d, %d, 16;";
        check(text, 32, 32, &operands, |a, b, c, d| {
            let (p, q) = (a < b, c < d);
            [p & q, p | !q, p ^ q, !p, !q].iter().enumerate().map(|(i, bit)| u64::from(*bit) << i).sum()
        });
    }

    #[test]
    fn words_are_packed_and_taken_apart(operands in operands()) {
        check("mov.b64 %d, {%a0, %a1};", 32, 64, &operands, |a, b, _, _| b << 32 | a);
        check("mov.b64 {%d, _}, %a0;", 64, 32, &operands, |a, _, _, _| a & 0xffff_ffff);
        check("mov.b64 {_, %d}, %a0;", 64, 32, &operands, |a, _, _, _| a >> 32);
        check("mov.b32 {%h1, %h2}, %a0; mov.b32 %d, {%h2, %h1};", 32, 32, &operands, |a, _, _, _| {
            u64::from((a as u32).rotate_left(16))
        });
        check("mov.b64 {%h1, %h2, %h3, %h4}, %a0; mov.b64 %d, {%h4, %h3, %h2, %h1};", 64, 64, &operands,
            |a, _, _, _| (0..4).map(|i| (a >> (16 * i) & 0xffff) << (48 - 16 * i)).sum());
    }
}
