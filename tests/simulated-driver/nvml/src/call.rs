//! What happens around every call: is the library initialised, shall the call fail, is it traced, did it panic.
//!
//! Faults: `SIMULATED_NVML_FAIL`, `SIMULATED_NVML_FAIL_FILE` and `SIMULATED_NVML_FAIL_SEED`, with the rules that the
//! simulated driver has for its own calls, but for what happens to kernels and contexts: there are none here. Trace: `SIMULATED_NVML_TRACE`, with the lines that the driver's trace has. Entry points
//! must not look at any of this.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::Instant;

use parking_lot::Mutex;
use turnus_simulated_arena::{Fault, Faults, LostDevice};

use crate::code::{Error, Result, to_code};
use crate::library;

/// Functions whose documentation does not name `NVML_ERROR_UNINITIALIZED`, and initialisation itself.
const ALWAYS_ANSWERED: &[&str] = &[
    "nvmlInit",
    "nvmlInit_v2",
    "nvmlInitWithFlags",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlGetExcludedDeviceCount",
    "nvmlGetBlacklistDeviceCount",
];

/// Runs the body of the entry point `name`.
pub fn run(name: &str, body: impl FnOnce() -> Result<()>) -> u32 {
    let begun = Instant::now();
    let code = to_code(fault(name).and_then(|()| {
        if !ALWAYS_ANSWERED.contains(&name) && !library::is_initialised() {
            return Err(Error::UNINITIALIZED);
        }
        // A panic of ours must not unwind into a C program.
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
            eprintln!("simulated NVML: {name} hit an error of the simulator");
            Err(Error::UNKNOWN)
        })
    }));
    trace(name, code, begun);
    code
}

/// One line per call: function, status code, ns, process, thread, between tabs, written by one write(2).
fn trace(name: &str, code: u32, begun: Instant) {
    static FILE: LazyLock<Option<File>> = LazyLock::new(|| {
        let path = std::env::var_os("SIMULATED_NVML_TRACE")?;
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        opened.inspect_err(|error| eprintln!("simulated NVML: cannot open the trace {path:?}: {error}")).ok()
    });
    let Some(mut file) = FILE.as_ref() else { return };
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    let (ns, process) = (begun.elapsed().as_nanos(), std::process::id());
    // A full disk must not change what the program sees.
    let _ = file.write_all(format!("{name}\t{code}\t{ns}\t{process}\t{thread}\n").as_bytes());
}

fn fault(name: &str) -> Result<()> {
    static FAULTS: LazyLock<Option<Mutex<Faults>>> =
        LazyLock::new(|| Faults::from_environment("SIMULATED_NVML_FAIL").map(Mutex::new));
    let Some(fault) = FAULTS.as_ref().and_then(|faults| faults.lock().next(name)) else { return Ok(()) };
    carry_out(name, &fault)
}

fn carry_out(name: &str, fault: &Fault) -> Result<()> {
    if fault.hang || fault.sticky.is_some() {
        eprintln!(
            "simulated NVML: a fault rule for {name} speaks of kernels or contexts, which NVML has not"
        );
    }
    std::thread::sleep(fault.delay);
    if let Some(device) = fault.lost {
        let index = if let LostDevice::Index(index) = device { index } else { 0 };
        library::arena()?.lose_device(index).map_err(library::arena_error)?;
    }
    fault.code.and_then(Error::new).map_or(Ok(()), Err)
}
