//! Local memory of a context: a stack for each thread that the device can hold, taken before a kernel needs it.
//!
//! CUDA driver API, `cuCtxSetLimit(CU_LIMIT_STACK_SIZE)`: the driver increases the size per thread for a launch as
//! needed and does not take it back after the launch (`CU_CTX_LMEM_RESIZE_TO_MAX`: always so by now); setting the
//! limit takes effect at once, behind the work before it. The size that a context begins with is part of
//! `context_bytes`. That a launch for which there is no memory fails with `OUT_OF_MEMORY` is the meaning of the
//! code; the launch functions' own list does not name it.

use std::sync::atomic::Ordering;

use turnus_bindings::CUerror;
use turnus_simulated_arena::DeviceConfig;

use super::Context;
use super::limits::{STACK_BYTES, STACK_BYTES_AT_FIRST};
use crate::driver::{Driver, arena_error};
use crate::space::Result;

/// Most local memory of a thread: CUDA C++ Programming Guide, compute capabilities.
const LOCAL_BYTES_MAX: usize = 512 << 10;

/// Device memory of a context whose threads have `stack_bytes` of local memory each.
fn context_bytes(config: &DeviceConfig, scale: u64, stack_bytes: usize) -> u64 {
    let threads = u64::from(config.multiprocessor_count) * u64::from(config.threads_per_multiprocessor);
    let pool_bytes = |stack_bytes: usize| threads * stack_bytes as u64 / scale;
    let (at_first, now) = (pool_bytes(STACK_BYTES_AT_FIRST), pool_bytes(stack_bytes));
    // A machine may name a context smaller than this part of it; then it only grows.
    let fixed = config.context_bytes.checked_sub(at_first);
    fixed.map_or(config.context_bytes + now.saturating_sub(at_first), |fixed| fixed + now)
}

impl Context {
    /// Before a launch of kernels with `bytes` of local memory per thread: makes room if they need more than
    /// any before.
    pub fn need_local_memory(&self, driver: &Driver, bytes: u64) -> Result<()> {
        if !self.lacks_local_memory(bytes) {
            return Ok(());
        }
        self.set_stack_bytes(driver, (bytes as usize).next_multiple_of(16))
    }

    /// Whether no launch so far needed `bytes` per thread.
    pub fn lacks_local_memory(&self, bytes: u64) -> bool {
        bytes > self.stack_bytes.load(Ordering::Acquire) as u64
    }

    /// `cuCtxSetLimit` for the stack.
    pub fn set_stack_bytes(&self, driver: &Driver, bytes: usize) -> Result<()> {
        if bytes > LOCAL_BYTES_MAX {
            return Err(CUerror::INVALID_VALUE);
        }
        // Not the lock of the limits: kernels that are waited for below look at them.
        let _one_at_a_time = self.resizing.lock();
        let config = &driver.arena.devices()[self.device].config;
        if config.local_memory_cost {
            self.queue.wait_all();
            let bytes = context_bytes(config, driver.arena.scale(), bytes);
            driver.arena.change_charge(self.charge, bytes).map_err(arena_error)?;
        }
        self.limits.lock().set(STACK_BYTES, bytes)?;
        self.stack_bytes.store(bytes, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_grows_by_the_threads_that_the_device_holds() {
        let config = DeviceConfig { context_bytes: 400 << 20, ..DeviceConfig::default() };
        let threads = 108 * 2048;
        assert_eq!(context_bytes(&config, 1, STACK_BYTES_AT_FIRST), 400 << 20);
        assert_eq!(context_bytes(&config, 1, 8192), (400 << 20) + 7168 * threads);
        assert_eq!(context_bytes(&config, 1, 0), (400 << 20) - 1024 * threads);
        let small = DeviceConfig { context_bytes: 1 << 20, ..config };
        assert_eq!(context_bytes(&small, 64, 0), 1 << 20);
        assert_eq!(context_bytes(&small, 64, 2048), (1 << 20) + 16 * threads);
    }
}
