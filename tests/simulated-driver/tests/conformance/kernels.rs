//! Kernels from PTX: three roads to the driver, packed arguments, libraries, and what is refused.
//!
//! What a kernel computes is tested in the executor's crate; here it has to arrive with the right arguments
//! and its variables, or to be refused at load or launch with the driver's code.

use std::ffi::{CStr, c_void};

use crate::common::{STORE_ONE, VECTOR_ADD, allocate, context, function, isolated, text};
use turnus_bindings::types::*;
use turnus_bindings::{CUerror, fns};

const COUNT: usize = 1000;

/// Entry points of one road.
struct Road {
    to_device: fns::cuMemcpyHtoD_v2,
    launch: fns::cuLaunchKernel,
    to_host: fns::cuMemcpyDtoH_v2,
}

fn resolve<T: Copy>(name: &CStr, version: i32, flag: u64) -> T {
    let mut found = std::ptr::null_mut();
    ok!(cuGetProcAddress_v2(name.as_ptr(), &mut found, version, flag, std::ptr::null_mut()));
    assert!(!found.is_null() && size_of::<T>() == size_of::<*mut c_void>());
    // SAFETY: the resolver returns a function of the type that the name and the version stand for.
    unsafe { std::mem::transmute_copy(&found) }
}

fn add_vectors(road: &Road) {
    context();
    let kernel = function(VECTOR_ADD, c"vector_add");
    let a: Vec<f32> = (0..COUNT).map(|number| number as f32).collect();
    let b: Vec<f32> = (0..COUNT).map(|number| 0.5 * number as f32).collect();
    let mut c = vec![0_f32; COUNT];
    let bytes = COUNT * 4;
    let places = [allocate(bytes), allocate(bytes), allocate(bytes)];
    let arguments = [places[0], places[1], places[2], COUNT as u64];
    let mut pointers: Vec<*mut c_void> =
        arguments.iter().map(|argument| std::ptr::from_ref(argument).cast_mut().cast()).collect();
    // SAFETY: the arguments are those that the header asks for; the buffers outlive the calls.
    unsafe {
        assert_eq!((road.to_device)(places[0], a.as_ptr().cast(), bytes), Ok(()));
        assert_eq!((road.to_device)(places[1], b.as_ptr().cast(), bytes), Ok(()));
        let (stream, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!((road.launch)(kernel, 4, 1, 1, 256, 1, 1, 0, stream, pointers.as_mut_ptr(), none), Ok(()));
        assert_eq!((road.to_host)(c.as_mut_ptr().cast(), places[2], bytes), Ok(()));
    }
    for (index, sum) in c.iter().enumerate() {
        assert_eq!(*sum, 1.5 * index as f32, "element {index}");
    }
}

#[test]
fn vectors_are_added_over_dlsym() {
    isolated("vectors_are_added_over_dlsym", &[], || {
        add_vectors(&Road {
            to_device: crate::common::symbol("cuMemcpyHtoD_v2"),
            launch: crate::common::symbol("cuLaunchKernel"),
            to_host: crate::common::symbol("cuMemcpyDtoH_v2"),
        });
    });
}

#[test]
fn vectors_are_added_over_the_resolver() {
    isolated("vectors_are_added_over_the_resolver", &[], || {
        add_vectors(&Road {
            to_device: resolve(c"cuMemcpyHtoD", 12040, 0),
            launch: resolve(c"cuLaunchKernel", 12040, 0),
            to_host: resolve(c"cuMemcpyDtoH", 12040, 0),
        });
    });
}

#[test]
fn vectors_are_added_in_the_stream_of_the_thread() {
    isolated("vectors_are_added_in_the_stream_of_the_thread", &[], || {
        add_vectors(&Road {
            to_device: resolve(c"cuMemcpyHtoD", 12040, 2),
            launch: resolve(c"cuLaunchKernel", 12040, 2),
            to_host: resolve(c"cuMemcpyDtoH", 12040, 2),
        });
    });
}

#[test]
fn arguments_may_come_packed_or_piece_by_piece() {
    isolated("arguments_may_come_packed_or_piece_by_piece", &[], || {
        context();
        let kernel = function(STORE_ONE, c"store_one");
        let place = allocate(4);
        let read = || {
            let mut value = 0_u32;
            ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), place, 4));
            ok!(cuMemsetD32_v2(place, 0, 1));
            value
        };
        ok!(cuMemsetD32_v2(place, 0, 1));
        let (mut packed, mut size) = (place, 8_usize);
        let mut extra = [
            CU_LAUNCH_PARAM_BUFFER_POINTER,
            (&raw mut packed).cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut size).cast(),
            CU_LAUNCH_PARAM_END,
        ];
        let none: *mut c_void = std::ptr::null_mut();
        ok!(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, none.cast(), none.cast(), extra.as_mut_ptr()));
        assert_eq!(read(), 1, "packed");

        let mut argument = place;
        let mut pointers = [(&raw mut argument).cast::<c_void>()];
        let both = call!(cuLaunchKernel(
            kernel,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            none.cast(),
            pointers.as_mut_ptr(),
            extra.as_mut_ptr()
        ));
        assert_eq!(both, Err(CUerror::INVALID_VALUE), "one way only");
        let mut short = 4_usize;
        extra[3] = (&raw mut short).cast();
        fails!(
            INVALID_VALUE,
            cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, none.cast(), none.cast(), extra.as_mut_ptr())
        );

        ok!(cuFuncSetBlockShape(kernel, 1, 1, 1));
        ok!(cuParamSetSize(kernel, 8));
        ok!(cuParamSetv(kernel, 0, (&raw mut argument).cast(), 8));
        ok!(cuLaunchGrid(kernel, 1, 1));
        assert_eq!(read(), 1, "piece by piece");
    });
}

#[test]
fn impossible_launches_are_refused_at_once() {
    isolated("impossible_launches_are_refused_at_once", &[], || {
        context();
        let kernel = function(STORE_ONE, c"store_one");
        let place = allocate(4);
        let with = |grid: [u32; 3], block: [u32; 3], shared: u32| {
            let mut argument = place;
            let mut pointers = [(&raw mut argument).cast::<c_void>()];
            let none: *mut c_void = std::ptr::null_mut();
            call!(cuLaunchKernel(
                kernel,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared,
                none.cast(),
                pointers.as_mut_ptr(),
                none.cast()
            ))
        };
        let invalid = Err(CUerror::INVALID_VALUE);
        assert_eq!(with([1; 3], [1025, 1, 1], 0), invalid);
        assert_eq!(with([1; 3], [32, 32, 2], 0), invalid);
        assert_eq!(with([1; 3], [1, 1, 65], 0), invalid);
        assert_eq!(with([0, 1, 1], [1; 3], 0), invalid);
        assert_eq!(with([1, 65536, 1], [1; 3], 0), invalid);
        assert_eq!(with([1; 3], [1; 3], 50000), invalid, "more shared memory than asked for");
        ok!(cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
        assert_eq!(with([1; 3], [1; 3], 50000), Ok(()));
        fails!(
            INVALID_VALUE,
            cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200_000)
        );
        let stale: CUfunction = std::ptr::without_provenance_mut(0x1234_5678);
        let none: *mut c_void = std::ptr::null_mut();
        fails!(
            INVALID_HANDLE,
            cuLaunchKernel(stale, 1, 1, 1, 1, 1, 1, 0, none.cast(), none.cast(), none.cast())
        );
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn a_library_serves_every_context() {
    isolated("a_library_serves_every_context", &[], || {
        ok!(cuInit(0));
        let (mut library, mut kernel) = (std::ptr::null_mut(), std::ptr::null_mut());
        let none = std::ptr::null_mut::<c_void>;
        // No context is needed to load a library.
        ok!(cuLibraryLoadData(
            &mut library,
            STORE_ONE.as_ptr().cast(),
            none().cast(),
            none().cast(),
            0,
            none().cast(),
            none().cast(),
            0
        ));
        ok!(cuLibraryGetKernel(&mut kernel, library, c"store_one".as_ptr()));
        fails!(NOT_FOUND, cuLibraryGetKernel(&mut kernel, library, c"nothing".as_ptr()));
        for _ in 0..2 {
            let context = context();
            let place = allocate(4);
            let mut argument = place;
            let mut pointers = [(&raw mut argument).cast::<c_void>()];
            // A kernel is a function too.
            ok!(cuLaunchKernel(
                kernel.cast(),
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                none().cast(),
                pointers.as_mut_ptr(),
                none().cast()
            ));
            let mut value = 0_u32;
            ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), place, 4));
            assert_eq!(value, 1);
            let mut function = std::ptr::null_mut();
            ok!(cuKernelGetFunction(&mut function, kernel));
            let mut name = std::ptr::null();
            ok!(cuFuncGetName(&mut name, function));
            assert_eq!(text(name), "store_one");
            ok!(cuCtxDestroy_v2(context));
        }
        ok!(cuLibraryUnload(library));
        fails!(INVALID_HANDLE, cuLibraryUnload(library));
        fails!(INVALID_HANDLE, cuKernelGetName(&mut std::ptr::null(), kernel));
    });
}

#[test]
fn what_is_no_code_is_refused() {
    isolated("what_is_no_code_is_refused", &[], || {
        context();
        let mut module = std::ptr::null_mut();
        fails!(
            INVALID_PTX,
            cuModuleLoadData(&mut module, c".version 7.0\n.target nothing\n".as_ptr().cast())
        );
        fails!(FILE_NOT_FOUND, cuModuleLoad(&mut module, c"/nonexistent/k.ptx".as_ptr()));
        fails!(INVALID_VALUE, cuModuleLoadData(&mut module, std::ptr::null()));
    });
}

#[test]
fn module_variables_have_addresses_and_first_values() {
    isolated("module_variables_have_addresses_and_first_values", &[], || {
        context();
        let code = c".version 7.0\n.target sm_60\n.address_size 64\n\
            .visible .global .align 4 .u32 numbers[3] = {7, 8, 9};\n\
            .visible .global .align 8 .u64 where = numbers;\n\
            .visible .entry k() { ret; }\n";
        let mut module = std::ptr::null_mut();
        ok!(cuModuleLoadData(&mut module, code.as_ptr().cast()));
        let (mut address, mut bytes) = (0, 0);
        ok!(cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"numbers".as_ptr()));
        assert_eq!(bytes, 12);
        let mut numbers = [0_u32; 3];
        ok!(cuMemcpyDtoH_v2(numbers.as_mut_ptr().cast(), address, 12));
        assert_eq!(numbers, [7, 8, 9]);
        let (mut place, mut pointer) = (0, 0_u64);
        ok!(cuModuleGetGlobal_v2(&mut place, std::ptr::null_mut(), module, c"where".as_ptr()));
        ok!(cuMemcpyDtoH_v2((&raw mut pointer).cast(), place, 8));
        assert_eq!(pointer, address, "the address of another variable");
        fails!(NOT_FOUND, cuModuleGetGlobal_v2(&mut place, &mut bytes, module, c"nothing".as_ptr()));
    });
}
