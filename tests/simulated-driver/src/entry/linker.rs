//! Linking: CUDA driver API, "Module Management", `cuLinkCreate` and its kin.
//!
//! The first versions differ from the second ones in their enumerations only.

use std::ffi::{CStr, c_char, c_uint, c_void};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::module::{name_of, read_file};
use super::{entry, needed, put, put_if_wanted};
use crate::context::current;
use crate::driver::driver;
use crate::module::jit;
use crate::module::link::{LINKS, Link, kind};
use crate::space::Result;

entry! {
    fn cuLinkCreate(
        num_options: c_uint,
        options: *mut CUjit_option,
        option_values: *mut *mut c_void,
        state_out: *mut CUlinkState,
    ) {
        create(num_options, options, option_values, state_out)
    }

    fn cuLinkCreate_v2(
        num_options: c_uint,
        options: *mut CUjit_option,
        option_values: *mut *mut c_void,
        state_out: *mut CUlinkState,
    ) {
        create(num_options, options, option_values, state_out)
    }

    fn cuLinkAddData(
        state: CUlinkState,
        type_: CUjitInputType,
        data: *mut c_void,
        size: usize,
        name: *const c_char,
        num_options: c_uint,
        options: *mut CUjit_option,
        option_values: *mut *mut c_void,
    ) {
        jit::check_input_options(num_options, options, option_values)?;
        add_data(state, type_, data, size, name)
    }

    fn cuLinkAddData_v2(
        state: CUlinkState,
        type_: CUjitInputType,
        data: *mut c_void,
        size: usize,
        name: *const c_char,
        num_options: c_uint,
        options: *mut CUjit_option,
        option_values: *mut *mut c_void,
    ) {
        jit::check_input_options(num_options, options, option_values)?;
        add_data(state, type_, data, size, name)
    }

    fn cuLinkAddFile(
        state: CUlinkState,
        type_: CUjitInputType,
        path: *const c_char,
        num_options: c_uint,
        options: *mut CUjit_option,
        option_values: *mut *mut c_void,
    ) {
        jit::check_input_options(num_options, options, option_values)?;
        add_file(state, type_, path)
    }

    fn cuLinkAddFile_v2(
        state: CUlinkState,
        type_: CUjitInputType,
        path: *const c_char,
        num_options: c_uint,
        options: *mut CUjit_option,
        option_values: *mut *mut c_void,
    ) {
        jit::check_input_options(num_options, options, option_values)?;
        add_file(state, type_, path)
    }

    fn cuLinkComplete(state: CUlinkState, cubin_out: *mut *mut c_void, size_out: *mut usize) {
        needed(cubin_out)?;
        let (image, bytes) = LINKS.get(state)?.complete()?;
        put_if_wanted(size_out, bytes);
        put(cubin_out, image.cast_mut().cast())
    }

    fn cuLinkDestroy(state: CUlinkState) {
        LINKS.remove(state).map(|_| ())
    }
}

/// # Safety
/// As `cuLinkCreate`.
unsafe fn create(
    option_count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    place: *mut CUlinkState,
) -> CUresult {
    needed(place)?;
    let context = current::get_sound()?;
    let config = &driver()?.arena.devices()[context.device].config;
    // SAFETY: the caller's promise; it also promises that output options stay valid as long as the link.
    unsafe {
        let log = jit::Log::from_options(option_count, options, values)?;
        log.finish();
        let target = jit::target(option_count, options, values);
        let capability = target.unwrap_or((config.compute_major, config.compute_minor));
        put(place, Link::begin(capability, log) as CUlinkState)
    }
}

/// # Safety
/// As `cuLinkAddData`.
unsafe fn add_data(
    state: CUlinkState,
    input: CUjitInputType,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
) -> CUresult {
    let link = LINKS.get(state)?;
    needed(data)?;
    if input.0 >= kind::END || size == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the caller's promise: `data` has `size` bytes, and the name is null or a C string.
    let (bytes, name) = unsafe {
        let name = if name.is_null() { "<unnamed>".into() } else { CStr::from_ptr(name).to_string_lossy() };
        (std::slice::from_raw_parts(data.cast::<u8>(), size), name)
    };
    link.add(input.0, bytes, &name)
}

/// # Safety
/// As `cuLinkAddFile`.
unsafe fn add_file(state: CUlinkState, input: CUjitInputType, path: *const c_char) -> Result<()> {
    let link = LINKS.get(state)?;
    if input.0 >= kind::END {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let (content, name) = unsafe { (read_file(path)?, name_of(path)?) };
    link.add(input.0, &content, &name)
}
