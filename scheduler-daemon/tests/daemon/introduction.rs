//! Who is let in as what.

use crate::harness::{Daemon, hello, nobody};
use std::time::Duration;
use turnus_gate::page::GatePage;
use turnus_protocol::limits::PROTOCOL_VERSION;
use turnus_protocol::{ClientMessage, DaemonMessage, Reason, Token, Version};

#[test]
fn a_member_is_welcomed_with_a_sealed_gate_page_that_its_turn_opens() {
    let daemon = Daemon::start(&[]);
    let mut member = daemon.member().ready();
    assert!(member.tenant_name.contains(&std::process::id().to_string()), "{}", member.tenant_name);
    let descriptor = member.page.take().expect("a gate page");
    let sneaky = rustix::io::pwrite(&descriptor, &[1], 0);
    assert!(sneaky.is_err(), "a member can write its own gate");
    let page = GatePage::map(descriptor).expect("a sealed page");
    let closed = page.word().load(std::sync::atomic::Ordering::Acquire);
    member.turn();
    page.wait_while(closed, Duration::from_secs(10));
    assert_ne!(page.word().load(std::sync::atomic::Ordering::Acquire), closed, "the gate stays closed");
}

#[test]
fn a_run_gets_a_token_that_makes_members_of_one_tenant() {
    let daemon = Daemon::start(&[]);
    let runner = daemon.connect();
    runner.send(&ClientMessage::RegisterRun {
        protocol: PROTOCOL_VERSION,
        name: "job\x1b[2J".into(),
        memory_limit_bytes: Some(1000),
    });
    let (message, _) = runner.receive().expect("an answer");
    let DaemonMessage::RunRegistered { token, tenant_name } = message else { panic!("{message:?}") };
    assert_eq!(tenant_name, "job?[2J");
    let members: Vec<_> = (0..2).map(|_| daemon.connect().join(Some(token), None).ready()).collect();
    let epochs: Vec<_> = members.iter().map(|member| member.turn()).collect();
    assert_eq!(epochs[0], epochs[1], "members of a tenant do not share its turn");
    assert_eq!(members[0].reserve(600), Ok(()));
    assert_eq!(members[1].reserve(600), Err(Reason::TenantLimit), "the limit is not the tenant's");
}

#[test]
fn a_token_that_was_never_given_is_refused() {
    let daemon = Daemon::start(&[]);
    let peer = daemon.connect();
    peer.send(&hello(Some(Token([3; 16])), None));
    assert_eq!(peer.expect_rejection().0, Reason::UnknownToken);
}

#[test]
fn other_versions_are_refused_with_both_numbers_and_newer_minor_ones_are_served() {
    let daemon = Daemon::start(&[]);
    let newer = Version { minor: PROTOCOL_VERSION.minor + 7, ..PROTOCOL_VERSION };
    let other = Version { major: PROTOCOL_VERSION.major + 1, minor: 0 };
    let hello =
        |protocol| ClientMessage::Hello { protocol, shim_version: "test".into(), token: None, resume: None };
    let run = ClientMessage::RegisterRun { protocol: other, name: "x".into(), memory_limit_bytes: None };
    for message in [hello(other), run] {
        let peer = daemon.connect();
        peer.send(&message);
        let (reason, text) = peer.expect_rejection();
        assert_eq!(reason, Reason::VersionMismatch);
        let numbers = [other, PROTOCOL_VERSION].map(|version| version.to_string());
        assert!(numbers.iter().all(|number| text.contains(number)), "{text}");
    }
    let peer = daemon.connect();
    peer.send(&hello(newer));
    assert!(matches!(peer.receive(), Some((DaemonMessage::Welcome { .. }, Some(_)))));
}

#[test]
fn a_life_that_never_was_gives_no_right_to_claim() {
    let daemon = Daemon::start(&[]);
    let member = daemon.connect().join(None, Some(nobody()));
    member.peer.send(&crate::harness::device(100, 100, None));
    assert_eq!(member.peer.expect_rejection().0, Reason::ProtocolViolation);
}

#[test]
fn a_device_of_another_daemon_is_refused_with_the_name_of_that_daemon() {
    let first = Daemon::start(&[]);
    first.member().ready().is_heard();
    let locks = first.folder.join("locks");
    let second = Daemon::start(&["--lock-directory", &locks.to_string_lossy()]);
    let member = second.member();
    member.peer.send(&crate::harness::device(0, 0, None));
    // What is said after it must not turn the answer into a reset.
    member.peer.send(&ClientMessage::Ready);
    let (reason, text) = member.peer.expect_rejection();
    assert_eq!(reason, Reason::DeviceTaken);
    let words = [format!("pid {}", first.child.id()), first.directory().display().to_string()];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn one_process_is_a_member_only_so_many_times() {
    let daemon = Daemon::start(&[]);
    let members: Vec<_> = (0..64).map(|_| daemon.member()).collect();
    let peer = daemon.connect();
    peer.send(&hello(None, None));
    assert_eq!(peer.expect_rejection().0, Reason::TooManyMembers);
    drop(members);
}
