//! `cuCtxGetLimit` and `cuCtxSetLimit`: numbers that are kept. Kernels obey those of the stack, of what they print
//! and of their heap; what a context pays for its stack is in `local_memory.rs`.
//!
//! Defaults are those of an A100 with driver 550.

use turnus_bindings::CUerror;

use crate::space::Result;

/// `CU_LIMIT_STACK_SIZE`.
pub const STACK_BYTES: u32 = 0;
/// `CU_LIMIT_PRINTF_FIFO_SIZE`.
pub const PRINT_BYTES: u32 = 1;
/// `CU_LIMIT_MALLOC_HEAP_SIZE`.
pub const HEAP_BYTES: u32 = 2;
/// Local memory of a thread in a new context.
pub const STACK_BYTES_AT_FIRST: usize = 1024;

/// Values by `CUlimit`; `None` for limits that the device does not have.
#[derive(Clone, Debug)]
pub struct Limits {
    values: [Option<usize>; 11],
}

impl Default for Limits {
    fn default() -> Self {
        let mut values = [None; 11];
        values[STACK_BYTES as usize] = Some(STACK_BYTES_AT_FIRST);
        values[1] = Some(1 << 20); // printf buffer
        values[2] = Some(8 << 20); // device heap
        values[3] = Some(2); // depth of device-side synchronisation
        values[4] = Some(2048); // pending device-side launches
        values[5] = Some(128); // L2 fetch granularity
        values[6] = Some(0); // persisting L2
        Self { values }
    }
}

impl Limits {
    /// The value of `limit`.
    pub fn get(&self, limit: u32) -> Result<usize> {
        let value = self.values.get(limit as usize).ok_or(CUerror::INVALID_VALUE)?;
        value.ok_or(CUerror::UNSUPPORTED_LIMIT)
    }

    /// Keeps a new value.
    pub fn set(&mut self, limit: u32, value: usize) -> Result<()> {
        self.get(limit)?;
        self.values[limit as usize] = Some(value);
        Ok(())
    }
}
