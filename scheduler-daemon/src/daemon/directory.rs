//! The daemon's directory: members' socket, admin socket, state file, and the lock on all of it.
//!
//! Members' and admin socket lie in folders of their own: the members' folder is what containers
//! mount, the admin folder never is. The folders are made once and never replaced: a container
//! that has one mounted must find the next daemon's socket in it. A directory that somebody else
//! made or may write in (in /tmp anybody can) is refused: its files could be links to others.

use crate::packet::{self, PacketError};
use rustix::fs::FlockOperation;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
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
    /// Others could put their own files in it.
    #[error("{path} {problem}; name a directory of your own with --directory")]
    NotOurs {
        /// Which path.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
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
        make_folder(path, 0o755)?;
        check_owner(path)?;
        for (folder, mode) in [(path.join("members"), 0o755), (path.join("admin"), 0o700)] {
            make_folder(&folder, mode)?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode))
                .map_err(|source| DirectoryError::Io { path: folder, source })?;
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
        Ok(packet::listen_with_mode(&self.path.join(name), mode)?)
    }
}

fn make_folder(folder: &Path, mode: u32) -> Result<(), DirectoryError> {
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(folder);
    made.map_err(|source| DirectoryError::Io { path: folder.to_owned(), source })
}

/// Neither the name nor what it leads to may be another user's, and not everybody may write there.
fn check_owner(path: &Path) -> Result<(), DirectoryError> {
    let failed = |source| DirectoryError::Io { path: path.to_owned(), source };
    let not_ours = |problem| Err(DirectoryError::NotOurs { path: path.to_owned(), problem });
    let own = rustix::process::geteuid().as_raw();
    let directory = fs::metadata(path).map_err(failed)?;
    let name = fs::symlink_metadata(path).map_err(failed)?;
    for (owner, may_be_root) in [(directory.uid(), false), (name.uid(), name.is_symlink())] {
        if owner != own && !(may_be_root && owner == 0) {
            return not_ours(format!("belongs to user {owner}"));
        }
    }
    if directory.mode() & 0o002 != 0 {
        return not_ours("can be written by everybody".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    #[test]
    fn a_directory_of_somebody_else_or_of_everybody_is_refused_and_left_alone() {
        let base = std::env::temp_dir().join(format!("turnus-directory-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let (open, link) = (base.join("open"), base.join("link"));
        fs::create_dir_all(&open).expect("folder");
        symlink(&open, &link).expect("link");
        drop(Directory::open(&link).expect("our own link to our own folder"));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("mode");
        let error = Directory::open(&open).expect_err("everybody may write").to_string();
        assert!(error.contains("everybody") && error.contains("--directory"), "{error}");
        assert_eq!(fs::metadata(&open).expect("folder").mode() & 0o7777, 0o1777, "its mode was changed");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("mode");
        // Only root can make what somebody else would have made.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(4242), None).expect("owner");
            let error = Directory::open(&link).expect_err("another's link").to_string();
            assert!(error.contains("user 4242"), "{error}");
            chown(&open, Some(4242), None).expect("owner");
            Directory::open(&open).expect_err("another's folder");
        }
        fs::remove_dir_all(&base).expect("clean up");
    }
}
