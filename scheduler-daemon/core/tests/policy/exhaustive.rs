//! Every short conversation of two tenants on one device: nothing they can say breaks a rule.
//!
//! From a start in which both have allocated, all sequences of four events are tried, with a
//! clone of the core at each fork. The rules are those of `Core::audit`, and that at most one gate
//! is open; what random lives might miss for being too long, this finds for being complete.

use crate::harness::{DEVICE, Harness, ms};
use std::collections::BTreeSet;
use turnus_core::{Input, MemberId, MemberMessage as Say, Output, RequestId};

const DEPTH: u32 = 4;

/// What can happen next. Epochs and orders are the newest that were given out, so that true and
/// late answers both occur.
fn events(harness: &Harness) -> Vec<Option<(u64, Say)>> {
    let mut events = vec![None];
    for member in [1, 2] {
        let epoch = harness.epoch(member).unwrap_or(turnus_core::Epoch(0));
        let order = RequestId(1);
        for message in [
            Say::TurnRequested,
            Say::TurnReleased { epoch },
            Say::Drained { epoch },
            Say::CreditsWanted { device: DEVICE, bytes: 700 },
            Say::CreditsReturned { device: DEVICE, bytes: 400 },
            Say::CreditsShort { device: DEVICE, bytes: 300, total_bytes: 1000, free_bytes: 0 },
            Say::Restored { epoch },
            Say::Evicted { device: DEVICE, order, pinned_bytes: 0 },
            Say::HeadRoomWanted { request: RequestId(9), device: DEVICE, bytes: 100 },
            Say::Faulted { device: DEVICE, code: 1 },
            Say::Goodbye,
        ] {
            events.push(Some((member, message)));
        }
    }
    events
}

fn explore(harness: &Harness, open: &BTreeSet<u64>, depth: u32, count: &mut u64) {
    if depth == 0 {
        return;
    }
    for event in events(harness) {
        let mut next = harness.clone();
        // `input` audits after each step.
        match &event {
            None => next.wait(ms(150)),
            Some((member, message)) => {
                next.input(Input::Message { member: MemberId(*member), message: message.clone() });
            }
        }
        let mut open = open.clone();
        for output in &next.outputs {
            match output {
                Output::OpenGate { tenant, .. } => drop(open.insert(tenant.0)),
                Output::CloseGate { tenant, .. } => drop(open.remove(&tenant.0)),
                _ => {}
            }
        }
        assert!(open.len() <= 1, "two gates are open after {event:?}");
        *count += 1;
        explore(&next, &open, depth - 1, count);
    }
}

#[test]
fn no_short_conversation_breaks_a_rule() {
    let mut harness = Harness::with_tenants(2);
    harness.fill(1, 700);
    assert_eq!(harness.reserve(2, 700), Ok(()));
    harness.say(2, Say::TurnRequested);
    let mut count = 0;
    explore(&harness, &BTreeSet::from([1]), DEPTH, &mut count);
    assert!(count > 200_000, "only {count} conversations were tried");
}
