//! The environment variables that the driver itself reads. The devices have their own, in the arena.
//!
//! Read once, at first use. README.md lists them all.

use std::sync::LazyLock;

/// The version that the driver reports, e.g. 12040 for CUDA 12.4; `SIMULATED_CUDA_DRIVER_VERSION`.
pub fn driver_version() -> u32 {
    static VERSION: LazyLock<u32> = LazyLock::new(turnus_simulated_arena::driver_version);
    *VERSION
}

/// Time that pinned memory takes to allocate; `SIMULATED_CUDA_HOST_ALLOC_MS_PER_GIB`. 340 ms per GiB was seen
/// on a server with 8 H100 (reports on ai-dynamo, pull request 13710).
pub fn host_allocation_ms_per_gib() -> f64 {
    static COST: LazyLock<f64> = LazyLock::new(|| number("SIMULATED_CUDA_HOST_ALLOC_MS_PER_GIB", 340.0));
    *COST
}

/// Time that registration of touched memory takes; `SIMULATED_CUDA_HOST_REGISTER_MS_PER_GIB`. The default is
/// that of the same reports.
pub fn registration_ms_per_gib() -> f64 {
    static COST: LazyLock<f64> = LazyLock::new(|| number("SIMULATED_CUDA_HOST_REGISTER_MS_PER_GIB", 100.0));
    *COST
}

fn number(variable: &str, default: f64) -> f64 {
    let Ok(text) = std::env::var(variable) else { return default };
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => value,
        Ok(_) | Err(_) => {
            eprintln!("simulated driver: {variable}={text} is not a number; using {default}");
            default
        }
    }
}
