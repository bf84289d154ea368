//! How a drain goes on, and when a holder is idle: what the client thread does between messages.
//!
//! Waiting for submitted work is a job of the waiter's ("a pass over all contexts"); this module
//! decides when one is started and what its end means. While work does not end, waiting
//! submissions are let through one at a time, since a running kernel may wait for exactly one of
//! them. A pass says nothing about work that was submitted after its start, so whatever is let
//! through makes the drain start over.

use crate::gate;
use crate::member::Member;
use crate::memory;
use crate::turn::Phase;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use turnus_gate::page::GatePage;
use turnus_gate::word::{self, READY_FOR_NONE};
use turnus_protocol::{ClientMessage, Epoch};

/// How often a drain or an idle holder is looked at; the end of a pass is heard at once.
const LOOK: Duration = Duration::from_millis(1);
/// How long a permit that no thread takes stays.
const PERMIT: Duration = Duration::from_millis(20);
/// How long a new daemon may take to say what becomes of a claimed turn; longer than its recovery.
const CLAIM: Duration = Duration::from_secs(15);
const NOTHING_TO_WATCH: Duration = Duration::from_secs(3600);

/// The client thread's view of the running turn.
#[derive(Debug)]
pub(crate) struct Watch {
    others_waiting: u32,
    drain: Option<Drain>,
    idle: Option<Idle>,
    pass: Option<Pass>,
    /// The page of a new daemon that takes effect with its first word to us.
    next_page: Option<NextPage>,
}

#[derive(Debug)]
struct NextPage {
    page: GatePage,
    since: Instant,
}

#[derive(Debug)]
struct Drain {
    epoch: Epoch,
    /// When the next waiting submission is let through if work has not ended.
    next_step: Instant,
    permit_given: Option<Instant>,
    said_stalled: bool,
}

#[derive(Debug)]
struct Idle {
    submissions: u64,
    since: Instant,
}

/// One pass of the waiter over all contexts.
#[derive(Debug)]
struct Pass {
    /// Calls that had passed when it was started; it says nothing about later ones.
    submissions: u64,
    ended: Arc<AtomicU64>,
}

impl Pass {
    fn start(member: &'static Member, submissions: u64) -> Pass {
        let ended = Arc::new(AtomicU64::new(0));
        let says_so = ended.clone();
        member.waiter.post(move |member| {
            member.contexts.synchronise(member);
            tell_memory(member, submissions);
            says_so.store(1, Ordering::Release);
            member.tell_client();
        });
        Pass { submissions, ended }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) != 0
    }
}

impl Watch {
    /// Nothing to watch.
    pub(crate) fn new() -> Watch {
        Watch { others_waiting: 0, drain: None, idle: None, pass: None, next_page: None }
    }

    /// `TurnGranted`.
    pub(crate) fn granted(&mut self, member: &'static Member, epoch: Epoch) {
        if let Some(memory) = memory::get() {
            memory.turn_began();
        }
        let mut turn = member.turn();
        if let Some(next) = self.next_page.take() {
            member.replace_page(next.page);
        }
        turn.granted(epoch);
        let is_complete = gate::declare_ready(member, &turn, word::open(epoch.0));
        member.switch_cost.granted(is_complete);
        if !is_complete {
            member.worker.want_restore();
        }
        drop(turn);
        self.drain = None;
        self.idle = None;
        // Of the turn before: when it ended, nobody was told. If some wait now, the page says so,
        // and a message follows.
        self.others_waiting = 0;
        member.wake_waiting_threads();
    }

    /// `Drain`.
    pub(crate) fn drain(&mut self, member: &'static Member, epoch: Epoch) {
        let mut turn = member.turn();
        if let Some(next) = self.next_page.take() {
            member.replace_page(next.page);
        }
        if turn.drain(epoch) {
            member.gate.close();
            drop(turn);
            let next_step = Instant::now() + drain_step(member);
            self.drain = Some(Drain { epoch, next_step, permit_given: None, said_stalled: false });
            self.idle = None;
            // A pass of the idle watch says nothing about what came after its start.
            self.pass = None;
            // Threads in an open capture go on.
            member.wake_waiting_threads();
        } else {
            member.connection.send(&ClientMessage::Drained { epoch });
        }
    }

    /// `DrainCancelled`.
    pub(crate) fn drain_cancelled(&mut self, member: &'static Member, epoch: Epoch) {
        self.drain = None;
        let mut turn = member.turn();
        if turn.drain_cancelled(epoch) {
            if let Some(memory) = memory::get() {
                memory.turn_began();
            }
            if !gate::declare_ready(member, &turn, word::open(epoch.0)) {
                member.worker.want_restore();
            }
        }
        drop(turn);
        member.wake_waiting_threads();
    }

    /// `AdmitOne`: another member's work may wait for a call that waits here.
    pub(crate) fn admit_one(&mut self, member: &'static Member, epoch: Epoch) {
        if !may_let_through(member) {
            if matches!(member.turn().phase(), Phase::Drained { epoch: of } if of == epoch) {
                member.connection.send(&ClientMessage::Drained { epoch });
            }
            return;
        }
        member.turn().permit_one(epoch);
        let now = Instant::now();
        let next_step = now + drain_step(member);
        self.drain = Some(Drain { epoch, next_step, permit_given: Some(now), said_stalled: false });
        self.pass = None;
        member.wake_waiting_threads();
        gate::wake_who_waits_for_the_word(member);
    }

    /// `OthersWaiting`.
    pub(crate) fn others_waiting(&mut self, count: u32) {
        self.others_waiting = count;
    }

    /// The daemon is lost: nobody is left to drain for.
    pub(crate) fn lost(&mut self, member: &'static Member) {
        *self = Watch::new();
        let turn = member.turn();
        if let Phase::Held { word, .. } = turn.phase() {
            // A drain that was under way is off: whoever is wholly here runs on, if the word is
            // still open.
            let _ = gate::declare_ready(member, &turn, word);
        }
        drop(turn);
        member.wake_waiting_threads();
    }

    /// A new daemon knows what we hold. Who holds a turn runs on under the old page until the new
    /// daemon has said its word about it. `is_claimed`: it was told of the turn; the daemon that gave
    /// it is not, since for that one the turn ended with the connection.
    pub(crate) fn resumed(&mut self, member: &'static Member, page: GatePage, is_claimed: bool) {
        let mut turn = member.turn();
        turn.reconnected();
        if is_claimed && matches!(turn.phase(), Phase::Held { .. }) {
            self.next_page = Some(NextPage { page, since: Instant::now() });
        } else {
            turn.drop_claim();
            member.gate.close();
            member.replace_page(page);
        }
        ask_for_who_waits(member, &mut turn);
        drop(turn);
        member.wake_waiting_threads();
        gate::wake_who_waits_for_the_word(member);
    }

    /// Goes on with what is under way; how long nothing needs to be looked at.
    pub(crate) fn go_on(&mut self, member: &'static Member) -> Duration {
        self.drop_unanswered_claim(member);
        let others_wait = self.others_waiting > 0 || member.page().others_waiting() > 0;
        if self.drain.is_some() {
            self.go_on_draining(member)
        } else if others_wait && !member.captures.any_open() {
            self.go_on_holding(member)
        } else {
            self.idle = None;
            if others_wait { LOOK } else { NOTHING_TO_WATCH }
        }
    }

    /// A new daemon that does not say what became of the turn that we claimed has not given it.
    fn drop_unanswered_claim(&mut self, member: &'static Member) {
        if let Some(next) = self.next_page.take_if(|next| next.since.elapsed() > CLAIM) {
            let mut turn = member.turn();
            member.gate.close();
            member.replace_page(next.page);
            turn.drop_claim();
            ask_for_who_waits(member, &mut turn);
            drop(turn);
            member.wake_waiting_threads();
        }
    }

    fn go_on_draining(&mut self, member: &'static Member) -> Duration {
        let Some(drain) = &mut self.drain else { return NOTHING_TO_WATCH };
        let epoch = drain.epoch;
        if let Some(given) = drain.permit_given {
            if member.turn().has_permit() && given.elapsed() < PERMIT {
                return LOOK;
            }
            member.turn().withdraw_permit();
            drain.permit_given = None;
            self.pass = None;
        }
        if member.captures.any_open() {
            self.pass = None;
            return LOOK;
        }
        let submissions = member.marks.submissions();
        let nobody_inside = !member.marks.any_inside();
        match &self.pass {
            Some(pass) if pass.has_ended() => {
                if nobody_inside && finish(member, epoch, pass.submissions) {
                    self.pass = None;
                    self.drain = None;
                    return NOTHING_TO_WATCH;
                }
                self.pass = None;
                return Duration::ZERO;
            }
            None if nobody_inside => self.pass = Some(Pass::start(member, submissions)),
            _ => {}
        }
        if Instant::now() >= drain.next_step {
            drain.next_step = Instant::now() + drain_step(member);
            if may_let_through(member) {
                member.turn().permit_one(epoch);
                drain.permit_given = Some(Instant::now());
                member.wake_waiting_threads();
            } else if !drain.said_stalled {
                drain.said_stalled = true;
                member.connection.send(&ClientMessage::DrainStalled { epoch });
            } else {
                drain.said_stalled = false;
            }
        }
        LOOK
    }

    /// A holder whom others wait for: is it idle?
    fn go_on_holding(&mut self, member: &'static Member) -> Duration {
        let Phase::Held { epoch: Some(_), .. } = member.turn().phase() else { return NOTHING_TO_WATCH };
        let submissions = member.marks.submissions();
        if member.marks.any_inside() || member.waiting_threads() > 0 {
            self.idle = None;
            self.pass = None;
            return LOOK;
        }
        let idle = match &self.idle {
            Some(idle) if idle.submissions == submissions => idle,
            _ => {
                self.idle = Some(Idle { submissions, since: Instant::now() });
                self.pass = None;
                return LOOK;
            }
        };
        let shortest = Duration::from_millis(u64::from(member.settings().idle_hold_ms));
        if idle.since.elapsed() < shortest.max(member.switch_cost.last()) {
            return LOOK;
        }
        match &self.pass {
            None => self.pass = Some(Pass::start(member, submissions)),
            Some(pass) if pass.has_ended() => {
                let submissions = pass.submissions;
                self.pass = None;
                self.idle = None;
                release(member, submissions);
            }
            Some(_) => {}
        }
        LOOK
    }
}

/// Whether a call waits that may be let through: every byte that it may touch is on the device.
fn may_let_through(member: &Member) -> bool {
    member.waiting_threads() > 0 && gate::is_complete()
}

/// All work that was submitted has finished, and while the turn's lock is held none can begin: then
/// the memory may use again what was freed under running work.
fn tell_memory(member: &Member, submissions: u64) {
    let turn = member.turn();
    let is_closed = member.gate.ready_word() == READY_FOR_NONE;
    if is_closed {
        // An allocation takes the readiness away without a barrier: who passed just before must be
        // seen.
        member.gate.close();
    }
    let is_still = is_closed
        && !turn.has_permit()
        && !member.captures.any_open()
        && !member.marks.any_inside()
        && member.marks.submissions() == submissions;
    if let Some(memory) = memory::get().filter(|_| is_still) {
        memory.synchronised();
    }
}

/// Says `Drained`, if nothing was let through since the pass that ended was started.
fn finish(member: &'static Member, epoch: Epoch, submissions: u64) -> bool {
    let mut turn = member.turn();
    if member.marks.any_inside() || turn.has_permit() || member.marks.submissions() != submissions {
        return false;
    }
    turn.drained(epoch);
    end_turn();
    member.connection.send(&ClientMessage::Drained { epoch });
    ask_for_who_waits(member, &mut turn);
    drop(turn);
    member.wake_waiting_threads();
    true
}

/// Closes the gate of an idle holder, looks again, and gives the turn up.
fn release(member: &'static Member, submissions: u64) {
    let mut turn = member.turn();
    let Phase::Held { epoch: Some(_), word } = turn.phase() else { return };
    member.gate.close();
    let is_idle = !member.marks.any_inside()
        && member.marks.submissions() == submissions
        && !member.captures.any_open();
    if !is_idle {
        let _ = gate::declare_ready(member, &turn, word);
        drop(turn);
        member.wake_waiting_threads();
        return;
    }
    if let Some(epoch) = turn.release() {
        end_turn();
        member.worker.post(move |member| tell_memory(member, submissions));
        member.connection.send(&ClientMessage::TurnReleased { epoch });
        ask_for_who_waits(member, &mut turn);
    }
}

fn end_turn() {
    if let Some(memory) = memory::get() {
        memory.turn_ended();
    }
}

fn ask_for_who_waits(member: &Member, turn: &mut crate::turn::Turn) {
    if member.waiting_threads() > 0 && turn.ask() {
        member.connection.send(&ClientMessage::TurnRequested);
    }
}

fn drain_step(member: &Member) -> Duration {
    Duration::from_millis(u64::from(member.settings().drain_step_ms.max(1)))
}
