//! The daemon's directory: members' socket, admin socket, state file, and the lock on all of it.
//!
//! Members' and admin socket lie in folders of their own: the members' folder is what containers
//! mount, the admin folder never is. The folders are made once and never replaced: a container
//! that has one mounted must find the next daemon's socket in it.

use crate::packet::{self, PacketError};
use rustix::fs::{FlockOperation, Mode};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use turnus_protocol::paths::{ADMIN_SOCKET, MEMBER_SOCKET};

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The lock is held.
    #[error("another turnusd (pid {owner}) already serves {directory}; use it, or stop it first")]
    AlreadyRunning {
        /// Which directory.
        directory: PathBuf,
        /// Process id that the other one wrote.
        owner: String,
    },
    /// A system call failed.
    #[error("cannot use {path}: {source}")]
    Io {
        /// Which path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A socket cannot be made.
    #[error(transparent)]
    Socket(#[from] PacketError),
}

/// A directory that this daemon owns until it ends.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Makes the folders and takes the lock.
    pub fn open(path: &Path) -> Result<Directory, DirectoryError> {
        for socket in [MEMBER_SOCKET, ADMIN_SOCKET] {
            if !turnus_protocol::paths::fits_socket(&path.join(socket)) {
                return Err(PacketError::PathTooLong(path.join(socket)).into());
            }
        }
        for (folder, mode) in
            [(path.to_owned(), 0o755), (path.join("members"), 0o755), (path.join("admin"), 0o700)]
        {
            make_folder(&folder, mode)?;
        }
        let lock_path = path.join("turnusd.lock");
        let failed = |source| DirectoryError::Io { path: lock_path.clone(), source };
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o644)
            .open(&lock_path)
            .map_err(failed)?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut owner = String::new();
            lock.read_to_string(&mut owner).map_err(failed)?;
            return Err(DirectoryError::AlreadyRunning {
                directory: path.to_owned(),
                owner: owner.trim().to_owned(),
            });
        }
        Ok(Directory { path: path.to_owned(), lock })
    }

    /// Writes the own process id into the lock file, for who comes second. After detaching.
    pub fn announce(&mut self) -> Result<(), DirectoryError> {
        let written = self.lock.set_len(0).and_then(|()| writeln!(self.lock, "{}", std::process::id()));
        written.map_err(|source| DirectoryError::Io { path: self.path.join("turnusd.lock"), source })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The members' socket: anybody may connect, the kernel says who it is.
    pub fn listen_members(&self) -> Result<OwnedFd, DirectoryError> {
        self.listen(MEMBER_SOCKET, 0o666)
    }

    /// The admin socket.
    pub fn listen_admin(&self) -> Result<OwnedFd, DirectoryError> {
        self.listen(ADMIN_SOCKET, 0o600)
    }

    fn listen(&self, name: &str, mode: u32) -> Result<OwnedFd, DirectoryError> {
        let path = self.path.join(name);
        let socket = packet::listen(&path)?;
        rustix::fs::chmod(&path, Mode::from_raw_mode(mode))
            .map_err(|errno| DirectoryError::Io { path, source: errno.into() })?;
        Ok(socket)
    }
}

fn make_folder(folder: &Path, mode: u32) -> Result<(), DirectoryError> {
    let failed = |source| DirectoryError::Io { path: folder.to_owned(), source };
    match fs::DirBuilder::new().recursive(true).mode(mode).create(folder) {
        Ok(()) => fs::set_permissions(folder, fs::Permissions::from_mode(mode)).or_else(|error| {
            // Not ours (say, /tmp/x made by root): usable if it is, and the next step tells.
            if error.kind() == io::ErrorKind::PermissionDenied { Ok(()) } else { Err(failed(error)) }
        }),
        Err(error) => Err(failed(error)),
    }
}
