//! The hooks of `cuGetProcAddress` and `cuGetProcAddress_v2`.
//!
//! The real one is asked first and does all the version logic; then its pointer is swapped if it
//! is that of a hooked function. What it did not find stays not found, and what it does with null
//! outputs stays what it does. So a program that asks for "cuGetProcAddress" itself gets our hook
//! of exactly the symbol that the driver chose.

use crate::driver;
use crate::hooks;
use crate::message;
use crate::unhandled;
use core::ffi::{CStr, c_char, c_int, c_void};
use turnus_bindings::types::{CUdriverProcAddressQueryResult, cuuint64_t};
use turnus_bindings::{CUresult, fns};

/// Handler of `cuGetProcAddress`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn get(
    real: fns::cuGetProcAddress,
    symbol: *const c_char,
    pointer: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
) -> CUresult {
    // SAFETY: the arguments are passed through; the caller's contract is the driver's.
    let result = unsafe { real(symbol, pointer, version, flags) };
    if result.is_ok() {
        // SAFETY: the driver accepted both.
        unsafe { swap(symbol, pointer) };
    }
    result
}

/// Handler of `cuGetProcAddress_v2`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn get_v2(
    real: fns::cuGetProcAddress_v2,
    symbol: *const c_char,
    pointer: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: as in `get`.
    let result = unsafe { real(symbol, pointer, version, flags, status) };
    if result.is_ok() {
        // SAFETY: the driver accepted both.
        unsafe { swap(symbol, pointer) };
    }
    result
}

/// # Safety
/// `symbol` is null or NUL-terminated, `pointer` is null or may be read and written.
unsafe fn swap(symbol: *const c_char, pointer: *mut *mut c_void) {
    if symbol.is_null() || pointer.is_null() {
        return;
    }
    // SAFETY: neither is null, and the driver used them as what they are.
    let (symbol, found) = unsafe { (CStr::from_ptr(symbol), *pointer) };
    let Some(driver) = driver::if_loaded().filter(|_| !found.is_null()) else { return };
    match driver.hook_of(found, symbol) {
        // SAFETY: as above; the hook has the signature of the function it stands for.
        Some(entry) => unsafe { *pointer = entry.hook.cast_mut() },
        None => {
            unhandled::note_unhooked(symbol, || true);
            note_escape(driver, symbol, found);
        }
    }
}

/// Real drivers only ever give the addresses of exported symbols. If one gives another address
/// for a name that we hook, the program would pass us by unseen: that must be loud.
fn note_escape(driver: &driver::Driver, symbol: &CStr, found: *mut c_void) {
    if hooks::by_name(symbol).is_none() || is_exported_form(driver, symbol, found) {
        return;
    }
    let name = symbol.to_string_lossy();
    if unhandled::count_escape(&name) {
        message::error(&format!(
            "the driver's {name} is out of reach and runs unscheduled; please report the driver's version"
        ));
    }
}

/// Whether the pointer is that of an exported form of the symbol that we leave alone.
fn is_exported_form(driver: &driver::Driver, symbol: &CStr, found: *mut c_void) -> bool {
    let symbol = symbol.to_string_lossy();
    turnus_bindings::NAMES
        .iter()
        .filter(|name| name.starts_with(&*symbol))
        .any(|name| driver.symbol(&format!("{name}\0")) == Some(found))
}
