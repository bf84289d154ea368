//! What the tests of the built library share: finding it, a process and a machine of its own per test.
//!
//! Machines and processes are in `machine.rs`, which the tests of NVML use too. Calls go through dlopen, as those of
//! programs do.

#![allow(dead_code, reason = "each test file uses a part")]

use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use turnus_bindings::types::*;

mod machine;
pub use machine::*;
pub mod talk;

/// Folder of a real `libcuda.so.1`, which the tests of `conformance/` then run on.
const CARD: &str = "CONFORMANCE_LIBRARY";

/// Calls a driver function by its name: `call!(cuInit(0))`. The result is a `CUresult`.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let function: turnus_bindings::fns::$name = $crate::common::symbol(stringify!($name));
        #[allow(unused_unsafe, reason = "the caller may be in an unsafe block")]
        // SAFETY: the type is that of the header, and tests pass what it asks for.
        unsafe { function($($argument),*) }
    }};
}

/// Expects success.
macro_rules! ok {
    ($name:ident($($argument:tt)*)) => {
        assert_eq!(call!($name($($argument)*)), Ok(()), stringify!($name))
    };
}

/// Expects an error: `fails!(INVALID_VALUE, cuInit(1))`.
macro_rules! fails {
    ($code:ident, $name:ident($($argument:tt)*)) => {
        assert_eq!(
            call!($name($($argument)*)),
            Err(turnus_bindings::CUerror::$code),
            stringify!($name($($argument)*))
        )
    };
}

pub mod code;

/// Directory with `libcuda.so.1` and `libcuda.so`, built from this crate.
pub fn library_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        for variable in [CARD, LIBRARIES] {
            if let Some(given) = std::env::var_os(variable) {
                return given.into();
            }
        }
        let directory = build(&["turnus-simulated-driver"], &[("libcuda.so", "libcuda.so.1")], "simulated");
        let _ = std::os::unix::fs::symlink("libcuda.so.1", directory.join("libcuda.so"));
        directory
    })
}

/// The address of a symbol of the library, as a function of type `T`.
pub fn symbol<T: Copy>(name: &str) -> T {
    let address = address(name).unwrap_or_else(|| panic!("{name} is not exported"));
    assert_eq!(size_of::<T>(), size_of::<*mut c_void>());
    // SAFETY: T is a function pointer by the size check and by the callers' types.
    unsafe { std::mem::transmute_copy(&address) }
}

/// dlsym in the library.
pub fn address(name: &str) -> Option<*mut c_void> {
    static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // SAFETY: the library's initialisers only set up Rust statics.
        unsafe { libloading::Library::new(library_directory().join("libcuda.so.1")) }
            .expect("the library loads")
    });
    // SAFETY: only the address is taken.
    let found = unsafe { library.get::<*mut c_void>(name.as_bytes()) }.ok()?;
    // SAFETY: as above.
    unsafe { found.try_as_raw_ptr() }
}

/// Runs `body` in a fresh process on a fast machine. `name` is the test's own name.
pub fn isolated(name: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    on_machine_with(name, FAST, environment, body);
}

/// Runs `body` in a fresh process on a machine that is made from this text of `devices.toml`.
pub fn on_machine(name: &str, devices: &str, body: impl FnOnce()) {
    on_machine_with(name, devices, &[], body);
}

/// Runs `body` in a fresh process on two fast devices; on a card only if there are two.
pub fn on_two_devices(name: &str, body: impl FnOnce()) {
    on_machine(name, &two_devices(""), || {
        ok!(cuInit(0));
        let mut count = 0;
        ok!(cuDeviceGetCount(&mut count));
        if count < 2 {
            return println!("NOT RUN: needs two devices");
        }
        body();
    });
}

/// cuInit and a context on device 0, current.
pub fn context() -> CUcontext {
    ok!(cuInit(0));
    let mut context = std::ptr::null_mut();
    ok!(cuCtxCreate_v2(&mut context, 0, 0));
    context
}

/// A context on each device; the second one is current.
pub fn contexts() -> [CUcontext; 2] {
    ok!(cuInit(0));
    [0, 1].map(|ordinal| {
        let mut context = std::ptr::null_mut();
        ok!(cuCtxCreate_v2(&mut context, 0, ordinal));
        context
    })
}

/// Allocates in a context that need not be the current one.
pub fn allocate_in(context: CUcontext, bytes: usize) -> CUdeviceptr {
    ok!(cuCtxPushCurrent_v2(context));
    let address = allocate(bytes);
    ok!(cuCtxPopCurrent_v2(&mut std::ptr::null_mut()));
    address
}

/// The 32 bits at an address of the device.
pub fn word_at(address: CUdeviceptr) -> u32 {
    let mut value = 0_u32;
    ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), address, 4));
    value
}

/// Loads a PTX text and finds a function in it.
pub fn function(ptx: &CStr, name: &CStr) -> CUfunction {
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, ptx.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    function
}

/// Bytes of the current context's device that are free.
pub fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    assert!(free <= total);
    free
}

/// The device's granularity: 32 KiB on the fast machine, 2 MiB on a card.
pub fn unit() -> usize {
    static UNIT: OnceLock<usize> = OnceLock::new();
    *UNIT.get_or_init(|| {
        let mut granularity = 0;
        ok!(cuInit(0));
        let kind = CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        ok!(cuMemGetAllocationGranularity(&mut granularity, &properties(0), kind));
        granularity
    })
}

/// More bytes than device 0 has, in whole units.
pub fn more_than_there_is() -> usize {
    let mut total = 0;
    ok!(cuDeviceTotalMem_v2(&mut total, 0));
    (total + unit()).next_multiple_of(unit())
}

/// Allocates device memory.
pub fn allocate(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, bytes));
    address
}

/// Launches a one-dimensional grid on a stream.
pub fn launch(
    function: CUfunction,
    blocks: u32,
    threads: u32,
    stream: CUstream,
    arguments: &[&u64],
) -> CUresult {
    let mut pointers: Vec<*mut c_void> =
        arguments.iter().map(|argument| std::ptr::from_ref(*argument).cast_mut().cast()).collect();
    call!(cuLaunchKernel(
        function,
        blocks,
        1,
        1,
        threads,
        1,
        1,
        0,
        stream,
        pointers.as_mut_ptr(),
        std::ptr::null_mut()
    ))
}

/// Physical memory of device 0, with the handle types given.
pub fn properties(handle_types: u32) -> CUmemAllocationProp {
    // SAFETY: all-zero is a valid value.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CUmemAllocationHandleType_enum(handle_types);
    properties.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
    properties
}

/// Access to device 0.
pub fn access(flags: u32) -> CUmemAccessDesc {
    // SAFETY: all-zero is a valid value.
    let mut description: CUmemAccessDesc = unsafe { std::mem::zeroed() };
    description.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
    description.flags = CUmemAccess_flags_enum(flags);
    description
}

/// A device as a place of memory.
pub fn location(ordinal: i32) -> CUmemLocation {
    let mut location = access(0).location;
    location.anonymous_1.id = ordinal;
    location
}

/// Access to a device.
pub fn access_of(ordinal: i32, flags: u32) -> CUmemAccessDesc {
    CUmemAccessDesc { location: location(ordinal), ..access(flags) }
}

/// A name as the driver returns it.
pub fn text(pointer: *const c_char) -> String {
    // SAFETY: the driver returns C strings.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// c[i] = a[i] + b[i] for i < n; n is 64 bits wide.
pub const VECTOR_ADD: &CStr = c".version 7.0
.target sm_60
.address_size 64
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 n)
{
    .reg .pred %p<2>; .reg .f32 %f<4>; .reg .b32 %r<5>; .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [n];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %rd5, %r4;
    setp.ge.u64 %p1, %rd5, %rd4;
    @%p1 bra DONE;
    shl.b64 %rd6, %rd5, 2;
    add.s64 %rd7, %rd1, %rd6; add.s64 %rd8, %rd2, %rd6; add.s64 %rd9, %rd3, %rd6;
    ld.global.f32 %f1, [%rd7]; ld.global.f32 %f2, [%rd8];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%rd9], %f3;
DONE:
    ret;
}
";

/// Waits until the number at `flag` is not 0.
pub const WAIT_FOR_FLAG: &CStr = c".version 7.0
.target sm_60
.address_size 64
.visible .entry wait_for_flag(.param .u64 flag)
{
    .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [flag];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}
";

/// Stores 1 at an address.
pub const STORE_ONE: &CStr = c".version 7.0
.target sm_60
.address_size 64
.visible .entry store_one(.param .u64 place)
{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [place];
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
";
