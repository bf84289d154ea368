//! Who is at the other end: from the kernel, never from what the peer says.
//!
//! Process id and user come from SO_PEERCRED; a pidfd tells when that process ends, also when a
//! forked child keeps the connection open. The start time tells a process from a later one with
//! the same number.

use nix::sys::socket::{getsockopt, sockopt};
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A process, told apart from all others that ever ran on this host since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// As the daemon's pid namespace numbers it.
    pub pid: u32,
    /// Clock ticks after boot at which it started.
    pub start_time: u64,
}

/// The peer of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Which process connected.
    pub process: Process,
    /// Its effective user then.
    pub uid: u32,
    /// Becomes readable when the process ends.
    pub pidfd: OwnedFd,
}

impl Peer {
    /// Asks the kernel. Fails for a process that has ended or is not visible from our namespace.
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        let credentials = getsockopt(&socket.as_fd(), sockopt::PeerCredentials)?;
        // Zero: the process lives in a pid namespace that we do not see.
        let process_id = Pid::from_raw(credentials.pid()).ok_or(io::ErrorKind::NotFound)?;
        let pidfd = match getsockopt(&socket.as_fd(), sockopt::PeerPidfd) {
            Ok(pidfd) => pidfd,
            // Linux before 6.5: a little later, but the start time below still belongs to it.
            Err(_) => rustix::process::pidfd_open(process_id, PidfdFlags::empty())?,
        };
        let pid = process_id.as_raw_nonzero().get() as u32;
        let start_time = start_time(pid)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has ended")))?;
        Ok(Peer { process: Process { pid, start_time }, uid: credentials.uid(), pidfd })
    }
}

/// Whether exactly this process still runs.
pub fn is_alive(process: Process) -> bool {
    start_time(process.pid) == Some(process.start_time)
}

/// A pidfd of exactly this process, or `None` if it has ended.
pub fn pidfd_of(process: Process) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    is_alive(process).then_some(pidfd)
}

/// Field 22 of `/proc/PID/stat`; `None` for no process and for a zombie. A process whose first
/// thread has ended looks like a zombie that has more threads than one (field 20), and lives.
fn start_time(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, also parentheses and spaces.
    let rest = &text[text.rfind(')')? + 2..];
    let fields: Vec<&str> = rest.split(' ').collect();
    let threads: u64 = fields.get(17)?.parse().ok()?;
    if matches!(*fields.first()?, "Z" | "X") && threads <= 1 {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// The program's name as the kernel has it, for people only; cleaned.
pub fn program_name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    turnus_protocol::name::clean(name.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let pid = std::process::id();
        let own = Process { pid, start_time: start_time(pid).expect("we run") };
        assert!(is_alive(own) && pidfd_of(own).is_some());
        let earlier = Process { start_time: own.start_time - 1, ..own };
        assert!(!is_alive(earlier) && pidfd_of(earlier).is_none());
    }
}
