//! Modules and libraries of one kernel, for tests of how code is loaded.

use super::VECTOR_ADD;
use turnus_bindings::types::*;

/// `VECTOR_ADD` as a module of the current context.
pub fn module() -> CUmodule {
    let mut module = std::ptr::null_mut();
    ok!(cuModuleLoadData(&mut module, VECTOR_ADD.as_ptr().cast()));
    module
}

/// `VECTOR_ADD` as a library.
pub fn library() -> CUlibrary {
    let mut library = std::ptr::null_mut();
    ok!(cuLibraryLoadData(
        &mut library,
        VECTOR_ADD.as_ptr().cast(),
        std::ptr::null_mut(),
        std::ptr::null_mut(),
        0,
        std::ptr::null_mut(),
        std::ptr::null_mut(),
        0
    ));
    library
}

/// The function of a module, without asking for it by name, which would load it.
pub fn first_function(module: CUmodule) -> CUfunction {
    let mut function = std::ptr::null_mut();
    ok!(cuModuleEnumerateFunctions(&mut function, 1, module));
    function
}
