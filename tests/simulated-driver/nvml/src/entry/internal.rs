//! The way to the table of internal functions (`internal.rs`).

use std::ffi::c_void;

use super::entry;
use crate::internal;
use crate::output::{needed, put};

entry! {
    fn nvmlInternalGetExportTable(table: *mut *const c_void, id: *const [u8; 16]) {
        needed(table)?;
        needed(id)?;
        put(table, internal::table(&id.read_unaligned())?)
    }
}
