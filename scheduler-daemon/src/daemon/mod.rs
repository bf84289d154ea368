//! The daemon around the core: sockets, processes, memory files, time.
//!
//! One thread runs one loop (`server`); others do what may take long and decide nothing: making and
//! punching host segments (`segments`), closing what strangers have made (`closer`). Read next:
//! `server`, `intake`, `translate`.

pub mod admin;
pub mod carry;
pub mod closer;
pub mod connection;
pub mod device_lock;
pub mod directory;
pub mod identity;
pub mod intake;
pub mod options;
pub mod pace;
pub mod segments;
pub mod server;
pub mod state_file;
pub mod tenants;
pub mod translate;

pub use options::Options;
pub use server::{ServerError, serve};
