//! One daemon per device: a locked file per UUID in fixed places.
//!
//! Two daemons that both hand out turns on a device would each be right and both be wrong. The
//! lock is the kernel's (`flock`), so it ends with its owner however that dies. The file's text
//! only names the owner for people. The folders are open to all users, so nothing in them is
//! trusted: no link is followed, nothing but a plain file is touched, and a text is cleaned and cut.

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use turnus_protocol::{DeviceUuid, name};

/// Devices in use at a time: more than any host has, so that lies about devices end somewhere.
const HELD_MAX: usize = 1024;
/// Others may make and remove the file while we open it; nobody does that for long.
const ATTEMPTS: usize = 16;
/// Up to so many devices stay ours although nobody uses them at the moment.
const KEPT_MAX: usize = 64;

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
    /// Members name devices without end.
    #[error("device {0} is one more than a daemon serves")]
    TooMany(DeviceUuid),
}

/// The locks that this daemon holds; they end with it.
#[derive(Debug)]
pub struct DeviceLocks {
    folders: Vec<PathBuf>,
    owner: String,
    held: BTreeMap<DeviceUuid, Held>,
}

#[derive(Debug)]
struct Held {
    users: usize,
    /// Folder and file; the file's lock is what counts.
    files: Vec<(OwnedFd, File)>,
}

impl DeviceLocks {
    /// No lock yet. A device is locked in each of the folders that can be used. `served` is the
    /// directory to name to who comes second.
    pub fn new(folders: &[PathBuf], served: &Path) -> DeviceLocks {
        let owner = format!("pid {}, directory {}", std::process::id(), served.display());
        DeviceLocks { folders: folders.to_owned(), owner, held: BTreeMap::new() }
    }

    /// One more connection uses the device: takes its lock unless it is held already.
    pub fn take(&mut self, device: DeviceUuid) -> Result<(), DeviceLockError> {
        if let Some(held) = self.held.get_mut(&device) {
            held.users += 1;
            return Ok(());
        }
        if self.held.len() >= KEPT_MAX {
            self.give_up_unused();
        }
        if self.held.len() >= HELD_MAX {
            return Err(DeviceLockError::TooMany(device));
        }
        let (mut files, mut obstacle) = (Vec::new(), None);
        for folder in &self.folders {
            match lock_in(folder, device, &self.owner) {
                Ok(pair) => files.push(pair),
                Err(error @ DeviceLockError::Taken { .. }) => return Err(error),
                Err(error) => obstacle = obstacle.or(Some(error)),
            }
        }
        match obstacle {
            Some(error) if files.is_empty() => Err(error),
            _ => {
                self.held.insert(device, Held { users: 1, files });
                Ok(())
            }
        }
    }

    /// One connection less uses the device. It stays ours, unless there are too many of those.
    pub fn release(&mut self, device: DeviceUuid) {
        if let Some(held) = self.held.get_mut(&device) {
            held.users = held.users.saturating_sub(1);
        }
    }

    fn give_up_unused(&mut self) {
        for (device, held) in self.held.extract_if(.., |_, held| held.users == 0) {
            for (folder, file) in held.files {
                // While it is still locked: who opened it meanwhile sees that it has no name left.
                // In a folder like /tmp another user's file stays, which does no harm.
                let _ = rustix::fs::unlinkat(&folder, file_name(device), AtFlags::empty());
                drop(file);
            }
        }
    }
}

fn file_name(device: DeviceUuid) -> String {
    format!("{device}.lock")
}

fn lock_in(folder: &Path, device: DeviceUuid, owner: &str) -> Result<(OwnedFd, File), DeviceLockError> {
    let path = folder.join(file_name(device));
    let failed = |source| DeviceLockError::Io { path: path.clone(), source };
    let opened = open_folder(folder).map_err(failed)?;
    for _ in 0..ATTEMPTS {
        let mut file = open_file(&opened, &file_name(device)).map_err(failed)?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut text = Vec::new();
            file.take(512).read_to_end(&mut text).map_err(failed)?;
            let owner = name::clean(String::from_utf8_lossy(&text).trim());
            return Err(DeviceLockError::Taken { device, owner });
        }
        match rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?.st_nlink {
            // The former owner has just removed it: this is nobody's lock any more.
            0 => continue,
            1 => {}
            _ => return Err(failed(io::Error::other("the file has other names too"))),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{owner}")).map_err(failed)?;
        return Ok((opened, file));
    }
    Err(failed(io::Error::other("it comes and goes")))
}

/// The folder itself, no link to one. Made like /tmp: any user's daemon may lock its devices here.
fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let made = rustix::fs::mkdir(folder, Mode::from_raw_mode(0o755));
    match made {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty())?;
    if made.is_ok() {
        rustix::fs::fchmod(&opened, Mode::from_raw_mode(0o1777))?;
    }
    Ok(opened)
}

/// A plain file that is there, or a new one. Never both in one call: where anybody may write, the
/// kernel refuses to open others' files with `O_CREAT` (`fs.protected_regular`).
fn open_file(folder: impl AsFd, file_name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fresh = flags | OFlags::CREATE | OFlags::EXCL;
    for _ in 0..ATTEMPTS {
        let opened = match rustix::fs::openat(&folder, file_name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                let made = rustix::fs::openat(&folder, file_name, fresh, Mode::from_raw_mode(0o666));
                if let Ok(file) = &made {
                    // Other users' daemons must see that it is taken, whatever our umask is.
                    rustix::fs::fchmod(file, Mode::from_raw_mode(0o666))?;
                }
                made
            }
            opened => opened,
        };
        match opened {
            Err(Errno::EXIST) => continue,
            Err(errno) => return Err(errno.into()),
            Ok(file) => {
                let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
                if kind != FileType::RegularFile {
                    return Err(io::Error::other("it is no plain file"));
                }
                return Ok(File::from(file));
            }
        }
    }
    Err(io::Error::other("it comes and goes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("turnus-lock-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn the_second_daemon_is_told_who_owns_the_device() {
        let folder = folder("second");
        let device = DeviceUuid([7; 16]);
        let mut first = DeviceLocks::new(std::slice::from_ref(&folder), Path::new("/run/first"));
        let mut second = DeviceLocks::new(std::slice::from_ref(&folder), Path::new("/run/second"));
        first.take(device).expect("first");
        first.take(device).expect("again");
        let error = second.take(device).expect_err("taken").to_string();
        assert!(error.contains("/run/first") && error.contains(&std::process::id().to_string()), "{error}");
        second.take(DeviceUuid([8; 16])).expect("another device");
        drop(first);
        second.take(device).expect("free again");
        fs::remove_dir_all(&folder).expect("clean up");
    }

    #[test]
    fn devices_that_nobody_uses_do_not_pile_up() {
        let folder = folder("pile");
        let mut locks = DeviceLocks::new(std::slice::from_ref(&folder), Path::new("/run/first"));
        let device = |number: u8| DeviceUuid([number; 16]);
        locks.take(device(0)).expect("in use");
        for number in 1..=200 {
            locks.take(device(number)).expect("free");
            locks.release(device(number));
        }
        let files = fs::read_dir(&folder).expect("folder").count();
        assert!(files <= KEPT_MAX, "{files} lock files");
        let mut second = DeviceLocks::new(std::slice::from_ref(&folder), Path::new("/run/second"));
        second.take(device(0)).expect_err("given up although in use");
        second.take(device(1)).expect("given up");
        second.take(device(200)).expect_err("kept");
        fs::remove_dir_all(&folder).expect("clean up");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_obstacle_if_another_can() {
        let folder = folder("fallback");
        let folders = [PathBuf::from("/no/such/place"), folder.clone()];
        let device = DeviceUuid([7; 16]);
        let mut first = DeviceLocks::new(&folders, Path::new("/run/first"));
        let mut second = DeviceLocks::new(&folders, Path::new("/run/second"));
        first.take(device).expect("one folder is enough");
        assert!(matches!(second.take(device), Err(DeviceLockError::Taken { .. })));
        let nowhere = DeviceLocks::new(&folders[..1], Path::new("/run/third")).take(device);
        assert!(nowhere.is_err_and(|error| error.to_string().contains("/no/such/place")));
        fs::remove_dir_all(&folder).expect("clean up");
    }

    #[test]
    fn planted_links_and_texts_do_no_harm() {
        let folder = folder("planted");
        let device = DeviceUuid([7; 16]);
        fs::create_dir(&folder).expect("folder");
        let (lock, victim) = (folder.join(file_name(device)), folder.join("victim"));
        fs::write(&victim, "precious").expect("victim");
        let mut locks = DeviceLocks::new(std::slice::from_ref(&folder), Path::new("/run/first"));
        symlink(&victim, &lock).expect("link");
        locks.take(device).expect_err("a symbolic link was followed");
        fs::remove_file(&lock).expect("remove");
        fs::hard_link(&victim, &lock).expect("link");
        locks.take(device).expect_err("another name of a file was written to");
        assert_eq!(fs::read_to_string(&victim).expect("victim"), "precious");
        fs::remove_file(&lock).expect("remove");
        fs::write(&lock, format!("\x1b[2J{}", "x".repeat(1 << 20))).expect("text");
        let other = File::open(&lock).expect("open");
        rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).expect("lock");
        let error = locks.take(device).expect_err("taken").to_string();
        assert!(error.len() < 300 && !error.contains('\x1b'), "{error}");
        let elsewhere = folder.join("elsewhere");
        symlink(&folder, &elsewhere).expect("link");
        DeviceLocks::new(&[elsewhere], Path::new("/run/x")).take(DeviceUuid([9; 16])).expect_err("a link");
        fs::remove_dir_all(&folder).expect("clean up");
    }
}
