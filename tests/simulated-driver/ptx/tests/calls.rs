//! Calls that are made instead of inlined: recursion, function pointers, and the stack they need.
//!
//! The texts are those of NVRTC in form. Read next: `system.rs`.

mod common;

use common::{BASE, Flat, Parameters, finish, launch, run};
use turnus_simulated_ptx::{Launch, Module, Progress, Trap};

/// A module with functions and a kernel `k` that takes one pointer; `%rd0` is the pointer and `%r0` the thread.
fn module(functions: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{functions}\n\
         .visible .entry k(.param .u64 p)\n{{\n.reg .pred %p<16>;\n.reg .b32 %r<32>;\n.reg .b64 %rd<32>;\n\
         ld.param.u64 %rd0, [p];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd1, %rd0, %rd1;\n\
         {body}\nret;\n}}\n"
    )
}

fn words(source: &str, lanes: u32) -> Vec<u32> {
    let mut memory = Flat::new(4 * lanes as usize);
    run(source, 1, lanes, &Parameters::default().pointer(0), &mut memory);
    memory.u32s(0, lanes as usize)
}

const FIBONACCI: &str = ".visible .func (.param .b32 func_retval0) fib(.param .b32 fib_param_0)
{
    .reg .pred %p<2>; .reg .b32 %r<9>;
    ld.param.b32 %r1, [fib_param_0];
    setp.lt.s32 %p1, %r1, 2;
    @%p1 bra L2;
    add.s32 %r2, %r1, -1;
    { .param .b32 param0; st.param.b32 [param0], %r2; .param .b32 retval0;
      call.uni (retval0), fib, (param0); ld.param.b32 %r3, [retval0]; }
    add.s32 %r4, %r1, -2;
    { .param .b32 param0; st.param.b32 [param0], %r4; .param .b32 retval0;
      call.uni (retval0), fib, (param0); ld.param.b32 %r5, [retval0]; }
    add.s32 %r1, %r3, %r5;
L2: st.param.b32 [func_retval0], %r1;
    ret;
}";

#[test]
fn a_function_that_calls_itself_keeps_the_registers_of_every_activation() {
    let body = "{ .param .b32 param0; st.param.b32 [param0], %r0; .param .b32 retval0;
        call.uni (retval0), fib, (param0); ld.param.b32 %r1, [retval0]; }
        activemask.b32 %r2; setp.ne.u32 %p1, %r2, 0xffff; @%p1 trap;
        st.global.u32 [%rd1], %r1;";
    let found = words(&module(FIBONACCI, body), 16);
    // All lanes come back together, though each went another way.
    assert_eq!(found, [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610]);
}

#[test]
fn functions_that_call_each_other_and_pass_registers_answer_in_registers() {
    let functions = ".func (.reg .b32 %even) is_odd(.reg .b32 %n);
        .func (.reg .b32 %even) is_even(.reg .b32 %n)
        { .reg .pred %p; .reg .b32 %m; setp.eq.u32 %p, %n, 0; mov.b32 %even, 1; @%p ret;
          sub.u32 %m, %n, 1; call (%even), is_odd, (%m); ret; }
        .func (.reg .b32 %odd) is_odd(.reg .b32 %n)
        { .reg .pred %p; .reg .b32 %m; setp.eq.u32 %p, %n, 0; mov.b32 %odd, 0; @%p ret;
          sub.u32 %m, %n, 1; call (%odd), is_even, (%m); ret; }";
    let found = words(&module(functions, "call (%r1), is_even, (%r0); st.global.u32 [%rd1], %r1;"), 32);
    assert_eq!(found, (0..32).map(|n| u32::from(n % 2 == 0)).collect::<Vec<_>>());
}

const TWO: &str = ".func (.param .b32 r) plus(.param .b32 a)
    { .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, 100; st.param.b32 [r], %x; ret; }
    .func (.param .b32 r) times(.param .b32 a)
    { .reg .b32 %x; ld.param.b32 %x, [a]; mul.lo.u32 %x, %x, 7; st.param.b32 [r], %x; ret; }
    .global .align 8 .u64 table[3] = {plus, 0, generic(times)};";

const CALL_BY_POINTER: &str = "{ .param .b32 param0; st.param.b32 [param0], %r0; .param .b32 retval0;
    prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);
    call (retval0), %rd3, (param0), prototype_0; ld.param.b32 %r1, [retval0]; }
    st.global.u32 [%rd1], %r1;";

#[test]
fn a_pointer_leads_each_lane_to_its_own_function() {
    let choose = "mov.u64 %rd3, plus; mov.u64 %rd4, times; and.b32 %r2, %r0, 1; setp.eq.u32 %p1, %r2, 1;
        selp.b64 %rd3, %rd4, %rd3, %p1;";
    let found = words(&module(TWO, &format!("{choose}{CALL_BY_POINTER}")), 32);
    assert_eq!(found, (0..32).map(|n| if n % 2 == 1 { 7 * n } else { n + 100 }).collect::<Vec<_>>());
}

#[test]
fn a_table_in_memory_holds_addresses_that_can_be_called() {
    let source =
        module(TWO, &format!("mov.u64 %rd2, table; ld.global.u64 %rd3, [%rd2+16]; {CALL_BY_POINTER}"));
    let module = Module::parse(&source).expect("loads");
    let table = &module.globals()[0];
    assert_eq!((table.initial.len(), table.relocations.len()), (24, 0), "functions have known addresses");
    let mut memory = Flat::new(256);
    memory.bytes[128..152].copy_from_slice(&table.initial);
    let parameters = Parameters::default().pointer(0);
    let address_of = |name: &str| (name == "table").then_some(BASE + 128);
    let entry = module.entry("k").expect("kernel");
    let mut started =
        Launch::new(entry, [1; 3], [32, 1, 1], 0, &parameters.bytes, &address_of).expect("launches");
    assert_eq!(started.run(&mut memory, 100_000, &|| 0), Ok(Progress::Finished));
    assert_eq!(memory.u32s(0, 32), (0..32).map(|n| 7 * n).collect::<Vec<_>>());
}

#[test]
fn a_call_of_what_is_no_function_ends_the_kernel() {
    for address in ["0", "12345"] {
        let source = module(TWO, &format!("mov.u64 %rd4, plus; mov.u64 %rd3, {address}; {CALL_BY_POINTER}"));
        let module = Module::parse(&source).expect("loads");
        let mut started = launch(&module, [1; 3], [1; 3], 0, &Parameters::default().pointer(0));
        let trap = finish(&mut started, &mut Flat::new(4), 1000).expect_err("fails");
        assert!(matches!(trap, Trap::InvalidCall { ref entry, .. } if entry == "k"), "{trap}");
    }
}

/// Variables of each activation are its own, and addresses of them stay good in calls further in.
#[test]
fn variables_of_activations_lie_in_the_stack() {
    let functions = ".func (.param .b32 r) sum(.param .b64 outer, .param .b32 n)
    {
        .local .align 8 .b8 depot[8]; .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %rd<9>;
        ld.param.b64 %rd1, [outer]; ld.param.b32 %r1, [n];
        mov.b64 %rd2, depot; cvta.local.u64 %rd3, %rd2;
        ld.b32 %r2, [%rd1]; add.u32 %r2, %r2, %r1; st.local.b32 [depot+4], %r2; st.local.b32 [depot], %r2;
        setp.eq.u32 %p, %r1, 0; @%p bra END;
        sub.u32 %r3, %r1, 1;
        { .param .b64 param0; st.param.b64 [param0], %rd3; .param .b32 param1; st.param.b32 [param1], %r3;
          .param .b32 retval0; call.uni (retval0), sum, (param0, param1); ld.param.b32 %r2, [retval0]; }
        ld.local.b32 %r4, [%rd2+4]; shl.b32 %r4, %r4, 16; add.u32 %r2, %r2, %r4;
    END: st.param.b32 [r], %r2; ret;
    }";
    let body = ".local .align 4 .b8 zero[4]; mov.u32 %r1, 0; st.local.u32 [zero], %r1;
        mov.u64 %rd3, zero; cvta.local.u64 %rd3, %rd3;
        { .param .b64 param0; st.param.b64 [param0], %rd3; .param .b32 param1; st.param.b32 [param1], %r0;
          .param .b32 retval0; call.uni (retval0), sum, (param0, param1); ld.param.b32 %r2, [retval0]; }
        st.global.u32 [%rd1], %r2;";
    let found = words(&module(functions, body), 8);
    for (n, found) in found.into_iter().enumerate() {
        // Going in: n, n + (n-1), ...; each activation with one further in adds its own sum, shifted.
        let sums: Vec<u32> = (0..=n as u32)
            .rev()
            .scan(0, |sum, k| {
                *sum += k;
                Some(*sum)
            })
            .collect();
        let (last, outer) = sums.split_last().expect("one at least");
        assert_eq!(found, outer.iter().fold(*last, |all, sum| all + (sum << 16)), "n = {n}");
    }
}

#[test]
fn a_stack_has_an_end_and_the_limit_moves_it() {
    let endless = ".func deeper(.param .b32 n) { .reg .b32 %r<3>; .reg .pred %p; ld.param.b32 %r1, [n];
        setp.eq.u32 %p, %r1, 0; @%p ret; sub.u32 %r1, %r1, 1;
        { .param .b32 param0; st.param.b32 [param0], %r1; call.uni deeper, (param0); } ret; }";
    let body = "{ .param .b32 param0; st.param.b32 [param0], 500; call.uni deeper, (param0); }";
    let parsed = Module::parse(&module(endless, body)).expect("loads");
    let run_with = |bytes: Option<u64>| {
        let mut started = launch(&parsed, [1; 3], [32, 1, 1], 0, &Parameters::default().pointer(0));
        if let Some(bytes) = bytes {
            started.set_stack_bytes(bytes);
        }
        finish(&mut started, &mut Flat::new(0), 100_000)
    };
    assert!(matches!(run_with(None), Err(Trap::StackOverflow { .. })), "500 activations in 1024 bytes");
    assert_eq!(run_with(Some(32 * 501)), Ok(()));
    assert!(run_with(Some(32 * 499)).is_err(), "one activation short");
}

#[test]
fn calls_under_a_guard_are_made_by_the_lanes_of_the_guard() {
    let body = "mov.u32 %r1, 77; setp.lt.u32 %p1, %r0, 5; .param .b32 param0; .param .b32 retval0;
        st.param.b32 [param0], %r0; st.param.b32 [retval0], 50;
        @%p1 call (retval0), fib, (param0); ld.param.b32 %r1, [retval0]; st.global.u32 [%rd1], %r1;";
    let found = words(&module(FIBONACCI, body), 8);
    assert_eq!(found, [0, 1, 1, 2, 3, 50, 50, 50]);
}

/// PTX ISA, "alloca", "stacksave", "stackrestore".
#[test]
fn a_thread_takes_and_gives_back_memory_of_its_stack() {
    let body = "stacksave.u64 %rd2; mov.u64 %rd5, 24; alloca.u64 %rd3, %rd5, 16; alloca.u64 %rd4, 8;
        and.b64 %rd6, %rd3, 15; setp.ne.u64 %p1, %rd6, 0; @%p1 trap;
        st.local.u32 [%rd3+20], %r0; st.local.u32 [%rd4], 9; ld.local.u32 %r1, [%rd3+20];
        stackrestore.u64 %rd2; alloca.u64 %rd7, 24, 16; setp.ne.u64 %p1, %rd7, %rd3; @%p1 trap;
        st.global.u32 [%rd1], %r1;";
    assert_eq!(words(&module("", body), 4), [0, 1, 2, 3]);
    let parsed = Module::parse(&module("", "alloca.u64 %rd3, 4096; alloca.u64 %rd3, 4096;")).expect("loads");
    let mut started = launch(&parsed, [1; 3], [1; 3], 0, &Parameters::default().pointer(0));
    let trap = finish(&mut started, &mut Flat::new(4), 1000).expect_err("fails");
    assert!(matches!(trap, Trap::StackOverflow { .. }), "{trap}");
}
