//! The hardware and the kernel module of the simulated GPU: what all processes of a machine share.
//!
//! A machine is a directory (`config.rs`) with a table of states, one sparse file per device for its memory,
//! and descriptors whose locks say who is alive. Everything survives `kill -9` of any process at any
//! instruction. This crate knows nothing of the CUDA API: no contexts, streams or addresses; the simulated
//! driver builds them on an [`Arena`]. Read next: `arena.rs`, then `layout.rs` for the rules that keep the
//! shared state whole.

mod activity;
mod alive;
mod arena;
mod clients;
mod clock;
mod config;
mod costs;
mod defaults;
mod engine;
mod error;
mod export;
mod faults;
mod files;
mod incidents;
mod layout;
mod link;
mod lock;
mod mapping;
mod mig;
mod modes;
mod physical;
pub mod profiles;
mod rows;
mod temporary;
mod usage;

pub use activity::{INTERVAL_NS, Interval};
pub use arena::Arena;
pub use clients::Reaped;
pub use clock::{now_ns, sleep_until, sleep_until_or};
pub use config::{
    ArenaConfig, CONFIG_FILE, ConfigError, DEVICES_MAX, DEVICES_VARIABLE, DIRECTORY_VARIABLE,
    DRIVER_VERSION_VARIABLE, Device, DeviceConfig, driver_version,
};
pub use costs::{HostOperation, Operation};
pub use engine::EngineSlice;
pub use error::ArenaError;
pub use faults::{Fault, Faults, LostDevice};
pub use incidents::{XID_FILE, Xid};
pub use link::Direction;
pub use mig::{Instance, MigConfig, SLICES};
pub use modes::ComputeMode;
pub use physical::{PhysicalId, Piece};
pub use temporary::TemporaryMachine;
pub use usage::{ChargeId, Memory};
