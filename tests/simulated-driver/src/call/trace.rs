//! One line per call, appended to the file that `SIMULATED_CUDA_TRACE` names.
//!
//! A line holds, between tabs: function, status code, duration in ns, process id, thread id. It is written
//! by one write(2) in append mode, so that several processes can share the file.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::Instant;

use turnus_bindings::CUresult;
use turnus_bindings::result::to_code;

static FILE: OnceLock<File> = OnceLock::new();

/// Reads the environment; true when calls are traced.
pub fn configure() -> bool {
    let Ok(path) = std::env::var("SIMULATED_CUDA_TRACE") else { return false };
    match OpenOptions::new().create(true).append(true).open(&path) {
        Ok(file) => FILE.set(file).is_ok(),
        Err(error) => {
            eprintln!("simulated driver: cannot open the trace {path}: {error}");
            false
        }
    }
}

/// Writes the line of a finished call.
pub fn note(name: &str, result: CUresult, begun: Instant) {
    let Some(mut file) = FILE.get() else { return };
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    let line = format!(
        "{name}\t{}\t{}\t{}\t{thread}\n",
        to_code(result),
        begun.elapsed().as_nanos(),
        std::process::id()
    );
    // A full disk must not change what the program sees.
    let _ = file.write_all(line.as_bytes());
}
