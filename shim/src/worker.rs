//! The threads that call the driver for us: the worker, which moves bytes, and the waiter.
//!
//! The waiter only waits for submitted work to finish. It is a thread of its own because that may
//! take for ever: a kernel may wait for a launch that waits for frames, which the worker must make.
//! The program's threads and their current contexts are never used for either, except where a hook
//! asks what is current or what a new context looks like. Other threads hand over jobs; restoring
//! and tidying are flags, since one more wish changes nothing. Read next: `contexts.rs`, `memory/`.

use crate::gate;
use crate::member::Member;
use crate::memory::{self, Memory};
use crate::message;
use crate::real;
use crate::turn::Phase;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use turnus_bindings::CUerror;
use turnus_bindings::types::CU_STREAM_CAPTURE_MODE_RELAXED;
use turnus_protocol::{ClientMessage, DeviceUuid, Epoch, RequestId};

/// Pause after a driver error that may pass.
const TRY_AGAIN: Duration = Duration::from_millis(20);

type Job = Box<dyn FnOnce(&'static Member) + Send>;

/// Shortest pause before tidying is tried again.
const TIDY_AGAIN_MIN: Duration = Duration::from_millis(10);

/// What a thread of ours is asked to do.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    restore: bool,
    tidy: bool,
    /// When the memory wants to tidy unasked.
    tidy_at: Option<Instant>,
    stop: bool,
    busy: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Queue").finish_non_exhaustive()
    }
}

enum Next {
    Job(Job),
    Restore,
    Tidy,
    Stop,
}

impl Queue {
    /// Adds a job.
    pub(crate) fn post(&self, job: impl FnOnce(&'static Member) + Send + 'static) {
        let mut state = self.state();
        if !state.stop {
            state.jobs.push_back(Box::new(job));
            self.changed.notify_all();
        }
    }

    /// Runs a job and waits for what it makes; `None` when the thread stops first or has no time.
    pub(crate) fn run_within<R: Send + 'static>(
        &self,
        at_most: Duration,
        job: impl FnOnce(&'static Member) -> R + Send + 'static,
    ) -> Option<R> {
        let (give, take) = mpsc::sync_channel(1);
        self.post(move |member| {
            let _ = give.send(job(member));
        });
        take.recv_timeout(at_most).ok()
    }

    /// Frames are missing while the turn is held, or credits have arrived.
    pub(crate) fn want_restore(&self) {
        self.state().restore = true;
        self.changed.notify_all();
    }

    /// The memory has something to tidy.
    pub(crate) fn want_tidy(&self) {
        self.state().tidy = true;
        self.changed.notify_all();
    }

    /// The memory has tidied: it wants to do so again after this time, if ever.
    fn tidy_again(&self, after: Option<Duration>) {
        self.state().tidy_at = after.map(|after| Instant::now() + after.max(TIDY_AGAIN_MIN));
    }

    /// Takes no more jobs and waits, at most so long, until the worker has left the driver.
    pub(crate) fn stop(&self, at_most: Duration) {
        let end = Instant::now() + at_most;
        let mut state = self.state();
        state.stop = true;
        state.jobs.clear();
        self.changed.notify_all();
        while state.busy {
            let Some(left) = end.checked_duration_since(Instant::now()) else { return };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn next(&self) -> Next {
        let mut state = self.state();
        state.busy = false;
        self.changed.notify_all();
        loop {
            let next = if state.stop {
                Some(Next::Stop)
            } else if let Some(job) = state.jobs.pop_front() {
                Some(Next::Job(job))
            } else if core::mem::take(&mut state.restore) {
                Some(Next::Restore)
            } else if core::mem::take(&mut state.tidy)
                || state.tidy_at.take_if(|at| *at <= Instant::now()).is_some()
            {
                Some(Next::Tidy)
            } else {
                None
            };
            match next {
                Some(next) => {
                    state.busy = !matches!(next, Next::Stop);
                    return next;
                }
                None => state = self.wait(state),
            }
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        match state.tidy_at {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The worker's life.
pub(crate) fn run(member: &'static Member) {
    serve(member, &member.worker);
}

/// The waiter's life: nobody wants anything of it but jobs.
pub(crate) fn run_waiter(member: &'static Member) {
    serve(member, &member.waiter);
}

fn serve(member: &'static Member, queue: &Queue) {
    if let Some(api) = real::api() {
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` may be read and written. Relaxed: our calls must never invalidate a
        // capture of the program's.
        let _ = unsafe { api.cuThreadExchangeStreamCaptureMode(&mut mode) };
    }
    loop {
        match queue.next() {
            Next::Stop => return,
            Next::Job(job) => job(member),
            Next::Restore => restore(member),
            Next::Tidy => {
                if let Some(memory) = memory::get() {
                    let after = memory.tidy();
                    queue.tidy_again(after);
                }
            }
        }
    }
}

/// Makes missing frames as far as credits go, and opens the gate when all are there.
fn restore(member: &'static Member) {
    // In a drain too: a thread in an open capture may have allocated, and must go on.
    let (Phase::Held { epoch: Some(epoch), .. } | Phase::Draining { epoch }) = member.turn().phase() else {
        return;
    };
    let mut moved = Vec::new();
    let mut is_broken = false;
    if let Some(memory) = memory::get() {
        for device in memory.incomplete_devices() {
            moved.push(device);
            let progress = memory.restore(device);
            if let Some(error) = progress.error {
                is_broken = member.contexts.note_fault(member, device, error);
                if !is_broken {
                    note_failure(device, error);
                    std::thread::sleep(TRY_AGAIN);
                    member.worker.want_restore();
                    return;
                }
            } else {
                FAILURES.store(0, Ordering::Relaxed);
            }
            if progress.error.is_none() && progress.missing_bytes > 0 {
                // Goes on when credits arrive.
                return;
            }
        }
    }
    if open_gate(member, epoch, is_broken) {
        moved.into_iter().for_each(|device| member.contexts.report_usage(member, device));
    }
}

/// Restores that have failed in a row.
static FAILURES: AtomicU32 = AtomicU32::new(0);
/// So many are no passing trouble: two seconds of them.
const FAILURES_MAX: u32 = 100;

/// The program waits at the gate without knowing why; once in a row of failures a line says it.
fn note_failure(device: DeviceUuid, error: CUerror) {
    if FAILURES.fetch_add(1, Ordering::Relaxed) == FAILURES_MAX {
        message::error(&format!(
            "memory of {device} cannot be restored ({error}); the program waits, and it is tried again"
        ));
    }
}

/// Declares readiness and says so. `is_broken`: the context does no work any more, so the program
/// is let through to hear it from the driver, although bytes are missing.
fn open_gate(member: &'static Member, epoch: Epoch, is_broken: bool) -> bool {
    let turn = member.turn();
    if matches!(turn.phase(), Phase::Draining { .. }) {
        drop(turn);
        member.wake_waiting_threads();
        return true;
    }
    let Phase::Held { word, epoch: Some(held) } = turn.phase() else { return false };
    if held != epoch || turn.is_evicting() {
        return false;
    }
    if is_broken {
        member.gate.set_ready(word);
    } else if !gate::declare_ready(member, &turn, word) {
        // Something was allocated meanwhile.
        member.worker.want_restore();
        return false;
    }
    member.switch_cost.restored();
    member.connection.send(&ClientMessage::Restored { epoch });
    drop(turn);
    member.wake_waiting_threads();
    true
}

/// Obeys an order to give up frames, unless a turn has begun since it was given.
pub(crate) fn evict(member: &'static Member, device: DeviceUuid, order: RequestId, bytes: u64) {
    let may_begin = member.turn().begin_eviction(member.word().load(Ordering::Acquire));
    let pinned_bytes = match memory::get() {
        Some(memory) if may_begin => evict_now(member, memory, device, bytes),
        Some(memory) => memory.holdings(device).map_or(0, |held| held.resident_bytes),
        None => 0,
    };
    if may_begin {
        member.turn().end_eviction();
        member.wake_waiting_threads();
    }
    member.connection.send(&ClientMessage::Evicted { device, order, pinned_bytes });
    member.contexts.report_usage(member, device);
}

fn evict_now(member: &'static Member, memory: &Memory, device: DeviceUuid, bytes: u64) -> u64 {
    // The drain waited already; this catches what reached the driver past our hooks.
    member.contexts.synchronise(member);
    memory.synchronised();
    let evicted = memory.evict(device, bytes);
    message::debug(|| format!("evicted {evicted:?} of {bytes} bytes"));
    evicted.pinned_bytes
}
