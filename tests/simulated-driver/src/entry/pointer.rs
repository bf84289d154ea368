//! Attributes of pointers: CUDA driver API, "Unified Addressing".
//!
//! Widths: booleans are one byte but for the memory type, the ordinal and the access flags, which are `int`;
//! handles, addresses, sizes and ids are eight bytes.

use std::ffi::{c_uint, c_void};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed};
use crate::context::current;
use crate::driver::driver;
use crate::pointer::{Value, get, nothing};

entry! {
    fn cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) {
        needed(data)?;
        if current::peek()?.is_none() {
            return Err(CUerror::INVALID_CONTEXT);
        }
        put_value(data, get(attribute.0, ptr)?);
        Ok(())
    }

    fn cuPointerGetAttributes(
        num_attributes: c_uint,
        attributes: *mut CUpointer_attribute,
        data: *mut *mut c_void,
        ptr: CUdeviceptr,
    ) {
        if num_attributes == 0 || attributes.is_null() || data.is_null() {
            return Err(CUerror::INVALID_VALUE);
        }
        if current::peek()?.is_none() {
            return Err(CUerror::INVALID_CONTEXT);
        }
        let count = num_attributes as usize;
        let attributes = std::slice::from_raw_parts(attributes, count);
        let places = std::slice::from_raw_parts(data, count);
        for (attribute, &place) in attributes.iter().zip(places) {
            needed(place)?;
            // An unknown address is no error here; an unknown attribute is.
            let value = match (get(attribute.0, ptr), nothing(attribute.0)) {
                (Ok(value), _) | (Err(_), Ok(value)) => value,
                (Err(error), Err(_)) => return Err(error),
            };
            put_value(place, value);
        }
        Ok(())
    }

    fn cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) {
        needed(value)?;
        if current::peek()?.is_none() {
            return Err(CUerror::INVALID_CONTEXT);
        }
        if attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
            return Err(CUerror::INVALID_VALUE);
        }
        driver()?.space.set_sync_memops(ptr, value.cast::<c_uint>().read() != 0)
    }
}

/// # Safety
/// `place` is valid for writing what the value's attribute is documented to have.
unsafe fn put_value(place: *mut c_void, value: Value) {
    // SAFETY: the caller's promise.
    unsafe {
        match value {
            Value::Word(value) => place.cast::<u32>().write_unaligned(value),
            Value::Long(value) => place.cast::<u64>().write_unaligned(value),
            Value::Byte(value) => place.cast::<u8>().write(value),
        }
    }
}
