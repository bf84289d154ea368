//! What must outlive the daemon: its incarnation, who the members are, whose tokens are valid.
//!
//! A small JSON file, replaced by rename so that it is always whole. The incarnation is synced to
//! the disk before any member is welcomed, since epochs are made of it; the rest describes
//! processes and is worthless after a crash of the machine, so it is not synced.

use crate::daemon::identity::Process;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why state cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A system call failed.
    #[error("cannot keep state in {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Somebody else wrote it.
    #[error("{path} is no state of turnusd ({source}); move it away and start again")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Everything that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Of the daemon that wrote it.
    pub incarnation: u64,
    /// Members that were connected, and former ones that had not come back.
    pub members: Vec<MemberRecord>,
    /// Tenants made by `turnus run`.
    pub runs: Vec<RunRecord>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Its number; unique over incarnations.
    pub member: u64,
    /// Which process.
    pub process: Process,
    /// Groups members of one tenant.
    pub tenant: u64,
    /// The tenant's name.
    pub tenant_name: String,
    /// The tenant's limit.
    pub memory_limit_bytes: Option<u64>,
}

/// One `turnus run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The capability, in hexadecimal digits.
    pub token: String,
    /// Only this user's processes may show it.
    pub uid: u32,
    /// The process that asked for it.
    pub owner: Process,
    /// The tenant's number.
    pub tenant: u64,
    /// The tenant's name.
    pub name: String,
    /// The tenant's limit.
    pub memory_limit_bytes: Option<u64>,
}

/// The file.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
}

impl StateFile {
    /// In this directory.
    pub fn new(directory: &Path) -> StateFile {
        StateFile { path: directory.join("state.json") }
    }

    /// What the former daemon left; empty if there was none.
    pub fn read(&self) -> Result<State, StateError> {
        match fs::read(&self.path) {
            // After a crash of the machine the file may be there without its bytes; no member of
            // before lives then either.
            Ok(bytes) if bytes.is_empty() => Ok(State::default()),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| StateError::Damaged { path: self.path.clone(), source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(State::default()),
            Err(source) => Err(StateError::Io { path: self.path.clone(), source }),
        }
    }

    /// Replaces the file. `durable`: survives a crash of the machine.
    pub fn write(&self, state: &State, durable: bool) -> Result<(), StateError> {
        self.replace(state, durable).map_err(|source| StateError::Io { path: self.path.clone(), source })
    }

    fn replace(&self, state: &State, durable: bool) -> io::Result<()> {
        let fresh = self.path.with_extension("new");
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&serde_json::to_vec(state)?)?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&fresh, &self.path)?;
        if durable && let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }
}
