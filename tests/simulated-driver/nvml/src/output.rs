//! Writing results through the caller's pointers: null is refused, texts must fit.
//!
//! The C contract of every entry point: a pointer argument is null, or valid for what NVML's documentation
//! reads or writes through it.

use std::ffi::{c_char, c_uint};

use crate::code::{Error, Result};

/// Refuses null before anything is done.
pub fn needed<T>(place: *const T) -> Result<()> {
    if place.is_null() { Err(Error::INVALID_ARGUMENT) } else { Ok(()) }
}

/// Writes a result.
///
/// # Safety
/// `place` is null or valid for writing a `T`.
pub unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    needed(place)?;
    // SAFETY: the caller's promise; C callers need not align what they pass.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Copies a text with its terminator into a buffer of `length` bytes.
///
/// # Safety
/// `place` is null or valid for writing `length` bytes.
pub unsafe fn put_text(place: *mut c_char, length: c_uint, text: &str) -> Result<()> {
    needed(place)?;
    if text.len() >= length as usize {
        return Err(Error::INSUFFICIENT_SIZE);
    }
    // SAFETY: text.len() + 1 <= length.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

/// Writes a list by the protocol of most queries: `count` is the room on entry and the length on return; a
/// list that does not fit is not written and answers `NVML_ERROR_INSUFFICIENT_SIZE`.
///
/// # Safety
/// `count` is null or valid for reading and writing, `places` null or valid for writing `*count` elements.
pub unsafe fn put_list<T>(count: *mut c_uint, places: *mut T, list: Vec<T>) -> Result<()> {
    needed(count)?;
    // SAFETY: checked for null, else the caller's promise.
    let room = unsafe { count.read_unaligned() } as usize;
    // SAFETY: as above.
    unsafe { count.write_unaligned(list.len() as c_uint) };
    if list.len() > room {
        return Err(Error::INSUFFICIENT_SIZE);
    }
    if !list.is_empty() {
        needed(places)?;
    }
    for (at, value) in list.into_iter().enumerate() {
        // SAFETY: at < list.len() <= room.
        unsafe { places.add(at).write_unaligned(value) };
    }
    Ok(())
}

/// Copies a text into a fixed array, cut if need be, the rest zero.
pub fn fixed_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte as c_char;
    }
    array
}
