//! Lazy and eager loading: what `CUDA_MODULE_LOADING` changes.
//!
//! As documented in the CUDA programming guide ("Lazy Loading") and in cuda.h at the functions.

use crate::common::code::{first_function, library, module};
use crate::common::{context, isolated, launch};
use turnus_bindings::types::*;

fn is_loaded(function: CUfunction) -> bool {
    let mut state = CU_FUNCTION_LOADING_STATE_MAX;
    ok!(cuFuncIsLoaded(&mut state, function));
    state == CU_FUNCTION_LOADING_STATE_LOADED
}

fn mode() -> CUmoduleLoadingMode {
    let mut mode = CUmoduleLoadingMode_enum(0);
    ok!(cuModuleGetLoadingMode(&mut mode));
    mode
}

#[test]
fn functions_are_loaded_when_they_are_asked_for_by_name() {
    isolated(
        "functions_are_loaded_when_they_are_asked_for_by_name",
        &[("CUDA_MODULE_LOADING", "LAZY")],
        || {
            context();
            assert_eq!(mode(), CU_MODULE_LAZY_LOADING);
            let module = module();
            let (function, mut named) = (first_function(module), std::ptr::null_mut());
            assert!(!is_loaded(function));
            ok!(cuModuleGetFunction(&mut named, module, c"vector_add".as_ptr()));
            assert_eq!(named, function);
            assert!(is_loaded(function));
        },
    );
}

#[test]
fn functions_are_loaded_by_request_and_by_launch() {
    isolated("functions_are_loaded_by_request_and_by_launch", &[("CUDA_MODULE_LOADING", "LAZY")], || {
        context();
        let (asked, launched) = (first_function(module()), first_function(module()));
        ok!(cuFuncLoad(asked));
        ok!(cuFuncLoad(asked));
        assert!(is_loaded(asked) && !is_loaded(launched));
        assert_eq!(launch(launched, 1, 1, std::ptr::null_mut(), &[&0, &0, &0, &0]), Ok(()));
        ok!(cuCtxSynchronize());
        assert!(is_loaded(launched));
        fails!(INVALID_HANDLE, cuFuncLoad(std::ptr::null_mut()));
        let mut state = CU_FUNCTION_LOADING_STATE_MAX;
        fails!(INVALID_HANDLE, cuFuncIsLoaded(&mut state, std::ptr::null_mut()));
        fails!(INVALID_VALUE, cuFuncIsLoaded(std::ptr::null_mut(), asked));
    });
}

#[test]
fn kernels_of_libraries_tell_their_attributes_without_being_loaded() {
    isolated(
        "kernels_of_libraries_tell_their_attributes_without_being_loaded",
        &[("CUDA_MODULE_LOADING", "LAZY")],
        || {
            context();
            let library = library();
            let (mut kernel, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
            ok!(cuLibraryGetKernel(&mut kernel, library, c"vector_add".as_ptr()));
            let mut threads = 0;
            ok!(cuKernelGetAttribute(&mut threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
            assert!(threads > 0);
            ok!(cuKernelGetFunction(&mut function, kernel));
            assert!(is_loaded(function));
        },
    );
}

#[test]
fn eager_loading_loads_everything_at_once() {
    isolated("eager_loading_loads_everything_at_once", &[("CUDA_MODULE_LOADING", "EAGER")], || {
        context();
        assert_eq!(mode(), CU_MODULE_EAGER_LOADING);
        assert!(is_loaded(first_function(module())));
    });
}
