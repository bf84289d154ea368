//! One daemon per device: a locked file per UUID in a fixed place.
//!
//! Two daemons that both hand out turns on a device would each be right and both be wrong. The
//! lock is the kernel's (`flock`), so it ends with its owner however that dies. The file's text
//! only names the owner for people.

use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use turnus_protocol::DeviceUuid;

/// Why the device is not ours.
#[derive(Debug, thiserror::Error)]
pub enum DeviceLockError {
    /// Somebody has it.
    #[error("device {device} belongs to another daemon: {owner}")]
    Taken {
        /// Which device.
        device: DeviceUuid,
        /// What the owner wrote about itself.
        owner: String,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The locks that this daemon holds; they end with it.
#[derive(Debug)]
pub struct DeviceLocks {
    folder: PathBuf,
    owner: String,
    held: BTreeMap<DeviceUuid, File>,
}

impl DeviceLocks {
    /// No lock yet. `served` is the directory to name to who comes second.
    pub fn new(folder: &Path, served: &Path) -> DeviceLocks {
        let owner = format!("pid {}, directory {}", std::process::id(), served.display());
        DeviceLocks { folder: folder.to_owned(), owner, held: BTreeMap::new() }
    }

    /// Takes the device's lock unless it is held already.
    pub fn take(&mut self, device: DeviceUuid) -> Result<(), DeviceLockError> {
        if self.held.contains_key(&device) {
            return Ok(());
        }
        let path = self.folder.join(format!("{device}.lock"));
        let failed = |source| DeviceLockError::Io { path: path.clone(), source };
        self.make_folder().map_err(failed)?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o666)
            .open(&path)
            .map_err(failed)?;
        // Other users' daemons must be able to see that it is taken, whatever our umask is.
        let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o666));
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut owner = String::new();
            file.read_to_string(&mut owner).map_err(failed)?;
            return Err(DeviceLockError::Taken { device, owner: owner.trim().to_owned() });
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", self.owner)).map_err(failed)?;
        self.held.insert(device, file);
        Ok(())
    }

    fn make_folder(&self) -> io::Result<()> {
        match fs::create_dir(&self.folder) {
            // Like /tmp: any user's daemon may lock its devices here.
            Ok(()) => fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o1777)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_daemon_is_told_who_owns_the_device() {
        let folder = std::env::temp_dir().join(format!("turnus-lock-test-{}", std::process::id()));
        let device = DeviceUuid([7; 16]);
        let mut first = DeviceLocks::new(&folder, Path::new("/run/first"));
        let mut second = DeviceLocks::new(&folder, Path::new("/run/second"));
        first.take(device).expect("first");
        first.take(device).expect("again");
        let error = second.take(device).expect_err("taken").to_string();
        assert!(error.contains("/run/first") && error.contains(&std::process::id().to_string()), "{error}");
        second.take(DeviceUuid([8; 16])).expect("another device");
        drop(first);
        second.take(device).expect("free again");
        fs::remove_dir_all(&folder).expect("clean up");
    }
}
