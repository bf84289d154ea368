//! What the tests of the built library share: finding it, a process and a machine of its own per test.
//!
//! Machines and processes are those of the driver's tests. Calls go through dlopen, as those of programs do; names with
//! `cu` go to the driver.

#![allow(dead_code, reason = "each test file uses a part")]

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

#[path = "../../../tests/common/machine.rs"]
mod machine;
pub use machine::*;

/// `nvmlDevice_t`, `nvmlEventSet_t`, contexts and other things that are only passed on.
pub type Handle = *mut c_void;

pub const SUCCESS: u32 = 0;
pub const UNINITIALIZED: u32 = 1;
pub const INVALID_ARGUMENT: u32 = 2;
pub const NOT_SUPPORTED: u32 = 3;
pub const NOT_FOUND: u32 = 6;
pub const INSUFFICIENT_SIZE: u32 = 7;
pub const TIMEOUT: u32 = 10;
pub const GPU_IS_LOST: u32 = 15;
pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;

/// Arguments of a C function that returns a status.
pub trait Arguments {
    fn call(self, address: *mut c_void) -> u32;
}

macro_rules! arguments {
    ($($name:ident),*) => {
        #[allow(non_snake_case, reason = "types as names of values")]
        impl<$($name),*> Arguments for ($($name,)*) {
            fn call(self, address: *mut c_void) -> u32 {
                let ($($name,)*) = self;
                // SAFETY: tests pass what the documentation of the function asks for.
                unsafe {
                    let function: unsafe extern "C" fn($($name),*) -> u32 = std::mem::transmute(address);
                    function($($name),*)
                }
            }
        }
    };
}

arguments!();
arguments!(A);
arguments!(A, B);
arguments!(A, B, C);
arguments!(A, B, C, D);
arguments!(A, B, C, D, E);
arguments!(A, B, C, D, E, F);
arguments!(A, B, C, D, E, F, G, H, I, J, K);

/// Calls a function by its name: `call!(nvmlInit_v2())`. Integers must have the width that C has.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::common::call(stringify!($name), ($($argument,)*))
    };
}

/// Expects success.
macro_rules! ok {
    ($name:ident($($argument:tt)*)) => {
        assert_eq!(call!($name($($argument)*)), 0, stringify!($name($($argument)*)))
    };
}

pub fn call(name: &str, arguments: impl Arguments) -> u32 {
    arguments.call(address(name).unwrap_or_else(|| panic!("{name} is not exported")))
}

/// Directory with both libraries, built from this workspace.
pub fn library_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        if let Some(given) = std::env::var_os(LIBRARIES) {
            return given.into();
        }
        let files = [("libcuda.so", "libcuda.so.1"), ("libnvidia_ml.so", "libnvidia-ml.so.1")];
        build(&["turnus-simulated-driver", "turnus-simulated-nvml"], &files, "simulated-nvml")
    })
}

/// dlsym in the library to which the name belongs.
pub fn address(name: &str) -> Option<*mut c_void> {
    static NVML: OnceLock<libloading::Library> = OnceLock::new();
    static CUDA: OnceLock<libloading::Library> = OnceLock::new();
    let (library, file) =
        if name.starts_with("cu") { (&CUDA, "libcuda.so.1") } else { (&NVML, "libnvidia-ml.so.1") };
    let library = library.get_or_init(|| {
        // SAFETY: the libraries' initialisers only set up Rust statics.
        unsafe { libloading::Library::new(library_directory().join(file)) }.expect("the library loads")
    });
    // SAFETY: only the address is taken.
    let found = unsafe { library.get::<*mut c_void>(name.as_bytes()) }.ok()?;
    // SAFETY: as above.
    unsafe { found.try_as_raw_ptr() }
}

/// Runs `body` in a fresh process on a machine with two devices. `name` is the test's own name.
pub fn isolated(name: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    on_machine_with(name, &two_devices(""), environment, body);
}

/// Runs `test` again in a process on the machine of this process, with its input and output on pipes.
pub fn second_process(test: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("SIMULATED_NVML_TEST_ROLE", "second");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the child runs")
}

/// True in what [`second_process`] started.
pub fn is_second() -> bool {
    std::env::var_os("SIMULATED_NVML_TEST_ROLE").is_some()
}

/// The directory of the machine of this process.
pub fn machine_directory() -> PathBuf {
    std::env::var_os("SIMULATED_CUDA_DIR").expect("set for the child").into()
}

/// The handle of a device.
pub fn device(index: u32) -> Handle {
    let mut handle: Handle = std::ptr::null_mut();
    ok!(nvmlDeviceGetHandleByIndex_v2(index, &raw mut handle));
    handle
}

/// What a function writes into a buffer of 96 bytes.
pub fn text(get: impl FnOnce(*mut u8, u32) -> u32) -> String {
    let mut buffer = [0xff_u8; 96];
    assert_eq!(get(buffer.as_mut_ptr(), 96), SUCCESS);
    let end = buffer.iter().position(|byte| *byte == 0).expect("a terminated text");
    String::from_utf8(buffer[..end].to_vec()).expect("UTF-8")
}

/// What a function of a device writes as one number.
pub fn number(name: &str, device: Handle) -> u32 {
    let mut value = u32::MAX;
    assert_eq!(call(name, (device, &raw mut value)), SUCCESS, "{name}");
    value
}
