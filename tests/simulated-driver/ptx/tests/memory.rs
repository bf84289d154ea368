//! State spaces, widths, vectors, atomics, variables, calls, and accesses that must fail.
//!
//! Each test runs a small kernel and looks at the bytes it left. Read next: `control.rs`.

mod common;

use common::{BASE, BODY_LINE, Flat, Parameters, finish, kernel, launch, run};
use proptest::prelude::*;
use turnus_simulated_ptx::{Launch, Module, Progress, Relocation, SHARED_WINDOW, Trap};

fn run_warp(body: &str, memory: &mut Flat) {
    run(&kernel(body), 1, 32, &Parameters::default().pointer(0), memory);
}

/// Runs a kernel that must fail.
fn trap_of(body: &str) -> Trap {
    let module = Module::parse(&kernel(body)).expect("loads");
    let mut started = launch(&module, [1, 1, 1], [32, 1, 1], 0, &Parameters::default().pointer(0));
    let mut memory = Flat::new(64 * 32);
    let trap = started.run(&mut memory, 10_000, &|| 0).expect_err("fails");
    assert_eq!(started.run(&mut memory, 10_000, &|| 0), Err(trap.clone()), "a failed launch stays failed");
    trap
}

#[test]
fn narrow_loads_extend_into_wide_registers() {
    let mut memory = Flat::new(64 * 32);
    for lane in 0..32 {
        memory.bytes[lane * 64] = 0x80 + lane as u8;
        memory.bytes[lane * 64 + 1] = 0xf0;
    }
    run_warp(
        "ld.global.u8 %r1, [%rd1]; ld.global.s8 %r2, [%rd1]; ld.global.u16 %r3, [%rd1]; ld.global.s16 %rd4, [%rd1];
         st.global.u32 [%rd1+8], %r1; st.global.u32 [%rd1+12], %r2; st.global.u32 [%rd1+16], %r3;
         st.global.u64 [%rd1+24], %rd4; st.global.u8 [%rd1+32], %r2; st.global.u16 [%rd1+34], %rd4;",
        &mut memory,
    );
    for lane in 0..32usize {
        let byte = 0x80 + lane as u8;
        let half = 0xf000 | u16::from(byte);
        assert_eq!(memory.u32s(lane * 64 + 8, 3), [u32::from(byte), byte as i8 as u32, u32::from(half)]);
        assert_eq!(memory.u64s(lane * 64 + 24, 1), [half as i16 as u64]);
        assert_eq!(memory.bytes[lane * 64 + 32..lane * 64 + 36], [byte, 0, byte, 0xf0], "only the low bytes");
    }
}

#[test]
fn vectors_move_between_memory_and_registers() {
    // Addresses of one run (stride of the vector) and with gaps must give the same.
    for stride in [16, 64] {
        let mut memory = Flat::new(64 * 32 + 64 * 32);
        for (place, byte) in memory.bytes[..2048].iter_mut().enumerate() {
            *byte = (place * 7) as u8;
        }
        run_warp(
            &format!(
                "mad.wide.u32 %rd2, %r0, {stride}, %rd0;
                 ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%rd2];
                 st.global.v4.u32 [%rd2+2048], {{%r4, %r3, %r2, %r1}};
                 ld.volatile.global.v2.f64 {{%fd1, %fd2}}, [%rd2];
                 st.global.v2.f64 [%rd2], {{%fd2, %fd1}};
                 ld.global.v2.u8 {{%h1, %h2}}, [%rd2];
                 @!%p1 st.global.v2.b8 [%rd2], {{%h2, %h1}};"
            ),
            &mut memory,
        );
        for lane in 0..32 {
            let byte = |place: usize| ((lane * stride + place) * 7) as u8;
            let reversed: Vec<u8> =
                (0..4).rev().flat_map(|word| (0..4).map(move |i| byte(4 * word + i))).collect();
            assert_eq!(memory.bytes[2048 + lane * stride..][..16], reversed[..]);
            let mut swapped: Vec<u8> = (8..16).chain(0..8).map(byte).collect();
            swapped.swap(0, 1);
            assert_eq!(memory.bytes[lane * stride..][..16], swapped[..]);
        }
    }
}

#[test]
fn lanes_may_reach_memory_through_generic_addresses_of_all_spaces() {
    let text = "
        .shared .align 8 .b8 buffer[256];
        .local .align 8 .b8 own[16];
        mov.u64 %rd2, buffer;
        cvta.shared.u64 %rd3, %rd2;
        mad.wide.u32 %rd3, %r0, 8, %rd3;
        mov.u64 %rd4, own;
        cvta.local.u64 %rd5, %rd4;
        add.s64 %rd5, %rd5, 8;
        // Lane 0, 3, ... global; 1, 4, ... shared; the others local.
        rem.u32 %r1, %r0, 3;
        add.s64 %rd6, %rd1, 16;
        setp.eq.u32 %p1, %r1, 1; selp.b64 %rd6, %rd3, %rd6, %p1;
        setp.eq.u32 %p2, %r1, 2; selp.b64 %rd6, %rd5, %rd6, %p2;
        cvt.u64.u32 %rd7, %r0;
        add.s64 %rd7, %rd7, 1000;
        st.u64 [%rd6], %rd7;
        ld.u64 %rd8, [%rd6];
        atom.add.u64 %rd9, [%rd6], 5;
        ld.u64 %rd10, [%rd6];
        st.global.u64 [%rd1], %rd8;
        st.global.u64 [%rd1+8], %rd10;
        isspacep.shared %p3, %rd6; selp.u64 %rd11, 1, 0, %p3;
        isspacep.local %p4, %rd6; @%p4 mov.u64 %rd11, 2;
        isspacep.global %p5, %rd6; @%p5 add.u64 %rd11, %rd11, 3;
        st.global.u64 [%rd1+24], %rd11;
        cvta.to.shared.u64 %rd12, %rd6;
        st.global.u64 [%rd1+32], %rd12;";
    let mut memory = Flat::new(64 * 32);
    run_warp(text, &mut memory);
    for lane in 0..32u64 {
        let place = lane as usize * 64;
        assert_eq!(memory.u64s(place, 2), [1000 + lane, 1005 + lane]);
        let global = memory.u64s(place + 16, 1)[0];
        assert_eq!(
            global,
            if lane % 3 == 0 { 1005 + lane } else { 0 },
            "only global lanes write global memory"
        );
        assert_eq!(memory.u64s(place + 24, 1), [[3, 1, 2][lane as usize % 3]]);
        if lane % 3 == 1 {
            assert_eq!(memory.u64s(place + 32, 1), [lane * 8], "back to an offset in shared memory");
        }
    }
}

#[test]
fn local_memory_belongs_to_one_thread() {
    let mut memory = Flat::new(64 * 32);
    run_warp(
        ".local .align 4 .b8 __local_depot0[32];
         mov.u64 %rd2, __local_depot0;
         st.local.u32 [%rd2+4], %r0;
         and.b32 %r1, %r0, 7; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3;
         st.local.u32 [%rd4], 77;
         ld.local.u32 %r2, [__local_depot0+4];
         st.global.u32 [%rd1], %r2;",
        &mut memory,
    );
    for lane in 0..32u32 {
        let expected = if lane % 8 == 1 { 77 } else { lane };
        assert_eq!(memory.u32s(lane as usize * 64, 1), [expected]);
    }
}

#[test]
fn shared_memory_is_one_for_a_block_and_ends_with_it() {
    // Each block leaves its mark; the next block must find zero, not the mark.
    let body = ".shared .align 4 .b8 a[4]; .shared .align 8 .b8 b[8];
        mov.u32 %r1, %ctaid.x; shl.b32 %r2, %r1, 2; cvt.u64.u32 %rd2, %r2; add.s64 %rd2, %rd0, %rd2;
        ld.shared.u32 %r3, [a]; mov.u32 %r4, b; ld.shared.u32 %r5, [%r4+4]; or.b32 %r3, %r3, %r5;
        st.global.u32 [%rd2], %r3; st.shared.u32 [a], 1; st.shared.v2.u32 [b], {2, 3};";
    let mut memory = Flat::new(4 * 100);
    memory.bytes.fill(0xee);
    run(&kernel(body), 100, 1, &Parameters::default().pointer(0), &mut memory);
    assert_eq!(memory.u32s(0, 100), [0; 100]);
}

#[test]
fn dynamic_shared_memory_lies_behind_the_static() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 more[];
        .shared .align 4 .b8 few[4];
        .visible .entry k(.param .u64 p) { .reg .b32 %r<8>; .reg .b64 %rd<8>;
        ld.param.u64 %rd1, [p]; mov.u32 %r1, more; st.global.u32 [%rd1], %r1;
        st.shared.u32 [more+60], 7; ld.shared.u32 %r2, [%r1+60]; st.global.u32 [%rd1+4], %r2;
        mov.u32 %r3, %dynamic_smem_size; st.global.u32 [%rd1+8], %r3; st.shared.u32 [few], 1; ret; }";
    let module = Module::parse(text).expect("loads");
    assert_eq!(module.entry("k").expect("k").static_shared_bytes(), 4);
    let parameters = Parameters::default().pointer(0);
    let mut memory = Flat::new(12);
    let mut enough = launch(&module, [1, 1, 1], [1, 1, 1], 64, &parameters);
    finish(&mut enough, &mut memory, 100).expect("64 bytes hold it");
    assert_eq!(memory.u32s(0, 3), [16, 7, 64]);
    let mut short = launch(&module, [1, 1, 1], [1, 1, 1], 60, &parameters);
    let trap = finish(&mut short, &mut memory, 100).expect_err("60 bytes do not");
    assert!(matches!(trap, Trap::IllegalAddress { address: 76, .. }), "{trap}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// All lanes of two warps change one number; the model changes it in lane order.
    #[test]
    fn atomics_change_one_number_after_another(start in any::<u64>(), values in prop::array::uniform32(any::<u64>())) {
        type Model = fn(u64, u64) -> u64;
        let cases: [(&str, u32, Model); 18] = [
            ("add.u32", 32, |old, b| old + b),
            ("add.s32", 32, |old, b| old + b),
            ("add.u64", 64, u64::wrapping_add),
            ("min.u32", 32, u64::min),
            ("max.u32", 32, u64::max),
            ("min.s32", 32, |old, b| (old as i32).min(b as i32) as u64),
            ("max.s32", 32, |old, b| (old as i32).max(b as i32) as u64),
            ("min.u64", 64, u64::min),
            ("max.s64", 64, |old, b| (old as i64).max(b as i64) as u64),
            ("and.b32", 32, |old, b| old & b),
            ("or.b32", 32, |old, b| old | b),
            ("xor.b64", 64, |old, b| old ^ b),
            ("exch.b32", 32, |_, b| b),
            ("exch.b64", 64, |_, b| b),
            ("inc.u32", 32, |old, b| if old >= b { 0 } else { old + 1 }),
            ("dec.u32", 32, |old, b| if old == 0 || old > b { b } else { old - 1 }),
            ("add.f32", 32, |old, b| {
                let sum = f32::from_bits(old as u32) + f32::from_bits(b as u32);
                u64::from(if sum.is_nan() { 0x7fff_ffff } else { sum.to_bits() })
            }),
            ("cas.b64", 64, |old, b| if old == b { b ^ 1 } else { old }),
        ];
        for space in ["global", "shared"] {
            for (op, bits, model) in cases {
                let mask = if bits == 64 { u64::MAX } else { 0xffff_ffff };
                let third = if op == "cas.b64" { "xor.b64 %c, %b, 1;" } else { "" };
                let operands = if op == "cas.b64" { "%b, %c" } else { "%b" };
                let text = kernel(&format!(
                    ".shared .align 8 .b8 cell[8]; .reg .b{bits} %b, %c, %old, %now; .reg .b64 %cell;
                     mov.u64 %cell, {}; ld.global.b{bits} %b, [%rd1]; {third}
                     ld.global.b{bits} %now, [%rd0+56]; st.{space}.b{bits} [%cell], %now;
                     atom.{space}.{op} %old, [%cell], {operands};
                     st.global.b{bits} [%rd1+8], %old; ld.{space}.b{bits} %now, [%cell];
                     st.global.b{bits} [%rd1+16], %now;",
                    if space == "global" { "%rd0; add.s64 %cell, %cell, 48" } else { "cell" }
                ));
                let mut memory = Flat::new(64 * 32);
                memory.bytes[56..64].copy_from_slice(&start.to_le_bytes());
                for (lane, value) in values.iter().enumerate() {
                    memory.bytes[lane * 64..lane * 64 + 8].copy_from_slice(&value.to_le_bytes());
                }
                run(&text, 1, 32, &Parameters::default().pointer(0), &mut memory);
                let mut expected = start & mask;
                for (lane, value) in values.iter().enumerate() {
                    prop_assert_eq!(memory.u64s(lane * 64 + 8, 1)[0], expected, "old value of {} in lane {}", op, lane);
                    expected = model(expected, value & mask) & mask;
                }
                prop_assert_eq!(memory.u64s(16, 1)[0], expected, "final value of {}", op);
            }
        }
    }
}

#[test]
fn reductions_reach_every_thread_of_the_grid() {
    let body = "red.global.add.u32 [%rd0], 1; red.global.gpu.relaxed.max.u32 [%rd0+4], %r0;
        red.add.u64 [%rd0+8], 3; red.global.add.f64 [%rd0+16], 0d3FE0000000000000;";
    let mut memory = Flat::new(64 * 96);
    run(&kernel(body), 20, 96, &Parameters::default().pointer(0), &mut memory);
    assert_eq!(memory.u32s(0, 2), [1920, 95]);
    assert_eq!(memory.u64s(8, 1), [5760]);
    assert_eq!(f64::from_bits(memory.u64s(16, 1)[0]), 960.0);
}

#[test]
fn module_variables_are_listed_with_their_first_bytes() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64
        .visible .global .align 4 .u32 counter = 7;
        .const .align 4 .f32 table[2][2] = {{0f3F800000, 2.0}, {3.0}};
        .global .align 8 .u64 pointer[2] = {0, generic(counter)+4};
        .global .align 1 .b8 text[3] = {104, 105};
        .extern .global .align 4 .u32 elsewhere;
        .global .align 16 .v2 .f32 pair = {1.0, -1.0};
        .visible .entry k(.param .u64 p) { .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %rd<4>;
        ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [counter]; st.global.u32 [%rd1], %r1;
        mov.u64 %rd2, table; ld.const.f32 %f1, [%rd2+8]; st.global.f32 [%rd1+4], %f1;
        mov.u64 %rd3, counter+8; st.global.u64 [%rd1+8], %rd3; ret; }";
    let module = Module::parse(text).expect("loads");
    let globals = module.globals();
    let names: Vec<&str> = globals.iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["counter", "table", "pointer", "text", "elsewhere", "pair"]);
    assert_eq!(globals[0].initial, 7u32.to_le_bytes());
    assert!(globals[1].is_constant && !globals[0].is_constant && globals[4].is_extern);
    let floats: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!((globals[1].size, globals[1].align, &globals[1].initial), (16, 4, &floats));
    assert_eq!(globals[2].relocations, [Relocation { offset: 8, symbol: "counter".into(), addend: 4 }]);
    assert_eq!((globals[3].size, &globals[3].initial[..]), (3, &b"hi"[..]));
    assert_eq!((globals[5].size, globals[5].align), (8, 16));

    let entry = module.entry("k").expect("k");
    let parameters = Parameters::default().pointer(0).bytes;
    let address_of = |name: &str| match name {
        "counter" => Some(BASE + 32),
        "table" => Some(BASE + 64),
        _ => None,
    };
    let mut memory = Flat::new(128);
    memory.bytes[32..36].copy_from_slice(&7u32.to_le_bytes());
    memory.bytes[64..76].copy_from_slice(&floats);
    let mut started = Launch::new(entry, [1; 3], [1; 3], 0, &parameters, &address_of).expect("launches");
    assert_eq!(started.run(&mut memory, 1000, &|| 0), Ok(Progress::Finished));
    assert_eq!((memory.u32s(0, 1)[0], memory.f32s(4, 1)[0], memory.u64s(8, 1)[0]), (7, 3.0, BASE + 40));
    let missing = Launch::new(entry, [1; 3], [1; 3], 0, &parameters, &|_| None).expect_err("needs addresses");
    assert!(missing.to_string().contains("counter") || missing.to_string().contains("table"), "{missing}");
}

#[test]
fn parameters_are_laid_out_by_their_alignment() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64
        .visible .entry k(.param .u8 a, .param .align 8 .b8 s[12], .param .u16 b, .param .u64 .ptr .global .align 4 p)
        { .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .b16 %h<2>;
        ld.param.u64 %rd1, [p]; ld.param.u8 %r1, [a]; ld.param.u32 %r2, [s+8]; ld.param.u16 %h1, [b];
        st.global.u32 [%rd1], %r1; st.global.u32 [%rd1+4], %r2; st.global.u16 [%rd1+8], %h1;
        mov.b64 %rd2, s; ld.param.u32 %r3, [%rd2+4]; st.global.u32 [%rd1+12], %r3;
        cvta.param.u64 %rd3, %rd2; ld.v2.u32 {%r1, %r2}, [%rd3]; st.global.u32 [%rd1+16], %r2; ret; }";
    let module = Module::parse(text).expect("loads");
    let entry = module.entry("k").expect("k");
    let places: Vec<_> =
        entry.parameters.iter().map(|p| (p.name.as_str(), p.offset, p.size, p.align)).collect();
    assert_eq!(places, [("a", 0, 1, 1), ("s", 8, 12, 8), ("b", 20, 2, 2), ("p", 24, 8, 8)]);
    assert_eq!(entry.parameter_bytes(), 32);
    let parameters = Parameters::default()
        .push([9])
        .push(0x22_0000_0011u64.to_le_bytes())
        .push(0x33u32.to_le_bytes())
        .push(0x44u16.to_le_bytes())
        .pointer(0);
    let mut memory = Flat::new(20);
    run(text, 1, 1, &parameters, &mut memory);
    assert_eq!(memory.u32s(0, 5), [9, 0x33, 0x44, 0x22, 0x22]);
}

#[test]
fn device_functions_are_called_with_their_parameters() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64
        .func (.param .b32 result) twice(.param .b32 a, .param .align 4 .b8 pair[8])
        { .reg .b32 %r<5>; .reg .pred %p<2>;
          ld.param.b32 %r1, [a]; ld.param.b32 %r2, [pair+4]; setp.gt.s32 %p1, %r1, 20;
          @%p1 bra L; add.s32 %r3, %r1, %r1; add.s32 %r3, %r3, %r2; st.param.b32 [result], %r3; ret;
          L: st.param.b32 [result], -1; ret; }
        .func (.reg .b32 %out) next(.reg .b32 %in) { add.s32 %out, %in, 1; ret; }
        .visible .entry k(.param .u64 p) { .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<2>;
        ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd1, %r1, 4, %rd1; mov.u32 %r5, 7;
        setp.ne.u32 %p1, %r1, 3;
        @%p1 call.uni (%r5), next, (%r1);
        { .param .b32 x; .param .align 4 .b8 y[8]; .param .b32 z;
          st.param.b32 [x], %r5; st.param.b32 [y+4], 100; st.param.b32 [y], 1;
          call.uni (z), twice, (x, y); ld.param.b32 %r2, [z]; }
        st.global.u32 [%rd1], %r2; ret; }";
    let mut memory = Flat::new(128);
    run(text, 1, 32, &Parameters::default().pointer(0), &mut memory);
    let expected: Vec<u32> = (0..32)
        .map(|lane| if lane == 3 { 7 } else { lane + 1 })
        .map(|value| if value > 20 { u32::MAX } else { 2 * value + 100 })
        .collect();
    assert_eq!(memory.u32s(0, 32), expected);
}

#[test]
fn an_illegal_address_names_itself_and_its_line() {
    let trap = trap_of("setp.eq.u32 %p1, %r0, 5;\n@%p1 mov.u64 %rd1, 4096;\nld.global.u32 %r1, [%rd1+4];");
    let Trap::IllegalAddress { address, entry, line } = &trap else { panic!("{trap}") };
    assert_eq!((*address, entry.as_str()), (4100, "k"));
    assert_eq!(*line, BODY_LINE + 2, "the third line of the body");
    let beyond = trap_of("mov.u64 %rd2, 0x1000000000000008; st.u32 [%rd2], 1;");
    assert!(matches!(beyond, Trap::IllegalAddress { address: 8, .. }), "no shared memory: {beyond}");
    assert_eq!(SHARED_WINDOW, 0x1000_0000_0000_0000);
    let local = trap_of(".local .b8 own[16]; mov.u64 %rd2, own; ld.local.u32 %r1, [%rd2+16];");
    assert!(matches!(local, Trap::IllegalAddress { address: 16, .. }), "{local}");
}

#[test]
fn a_misaligned_address_is_not_an_illegal_one() {
    let trap = trap_of("ld.global.u32 %r1, [%rd1+2];");
    assert!(matches!(trap, Trap::MisalignedAddress { address, .. } if address == BASE + 2), "{trap}");
    let vector = trap_of("ld.global.v2.u32 {%r1, %r2}, [%rd1+4];");
    assert!(matches!(vector, Trap::MisalignedAddress { .. }), "a vector is aligned as a whole: {vector}");
}

#[test]
fn a_thread_can_give_up() {
    let trap = trap_of("setp.eq.u32 %p1, %r0, 31; @%p1 trap;");
    assert!(matches!(trap, Trap::Trapped { .. }), "{trap}");
}
