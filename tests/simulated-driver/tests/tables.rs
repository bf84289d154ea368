//! The tables of `cuGetExportTable`: about the simulator, not about the documented driver.
//!
//! What NVIDIA's runtime does with them is tested by `runtime_clients.rs` of the end-to-end tests.

#[macro_use]
mod common;

use std::ffi::c_void;

use common::isolated;
use turnus_bindings::types::*;
use turnus_bindings::{CUerror, CUresult};

/// The table with this identifier.
fn table(id: u128) -> *const *const c_void {
    let mut table = std::ptr::null();
    let id = CUuuid { bytes: id.to_be_bytes().map(|byte| byte as std::ffi::c_char) };
    ok!(cuGetExportTable(&mut table, &id));
    table.cast()
}

const RUNTIME: u128 = 0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9;
const STORAGE: u128 = 0xc693336e_1121_df11_a8c3_68f355d89593;
const VALIDITY: u128 = 0xd4082055_bde6_704b_8d34_ba123c66e1f2;

type Primary = unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult;
type End = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void);
type Put = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void, Option<End>) -> CUresult;
type Remove = unsafe extern "C" fn(CUcontext, *mut c_void) -> CUresult;
type Get = unsafe extern "C" fn(*mut *mut c_void, CUcontext, *mut c_void) -> CUresult;
type Ask = unsafe extern "C" fn(u32, u64, *mut [u64; 2]) -> CUresult;

/// The function in a slot.
///
/// # Safety
/// `F` is the type of the function there.
unsafe fn slot<F: Copy>(table: *const *const c_void, number: usize) -> F {
    // SAFETY: the table has that many slots; the caller says what stands there.
    unsafe { std::mem::transmute_copy(&*table.add(number)) }
}

#[test]
fn slots_that_are_not_simulated_refuse() {
    isolated("slots_that_are_not_simulated_refuse", &[], || {
        ok!(cuInit(0));
        let runtime = table(RUNTIME);
        // SAFETY: the first slot is the size in bytes, the others are functions; the unknown ones take nothing.
        unsafe {
            assert_eq!(*runtime as usize, 13 * size_of::<usize>());
            let unknown: unsafe extern "C" fn() -> CUresult = slot(runtime, 9);
            assert_eq!(unknown(), Err(CUerror::NOT_SUPPORTED));
        }
        let (mut table, id) = (std::ptr::null(), CUuuid { bytes: [7; 16] });
        fails!(INVALID_VALUE, cuGetExportTable(&mut table, &id));
        assert!(table.is_null());
    });
}

/// Whoever makes the runtime believe more than this breaks the rule in `src/tables`.
#[test]
fn the_question_for_the_validity_of_the_driver_gets_no_answer() {
    isolated("the_question_for_the_validity_of_the_driver_gets_no_answer", &[], || {
        ok!(cuInit(0));
        let mut answer = [7; 2];
        // SAFETY: the slot takes a question and a place for the answer.
        unsafe { slot::<Ask>(table(VALIDITY), 1)(1, 2, &mut answer) }.expect("the question is heard");
        assert_eq!(answer, [7; 2]);
    });
}

unsafe extern "C" fn note(_context: CUcontext, key: *mut c_void, value: *mut c_void) {
    // SAFETY: the value is the address of a number that outlives the context.
    unsafe { *value.cast::<usize>() += key as usize };
}

#[test]
fn values_stay_with_their_context_and_end_with_it() {
    isolated("values_stay_with_their_context_and_end_with_it", &[], || {
        ok!(cuInit(0));
        let (runtime, storage) = (table(RUNTIME), table(STORAGE));
        // SAFETY: the slots have these types.
        let (primary, put, remove, get) = unsafe {
            (
                slot::<Primary>(runtime, 2),
                slot::<Put>(storage, 0),
                slot::<Remove>(storage, 1),
                slot::<Get>(storage, 2),
            )
        };
        let (mut context, mut value, mut noted) = (std::ptr::null_mut(), std::ptr::null_mut(), 0_usize);
        let place: *mut c_void = (&raw mut noted).cast();
        let [first, second, other] = [1_usize, 2, 4].map(|key| key as *mut c_void);
        // SAFETY: all pointers are to locals.
        unsafe {
            primary(&mut context, 0).expect("the primary context");
            ok!(cuCtxSetCurrent(context));
            put(context, first, place, Some(note)).expect("kept");
            put(std::ptr::null_mut(), second, place, Some(note)).expect("kept with the current context");
            put(context, other, place, Some(note)).expect("kept");
            get(&mut value, context, second).expect("found");
            assert_eq!(value, place);
            remove(context, other).expect("forgotten");
            assert_eq!(get(&mut value, context, other), Err(CUerror::INVALID_HANDLE));
            assert_eq!(remove(context, other), Err(CUerror::INVALID_HANDLE));
            assert_eq!(put(place.cast(), first, place, None), Err(CUerror::INVALID_CONTEXT));
            assert_eq!((&raw const noted).read(), 0);
            ok!(cuDevicePrimaryCtxReset_v2(0));
            assert_eq!((&raw const noted).read(), 3, "owners of what was still kept hear of the end");
        }
    });
}
