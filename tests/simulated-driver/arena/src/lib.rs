//! The hardware and the kernel module of the simulated GPU: what all processes of a machine share.
//!
//! A machine is a directory (`config.rs`) with a table of states, one sparse file per device for its memory,
//! and descriptors whose locks say who is alive. Everything survives `kill -9` of any process at any
//! instruction. This crate knows nothing of the CUDA API: no contexts, streams or addresses; the simulated
//! driver builds them on an [`Arena`]. Read next: `arena.rs`, then `layout.rs` for the rules that keep the
//! shared state whole.

mod arena;
mod clock;
mod config;
mod defaults;
mod error;
mod files;
mod physical;

pub use arena::{Arena, ChargeId, Direction, EngineSlice, Memory, Operation, Piece, Reaped};
pub use clock::{now_ns, sleep_until, sleep_until_or};
pub use config::{
    ArenaConfig, CONFIG_FILE, ConfigError, DEVICES_MAX, DEVICES_VARIABLE, DIRECTORY_VARIABLE, Device,
    DeviceConfig,
};
pub use error::ArenaError;
pub use physical::PhysicalId;
