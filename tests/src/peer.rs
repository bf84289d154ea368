//! A conversation with the daemon's sockets by hand, and a daemon that is none.
//!
//! For tests of what strangers can do to the daemon and what a strange daemon can do to programs.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use turnus_protocol::limits::MESSAGE_BYTES_MAX;
use turnus_protocol::{ClientMessage, DaemonMessage, decode, encode};
use turnus_scheduler::packet;

/// One connection.
#[derive(Debug)]
pub struct Peer {
    socket: OwnedFd,
}

impl Peer {
    /// Connects, or says why not.
    pub fn connect(path: &Path) -> Option<Peer> {
        packet::connect(path).ok().map(|socket| Peer { socket })
    }

    /// Sends any bytes as one packet.
    pub fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        packet::send(&self.socket, bytes, None)
    }

    /// Sends a message.
    pub fn send(&self, message: &ClientMessage) -> io::Result<()> {
        self.send_bytes(&encode(message).expect("a message of the protocol"))
    }

    /// Sends without waiting; `WouldBlock` when the daemon does not take more.
    pub fn set_nonblocking(&self) {
        rustix::io::ioctl_fionbio(&self.socket, true).expect("a socket can be made non-blocking");
    }

    /// The next message within the time; `None` at the end of the conversation or of the time.
    pub fn receive(&self, at_most_ms: i64) -> Option<DaemonMessage> {
        if !is_readable(&self.socket, at_most_ms) {
            return None;
        }
        let packet = packet::receive(&self.socket, MESSAGE_BYTES_MAX).ok()??;
        decode(&packet.bytes).ok()
    }

    /// Whether the daemon ends the conversation within the time; what it still says is skipped.
    pub fn is_ended(&self, at_most_ms: i64) -> bool {
        while is_readable(&self.socket, at_most_ms) {
            match packet::receive(&self.socket, MESSAGE_BYTES_MAX) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return true,
            }
        }
        false
    }
}

fn is_readable(socket: impl AsFd, at_most_ms: i64) -> bool {
    let time = Timespec { tv_sec: at_most_ms / 1000, tv_nsec: at_most_ms % 1000 * 1_000_000 };
    poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&time)).is_ok_and(|count| count > 0)
}

fn listen(path: &Path) -> rustix::io::Result<OwnedFd> {
    let _ = std::fs::remove_file(path);
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 64)?;
    Ok(socket)
}

/// Something that answers each packet with the same bytes on the members' socket of a directory.
#[derive(Debug)]
pub struct FakeDaemon {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeDaemon {
    /// Serves until dropped. Empty bytes: it takes packets and says nothing.
    pub fn start(socket: &Path, answer: Vec<u8>) -> FakeDaemon {
        std::fs::create_dir_all(socket.parent().expect("a socket lies in a folder")).expect("the folder");
        let listener = listen(socket).expect("the fake daemon can listen");
        let ends = Arc::new(AtomicBool::new(false));
        let until = ends.clone();
        let thread = std::thread::spawn(move || {
            let mut connections: Vec<OwnedFd> = Vec::new();
            while !until.load(Ordering::Acquire) {
                if is_readable(&listener, 5) {
                    connections.extend(rustix::net::accept(&listener));
                }
                connections.retain(|connection| {
                    if !is_readable(connection, 0) {
                        return true;
                    }
                    let is_open = matches!(packet::receive(connection, MESSAGE_BYTES_MAX), Ok(Some(_)));
                    is_open && (answer.is_empty() || packet::send(connection, &answer, None).is_ok())
                });
            }
        });
        FakeDaemon { ends, thread: Some(thread) }
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
