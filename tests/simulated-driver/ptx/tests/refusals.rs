//! What must be refused: instructions outside the subset, by name and line; text that is no PTX; impossible
//! launches. And nothing may panic.
//!
//! The properties at the end change the kernels of `tests/data/ptx` at random and run what still loads.

mod common;

use common::{BODY_LINE, Flat, Parameters, kernel, text};
use proptest::prelude::*;
use turnus_simulated_ptx::{Error, Launch, LaunchError, Module};

const FILES: [&str; 9] =
    ["expf", "fill", "hash_i64", "matmul", "reduce_shared", "reduce_warp", "saxpy", "spin", "vadd"];

fn error(source: &str) -> Error {
    Module::parse(source).expect_err("refused")
}

#[test]
fn an_instruction_outside_the_subset_is_named_with_its_line() {
    let instructions = [
        "add.rz.f16 %h1, %h2, %h3",
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1,%r2}, {%r3}, {%r4}, {%r1,%r2}",
        "cp.async.bulk.commit_group",
        "ld.shared::cluster.u32 %r1, [%r2]",
        "atom.global.add.f16 %h1, [%rd1], %h2",
        "add.rn.relu.f32 %f1, %f2, %f3",
        "cvt.s32.f32 %r1, %f1",
        "setp.lt.b32 %p1, %r1, %r2",
        "shl.b32 %r1, %r2",
        "mul.s32 %r1, %r2, %r3",
        "fma.f32 %f1, %f2, %f3, %f4",
        "sin.f32 %f1, %f2",
        "bar.sync",
        "tex.level.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}], %f3",
    ];
    for instruction in instructions {
        let refused = error(&kernel(&format!("mov.u32 %r1, 1;\n@%p1 {instruction};")));
        match refused {
            // Not every operand of foreign instructions can be read; the line must be right all the same.
            Error::Syntax { line, .. } => assert_eq!(line, BODY_LINE + 1, "{instruction}"),
            Error::Unsupported { instruction: named, line } => {
                assert_eq!(line, BODY_LINE + 1, "{instruction}");
                assert_eq!(named, format!("@%p1 {instruction}"));
            }
            other => panic!("{instruction}: {other}"),
        }
    }
    let spread = error(&kernel("mma.sync\n  .aligned\t{%r1}"));
    assert!(matches!(spread, Error::Syntax { .. }), "no semicolon before the end: {spread}");
}

#[test]
fn calls_of_what_is_nowhere_are_refused() {
    let nowhere = ".version 8.0\n.extern .func f();\n.entry k() { call f; ret; }";
    assert!(matches!(error(nowhere), Error::Undefined { name, line: 3 } if name == "f"));
    let other = ".version 8.0\n.func f(.param .b32 a) { ret; }\n.entry k() { call f; ret; }";
    assert!(matches!(error(other), Error::Syntax { line: 3, .. }), "too few parameters");
    let printf = ".version 8.0\n.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
        .entry k() { { .param .b64 x; .param .b32 z;\ncall.uni (z), vprintf, (x); } ret; }";
    assert!(matches!(error(printf), Error::Syntax { line: 4, .. }));
}

#[test]
fn functions_that_would_take_too_much_room_inlined_are_called() {
    let mut bomb = String::from(".version 8.0\n.func f0() { ret; }\n");
    for level in 1..30 {
        bomb += &format!(".func f{level}() {{ call f{0}; call f{0}; ret; }}\n", level - 1);
    }
    bomb += ".entry k() { call f29; ret; }";
    assert!(Module::parse(&bomb).is_ok(), "two to the power of 29 calls");
}

#[test]
fn rules_of_ptx_are_checked_where_results_depend_on_them() {
    let refused = |body: &str| error(&kernel(body));
    assert!(
        matches!(refused("mov.u64 %r1, 5;"), Error::Syntax { line: BODY_LINE, .. }),
        "narrow destination"
    );
    assert!(matches!(refused("mov.u32 %r99, 5;"), Error::Undefined { name, .. } if name == "%r99"));
    assert!(matches!(refused("bra NOWHERE;"), Error::Undefined { name, .. } if name == "NOWHERE"));
    assert!(
        matches!(refused("L: mov.u32 %r1, 1;\nL: ret;"), Error::Syntax { line, .. } if line == BODY_LINE + 1),
        "label twice"
    );
    assert!(matches!(refused("add.u32 %p1, %r1, %r2;"), Error::Syntax { .. }), "predicate as a value");
    assert!(matches!(refused("@%r1 bra X; X:"), Error::Syntax { .. }), "value as a predicate");
    assert!(matches!(refused("st.param.u32 [p], 1;"), Error::Syntax { .. }), "parameters are read-only");
    assert!(matches!(refused("ld.param.u32 %r1, [p+6];"), Error::Syntax { .. }), "beyond the parameters");
    assert!(matches!(refused(".shared .b8 huge[999999];"), Error::TooLarge { .. }));
    assert!(matches!(refused(".local .b8 huge[99999999999999999999];"), Error::Syntax { .. }));
    assert!(matches!(error(".target sm_80"), Error::Syntax { .. }), "no version");
    assert!(matches!(error(".version 8.0\n.address_size 32"), Error::Syntax { line: 2, .. }));
    assert!(matches!(
        error(&format!(".version 8.0 .entry k() {{ {} ", "{".repeat(100_000))),
        Error::Syntax { .. }
    ));
}

#[test]
fn debug_information_is_skipped() {
    let body = ".loc 1 5 3\nmov.u32 %r1, 1;\n.loc 1 6 3, function_name $L__info_string0, inlined_at 1 7 3
        .pragma \"nounroll\";\nst.global.u32 [%rd1], %r1;";
    let source = kernel(body) + ".file 1 \"/tmp/a.cu\"\n.section .debug_str\n{\n.b8 1,2,3\n}\n";
    let mut memory = Flat::new(64);
    common::run(&source, 1, 1, &Parameters::default().pointer(0), &mut memory);
    assert_eq!(memory.u32s(0, 1), [1]);
}

#[test]
fn impossible_launches_are_refused() {
    let source = kernel("").replace("p)\n{", "p)\n.maxntid 64, 2\n{");
    let module = Module::parse(&source).expect("loads");
    let entry = module.entry("k").expect("k");
    assert_eq!(entry.most_threads, Some([64, 2, 1]));
    let attempt = |grid, block, shared, bytes: &[u8]| {
        Launch::new(entry, grid, block, shared, bytes, &|_| None).map(|_| ()).expect_err("refused")
    };
    assert!(matches!(attempt([0, 1, 1], [1; 3], 0, &[0; 8]), LaunchError::EmptyShape { .. }));
    assert!(matches!(
        attempt([1; 3], [129, 1, 1], 0, &[0; 8]),
        LaunchError::BlockShape { rule: ".maxntid", .. }
    ));
    assert!(matches!(attempt([1; 3], [u32::MAX; 3], 0, &[0; 8]), LaunchError::BlockShape { .. }));
    assert!(matches!(attempt([1; 3], [1; 3], 1 << 40, &[0; 8]), LaunchError::SharedTooLarge { .. }));
    let short = attempt([1; 3], [1; 3], 0, &[0; 7]);
    assert_eq!(short, LaunchError::ParametersTooShort { given: 7, needed: 8 });
    assert!(
        Launch::new(entry, [u32::MAX; 3], [128, 1, 1], 0, &[0; 8], &|_| None).is_ok(),
        "a huge grid is lazy"
    );
}

/// Loads what can be loaded and runs it a little; only a panic fails.
fn exercise(source: &str) {
    let Ok(module) = Module::parse(source) else { return };
    for name in module.entries() {
        let Some(entry) = module.entry(name) else { continue };
        let parameters: Vec<u8> = (0..=255).cycle().take(entry.parameter_bytes() as usize).collect();
        let shape = entry.required_threads.unwrap_or([40, 1, 1]);
        if let Ok(mut launch) = Launch::new(entry, [2, 1, 1], shape, 64, &parameters, &|_| Some(common::BASE))
        {
            let mut memory = Flat::new(4096);
            for _ in 0..20 {
                if launch.run(&mut memory, 100, &|| 1).is_err() {
                    break;
                }
            }
        }
    }
}

/// One change of a text: at a place, some bytes go and others come.
fn mutate(source: &str, changes: &[(usize, usize, String)]) -> String {
    let mut bytes = source.as_bytes().to_vec();
    for (place, length, insert) in changes {
        let start = place % (bytes.len() + 1);
        let end = (start + length).min(bytes.len());
        bytes.splice(start..end, insert.bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Pieces that PTX is made of, and pieces that it is not.
fn piece() -> impl Strategy<Value = String> {
    let pieces = [
        "",
        ";",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ",",
        "|",
        "!",
        "@",
        ":",
        "+",
        "-",
        "<",
        ">",
        "=",
        ".",
        "%r1",
        "%p1",
        "%rd1",
        "%tid.x",
        ".b64",
        ".u8",
        ".s16",
        ".f64",
        ".f16",
        ".v2",
        ".v4",
        ".global",
        ".shared",
        ".local",
        ".param",
        ".const",
        "bra",
        "ret",
        "shfl.sync.idx.b32",
        "bar.sync",
        "atom",
        "mov",
        "cvt",
        "0",
        "1",
        "-1",
        "99999999999",
        "18446744073709551615",
        "0x",
        "0f3F80000",
        "1e999",
        "_",
        "/*",
        "//",
        "\"",
        "\0",
        "é",
        "$L__BB0_2",
        ".reg",
        ".entry",
        ".func",
        "call",
        ".align 4096",
        "generic(",
        "k_param_0",
        "WARP_SZ",
    ];
    prop_oneof![prop::sample::select(pieces.to_vec()).prop_map(str::to_owned), "[ -~]{0,4}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_kernels_never_panic(
        file in 0usize..9,
        changes in prop::collection::vec((any::<usize>(), 0usize..12, piece()), 1..5),
    ) {
        exercise(&mutate(&text(FILES[file]), &changes));
    }

    #[test]
    fn swapped_words_never_panic(file in 0usize..9, swaps in prop::collection::vec((any::<usize>(), any::<usize>()), 1..8)) {
        let source = text(FILES[file]);
        let (head, tail) = source.split_at(source.find(".visible").expect("an entry"));
        let mut words: Vec<&str> = tail.split_inclusive([' ', ',', '\t', '.', '\n']).collect();
        for (a, b) in swaps {
            let count = words.len();
            words.swap(a % count, b % count);
        }
        exercise(&format!("{head}{}", words.concat()));
    }

    #[test]
    fn garbage_never_panics(source in "\\PC{0,200}") {
        exercise(&source);
        exercise(&format!(".version 8.0\n.visible .entry k() {{ {source}; ret; }}"));
    }
}
