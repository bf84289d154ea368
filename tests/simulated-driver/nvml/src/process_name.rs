//! The name of a process of this system, as NVML tells it.
//!
//! Asked of /proc at each call; a process in another process id namespace is not found.

use crate::code::{Error, Result};

/// The program's path as the process was started with it; kernel threads and zombies have the short name.
pub fn process_name(pid: u32) -> Result<String> {
    let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}"));
    let command = read("cmdline").map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Error::NO_PERMISSION,
        _ => Error::NOT_FOUND,
    })?;
    let first = command.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = if first.is_empty() { read("comm").map_err(|_| Error::NOT_FOUND)? } else { first.to_vec() };
    Ok(String::from_utf8_lossy(&name).trim_end().to_owned())
}
