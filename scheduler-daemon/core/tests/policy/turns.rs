//! Promises about turns: order, quantum, drain, gangs.

use crate::harness::{DEVICE, Harness, OTHER, ms};
use std::collections::BTreeMap;
use std::time::Duration;
use turnus_core::{Input, MemberId, MemberMessage as Say, Output, TenantId, ToMember};

#[test]
fn a_holder_whom_nobody_disturbs_is_never_drained() {
    let mut harness = Harness::with_tenants(2);
    harness.say(1, Say::TurnRequested);
    harness.wait(Duration::from_secs(3600));
    assert_eq!(harness.outputs, []);
}

#[test]
fn the_quantum_counts_from_the_grant_and_ends_a_long_turn_at_once() {
    let mut harness = Harness::with_tenants(2);
    harness.say(1, Say::TurnRequested);
    harness.wait(ms(40));
    harness.say(2, Say::TurnRequested);
    assert_eq!(harness.sent(1), [ToMember::OthersWaiting { count: 1 }]);
    harness.wait(ms(59));
    assert_eq!(harness.sent(1), []);
    harness.wait(ms(1));
    let epoch = harness.epoch(1).expect("granted");
    assert_eq!(harness.sent(1), [ToMember::Drain { epoch }]);
    assert!(harness.outputs.contains(&Output::CloseGate { tenant: TenantId(1), epoch }));

    let mut harness = Harness::with_tenants(2);
    harness.say(1, Say::TurnRequested);
    harness.wait(ms(5000));
    harness.say(2, Say::TurnRequested);
    assert!(harness.sent(1).iter().any(|message| matches!(message, ToMember::Drain { .. })));
}

#[test]
fn the_quantum_begins_when_the_bytes_are_restored() {
    let mut harness = Harness::with_tenants(2);
    assert_eq!(harness.reserve(1, 500), Ok(()));
    harness.say(1, Say::TurnRequested);
    harness.want(1, 500);
    harness.say(2, Say::TurnRequested);
    harness.wait(ms(3000));
    assert_eq!(harness.sent(1), [], "drained in its restore");
    let epoch = harness.epoch(1).expect("granted");
    harness.say(1, Say::Restored { epoch });
    harness.wait(ms(99));
    assert_eq!(harness.sent(1), []);
    harness.wait(ms(1));
    assert_eq!(harness.sent(1), [ToMember::Drain { epoch }]);
}

#[test]
fn who_never_restores_is_drained_when_patience_is_over() {
    let mut harness = Harness::with_tenants(2);
    harness.say(1, Say::TurnRequested);
    harness.want(1, 500);
    harness.say(2, Say::TurnRequested);
    harness.wait(ms(5000) + ms(100));
    assert!(harness.sent(1).iter().any(|message| matches!(message, ToMember::Drain { .. })));
}

#[test]
fn four_equal_busy_tenants_get_equal_turns() {
    let mut harness = Harness::with_tenants(4);
    let mut turns: BTreeMap<u64, u32> = BTreeMap::new();
    for member in 1..=4 {
        harness.say(member, Say::TurnRequested);
    }
    for _ in 0..400 {
        harness.wait(ms(1));
        while harness.sent(1).is_empty() && harness.outputs.is_empty() {
            harness.wait(ms(100));
        }
        let drained: Vec<u64> = (1..=4)
            .filter(|member| harness.sent(*member).iter().any(|said| matches!(said, ToMember::Drain { .. })))
            .collect();
        for member in drained {
            *turns.entry(member).or_default() += 1;
            let epoch = harness.epoch(member).expect("drained, so granted");
            harness.say(member, Say::TurnRequested);
            harness.say(member, Say::Drained { epoch });
        }
    }
    let counts: Vec<u32> = turns.values().copied().collect();
    assert_eq!(counts, [100; 4]);
    let times: Vec<u64> = (1..=4).map(|tenant| harness.line(tenant).turn_ms).collect();
    let (least, most) = (times.iter().min().expect("4"), times.iter().max().expect("4"));
    assert!(most - least <= 101, "{times:?}");
}

#[test]
fn a_turn_ends_only_when_all_members_are_at_rest_and_a_release_can_be_taken_back() {
    let mut harness = Harness::with_tenants(1);
    harness.join(11, 1, &[DEVICE]);
    harness.join(2, 2, &[DEVICE]);
    harness.say(1, Say::TurnRequested);
    let epoch = harness.granted(1).expect("free");
    assert_eq!(harness.granted(11), Some(epoch), "members share the turn");
    harness.say(2, Say::TurnRequested);
    harness.say(1, Say::TurnReleased { epoch });
    assert_eq!(harness.outputs, []);
    harness.say(1, Say::TurnRequested);
    assert_eq!(harness.sent(1), [ToMember::TurnGranted { epoch }]);
    harness.say(11, Say::TurnReleased { epoch });
    assert_eq!(harness.outputs, []);
    harness.say(1, Say::TurnReleased { epoch });
    assert!(harness.granted(2).is_some_and(|next| next > epoch));
}

#[test]
fn a_drain_that_fails_is_tried_again_later_and_the_tenant_is_named() {
    let mut harness = Harness::with_tenants(2);
    harness.say(1, Say::TurnRequested);
    let epoch = harness.granted(1).expect("free");
    harness.say(2, Say::TurnRequested);
    harness.wait(ms(100));
    for (failure, pause) in [(1, 100), (2, 200), (3, 400), (4, 400)] {
        harness.wait(ms(10_000));
        assert_eq!(harness.sent(1), [ToMember::DrainCancelled { epoch }], "failure {failure}");
        assert!(harness.outputs.contains(&Output::OpenGate { tenant: TenantId(1), epoch }));
        let named = harness.line(2).reasons.iter().any(|reason| reason == "not-preemptible: t1");
        assert_eq!(named, failure >= 3);
        harness.wait(ms(pause - 1));
        assert_eq!(harness.sent(1), []);
        harness.wait(ms(1));
        assert_eq!(harness.sent(1), [ToMember::Drain { epoch }]);
    }
    harness.say(1, Say::Drained { epoch });
    assert!(harness.granted(2).is_some());
}

#[test]
fn a_stalled_member_makes_its_peers_admit_one_and_drain_again() {
    let mut harness = Harness::with_tenants(1);
    harness.join(11, 1, &[DEVICE]);
    harness.join(2, 2, &[DEVICE]);
    harness.say(1, Say::TurnRequested);
    let epoch = harness.granted(1).expect("free");
    harness.say(2, Say::TurnRequested);
    harness.wait(ms(100));
    harness.say(11, Say::Drained { epoch });
    harness.say(1, Say::DrainStalled { epoch });
    assert_eq!(harness.sent(11), [ToMember::AdmitOne { epoch }]);
    harness.say(1, Say::Drained { epoch });
    assert_eq!(harness.granted(2), None, "a member that admitted has not drained again");
    harness.say(11, Say::Drained { epoch });
    assert!(harness.granted(2).is_some());
}

#[test]
fn a_gang_gets_all_its_devices_at_once_and_is_not_starved_by_single_tenants() {
    let mut harness = Harness::new(crate::harness::settings());
    harness.join(1, 1, &[DEVICE]);
    harness.join(2, 2, &[DEVICE, OTHER]);
    harness.join(3, 3, &[OTHER]);
    harness.say(1, Say::TurnRequested);
    harness.say(2, Say::TurnRequested);
    assert_eq!(harness.granted(2), None);
    harness.say(3, Say::TurnRequested);
    assert_eq!(harness.granted(3), None, "a younger ticket took what the oldest has reserved");
    harness.release(1);
    assert!(harness.granted(2).is_some());
    harness.release(2);
    assert!(harness.granted(3).is_some());
}

#[test]
fn a_member_with_a_new_device_extends_the_turn_or_ends_it() {
    let mut harness = Harness::with_tenants(1);
    harness.say(1, Say::TurnRequested);
    harness.say(1, crate::harness::device_message(OTHER, 0, 0, None));
    harness.join(2, 2, &[OTHER]);
    harness.say(2, Say::TurnRequested);
    assert_eq!(harness.granted(2), None, "the turn did not grow to the free device");

    let mut harness = Harness::with_tenants(1);
    harness.join(2, 2, &[OTHER]);
    harness.say(2, Say::TurnRequested);
    harness.say(1, Say::TurnRequested);
    let epoch = harness.granted(1).expect("free");
    harness.say(1, crate::harness::device_message(OTHER, 0, 0, None));
    assert_eq!(harness.sent(1), [ToMember::Drain { epoch }]);
    harness.say(1, Say::Drained { epoch });
    assert_eq!(harness.granted(1), None, "granted without the second device");
    harness.release(2);
    assert!(harness.granted(1).is_some());
}

#[test]
fn the_death_of_a_holder_passes_the_turn_on() {
    let mut harness = Harness::with_tenants(2);
    harness.say(1, Say::TurnRequested);
    let epoch = harness.granted(1).expect("free");
    harness.say(2, Say::TurnRequested);
    harness.input(Input::MemberGone { member: MemberId(1) });
    assert!(harness.outputs.contains(&Output::CloseGate { tenant: TenantId(1), epoch }));
    assert!(harness.outputs.contains(&Output::TenantGone { tenant: TenantId(1) }));
    assert!(harness.granted(2).is_some());
}

#[test]
fn who_waits_long_hears_who_is_ahead() {
    let mut harness = Harness::with_tenants(3);
    for member in 1..=3 {
        harness.say(member, Say::TurnRequested);
    }
    harness.wait(ms(10_000));
    let heard = harness.sent(3);
    assert_eq!(heard, [ToMember::WaitNotice { holder_name: "t1".into(), ahead: 1, waited_ms: 10_000 }]);
    assert_eq!(harness.line(3).queue_place, Some(1));
}

#[test]
fn the_quantum_can_be_changed_for_turns_to_come() {
    let mut harness = Harness::with_tenants(2);
    harness.input(Input::SetQuantum { quantum_ms: 7 });
    harness.say(1, Say::TurnRequested);
    harness.say(2, Say::TurnRequested);
    harness.wait(ms(6));
    assert_eq!(harness.sent(1), []);
    harness.wait(ms(1));
    assert!(harness.sent(1).iter().any(|message| matches!(message, ToMember::Drain { .. })));
}

#[test]
fn lies_about_turns_change_nothing() {
    let mut harness = Harness::with_tenants(2);
    harness.say(1, Say::TurnRequested);
    let epoch = harness.granted(1).expect("free");
    for lie in [
        Say::TurnReleased { epoch },
        Say::Drained { epoch },
        Say::DrainStalled { epoch },
        Say::Restored { epoch },
        Say::CreditsWanted { device: DEVICE, bytes: u64::MAX },
    ] {
        harness.say(2, lie);
        assert_eq!(harness.core.status(harness.now).devices[0].holder.as_deref(), Some("t1"));
        assert_eq!(harness.sent(1), []);
    }
    harness.say(1, Say::Drained { epoch });
    assert_eq!(harness.core.status(harness.now).devices[0].holder.as_deref(), Some("t1"), "drained unasked");
}
