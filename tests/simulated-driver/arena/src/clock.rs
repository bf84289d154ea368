//! Time of the simulated machine: CLOCK_MONOTONIC, shared by all processes, and precise waiting.
//!
//! All deadlines are nanoseconds of this clock. Waiting sleeps most of the time and yields through the rest, so
//! that a deadline is met within some microseconds without burning a core.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a sleeping thread may be late by; this much is spent yielding.
const WAKE_MARGIN_NS: u64 = 80_000;
/// Longest sleep without a look at the cancel flag.
const SLEEP_NS_MAX: u64 = 5_000_000;

/// Now, in nanoseconds of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec, which `time` is; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The same clock as [`now_ns`], some milliseconds behind it, for a few nanoseconds.
pub(crate) fn coarse_now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec, which `time` is; the clock exists on all Linux systems.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Wait until `deadline_ns`.
pub fn sleep_until(deadline_ns: u64) {
    sleep_until_or(deadline_ns, &AtomicBool::new(false));
}

/// Wait until `deadline_ns` or until `cancel` is true, seen within 5 ms. Returns false when cancelled.
pub fn sleep_until_or(deadline_ns: u64, cancel: &AtomicBool) -> bool {
    sleep_coarsely(deadline_ns.saturating_sub(WAKE_MARGIN_NS), cancel) && {
        while now_ns() < deadline_ns {
            std::thread::yield_now();
        }
        true
    }
}

/// Like [`sleep_until_or`], but late by what the system's timers are late by, and without yielding.
pub(crate) fn sleep_coarsely(deadline_ns: u64, cancel: &AtomicBool) -> bool {
    loop {
        if cancel.load(Ordering::Relaxed) {
            return false;
        }
        let now = now_ns();
        if now >= deadline_ns {
            return true;
        }
        sleep_to(deadline_ns.min(now + SLEEP_NS_MAX));
    }
}

fn sleep_to(time_ns: u64) {
    let time = libc::timespec {
        tv_sec: (time_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (time_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: both pointers are valid for the call; an interruption only ends the sleep early, and the caller
    // looks at the clock again.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut(),
        )
    };
}
