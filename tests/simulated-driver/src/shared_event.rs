//! Events that processes share: two counters in a small file of the machine.
//!
//! A recording takes the next number when it is made and publishes it when its stream gets there; whoever
//! waits, waits for the number of the moment. A process that dies with a recording under way would keep others
//! waiting for ever, so the file names who recorded last, and a wait ends when that process is gone. Its maker keeps
//! the file locked, so that the arena can remove files of the dead.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use turnus_bindings::CUerror;

use crate::driver::driver;
use crate::space::Result;

const FILE_BYTES: usize = 4096;
/// How often the host looks while it waits.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// What lies in the file.
#[repr(C)]
struct Counters {
    recorded: AtomicU64,
    reached: AtomicU64,
    /// Process that recorded last.
    recorder: AtomicU32,
}

/// Names an event on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedEventName {
    /// Process that made it.
    pub process: u32,
    /// Counts the shared events of that process.
    pub number: u32,
}

/// See the module's words.
#[derive(Debug)]
pub struct SharedEvent {
    /// Its name.
    pub name: SharedEventName,
    counters: NonNull<Counters>,
    /// With the lock of its maker.
    _file: File,
}

// SAFETY: the counters are atomics in a mapping that lives as long as the value.
unsafe impl Send for SharedEvent {}
// SAFETY: as above.
unsafe impl Sync for SharedEvent {}

impl SharedEvent {
    /// A new one.
    pub fn create() -> Result<SharedEvent> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name =
            SharedEventName { process: std::process::id(), number: NEXT.fetch_add(1, Ordering::Relaxed) };
        // Another process of the same id may have left one behind.
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o666).clone();
        let file = options.open(path(name)?).map_err(|_| CUerror::OPERATING_SYSTEM)?;
        // A lock that cannot be had only keeps the file for longer.
        let _ = file.try_lock();
        file.set_len(FILE_BYTES as u64).map_err(|_| CUerror::OPERATING_SYSTEM)?;
        Self::map(name, file)
    }

    /// That of another process.
    pub fn open(name: SharedEventName) -> Result<SharedEvent> {
        let file = OpenOptions::new().read(true).write(true).open(path(name)?);
        let file = file.map_err(|_| CUerror::INVALID_VALUE)?;
        let is_whole = file.metadata().is_ok_and(|data| data.len() == FILE_BYTES as u64);
        if is_whole { Self::map(name, file) } else { Err(CUerror::INVALID_VALUE) }
    }

    fn map(name: SharedEventName, file: File) -> Result<SharedEvent> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), FILE_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        match NonNull::new(start.cast::<Counters>()) {
            Some(counters) if start != libc::MAP_FAILED => Ok(SharedEvent { name, counters, _file: file }),
            _ => Err(CUerror::MAP_FAILED),
        }
    }

    fn counters(&self) -> &Counters {
        // SAFETY: the mapping lives as long as `self`, is large enough and aligned to pages; all-zero counters
        // are valid, and only atomics are used.
        unsafe { self.counters.as_ref() }
    }

    /// Begins a recording: its number.
    pub fn record(&self) -> u64 {
        self.counters().recorder.store(std::process::id(), Ordering::Release);
        self.counters().recorded.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The recording's stream has come there.
    pub fn reach(&self, number: u64) {
        self.counters().reached.fetch_max(number, Ordering::AcqRel);
    }

    /// The number of the last recording; 0 when there was none.
    pub fn recorded(&self) -> u64 {
        self.counters().recorded.load(Ordering::Acquire)
    }

    /// Whether a recording is over, or can never be.
    pub fn is_over(&self, number: u64) -> bool {
        self.counters().reached.load(Ordering::Acquire) >= number || self.recorder_is_gone()
    }

    /// Waits on the host for the last recording.
    pub fn wait(&self) {
        let number = self.recorded();
        while !self.is_over(number) {
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn recorder_is_gone(&self) -> bool {
        let recorder = self.counters().recorder.load(Ordering::Acquire) as libc::pid_t;
        // SAFETY: signal 0 only asks whether the process exists.
        recorder > 0
            && unsafe { libc::kill(recorder, 0) } != 0
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`; users borrow from `self`.
        unsafe { libc::munmap(self.counters.as_ptr().cast(), FILE_BYTES) };
        if self.name.process == std::process::id()
            && let Ok(path) = path(self.name)
        {
            // Using it after its maker destroyed it is undefined; what is mapped elsewhere stays.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn path(name: SharedEventName) -> Result<PathBuf> {
    Ok(driver()?.arena.directory().join(format!("event-{}-{}", name.process, name.number)))
}
