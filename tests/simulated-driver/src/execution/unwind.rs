//! What a panic in work becomes: a fault of its context, so that nobody waits forever for a thread
//! that is gone. The panic's message is printed by the standard hook; nothing is retried.

use std::panic::{AssertUnwindSafe, catch_unwind};

use turnus_bindings::CUerror;

use super::work::Fault;

/// Runs `act`; a panic is the fault `CUDA_ERROR_UNKNOWN`.
pub(super) fn caught<T>(act: impl FnOnce() -> T) -> Result<T, Fault> {
    // Unwind safety: the context that the work belongs to is lost, and nothing else sees its state.
    catch_unwind(AssertUnwindSafe(act)).map_err(|_| Fault::at(CUerror::UNKNOWN, 0))
}
