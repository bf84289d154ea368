//! What is due when: one deadline per purpose, served in order of time.
//!
//! Setting a purpose again replaces its deadline. Whoever is woken looks at the facts again, so a
//! deadline that has lost its reason does no harm. Knows nothing about what the purposes mean.

use crate::ids::{DeviceKey, MemberId, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// The time for former members is over.
    Recovery,
    /// The holder's quantum is over, or a failed drain is to be tried again.
    Quantum(TenantId),
    /// The holder's drain has taken too long.
    Drain(TenantId),
    /// The holder's restore has taken too long to hold back the quantum.
    Restore(TenantId),
    /// A waiter should hear who is ahead.
    Notice(TenantId),
    /// An evict order is overdue.
    Order(MemberId, DeviceKey),
    /// Look again whether credits can be granted.
    Credits(DeviceKey),
}

/// All deadlines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Duration, Purpose)>,
    by_purpose: BTreeMap<Purpose, Duration>,
}

impl Timers {
    pub(crate) fn set(&mut self, purpose: Purpose, at: Duration) {
        self.clear(purpose);
        self.by_time.insert((at, purpose));
        self.by_purpose.insert(purpose, at);
    }

    /// Like `set`, but an earlier deadline stays.
    pub(crate) fn set_earlier(&mut self, purpose: Purpose, at: Duration) {
        if self.by_purpose.get(&purpose).is_none_or(|already| at < *already) {
            self.set(purpose, at);
        }
    }

    pub(crate) fn clear(&mut self, purpose: Purpose) {
        if let Some(at) = self.by_purpose.remove(&purpose) {
            self.by_time.remove(&(at, purpose));
        }
    }

    pub(crate) fn next(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out the first purpose that is due.
    pub(crate) fn take_due(&mut self, now: Duration) -> Option<Purpose> {
        let (at, purpose) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.clear(purpose);
        Some(purpose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purpose_has_one_deadline_and_is_served_in_order_of_time() {
        let (mut timers, second) = (Timers::default(), Duration::from_secs);
        timers.set(Purpose::Recovery, second(5));
        timers.set(Purpose::Quantum(TenantId(1)), second(3));
        timers.set(Purpose::Recovery, second(2));
        timers.set_earlier(Purpose::Quantum(TenantId(1)), second(9));
        assert_eq!(timers.next(), Some(second(2)));
        assert_eq!(timers.take_due(second(1)), None);
        assert_eq!(timers.take_due(second(9)), Some(Purpose::Recovery));
        assert_eq!(timers.take_due(second(9)), Some(Purpose::Quantum(TenantId(1))));
        assert_eq!(timers.take_due(second(9)), None);
    }
}
