//! What `cuMemGetInfo` and `cuDeviceTotalMem` say: the daemon's view, the same as everywhere.
//!
//! Free is what an allocation would be granted now, total is the device or the tenant's limit. The
//! numbers are clamped so that free never passes total and nothing wraps. Without a daemon the last
//! answer is carried on with what was allocated since, else the driver's numbers are corrected by
//! what this process holds.

use super::Memory;
use super::driver::Context;
use turnus_bindings::types::CUdevice;

impl Memory {
    /// Total and free bytes of the calling thread's device; `None`: not ours to answer.
    pub(crate) fn info_of_current(&self) -> Option<(u64, u64)> {
        let (context, ordinal) = self.driver.current()?;
        self.info_in(ordinal, Some(context))
    }

    /// Total and free bytes of a device; `None`: not ours to answer.
    pub(crate) fn info(&self, ordinal: CUdevice) -> Option<(u64, u64)> {
        self.info_in(ordinal, None)
    }

    fn info_in(&self, ordinal: CUdevice, context: Option<Context>) -> Option<(u64, u64)> {
        let uuid = self.state().device(ordinal)?.uuid;
        let answer = self.scheduler.query(uuid);
        let mut state = self.state();
        let device = state.device(ordinal)?;
        let claim = state.claim(ordinal, device);
        let (device_bytes, last_answer) = (device.total_bytes, device.last_answer);
        let any_context = context.or_else(|| device.contexts.first().copied());
        if let Some((total_bytes, free_bytes)) = answer {
            state.device_mut(ordinal)?.last_answer = Some((total_bytes, free_bytes, claim.virtual_bytes));
            return Some(clamp(total_bytes, free_bytes));
        }
        if let Some((total_bytes, free_bytes, then_bytes)) = last_answer {
            let free_bytes = free_bytes.saturating_add(then_bytes).saturating_sub(claim.virtual_bytes);
            return Some(clamp(total_bytes, free_bytes));
        }
        drop(state);
        let real = any_context.and_then(|context| self.driver.memory_info(context).ok());
        let (total_bytes, free_bytes) = real.unwrap_or((device_bytes, device_bytes));
        let free_bytes = free_bytes.saturating_add(claim.resident_bytes).saturating_sub(claim.virtual_bytes);
        Some(clamp(total_bytes, free_bytes))
    }
}

fn clamp(total_bytes: u64, free_bytes: u64) -> (u64, u64) {
    (total_bytes, free_bytes.min(total_bytes))
}
