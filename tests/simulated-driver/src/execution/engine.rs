//! A queue with one thread that takes nodes from it; the thread starts with the first node.
//!
//! Submission must stay cheap while an engine is busy, so a push wakes the thread only when it
//! sleeps, and a thread that has just become idle looks again for a moment before it does. What
//! the thread does with a node is in `compute.rs`, `copy.rs` and `front_end.rs`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::node::Node;

/// How long an idle thread looks for work before it sleeps.
const LOOK: Duration = Duration::from_micros(20);

#[derive(Default)]
struct Waiting {
    nodes: VecDeque<Arc<Node>>,
    sleeping: bool,
    started: bool,
}

/// The queue of an engine.
#[derive(Default)]
pub(super) struct Engine {
    waiting: Mutex<Waiting>,
    /// Length of `waiting.nodes`, readable without the lock.
    length: AtomicUsize,
    wake: Condvar,
}

impl Engine {
    /// Adds a node; true when the engine's thread must be started first (`start_thread`).
    pub(super) fn push(&self, node: Arc<Node>) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.nodes.push_back(node);
        self.length.store(waiting.nodes.len(), Ordering::Release);
        let must_wake = std::mem::take(&mut waiting.sleeping);
        let must_start = !std::mem::replace(&mut waiting.started, true);
        drop(waiting);
        if must_wake {
            self.wake.notify_one();
        }
        must_start
    }

    /// Moves what waits to `taken`, without waiting.
    pub(super) fn take(&self, taken: &mut VecDeque<Arc<Node>>) {
        if self.length.load(Ordering::Acquire) > 0 {
            let mut waiting = self.waiting.lock();
            taken.append(&mut waiting.nodes);
            self.length.store(0, Ordering::Release);
        }
    }

    /// Moves what waits to `taken`; waits until there is something or `timeout` has passed.
    pub(super) fn wait(&self, taken: &mut VecDeque<Arc<Node>>, timeout: Option<Duration>) {
        let idle_since = Instant::now();
        while timeout.is_none() && self.length.load(Ordering::Acquire) == 0 && idle_since.elapsed() < LOOK {
            std::thread::yield_now();
        }
        let mut waiting = self.waiting.lock();
        let deadline = timeout.map(|timeout| idle_since + timeout);
        while waiting.nodes.is_empty() {
            waiting.sleeping = true;
            match deadline {
                None => self.wake.wait(&mut waiting),
                Some(deadline) => {
                    if self.wake.wait_until(&mut waiting, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        waiting.sleeping = false;
        taken.append(&mut waiting.nodes);
        self.length.store(0, Ordering::Release);
    }

    /// The thread could not be started: the next push tries again. Returns what waits.
    fn give_up(&self) -> VecDeque<Arc<Node>> {
        let mut waiting = self.waiting.lock();
        waiting.started = false;
        self.length.store(0, Ordering::Release);
        std::mem::take(&mut waiting.nodes)
    }

    /// Starts the engine's thread with all signals blocked: they are the program's. What waits is
    /// returned when the system refuses a thread.
    pub(super) fn start_thread(
        &self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), VecDeque<Arc<Node>>> {
        let blocked = SignalsBlocked::new();
        let started = std::thread::Builder::new().name(name.into()).spawn(body);
        drop(blocked);
        started.map(drop).map_err(|_| self.give_up())
    }
}

/// All signals of the calling thread blocked until dropped; a thread inherits its maker's mask.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY: sigset_t is plain data for which zero bytes are valid; the calls write only the
        // two sets given to them and change the mask of the calling thread only.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            SignalsBlocked(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled by pthread_sigmask in `new`, on the same thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}
