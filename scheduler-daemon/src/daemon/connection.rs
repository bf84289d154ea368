//! One connection: its peer, what it is to us, and what waits to be sent to it.
//!
//! Sending never blocks: what the peer does not read is kept up to a bound, then the connection
//! ends. Receiving is bounded per round by the loop.

use crate::daemon::identity::Peer;
use crate::daemon::pace::Pace;
use crate::packet;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use turnus_core::MemberId;
use turnus_protocol::limits::OUTBOX_MESSAGES_MAX;
use turnus_protocol::{DaemonMessage, DeviceUuid};

/// A peer that has said nothing useful for this long is disconnected.
pub const INTRODUCTION: Duration = Duration::from_secs(10);

/// Last words that the peer does not read for this long are not waited for.
pub const LAST_WORDS: Duration = Duration::from_secs(5);

/// What the peer has turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Has not said yet.
    Unknown,
    /// A member.
    Member(MemberId),
    /// A `turnus run` that has its token.
    Runner,
    /// An administrator, on the other socket.
    Admin,
}

/// A connection to one peer.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub socket: OwnedFd,
    /// Who is there.
    pub peer: Peer,
    /// What it is.
    pub role: Role,
    /// When it connected.
    pub since: Instant,
    /// Answer to its introduction, kept until the state file knows of it: whoever has been answered
    /// is known to the next daemon. Nothing is read before it is sent.
    pub answer: Option<(DaemonMessage, Option<OwnedFd>)>,
    /// Devices that the member has named.
    pub devices: BTreeSet<DeviceUuid>,
    /// Since when it is closed as soon as all is sent; nothing is read any more.
    pub closing: Option<Instant>,
    /// What the loop waits for: to become readable, to become writable.
    pub watched: (bool, bool),
    /// How much it has said lately.
    pub pace: Pace,
    outbox: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
}

/// Why nothing more can be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// It does not read.
    #[error("{0} messages wait and the peer does not read")]
    Full(usize),
    /// It has gone.
    #[error("cannot send: {0}")]
    Io(#[from] io::Error),
}

impl Connection {
    /// A new one.
    pub fn new(socket: OwnedFd, peer: Peer, role: Role) -> Connection {
        Connection {
            socket,
            peer,
            role,
            since: Instant::now(),
            answer: None,
            devices: BTreeSet::new(),
            closing: None,
            watched: (true, false),
            pace: Pace::new(),
            outbox: VecDeque::new(),
        }
    }

    /// Sends now if possible, else when the peer reads. Order is kept.
    pub fn send(&mut self, bytes: Vec<u8>, descriptor: Option<OwnedFd>) -> Result<(), SendError> {
        if self.outbox.len() >= OUTBOX_MESSAGES_MAX {
            return Err(SendError::Full(self.outbox.len()));
        }
        self.outbox.push_back((bytes, descriptor));
        self.flush()
    }

    /// Sends what the peer is ready to take.
    pub fn flush(&mut self) -> Result<(), SendError> {
        while let Some((bytes, descriptor)) = self.outbox.front() {
            match packet::send(&self.socket, bytes, descriptor.as_ref().map(AsFd::as_fd)) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether something waits for the peer to read.
    pub fn has_backlog(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether it has had its time to introduce itself, or to read our last words.
    pub fn is_overdue(&self, now: Instant) -> bool {
        let introduction = self.role == Role::Unknown && now.duration_since(self.since) > INTRODUCTION;
        introduction || self.closing.is_some_and(|since| now.duration_since(since) > LAST_WORDS)
    }

    /// Whether it is only there for a short time.
    pub fn is_passing(&self) -> bool {
        self.role == Role::Unknown || self.closing.is_some()
    }
}
