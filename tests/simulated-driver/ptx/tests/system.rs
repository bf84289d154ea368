//! Functions that every device has: printing, the heap, failed assertions.
//!
//! What `printf` prints is what the C standard says of these formats. Read next: `calls.rs`.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::{Flat, Parameters, finish, launch};
use turnus_simulated_ptx::{Module, System, Trap};

/// What kernels did to it.
#[derive(Debug, Default)]
struct Recorder {
    printed: Mutex<Vec<u8>>,
    failed: Mutex<Vec<u8>>,
    heap: Mutex<BTreeMap<u64, u64>>,
}

impl System for Recorder {
    fn print(&self, text: &[u8]) {
        self.printed.lock().expect("lock").extend_from_slice(text);
    }

    fn assertion_failed(&self, text: &[u8]) {
        self.failed.lock().expect("lock").extend_from_slice(text);
    }

    fn allocate(&self, bytes: u64) -> u64 {
        let mut heap = self.heap.lock().expect("lock");
        let address = 0x1000 + 0x100 * heap.len() as u64;
        if bytes > 0x100 { 0 } else { heap.insert(address, bytes).map_or(address, |_| 0) }
    }

    fn free(&self, address: u64) -> bool {
        self.heap.lock().expect("lock").remove(&address).is_some()
    }
}

const DECLARATIONS: &str = ".version 8.0\n.target sm_80\n.address_size 64\n
.extern .func (.param .b32 func_retval0) vprintf(.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
.extern .func (.param .b64 func_retval0) malloc(.param .b64 malloc_param_0);
.extern .func free(.param .b64 free_param_0);
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n";

/// Runs a kernel body on `lanes` threads; texts lie in shared memory, where the body puts them from `p`.
fn run(body: &str, data: &[u8], lanes: u32) -> (Arc<Recorder>, Result<(), Trap>, Flat) {
    let source = format!(
        "{DECLARATIONS}.visible .entry k(.param .u64 p)\n{{\n.reg .pred %p<8>;\n.reg .b32 %r<16>;\n\
         .reg .b64 %rd<16>;\n.local .align 8 .b8 depot[256];\nld.param.u64 %rd0, [p];\nmov.u32 %r0, %tid.x;\n\
         mov.u64 %rd1, depot;\ncvta.local.u64 %rd2, %rd1;\n{body}\nret;\n}}\n"
    );
    let module = Module::parse(&source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let mut memory = Flat::new(8192);
    memory.bytes[..data.len()].copy_from_slice(data);
    let recorder = Arc::new(Recorder::default());
    let mut started = launch(&module, [1; 3], [lanes, 1, 1], 0, &Parameters::default().pointer(0));
    started.set_system(Arc::clone(&recorder) as Arc<dyn System>);
    let outcome = finish(&mut started, &mut memory, 1_000_000);
    (recorder, outcome, memory)
}

/// One argument of `printf`.
#[derive(Clone, Copy)]
enum Argument {
    Word(u32),
    Long(u64),
    Float(f64),
    Text(&'static str),
}
use Argument::{Float, Long, Text, Word};

/// Prints once; answers the text and what `vprintf` returned.
fn printed(format: &str, arguments: &[Argument]) -> (String, i32) {
    let mut data = format.as_bytes().to_vec();
    data.push(0);
    let mut stores = String::new();
    let mut at = 0usize;
    for argument in arguments {
        let bytes = if matches!(argument, Word(_)) { 4 } else { 8 };
        at = at.next_multiple_of(bytes);
        stores += &match argument {
            Word(value) => format!("st.local.u32 [depot+{at}], {value};\n"),
            Long(value) => format!("mov.u64 %rd5, {value}; st.local.u64 [depot+{at}], %rd5;\n"),
            Float(value) => {
                format!("mov.u64 %rd5, {}; st.local.u64 [depot+{at}], %rd5;\n", value.to_bits())
            }
            Text(text) => {
                let place = data.len();
                data.extend_from_slice(text.as_bytes());
                data.push(0);
                format!("add.u64 %rd5, %rd0, {place}; st.local.u64 [depot+{at}], %rd5;\n")
            }
        };
        at += bytes;
    }
    let body = format!(
        "{stores} {{ .param .b64 param0; st.param.b64 [param0], %rd0; .param .b64 param1;
         st.param.b64 [param1], %rd2; .param .b32 retval0;
         call.uni (retval0), vprintf, (param0, param1); ld.param.b32 %r1, [retval0]; }}
         st.global.u32 [%rd0+8188], %r1;"
    );
    let (recorder, outcome, memory) = run(&body, &data, 1);
    assert_eq!(outcome, Ok(()), "{format}");
    let text = String::from_utf8(recorder.printed.lock().expect("lock").clone()).expect("text");
    (text, memory.u32s(8188, 1)[0] as i32)
}

#[test]
fn printf_formats_as_c_does() {
    let cases: &[(&str, &[Argument], &str)] = &[
        ("hello\n", &[], "hello\n"),
        (
            "%d %i|%5d|%-5d|%05d|%+d|% d",
            &[Word(7), Word(-7i32 as u32), Word(42), Word(42), Word(42), Word(1), Word(1)],
            "7 -7|   42|42   |00042|+1| 1",
        ),
        (
            "%u %x %X %o %#x %#o",
            &[Word(u32::MAX), Word(255), Word(255), Word(8), Word(255), Word(8)],
            "4294967295 ff FF 10 0xff 010",
        ),
        ("%d %lld %d", &[Word(1), Long(-5_000_000_000i64 as u64), Word(2)], "1 -5000000000 2"),
        ("%lu %llx %zz", &[Long(1 << 40), Long(1 << 40)], "1099511627776 10000000000 %zz"),
        ("%hd %hhd %hu", &[Word(0x1_ffff), Word(0x1ff), Word(0x1_0005)], "-1 -1 5"),
        (
            "%f %.2f %8.3f %-8.1f| %e %.3E",
            &[Float(1.5), Float(2.345), Float(-3.25), Float(9.96), Float(12345.678), Float(0.00012)],
            "1.500000 2.35 ",
        ),
        (
            "%g %g %g %g %G %#g",
            &[Float(100000.0), Float(1e6), Float(0.0001), Float(0.00001234), Float(1e-10), Float(1.0)],
            "100000 1e+06 0.0001 1.234e-05 1E-10 1.00000",
        ),
        (
            "%f %F %e",
            &[Float(f64::INFINITY), Float(f64::NAN.copysign(1.0)), Float(f64::NEG_INFINITY)],
            "inf NAN -inf",
        ),
        ("%a %a %.1a", &[Float(1.0), Float(0.1), Float(1.96875)], "0x1p+0 0x1.999999999999ap-4 0x2.0p+0"),
        (
            "%s|%6s|%-6s|%.2s|%s",
            &[Text("one"), Text("two"), Text("six"), Text("seven"), Long(0)],
            "one|   two|six   |se|(null)",
        ),
        ("%c%c%3c%%", &[Word(65), Word(66), Word(67)], "AB  C%"),
        ("%p %p", &[Long(0x7f00), Long(0)], "0x7f00 (nil)"),
        ("%*d|%-*d|%.*f", &[Word(4), Word(1), Word(3), Word(2), Word(1), Float(0.25)], "   1|2  |0.2"),
        ("%08.3f|%+.1e|%x", &[Float(-1.5), Float(0.0), Word(0)], "-001.500|+0.0e+00|0"),
    ];
    for (format, arguments, expected) in cases {
        let (text, _) = printed(format, arguments);
        if expected.ends_with("2.35 ") {
            assert_eq!(text, "1.500000 2.35   -3.250 10.0    | 1.234568e+04 1.200E-04");
            continue;
        }
        assert_eq!(text, *expected, "{format}");
    }
}

/// CUDA C++ Programming Guide, "Formatted Output": number of arguments, 0 without any, -1 without a format.
#[test]
fn printf_answers_the_number_of_its_arguments() {
    assert_eq!(printed("plain", &[]).1, 0);
    assert_eq!(printed("%d %s %f", &[Word(1), Text("x"), Float(1.0)]).1, 3);
    assert_eq!(printed("%%", &[]).1, 0);
    let body =
        "{ .param .b64 param0; st.param.b64 [param0], 0; .param .b64 param1; st.param.b64 [param1], %rd2;
        .param .b32 retval0; call.uni (retval0), vprintf, (param0, param1); ld.param.b32 %r1, [retval0]; }
        st.global.u32 [%rd0], %r1;";
    assert_eq!(run(body, &[], 1).2.u32s(0, 1), [u32::MAX]);
}

/// "printf() can accept at most 32 arguments in addition to the format string. Additional arguments beyond this
/// will be ignored, and the format specifier output as-is."
#[test]
fn printf_takes_thirty_two_arguments() {
    let arguments: Vec<Argument> = (0..34).map(Word).collect();
    let (text, count) = printed(&"%d,".repeat(34), &arguments);
    let numbers: String = (0..32).map(|n| format!("{n},")).collect();
    assert_eq!((text, count), (numbers + "%d,%d,", 32));
}

#[test]
fn lanes_print_one_after_another() {
    let body = "st.local.u32 [depot], %r0;
        { .param .b64 param0; st.param.b64 [param0], %rd0; .param .b64 param1; st.param.b64 [param1], %rd2;
          .param .b32 retval0; call.uni (retval0), vprintf, (param0, param1); }";
    let (recorder, ..) = run(body, b"%d;\0", 40);
    let text = String::from_utf8(recorder.printed.lock().expect("lock").clone()).expect("text");
    assert_eq!(text, (0..40).map(|n| format!("{n};")).collect::<String>());
}

#[test]
fn memory_of_the_heap_comes_and_goes() {
    let call = "{ .param .b64 param0; st.param.b64 [param0], %rd3; .param .b64 retval0;
        call.uni (retval0), malloc, (param0); ld.param.b64 %rd4, [retval0]; }";
    let free = "{ .param .b64 param0; st.param.b64 [param0], %rd4; call.uni free, (param0); }";
    let (recorder, outcome, memory) = run(
        &format!(
            "mov.u64 %rd3, 64; {call} st.global.u64 [%rd0], %rd4; mov.u64 %rd3, 4096; {call}
            st.global.u64 [%rd0+8], %rd4; {free}"
        ),
        &[],
        1,
    );
    assert_eq!(outcome, Ok(()), "freeing null is nothing");
    assert_eq!(memory.u64s(0, 2), [0x1000, 0], "the second is more than there is");
    assert_eq!(recorder.heap.lock().expect("lock").len(), 1);
    let twice = format!("mov.u64 %rd3, 64; {call} {free} {free}");
    let (recorder, outcome, _) = run(&twice, &[], 1);
    assert!(matches!(outcome, Err(Trap::Trapped { .. })), "{outcome:?}");
    assert!(recorder.heap.lock().expect("lock").is_empty());
}

/// The line is that of the CUDA C++ Programming Guide, "Assertion".
#[test]
fn a_failed_assertion_says_where_and_ends_the_kernel() {
    let body = "setp.lt.u32 %p1, %r0, 2; @!%p1 bra DONE; add.u64 %rd3, %rd0, 14; add.u64 %rd4, %rd0, 22;
        { .param .b64 param0; st.param.b64 [param0], %rd0; .param .b64 param1; st.param.b64 [param1], %rd3;
          .param .b32 param2; st.param.b32 [param2], 19; .param .b64 param3; st.param.b64 [param3], %rd4;
          .param .b64 param4; st.param.b64 [param4], 1;
          call.uni __assertfail, (param0, param1, param2, param3, param4); }
        DONE: ";
    let (recorder, outcome, _) = run(body, b"should_be_one\0test.cu\0void testAssert()\0", 32);
    assert!(matches!(outcome, Err(Trap::AssertionFailed { .. })), "{outcome:?}");
    let line = |thread| {
        format!(
            "test.cu:19: void testAssert(): block: [0,0,0], thread: [{thread},0,0] Assertion `should_be_one` failed.\n"
        )
    };
    let text = String::from_utf8(recorder.failed.lock().expect("lock").clone()).expect("text");
    assert_eq!(text, line(0) + &line(1));
}

#[test]
fn without_a_device_behind_it_such_a_call_fails() {
    let source = format!(
        "{DECLARATIONS}.visible .entry k(.param .u64 p) {{ .param .b64 param0; st.param.b64 [param0], 8;
         .param .b64 retval0; call.uni (retval0), malloc, (param0); ret; }}"
    );
    let module = Module::parse(&source).expect("loads");
    assert!(module.uses_heap());
    let mut started = launch(&module, [1; 3], [1; 3], 0, &Parameters::default().pointer(0));
    assert!(finish(&mut started, &mut Flat::new(8), 100).is_err());
}
