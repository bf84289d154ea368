//! `CUresult` is the C status number: through a function pointer, through a struct, back and forth.
//!
//! The guarantee is Rust's (core::result, "Representation"); these tests protect our use of it.

use turnus_bindings::result::{from_code, to_code};
use turnus_bindings::{CUerror, CUresult, fns, types};

extern "C" fn number(code: u32) -> u32 {
    code
}

extern "C" fn number_of_result(result: CUresult) -> CUresult {
    result
}

#[test]
fn a_number_returned_by_c_is_a_result() {
    // SAFETY: `CUresult` has size, alignment and C calling convention of `u32`, with 0 for `Ok(())`, and
    // every non-zero number is a valid `CUerror`; core::result guarantees it.
    let call =
        unsafe { std::mem::transmute::<extern "C" fn(u32) -> u32, extern "C" fn(u32) -> CUresult>(number) };
    assert_eq!(call(0), Ok(()));
    assert_eq!(call(2), Err(CUerror::OUT_OF_MEMORY));
    for unknown in [54_321, u32::MAX] {
        let error = call(unknown).expect_err("not zero");
        assert_eq!((error.code(), error.name()), (unknown, None));
        assert_eq!(error.to_string(), format!("unknown CUDA error {unknown}"));
    }
}

#[test]
fn a_result_given_to_c_is_its_number() {
    // SAFETY: as above, in the other direction; any `u32` is a valid argument.
    let call = unsafe {
        std::mem::transmute::<extern "C" fn(CUresult) -> CUresult, extern "C" fn(u32) -> u32>(
            number_of_result,
        )
    };
    for code in [0, 1, 2, 700, 999, 123_456_789, u32::MAX] {
        assert_eq!(call(code), code);
        assert_eq!(to_code(from_code(code)), code);
    }
}

#[test]
fn known_codes_have_the_name_and_number_of_the_header() {
    assert_eq!(CUerror::OUT_OF_MEMORY.code(), 2);
    assert_eq!(CUerror::NOT_SUPPORTED.code(), 801);
    assert_eq!(CUerror::UNKNOWN.code(), 999);
    assert_eq!(CUerror::ILLEGAL_ADDRESS.name(), Some("CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_eq!(CUerror::ILLEGAL_ADDRESS.to_string(), "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    assert!(CUerror::KNOWN.len() > 90 && CUerror::KNOWN.is_sorted(), "{:?}", CUerror::KNOWN);
    assert_eq!(CUerror::new(0), None);
}

/// The first version of a call is not the one compiled in today: mixing them up corrupts the stack.
#[test]
fn old_and_new_versions_have_their_own_signatures() {
    unsafe extern "C" fn old(_: *mut types::CUdeviceptr_v1, _: u32) -> CUresult {
        Ok(())
    }
    unsafe extern "C" fn new(_: *mut types::CUdeviceptr, _: usize) -> CUresult {
        Ok(())
    }
    let _: (fns::cuMemAlloc, fns::cuMemAlloc_v2) = (old, new);
    assert_eq!((size_of::<types::CUdeviceptr_v1>(), size_of::<types::CUdeviceptr>()), (4, 8));
    assert_ne!(size_of::<types::CUDA_MEMCPY2D_v1>(), size_of::<types::CUDA_MEMCPY2D>());
}
