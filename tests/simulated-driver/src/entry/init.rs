//! Initialisation, version, error texts, and the search for entry points.
//!
//! These answer before `cuInit` (and but for `cuInit` in forked children), as the real driver's do.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use turnus_bindings::CUerror;
use turnus_bindings::result::to_code;
use turnus_bindings::types::*;

use super::{entry, needed, put, put_if_wanted};
use crate::proc_address::{Found, find};
use crate::{configuration, driver, error_text, exports, tables};

/// flags of `cuGetProcAddress`: legacy and per-thread; both together mean per-thread.
const SEARCH_FLAGS_MASK: u64 = 3;

entry! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        driver::initialise()
    }

    fn cuDriverGetVersion(driver_version: *mut c_int) {
        put(driver_version, configuration::driver_version() as c_int)
    }

    fn cuGetErrorName(error: CUresult, p_str: *mut *const c_char) {
        put_error_text(p_str, error_text::find(to_code(error)).map(|found| found.0))
    }

    fn cuGetErrorString(error: CUresult, p_str: *mut *const c_char) {
        put_error_text(p_str, error_text::find(to_code(error)).map(|found| found.1))
    }

    fn cuGetExportTable(pp_export_table: *mut *const c_void, p_export_table_id: *const CUuuid) {
        needed(p_export_table_id)?;
        put(pp_export_table, std::ptr::null())?;
        put(pp_export_table, tables::find(&*p_export_table_id)?)
    }

    fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: cuuint64_t) {
        match search(symbol, pfn, cuda_version, flags)? {
            Found::Symbol(name) => put_address(pfn, name),
            Found::VersionNotSufficient | Found::Nothing => Err(CUerror::NOT_FOUND),
        }
    }

    fn cuGetProcAddress_v2(
        symbol: *const c_char,
        pfn: *mut *mut c_void,
        cuda_version: c_int,
        flags: cuuint64_t,
        symbol_status: *mut CUdriverProcAddressQueryResult,
    ) {
        let (address, status) = match search(symbol, pfn, cuda_version, flags)? {
            Found::Symbol(name) => (Some(name), CU_GET_PROC_ADDRESS_SUCCESS),
            Found::VersionNotSufficient => (None, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
            Found::Nothing => (None, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
        };
        put_if_wanted(symbol_status, status);
        match address {
            Some(name) => put_address(pfn, name),
            None => put(pfn, std::ptr::null_mut()),
        }
    }
}

/// # Safety
/// As `cuGetErrorName`.
unsafe fn put_error_text(place: *mut *const c_char, text: Option<&'static CStr>) -> CUresult {
    let pointer = text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the caller's promise.
    unsafe { put(place, pointer)? };
    text.map(|_| ()).ok_or(CUerror::INVALID_VALUE)
}

/// # Safety
/// As `cuGetProcAddress`.
unsafe fn search(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
) -> Result<Found, CUerror> {
    needed(pfn)?;
    needed(symbol)?;
    if flags & !SEARCH_FLAGS_MASK != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the caller passes a C string.
    let Ok(name) = unsafe { CStr::from_ptr(symbol) }.to_str() else { return Ok(Found::Nothing) };
    // Real drivers read a negative version as a large one.
    Ok(find(name, version as u32, (flags as u32).min(2)))
}

/// # Safety
/// `pfn` is valid for writing.
unsafe fn put_address(pfn: *mut *mut c_void, name: &str) -> CUresult {
    let address = exports::address(name).ok_or(CUerror::NOT_FOUND)?;
    // SAFETY: the caller's promise.
    unsafe { put(pfn, address as *mut c_void) }
}
