//! A daemon that does only what a test tells it: speaks the protocol, opens and closes the gate.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use turnus_gate::page::GatePageWriter;
use turnus_protocol::limits::PROTOCOL_VERSION;
use turnus_protocol::{
    ClientMessage, DaemonMessage, Epoch, Incarnation, MemberId, MemberSettings, decode, encode,
};

/// Longer than anything takes on a loaded machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Daemon {
    listener: OwnedFd,
    pub path: PathBuf,
}

/// One member's connection, welcomed and ready.
pub struct Member {
    socket: OwnedFd,
    pub page: GatePageWriter,
    /// What came before `Ready`, and the greeting.
    pub hello: ClientMessage,
    seen: Vec<ClientMessage>,
}

pub fn settings() -> MemberSettings {
    MemberSettings {
        notice_after_ms: 10_000,
        idle_hold_ms: 2,
        drain_step_ms: 20,
        handle_bytes: 64 << 20,
        in_flight_ms: 50,
    }
}

impl Daemon {
    pub fn listen(path: PathBuf) -> Daemon {
        // SAFETY: plain socket calls on values of this function; the descriptor is owned once.
        let listener = unsafe {
            let raw = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            let mut address: libc::sockaddr_un = std::mem::zeroed();
            address.sun_family = libc::AF_UNIX as libc::sa_family_t;
            for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
                *to = *from as libc::c_char;
            }
            let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
            assert_eq!(
                libc::bind(raw, (&raw const address).cast(), length),
                0,
                "{}",
                io::Error::last_os_error()
            );
            assert_eq!(libc::listen(raw, 8), 0);
            OwnedFd::from_raw_fd(raw)
        };
        Daemon { listener, path }
    }

    /// Waits for a connection and its greeting, without an answer yet.
    pub fn accept_hello(&self) -> (OwnedFd, ClientMessage) {
        assert!(readable(self.listener.as_fd(), PATIENCE), "nobody connected");
        // SAFETY: accept gives a descriptor that nobody else owns.
        let socket = unsafe {
            let flags = libc::SOCK_CLOEXEC;
            let raw =
                libc::accept4(self.listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags);
            assert!(raw >= 0);
            OwnedFd::from_raw_fd(raw)
        };
        let hello = receive(socket.as_fd(), PATIENCE).expect("a greeting");
        (socket, hello)
    }

    /// Waits for a greeting and refuses it.
    pub fn reject(&self, reason: turnus_protocol::Reason, text: &str) {
        let (socket, _) = self.accept_hello();
        send(socket.as_fd(), &DaemonMessage::Rejected { reason, text: text.to_owned() }, None);
    }

    pub fn nobody_connects(&self, for_so_long: Duration) -> bool {
        !readable(self.listener.as_fd(), for_so_long)
    }

    /// Waits for a member and welcomes it in the given life of the daemon.
    pub fn accept_in(&self, incarnation: u64) -> Member {
        let (socket, hello) = self.accept_hello();
        let page = GatePageWriter::create().expect("page");
        let welcome = DaemonMessage::Welcome {
            protocol: PROTOCOL_VERSION,
            incarnation: Incarnation(incarnation),
            member: MemberId(1),
            tenant_name: "test".into(),
            settings: settings(),
        };
        send(socket.as_fd(), &welcome, Some(page.descriptor()));
        Member { socket, page, hello, seen: Vec::new() }
    }

    pub fn accept(&self) -> Member {
        self.accept_in(1)
    }
}

impl Member {
    pub fn send(&self, message: DaemonMessage) {
        send(self.socket.as_fd(), &message, None);
    }

    /// Opens the gate and says so.
    pub fn grant(&self, epoch: u64) {
        self.page.open(epoch);
        self.send(DaemonMessage::TurnGranted { epoch: Epoch(epoch) });
    }

    /// Closes the gate and asks for a drain.
    pub fn drain(&self, epoch: u64) {
        self.page.close(epoch);
        self.send(DaemonMessage::Drain { epoch: Epoch(epoch) });
    }

    /// The next message that the test is after; others are kept and shown when it does not come.
    pub fn expect<T>(&mut self, what: &str, wanted: impl Fn(&ClientMessage) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match receive(self.socket.as_fd(), left) {
                Some(message) => match wanted(&message) {
                    Some(found) => return found,
                    None => self.seen.push(message),
                },
                None => panic!("{what} did not come; seen: {:?}", self.seen),
            }
        }
    }

    pub fn expect_request(&mut self) {
        self.expect("TurnRequested", |message| matches!(message, ClientMessage::TurnRequested).then_some(()));
    }

    pub fn expect_drained(&mut self, epoch: u64) {
        self.expect("Drained", |message| {
            (*message == ClientMessage::Drained { epoch: Epoch(epoch) }).then_some(())
        });
    }

    /// Whether a message that the test is after comes in this time.
    pub fn hears(&mut self, for_so_long: Duration, wanted: impl Fn(&ClientMessage) -> bool) -> bool {
        let end = Instant::now() + for_so_long;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match receive(self.socket.as_fd(), left) {
                Some(message) if wanted(&message) => return true,
                Some(message) => self.seen.push(message),
                None => return false,
            }
        }
    }

    /// Whether the connection has ended by now, or within the patience of a test.
    pub fn ends(&self) -> bool {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let mut byte = [0u8; 4096];
            // SAFETY: the buffer may be written for its whole length.
            let count = unsafe {
                readable(self.socket.as_fd(), Duration::from_millis(100));
                libc::recv(self.socket.as_raw_fd(), byte.as_mut_ptr().cast(), byte.len(), libc::MSG_DONTWAIT)
            };
            if count == 0 {
                return true;
            }
        }
        false
    }

    /// The process of the member.
    pub fn pid(&self) -> i32 {
        // SAFETY: the option writes one ucred of the given size.
        unsafe {
            let mut peer: libc::ucred = std::mem::zeroed();
            let mut length = size_of::<libc::ucred>() as libc::socklen_t;
            let raw = self.socket.as_raw_fd();
            libc::getsockopt(raw, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &mut length);
            peer.pid
        }
    }
}

fn readable(descriptor: BorrowedFd<'_>, at_most: Duration) -> bool {
    let mut entry = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut entry, 1, at_most.as_millis() as libc::c_int) == 1 }
}

fn receive(socket: BorrowedFd<'_>, at_most: Duration) -> Option<ClientMessage> {
    if !readable(socket, at_most) {
        return None;
    }
    let mut bytes = [0u8; 8192];
    // SAFETY: the buffer may be written for its whole length.
    let count = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (count > 0).then(|| decode(&bytes[..count as usize]).expect("a message"))
}

fn send(socket: BorrowedFd<'_>, message: &DaemonMessage, descriptor: Option<BorrowedFd<'_>>) {
    let mut bytes = encode(message).expect("encode");
    let mut control = [0u64; 4];
    // SAFETY: everything the header points to lives until sendmsg returns.
    unsafe {
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        if let Some(descriptor) = descriptor {
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(4) as _;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(first).cast::<i32>().write_unaligned(descriptor.as_raw_fd());
        }
        assert!(
            libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL) > 0,
            "{}",
            io::Error::last_os_error()
        );
    }
}

/// Removes a socket's name, so that the next daemon can take it.
pub fn forget(path: &Path) {
    std::fs::remove_file(path).expect("socket");
}
