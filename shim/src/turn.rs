//! What this member knows about its turn, and what a waiting thread does next.
//!
//! A pure state: no clock, no socket, no lock. The member keeps it in a mutex; waiting threads ask
//! [`Turn::next_step`], the client thread reports what the daemon said, the worker what it moved.
//! Whoever declares readiness or takes it away holds that mutex, so the two never cross.
//!
//! A turn can begin here before the daemon's message arrives: a waiting thread that sees the open
//! word of a new epoch takes it, which is what makes a hand-over fast.

use turnus_gate::word;
use turnus_protocol::Epoch;

/// Where the member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No turn, and none was held on this connection.
    Away,
    /// The turn of this open word; the epoch is known once the daemon's message has arrived.
    Held { word: u32, epoch: Option<Epoch> },
    /// The gate is closed and submitted work is brought to its end.
    Draining { epoch: Epoch },
    /// Closed by ourselves because nothing was going on.
    Released { epoch: Epoch },
    /// All work of this turn has finished, and the daemon knows.
    Drained { epoch: Epoch },
}

/// What a thread at the closed gate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The turn is ours: declare readiness for this word if every byte is there, and try again.
    TryReady { word: u32 },
    /// Pass, marked as admitted.
    Admit,
    /// Sleep until the daemon's word is no longer this one. `ask`: say `TurnRequested` first.
    WaitForWord { word: u32, ask: bool },
    /// Sleep until something inside this process changes. `ask` as above.
    WaitForChange { ask: bool },
}

/// The state.
#[derive(Debug)]
pub(crate) struct Turn {
    phase: Phase,
    /// `TurnRequested` was said and not answered.
    requested: bool,
    /// Waiting threads that may pass although the gate is closed.
    permits: u32,
    /// Evictions under way: bytes leave, so nobody may pass.
    evictions: u32,
    /// Whether a daemon listens.
    connected: bool,
}

impl Turn {
    /// No turn, connected.
    pub(crate) fn new() -> Turn {
        Turn { phase: Phase::Away, requested: false, permits: 0, evictions: 0, connected: true }
    }

    /// Where the member stands.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether a permit was given that nobody has used.
    pub(crate) fn has_permit(&self) -> bool {
        self.permits > 0
    }

    /// Whether bytes are leaving the device.
    pub(crate) fn is_evicting(&self) -> bool {
        self.evictions > 0
    }

    /// What a thread does that did not pass. `current` is the daemon's word now.
    pub(crate) fn next_step(&mut self, current: u32, capture_open: bool) -> Step {
        match self.phase {
            Phase::Held { word, .. } if word == current => self.ready_step(word),
            Phase::Held { .. } | Phase::Draining { .. } if capture_open => Step::Admit,
            Phase::Held { .. } => Step::WaitForChange { ask: false },
            Phase::Draining { .. } | Phase::Drained { .. } if self.permits > 0 => {
                self.permits -= 1;
                Step::Admit
            }
            Phase::Draining { .. } => Step::WaitForChange { ask: false },
            Phase::Drained { epoch } | Phase::Released { epoch } if current == word::open(epoch.0) => {
                // Of a drained turn: the daemon's message that it goes on is on its way. Of a
                // released one: the turn has not ended yet, so asking may get it back.
                let released = matches!(self.phase, Phase::Released { .. });
                Step::WaitForChange { ask: released && self.ask() }
            }
            _ if word::is_open(current) => {
                if self.evictions == 0 {
                    self.begin(current, None);
                }
                self.ready_step(current)
            }
            _ => Step::WaitForWord { word: current, ask: self.ask() },
        }
    }

    /// Whether `TurnRequested` is to be said now, for threads that already sleep.
    pub(crate) fn ask(&mut self) -> bool {
        let ask = self.connected && !self.requested;
        self.requested |= ask;
        ask
    }

    /// `TurnGranted`. The turn is held from here on; the caller tries readiness.
    pub(crate) fn granted(&mut self, epoch: Epoch) {
        self.begin(word::open(epoch.0), Some(epoch));
    }

    /// `Drain`. True: the drain begins here. False: nothing of this turn is under way.
    pub(crate) fn drain(&mut self, epoch: Epoch) -> bool {
        match self.phase {
            Phase::Held { .. } | Phase::Draining { .. } => {
                self.phase = Phase::Draining { epoch };
                true
            }
            _ => {
                self.phase = Phase::Drained { epoch };
                false
            }
        }
    }

    /// `DrainCancelled`: the turn goes on. False if it was not being drained.
    pub(crate) fn drain_cancelled(&mut self, epoch: Epoch) -> bool {
        let ours =
            matches!(self.phase, Phase::Draining { epoch: of } | Phase::Drained { epoch: of } if of == epoch);
        if ours {
            self.begin(word::open(epoch.0), Some(epoch));
        }
        ours
    }

    /// All work has finished.
    pub(crate) fn drained(&mut self, epoch: Epoch) {
        self.permits = 0;
        self.phase = Phase::Drained { epoch };
    }

    /// The holder closed its own gate and nothing was going on. False if it holds no turn.
    pub(crate) fn release(&mut self) -> Option<Epoch> {
        let Phase::Held { epoch: Some(epoch), .. } = self.phase else { return None };
        self.phase = Phase::Released { epoch };
        Some(epoch)
    }

    /// Lets one waiting thread through and makes the drain begin anew.
    pub(crate) fn permit_one(&mut self, epoch: Epoch) {
        if matches!(self.phase, Phase::Draining { .. } | Phase::Drained { .. }) {
            self.phase = Phase::Draining { epoch };
            self.permits = 1;
        }
    }

    /// Takes back a permit that nobody used.
    pub(crate) fn withdraw_permit(&mut self) {
        self.permits = 0;
    }

    /// An eviction wants to begin. False when the member has, or is about to have, the turn.
    pub(crate) fn begin_eviction(&mut self, current: u32) -> bool {
        let without_turn = match self.phase {
            Phase::Held { .. } | Phase::Draining { .. } => false,
            Phase::Drained { epoch } => current == word::closed(epoch.0) || !word::is_open(current),
            Phase::Released { epoch } => !word::is_open(current) || current == word::open(epoch.0),
            Phase::Away => !word::is_open(current),
        };
        self.evictions += u32::from(without_turn);
        without_turn
    }

    /// The eviction is over.
    pub(crate) fn end_eviction(&mut self) {
        self.evictions = self.evictions.saturating_sub(1);
    }

    /// The daemon is lost. A turn that is held is held on; a drain has nobody to tell about.
    pub(crate) fn lost(&mut self) {
        self.connected = false;
        self.requested = false;
        self.permits = 0;
        self.phase = match self.phase {
            held @ Phase::Held { .. } => held,
            // Work may still run: the turn is claimed again at the next daemon.
            Phase::Draining { epoch } => Phase::Held { word: word::open(epoch.0), epoch: Some(epoch) },
            _ => Phase::Away,
        };
    }

    /// A sticky fault was said: the daemon takes it as the end of the turn and says nothing more
    /// about it. True if a turn was held; the next call asks for another.
    pub(crate) fn faulted(&mut self) -> bool {
        self.release().is_some()
    }

    /// The turn that a new daemon is told about. Of one whose message never came the word has the
    /// lower half of the epoch, which is all that is needed to tell that there was one.
    pub(crate) fn claimed_epoch(&self) -> Option<Epoch> {
        match self.phase {
            Phase::Held { epoch, word } => Some(epoch.unwrap_or(Epoch(u64::from(word >> 1)))),
            Phase::Draining { epoch } => Some(epoch),
            _ => None,
        }
    }

    /// The new daemon did not give the claimed turn.
    pub(crate) fn drop_claim(&mut self) {
        if matches!(self.phase, Phase::Held { .. }) {
            self.phase = Phase::Away;
        }
    }

    /// A daemon listens again.
    pub(crate) fn reconnected(&mut self) {
        self.connected = true;
        self.requested = false;
    }

    fn begin(&mut self, word: u32, epoch: Option<Epoch>) {
        self.requested = false;
        self.permits = 0;
        self.phase = Phase::Held { word, epoch };
    }

    fn ready_step(&self, word: u32) -> Step {
        if self.evictions > 0 { Step::WaitForChange { ask: false } } else { Step::TryReady { word } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Epoch = Epoch(1 << 32 | 1);
    const SECOND: Epoch = Epoch(1 << 32 | 2);

    fn open(epoch: Epoch) -> u32 {
        word::open(epoch.0)
    }

    fn closed(epoch: Epoch) -> u32 {
        word::closed(epoch.0)
    }

    #[test]
    fn the_first_waiter_asks_and_the_second_only_waits() {
        let mut turn = Turn::new();
        assert_eq!(turn.next_step(0, false), Step::WaitForWord { word: 0, ask: true });
        assert_eq!(turn.next_step(0, false), Step::WaitForWord { word: 0, ask: false });
    }

    #[test]
    fn a_waiter_takes_the_turn_before_the_message_and_the_message_adds_the_epoch() {
        let mut turn = Turn::new();
        turn.next_step(0, false);
        assert_eq!(turn.next_step(open(FIRST), false), Step::TryReady { word: open(FIRST) });
        assert_eq!(turn.phase(), Phase::Held { word: open(FIRST), epoch: None });
        turn.granted(FIRST);
        assert_eq!(turn.phase(), Phase::Held { word: open(FIRST), epoch: Some(FIRST) });
    }

    #[test]
    fn nobody_passes_while_bytes_leave_although_the_daemon_opened_the_gate() {
        let mut turn = Turn::new();
        assert!(turn.begin_eviction(0));
        assert_eq!(turn.next_step(open(FIRST), false), Step::WaitForChange { ask: false });
        turn.end_eviction();
        assert_eq!(turn.next_step(open(FIRST), false), Step::TryReady { word: open(FIRST) });
        assert!(!turn.begin_eviction(open(FIRST)), "bytes would leave during a turn");
    }

    #[test]
    fn an_order_to_evict_that_crosses_the_grant_is_not_obeyed() {
        let mut turn = Turn::new();
        assert!(!turn.begin_eviction(open(FIRST)), "the gate is open already");
        turn.granted(FIRST);
        turn.drain(FIRST);
        assert!(!turn.begin_eviction(closed(FIRST)), "work may still run");
        turn.drained(FIRST);
        assert!(turn.begin_eviction(closed(FIRST)));
    }

    #[test]
    fn a_released_turn_is_asked_back_and_never_taken_back_silently() {
        let mut turn = Turn::new();
        turn.granted(FIRST);
        assert_eq!(turn.release(), Some(FIRST));
        assert_eq!(turn.next_step(open(FIRST), false), Step::WaitForChange { ask: true });
        assert_eq!(turn.next_step(open(FIRST), false), Step::WaitForChange { ask: false });
        turn.granted(FIRST);
        assert_eq!(turn.next_step(open(FIRST), false), Step::TryReady { word: open(FIRST) });
    }

    #[test]
    fn a_drain_admits_exactly_as_many_as_were_permitted() {
        let mut turn = Turn::new();
        turn.granted(FIRST);
        assert!(turn.drain(FIRST));
        assert_eq!(turn.next_step(closed(FIRST), false), Step::WaitForChange { ask: false });
        turn.permit_one(FIRST);
        assert_eq!(turn.next_step(closed(FIRST), false), Step::Admit);
        assert_eq!(turn.next_step(closed(FIRST), false), Step::WaitForChange { ask: false });
    }

    #[test]
    fn threads_pass_while_a_capture_is_open_and_the_turn_is_not_given_up() {
        let mut turn = Turn::new();
        turn.granted(FIRST);
        assert_eq!(turn.next_step(closed(FIRST), true), Step::Admit);
        turn.drain(FIRST);
        assert_eq!(turn.next_step(closed(FIRST), true), Step::Admit);
        turn.drained(FIRST);
        assert_eq!(turn.next_step(closed(FIRST), true), Step::WaitForWord { word: closed(FIRST), ask: true });
    }

    #[test]
    fn after_a_drain_a_waiter_asks_for_the_next_turn_and_takes_only_a_new_one() {
        let mut turn = Turn::new();
        turn.granted(FIRST);
        turn.drain(FIRST);
        turn.drained(FIRST);
        assert_eq!(
            turn.next_step(closed(FIRST), false),
            Step::WaitForWord { word: closed(FIRST), ask: true }
        );
        // Open again with the same epoch: only the daemon's message makes it a turn.
        assert_eq!(turn.next_step(open(FIRST), false), Step::WaitForChange { ask: false });
        assert_eq!(turn.next_step(open(SECOND), false), Step::TryReady { word: open(SECOND) });
    }

    #[test]
    fn a_cancelled_drain_gives_the_turn_back() {
        let mut turn = Turn::new();
        turn.granted(FIRST);
        turn.drain(FIRST);
        assert!(turn.drain_cancelled(FIRST));
        assert_eq!(turn.next_step(open(FIRST), false), Step::TryReady { word: open(FIRST) });
        assert!(!turn.drain_cancelled(SECOND));
    }

    #[test]
    fn a_lost_daemon_is_not_asked_and_unfinished_work_is_claimed() {
        let mut turn = Turn::new();
        turn.granted(FIRST);
        turn.drain(FIRST);
        turn.lost();
        assert_eq!(turn.claimed_epoch(), Some(FIRST));
        turn.drained(FIRST);
        turn.lost();
        assert_eq!(turn.claimed_epoch(), None);
        assert_eq!(
            turn.next_step(closed(FIRST), false),
            Step::WaitForWord { word: closed(FIRST), ask: false }
        );
        turn.reconnected();
        assert!(turn.ask());
    }

    /// The daemon died between opening the gate and saying so.
    #[test]
    fn a_turn_that_was_taken_before_its_message_is_claimed_too() {
        let mut turn = Turn::new();
        turn.next_step(open(FIRST), false);
        turn.lost();
        let claimed = turn.claimed_epoch().expect("work may be running");
        assert!(word::is_of_epoch(open(FIRST), claimed.0));
    }

    #[test]
    fn after_a_fault_the_turn_is_over_and_the_next_call_asks_again() {
        let mut turn = Turn::new();
        turn.granted(FIRST);
        assert!(turn.faulted());
        assert_eq!(
            turn.next_step(closed(FIRST), false),
            Step::WaitForWord { word: closed(FIRST), ask: true }
        );
        turn.granted(SECOND);
        assert_eq!(turn.next_step(open(SECOND), false), Step::TryReady { word: open(SECOND) });
    }
}
