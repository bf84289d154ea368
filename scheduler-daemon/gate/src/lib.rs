//! The gate: the one word that says whether a tenant may submit work, and how to read it.
//!
//! The daemon writes the word ([`page::GatePageWriter`]), members map it read-only
//! ([`page::GatePage`]); so the daemon closes the gate also of a process that does not listen.
//! [`gate::Gate`] is the algorithm by which a thread passes and by which a member makes sure that
//! nobody is inside: the hot path has no lock, no system call and writes no shared cache line.
//!
//! This crate stands between shim and daemon because both need the same memory order, written
//! once and model-checked once (`tests/model.rs`, `RUSTFLAGS="--cfg loom"`). It knows no CUDA, no
//! socket and no policy. The argument is in `docs/gate.md`.

pub mod gate;
#[cfg(not(loom))]
pub mod page;
pub mod word;

mod sync;
