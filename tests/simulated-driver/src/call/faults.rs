//! Faults on demand: `SIMULATED_CUDA_FAIL`, `SIMULATED_CUDA_FAIL_FILE` and `SIMULATED_CUDA_FAIL_SEED`.
//!
//! The rules are those of `turnus_simulated_arena::Faults`, which the simulated NVML shares; here they become what
//! happens around a call. A call that fails by its rule has no effect. A kernel that shall not end is told to
//! whoever makes the launch by a flag of the thread ([`take_hang`]).

use std::cell::Cell;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use turnus_bindings::{CUerror, CUresult};
use turnus_simulated_arena::{Fault, Faults, LostDevice};

use crate::context::current;
use crate::driver::{arena_error, driver};
use crate::space::Result;

static FAULTS: OnceLock<Mutex<Faults>> = OnceLock::new();

/// A kernel that never ends, or is ended by the driver after a while.
#[derive(Clone, Copy, Debug)]
pub struct Hang {
    /// After this time; `None`: never.
    pub timeout: Option<Duration>,
}

thread_local! {
    static HANG: Cell<Option<Hang>> = const { Cell::new(None) };
}

/// Reads the environment; true when any fault can happen.
pub fn configure() -> bool {
    Faults::from_environment("SIMULATED_CUDA_FAIL")
        .is_some_and(|faults| FAULTS.set(Mutex::new(faults)).is_ok())
}

/// What the next kernel launched by this thread has to do instead of ending.
pub fn take_hang() -> Option<Hang> {
    HANG.try_with(Cell::take).ok().flatten()
}

/// Counts a call of `name` and carries it out with what its rules say.
pub fn run(name: &str, body: impl FnOnce() -> CUresult) -> CUresult {
    let Some(fault) = next(name) else { return body() };
    std::thread::sleep(fault.delay);
    let is_ready = driver().is_ok();
    if is_ready {
        lose(fault.lost)?;
    }
    if let Some(code) = fault.code.and_then(CUerror::new) {
        return Err(code);
    }
    HANG.set(fault.hang.then_some(Hang { timeout: fault.timeout }));
    let result = body();
    if take_hang().is_some() {
        eprintln!(
            "simulated driver: a fault rule wants {name} to launch a kernel without end; it launches none"
        );
    }
    if !is_ready && result.is_ok() {
        lose(fault.lost)?;
    }
    if let Some(code) = fault.sticky.and_then(CUerror::new)
        && let Ok(Some(context)) = current::peek()
    {
        context.queue.fault(code);
    }
    result
}

fn next(name: &str) -> Option<Fault> {
    FAULTS.get()?.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next(name)
}

/// Lets a device fall off the bus.
fn lose(device: Option<LostDevice>) -> Result<()> {
    let Some(device) = device else { return Ok(()) };
    let driver = driver()?;
    let index = match device {
        LostDevice::Index(index) => index,
        LostDevice::Current => match current::peek() {
            Ok(Some(context)) => context.device,
            Ok(None) | Err(_) => driver.index(0)?,
        },
    };
    driver.arena.lose_device(index).map_err(arena_error)
}
