//! The one lock of the shared state: a robust, process-shared mutex in the state file.
//!
//! The kernel releases it when its owner dies at any instruction, and tells the next owner, who must repair the
//! state first. A forked child is another thread id and never owns it. Sections under it are microseconds (one
//! step of scrubbing: a few milliseconds), so a stopped owner is the only one who can hold others up.

use crate::error::ArenaError;
use std::cell::UnsafeCell;
use std::io::Error;

/// The mutex as it lies in the state file.
#[repr(transparent)]
pub(crate) struct RobustLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a process-shared pthread mutex is made to be used by many threads at once.
unsafe impl Sync for RobustLock {}

/// Proof that the state is locked by this thread; unlocks when dropped.
pub(crate) struct LockGuard<'lock>(&'lock RobustLock);

impl RobustLock {
    /// Initialise the mutex in place.
    ///
    /// # Safety
    /// No other thread or process may know this memory yet.
    pub(crate) unsafe fn initialise(&self) -> Result<(), ArenaError> {
        // SAFETY: `attribute` is initialised by the first call before the others read it, and nobody else uses
        // the mutex (contract of this function). A zeroed attribute is plain storage.
        let code = unsafe {
            let mut attribute: libc::pthread_mutexattr_t = std::mem::zeroed();
            let codes = [
                libc::pthread_mutexattr_init(&raw mut attribute),
                libc::pthread_mutexattr_setpshared(&raw mut attribute, libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setrobust(&raw mut attribute, libc::PTHREAD_MUTEX_ROBUST),
                libc::pthread_mutex_init(self.0.get(), &raw const attribute),
                libc::pthread_mutexattr_destroy(&raw mut attribute),
            ];
            codes.into_iter().find(|code| *code != 0).unwrap_or(0)
        };
        result(code, "making the state lock")
    }

    /// Wait for the lock. `repair` runs first when the previous owner died in its section; if this process dies
    /// in the repair, the next owner repairs again.
    pub(crate) fn lock(&self, repair: impl FnOnce()) -> Result<LockGuard<'_>, ArenaError> {
        // SAFETY: the mutex was initialised before the state file got its name, and the file stays mapped while
        // `self` is borrowed.
        let code = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        if code == libc::EOWNERDEAD {
            repair();
            // SAFETY: this thread owns the mutex in the inconsistent state, as the function demands.
            result(unsafe { libc::pthread_mutex_consistent(self.0.get()) }, "repairing the state lock")?;
        } else {
            result(code, "taking the state lock")?;
        }
        Ok(LockGuard(self))
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: a guard exists only on the thread that locked (it is not Send: it borrows a raw cell's lock
        // and never leaves the function that made it).
        unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
    }
}

fn result(code: i32, what: &'static str) -> Result<(), ArenaError> {
    match code {
        0 => Ok(()),
        code => Err(ArenaError::System { what, source: Error::from_raw_os_error(code) }),
    }
}
