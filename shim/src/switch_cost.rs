//! What the last switch to this member cost: the time from the grant until every byte was there.
//!
//! An idle holder keeps its turn for as long as the next switch would cost, and the last one is the best guess.
//! Whoever rents until the rent has reached the price pays at most twice what the best foresight would have
//! paid; giving up a turn at the first pause makes programs with short pauses move their bytes at each of them.
//! Measured only for the turn as a whole: what is allocated later in a turn is no part of it.

use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Times of one member.
#[derive(Debug, Default)]
pub(crate) struct SwitchCost(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The grant of a turn whose bytes are still on their way.
    under_way: Option<Instant>,
    last: Duration,
}

impl SwitchCost {
    /// A turn begins. `is_complete`: nothing had to come.
    pub(crate) fn granted(&self, is_complete: bool) {
        let mut state = self.state();
        state.under_way = (!is_complete).then(Instant::now);
        if is_complete {
            state.last = Duration::ZERO;
        }
    }

    /// Every byte is there.
    pub(crate) fn restored(&self) {
        let mut state = self.state();
        if let Some(since) = state.under_way.take() {
            state.last = since.elapsed();
        }
    }

    /// How long the switch to the present turn took; zero if nothing had to come.
    pub(crate) fn last(&self) -> Duration {
        self.state().last
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_costs_what_it_took_and_nothing_when_nothing_had_to_come() {
        let cost = SwitchCost::default();
        assert_eq!(cost.last(), Duration::ZERO);
        cost.granted(false);
        std::thread::sleep(Duration::from_millis(5));
        cost.restored();
        let took = cost.last();
        assert!(took >= Duration::from_millis(5), "{took:?}");
        std::thread::sleep(Duration::from_millis(5));
        cost.restored();
        assert_eq!(cost.last(), took, "what comes later in the turn is no switch");
        cost.granted(true);
        assert_eq!(cost.last(), Duration::ZERO);
    }
}
