//! mma and ldmatrix: fragments as the PTX ISA lays them out, against a product computed here.
//!
//! PTX ISA, "Matrix Fragments for mma.m16n8k16" and its neighbours: the places below are their formulas. The
//! numbers are small and whole, so every sum is exact in every type. Read next: `cooperation.rs`.

mod common;

use common::{Flat, Parameters, kernel, run};

/// Rows, depth, bits of an element, types of d, a, b, c, and how the numbers are written.
struct Shape {
    name: &'static str,
    rows: usize,
    depth: usize,
    bits: usize,
    types: [&'static str; 4],
    encode: fn(i64) -> u64,
}

fn half(value: i64) -> u64 {
    // Whole numbers up to 64 in f16.
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return 0;
    }
    let top = 63 - u64::from(magnitude.leading_zeros());
    u64::from(value < 0) << 15 | (top + 15) << 10 | (magnitude << (10 - top) & 0x3ff)
}

fn bfloat(value: i64) -> u64 {
    u64::from((value as f32).to_bits() >> 16)
}

fn single(value: i64) -> u64 {
    u64::from((value as f32).to_bits())
}

fn byte(value: i64) -> u64 {
    value as u64 & 0xff
}

const SHAPES: [Shape; 8] = [
    Shape {
        name: "m16n8k16",
        rows: 16,
        depth: 16,
        bits: 16,
        types: ["f32", "f16", "f16", "f32"],
        encode: half,
    },
    Shape {
        name: "m16n8k8",
        rows: 16,
        depth: 8,
        bits: 16,
        types: ["f32", "f16", "f16", "f32"],
        encode: half,
    },
    Shape {
        name: "m16n8k16",
        rows: 16,
        depth: 16,
        bits: 16,
        types: ["f32", "bf16", "bf16", "f32"],
        encode: bfloat,
    },
    Shape {
        name: "m16n8k8",
        rows: 16,
        depth: 8,
        bits: 16,
        types: ["f32", "bf16", "bf16", "f32"],
        encode: bfloat,
    },
    Shape {
        name: "m16n8k8",
        rows: 16,
        depth: 8,
        bits: 32,
        types: ["f32", "tf32", "tf32", "f32"],
        encode: single,
    },
    Shape {
        name: "m16n8k4",
        rows: 16,
        depth: 4,
        bits: 32,
        types: ["f32", "tf32", "tf32", "f32"],
        encode: single,
    },
    Shape { name: "m16n8k32", rows: 16, depth: 32, bits: 8, types: ["s32", "s8", "s8", "s32"], encode: byte },
    Shape { name: "m16n8k16", rows: 16, depth: 16, bits: 8, types: ["s32", "s8", "s8", "s32"], encode: byte },
];

fn a_value(row: usize, k: usize) -> i64 {
    ((row * 5 + k * 3) % 7) as i64 - 3
}

fn b_value(k: usize, column: usize) -> i64 {
    ((k * 2 + column * 3) % 5) as i64 - 2
}

fn product(depth: usize, row: usize, column: usize) -> i64 {
    (0..depth).map(|k| a_value(row, k) * b_value(k, column)).sum()
}

/// Registers of a lane: A by the formulas `row = groupID + 8 * (i / per register % 2)` and so on.
fn fragments(shape: &Shape, lane: usize) -> (Vec<u64>, Vec<u64>) {
    let (group, thread) = (lane / 4, lane % 4);
    let each = 32 / shape.bits;
    let pack = |value: &dyn Fn(usize) -> i64| {
        (0..each).fold(0, |word, place| word | (shape.encode)(value(place)) << (place * shape.bits))
    };
    let a_count = shape.rows * shape.depth / 32 / each;
    let a = (0..a_count).map(|register| {
        let row = group + 8 * (register % 2);
        pack(&|place| a_value(row, thread * each + place + register / 2 * 4 * each))
    });
    let b_count = 8 * shape.depth / 32 / each;
    let b = (0..b_count)
        .map(|register| pack(&|place| b_value(thread * each + place + register * 4 * each, group)));
    (a.collect(), b.collect())
}

fn list(name: &str, count: usize) -> String {
    let names: Vec<String> = (0..count).map(|number| format!("%{name}{number}")).collect();
    format!("{{{}}}", names.join(","))
}

#[test]
fn products_are_those_of_the_matrices_that_the_fragments_hold() {
    for shape in &SHAPES {
        let mut memory = Flat::new(64 * 32);
        let mut counts = (0, 0);
        for lane in 0..32 {
            let (a, b) = fragments(shape, lane);
            counts = (a.len(), b.len());
            for (place, word) in a.iter().chain(&b).enumerate() {
                let at = lane * 64 + 4 * place;
                memory.bytes[at..at + 4].copy_from_slice(&(*word as u32).to_le_bytes());
            }
        }
        let load = |name: &str, count: usize, from: usize| -> String {
            (0..count).map(|n| format!("ld.global.b32 %{name}{n}, [%rd1+{}];\n", 4 * (n + from))).collect()
        };
        let [d, a, b, c] = shape.types;
        let addend = if d == "s32" { 10 } else { 10f32.to_bits() };
        let set: String = (0..4).map(|n| format!("mov.b32 %c{n}, {addend};\n")).collect();
        let store: String =
            (0..4).map(|n| format!("st.global.b32 [%rd1+{}], %d{n};\n", 48 + 4 * n)).collect();
        let body = format!(
            ".reg .b32 %a<4>, %b<4>, %c<4>, %d<4>;\n{}{}{set}
             mma.sync.aligned.{}.row.col.{d}.{a}.{b}.{c} {}, {}, {}, {};\n{store}",
            load("a", counts.0, 0),
            load("b", counts.1, counts.0),
            shape.name,
            list("d", 4),
            list("a", counts.0),
            list("b", counts.1),
            list("c", 4),
        );
        run(&kernel(&body), 1, 32, &Parameters::default().pointer(0), &mut memory);
        for lane in 0..32 {
            for (number, word) in memory.u32s(lane * 64 + 48, 4).into_iter().enumerate() {
                let (row, column) = (lane / 4 + 8 * (number / 2), lane % 4 * 2 + number % 2);
                let expected = product(shape.depth, row, column) + 10;
                let found = if d == "s32" { word as i32 as f32 } else { f32::from_bits(word) };
                assert_eq!(found, expected as f32, "{} {a}: row {row}, column {column}", shape.name);
            }
        }
    }
}

/// `m8n8k4.f64` has one element in each register, and f16 sums stand two in a register.
#[test]
fn doubles_and_sums_of_halves_have_fragments_of_their_own() {
    let body = "cvt.rn.f64.u32 %fd1, %r0; mov.f64 %fd2, 0d3FF0000000000000; mov.f64 %fd3, 0d4000000000000000;
        mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd4,%fd5}, {%fd1}, {%fd2}, {%fd3,%fd3};
        cvt.rzi.u32.f64 %r1, %fd4; cvt.rzi.u32.f64 %r2, %fd5; st.global.v2.u32 [%rd1], {%r1, %r2};
        mov.b32 %r3, 0x3c003c00; mov.b32 %r4, 0;
        mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r5,%r6}, {%r3,%r4}, {%r3}, {%r3,%r3};
        st.global.v2.u32 [%rd1+8], {%r5, %r6};";
    let mut memory = Flat::new(64 * 32);
    run(&kernel(body), 1, 32, &Parameters::default().pointer(0), &mut memory);
    for lane in 0..32u32 {
        // Row g of A holds 4g, 4g+1, 4g+2, 4g+3, and B is all ones.
        let sum = 16 * (lane / 4) + 6 + 2;
        // Eight ones and one more: 9 is 0x4880; the lower rows of A are zero, so 1 stays.
        assert_eq!(memory.u32s(lane as usize * 64, 4), [sum, sum, 0x4880_4880, 0x3c00_3c00], "lane {lane}");
    }
}

#[test]
fn sums_of_bytes_wrap_or_stop_at_the_end() {
    let body = |saturate: &str| {
        format!(
            "mov.b32 %r1, 0x7f7f7f7f; mov.b32 %r2, 0x7fffffff;
             mma.sync.aligned.m16n8k16.row.col{saturate}.s32.s8.u8.s32
             {{%r4,%r5,%r6,%r7}}, {{%r1,%r1}}, {{%r1}}, {{%r2,%r2,%r2,%r2}}; st.global.u32 [%rd1], %r4;"
        )
    };
    for (saturate, expected) in
        [("", 0x7fff_ffffu32.wrapping_add(16 * 127 * 127)), (".satfinite", 0x7fff_ffff)]
    {
        let mut memory = Flat::new(64 * 32);
        run(&kernel(&body(saturate)), 1, 32, &Parameters::default().pointer(0), &mut memory);
        assert_eq!(memory.u32s(0, 1), [expected], "{saturate}");
    }
}

/// PTX ISA, "ldmatrix": lane 8m + r names row r of matrix m; lane l gets two neighbours of row l / 4.
#[test]
fn rows_in_shared_memory_become_fragments() {
    for (count, transposed) in [(1, false), (2, false), (4, false), (4, true), (1, true)] {
        let suffix = if transposed { ".trans" } else { "" };
        let targets: Vec<String> = (4..4 + count).map(|n| format!("%r{n}")).collect();
        let stores: String =
            (0..count).map(|n| format!("st.global.u32 [%rd1+{}], %r{};\n", 4 * n, n + 4)).collect();
        let body = format!(
            ".shared .align 16 .b8 rows[512]; mov.u32 %r1, rows; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2;
             shl.b32 %r2, %r0, 3; mov.u32 %r3, 0;
             FILL: cvt.u16.u32 %h1, %r2; mul.lo.u32 %r9, %r3, 2; add.u32 %r9, %r1, %r9;
             st.shared.b16 [%r9], %h1; add.u32 %r2, %r2, 1; add.u32 %r3, %r3, 1;
             setp.lt.u32 %p1, %r3, 8; @%p1 bra FILL; bar.sync 0;
             ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{}}}, [%r1];\n{stores}",
            targets.join(",")
        );
        let mut memory = Flat::new(64 * 32);
        run(&kernel(&body), 1, 32, &Parameters::default().pointer(0), &mut memory);
        for lane in 0..32 {
            for (matrix, word) in memory.u32s(lane * 64, count).into_iter().enumerate() {
                let element = |row: usize, column: usize| ((8 * matrix + row) * 8 + column) as u32;
                let (group, first) = (lane / 4, lane % 4 * 2);
                let expected = match transposed {
                    false => element(group, first) | element(group, first + 1) << 16,
                    true => element(first, group) | element(first + 1, group) << 16,
                };
                assert_eq!(word, expected, "x{count}{suffix}, lane {lane}, matrix {matrix}");
            }
        }
    }
}
