//! Initialisation, its end, and the texts of errors.

use std::ffi::{c_char, c_uint};

use super::entry;
use crate::code::{self, Error};
use crate::library;

/// `NVML_INIT_FLAG_NO_GPUS`, `_NO_ATTACH` and `_FORCE_INIT`: they change nothing here, where devices are always
/// found and nothing is attached.
const INIT_FLAGS: c_uint = 7;

entry! {
    fn nvmlInit() {
        library::initialise()
    }

    fn nvmlInit_v2() {
        library::initialise()
    }

    fn nvmlInitWithFlags(flags: c_uint) {
        if flags & !INIT_FLAGS != 0 {
            return Err(Error::INVALID_ARGUMENT);
        }
        library::initialise()
    }

    fn nvmlShutdown() {
        library::shut_down()
    }
}

// The only function that returns no code.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "name of NVML")]
extern "C" fn nvmlErrorString(result: c_uint) -> *const c_char {
    code::text(result).as_ptr()
}
