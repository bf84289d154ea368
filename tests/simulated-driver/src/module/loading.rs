//! When code of a module takes its memory: at once, or when a function of it is first needed (lazy loading).
//!
//! CUDA programming guide, "Lazy Loading": `CUDA_MODULE_LOADING` is `LAZY`, `EAGER` or `DEFAULT`, which is lazy on Linux
//! since CUDA 12.2; `cuModuleLoad...` then leaves kernels alone until `cuModuleGetFunction`. Variables are placed at
//! load in both modes. Here the first function brings in the whole module's share.

use std::sync::LazyLock;

use parking_lot::Mutex;
use turnus_simulated_arena::{ChargeId, now_ns, sleep_until};

use crate::configuration::driver_version;
use crate::driver::{Driver, arena_error, driver};
use crate::space::Result;

/// `CU_MODULE_EAGER_LOADING`.
const EAGER: u32 = 1;
/// `CU_MODULE_LAZY_LOADING`.
const LAZY: u32 = 2;
/// The first driver that is lazy by default.
const LAZY_BY_DEFAULT: u32 = 12020;

/// `CUmoduleLoadingMode` of this process.
pub fn mode() -> u32 {
    static MODE: LazyLock<u32> = LazyLock::new(|| match std::env::var("CUDA_MODULE_LOADING").as_deref() {
        Ok("LAZY") => LAZY,
        Ok("EAGER") => EAGER,
        // DEFAULT; and what a real driver does with other values is not documented.
        _ if driver_version() >= LAZY_BY_DEFAULT => LAZY,
        _ => EAGER,
    });
    *MODE
}

/// Whether functions wait until they are needed.
pub fn is_lazy() -> bool {
    mode() == LAZY
}

/// The memory of a module's code, which takes time to come.
#[derive(Debug)]
pub struct CodeMemory {
    device: usize,
    charge: Mutex<Option<ChargeId>>,
}

impl CodeMemory {
    /// None yet.
    pub fn new(device: usize) -> Self {
        Self { device, charge: Mutex::new(None) }
    }

    /// Takes it unless it is taken.
    pub fn take(&self) -> Result<()> {
        let mut charge = self.charge.lock();
        if charge.is_none() {
            let arena = &driver()?.arena;
            let (config, begun) = (&arena.devices()[self.device].config, now_ns());
            *charge = Some(arena.charge(self.device, config.module_bytes).map_err(arena_error)?);
            sleep_until(begun + (config.module_cost_us * 1e3) as u64);
        }
        Ok(())
    }

    /// Gives it back.
    pub fn give_back(&self, driver: &Driver) {
        if let Some(charge) = self.charge.lock().take() {
            // Refused only in a forked child, which holds nothing.
            let _ = driver.arena.discharge(charge);
        }
    }
}
