//! The memory page with the gate word: the daemon writes, members read and wait on it.
//!
//! A memfd of one page per tenant. It is sealed with `F_SEAL_FUTURE_WRITE` after the daemon has
//! mapped it, so that no member can ever open its own gate, and against resizing, so that no
//! read can fault. Waiting is a shared futex on the word; waking needs no thread of the shim.

use crate::gate::DaemonWord;
use crate::word;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Size of the page and of its memfd, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// What lies in the page. Each field has its own cache line: they change at different times.
#[repr(C)]
struct Layout {
    word: AlignedWord,
    others_waiting: AlignedWord,
}

#[repr(C, align(128))]
struct AlignedWord(AtomicU32);

/// The daemon's side of one tenant's page.
#[derive(Debug)]
pub struct GatePageWriter {
    mapping: Mapping,
    descriptor: OwnedFd,
}

impl GatePageWriter {
    /// Makes a page whose gate is closed. Errors are those of memfd_create, ftruncate, mmap, fcntl.
    pub fn create() -> io::Result<GatePageWriter> {
        // SAFETY: the name is a NUL-terminated literal; a non-negative answer is a descriptor
        // that nobody else owns.
        let descriptor = unsafe {
            let raw =
                libc::memfd_create(c"turnus-gate".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            if raw < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(raw)
        };
        let file = File::from(descriptor);
        file.set_len(PAGE_BYTES as u64)?;
        let descriptor = OwnedFd::from(file);
        let mapping = Mapping::new(descriptor.as_fd(), libc::PROT_READ | libc::PROT_WRITE)?;
        const SEALS: libc::c_int =
            libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: fcntl with F_ADD_SEALS takes an integer and changes only the memfd.
        if unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(GatePageWriter { mapping, descriptor })
    }

    /// What a member gets to map.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Opens the gate for a turn and wakes who waits.
    pub fn open(&self, epoch: u64) {
        self.mapping.layout().word.0.store(word::open(epoch), Ordering::Release);
        wake_all(&self.mapping.layout().word.0);
    }

    /// Closes the gate after a turn. Nobody waits for a closed gate, so nobody is woken.
    pub fn close(&self, epoch: u64) {
        self.mapping.layout().word.0.store(word::closed(epoch), Ordering::Release);
    }

    /// Publishes how many other tenants wait, for members to know whether idling matters.
    pub fn set_others_waiting(&self, count: u32) {
        self.mapping.layout().others_waiting.0.store(count, Ordering::Relaxed);
    }
}

/// A member's side: read-only, mapped until the process ends or the value is dropped.
#[derive(Debug)]
pub struct GatePage {
    mapping: Mapping,
}

impl GatePage {
    /// Maps a received page. Refuses a descriptor that is too short or not sealed: reading it
    /// could fault later, and a fault in a stranger's process is the one thing not allowed.
    pub fn map(descriptor: OwnedFd) -> io::Result<GatePage> {
        const NEEDED: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        // SAFETY: F_GET_SEALS takes no pointer; -1 for a descriptor that is no memfd.
        let seals = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & NEEDED != NEEDED {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "gate page is not sealed"));
        }
        let file = File::from(descriptor);
        if file.metadata()?.len() < PAGE_BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "gate page is too short"));
        }
        Ok(GatePage { mapping: Mapping::new(file.as_fd(), libc::PROT_READ)? })
    }

    /// The daemon's word, for [`crate::gate::Gate::try_enter`].
    #[inline(always)]
    pub fn word(&self) -> &DaemonWord {
        &self.mapping.layout().word.0
    }

    /// How many other tenants wait for a device of this tenant.
    pub fn others_waiting(&self) -> u32 {
        self.mapping.layout().others_waiting.0.load(Ordering::Relaxed)
    }

    /// Sleeps until the word is no longer `seen`, a signal handler ran, or the time is over.
    /// Spurious returns happen; the caller looks at the word again.
    pub fn wait_while(&self, seen: u32, at_most: Duration) {
        wait_on(&self.mapping.layout().word.0, seen, at_most, false);
    }
}

/// Sleeps on a word of this process's own memory; see [`GatePage::wait_while`].
pub fn wait_private(word: &AtomicU32, seen: u32, at_most: Duration) {
    wait_on(word, seen, at_most, true);
}

/// Wakes all who sleep in [`wait_private`] on this word.
pub fn wake_private(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE reads no memory; the address only names the queue.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX);
    }
}

fn wait_on(word: &AtomicU32, seen: u32, at_most: Duration, private: bool) {
    let time = libc::timespec {
        tv_sec: at_most.as_secs().min(3600) as libc::time_t,
        tv_nsec: libc::c_long::from(at_most.subsec_nanos()),
    };
    let operation = libc::FUTEX_WAIT | if private { libc::FUTEX_PRIVATE_FLAG } else { 0 };
    // SAFETY: the word outlives the call (borrowed), is aligned, and a read-only mapping is
    // enough for FUTEX_WAIT; the time is a valid relative timespec on this stack.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, seen, &raw const time);
    }
}

fn wake_all(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE reads no memory; the address only names the queue.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

/// One mapped page, unmapped on drop.
#[derive(Debug)]
struct Mapping(*mut Layout);

// SAFETY: the page holds only atomics, and the pointer is owned by this value alone.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access goes through atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(descriptor: BorrowedFd<'_>, protection: libc::c_int) -> io::Result<Mapping> {
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing; the
        // descriptor is borrowed for the call and the mapping keeps the memfd alive by itself.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                protection,
                libc::MAP_SHARED,
                descriptor.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Mapping(address.cast()))
        }
    }

    fn layout(&self) -> &Layout {
        // SAFETY: the mapping is PAGE_BYTES long, page-aligned, sealed against shrinking, and
        // all-zero bytes are valid atomics; it lives as long as `self`.
        unsafe { &*self.0 }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the address and length are those of `Mapping::new`; nobody borrows the layout.
        unsafe {
            libc::munmap(self.0.cast(), PAGE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Barrier, Gate, ThreadMark};

    #[test]
    fn a_member_sees_the_gate_open_and_close_and_cannot_write_the_page() {
        let writer = GatePageWriter::create().expect("page");
        let descriptor = writer.descriptor().try_clone_to_owned().expect("dup");
        assert!(
            Mapping::new(descriptor.as_fd(), libc::PROT_READ | libc::PROT_WRITE).is_err(),
            "a member mapped its gate page writable"
        );
        let page = GatePage::map(descriptor).expect("map");
        let (gate, mark) = (Gate::new(Barrier::best()), ThreadMark::new());
        assert!(!gate.try_enter(&mark, page.word()), "passed before any turn");
        writer.open(7);
        assert!(!gate.try_enter(&mark, page.word()), "passed before the bytes were restored");
        gate.set_ready(word::open(7));
        assert!(gate.try_enter(&mark, page.word()) && mark.is_inside());
        mark.leave();
        writer.close(7);
        assert!(!gate.try_enter(&mark, page.word()) && !mark.is_inside());
        assert_eq!(mark.submissions(), 1);
    }

    #[test]
    fn an_unsealed_page_is_refused() {
        let file = tempfile();
        assert!(GatePage::map(file).is_err());
    }

    fn tempfile() -> OwnedFd {
        // SAFETY: as in `GatePageWriter::create`; without sealing on purpose.
        unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"unsealed".as_ptr(), libc::MFD_CLOEXEC)) }
    }

    #[test]
    fn a_waiter_wakes_when_the_gate_opens() {
        let writer = GatePageWriter::create().expect("page");
        let page = GatePage::map(writer.descriptor().try_clone_to_owned().expect("dup")).expect("map");
        let seen = page.word().load(Ordering::Acquire);
        std::thread::scope(|scope| {
            scope.spawn(|| writer.open(1));
            while page.word().load(Ordering::Acquire) == seen {
                page.wait_while(seen, Duration::from_secs(10));
            }
        });
        assert_eq!(page.word().load(Ordering::Acquire), word::open(1));
    }
}
