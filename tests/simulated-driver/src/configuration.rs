//! The environment variables that the driver itself reads. The devices have their own, in the arena.
//!
//! Read once, at first use. README.md lists them all.

use std::sync::LazyLock;

/// The version that the driver reports, e.g. 12040 for CUDA 12.4; `SIMULATED_CUDA_DRIVER_VERSION`.
pub fn driver_version() -> u32 {
    static VERSION: LazyLock<u32> = LazyLock::new(turnus_simulated_arena::driver_version);
    *VERSION
}
