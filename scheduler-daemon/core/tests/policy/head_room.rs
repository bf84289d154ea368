//! Promises about a first context: it is made also on a full device, and nobody is ruined by it.

use crate::harness::{DEVICE, Harness, ms};
use turnus_core::{MemberId, MemberMessage as Say, Output, RequestId, ToMember};

const REQUEST: RequestId = RequestId(3);

/// Member 9 has no context yet, so nobody knows that it will use the device.
fn ask(harness: &mut Harness, bytes: u64) {
    harness.connect(9, 9, None);
    harness.say(9, Say::Ready);
    harness.say(9, Say::HeadRoomWanted { request: REQUEST, device: DEVICE, bytes });
}

fn order_to(harness: &Harness, member: u64) -> Option<(RequestId, u64)> {
    harness.outputs.iter().find_map(|output| match output {
        Output::Send { member: to, message: ToMember::Evict { order, bytes, .. } }
            if *to == MemberId(member) =>
        {
            Some((*order, *bytes))
        }
        _ => None,
    })
}

#[test]
fn a_first_context_waits_for_the_end_of_the_holders_turn_and_gets_its_room_before_the_next() {
    let mut harness = Harness::with_tenants(2);
    harness.fill(1, 800);
    let epoch = harness.epoch(1).expect("a turn");
    ask(&mut harness, 100);
    assert_eq!(harness.sent(9), [], "answered before anything could be made");
    assert_eq!(harness.sent(1), [ToMember::OthersWaiting { count: 1 }]);
    harness.wait(ms(100));
    assert_eq!(harness.sent(1), [ToMember::Drain { epoch }]);
    harness.say(1, Say::TurnRequested);
    harness.say(1, Say::Drained { epoch });
    let (order, bytes) = order_to(&harness, 1).expect("the former holder's bytes go");
    assert_eq!((bytes, harness.granted(1)), (100, None), "a turn began while room is made");
    harness.say(1, Say::CreditsReturned { device: DEVICE, bytes: 100 });
    assert_eq!(harness.sent(9), [ToMember::HeadRoomMade { request: REQUEST, bytes: 100 }]);
    harness.say(1, Say::Evicted { device: DEVICE, order, pinned_bytes: 0 });
    assert!(harness.epoch(1) > Some(epoch), "who asked again was forgotten");
}

#[test]
fn a_first_context_never_takes_what_a_tenant_needs_to_be_whole() {
    let mut harness = Harness::with_tenants(1);
    harness.fill(1, 950);
    harness.release(1);
    ask(&mut harness, 100);
    let (_, bytes) = order_to(&harness, 1).expect("an idle tenant's bytes go");
    assert_eq!(bytes, 50);
}

#[test]
fn a_holder_that_does_not_end_is_not_waited_for_for_ever() {
    let mut harness = Harness::with_tenants(1);
    harness.fill(1, 800);
    ask(&mut harness, 100);
    harness.wait(ms(14_999));
    assert_eq!(harness.sent(9), []);
    harness.wait(ms(1));
    assert_eq!(harness.sent(9), [ToMember::HeadRoomMade { request: REQUEST, bytes: 0 }]);
}

#[test]
fn who_waits_for_room_is_answered_when_the_last_user_has_left_and_forgotten_when_gone() {
    let mut harness = Harness::with_tenants(1);
    harness.fill(1, 800);
    ask(&mut harness, 100);
    harness.input(turnus_core::Input::MemberGone { member: MemberId(1) });
    assert_eq!(harness.sent(9), [ToMember::HeadRoomMade { request: REQUEST, bytes: 100 }]);
    let mut harness = Harness::with_tenants(1);
    harness.fill(1, 800);
    ask(&mut harness, 100);
    harness.input(turnus_core::Input::MemberGone { member: MemberId(9) });
    assert_eq!(harness.sent(1), [ToMember::OthersWaiting { count: 0 }], "nobody waits any more");
    harness.wait(ms(1000));
    assert_eq!(harness.sent(1), [], "drained for nobody");
}

#[test]
fn newcomers_that_ask_and_vanish_cost_one_eviction_a_second() {
    let mut harness = Harness::with_tenants(1);
    harness.fill(1, 950);
    harness.release(1);
    ask(&mut harness, 100);
    let (order, bytes) = order_to(&harness, 1).expect("room is made for the first one");
    harness.say(1, Say::CreditsReturned { device: DEVICE, bytes });
    harness.say(1, Say::Evicted { device: DEVICE, order, pinned_bytes: 0 });
    harness.input(turnus_core::Input::MemberGone { member: MemberId(9) });

    harness.connect(10, 10, None);
    harness.say(10, Say::Ready);
    harness.say(10, Say::HeadRoomWanted { request: REQUEST, device: DEVICE, bytes: 100 });
    assert_eq!(order_to(&harness, 1), None, "the second one costs the tenant its bytes at once");
    harness.wait(ms(1000));
    assert!(order_to(&harness, 1).is_some(), "the second one is never served");
}
