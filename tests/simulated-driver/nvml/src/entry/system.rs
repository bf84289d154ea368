//! Queries of the system: versions, processes, and equipment that the machine does not have.

use std::ffi::{c_char, c_int, c_uint, c_void};

use turnus_simulated_arena::driver_version;

use super::entry;
use crate::code::Error;
use crate::output::{needed, put, put_text};
use crate::process_name::process_name;
use crate::version;

entry! {
    fn nvmlSystemGetDriverVersion(text: *mut c_char, length: c_uint) {
        put_text(text, length, &version::driver())
    }

    fn nvmlSystemGetNVMLVersion(text: *mut c_char, length: c_uint) {
        put_text(text, length, &version::library())
    }

    fn nvmlSystemGetCudaDriverVersion(cuda_version: *mut c_int) {
        put(cuda_version, driver_version() as c_int)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(cuda_version: *mut c_int) {
        put(cuda_version, driver_version() as c_int)
    }

    // Cropped to the length, as documented, unlike all other texts.
    fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) {
        needed(name)?;
        if length == 0 {
            return Err(Error::INVALID_ARGUMENT);
        }
        let mut text = process_name(pid)?;
        let end = (0..=text.len().min(length as usize - 1)).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        put_text(name, length, &text)
    }

    // Units are the S-class systems of 2010.
    fn nvmlUnitGetCount(count: *mut c_uint) {
        put(count, 0)
    }

    fn nvmlUnitGetHandleByIndex(_index: c_uint, _unit: *mut *mut c_void) {
        Err(Error::INVALID_ARGUMENT)
    }

    fn nvmlGetExcludedDeviceCount(count: *mut c_uint) {
        put(count, 0)
    }

    fn nvmlGetBlacklistDeviceCount(count: *mut c_uint) {
        put(count, 0)
    }
}
