//! Modules: CUDA driver API, "Module Management".
//!
//! Linking is in `linker.rs`.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put, put_if_wanted};
use crate::context::current;
use crate::driver::driver;
use crate::execution::check_unsafe_call;
use crate::module::{FUNCTIONS, MODULES, Module, image, jit, loading};
use crate::space::Result;

entry! {
    fn cuModuleLoad(module: *mut CUmodule, fname: *const c_char) {
        needed(module)?;
        current::get_sound()?;
        let content = read_file(fname)?;
        load(module, content.as_ptr().cast(), 0, std::ptr::null_mut(), std::ptr::null_mut())
    }

    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) {
        load(module, image, 0, std::ptr::null_mut(), std::ptr::null_mut())
    }

    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        num_options: c_uint,
        options: *mut CUjit_option,
        option_values: *mut *mut c_void,
    ) {
        load(module, image, num_options, options, option_values)
    }

    fn cuModuleLoadFatBinary(module: *mut CUmodule, fat_cubin: *const c_void) {
        load(module, fat_cubin, 0, std::ptr::null_mut(), std::ptr::null_mut())
    }

    fn cuModuleUnload(hmod: CUmodule) {
        current::get_sound()?;
        check_unsafe_call()?;
        let module = MODULES.get(hmod)?;
        module.context.queue.wait_all();
        MODULES.remove(hmod)?.unload(driver()?);
        Ok(())
    }

    fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) {
        put(mode, CUmoduleLoadingMode_enum(loading::mode()))
    }

    fn cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char) {
        needed(hfunc)?;
        current::get()?;
        let module = MODULES.get(hmod)?;
        let function = module.function(&name_of(name)?)?;
        function.load()?;
        put(hfunc, function.handle as CUfunction)
    }

    fn cuModuleGetFunctionCount(count: *mut c_uint, mod_: CUmodule) {
        put(count, MODULES.get(mod_)?.code.entries().count() as c_uint)
    }

    fn cuModuleEnumerateFunctions(functions: *mut CUfunction, num_functions: c_uint, mod_: CUmodule) {
        needed(functions)?;
        let module = MODULES.get(mod_)?;
        for (index, name) in module.code.entries().take(num_functions as usize).enumerate() {
            functions.add(index).write(module.function(name)?.handle as CUfunction);
        }
        Ok(())
    }

    fn cuModuleGetGlobal_v2(dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char) {
        current::get()?;
        let module = MODULES.get(hmod)?;
        let (address, size) = *module.variables.get(name_of(name)?.as_ref()).ok_or(CUerror::NOT_FOUND)?;
        if dptr.is_null() && bytes.is_null() {
            return Err(CUerror::INVALID_VALUE);
        }
        put_if_wanted(dptr, address);
        put_if_wanted(bytes, size as usize);
        Ok(())
    }

    fn cuFuncGetModule(hmod: *mut CUmodule, hfunc: CUfunction) {
        put(hmod, FUNCTIONS.get(hfunc)?.module as CUmodule)
    }
}

/// # Safety
/// As `cuModuleLoadDataEx`.
unsafe fn load(
    place: *mut CUmodule,
    image: *const c_void,
    option_count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    needed(place)?;
    let context = current::get_sound()?;
    check_unsafe_call()?;
    let driver = driver()?;
    // SAFETY: the caller's promise.
    unsafe {
        let log = jit::Log::from_options(option_count, options, values)?;
        let config = &driver.arena.devices()[context.device].config;
        let code = image::module_of(image, (config.compute_major, config.compute_minor), &log)?;
        let module = Module::load(driver, &context, Arc::new(code))?;
        put(place, module.handle as CUmodule)
    }
}

/// The file and a terminator, so that it can be read as a text.
///
/// # Safety
/// `path` is null or a C string.
pub(super) unsafe fn read_file(path: *const c_char) -> Result<Vec<u8>> {
    needed(path)?;
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_str().map_err(|_| CUerror::FILE_NOT_FOUND)?;
    let mut content = std::fs::read(path).map_err(|_| CUerror::FILE_NOT_FOUND)?;
    content.extend([0; 64]);
    Ok(content)
}

/// # Safety
/// `name` is null or a C string that lives as long as the call.
pub(super) unsafe fn name_of<'a>(name: *const c_char) -> Result<Cow<'a, str>> {
    needed(name)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy())
}
