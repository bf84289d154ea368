//! The daemon's side of the ledger: what it believes this process holds.
//!
//! Panics when a message would make it believe nonsense (more returned than held). Gives credits
//! only when the test says so. Segments are real memfds.

use crate::memory::{Claims, Lease, Scheduler};
use std::collections::BTreeMap;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use turnus_protocol::{ClientMessage, DeviceUuid, Reason, SegmentId};

/// The only device of most tests.
pub(super) const DEVICE: DeviceUuid = DeviceUuid([7; 16]);

/// What the daemon believes.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) virtual_bytes: u64,
    /// Credits given and not returned.
    pub(super) held_bytes: u64,
    pub(super) wanted_bytes: u64,
    pub(super) segments: BTreeMap<SegmentId, u64>,
    pub(super) is_ready: bool,
    pub(super) shorts: u64,
    pub(super) wakes: u64,
    pub(super) answer: Option<(u64, u64)>,
    pub(super) limit_bytes: Option<u64>,
    pub(super) refuses_leases: bool,
    pub(super) leases_left: Option<u64>,
    pub(super) capture_is_open: bool,
    pub(super) submissions: Option<u64>,
    pub(super) connection: u64,
    /// Replaced while a `Reserve` is under way, so many times.
    pub(super) replacements: u64,
    pub(super) log: Vec<ClientMessage>,
    last_segment: u64,
}

/// Shared by the memory and its test.
#[derive(Debug, Clone, Default)]
pub(super) struct FakeDaemon(Arc<Mutex<Books>>);

impl FakeDaemon {
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().expect("a test has failed before")
    }
}

impl Books {
    /// A new daemon believes the claims.
    pub(super) fn believe(&mut self, connection: u64, claims: &Claims<'_>) {
        let devices = &claims.devices;
        self.connection = connection;
        self.wanted_bytes = 0;
        self.virtual_bytes = devices.iter().map(|claim| claim.virtual_bytes).sum();
        self.held_bytes = devices.iter().map(|claim| claim.resident_bytes).sum();
        self.segments = claims.segments.iter().map(|(id, bytes, _)| (*id, *bytes)).collect();
    }

    fn take_back(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.checked_sub(bytes).expect("more credits returned than held");
    }
}

impl Scheduler for FakeDaemon {
    fn reserve(&self, _device: DeviceUuid, bytes: u64) -> Result<u64, Option<Reason>> {
        let mut books = self.books();
        if books.limit_bytes.is_some_and(|limit| books.virtual_bytes + bytes > limit) {
            return Err(Some(Reason::TenantLimit));
        }
        let answered = books.connection;
        if books.replacements > 0 {
            // The answer is of a daemon that is gone when it arrives.
            books.replacements -= 1;
            return Ok(answered + 1000);
        }
        books.virtual_bytes += bytes;
        Ok(answered)
    }

    fn query(&self, _device: DeviceUuid) -> Option<(u64, u64)> {
        self.books().answer
    }

    fn lease(&self, bytes: u64) -> Option<Lease> {
        let mut books = self.books();
        if books.refuses_leases || books.leases_left == Some(0) {
            return None;
        }
        books.leases_left = books.leases_left.map(|left| left - 1);
        books.last_segment += 1;
        let segment = SegmentId(books.last_segment);
        books.segments.insert(segment, bytes);
        // SAFETY: a new descriptor that nobody else knows; its length is set before it is used.
        let descriptor = unsafe {
            let descriptor = libc::memfd_create(c"segment".as_ptr(), libc::MFD_CLOEXEC);
            assert!(descriptor >= 0 && libc::ftruncate(descriptor, bytes as libc::off_t) == 0);
            OwnedFd::from_raw_fd(descriptor)
        };
        Some(Lease { segment, bytes, descriptor, connection: books.connection })
    }

    fn send(&self, message: ClientMessage) {
        let mut books = self.books();
        match &message {
            ClientMessage::CreditsWanted { bytes, .. } => books.wanted_bytes += bytes,
            ClientMessage::CreditsReturned { bytes, .. } => books.take_back(*bytes),
            ClientMessage::CreditsShort { bytes, .. } => {
                books.take_back(*bytes);
                books.wanted_bytes += bytes;
                books.shorts += 1;
            }
            ClientMessage::Unreserve { bytes, .. } => {
                books.virtual_bytes =
                    books.virtual_bytes.checked_sub(*bytes).expect("more freed than was admitted");
            }
            ClientMessage::SegmentReturned { segment } => {
                books.segments.remove(segment).expect("returned a segment that was not leased");
            }
            ClientMessage::Moved { .. } => {}
            other => panic!("the memory has no business to say {other:?}"),
        }
        books.log.push(message);
    }

    fn frames_missing(&self) {
        self.books().is_ready = false;
    }

    fn wake_worker(&self) {
        self.books().wakes += 1;
    }

    fn capture_is_open(&self) -> bool {
        self.books().capture_is_open
    }

    fn submissions(&self) -> Option<u64> {
        self.books().submissions
    }
}
