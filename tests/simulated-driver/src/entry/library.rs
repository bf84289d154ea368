//! Libraries and kernels: CUDA driver API, "Library Management".
//!
//! A library is compiled when it is loaded and placed on a device when a context first uses it, or at once and in all
//! contexts where loading is eager; see `module/library.rs`. Options of libraries are hints and have no effect.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::module::{name_of, read_file};
use super::{entry, needed, put, put_if_wanted};
use crate::context::{current, primary};
use crate::driver::driver;
use crate::execution::check_unsafe_call;
use crate::module::library::{KERNELS, LIBRARIES, Library};
use crate::module::{Function, image, jit};
use crate::space::Result;

entry! {
    fn cuLibraryLoadData(
        library: *mut CUlibrary,
        code: *const c_void,
        jit_options: *mut CUjit_option,
        jit_options_values: *mut *mut c_void,
        num_jit_options: c_uint,
        library_options: *mut CUlibraryOption,
        library_option_values: *mut *mut c_void,
        num_library_options: c_uint,
    ) {
        let _ = (library_options, library_option_values, num_library_options);
        load(library, code, num_jit_options, jit_options, jit_options_values)
    }

    fn cuLibraryLoadFromFile(
        library: *mut CUlibrary,
        file_name: *const c_char,
        jit_options: *mut CUjit_option,
        jit_options_values: *mut *mut c_void,
        num_jit_options: c_uint,
        library_options: *mut CUlibraryOption,
        library_option_values: *mut *mut c_void,
        num_library_options: c_uint,
    ) {
        let _ = (library_options, library_option_values, num_library_options);
        let content = read_file(file_name)?;
        load(library, content.as_ptr().cast(), num_jit_options, jit_options, jit_options_values)
    }

    fn cuLibraryUnload(library: CUlibrary) {
        LIBRARIES.remove(library)?.unload()
    }

    fn cuLibraryGetKernel(p_kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) {
        needed(p_kernel)?;
        put(p_kernel, LIBRARIES.get(library)?.kernel(&name_of(name)?)?.handle as CUkernel)
    }

    fn cuLibraryGetKernelCount(count: *mut c_uint, lib: CUlibrary) {
        put(count, LIBRARIES.get(lib)?.code.entries().count() as c_uint)
    }

    fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, num_kernels: c_uint, lib: CUlibrary) {
        needed(kernels)?;
        let library = LIBRARIES.get(lib)?;
        for (index, name) in library.code.entries().take(num_kernels as usize).enumerate() {
            kernels.add(index).write(library.kernel(name)?.handle as CUkernel);
        }
        Ok(())
    }

    fn cuLibraryGetModule(p_mod: *mut CUmodule, library: CUlibrary) {
        needed(p_mod)?;
        let context = current::get_sound()?;
        put(p_mod, LIBRARIES.get(library)?.module(&context)?.handle as CUmodule)
    }

    fn cuLibraryGetGlobal(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) {
        let context = current::get_sound()?;
        let module = LIBRARIES.get(library)?.module(&context)?;
        let (address, size) = *module.variables.get(name_of(name)?.as_ref()).ok_or(CUerror::NOT_FOUND)?;
        put_if_wanted(dptr, address);
        put_if_wanted(bytes, size as usize);
        Ok(())
    }

    fn cuLibraryGetManaged(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) {
        let _ = (dptr, bytes, name);
        LIBRARIES.get(library)?;
        // No managed variable can be loaded.
        Err(CUerror::NOT_FOUND)
    }

    fn cuKernelGetFunction(p_func: *mut CUfunction, kernel: CUkernel) {
        needed(p_func)?;
        let context = current::get_sound()?;
        let function = KERNELS.get(kernel)?.function(&context)?;
        function.load()?;
        put(p_func, function.handle as CUfunction)
    }

    fn cuKernelGetLibrary(p_lib: *mut CUlibrary, kernel: CUkernel) {
        put(p_lib, KERNELS.get(kernel)?.library.handle as CUlibrary)
    }

    // The name lives as long as the library's registry entry, as the documentation says.
    fn cuKernelGetName(name: *mut *const c_char, hfunc: CUkernel) {
        put(name, KERNELS.get(hfunc)?.name.as_ptr())
    }

    fn cuKernelGetAttribute(pi: *mut c_int, attrib: CUfunction_attribute, kernel: CUkernel, dev: CUdevice) {
        needed(pi)?;
        put(pi, on_device(kernel, dev)?.attribute(attrib.0).ok_or(CUerror::INVALID_VALUE)?)
    }

    fn cuKernelSetAttribute(attrib: CUfunction_attribute, val: c_int, kernel: CUkernel, dev: CUdevice) {
        super::function::set_attribute(&on_device(kernel, dev)?, attrib, val)
    }

    fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, dev: CUdevice) {
        on_device(kernel, dev)?;
        if config.0 > 3 { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
    }

    fn cuKernelGetParamInfo(
        kernel: CUkernel,
        param_index: usize,
        param_offset: *mut usize,
        param_size: *mut usize,
    ) {
        needed(param_offset)?;
        let kernel = KERNELS.get(kernel)?;
        let name = kernel.name.to_str().map_err(|_| CUerror::NOT_FOUND)?;
        let entry = kernel.library.code.entry(name).ok_or(CUerror::NOT_FOUND)?;
        let parameter = entry.parameters.get(param_index).ok_or(CUerror::INVALID_VALUE)?;
        put_if_wanted(param_size, parameter.size as usize);
        put(param_offset, parameter.offset as usize)
    }

    fn cuKernelGetParamCount(kernel: CUkernel, param_count: *mut usize) {
        let kernel = KERNELS.get(kernel)?;
        let name = kernel.name.to_str().map_err(|_| CUerror::NOT_FOUND)?;
        put(param_count, kernel.library.code.entry(name).ok_or(CUerror::NOT_FOUND)?.parameters.len())
    }
}

/// The kernel in the primary context of the device, or in the current context if that is of the device.
fn on_device(kernel: CUkernel, device: CUdevice) -> Result<std::sync::Arc<Function>> {
    let driver = driver()?;
    let index = driver.index(device)?;
    let kernel = KERNELS.get(kernel)?;
    match current::peek()? {
        Some(context) if context.device == index => kernel.function(&context),
        Some(_) | None => {
            let context = primary::retain(driver, index)?;
            let function = kernel.function(&context);
            primary::release(driver, index)?;
            function
        }
    }
}

/// # Safety
/// As `cuLibraryLoadData`.
unsafe fn load(
    place: *mut CUlibrary,
    code: *const c_void,
    option_count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    needed(place)?;
    check_unsafe_call()?;
    let device = driver()?.device(0)?;
    // SAFETY: the caller's promise.
    unsafe {
        let log = jit::Log::from_options(option_count, options, values)?;
        let capability = (device.config.compute_major, device.config.compute_minor);
        let code = image::module_of(code, capability, &log)?;
        put(place, Library::load(Arc::new(code))?.handle as CUlibrary)
    }
}
