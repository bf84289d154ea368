//! Promises about bytes: credits, victims, shortages, admission, host segments, head-room.

use crate::harness::{DEVICE, Harness, device_message, ms, sent_to, settings};
use turnus_core::{
    DeviceKey, Input, Level, MemberId, MemberMessage as Say, Output, Reason, RequestId, SegmentId, Settings,
    ToMember,
};

fn orders(outputs: &[Output]) -> Vec<(u64, RequestId, u64)> {
    let orders = outputs.iter().filter_map(|output| match output {
        Output::Send { member, message: ToMember::Evict { order, bytes, .. } } => {
            Some((member.0, *order, *bytes))
        }
        _ => None,
    });
    orders.collect()
}

fn credits(bytes: u64) -> ToMember {
    ToMember::Credits { device: DEVICE, bytes }
}

#[test]
fn only_what_is_missing_is_evicted_and_forwarded_in_pieces() {
    let mut harness = Harness::with_tenants(2);
    harness.fill(1, 800);
    harness.release(1);
    assert_eq!(harness.reserve(2, 500), Ok(()));
    harness.say(2, Say::TurnRequested);
    harness.want(2, 500);
    assert_eq!(harness.sent(2), [credits(200)]);
    let [(1, order, 300)] = orders(&harness.outputs)[..] else { panic!("{:?}", harness.outputs) };
    for _ in 0..3 {
        harness.say(1, Say::CreditsReturned { device: DEVICE, bytes: 100 });
        assert_eq!(harness.sent(2), [credits(100)]);
    }
    harness.say(1, Say::Evicted { device: DEVICE, order, pinned_bytes: 0 });
    assert_eq!(harness.outputs, []);
    assert_eq!(harness.line(1).resident_bytes, 500);
}

#[test]
fn the_tenant_whose_next_turn_is_farthest_is_evicted_first() {
    let mut harness = Harness::with_tenants(5);
    for member in [3, 1, 2, 4] {
        harness.fill(member, 200);
        harness.wait(ms(1));
        harness.release(member);
    }
    // 5 holds; 1 and 2 wait in this order; 3 and 4 do not wait, 3 had its turn longer ago.
    assert_eq!(harness.reserve(5, 1000), Ok(()));
    harness.say(5, Say::TurnRequested);
    harness.say(1, Say::TurnRequested);
    harness.say(2, Say::TurnRequested);
    harness.want(5, 900);
    let members: Vec<u64> = orders(&harness.outputs).iter().map(|order| order.0).collect();
    assert_eq!(members, [3, 4, 2, 1]);
    assert_eq!(orders(&harness.outputs)[3].2, 100, "the nearest gives only what is lacking");
}

#[test]
fn pinned_bytes_and_the_holder_are_never_victims() {
    let mut harness = Harness::with_tenants(2);
    harness.fill(1, 600);
    let moved = Say::Moved {
        device: DEVICE,
        to_host_bytes: 0,
        to_device_bytes: 0,
        resident_bytes: 600,
        host_bytes: 0,
        pinned_bytes: 500,
    };
    harness.say(1, moved);
    harness.release(1);
    harness.say(2, Say::TurnRequested);
    harness.want(2, 1000);
    assert_eq!(
        orders(&harness.outputs).iter().map(|order| (order.0, order.2)).collect::<Vec<_>>(),
        [(1, 100)]
    );
    assert_eq!(harness.line(2).reasons, ["evicting: t1"]);
}

#[test]
fn a_silent_victim_is_named_and_others_are_asked_instead() {
    let mut harness = Harness::with_tenants(3);
    harness.fill(1, 500);
    harness.release(1);
    harness.wait(ms(1));
    harness.fill(2, 500);
    harness.release(2);
    harness.say(3, Say::TurnRequested);
    harness.want(3, 300);
    assert_eq!(orders(&harness.outputs).iter().map(|order| order.0).collect::<Vec<_>>(), [1]);
    harness.wait(ms(5000));
    assert_eq!(
        orders(&harness.outputs).iter().map(|order| (order.0, order.2)).collect::<Vec<_>>(),
        [(2, 300)]
    );
    assert!(harness.line(3).reasons.contains(&"unresponsive: t1".to_string()));
    harness.say(1, Say::CreditsReturned { device: DEVICE, bytes: 300 });
    assert_eq!(harness.sent(3), [credits(300)], "what comes late is welcome");
}

#[test]
fn who_evicts_nothing_is_not_asked_again_at_once() {
    let mut harness = Harness::with_tenants(2);
    harness.fill(1, 1000);
    harness.release(1);
    harness.say(2, Say::TurnRequested);
    harness.want(2, 100);
    let (_, order, _) = orders(&harness.outputs)[0];
    harness.say(1, Say::Evicted { device: DEVICE, order, pinned_bytes: 1000 });
    assert_eq!(orders(&harness.outputs), []);
    harness.wait(ms(499));
    assert_eq!(orders(&harness.outputs), []);
    harness.wait(ms(1));
    assert_eq!(orders(&harness.outputs).len(), 1);
}

#[test]
fn the_driver_is_believed_when_credits_fall_short() {
    let mut harness = Harness::with_tenants(2);
    harness.fill(1, 500);
    harness.release(1);
    harness.say(2, Say::TurnRequested);
    harness.want(2, 400);
    assert_eq!(harness.sent(2), [credits(400)]);
    // Somebody outside took memory: of 400 only 250 could be made, nothing is free.
    harness.say(2, Say::CreditsShort { device: DEVICE, bytes: 150, total_bytes: 1000, free_bytes: 0 });
    assert_eq!(
        orders(&harness.outputs).iter().map(|order| (order.0, order.2)).collect::<Vec<_>>(),
        [(1, 150)]
    );
    harness.say(1, Say::CreditsReturned { device: DEVICE, bytes: 150 });
    assert_eq!(harness.sent(2), [credits(150)]);
}

#[test]
fn a_shortage_with_nobody_to_evict_is_retried_with_back_off() {
    let mut harness = Harness::with_tenants(1);
    harness.fill(1, 500);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        harness.say(1, Say::CreditsShort { device: DEVICE, bytes: 100, total_bytes: 1000, free_bytes: 0 });
        assert_eq!(harness.sent(1), []);
        let start = harness.now;
        while harness.sent(1).is_empty() {
            harness.wait(ms(1));
        }
        assert_eq!(harness.sent(1), [credits(100)]);
        pauses.push((harness.now - start).as_millis());
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 500, 500]);
    assert_eq!(harness.reserve(1, 400), Ok(()), "a shortage that may pass refused an allocation");
}

#[test]
fn a_newcomer_in_a_shortage_that_passes_makes_the_device_no_smaller() {
    let mut harness = Harness::with_tenants(2);
    harness.fill(1, 500);
    // Freed frames are still being scrubbed, so the driver is short for a moment.
    harness.say(1, Say::CreditsShort { device: DEVICE, bytes: 100, total_bytes: 1000, free_bytes: 0 });
    harness.connect(3, 3, None);
    let mut said = device_message(DEVICE, 0, 0, None);
    if let Say::Device { free_bytes, .. } = &mut said {
        *free_bytes = 100;
    }
    harness.say(3, said);
    harness.say(3, Say::Ready);
    assert_eq!(harness.reserve(2, 900), Ok(()), "what the newcomer saw was believed for everybody");
}

#[test]
fn returning_more_than_held_or_on_strange_devices_harms_nobody() {
    let mut harness = Harness::with_tenants(2);
    harness.fill(1, 600);
    harness.say(2, Say::CreditsReturned { device: DEVICE, bytes: u64::MAX });
    harness.say(2, Say::CreditsReturned { device: DeviceKey([9; 16]), bytes: 1 });
    harness.say(2, Say::Unreserve { device: DEVICE, bytes: u64::MAX });
    harness.say(2, Say::CreditsShort { device: DEVICE, bytes: u64::MAX, total_bytes: 1, free_bytes: 0 });
    assert_eq!(harness.line(1).resident_bytes, 600);
    assert_eq!(harness.core.status(harness.now).devices[0].capacity_bytes, 1000);
    harness.say(1, Say::CreditsReturned { device: DEVICE, bytes: u64::MAX });
    assert_eq!(harness.line(1).resident_bytes, 0);
}

#[test]
fn misbehaviour_is_logged_a_few_times_and_then_counted() {
    let mut harness = Harness::with_tenants(1);
    for _ in 0..1000 {
        harness.say(1, Say::SegmentReturned { segment: SegmentId(77) });
    }
    let lines = |outputs: &[Output]| {
        let warnings =
            outputs.iter().filter(|output| matches!(output, Output::Log { level: Level::Warn, .. }));
        warnings.count()
    };
    assert_eq!(lines(&harness.all), 5);
    harness.wait(ms(10_000));
    harness.say(1, Say::SegmentReturned { segment: SegmentId(77) });
    let Some(Output::Log { text, .. }) = harness.outputs.first() else { panic!("no line") };
    assert!(text.contains("995 lines"), "{text}");
}

#[test]
fn what_breaks_an_inequality_is_refused_with_its_reason() {
    let mut harness = Harness::new(Settings { host_pool_bytes: 500, ..settings() });
    harness.join(1, 1, &[DEVICE]);
    harness.join(2, 2, &[DEVICE]);
    assert_eq!(harness.reserve(1, 1001), Err(Reason::CapacityExceeded));
    assert_eq!(harness.reserve(1, u64::MAX), Err(Reason::CapacityExceeded));
    assert_eq!(harness.reserve(1, 1000), Ok(()));
    // With 2 having v, both need a lease of v each: 2 v <= 500.
    assert_eq!(harness.reserve(2, 251), Err(Reason::BudgetExceeded));
    harness.say(2, Say::MemoryQuery { request: RequestId(1), device: DEVICE });
    let answer = ToMember::MemoryAnswer { request: RequestId(1), total_bytes: 1000, free_bytes: 250 };
    assert_eq!(harness.sent(2), [answer]);
    assert_eq!(harness.reserve(2, 250), Ok(()));
    assert_eq!(harness.core.status(harness.now).host_pool.promised_bytes, 500);
}

#[test]
fn a_tenants_limit_is_the_device_it_sees() {
    let mut harness = Harness::new(settings());
    harness.input(Input::MemberConnected {
        member: MemberId(1),
        pid: 1,
        tenant: turnus_core::TenantId(1),
        tenant_name: "small".into(),
        memory_limit_bytes: Some(300),
        resumes: None,
    });
    harness.say(1, crate::harness::device_message(DEVICE, 0, 0, None));
    assert_eq!(harness.reserve(1, 200), Ok(()));
    assert_eq!(harness.reserve(1, 101), Err(Reason::TenantLimit));
    harness.say(1, Say::MemoryQuery { request: RequestId(1), device: DEVICE });
    let answer = ToMember::MemoryAnswer { request: RequestId(1), total_bytes: 300, free_bytes: 100 };
    assert_eq!(harness.sent(1), [answer]);
}

#[test]
fn host_segments_are_counted_bounded_and_dropped_with_their_member() {
    let mut harness = Harness::new(Settings { segment_bytes_max: 100, ..settings() });
    harness.join(1, 1, &[DEVICE]);
    assert_eq!(harness.reserve(1, 50), Ok(()));
    let want = |request, bytes| Say::SegmentWanted { request: RequestId(request), bytes };
    harness.say(1, want(1, 101));
    let refused = |request| ToMember::Refused { request: RequestId(request), reason: Reason::BudgetExceeded };
    assert_eq!(harness.sent(1), [refused(1)]);
    harness.say(1, want(2, 100));
    let lease = Output::LeaseSegment { member: MemberId(1), request: RequestId(2), bytes: 100 };
    assert_eq!(harness.outputs, [lease]);
    let leased = |request, segment| Input::SegmentLeased {
        member: MemberId(1),
        request: RequestId(request),
        segment: SegmentId(segment),
        bytes: 100,
    };
    harness.input(leased(2, 5));
    harness.say(1, want(3, 51));
    assert_eq!(harness.sent(1), [refused(3)], "more than the tenant can ever have to save");
    assert_eq!(harness.core.status(harness.now).host_pool.leased_bytes, 100);
    harness.input(Input::MemberGone { member: MemberId(1) });
    assert!(harness.outputs.contains(&Output::DropSegment { segment: SegmentId(5) }));
    harness.input(leased(9, 6));
    assert_eq!(harness.outputs, [Output::DropSegment { segment: SegmentId(6) }], "leased to the dead");
    assert_eq!(harness.core.status(harness.now).host_pool.leased_bytes, 0);
}

#[test]
fn head_room_is_made_from_idle_bytes_and_withheld_from_wants() {
    let mut harness = Harness::with_tenants(2);
    harness.fill(1, 1000);
    harness.release(1);
    harness.say(2, Say::TurnRequested);
    harness.say(2, Say::HeadRoomWanted { request: RequestId(3), device: DEVICE, bytes: 100 });
    let [(1, order, 100)] = orders(&harness.outputs)[..] else { panic!("{:?}", harness.outputs) };
    harness.say(1, Say::CreditsReturned { device: DEVICE, bytes: 100 });
    assert_eq!(harness.sent(2), [ToMember::HeadRoomMade { request: RequestId(3), bytes: 100 }]);
    harness.say(1, Say::Evicted { device: DEVICE, order, pinned_bytes: 0 });
    harness.want(2, 50);
    assert_eq!(harness.sent(2), [], "the room made for the driver was given away");
    assert_eq!(orders(&harness.outputs).len(), 1);
}

#[test]
fn a_head_room_question_is_answered_also_when_there_is_none_to_make() {
    let mut harness = Harness::with_tenants(1);
    harness.say(1, Say::HeadRoomWanted { request: RequestId(3), device: DEVICE, bytes: 100 });
    assert_eq!(harness.sent(1), [ToMember::HeadRoomMade { request: RequestId(3), bytes: 0 }]);
}

#[test]
fn bytes_of_a_faulted_member_stay_until_it_is_gone_and_its_turn_ends() {
    let mut harness = Harness::with_tenants(2);
    harness.fill(1, 600);
    harness.say(2, Say::TurnRequested);
    harness.say(1, Say::Faulted { device: DEVICE, code: 700 });
    assert!(harness.granted(2).is_some());
    assert_eq!(harness.line(1).state, "faulted");
    harness.want(2, 1000);
    assert_eq!(sent_to(&harness.outputs, 1), []);
    harness.input(Input::MemberGone { member: MemberId(1) });
    assert_eq!(harness.sent(2), [credits(600)]);
}
