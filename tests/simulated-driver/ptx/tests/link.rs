//! Linking of several texts: which names mean one thing, which stay apart, and what the linker says.
//!
//! Rules are those of PTX ISA, "Linking Directives"; messages those of the CUDA linker.

mod common;

use common::{BASE, Flat, Parameters};
use turnus_simulated_ptx::{Input, Launch, LinkError, Module, Progress};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn link(texts: &[&str]) -> Result<Module, LinkError> {
    let texts: Vec<(String, String)> = texts
        .iter()
        .enumerate()
        .map(|(place, text)| (format!("{place}.ptx"), format!("{HEAD}{text}")))
        .collect();
    let inputs: Vec<Input<'_>> = texts.iter().map(|(name, text)| Input { name, text }).collect();
    Module::link(&inputs)
}

/// Runs kernel `k`, which takes a pointer, on one thread; answers the first words of memory. Variables lie
/// behind them.
fn words(module: &Module, count: usize) -> Vec<u32> {
    let mut memory = Flat::new(4096);
    let mut places = Vec::new();
    for (place, variable) in module.globals().iter().enumerate() {
        let offset = 1024 + 256 * place;
        memory.bytes[offset..offset + variable.initial.len()].copy_from_slice(&variable.initial);
        places.push((variable.name.clone(), BASE + offset as u64));
    }
    let address_of = |name: &str| places.iter().find(|(known, _)| known == name).map(|(_, place)| *place);
    let entry = module.entry("k").expect("kernel");
    let parameters = Parameters::default().pointer(0);
    let mut started =
        Launch::new(entry, [1; 3], [1; 3], 0, &parameters.bytes, &address_of).expect("launches");
    assert_eq!(started.run(&mut memory, 100_000, &|| 0), Ok(Progress::Finished));
    memory.u32s(0, count)
}

const CALLER: &str = ".extern .func (.param .b32 r) other(.param .b32 a);
    .extern .global .align 4 .u32 shared_number;
    .visible .entry k(.param .u64 p) { .reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.u64 %rd1, [p];
    { .param .b32 param0; st.param.b32 [param0], 20; .param .b32 retval0;
      call.uni (retval0), other, (param0); ld.param.b32 %r1, [retval0]; }
    st.global.u32 [%rd1], %r1; ld.global.u32 %r2, [shared_number]; st.global.u32 [%rd1+4], %r2; ret; }";

const OTHER: &str = ".visible .global .align 4 .u32 shared_number = 77;
    .visible .func (.param .b32 r) other(.param .b32 a)
    { .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, 3; st.param.b32 [r], %x; ret; }";

#[test]
fn a_text_calls_and_reads_what_another_defines() {
    for texts in [[CALLER, OTHER], [OTHER, CALLER]] {
        let module = link(&texts).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(words(&module, 2), [23, 77]);
        assert!(module.globals().iter().all(|variable| !variable.is_extern));
    }
}

#[test]
fn names_that_are_not_visible_stay_apart() {
    let text = |kernel: &str, number: u32, add: u32| {
        format!(
            ".global .u32 number = {number};
             .func (.param .b32 r) step() {{ .reg .b32 %x; ld.global.u32 %x, [number]; add.u32 %x, %x, {add};
             st.param.b32 [r], %x; ret; }}
             .visible .func (.param .b32 r) {kernel}() {{ .reg .b32 %x; .param .b32 retval0;
             call.uni (retval0), step; ld.param.b32 %x, [retval0]; st.param.b32 [r], %x; ret; }}"
        )
    };
    let main = ".extern .func (.param .b32 r) one(); .extern .func (.param .b32 r) two();
        .visible .entry k(.param .u64 p) { .reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.u64 %rd1, [p];
        .param .b32 retval0; call.uni (retval0), one; ld.param.b32 %r1, [retval0];
        call.uni (retval0), two; ld.param.b32 %r2, [retval0]; st.global.v2.u32 [%rd1], {%r1, %r2}; ret; }";
    let module =
        link(&[&text("one", 10, 1), main, &text("two", 20, 2)]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(words(&module, 2), [11, 22]);
}

#[test]
fn a_weak_definition_gives_way_and_common_variables_are_one() {
    let weak = OTHER.replace(".visible", ".weak").replace("77", "1").replace("%x, 3", "%x, 9");
    for texts in [[CALLER, weak.as_str(), OTHER], [CALLER, OTHER, weak.as_str()]] {
        assert_eq!(words(&link(&texts).expect("links"), 2), [23, 77]);
    }
    assert_eq!(words(&link(&[CALLER, &weak]).expect("links"), 2), [29, 1], "alone it counts");
    let common = ".common .global .align 4 .u32 shared_number;";
    let large = ".common .global .align 4 .u32 shared_number[8];";
    let function = OTHER.lines().skip(1).collect::<Vec<_>>().join("\n");
    let module = link(&[CALLER, common, large, &function]).expect("links");
    assert_eq!(module.globals().iter().map(|variable| variable.size).collect::<Vec<_>>(), [32]);
}

#[test]
fn what_nobody_defines_is_named_with_who_wants_it() {
    let error = link(&[CALLER, ".visible .global .u32 unrelated;"]).expect_err("refused");
    let lines = "error   : Undefined reference to 'other' in '0.ptx'\n\
                 error   : Undefined reference to 'shared_number' in '0.ptx'";
    assert_eq!(error, LinkError::Undefined(lines.into()));
    // Declared and never used is no matter, and every device has vprintf.
    let unused =
        ".extern .func nowhere(); .extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
        .extern .shared .align 16 .b8 dynamic[];
        .visible .entry k(.param .u64 p) { .reg .b64 %rd<3>; ld.param.u64 %rd1, [p]; mov.u64 %rd2, dynamic;
        .param .b64 x; st.param.b64 [x], 0; .param .b32 r; call.uni (r), vprintf, (x, x); ret; }";
    assert!(link(&[unused, OTHER]).is_ok());
}

#[test]
fn two_definitions_of_one_name_are_named_with_both_places() {
    let error = link(&[OTHER, CALLER, OTHER]).expect_err("refused");
    let lines = "error   : Multiple definition of 'other' in '2.ptx', first defined in '0.ptx'\n\
                 error   : Multiple definition of 'shared_number' in '2.ptx', first defined in '0.ptx'";
    assert_eq!(error, LinkError::Conflict(lines.into()));
    let sizes = link(&[".visible .global .u32 a;", ".weak .global .u64 a;"]).expect_err("refused");
    assert_eq!(
        sizes,
        LinkError::Conflict(
            "error   : Size doesn't match for 'a' in '1.ptx', first specified in '0.ptx'".into()
        )
    );
    let spaces = link(&[".visible .global .u32 a;", ".weak .const .u32 a;"]).expect_err("refused");
    let line = "error   : Memory space doesn't match for 'a' in '1.ptx', first specified in '0.ptx'";
    assert_eq!(spaces, LinkError::Conflict(line.into()));
    let kernels = link(&[".entry k() { ret; }", ".entry k() { ret; }"]).expect_err("refused");
    assert!(matches!(kernels, LinkError::Conflict(_)), "{kernels}");
}

#[test]
fn a_text_that_cannot_be_compiled_is_named() {
    let error = link(&[OTHER, ".visible .entry k() { nonsense; ret; }"]).expect_err("refused");
    assert!(matches!(&error, LinkError::Input { .. }), "{error}");
    let error = link(&[OTHER, "garbage"]).expect_err("refused");
    assert!(matches!(&error, LinkError::Input { input, .. } if input == "1.ptx"), "{error}");
    assert!(Module::check_input(&format!("{HEAD}{CALLER}")).is_ok(), "alone, for a link");
    assert!(Module::parse(&format!("{HEAD}{CALLER}")).is_err(), "alone, to be run");
}

/// A function pointer may lead into another text.
#[test]
fn addresses_of_functions_of_other_texts_can_be_called() {
    let main = ".extern .func (.param .b32 r) other(.param .b32 a);
        .visible .entry k(.param .u64 p) { .reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.u64 %rd1, [p];
        mov.u64 %rd2, other;
        { .param .b32 param0; st.param.b32 [param0], 5; .param .b32 retval0;
          prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);
          call (retval0), %rd2, (param0), prototype_0; ld.param.b32 %r1, [retval0]; }
        st.global.u32 [%rd1], %r1; ret; }";
    assert_eq!(words(&link(&[main, OTHER]).expect("links"), 1), [8]);
}
