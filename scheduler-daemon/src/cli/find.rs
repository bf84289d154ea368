//! Where things are: the daemon's directory, the shim, `turnusd`.
//!
//! Order for the daemon: the socket given (`TURNUS_SOCKET`), the system's, the user's.

use rustix::process::geteuid;
use std::path::{Path, PathBuf};
use turnus_protocol::paths;

/// Where a daemon started by this user serves.
pub fn default_directory() -> PathBuf {
    let uid = geteuid();
    if uid.is_root() {
        return PathBuf::from(paths::SYSTEM_DIRECTORY);
    }
    let runtime_directory = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    paths::user_directory(runtime_directory.as_deref(), uid.as_raw())
}

/// Directories in which a daemon may serve, best first.
pub fn candidate_directories() -> Vec<PathBuf> {
    if let Some(directory) = given_directory() {
        return vec![directory];
    }
    let runtime_directory = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    paths::daemon_directories(runtime_directory.as_deref(), geteuid().as_raw()).to_vec()
}

/// The members' socket that `TURNUS_SOCKET` names, from the root: the program may go elsewhere.
pub fn given_socket() -> Option<PathBuf> {
    let socket = std::env::var_os(paths::SOCKET_VARIABLE).filter(|value| !value.is_empty())?;
    Some(std::path::absolute(&socket).unwrap_or_else(|_| PathBuf::from(socket)))
}

/// Members' sockets to try, best first.
pub fn candidate_sockets() -> Vec<PathBuf> {
    let of = |directory: PathBuf| directory.join(paths::MEMBER_SOCKET);
    given_socket()
        .map_or_else(|| candidate_directories().into_iter().map(of).collect(), |socket| vec![socket])
}

/// The directory whose members' socket `TURNUS_SOCKET` names.
pub fn given_directory() -> Option<PathBuf> {
    let socket = given_socket()?;
    Some(socket.parent()?.parent().unwrap_or(Path::new("/")).to_path_buf())
}

/// A file of this installation: beside this program, or in `../<folder>`.
pub fn installed(folder: &str, name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let beside = program.parent()?;
    let above = beside.parent().unwrap_or(Path::new("/"));
    [beside.join(name), above.join(folder).join(name), above.join("lib/turnus").join(name)]
        .into_iter()
        .find(|path| path.is_file())
}
