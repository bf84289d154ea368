//! What kernels can call on every device: printf, malloc and free, assert; and the stack that their calls take.
//!
//! CUDA C++ Programming Guide, "Formatted Output", "Dynamic Global Memory Allocation and Operations", "Assertion";
//! CUDA driver API, `cuCtxSetLimit`. The texts printed are in the executor's crate.

use std::ffi::{CString, c_int};
use std::io::Read as _;
use std::os::fd::FromRawFd as _;

use crate::common::{allocate, context, function, isolated, launch};
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

const STACK: u32 = 0;
const PRINT: u32 = 1;
const HEAP: u32 = 2;

/// A module with the functions that the compiler declares, some texts, and a kernel `k` that takes one pointer.
fn module(body: &str) -> CString {
    let text = |name: &str, text: &str| {
        let bytes: Vec<String> = text.bytes().chain([0]).map(|byte| byte.to_string()).collect();
        format!(".global .align 1 .b8 {name}[{}] = {{{}}};\n", bytes.len(), bytes.join(","))
    };
    let texts = text("format", "thread %d\n") + &text("message", "false") + &text("file", "a.cu");
    let source = format!(
        ".version 7.0\n.target sm_60\n.address_size 64
.extern .func (.param .b32 func_retval0) vprintf(.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
.extern .func (.param .b64 func_retval0) malloc(.param .b64 malloc_param_0);
.extern .func free(.param .b64 free_param_0);
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
{texts}
.func down(.param .b32 down_param_0)
{{
    .reg .pred %p<2>; .reg .b32 %r<3>;
    ld.param.u32 %r1, [down_param_0];
    setp.eq.s32 %p1, %r1, 0;
    @%p1 bra OUT;
    add.s32 %r2, %r1, -1;
    {{ .param .b32 param0; st.param.b32 [param0], %r2; call.uni down, (param0); }}
OUT:
    ret;
}}
.visible .entry k(.param .u64 p)
{{
    .local .align 8 .b8 depot[16]; .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 8; add.s64 %rd2, %rd1, %rd2;
    {body}
    ret;
}}"
    );
    CString::new(source).expect("text")
}

const PRINT_THREAD: &str = "mov.u64 %rd3, depot; cvta.local.u64 %rd4, %rd3; st.local.u32 [%rd3], %r1;
    mov.u64 %rd5, format; cvta.global.u64 %rd6, %rd5;
    { .param .b64 param0; st.param.b64 [param0], %rd6; .param .b64 param1; st.param.b64 [param1], %rd4;
      .param .b32 retval0; call.uni (retval0), vprintf, (param0, param1); ld.param.b32 %r2, [retval0]; }";

const ALLOCATE: &str = "{ .param .b64 param0; st.param.b64 [param0], %rd7; .param .b64 retval0;
      call.uni (retval0), malloc, (param0); ld.param.b64 %rd8, [retval0]; }";

const FAIL: &str = "mov.u64 %rd5, message; cvta.global.u64 %rd6, %rd5; mov.u64 %rd7, file;
    cvta.global.u64 %rd8, %rd7;
    { .param .b64 param0; st.param.b64 [param0], %rd6; .param .b64 param1; st.param.b64 [param1], %rd8;
      .param .b32 param2; st.param.b32 [param2], 7; .param .b64 param3; st.param.b64 [param3], %rd8;
      .param .b64 param4; st.param.b64 [param4], 1;
      call.uni __assertfail, (param0, param1, param2, param3, param4); }";

/// What arrives at a file descriptor of this process while `act` runs.
fn captured(descriptor: c_int, act: impl FnOnce()) -> String {
    // SAFETY: plain system calls on descriptors of this process; the C library writes out what it holds before
    // and after.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        let kept = libc::dup(descriptor);
        let file = libc::memfd_create(c"captured".as_ptr(), 0);
        libc::dup2(file, descriptor);
        act();
        libc::fflush(std::ptr::null_mut());
        libc::dup2(kept, descriptor);
        libc::close(kept);
        libc::lseek(file, 0, libc::SEEK_SET);
        let mut text = String::new();
        std::fs::File::from_raw_fd(file).read_to_string(&mut text).expect("text");
        text
    }
}

fn set_limit(limit: u32, value: usize) -> CUresult {
    call!(cuCtxSetLimit(CUlimit_enum(limit), value))
}

#[test]
fn printed_text_comes_with_the_next_synchronisation() {
    isolated("printed_text_comes_with_the_next_synchronisation", &[], || {
        context();
        let kernel = function(&module(PRINT_THREAD), c"k");
        let expected: String = (0..3).map(|thread| format!("thread {thread}\n")).collect();
        type Synchronise = (&'static str, fn());
        let ways: [Synchronise; 4] = [
            ("context", || ok!(cuCtxSynchronize())),
            ("stream", || ok!(cuStreamSynchronize(std::ptr::null_mut()))),
            ("copy", || {
                let mut value = 0_u64;
                let place = allocate(8);
                ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), place, 8));
            }),
            ("event", || {
                let mut event = std::ptr::null_mut();
                ok!(cuEventCreate(&mut event, 0));
                ok!(cuEventRecord(event, std::ptr::null_mut()));
                ok!(cuEventSynchronize(event));
            }),
        ];
        for (name, synchronise) in ways {
            let text = captured(1, || {
                assert_eq!(launch(kernel, 1, 3, std::ptr::null_mut(), &[&0]), Ok(()));
                synchronise();
            });
            assert_eq!(text, expected, "{name}");
        }
    });
}

#[test]
fn the_buffer_of_printed_text_is_a_ring() {
    isolated("the_buffer_of_printed_text_is_a_ring", &[], || {
        context();
        let mut bytes = 0;
        ok!(cuCtxGetLimit(&mut bytes, CUlimit_enum(PRINT)));
        assert_eq!(bytes, 1 << 20, "the documented default");
        // 200,000 lines of 10 bytes and more are more than fit into 1 MiB; the last ones stay.
        let kernel = function(&module(&format!("mov.u32 %r1, %ctaid.x; {PRINT_THREAD}")), c"k");
        let text = captured(1, || {
            assert_eq!(launch(kernel, 200_000, 1, std::ptr::null_mut(), &[&0]), Ok(()));
            ok!(cuCtxSynchronize());
        });
        assert!(text.ends_with("thread 199999\n") && !text.contains("thread 0\n"), "{} bytes", text.len());
    });
}

#[test]
fn kernels_allocate_and_free_memory_that_later_kernels_see() {
    isolated("kernels_allocate_and_free_memory_that_later_kernels_see", &[], || {
        context();
        ok!(cuCtxSetLimit(CUlimit_enum(HEAP), 1 << 20));
        let taking = format!(
            "mov.u64 %rd7, 1000; {ALLOCATE} st.global.u64 [%rd2], %rd8;
             setp.eq.s64 %p1, %rd8, 0; @%p1 bra DONE; st.u32 [%rd8+996], %r1; DONE:"
        );
        let take = function(&module(&taking), c"k");
        let giving = "ld.global.u64 %rd3, [%rd2]; ld.u32 %r2, [%rd3+996]; cvt.u64.u32 %rd4, %r2;
            st.global.u64 [%rd2], %rd4;
            { .param .b64 param0; st.param.b64 [param0], %rd3; call.uni free, (param0); }";
        let give = function(&module(giving), c"k");
        let place = allocate(8 * 64);
        for _ in 0..20 {
            // 20 times 64,000 bytes are more than the heap has, so memory must have come back.
            assert_eq!(launch(take, 1, 64, std::ptr::null_mut(), &[&place]), Ok(()));
            assert_eq!(launch(give, 1, 64, std::ptr::null_mut(), &[&place]), Ok(()));
            let mut values = [0_u64; 64];
            ok!(cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), place, 8 * 64));
            assert_eq!(values.to_vec(), (0..64).collect::<Vec<u64>>());
        }
        fails!(INVALID_VALUE, cuCtxSetLimit(CUlimit_enum(HEAP), 1 << 21));
        // More than there is: null, and nothing else.
        let huge = function(
            &module(&format!("mov.u64 %rd7, 2097152; {ALLOCATE} st.global.u64 [%rd2], %rd8;")),
            c"k",
        );
        assert_eq!(launch(huge, 1, 1, std::ptr::null_mut(), &[&place]), Ok(()));
        let mut value = 1_u64;
        ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), place, 8));
        assert_eq!(value, 0);
    });
}

#[test]
fn a_heap_needs_memory_of_the_device() {
    isolated("a_heap_needs_memory_of_the_device", &[], || {
        context();
        let (mut free, mut total) = (0, 0);
        ok!(cuMemGetInfo_v2(&mut free, &mut total));
        assert_eq!(set_limit(HEAP, total), Ok(()));
        let text = module(&format!("mov.u64 %rd7, 8; {ALLOCATE}"));
        let mut loaded = std::ptr::null_mut();
        fails!(SHARED_OBJECT_INIT_FAILED, cuModuleLoadData(&mut loaded, text.as_ptr().cast()));
        assert_eq!(set_limit(HEAP, free / 2), Ok(()));
        ok!(cuModuleLoadData(&mut loaded, text.as_ptr().cast()));
        let mut left = 0;
        ok!(cuMemGetInfo_v2(&mut left, &mut total));
        assert!(left <= free - free / 2, "{left} of {free} bytes left");
    });
}

#[test]
fn a_failed_assertion_ends_the_context() {
    isolated("a_failed_assertion_ends_the_context", &[], || {
        context();
        let kernel = function(&module(FAIL), c"k");
        let text = captured(2, || {
            assert_eq!(launch(kernel, 1, 1, std::ptr::null_mut(), &[&0]), Ok(()));
            fails!(ASSERT, cuCtxSynchronize());
        });
        let line = "a.cu:7: a.cu: block: [0,0,0], thread: [0,0,0] Assertion `false` failed.";
        assert!(text.contains(line), "{text}");
        let mut place = 0;
        fails!(ASSERT, cuMemAlloc_v2(&mut place, 8));
    });
}

#[test]
fn calls_beyond_the_stack_end_the_context() {
    isolated("calls_beyond_the_stack_end_the_context", &[], || {
        context();
        let go = |depth: u32| {
            module(&format!(
                "{{ .param .b32 param0; st.param.b32 [param0], {depth}; call.uni down, (param0); }}"
            ))
        };
        let deep = function(&go(20_000), c"k");
        let mut bytes = 0;
        ok!(cuCtxGetLimit(&mut bytes, CUlimit_enum(STACK)));
        assert_eq!(launch(function(&go(5), c"k"), 1, 32, std::ptr::null_mut(), &[&0]), Ok(()));
        ok!(cuCtxSynchronize());
        assert_eq!(launch(deep, 1, 32, std::ptr::null_mut(), &[&0]), Ok(()));
        let outcome = call!(cuCtxSynchronize());
        let known = [CUerror::HARDWARE_STACK_ERROR, CUerror::ILLEGAL_ADDRESS];
        assert!(
            outcome.is_err_and(|error| known.contains(&error)),
            "{outcome:?} with {bytes} bytes of stack"
        );
    });
}

#[test]
fn a_larger_stack_takes_deeper_calls() {
    isolated("a_larger_stack_takes_deeper_calls", &[], || {
        context();
        assert_eq!(set_limit(STACK, 64 << 10), Ok(()));
        let text = module("{ .param .b32 param0; st.param.b32 [param0], 500; call.uni down, (param0); }");
        assert_eq!(launch(function(&text, c"k"), 1, 32, std::ptr::null_mut(), &[&0]), Ok(()));
        ok!(cuCtxSynchronize());
    });
}

/// The grid of cooperative groups: environment registers 1 and 2 hold the address of a size and a barrier, as
/// NVIDIA's header `cooperative_groups/details/driver_abi.h` reads them.
#[test]
fn a_cooperative_launch_has_a_place_where_its_grid_meets() {
    isolated("a_cooperative_launch_has_a_place_where_its_grid_meets", &[], || {
        context();
        let body = "mov.u32 %r2, %envreg2; mov.u32 %r3, %envreg1; mov.b64 %rd3, {%r2, %r3};
            mov.u32 %r4, %ctaid.x; mul.wide.u32 %rd4, %r4, 8; add.s64 %rd4, %rd1, %rd4;
            setp.eq.s64 %p1, %rd3, 0; mov.u64 %rd5, 0; @%p1 bra DONE;
            atom.add.u32 %r5, [%rd3+4], 1;
            AGAIN: ld.volatile.u32 %r6, [%rd3+4]; setp.lt.u32 %p2, %r6, 4; @%p2 bra AGAIN;
            mov.u64 %rd5, 1; DONE: st.global.u64 [%rd4], %rd5;";
        let kernel = function(&module(body), c"k");
        let place = allocate(32);
        let mut pointers = [std::ptr::from_ref(&place).cast_mut().cast::<std::ffi::c_void>()];
        ok!(cuLaunchCooperativeKernel(
            kernel,
            4,
            1,
            1,
            1,
            1,
            1,
            0,
            std::ptr::null_mut(),
            pointers.as_mut_ptr()
        ));
        let mut met = [0_u64; 4];
        ok!(cuMemcpyDtoH_v2(met.as_mut_ptr().cast(), place, 32));
        assert_eq!(met, [1; 4]);
    });
}
