//! The tables of `cuGetExportTable`, as far as the CUDA runtime needs them.
//!
//! They are undocumented; what is known comes from projects that stand in for the driver, and from seeing what
//! runtimes 10.2 to 13.5 call. A runtime up to 11.1 does all its work with them. One from 11.2 on also asks whether
//! the driver is NVIDIA's own. This one is not: the question is left unanswered, and nothing here may try to do more.
//! A slot that is not simulated refuses too. `runtime.rs` has the slots, `storage.rs` what they keep by context.

mod runtime;
pub mod storage;

use std::ffi::c_void;

use turnus_bindings::types::CUuuid;
use turnus_bindings::{CUerror, CUresult};

use crate::call;
use crate::space::Result;

/// A table: addresses of functions. Most tables begin with their size in bytes.
#[repr(transparent)]
struct Table<const SLOTS: usize>([*const c_void; SLOTS]);

// SAFETY: numbers and addresses of code, never written.
unsafe impl<const SLOTS: usize> Sync for Table<SLOTS> {}

impl<const SLOTS: usize> Table<SLOTS> {
    /// A table that begins with its size and refuses everything but `slots`.
    const fn new(slots: &[(usize, *const c_void)]) -> Self {
        let mut table = [refuse as *const c_void; SLOTS];
        table[0] = std::ptr::without_provenance(SLOTS * size_of::<*const c_void>());
        let mut next = 0;
        while next < slots.len() {
            table[slots[next].0] = slots[next].1;
            next += 1;
        }
        Self(table)
    }

    fn address(&'static self) -> *const c_void {
        self.0.as_ptr().cast()
    }
}

/// What is not simulated.
extern "C" fn refuse() -> CUresult {
    call::run("export table, unknown slot", || Err(CUerror::NOT_SUPPORTED))
}

/// `cuGetExportTable`. A real driver answers an unknown table with `INVALID_VALUE`.
pub fn find(id: &CUuuid) -> Result<*const c_void> {
    let id = u128::from_be_bytes(id.bytes.map(|byte| byte as u8));
    runtime::TABLES
        .iter()
        .find(|(known, _)| *known == id)
        .map(|(_, address)| address())
        .ok_or(CUerror::INVALID_VALUE)
}
