//! Barriers in shared memory, atomics of halves, packed comparisons, and the small integer instructions: values
//! from the PTX ISA's own words.
//!
//! Read next: `coverage.rs`.

mod common;

use common::{Flat, Operands, Parameters, check, evaluate, kernel, run};

fn words(body: &str, count: usize) -> Vec<Vec<u32>> {
    let mut memory = Flat::new(64 * 32);
    run(&kernel(body), 1, 32, &Parameters::default().pointer(0), &mut memory);
    (0..32).map(|lane| memory.u32s(lane * 64, count)).collect()
}

fn same(a: u64, b: u64, c: u64) -> Operands {
    [[a, b, c, 0]; 32]
}

#[test]
fn a_barrier_in_shared_memory_opens_when_all_have_arrived() {
    let body = ".shared .align 8 .b64 barrier; .shared .align 4 .b8 room[128];
        setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [barrier], 32; bar.sync 0;
        mov.u32 %r1, room; mad.lo.u32 %r2, %r0, 4, %r1; mul.lo.u32 %r3, %r0, 3;
        setp.lt.u32 %p2, %r0, 16; @%p2 bra LOW;
        nanosleep.u32 100;
        LOW: st.shared.u32 [%r2], %r3;
        mbarrier.arrive.shared.b64 %rd2, [barrier];
        WAIT: mbarrier.try_wait.shared.b64 %p3, [barrier], %rd2; @!%p3 bra WAIT;
        xor.b32 %r4, %r0, 31; mad.lo.u32 %r4, %r4, 4, %r1; ld.shared.u32 %r5, [%r4];
        mbarrier.test_wait.parity.shared.b64 %p4, [barrier], 0; selp.u32 %r6, 1, 0, %p4;
        mbarrier.test_wait.parity.shared::cta.b64 %p5, [barrier], 1; selp.u32 %r7, 1, 0, %p5;
        st.global.v4.u32 [%rd1], {%r5, %r6, %r7, %r7}; bar.sync 0; mbarrier.inval.shared.b64 [barrier];";
    for (lane, found) in words(body, 3).into_iter().enumerate() {
        // Phase 0 is over, phase 1 is not.
        assert_eq!(found, [3 * (31 - lane as u32), 1, 0], "lane {lane}");
    }
}

#[test]
fn arrivals_are_counted_and_those_who_leave_are_not_waited_for() {
    let body = ".shared .align 8 .b64 barrier; setp.ne.u32 %p1, %r0, 0; @%p1 bra END;
        mbarrier.init.shared.b64 [barrier], 5;
        mbarrier.arrive.noComplete.shared.b64 %rd2, [barrier], 2; mbarrier.pending_count.b64 %r1, %rd2;
        mbarrier.arrive_drop.shared.b64 %rd3, [barrier]; mbarrier.pending_count.b64 %r2, %rd3;
        mbarrier.test_wait.shared.b64 %p2, [barrier], %rd2; selp.u32 %r3, 1, 0, %p2;
        mbarrier.arrive.shared.b64 _, [barrier], 2;
        mbarrier.test_wait.shared.b64 %p2, [barrier], %rd2; selp.u32 %r4, 1, 0, %p2;
        st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};
        mbarrier.arrive.shared.b64 %rd4, [barrier]; mbarrier.pending_count.b64 %r5, %rd4;
        st.global.u32 [%rd1+16], %r5; END:";
    // The state is the one before the arrival; the next phase expects one fewer.
    assert_eq!(words(body, 5)[0], [5, 3, 0, 1, 4]);
}

#[test]
fn halves_are_added_in_memory_one_by_one_and_two_by_two() {
    for (name, one, four, single, ones) in
        [("f16", 0x3c00u32, 0x4400u32, "b16", 0x5000u32), ("bf16", 0x3f80, 0x4080, "b16", 0x4200)]
    {
        let body = format!(
            "mov.{single} %h1, {one}; mov.b32 %r1, {}; setp.lt.u32 %p1, %r0, 4;
             @%p1 atom.global.add.noftz.{name}x2 %r2, [%rd0+32], %r1;
             @%p1 red.global.add.noftz.{name} [%rd0+38], %h1;
             atom.shared.add.noftz.{name} %h2, [sum], %h1; bar.sync 0;
             ld.shared.u16 %h3, [sum]; cvt.u32.u16 %r3, %h3; st.global.u32 [%rd1], %r3;",
            one << 16 | one
        );
        let body = format!(".shared .align 4 .b8 room[8]; .shared .align 2 .b8 sum[2]; {body}");
        let mut memory = Flat::new(64 * 32);
        run(&kernel(&body), 1, 32, &Parameters::default().pointer(0), &mut memory);
        assert_eq!(memory.u32s(32, 2), [four << 16 | four, four << 16], "{name}");
        assert_eq!(memory.u32s(64, 1), [ones], "thirty-two times one in shared memory, {name}");
    }
}

#[test]
fn halves_of_words_are_compared_and_exchanged_in_memory() {
    let body = "mov.b16 %h1, 0; cvt.u16.u32 %h2, %r0; add.u16 %h2, %h2, 1;
        atom.global.cas.b16 %h3, [%rd0+34], %h1, %h2; cvt.u32.u16 %r1, %h3; st.global.u32 [%rd1], %r1;";
    let found = words(body, 1);
    // The first one finds zero, the others what it wrote.
    assert_eq!(found.iter().map(|words| words[0]).collect::<Vec<_>>(), [vec![0], vec![1; 31]].concat());
}

#[test]
fn two_halves_are_compared_at_once() {
    // 1.0 and 2.0 above; 3.0 and 2.0 below.
    let (a, b) = (0x3c00_4200u64, 0x4000_4000u64);
    let set = |text: &str| evaluate(text, 32, 32, &same(a, b, 0))[0];
    assert_eq!(set("set.gt.u32.f16x2 %d, %a0, %a1;"), 0x0000_ffff);
    assert_eq!(set("set.lt.f16x2.f16x2 %d, %a0, %a1;"), 0x3c00_0000);
    assert_eq!(set("set.ne.bf16x2.bf16x2 %d, %a0, %a1;"), 0x3f80_3f80);
    let both = "setp.gt.f16x2 %p1|%p2, %a0, %a1; selp.u32 %d, 1, 0, %p1; @%p2 add.u32 %d, %d, 2;";
    assert_eq!(set(both), 1, "the first predicate is the lower half's");
}

/// PTX ISA, "cp.async": what is not read is filled with zeros.
#[test]
fn asynchronous_copies_fill_up_with_zeros() {
    for bytes in [0u32, 3, 4, 10, 16] {
        let body = format!(
            ".shared .align 16 .b8 room[512]; mov.u32 %r1, room; mad.lo.u32 %r1, %r0, 16, %r1;
             mov.u32 %r3, {bytes}; mov.u32 %r4, 0x04030201; mov.u32 %r5, -1;
             st.global.v4.u32 [%rd1], {{%r4, %r4, %r4, %r4}}; st.shared.v4.u32 [%r1], {{%r5, %r5, %r5, %r5}};
             cp.async.cg.shared.global [%r1], [%rd1], 16, %r3; cp.async.wait_all;
             ld.shared.v4.u32 {{%r6, %r7, %r8, %r9}}, [%r1]; st.global.v4.u32 [%rd1], {{%r6, %r7, %r8, %r9}};"
        );
        for found in words(&body, 4) {
            let whole: Vec<u8> = found.into_iter().flat_map(u32::to_le_bytes).collect();
            let expected: Vec<u8> =
                (0..16u32).map(|n| if n < bytes { (n % 4 + 1) as u8 } else { 0 }).collect();
            assert_eq!(whole, expected, "{bytes} bytes");
        }
    }
}

#[test]
fn products_of_24_bits_take_the_lower_or_upper_word() {
    let (a, b) = (0xff80_0001u64, 0x0012_3456u64);
    for (name, signed) in [("s32", true), ("u32", false)] {
        let part = |value: u64| {
            let low = (value & 0xff_ffff) as i64;
            if signed && low >> 23 == 1 { low - (1 << 24) } else { low }
        };
        let product = part(a) * part(b);
        let word = |shift: u32| u64::from((product >> shift) as u32);
        check(&format!("mul24.lo.{name} %d, %a0, %a1;"), 32, 32, &same(a, b, 0), |_, _, _, _| word(0));
        check(&format!("mul24.hi.{name} %d, %a0, %a1;"), 32, 32, &same(a, b, 0), |_, _, _, _| word(16));
        let sum = |shift: u32| u64::from((word(shift) as u32).wrapping_add(77));
        check(&format!("mad24.lo.{name} %d, %a0, %a1, %a2;"), 32, 32, &same(a, b, 77), |_, _, _, _| sum(0));
        check(&format!("mad24.hi.{name} %d, %a0, %a1, %a2;"), 32, 32, &same(a, b, 77), |_, _, _, _| sum(16));
    }
}

/// PTX ISA, "fns", "bmsk", "szext".
#[test]
fn bits_are_found_made_and_extended() {
    let find = |mask: u64, base: u64, offset: i32| {
        evaluate("fns.b32 %d, %a0, %a1, %a2;", 32, 32, &same(mask, base, offset as u32 as u64))[0] as u32
    };
    assert_eq!(find(0b1011_0100, 0, 1), 2);
    assert_eq!(find(0b1011_0100, 3, 2), 5);
    assert_eq!(find(0b1011_0100, 7, -2), 5);
    assert_eq!(find(0b1011_0100, 4, 0), 4);
    assert_eq!(find(0b1011_0100, 3, 0), u32::MAX);
    assert_eq!(find(0b1011_0100, 0, 5), u32::MAX);
    let two = |text: &str, a: u64, b: u64| evaluate(text, 32, 32, &same(a, b, 0))[0];
    assert_eq!(two("bmsk.clamp.b32 %d, %a0, %a1;", 4, 5), 0x1f0);
    assert_eq!(two("bmsk.clamp.b32 %d, %a0, %a1;", 28, 40), 0xf000_0000);
    assert_eq!(two("bmsk.clamp.b32 %d, %a0, %a1;", 32, 5), 0);
    assert_eq!(two("bmsk.wrap.b32 %d, %a0, %a1;", 36, 33), 0x10);
    assert_eq!(two("szext.clamp.s32 %d, %a0, %a1;", 0xabcd_ef85, 8), 0xffff_ff85);
    assert_eq!(two("szext.clamp.u32 %d, %a0, %a1;", 0xabcd_ef85, 8), 0x85);
    assert_eq!(two("szext.clamp.s32 %d, %a0, %a1;", 0xabcd_ef85, 99), 0xabcd_ef85);
    assert_eq!(two("szext.wrap.s32 %d, %a0, %a1;", 0xabcd_ef85, 40), 0xffff_ff85);
    assert_eq!(two("szext.clamp.s32 %d, %a0, %a1;", 0xabcd_ef85, 0), 0);
}

/// PTX ISA, "Video Instructions": parts of a word, each with its own arithmetic.
#[test]
fn parts_of_words_are_computed_at_once() {
    let of = |text: &str, a: u64, b: u64, c: u64| evaluate(text, 32, 32, &same(a, b, c))[0];
    let (a, b) = (0x01ff_807fu64, 0x0201_01ffu64);
    assert_eq!(of("vadd4.u32.u32.u32 %d, %a0, %a1, %a2;", a, b, 0), 0x0300_817e);
    assert_eq!(of("vadd4.u32.u32.u32.sat %d, %a0, %a1, %a2;", a, b, 0), 0x03ff_81ff);
    assert_eq!(of("vsub4.s32.s32.s32.sat %d, %a0, %a1, %a2;", a, b, 0), 0xfffe_807f);
    assert_eq!(of("vavrg4.u32.u32.u32 %d, %a0, %a1, %a2;", a, b, 0), 0x0280_41bf);
    assert_eq!(of("vabsdiff4.u32.u32.u32 %d, %a0, %a1, %a2;", a, b, 0), 0x01fe_7f80);
    assert_eq!(of("vabsdiff4.u32.u32.u32.add %d, %a0, %a1, %a2;", a, b, 5), 1 + 0xfe + 0x7f + 0x80 + 5);
    assert_eq!(of("vmin4.s32.s32.s32 %d, %a0, %a1, %a2;", a, b, 0), 0x01ff_80ff);
    assert_eq!(of("vmax4.u32.u32.u32 %d, %a0, %a1, %a2;", a, b, 0), 0x02ff_80ff);
    assert_eq!(of("vadd2.u32.u32.u32 %d, %a0, %a1, %a2;", a, b, 0), 0x0400_827e);
    assert_eq!(of("vsub2.u32.u32.u32 %d, %a0, %a1, %a2;", a, b, 0), 0xfffe_7e80);
    assert_eq!(of("vavrg2.u32.u32.u32 %d, %a0, %a1, %a2;", a, b, 0), 0x0200_413f);
    assert_eq!(of("vabsdiff2.u32.u32.u32 %d, %a0, %a1, %a2;", a, b, 0), 0x0002_7e80);
    assert_eq!(of("vmin2.u32.u32.u32 %d, %a0, %a1, %a2;", a, b, 0), 0x01ff_01ff);
    assert_eq!(of("vmax2.s32.s32.s32 %d, %a0, %a1, %a2;", a, b, 0), 0x0201_01ff);
}

#[test]
fn environment_registers_can_be_read() {
    let body = "mov.u32 %r1, %envreg0; mov.u32 %r2, %envreg1; mov.u32 %r3, %envreg2;
        st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r3};";
    assert_eq!(words(body, 4)[5], [0; 4], "an ordinary launch has no place where its grid meets");
}

/// PTX ISA, "min" and "max": `.xorsign.abs` compares magnitudes and gives the exclusive or of the signs.
#[test]
fn magnitudes_are_compared_under_the_product_of_the_signs() {
    let of = |text: &str, a: f32, b: f32| {
        let operands = same(u64::from(a.to_bits()), u64::from(b.to_bits()), 0);
        f32::from_bits(evaluate(text, 32, 32, &operands)[0] as u32)
    };
    let (larger, smaller) = ("max.xorsign.abs.f32 %d, %a0, %a1;", "min.ftz.xorsign.abs.f32 %d, %a0, %a1;");
    for (a, b, most, least) in [(-3.0, 2.0, -3.0, -2.0), (-3.0, -4.0, 4.0, 3.0), (1.0, 5.0, 5.0, 1.0)] {
        assert_eq!((of(larger, a, b), of(smaller, a, b)), (most, least), "{a} and {b}");
    }
}

/// They order, hint or stop; values stay what they are.
#[test]
fn fences_hints_and_breakpoints_change_no_value() {
    let body = "mov.u32 %r1, 7; st.global.u32 [%rd1], %r1; fence.acq_rel.gpu; fence.sc.cta; membar.gl;
        prefetch.global.L2 [%rd1]; prefetch.L1 [%rd1]; prefetchu.L1 [%rd1]; pmevent 3;
        ldu.global.u32 %r2, [%rd1]; add.u32 %r2, %r2, 1; setp.gt.u32 %p1, %r0, 99; @%p1 brkpt;
        st.global.u32 [%rd1+4], %r2;";
    assert_eq!(words(body, 2)[9], [7, 8]);
}
