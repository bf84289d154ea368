//! Where a call that submits work waits until its tenant has the turn.
//!
//! [`enter`] is the hot path: a thread-local load, a mark, two comparisons. Everything else is
//! here too, but cold: taking a turn that was just granted, asking for one, sleeping, being let
//! through one at a time while a drain stalls. A waiting thread holds no lock; signals reach it and
//! their handlers run. Never waits: a thread that is inside already, and threads of the driver.

use crate::boundary;
use crate::lifecycle;
use crate::marks;
use crate::member::{self, Member};
use crate::memory;
use crate::turn::{Step, Turn};
use core::sync::atomic::Ordering;
use core::time::Duration;
use turnus_bindings::CUerror;
use turnus_gate::gate::ThreadMark;
use turnus_gate::page::wait_private;
use turnus_protocol::ClientMessage;

/// Longest sleep before a waiting thread looks again by itself. Everything that matters wakes it;
/// this only bounds what a lost wake-up could cost.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A call that may go on; [`Entered::leave`] ends it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered(Option<&'static ThreadMark>);

impl Entered {
    /// The driver's call has returned.
    #[inline(always)]
    pub(crate) fn leave(self) {
        if let Some(mark) = self.0 {
            mark.leave();
        }
    }
}

/// Passes, now or after a wait. An error only when the process is ending.
#[inline(always)]
pub(crate) fn enter() -> Result<Entered, CUerror> {
    let Some(member) = member::current() else { return without_member() };
    if let Some(mark) = marks::mine_if_any() {
        if mark.is_inside() {
            // A call from inside a call: whoever closes the gate waits for the outer one.
            return Ok(Entered(None));
        }
        if member.gate.try_enter(mark, member.word()) {
            return Ok(Entered(Some(mark)));
        }
    }
    enter_slowly(member)
}

#[cold]
fn without_member() -> Result<Entered, CUerror> {
    if lifecycle::is_detached() { Err(CUerror::DEINITIALIZED) } else { Ok(Entered(None)) }
}

/// A fault of ours must not stop the program: the call then goes on ungated, with one line.
#[cold]
#[inline(never)]
fn enter_slowly(member: &'static Member) -> Result<Entered, CUerror> {
    boundary::quietly(|| wait_for_turn(member)).unwrap_or_else(|| {
        crate::message::error("a fault inside the shim at the gate; a call runs unscheduled");
        Ok(Entered(None))
    })
}

fn wait_for_turn(member: &'static Member) -> Result<Entered, CUerror> {
    if is_thread_of_the_driver() || boundary::is_own_thread() {
        member.marks.count_unmarked();
        return Ok(Entered(None));
    }
    let mark = member.marks.mine();
    let mut waiting = None;
    loop {
        let change = member.change().load(Ordering::Acquire);
        if member.gate.try_enter(mark, member.word()) {
            return Ok(Entered(Some(mark)));
        }
        if lifecycle::is_detached() {
            return Err(CUerror::DEINITIALIZED);
        }
        if member::current().is_none() {
            // The daemon refused this program for good while it waited.
            return Ok(Entered(None));
        }
        match next_step(member, mark) {
            Step::TryReady { .. } => continue,
            Step::Admit => return Ok(Entered(Some(mark))),
            step => {
                // The second look, after the thread is counted, closes the gap in which a drain
                // that looked for waiting threads did not see this one.
                if waiting.is_none() {
                    waiting = Some(member.count_waiting_thread());
                    continue;
                }
                sleep(member, step, change);
            }
        }
    }
}

/// Decides under the turn's lock and does what must happen under it.
fn next_step(member: &'static Member, mark: &ThreadMark) -> Step {
    let mut turn = member.turn();
    let step = turn.next_step(member.word().load(Ordering::Acquire), member.captures.any_open());
    match step {
        Step::TryReady { word } if !declare_ready(member, &turn, word) => {
            member.worker.want_restore();
            Step::WaitForChange { ask: false }
        }
        Step::Admit if is_complete() => {
            mark.enter_admitted();
            step
        }
        Step::Admit => {
            // Allocated since the gate was closed: the frames first.
            member.worker.want_restore();
            Step::WaitForChange { ask: false }
        }
        Step::WaitForWord { ask: true, .. } | Step::WaitForChange { ask: true } => {
            // Under the lock, so that it cannot overtake a message about the turn before.
            member.connection.send(&ClientMessage::TurnRequested);
            step
        }
        _ => step,
    }
}

fn sleep(member: &Member, step: Step, change: u32) {
    match step {
        Step::WaitForWord { word, .. } => member.page().wait_while(word, LOOK_AGAIN),
        _ => wait_private(member.change(), change, LOOK_AGAIN),
    }
}

/// Declares readiness for an open word if every byte is on the device and none is leaving it. The
/// caller has made sure that the turn is held; the turn is passed as proof that its lock is.
pub(crate) fn declare_ready(member: &Member, turn: &Turn, word: u32) -> bool {
    if turn.is_evicting() {
        // An order that began before the turn did. At first its frames look as if they stayed.
        return false;
    }
    match memory::get() {
        Some(memory) => memory.if_complete(|| member.gate.set_ready(word)).is_some(),
        None => {
            member.gate.set_ready(word);
            true
        }
    }
}

/// Whether every allocated byte of every device has its frame and its content.
pub(crate) fn is_complete() -> bool {
    memory::get().is_none_or(|memory| memory.if_complete(|| ()).is_some())
}

/// Makes threads of this process look again that sleep on the daemon's word. Those of other members
/// look too, and sleep again.
pub(crate) fn wake_who_waits_for_the_word(member: &Member) {
    // SAFETY: FUTEX_WAKE reads no memory; the address only names the queue, which is shared
    // because the page is.
    unsafe { libc::syscall(libc::SYS_futex, member.word().as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// The driver names its threads. They run the program's callbacks, for which work may wait.
fn is_thread_of_the_driver() -> bool {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes with a NUL to the buffer.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.starts_with(b"cuda-") || name.starts_with(b"cuda0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_driver_are_known_by_their_name() {
        for (name, expected) in [("cuda-EvtHandlr", true), ("cuda00001400006", true), ("cudaprogram", false)]
        {
            let thread = std::thread::Builder::new().name(name.into());
            let seen = thread.spawn(is_thread_of_the_driver).expect("spawn").join().expect("join");
            assert_eq!(seen, expected, "{name}");
        }
    }
}
