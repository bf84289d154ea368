//! Where the sockets are and in which order a client looks for them.
//!
//! Pure: the environment is handed in. Order of the design: the socket given, the system's
//! daemon, the user's daemon; `turnus run` starts a private one after that.

use std::path::{Path, PathBuf};

/// Names the socket to use; set by `turnus run` for the program.
pub const SOCKET_VARIABLE: &str = "TURNUS_SOCKET";
/// Carries the tenant's capability from `turnus run` to the members.
pub const TOKEN_VARIABLE: &str = "TURNUS_TOKEN";
/// The system daemon's directory.
pub const SYSTEM_DIRECTORY: &str = "/run/turnus";
/// The members' socket inside a daemon's directory.
pub const MEMBER_SOCKET: &str = "members/turnusd.sock";
/// The admin socket, in a directory of its own that is never mounted into containers.
pub const ADMIN_SOCKET: &str = "admin/turnusd.sock";
/// Longest path of a Unix socket on Linux (`sun_path` less its NUL).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The directory of a user's own daemon: below `XDG_RUNTIME_DIR`, else `/tmp/turnus-<uid>`.
pub fn user_directory(runtime_directory: Option<&Path>, uid: u32) -> PathBuf {
    match runtime_directory {
        Some(directory) if directory.is_absolute() => directory.join("turnus"),
        _ => PathBuf::from(format!("/tmp/turnus-{uid}")),
    }
}

/// Daemon directories to try, in order, when no socket was given.
pub fn daemon_directories(runtime_directory: Option<&Path>, uid: u32) -> [PathBuf; 2] {
    [PathBuf::from(SYSTEM_DIRECTORY), user_directory(runtime_directory, uid)]
}

/// Whether the path can be the address of a Unix socket.
pub fn fits_socket(path: &Path) -> bool {
    path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX
}
