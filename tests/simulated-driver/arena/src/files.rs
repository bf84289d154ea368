//! Files of the arena directory: made whole or not at all, whoever is killed meanwhile.
//!
//! No locks: a file is filled under a private name and appears under its real one by `link`, which fails when
//! another process was faster. Who fills a file has it locked meanwhile, so that the next process tells one that a
//! killed process left behind. Space is asked for before it is touched, since a mapped file on a full file system
//! costs the process its life. Access rights are those of the directory; the files in it are open to all who
//! can reach it, like device nodes.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the tables of a machine may grow by before anybody looks again.
const MARGIN_BYTES: u64 = 4 << 20;
/// Files of shared events (`src/shared_event.rs` of the driver): `event-<process>-<number>`.
const EVENT: &str = "event-";

/// Make the directory with mode 0700 unless it exists. Returns whether this call made it.
pub(crate) fn make_directory(directory: &Path) -> io::Result<bool> {
    if directory.is_dir() {
        return Ok(false);
    }
    if fs::symlink_metadata(directory).is_ok() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    Ok(true)
}

/// Whether the file system has room for what tables may grow by. One of which nothing is known has.
pub(crate) fn has_room(directory: &Path) -> bool {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else { return true };
    // SAFETY: all-zero is a valid `statvfs`.
    let mut state: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a C string and `state` valid for writing.
    let is_known = unsafe { libc::statvfs(path.as_ptr(), &raw mut state) } == 0;
    // No blocks at all: a tmpfs without a limit.
    !is_known || state.f_blocks == 0 || state.f_bavail * state.f_frsize >= MARGIN_BYTES
}

/// Let the file have this length. A length above the process's limit is an error, not a signal.
pub(crate) fn set_length(file: &File, bytes: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    if is_known && bytes > limit.rlim_cur {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    file.set_len(bytes)
}

/// Remove what killed processes left: files that they were filling, and their shared events.
pub(crate) fn remove_left_over(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(maker_of);
        if maker.is_some_and(|maker| !is_running(maker)) && is_unlocked(&entry.path()) {
            // Another process may have removed it just now; one that may not be removed does no harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process that made a file which goes away with it.
fn maker_of(name: &str) -> Option<libc::pid_t> {
    let mut parts = match name.strip_prefix(EVENT) {
        Some(rest) => rest.split('-'),
        // .<name>.<process>.<time>.<number>
        None => return name.strip_prefix('.')?.rsplit('.').nth(2)?.parse().ok(),
    };
    parts.next()?.parse().ok()
}

fn is_running(process: libc::pid_t) -> bool {
    // SAFETY: signal 0 only asks whether the process exists.
    process <= 0
        || unsafe { libc::kill(process, 0) } == 0
        || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Makers that live in another container have it locked.
fn is_unlocked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Put `content` at `directory/name` unless it exists. Returns whether this call made it.
pub(crate) fn publish(directory: &Path, name: &str, content: &[u8]) -> io::Result<bool> {
    publish_with(directory, name, |file| file.write_all(content))
}

/// Like [`publish`], but `fill` makes the content.
pub(crate) fn publish_with(
    directory: &Path,
    name: &str,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<bool> {
    let real = directory.join(name);
    if real.exists() {
        return Ok(false);
    }
    let private = private_path(directory, name);
    let made = (|| {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&private)?;
        // Others only find out whether it is locked, and only once this process is gone.
        let _ = file.try_lock();
        file.set_permissions(Permissions::from_mode(0o666))?;
        fill(&mut file)?;
        match fs::hard_link(&private, &real) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    })();
    // A left-over private file is harmless, and the outcome of the publication is what the caller asked for.
    let _ = fs::remove_file(&private);
    made
}

/// Open `path` for reading and writing, close-on-exec, with at least `bytes` of (sparse) length.
pub(crate) fn open_sized(path: &Path, bytes: u64) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.len() < bytes {
        set_length(&file, bytes)?;
        file.set_permissions(Permissions::from_mode(0o666))?;
    }
    Ok(file)
}

fn private_path(directory: &Path, name: &str) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    // Two containers can have the same process ids, so the clock is part of the name.
    let time = crate::clock::now_ns();
    directory.join(format!(".{name}.{}.{time}.{number}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maker_of_a_passing_file_is_in_its_name() {
        assert_eq!(maker_of("event-123-4"), Some(123));
        assert_eq!(maker_of(".state.123.99887766.0"), Some(123));
        assert_eq!(maker_of(".devices.toml.123.99887766.0"), Some(123));
        for name in ["state", "alive", "memory-0", "devices.toml", "lost-0", "xid", ".hidden", "event-x-1"] {
            assert_eq!(maker_of(name), None, "{name}");
        }
    }

    #[test]
    fn files_of_the_dead_are_removed_and_those_of_the_living_are_not() {
        let directory = std::env::temp_dir().join(format!("left-over-{}", std::process::id()));
        make_directory(&directory).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let names = [
            format!("event-{dead}-1"),
            format!(".state.{dead}.5.0"),
            format!("event-{}-1", std::process::id()),
            format!("event-{dead}-2"),
        ];
        let files = names.each_ref().map(|name| File::create(directory.join(name)).unwrap());
        // As one whose process is in another container.
        files[3].try_lock().unwrap();
        remove_left_over(&directory);
        let is_there = names.each_ref().map(|name| directory.join(name).exists());
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(is_there, [false, false, true, true]);
    }
}
