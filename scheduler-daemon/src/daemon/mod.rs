//! The daemon around the core: sockets, processes, memory files, time.
//!
//! One thread runs one loop (`server`); a second one only makes and punches host segments, which
//! may take milliseconds each. Read next: `server`, `peers`, `translate`.

pub mod admin;
pub mod carry;
pub mod connection;
pub mod device_lock;
pub mod directory;
pub mod identity;
pub mod intake;
pub mod options;
pub mod segments;
pub mod server;
pub mod state_file;
pub mod tenants;
pub mod translate;

pub use options::Options;
pub use server::{ServerError, serve};
