//! The few lines that the shim ever says to a person.
//!
//! Written with one `write(2)` each, so that lines of several processes do not mix, and without
//! ever raising SIGPIPE in the host. Nothing here allocates a lock that the host could hold.

use crate::config::{Notice, Verbosity};
use std::sync::atomic::{AtomicU8, Ordering};

static VERBOSITY: AtomicU8 = AtomicU8::new(Verbosity::Error as u8);

/// Sets how much is said from here on.
pub(crate) fn set_verbosity(verbosity: Verbosity) {
    VERBOSITY.store(verbosity as u8, Ordering::Relaxed);
}

/// One line because something is wrong.
pub(crate) fn error(text: &str) {
    if VERBOSITY.load(Ordering::Relaxed) >= Verbosity::Error as u8 {
        write_line(libc::STDERR_FILENO, text);
    }
}

/// One line for who looks for a fault in the shim; the text is only made if it is wanted.
pub(crate) fn debug(text: impl FnOnce() -> String) {
    if VERBOSITY.load(Ordering::Relaxed) >= Verbosity::Debug as u8 {
        write_line(libc::STDERR_FILENO, &text());
    }
}

/// One line for the person who waits for the program.
pub(crate) fn notice(place: Notice, text: &str) {
    match place {
        Notice::Off => {}
        Notice::Stderr => write_line(libc::STDERR_FILENO, text),
        Notice::Tty => {
            // SAFETY: the path is a NUL-terminated literal; the descriptor is closed below and
            // never handed out, so nobody else can close or inherit it (O_CLOEXEC).
            let terminal = unsafe {
                libc::open(c"/dev/tty".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NOCTTY)
            };
            if terminal >= 0 {
                write_line(terminal, text);
                // SAFETY: opened above, owned here, closed once.
                unsafe { libc::close(terminal) };
            }
        }
    }
}

fn write_line(descriptor: libc::c_int, text: &str) {
    let line = format!("turnus: {text}\n");
    without_broken_pipe_signal(|| {
        // SAFETY: the buffer outlives the call and its length is given. A failed or short write
        // loses a line, which is the right thing to lose.
        unsafe { libc::write(descriptor, line.as_ptr().cast(), line.len()) };
    });
}

/// Runs `write` so that a SIGPIPE it causes never reaches the host, and one that was already
/// pending stays pending.
fn without_broken_pipe_signal(write: impl FnOnce()) {
    // SAFETY: the sets are initialised by sigemptyset before use; masks are those of this thread
    // and are put back; sigtimedwait with a zero time does not block.
    unsafe {
        let mut pipe: libc::sigset_t = std::mem::zeroed();
        let mut pending: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::sigpending(&mut pending);
        let was_pending = libc::sigismember(&pending, libc::SIGPIPE) == 1;
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        write();
        if !was_pending {
            let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&pipe, std::ptr::null_mut(), &no_time);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_to_a_closed_pipe_does_not_signal_the_host() {
        let mut ends = [0; 2];
        // SAFETY: two descriptors are written to the array; both are closed below, once each.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            libc::close(ends[0]);
            // Rust's runtime ignores SIGPIPE; a C program does not.
            let before = libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            write_line(ends[1], "nobody reads this");
            libc::signal(libc::SIGPIPE, before);
            libc::close(ends[1]);
        }
    }
}
