//! Passing the gate and closing it: the algorithm of one member process.
//!
//! A thread marks itself inside, then compares the daemon's word with the word for which this
//! member has its bytes on the device; equal means pass. Who closes takes away the readiness,
//! forces a barrier on every thread of the process, and then waits until no mark is left. Either
//! the closer sees the mark or the thread sees the closed gate; `docs/gate.md` has the argument.
//!
//! Waiting and talking to the daemon are the shim's business (`shim/src/gate.rs`).

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::word::READY_FOR_NONE;

/// One thread's mark. Only its owner writes it, so it owns its cache line.
#[derive(Debug)]
#[repr(align(128))]
pub struct ThreadMark {
    inside: AtomicU32,
    submissions: AtomicU64,
}

impl Default for ThreadMark {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadMark {
    /// A mark of a thread that is outside.
    pub fn new() -> ThreadMark {
        ThreadMark { inside: AtomicU32::new(0), submissions: AtomicU64::new(0) }
    }

    /// Whether the owner is inside; exact for the owner, a snapshot for others.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire) != 0
    }

    /// How many calls of the owner have passed, ever. Grows only; used to tell idle from busy.
    pub fn submissions(&self) -> u64 {
        self.submissions.load(Ordering::Acquire)
    }

    /// Passes without asking: for a thread that the member itself lets through (stepwise drain,
    /// open capture). The caller makes sure that whoever closes knows about it.
    pub fn enter_admitted(&self) {
        self.inside.store(1, Ordering::Relaxed);
        self.count();
    }

    /// Leaves the gate. Everything the thread did inside happens before a closer sees it outside.
    #[inline(always)]
    pub fn leave(&self) {
        self.inside.store(0, Ordering::Release);
    }

    #[inline(always)]
    fn count(&self) {
        // Release: who reads the new count also sees the thread inside, unless it has left.
        self.submissions.store(self.submissions.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

/// The word for which this member is ready, on a cache line that changes only with turns.
#[derive(Debug)]
#[repr(align(128))]
pub struct Gate {
    ready: AtomicU32,
    barrier: Barrier,
}

impl Gate {
    /// A gate that nobody passes yet.
    pub fn new(barrier: Barrier) -> Gate {
        Gate { ready: AtomicU32::new(READY_FOR_NONE), barrier }
    }

    /// The hot path: true, and the thread is inside, if the daemon's word is the one for which
    /// this member is ready. False, and the thread is outside, in every other case.
    #[inline(always)]
    pub fn try_enter(&self, mark: &ThreadMark, daemon_word: &DaemonWord) -> bool {
        mark.inside.store(1, Ordering::Relaxed);
        self.barrier.light();
        // Acquire: what the restorer wrote before it declared readiness is seen in here.
        if daemon_word.load(Ordering::Acquire) == self.ready.load(Ordering::Acquire) {
            mark.count();
            true
        } else {
            mark.inside.store(0, Ordering::Release);
            false
        }
    }

    /// Declares that every allocated byte is on the device for the turn of this word.
    pub fn set_ready(&self, word: u32) {
        self.ready.store(word, Ordering::Release);
    }

    /// The word for which this member is ready, or [`READY_FOR_NONE`].
    pub fn ready_word(&self) -> u32 {
        self.ready.load(Ordering::Acquire)
    }

    /// Takes the readiness away and makes every other thread either visible inside or sure to
    /// find the gate closed. After it, wait until no mark is inside.
    pub fn close(&self) {
        self.ready.store(READY_FOR_NONE, Ordering::Relaxed);
        self.barrier.heavy();
    }
}

/// The atomic type of the daemon's word.
pub type DaemonWord = AtomicU32;

/// How the hot path's "mark, then read" is ordered against the closer's "close, then look".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// `membarrier(2)`: the closer runs a full barrier on every thread of the process, the hot
    /// path needs none. Only after [`Barrier::best`] has registered the process.
    Asymmetric,
    /// A full fence on both sides, where the kernel or a filter refuses `membarrier`.
    Symmetric,
}

impl Barrier {
    /// The cheapest that this kernel allows to this process.
    #[cfg(not(loom))]
    pub fn best() -> Barrier {
        const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
        if membarrier(REGISTER_PRIVATE_EXPEDITED) { Barrier::Asymmetric } else { Barrier::Symmetric }
    }

    #[inline(always)]
    fn light(self) {
        match self {
            Barrier::Symmetric => fence(Ordering::SeqCst),
            #[cfg(not(loom))]
            Barrier::Asymmetric => std::sync::atomic::compiler_fence(Ordering::SeqCst),
            // The model has no membarrier; a fence on each side is what membarrier amounts to.
            #[cfg(loom)]
            Barrier::Asymmetric => fence(Ordering::SeqCst),
        }
    }

    fn heavy(self) {
        fence(Ordering::SeqCst);
        #[cfg(not(loom))]
        if self == Barrier::Asymmetric {
            const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
            // Registered in `best`, so the kernel has no reason left to refuse; a child of fork
            // inherits the registration with the address space.
            let done = membarrier(PRIVATE_EXPEDITED);
            debug_assert!(done, "membarrier refused after registration");
        }
    }
}

#[cfg(not(loom))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier(2) takes three integers, touches no memory of ours, and answers -1 for
    // a command that it does not know or may not run.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
