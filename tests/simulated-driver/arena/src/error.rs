//! What can go wrong when the simulated hardware is used.
//!
//! The library above turns these into CUDA results; [`ArenaError::OutOfMemory`] is the only one that a correct
//! program can meet in normal operation.

use crate::config::ConfigError;
use crate::physical::PhysicalId;
use std::path::PathBuf;

/// Error of any operation of an [`crate::Arena`].
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The configuration is bad.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file of the arena directory cannot be used.
    #[error("{what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The state was made by another version of this crate, or is none.
    #[error(
        "{}: {reason}; it belongs to another build of the simulated driver: remove the directory when no process \
         uses it",
        path.display()
    )]
    Version {
        /// The state file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The state was made for another `devices.toml`.
    #[error("{}: {reason}; remove the directory when no process uses it", path.display())]
    State {
        /// The state file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// The calling process is a forked child of the one that opened the arena; it must open its own.
    #[error("the arena was opened before fork; the child must open its own")]
    Forked,
    /// All client slots of the machine are taken.
    #[error("the simulated machine has no free client slot")]
    TooManyClients,
    /// There is no such device.
    #[error("there is no simulated device {device}")]
    NoDevice {
        /// The index given.
        device: usize,
    },
    /// The device may not be used now.
    #[error("device {device} is unavailable: {reason}")]
    Unavailable {
        /// The device.
        device: usize,
        /// Why.
        reason: &'static str,
    },
    /// Sizes must be positive multiples of the granularity.
    #[error("{bytes} bytes is not a positive multiple of the granularity of {granularity_bytes} bytes")]
    Size {
        /// The size given.
        bytes: u64,
        /// The granularity of the device.
        granularity_bytes: u64,
    },
    /// Not enough free memory, or no free row in a table of the device.
    #[error("device {device} cannot give {bytes} bytes: {reason}")]
    OutOfMemory {
        /// The device.
        device: usize,
        /// What was asked.
        bytes: u64,
        /// What ran out.
        reason: &'static str,
    },
    /// The memory was freed, or this client does not hold it.
    #[error("{id:?} is not held by this client")]
    NotHeld {
        /// The stale or foreign id.
        id: PhysicalId,
    },
    /// The charge was already returned or belongs to another client.
    #[error("charge {charge} of device {device} is not of this client")]
    NotCharged {
        /// The device.
        device: usize,
        /// Row number.
        charge: u32,
    },
    /// The descriptor is no living export of this machine.
    #[error("descriptor {descriptor} is not an export of this simulated machine")]
    ForeignDescriptor {
        /// The descriptor's number.
        descriptor: i32,
    },
    /// The copy was cancelled before its end; a part may have been copied.
    #[error("the copy was cancelled after {copied_bytes} bytes")]
    Cancelled {
        /// Bytes copied so far.
        copied_bytes: u64,
    },
    /// The system refused something that should always work.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl ArenaError {
    /// Whether the file system of the machine is full.
    pub fn is_no_space(&self) -> bool {
        let source = match self {
            Self::File { source, .. } | Self::System { source, .. } => source,
            Self::Config(crate::config::ConfigError::File { source, .. }) => source,
            _ => return false,
        };
        let full = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG];
        source.raw_os_error().is_some_and(|code| full.contains(&code))
    }

    /// The error of the system call that just failed.
    pub(crate) fn last_system(what: &'static str) -> Self {
        Self::System { what, source: std::io::Error::last_os_error() }
    }
}
