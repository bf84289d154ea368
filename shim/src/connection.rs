//! The socket to the daemon: connecting, sending from any thread, receiving in one.
//!
//! SEQPACKET: one packet is one message. Nothing here decides anything; a send that fails is
//! dropped, since the thread that receives sees the same end of the connection and acts on it.

use crate::message;
use core::mem::{size_of, zeroed};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use turnus_protocol::limits::MESSAGE_BYTES_MAX;
use turnus_protocol::{ClientMessage, DaemonMessage};

/// A daemon that takes no message for this long is as good as lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// A socket of our own, not yet known to other threads.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// Why no message came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    /// The daemon closed the connection.
    #[error("the daemon closed the connection")]
    Closed,
    /// Nothing yet.
    #[error("no message has arrived")]
    Empty,
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
    /// Not a message.
    #[error("the daemon sent no message of ours: {0}")]
    Message(#[from] turnus_protocol::CodecError),
}

impl Socket {
    /// Connects to a daemon's socket.
    pub(crate) fn connect(path: &Path) -> io::Result<Socket> {
        let bytes = path.as_os_str().as_bytes();
        // SAFETY: all-zero is a valid sockaddr_un.
        let mut address: libc::sockaddr_un = unsafe { zeroed() };
        if bytes.len() >= address.sun_path.len() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (target, byte) in address.sun_path.iter_mut().zip(bytes) {
            *target = *byte as libc::c_char;
        }
        // SAFETY: a non-negative answer is a descriptor that nobody else owns.
        let socket = unsafe {
            let raw = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            if raw < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(raw)
        };
        let time = libc::timeval { tv_sec: SEND_TIMEOUT.as_secs() as libc::time_t, tv_usec: 0 };
        // SAFETY: the option is valid for its size.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_SNDTIMEO,
                (&raw const time).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            );
        }
        let (address, bytes) = (&raw const address, size_of::<libc::sockaddr_un>() as libc::socklen_t);
        loop {
            // SAFETY: the address is valid for its size.
            if unsafe { libc::connect(socket.as_raw_fd(), address.cast(), bytes) } == 0 {
                return Ok(Socket(socket));
            }
            // A signal of the program's is no reason to think that there is no daemon.
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Whether root or this process's own user listens there. A daemon makes the memory in which
    /// evicted bytes lie; one that nobody named must not be a stranger's.
    pub(crate) fn is_served_by_a_friend(&self) -> bool {
        let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the option writes at most the given size to the structure; geteuid cannot fail.
        let (answered, own) = unsafe {
            let answer = libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &mut bytes,
            );
            (answer == 0, libc::geteuid())
        };
        answered && (peer.uid == 0 || peer.uid == own)
    }

    /// Sends one message, with a descriptor beside it if one is given.
    pub(crate) fn send(&self, message: &ClientMessage, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        send(self.0.as_raw_fd(), message, descriptor)
    }

    /// Waits at most so long for one message.
    pub(crate) fn receive(
        &self,
        at_most: Duration,
    ) -> Result<(DaemonMessage, Option<OwnedFd>), ReceiveError> {
        let end = Instant::now() + at_most;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut entry = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry.
            let ready = unsafe { libc::poll(&mut entry, 1, left.as_millis() as libc::c_int) };
            if ready > 0 {
                match receive(self.0.as_raw_fd()) {
                    Err(ReceiveError::Empty) => {}
                    answer => return answer,
                }
            }
            // Interrupted by a signal of the program's: the rest of the time is still to come.
            let interrupted = ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            if left.is_zero() || ready <= 0 && !interrupted {
                return Err(ReceiveError::Empty);
            }
        }
    }
}

/// The connection as all threads see it; replaced when a new daemon welcomes us.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Mutex<Option<OwnedFd>>,
    /// The same descriptor, for the thread that polls and for the child of a fork.
    raw: AtomicI32,
    number: AtomicU64,
}

impl Connection {
    /// Takes over a socket on which the daemon has said welcome.
    pub(crate) fn new(socket: Socket) -> Connection {
        let raw = AtomicI32::new(socket.0.as_raw_fd());
        Connection { socket: Mutex::new(Some(socket.0)), raw, number: AtomicU64::new(0) }
    }

    /// Which connection this is; grows with each.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// The descriptor, or -1. Only for polling and for closing it in the child of a fork.
    pub(crate) fn raw(&self) -> RawFd {
        self.raw.load(Ordering::Acquire)
    }

    /// Sends one message; drops it when there is no daemon.
    pub(crate) fn send(&self, message: &ClientMessage) {
        self.send_locked(&self.socket.lock().unwrap_or_else(PoisonError::into_inner), message);
    }

    /// As [`Connection::send`], but only on this connection. False: there is a later one.
    pub(crate) fn send_on(&self, number: u64, message: &ClientMessage) -> bool {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = self.number() == number;
        if is_it {
            self.send_locked(&socket, message);
        }
        is_it
    }

    fn send_locked(&self, socket: &Option<OwnedFd>, message: &ClientMessage) {
        if let Some(socket) = socket.as_ref()
            && let Err(error) = send(socket.as_raw_fd(), message, None)
        {
            message::debug(|| format!("a message was not sent: {error}"));
            // Whoever receives sees the end and does what has to be done.
            // SAFETY: the descriptor is open; shutdown changes only the connection.
            unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }

    /// Receives one message without waiting. Only the client thread calls this.
    pub(crate) fn receive(&self) -> Result<(DaemonMessage, Option<OwnedFd>), ReceiveError> {
        match self.raw() {
            -1 => Err(ReceiveError::Closed),
            raw => receive(raw),
        }
    }

    /// Forgets the daemon.
    pub(crate) fn close(&self) {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        self.raw.store(-1, Ordering::Release);
        *socket = None;
    }

    /// Takes over the socket of a new daemon, as connection `number`.
    pub(crate) fn replace(&self, new: Socket, number: u64) {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        self.raw.store(new.0.as_raw_fd(), Ordering::Release);
        self.number.store(number, Ordering::Release);
        *socket = Some(new.0);
    }
}

fn send(socket: RawFd, message: &ClientMessage, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut bytes = turnus_protocol::encode(message)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = ControlBuffer([0; 64]);
    // SAFETY: the header and everything it points to live on this stack until sendmsg returns;
    // the control buffer is large and aligned enough for one descriptor.
    let sent = unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        if let Some(descriptor) = descriptor {
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(descriptor.as_raw_fd());
        }
        loop {
            let sent = libc::sendmsg(socket, &header, libc::MSG_NOSIGNAL);
            if sent >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break sent;
            }
        }
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[repr(align(8))]
struct ControlBuffer([u8; 64]);

fn receive(socket: RawFd) -> Result<(DaemonMessage, Option<OwnedFd>), ReceiveError> {
    let mut bytes = [0u8; MESSAGE_BYTES_MAX];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = ControlBuffer([0; 64]);
    // SAFETY: as in `send`; descriptors that arrive are owned by nobody else.
    let (count, descriptor, flags) = unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let count = libc::recvmsg(socket, &mut header, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC);
        if count < 0 {
            let error = io::Error::last_os_error();
            return Err(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => ReceiveError::Empty,
                io::ErrorKind::ConnectionReset => ReceiveError::Closed,
                _ => ReceiveError::Socket(error),
            });
        }
        let first = libc::CMSG_FIRSTHDR(&header);
        let has_descriptor = !first.is_null()
            && (*first).cmsg_level == libc::SOL_SOCKET
            && (*first).cmsg_type == libc::SCM_RIGHTS;
        let descriptor = has_descriptor
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<RawFd>().read_unaligned()));
        (count as usize, descriptor, header.msg_flags)
    };
    if count == 0 {
        return Err(ReceiveError::Closed);
    }
    if flags & libc::MSG_TRUNC != 0 {
        return Err(ReceiveError::Message(turnus_protocol::CodecError::TooLong(count)));
    }
    Ok((turnus_protocol::decode(&bytes[..count])?, descriptor))
}
