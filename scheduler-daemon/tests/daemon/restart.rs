//! A daemon that was lost: its members come back with what they hold, and with nothing of others.

use crate::harness::{Daemon, Member, command, device};
use nix::sys::signal::Signal;
use std::fs;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use turnus_protocol::limits::PROTOCOL_VERSION;
use turnus_protocol::message::Resume;
use turnus_protocol::{
    ClientMessage, DaemonMessage, Epoch, Incarnation, Reason, RequestId, SegmentId, Token,
};

const MIB: u64 = 1 << 20;

fn lease(member: &Member, bytes: u64) -> (SegmentId, OwnedFd) {
    member.peer.send(&ClientMessage::SegmentWanted { request: RequestId(5), bytes });
    loop {
        match member.peer.receive().expect("an answer") {
            (DaemonMessage::SegmentLeased { segment, .. }, Some(descriptor)) => return (segment, descriptor),
            (DaemonMessage::SegmentLeased { .. } | DaemonMessage::Refused { .. }, _) => panic!("no segment"),
            _ => {}
        }
    }
}

fn come_back(daemon: &Daemon, identity: Resume, claim: &ClientMessage) -> Member {
    let member = daemon.connect().join(None, Some(identity));
    member.peer.send(claim);
    member
}

#[test]
fn a_holder_with_a_segment_survives_two_lost_daemons_in_a_row() {
    let mut daemon = Daemon::start(&[]);
    let member = daemon.member().ready();
    let mut epoch = member.turn();
    assert_eq!(member.reserve(4 * MIB), Ok(()));
    let (segment, descriptor) = lease(&member, MIB);
    rustix::io::pwrite(&descriptor, b"saved", 0).expect("write");
    let mut identity = member.identity;
    for _ in 0..2 {
        daemon.kill_and_restart();
        let back = come_back(&daemon, identity, &device(4 * MIB, 3 * MIB, Some(epoch)));
        back.peer.send_with(&ClientMessage::SegmentClaim { segment, bytes: MIB }, &descriptor);
        back.peer.send(&ClientMessage::Ready);
        let fresh = back.granted();
        assert!(fresh > epoch, "an epoch has repeated");
        assert_eq!(back.tenant_name, member.tenant_name);
        assert!(back.identity.incarnation > identity.incarnation);
        (epoch, identity) = (fresh, back.identity);
        // The connection stays open until the daemon is killed.
        std::mem::forget(back);
    }
    let mut content = [0u8; 5];
    rustix::io::pread(&descriptor, &mut content, 0).expect("read");
    assert_eq!(&content, b"saved");
}

#[test]
fn a_second_restart_before_anybody_is_back_forgets_nobody() {
    let mut daemon = Daemon::start(&["--recovery-ms", "60000"]);
    let (one, two) = (daemon.member().ready(), daemon.member().ready());
    one.is_heard();
    two.is_heard();
    daemon.kill_and_restart();
    daemon.kill_and_restart();
    let back = come_back(&daemon, one.identity, &device(MIB, MIB, None));
    back.peer.send(&ClientMessage::Ready);
    back.peer.send(&ClientMessage::TurnRequested);
    assert!(!back.peer.is_readable(std::time::Duration::from_millis(150)), "granted too early");
    let last = come_back(&daemon, two.identity, &device(MIB, MIB, None));
    last.peer.send(&ClientMessage::Ready);
    back.granted();
}

#[test]
fn a_daemon_that_was_asked_to_stop_leaves_its_members_to_the_next() {
    let mut daemon = Daemon::start(&["--recovery-ms", "60000"]);
    let member = daemon.member().ready();
    let epoch = member.turn();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(member.peer.expect_rejection().0, Reason::ShuttingDown);
    daemon.restart();
    let back = come_back(&daemon, member.identity, &device(MIB, MIB, Some(epoch)));
    back.peer.send(&ClientMessage::Ready);
    assert!(back.granted() > epoch, "its turn was lost");
}

#[test]
fn a_record_can_be_used_once() {
    let mut daemon = Daemon::start(&["--recovery-ms", "100"]);
    let member = daemon.member().ready();
    member.is_heard();
    daemon.kill_and_restart();
    let back = come_back(&daemon, member.identity, &device(MIB, 0, None));
    back.peer.send(&ClientMessage::Ready);
    back.is_heard();
    let again = come_back(&daemon, member.identity, &device(MIB, MIB, None));
    assert_eq!(again.peer.expect_rejection().0, Reason::ProtocolViolation);
}

#[test]
fn the_record_of_another_process_cannot_be_claimed() {
    let mut daemon = Daemon::start(&["--recovery-ms", "100"]);
    let mut other =
        Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().expect("a process of its own");
    let member = daemon.member().ready();
    member.is_heard();
    daemon.child.kill().expect("kill");
    let path = daemon.directory().join("state.json");
    let mut state = daemon.state();
    let stat = fs::read_to_string(format!("/proc/{}/stat", other.id())).expect("it runs");
    let start_time = stat.rsplit(')').next().expect("fields").split(' ').nth(20).expect("start");
    state["members"][0]["process"]["pid"] = other.id().into();
    state["members"][0]["process"]["start_time"] = start_time.parse::<u64>().expect("ticks").into();
    fs::write(&path, state.to_string()).expect("write");
    daemon.restart();
    let thief = come_back(&daemon, member.identity, &device(MIB, MIB, None));
    assert_eq!(thief.peer.expect_rejection().0, Reason::ProtocolViolation);
    let state = daemon.state();
    let mut records = state["members"].as_array().expect("members").iter();
    assert!(records.any(|record| record["process"]["pid"] == other.id()), "the record is gone");
    other.kill().expect("kill");
    other.wait().expect("wait");
}

#[test]
fn one_segment_is_not_claimed_by_two() {
    let mut daemon = Daemon::start(&["--recovery-ms", "60000"]);
    let (one, two) = (daemon.member().ready(), daemon.member().ready());
    assert_eq!(one.reserve(MIB), Ok(()));
    let (segment, descriptor) = lease(&one, MIB);
    two.is_heard();
    daemon.kill_and_restart();
    let claim = ClientMessage::SegmentClaim { segment, bytes: MIB };
    let back = come_back(&daemon, one.identity, &device(MIB, 0, None));
    back.peer.send_with(&claim, &descriptor);
    back.peer.send(&ClientMessage::Ready);
    let thief = come_back(&daemon, two.identity, &device(0, 0, None));
    thief.peer.send_with(&claim, &descriptor);
    assert_eq!(thief.peer.expect_rejection().0, Reason::ProtocolViolation);
    // That was the last one to wait for, and what is claimed is still the first one's.
    back.is_heard();
}

#[test]
fn a_token_outlives_the_daemon() {
    let mut daemon = Daemon::start(&[]);
    let runner = daemon.connect();
    let name = "job".to_owned();
    runner.send(&ClientMessage::RegisterRun { protocol: PROTOCOL_VERSION, name, memory_limit_bytes: None });
    let token: Token = runner.expect(|message| match message {
        DaemonMessage::RunRegistered { token, .. } => Some(*token),
        _ => None,
    });
    daemon.kill_and_restart();
    assert_eq!(daemon.connect().join(Some(token), None).tenant_name, "job");
}

#[test]
fn an_empty_state_is_a_fresh_start_and_a_strange_one_is_named() {
    let mut daemon = Daemon::start(&[]);
    let path = daemon.directory().join("state.json");
    daemon.child.kill().expect("kill");
    daemon.child.wait().expect("wait");
    fs::write(&path, "not JSON").expect("write");
    let output = command(&daemon.folder).output().expect("turnusd");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.lines().count() == 1 && said.contains(&*path.to_string_lossy()), "{said}");
    fs::write(&path, "").expect("write");
    daemon.restart();
    assert_eq!(daemon.member().identity.incarnation, Incarnation(1));
}

#[test]
fn an_epoch_or_segment_of_the_future_is_not_believed() {
    let mut daemon = Daemon::start(&["--recovery-ms", "100"]);
    let member = daemon.member().ready();
    member.is_heard();
    daemon.kill_and_restart();
    let future = Epoch(9 << 32);
    let back = come_back(&daemon, member.identity, &device(MIB, MIB, Some(future)));
    back.peer.send(&ClientMessage::Ready);
    back.is_heard();
    assert!(back.turn() < future);
}
