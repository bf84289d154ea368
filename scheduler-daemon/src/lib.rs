//! The daemon `turnusd` and the command line `turnus`: thin shells around the pure core.
//!
//! `daemon` turns sockets, processes, memory files and time into the core's inputs and its outputs
//! into messages and gate words; it decides nothing about turns or memory. `cli` finds the daemon
//! and the shim and talks to people. Read next: `daemon::server` (the one loop), `cli::run`.
#![forbid(unsafe_code)]

pub mod cli;
pub mod daemon;
pub mod exit_code;
pub mod packet;
pub mod size;
