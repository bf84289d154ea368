//! Questions to the daemon and the threads that wait for their answers.
//!
//! A question carries a number, the answer repeats it. Who asks sleeps without any lock of ours;
//! the client thread brings the answer. When the daemon is lost every open question fails, and
//! who asked decides whether to ask the next daemon.

use crate::connection::Connection;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use turnus_protocol::{ClientMessage, DaemonMessage, RequestId};

/// Why a question has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The daemon is lost; there may be another one later.
    #[error("the daemon is lost")]
    Lost,
    /// The process is ending.
    #[error("the process is ending")]
    Ending,
}

/// The answer, the descriptor that came with it, and the connection that brought it.
pub(crate) type Answer = (DaemonMessage, Option<OwnedFd>, u64);

/// Open questions.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    open: BTreeMap<u64, Option<Answer>>,
    is_lost: bool,
    is_ending: bool,
}

impl Requests {
    /// Sends the question that `make` makes with its number, and waits for the answer.
    pub(crate) fn ask(
        &self,
        connection: &Connection,
        make: impl FnOnce(RequestId) -> ClientMessage,
    ) -> Result<Answer, Unanswered> {
        let asked_on = connection.number();
        let mut state = self.state();
        check(&state)?;
        state.last += 1;
        let number = state.last;
        state.open.insert(number, None);
        drop(state);
        let is_sent = connection.send_on(asked_on, &make(RequestId(number)));
        let mut state = self.state();
        if !is_sent {
            // The daemon was replaced meanwhile. The new one must not do what nobody waits for.
            state.open.remove(&number);
            return Err(Unanswered::Lost);
        }
        loop {
            match state.open.get_mut(&number) {
                Some(Some(_)) => {
                    let answer = state.open.remove(&number).flatten();
                    return answer.ok_or(Unanswered::Lost);
                }
                // Taken out by `lost`.
                None => return Err(if state.is_ending { Unanswered::Ending } else { Unanswered::Lost }),
                Some(None) => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Brings an answer. One that nobody waits for is dropped, with its descriptor.
    pub(crate) fn answered(&self, request: RequestId, answer: Answer) {
        let mut state = self.state();
        if let Some(slot) = state.open.get_mut(&request.0) {
            *slot = Some(answer);
            self.changed.notify_all();
        }
    }

    /// The daemon is lost: nobody waits any longer.
    pub(crate) fn lost(&self) {
        let mut state = self.state();
        state.is_lost = true;
        state.open.retain(|_, answer| answer.is_some());
        self.changed.notify_all();
    }

    /// A daemon answers again.
    pub(crate) fn reconnected(&self) {
        self.state().is_lost = false;
        self.changed.notify_all();
    }

    /// The process is ending: nobody waits any longer, and nobody will.
    pub(crate) fn end(&self) {
        self.state().is_ending = true;
        self.lost();
    }

    /// Waits for a daemon, at most so long. False if there is none then.
    pub(crate) fn wait_for_daemon(&self, at_most: Duration) -> bool {
        let end = Instant::now() + at_most;
        let mut state = self.state();
        while state.is_lost && !state.is_ending {
            let Some(left) = end.checked_duration_since(Instant::now()) else { return false };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.is_ending
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(state: &State) -> Result<(), Unanswered> {
    if state.is_ending {
        Err(Unanswered::Ending)
    } else if state.is_lost {
        Err(Unanswered::Lost)
    } else {
        Ok(())
    }
}
