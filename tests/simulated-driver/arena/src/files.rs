//! Files of the arena directory: made whole or not at all, whoever is killed meanwhile.
//!
//! No locks: a file is filled under a private name and appears under its real one by `link`, which fails when
//! another process was faster. Access rights are those of the directory; the files in it are open to all who
//! can reach it, like device nodes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Make the directory with mode 0700 unless it exists.
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o700))
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
        file.set_len(bytes)?;
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
