//! How other threads wake the one that polls the socket: an eventfd.
//!
//! If the system has none left, nobody is woken early and the poller looks again by itself.

use core::time::Duration;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Longest sleep without a bell.
const WITHOUT_BELL: Duration = Duration::from_millis(1);

/// One bell for one poller.
#[derive(Debug)]
pub(crate) struct Bell(Option<OwnedFd>);

impl Bell {
    /// A bell that has not rung.
    pub(crate) fn new() -> Bell {
        // SAFETY: a non-negative answer is a descriptor that nobody else owns.
        Bell(unsafe {
            let raw = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            (raw >= 0).then(|| OwnedFd::from_raw_fd(raw))
        })
    }

    /// Wakes the poller, now or at its next sleep.
    pub(crate) fn ring(&self) {
        if let Some(bell) = &self.0 {
            let one = 1u64;
            // SAFETY: eight bytes are read from a variable of this function.
            unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// Sleeps until the socket has something, the bell rang, or the time is over.
    pub(crate) fn wait(&self, socket: RawFd, at_most: Duration) {
        let bell = self.0.as_ref().map_or(-1, |bell| bell.as_raw_fd());
        let at_most = if bell < 0 { at_most.min(WITHOUT_BELL) } else { at_most };
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = [entry(socket), entry(bell)];
        let milliseconds = libc::c_int::try_from(at_most.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: two valid entries (negative descriptors are skipped); eight bytes may be
        // written to `count`.
        unsafe {
            libc::poll(entries.as_mut_ptr(), 2, milliseconds);
            if entries[1].revents != 0 {
                let mut count = 0u64;
                libc::read(bell, (&raw mut count).cast(), 8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_ring_before_the_sleep_is_not_lost_and_counts_once() {
        let bell = Bell::new();
        bell.ring();
        let start = Instant::now();
        bell.wait(-1, Duration::from_secs(20));
        assert!(start.elapsed() < Duration::from_secs(10));
        let start = Instant::now();
        bell.wait(-1, Duration::from_millis(30));
        assert!(start.elapsed() >= Duration::from_millis(25), "an old ring woke the second sleep");
    }
}
