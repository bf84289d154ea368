//! How fast one connection is listened to: a flood fills its own socket, not the daemon's time.
//!
//! Within a window of a few milliseconds a peer may say only so much; after that the loop does not
//! look at its socket until the window is over. Nothing is lost: the peer's sends wait, as they do
//! for any slow listener. The bound is far above what a program in earnest says.

use crate::daemon::server::Server;
use std::time::{Duration, Instant};
use turnus_protocol::limits::{MESSAGES_PER_WINDOW_MAX, WINDOW_MS};

const WINDOW: Duration = Duration::from_millis(WINDOW_MS);

/// What one connection has said in its window.
#[derive(Debug)]
pub struct Pace {
    window_start: Instant,
    messages: usize,
    /// Not listened to until the window is over.
    pub is_paused: bool,
}

impl Pace {
    /// Nothing said yet.
    pub fn new() -> Pace {
        Pace { window_start: Instant::now(), messages: 0, is_paused: false }
    }

    /// One more message. Answers when to listen again, if it was one too many.
    fn count(&mut self, now: Instant) -> Option<Instant> {
        if now.duration_since(self.window_start) >= WINDOW {
            self.window_start = now;
            self.messages = 0;
        }
        self.messages += 1;
        (self.messages >= MESSAGES_PER_WINDOW_MAX).then(|| self.window_start + WINDOW)
    }
}

impl Default for Pace {
    fn default() -> Self {
        Pace::new()
    }
}

impl Server {
    /// Counts a message of this connection; false if that is enough for now.
    pub(super) fn goes_on_listening(&mut self, number: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return false };
        if connection.pace.is_paused {
            // It has hung up: the rest of what it said is read at once and is soon over.
            return true;
        }
        let Some(until) = connection.pace.count(Instant::now()) else { return true };
        connection.pace.is_paused = true;
        self.paused.push_back((until, number));
        self.update_interest(number);
        false
    }

    /// Listens again to those whose window is over.
    pub(super) fn end_pauses(&mut self) {
        let now = Instant::now();
        while let Some(&(until, number)) = self.paused.front()
            && until <= now
        {
            self.paused.pop_front();
            if let Some(connection) = self.connections.get_mut(&number) {
                connection.pace = Pace::new();
                self.update_interest(number);
            }
        }
    }

    /// Until the next of them.
    pub(super) fn pause_left(&self) -> Option<Duration> {
        self.paused.front().map(|(until, _)| until.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_stopped_within_its_window_and_a_talkative_program_is_not() {
        let mut pace = Pace::new();
        let start = pace.window_start;
        let stopped = (1..=MESSAGES_PER_WINDOW_MAX).find(|_| pace.count(start).is_some());
        assert_eq!(stopped, Some(MESSAGES_PER_WINDOW_MAX));
        let mut pace = Pace::new();
        let start = pace.window_start;
        // A question and its answer take 50 microseconds at best.
        let asks =
            (0..10_000u32).all(|question| pace.count(start + question * Duration::from_micros(50)).is_none());
        assert!(asks, "a program that only waits for answers was stopped");
    }
}
