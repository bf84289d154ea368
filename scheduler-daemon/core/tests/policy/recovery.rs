//! Promises about a restart: who held the turn runs on, nothing is granted too early.

use crate::harness::{DEVICE, Harness, OTHER, device_message, ms, settings};
use turnus_core::{
    Epoch, Input, MemberId, MemberMessage as Say, Output, Reason, RequestId, SegmentId, Settings, TenantId,
    ToMember,
};

fn restarted(expected: &[u64]) -> Harness {
    let mut harness = Harness::new(Settings { incarnation: 2, ..settings() });
    harness.input(Input::Recover { expected: expected.iter().map(|id| MemberId(*id)).collect() });
    harness
}

#[test]
fn a_holder_runs_on_under_a_fresh_epoch_and_others_wait_for_everybody() {
    let mut harness = restarted(&[1, 2]);
    harness.connect(102, 2, Some(2));
    harness.say(102, device_message(DEVICE, 700, 0, None));
    harness.say(102, Say::Ready);
    harness.say(102, Say::TurnRequested);
    assert_eq!(harness.granted(102), None, "granted while a former holder may be running");
    assert!(harness.core.status(harness.now).recovering);
    assert_eq!(harness.line(2).reasons, ["recovering"]);
    harness.connect(101, 1, Some(1));
    harness.say(101, device_message(DEVICE, 900, 900, Some(Epoch((1 << 32) | 5))));
    harness.say(101, Say::Ready);
    let epoch = harness.granted(101).expect("the holder was not allowed to run on");
    assert_eq!(epoch.0 >> 32, 2, "an epoch of the former life");
    assert!(!harness.core.status(harness.now).recovering);
    assert!(harness.outputs.contains(&Output::OpenGate { tenant: TenantId(1), epoch }));
    assert_eq!(harness.granted(102), None);
    assert_eq!(harness.line(1).resident_bytes, 900);
}

#[test]
fn claims_above_capacity_stand_and_nothing_is_granted_on_top() {
    let mut harness = restarted(&[1, 2]);
    for (member, former) in [(101, 1), (102, 2)] {
        harness.connect(member, former, Some(former));
        harness.say(member, device_message(DEVICE, 800, 800, None));
        harness.say(member, Say::Ready);
    }
    harness.join(3, 3, &[DEVICE]);
    harness.say(3, Say::TurnRequested);
    harness.want(3, 100);
    let sent = harness.sent(3);
    assert_eq!(sent, [], "credits beyond capacity");
    let bytes: u64 = [101, 102]
        .iter()
        .flat_map(|member| harness.sent(*member))
        .map(|message| if let ToMember::Evict { bytes, .. } = message { bytes } else { 0 })
        .sum();
    assert!(bytes >= 100);
}

#[test]
fn who_never_comes_back_is_waited_for_no_longer_than_the_recovery_time() {
    let mut harness = restarted(&[1]);
    harness.join(2, 2, &[DEVICE]);
    harness.say(2, Say::TurnRequested);
    harness.say(2, Say::Reserve { request: RequestId(1), device: DEVICE, bytes: 10 });
    harness.wait(ms(1999));
    assert_eq!(harness.sent(2), []);
    harness.wait(ms(1));
    assert_eq!(harness.sent(2)[0], ToMember::Reserved { request: RequestId(1) });
    assert!(harness.granted(2).is_some());
}

#[test]
fn an_expected_member_that_died_is_not_waited_for() {
    let mut harness = restarted(&[1]);
    harness.join(2, 2, &[DEVICE]);
    harness.say(2, Say::TurnRequested);
    harness.input(Input::ExpectedGone { former: MemberId(1) });
    assert!(harness.granted(2).is_some());
}

#[test]
fn only_members_of_the_former_life_may_claim() {
    for lie in [
        device_message(DEVICE, 10, 10, None),
        device_message(DEVICE, 0, 0, Some(Epoch(1))),
        Say::SegmentClaim { segment: SegmentId(1), bytes: 10 },
    ] {
        let mut harness = Harness::with_tenants(1);
        harness.connect(9, 9, None);
        harness.say(9, lie);
        let rejected = |output: &Output| {
            matches!(
                output,
                Output::RejectMember { member: MemberId(9), reason: Reason::ProtocolViolation, .. }
            )
        };
        assert!(harness.outputs.iter().any(rejected));
        assert_eq!(harness.core.status(harness.now).devices[0].resident_bytes, 0);
    }
}

#[test]
fn claimed_segments_are_counted_and_two_members_cannot_claim_the_same() {
    let mut harness = restarted(&[1, 2]);
    harness.connect(101, 1, Some(1));
    harness.say(101, Say::SegmentClaim { segment: SegmentId(4), bytes: 64 });
    assert_eq!(harness.core.status(harness.now).host_pool.leased_bytes, 64);
    harness.connect(102, 2, Some(2));
    harness.say(102, Say::SegmentClaim { segment: SegmentId(4), bytes: 64 });
    assert!(harness.outputs.iter().any(|output| matches!(output, Output::RejectMember { .. })));
    assert_eq!(harness.core.status(harness.now).host_pool.leased_bytes, 64);
}

#[test]
fn after_shutdown_nothing_is_granted_and_everybody_is_told() {
    let mut harness = Harness::with_tenants(2);
    harness.say(1, Say::TurnRequested);
    harness.input(Input::Shutdown);
    assert_eq!(harness.outputs.len(), 2);
    harness.say(2, Say::TurnRequested);
    assert_eq!(harness.outputs, []);
    assert_eq!(harness.core.next_deadline(), None);
}

#[test]
fn a_claimed_turn_takes_no_device_that_only_a_new_member_uses() {
    let mut harness = restarted(&[1, 2]);
    harness.join(50, 1, &[OTHER]);
    harness.connect(101, 1, Some(1));
    harness.say(101, device_message(DEVICE, 0, 0, Some(Epoch(1))));
    harness.say(101, Say::Ready);
    assert!(harness.granted(101).is_some());
    assert_eq!(harness.granted(50), None, "runs where a former holder may be running");
    harness.connect(102, 2, Some(2));
    harness.say(102, device_message(OTHER, 0, 0, Some(Epoch(2))));
    harness.say(102, Say::Ready);
    assert!(harness.granted(102).is_some(), "lost its turn to a member that is new");
}

#[test]
fn the_size_of_a_device_is_seen_when_all_claims_are_known() {
    let mut harness = restarted(&[1, 2]);
    for (member, resident_bytes) in [(101, 300), (102, 600)] {
        harness.connect(member, member - 100, Some(member - 100));
        let mut claim = device_message(DEVICE, resident_bytes, resident_bytes, None);
        if let Say::Device { free_bytes, .. } = &mut claim {
            // What both leave of 1,000 bytes less 50 of contexts, whoever looks.
            *free_bytes = 50;
        }
        harness.say(member, claim);
        harness.say(member, Say::Ready);
    }
    assert_eq!(harness.reserve(101, 650), Ok(()), "the first claimer saw only its own bytes");
    assert_eq!(harness.reserve(101, 1), Err(Reason::CapacityExceeded));
    assert_eq!(harness.reserve(102, 350), Ok(()));
    assert_eq!(harness.reserve(102, 1), Err(Reason::CapacityExceeded));
}

#[test]
fn who_comes_back_late_does_not_make_the_device_small_for_others() {
    let mut harness = restarted(&[1, 2]);
    let claim = |resident_bytes| {
        let mut claim = device_message(DEVICE, resident_bytes, resident_bytes, None);
        if let Say::Device { free_bytes, .. } = &mut claim {
            *free_bytes = 50;
        }
        claim
    };
    harness.connect(101, 1, Some(1));
    harness.say(101, claim(300));
    harness.say(101, Say::Ready);
    harness.wait(ms(2500));
    harness.say(101, Say::Usage { device: DEVICE, total_bytes: 1000, free_bytes: 50 });
    assert_eq!(harness.reserve(101, 100), Err(Reason::CapacityExceeded), "600 bytes are a stranger's");
    harness.connect(102, 2, Some(2));
    harness.say(102, claim(600));
    harness.say(102, Say::Ready);
    assert_eq!(harness.reserve(101, 650), Ok(()), "the bytes of a member still count as a stranger's");
    assert_eq!(harness.reserve(101, 1), Err(Reason::CapacityExceeded));
    assert_eq!(harness.reserve(102, 350), Ok(()));
}
