//! Faults on demand: `SIMULATED_CUDA_FAIL` and `SIMULATED_CUDA_FAIL_FILE`.
//!
//! The rules are those of `turnus_simulated_arena::Faults`, which the simulated NVML shares; here they become
//! results of the driver. A failing call has no effect.

use std::sync::{Mutex, OnceLock};

use turnus_bindings::CUerror;
use turnus_simulated_arena::Faults;

static FAULTS: OnceLock<Mutex<Faults>> = OnceLock::new();

/// Reads the environment; true when any fault can happen.
pub fn configure() -> bool {
    let faults = Faults::from_environment("SIMULATED_CUDA_FAIL", "SIMULATED_CUDA_FAIL_FILE");
    faults.is_some_and(|faults| FAULTS.set(Mutex::new(faults)).is_ok())
}

/// Counts a call of `name` and returns the code with which it has to fail.
pub fn next(name: &str) -> Option<CUerror> {
    let mut faults = FAULTS.get()?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    faults.next(name).and_then(CUerror::new)
}
