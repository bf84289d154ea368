//! What happens around every call: is the driver usable, shall the call fail, is it traced, did it panic.
//!
//! The usual case costs one relaxed load. Nothing here knows what a call does; entry points must not look
//! at faults or traces. Faults: `faults.rs`, trace: `trace.rs`.

pub mod faults;
mod trace;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use turnus_bindings::{CUerror, CUresult};

/// Set until `cuInit` has succeeded.
const NOT_INITIALISED: u8 = 1;
/// Set in a child of a process that had initialised the driver.
const FORKED: u8 = 2;
/// Set when faults or a trace are configured.
const OBSERVED: u8 = 4;

/// 0 when a call may go straight through.
static OBSTACLES: AtomicU8 = AtomicU8::new(NOT_INITIALISED);
static CONFIGURED: Once = Once::new();

/// Calls that a real driver answers before `cuInit`, as asked of driver 550 on a machine without a device.
const ALWAYS_ANSWERED: &[&str] = &[
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuInit",
];

/// What a fault rule wants of the kernel that the calling entry point launches.
pub fn take_hang() -> Option<faults::Hang> {
    if OBSTACLES.load(Ordering::Relaxed) == 0 { None } else { faults::take_hang() }
}

/// Runs the body of the entry point `name`.
#[inline(always)]
pub fn run(name: &'static str, body: impl FnOnce() -> CUresult) -> CUresult {
    if OBSTACLES.load(Ordering::Relaxed) == 0 { guarded(name, body) } else { observed(name, body) }
}

/// A panic of ours must not unwind into a C program.
#[inline(always)]
fn guarded(name: &'static str, body: impl FnOnce() -> CUresult) -> CUresult {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| panicked(name))
}

#[cold]
fn panicked(name: &'static str) -> CUresult {
    eprintln!("simulated driver: {name} hit an error of the simulator");
    Err(CUerror::UNKNOWN)
}

#[cold]
#[inline(never)]
fn observed(name: &'static str, body: impl FnOnce() -> CUresult) -> CUresult {
    CONFIGURED.call_once(|| {
        if faults::configure() | trace::configure() {
            OBSTACLES.fetch_or(OBSERVED, Ordering::Relaxed);
        }
    });
    let obstacles = OBSTACLES.load(Ordering::Relaxed);
    let begun = Instant::now();
    let always = ALWAYS_ANSWERED.contains(&name);
    let dead = obstacles & FORKED != 0 && (!always || name == "cuInit");
    let result = if dead || obstacles & NOT_INITIALISED != 0 && !always {
        Err(CUerror::NOT_INITIALIZED)
    } else {
        faults::run(name, || guarded(name, body))
    };
    trace::note(name, result, begun);
    result
}

/// `cuInit` succeeded.
pub fn initialised() {
    OBSTACLES.fetch_and(!NOT_INITIALISED, Ordering::Relaxed);
}

/// Called in a forked child: nothing works there any more if the parent had initialised the driver.
pub fn forked() {
    if OBSTACLES.load(Ordering::Relaxed) & NOT_INITIALISED == 0 {
        OBSTACLES.fetch_or(FORKED, Ordering::Relaxed);
    }
}
