//! The bound on launches that a stream has taken and not finished.
//!
//! On the card a launch into a full queue does not return until a kernel has finished; programs
//! notice (a thread is held inside a launch), so it happens here too. Only `submit` waits; nothing
//! that could finish a kernel does.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

/// Unfinished launches of one stream before the next one waits. No interface tells the number;
/// programs meet it at about a thousand per stream (stackoverflow.com/questions/53970187).
pub(super) const LAUNCHES_MAX: usize = 1024;

/// Counts unfinished launches of a stream.
#[derive(Debug, Default)]
pub(super) struct LaunchQueue {
    unfinished: AtomicUsize,
    lock: Mutex<()>,
    room: Condvar,
}

impl LaunchQueue {
    /// Waits while the queue is full. Threads that pass at the same time may exceed the bound by
    /// their number.
    pub(super) fn wait_for_room(&self) {
        if self.unfinished.load(Ordering::Acquire) < LAUNCHES_MAX {
            return;
        }
        let mut guard = self.lock.lock();
        while self.unfinished.load(Ordering::Acquire) >= LAUNCHES_MAX {
            self.room.wait(&mut guard);
        }
    }

    pub(super) fn enter(&self) {
        self.unfinished.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn leave(&self) {
        if self.unfinished.fetch_sub(1, Ordering::AcqRel) >= LAUNCHES_MAX {
            // Under the lock, so that a thread about to wait has either seen the room or waits.
            let _guard = self.lock.lock();
            self.room.notify_all();
        }
    }
}
