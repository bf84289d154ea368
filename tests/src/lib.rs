//! What the end-to-end tests share: a sandbox with its own simulated GPU, daemon and programs.
//!
//! The programs are those of `tests/workloads`, compiled by gcc, unmodified: they know nothing of
//! Turnus. Everything has a time limit; a test that reaches one shows the daemon's log and status.
//! Read next: `sandbox` (the machine of one test), `contest` (two programs that do not fit).
#![forbid(unsafe_code)]

pub mod artifacts;
pub mod contest;
pub mod peer;
pub mod process;
pub mod sandbox;
pub mod workload;

pub use process::{Outcome, Program};
pub use sandbox::{Sandbox, Setup};
pub use workload::{Road, compile};
