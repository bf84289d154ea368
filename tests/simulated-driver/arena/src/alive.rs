//! Who is alive: one byte of the file `alive` per client and per export, locked by an open file description.
//!
//! Such a lock (`F_OFD_SETLK`) goes away when the last duplicate of its description is closed, whether by
//! close, exit, exec or kill; a forked child keeps it, as it keeps /dev/nvidia* open. Asking (`F_OFD_GETLK`)
//! takes no lock, so that asking and dying in the middle of it disturbs nobody.

use crate::error::ArenaError;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file, through a description of this process that never locks anything.
#[derive(Debug)]
pub(crate) struct AliveFile {
    path: PathBuf,
    asker: File,
}

impl AliveFile {
    /// Open (or make) the file of a machine.
    pub(crate) fn open(directory: &Path) -> Result<Self, ArenaError> {
        let path = directory.join("alive");
        let asker = Self::description(&path)?;
        Ok(Self { path, asker })
    }

    fn description(path: &Path) -> Result<File, ArenaError> {
        // One byte of length, so that the first opener also sets the mode.
        crate::files::open_sized(path, 1).map_err(|source| ArenaError::File {
            what: "opening",
            path: path.to_owned(),
            source,
        })
    }

    /// A new close-on-exec description that is not locked yet. Its offset is set to `mark`.
    pub(crate) fn new_description(&self, mark: u64) -> Result<File, ArenaError> {
        let mut file = Self::description(&self.path)?;
        file.seek(SeekFrom::Start(mark))
            .map_err(|source| ArenaError::System { what: "marking a descriptor", source })?;
        Ok(file)
    }

    /// Lock `byte` for the description; false when another one has it.
    pub(crate) fn try_lock(description: &File, byte: u64) -> Result<bool, ArenaError> {
        match ofd_lock(description.as_raw_fd(), libc::F_OFD_SETLK, byte) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(source) => Err(ArenaError::System { what: "locking a byte of the alive file", source }),
        }
    }

    /// Whether some description holds the lock of `byte`.
    pub(crate) fn is_alive(&self, byte: u64) -> bool {
        // An error here (EINVAL on a file system without such locks) would have stopped the attachment; to call
        // a client dead on an error would free memory in use.
        ofd_lock(self.asker.as_raw_fd(), libc::F_OFD_GETLK, byte).map_or(true, |is_locked| is_locked)
    }

    /// The byte in `range` whose lock is held by exactly this description, if it is one of this file.
    pub(crate) fn byte_of(
        &self,
        descriptor: BorrowedFd<'_>,
        range: std::ops::Range<u64>,
    ) -> Result<Option<u64>, ArenaError> {
        let identity = |file: &File| file.metadata().map(|data| (data.dev(), data.ino())).ok();
        let duplicate: OwnedFd = descriptor
            .try_clone_to_owned()
            .map_err(|source| ArenaError::System { what: "duplicating a descriptor", source })?;
        let mut file = File::from(duplicate);
        if identity(&file) != identity(&self.asker) {
            return Ok(None);
        }
        let holds = |byte: u64| {
            let seen_by_itself = ofd_lock(file.as_raw_fd(), libc::F_OFD_GETLK, byte).unwrap_or(true);
            self.is_alive(byte) && !seen_by_itself
        };
        let mark = (&file).stream_position().ok().filter(|mark| range.contains(mark) && holds(*mark));
        let found = mark.or_else(|| range.clone().find(|byte| holds(*byte)));
        if let (None, Some(byte)) = (mark, found) {
            // Somebody moved the offset; put it back for the next look. Failure only costs time.
            let _ = file.seek(SeekFrom::Start(byte));
        }
        Ok(found)
    }
}

/// SETLK: Ok(true) when locked. GETLK: whether another description holds a lock on the byte.
fn ofd_lock(descriptor: i32, command: i32, byte: u64) -> io::Result<bool> {
    // SAFETY: all-zero is a valid `flock`; OFD commands demand l_pid == 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte as libc::off_t;
    lock.l_len = 1;
    // SAFETY: `lock` is a valid flock for the duration of the call; a bad descriptor is answered by an error.
    match unsafe { libc::fcntl(descriptor, command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(command == libc::F_OFD_SETLK || lock.l_type != libc::F_UNLCK as libc::c_short),
    }
}
