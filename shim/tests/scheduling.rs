//! How calls wait for the turn, and how a turn comes to its end: a puppet program under the shim
//! against a daemon that does what the test says. Row B08 of the known faults of others is here.

mod support;

use std::time::Duration;
use support::Bench;
use support::daemon::{Daemon, Member};
use support::puppet::{Puppet, SOON};
use turnus_protocol::{ClientMessage, DaemonMessage, Epoch};

/// A program with a context, and the daemon it belongs to.
struct Scene {
    puppet: Puppet,
    member: Member,
    daemon: Daemon,
    _bench: Bench,
}

fn scene() -> Scene {
    let bench = Bench::with_driver(&[]);
    let daemon = Daemon::listen(bench.path("daemon.sock"));
    let mut command = bench.puppet_command();
    command.env("TURNUS_SOCKET", &daemon.path);
    let mut puppet = Puppet::start(command);
    puppet.tell("init");
    let mut member = daemon.accept();
    assert_eq!(puppet.hear(), "init 0");
    member.expect("Ready", |message| (*message == ClientMessage::Ready).then_some(()));
    puppet.does("context", "context 0");
    let claims = member.expect("Device", |message| match message {
        ClientMessage::Device { total_bytes, virtual_bytes, resident_bytes, epoch, name, .. } => {
            Some((*total_bytes, *virtual_bytes, *resident_bytes, *epoch, name.clone()))
        }
        _ => None,
    });
    assert_eq!(claims, (1 << 30, 0, 0, None, "Fake".to_owned()));
    Scene { puppet, member, daemon, _bench: bench }
}

/// A scene in which the program holds turn 1.
fn scene_with_turn() -> Scene {
    let mut scene = scene();
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    scene.member.grant(1);
    assert_eq!(scene.puppet.hear(), "launch 0");
    scene
}

#[test]
fn scheduling_a_launch_waits_for_the_turn_and_a_drain_closes_the_gate_again() {
    let mut scene = scene();
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    assert!(scene.puppet.waits(), "a call passed without a turn");
    scene.member.grant(1);
    assert_eq!(scene.puppet.hear(), "launch 0");
    scene.puppet.does("launch 1", "launch 0");
    scene.member.drain(1);
    scene.member.expect_drained(1);
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    assert!(scene.puppet.waits(), "a call passed after the drain");
    scene.member.grant(2);
    assert_eq!(scene.puppet.hear(), "launch 0");
    scene.puppet.does("launches", "launches 3");
}

/// The word in the page is enough: the message may come later.
#[test]
fn scheduling_a_hand_over_needs_no_message() {
    let mut scene = scene();
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    scene.member.page.open(1);
    assert_eq!(scene.puppet.hear(), "launch 0");
}

/// B08.
#[test]
fn scheduling_every_default_stream_and_every_kind_of_work_is_gated() {
    let mut scene = scene_with_turn();
    let works = ["launch 1", "legacy", "per-thread", "ptsz", "copy", "fill", "begin"];
    for (work, epoch) in works.into_iter().zip(1..) {
        scene.member.drain(epoch);
        scene.member.expect_drained(epoch);
        scene.puppet.tell(work);
        scene.member.expect_request();
        assert!(scene.puppet.waits(), "{work} passed without a turn");
        scene.member.grant(epoch + 1);
        let name = work.split(' ').next().unwrap_or_default();
        assert_eq!(scene.puppet.hear(), format!("{name} 0"));
    }
    scene.puppet.does("end", "end 0");
}

#[test]
fn scheduling_what_waits_for_work_or_orders_it_never_waits_for_the_turn() {
    let mut scene = scene();
    for call in ["synchronise", "query", "record", "end"] {
        scene.puppet.does(call, &format!("{call} 0"));
    }
    assert!(!scene.member.hears(SOON, |message| *message == ClientMessage::TurnRequested));
}

#[test]
fn scheduling_a_drain_waits_for_running_work() {
    let mut scene = scene_with_turn();
    scene.puppet.does("launch 2", "launch 0");
    scene.member.drain(1);
    let stalled = ClientMessage::DrainStalled { epoch: Epoch(1) };
    scene.member.expect("DrainStalled", |message| (*message == stalled).then_some(()));
    let drained = ClientMessage::Drained { epoch: Epoch(1) };
    assert!(!scene.member.hears(SOON, |message| *message == drained), "drained under running work");
}

/// A kernel that runs waits for the next launch, which waits at the gate.
#[test]
fn scheduling_a_stalled_drain_lets_waiting_calls_through_one_at_a_time() {
    let mut scene = scene_with_turn();
    scene.puppet.does("launch 2", "launch 0");
    scene.member.drain(1);
    scene.puppet.tell("apart 3");
    assert_eq!(scene.puppet.hear(), "apart 0");
    scene.member.expect_drained(1);
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    assert!(scene.puppet.waits(), "a call passed after the drain");
}

/// The launch that a kernel waits for is in another process of the tenant.
#[test]
fn scheduling_a_drained_member_lets_one_call_through_when_another_member_stalls() {
    let mut scene = scene_with_turn();
    scene.member.drain(1);
    scene.member.expect_drained(1);
    scene.puppet.tell("apart 1");
    scene.puppet.tell("apart 1");
    scene.member.expect_request();
    assert!(scene.puppet.waits());
    scene.member.send(DaemonMessage::AdmitOne { epoch: Epoch(1) });
    assert_eq!(scene.puppet.hear(), "apart 0");
    scene.member.expect_drained(1);
    assert!(scene.puppet.waits(), "more than one call was let through");
    // Nobody waits: the answer comes all the same.
    scene.member.grant(2);
    assert_eq!(scene.puppet.hear(), "apart 0");
    scene.member.drain(2);
    scene.member.expect_drained(2);
    scene.member.send(DaemonMessage::AdmitOne { epoch: Epoch(2) });
    scene.member.expect_drained(2);
}

#[test]
fn scheduling_a_cancelled_drain_gives_the_turn_back() {
    let mut scene = scene_with_turn();
    scene.puppet.does("launch 2", "launch 0");
    scene.member.drain(1);
    let stalled = ClientMessage::DrainStalled { epoch: Epoch(1) };
    scene.member.expect("DrainStalled", |message| (*message == stalled).then_some(()));
    scene.member.page.open(1);
    scene.member.send(DaemonMessage::DrainCancelled { epoch: Epoch(1) });
    scene.puppet.does("launch 3", "launch 0");
    scene.member.drain(1);
    scene.member.expect_drained(1);
}

#[test]
fn scheduling_an_idle_holder_gives_the_turn_up_only_when_others_wait() {
    let mut scene = scene_with_turn();
    let released = ClientMessage::TurnReleased { epoch: Epoch(1) };
    assert!(!scene.member.hears(SOON, |message| *message == released), "released although nobody waits");
    scene.member.send(DaemonMessage::OthersWaiting { count: 1 });
    scene.member.expect("TurnReleased", |message| (*message == released).then_some(()));
    // The daemon has not closed the word yet; the gate is closed all the same.
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    assert!(scene.puppet.waits(), "a call passed after the release");
    scene.member.send(DaemonMessage::TurnGranted { epoch: Epoch(1) });
    assert_eq!(scene.puppet.hear(), "launch 0");
}

#[test]
fn scheduling_a_holder_whose_work_runs_is_not_idle() {
    let mut scene = scene_with_turn();
    scene.puppet.does("launch 2", "launch 0");
    scene.member.send(DaemonMessage::OthersWaiting { count: 1 });
    let released = ClientMessage::TurnReleased { epoch: Epoch(1) };
    assert!(!scene.member.hears(SOON, |message| *message == released), "released under running work");
    scene.puppet.does("launch 3", "launch 0");
    scene.member.expect("TurnReleased", |message| (*message == released).then_some(()));
}

/// The daemon takes a sticky fault as the end of the turn. Without asking again every later call, and
/// be it to hear the error, would wait for ever.
#[test]
fn scheduling_after_a_fault_a_call_asks_for_a_turn_and_hears_the_error() {
    let mut scene = scene_with_turn();
    scene.puppet.does("launch 2", "launch 0");
    scene.member.page.set_others_waiting(1);
    scene.member.send(DaemonMessage::OthersWaiting { count: 1 });
    // A pass is under way, and the call that ends it makes the holder look busy.
    std::thread::sleep(SOON);
    scene.puppet.does("launch 4", "launch 0");
    scene.member.expect("Faulted", |message| {
        matches!(message, ClientMessage::Faulted { code: 700, .. }).then_some(())
    });
    scene.member.page.close(1);
    scene.member.page.set_others_waiting(0);
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    scene.member.grant(2);
    assert_eq!(scene.puppet.hear(), "launch 700");
}

/// The waiting of the turn before is over: who runs alone keeps the turn.
#[test]
fn scheduling_a_new_turn_starts_without_others_waiting() {
    let mut scene = scene_with_turn();
    scene.member.send(DaemonMessage::OthersWaiting { count: 1 });
    let released = |epoch| move |message: &ClientMessage| *message == ClientMessage::TurnReleased { epoch };
    assert!(scene.member.hears(Duration::from_secs(20), released(Epoch(1))));
    scene.member.page.close(1);
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    scene.member.grant(2);
    assert_eq!(scene.puppet.hear(), "launch 0");
    assert!(!scene.member.hears(SOON, released(Epoch(2))), "released although nobody waits");
}

/// Waiting for a kernel that does not end holds up nothing else that we do.
#[test]
fn scheduling_an_order_is_obeyed_while_a_pass_waits_for_work() {
    let mut scene = scene_with_turn();
    scene.puppet.does("launch 2", "launch 0");
    scene.member.send(DaemonMessage::OthersWaiting { count: 1 });
    std::thread::sleep(SOON);
    let device = turnus_protocol::DeviceUuid([7; 16]);
    let order = turnus_protocol::RequestId(1);
    scene.member.send(DaemonMessage::Evict { device, order, bytes: 1 << 20 });
    scene.member.expect("Evicted", |message| matches!(message, ClientMessage::Evicted { .. }).then_some(()));
}

/// The worker's wait for the work ends only with a call that waits for the next daemon.
#[test]
fn scheduling_a_member_comes_back_although_its_work_waits_for_a_call_at_the_gate() {
    let mut scene = scene_with_turn();
    scene.puppet.does("launch 2", "launch 0");
    scene.member.drain(1);
    scene.member.expect("DrainStalled", |message| {
        matches!(message, ClientMessage::DrainStalled { .. }).then_some(())
    });
    let Scene { mut puppet, member, daemon, _bench } = scene;
    drop(member);
    let mut member = daemon.accept_in(2);
    let claimed = member.expect("Device", |message| match message {
        ClientMessage::Device { epoch, .. } => Some(*epoch),
        _ => None,
    });
    assert_eq!(claimed, Some(Epoch(1)));
    puppet.tell("launch 3");
    member.grant(2 << 32 | 1);
    assert_eq!(puppet.hear(), "launch 0");
}

/// For the daemon that gave it, a turn ends with the connection.
#[test]
fn scheduling_a_turn_is_not_claimed_at_the_daemon_that_has_ended_it() {
    let scene = scene_with_turn();
    let Scene { mut puppet, member, daemon, _bench } = scene;
    drop(member);
    let mut member = daemon.accept_in(1);
    let claimed = member.expect("Device", |message| match message {
        ClientMessage::Device { epoch, .. } => Some(*epoch),
        _ => None,
    });
    assert_eq!(claimed, None);
    member.expect("Ready", |message| (*message == ClientMessage::Ready).then_some(()));
    std::thread::sleep(SOON);
    puppet.tell("launch 1");
    member.expect_request();
    assert!(puppet.waits(), "a call passed in a turn that is over");
    member.grant(7);
    assert_eq!(puppet.hear(), "launch 0");
}

#[test]
fn scheduling_the_turn_is_kept_while_a_capture_is_open() {
    let mut scene = scene_with_turn();
    scene.puppet.does("begin", "begin 0");
    scene.member.drain(1);
    // Any thread may add to the capture.
    scene.puppet.does("launch 1", "launch 0");
    scene.puppet.tell("apart 1");
    assert_eq!(scene.puppet.hear(), "apart 0");
    let drained = ClientMessage::Drained { epoch: Epoch(1) };
    assert!(!scene.member.hears(SOON, |message| *message == drained), "drained during a capture");
    scene.puppet.does("end", "end 0");
    scene.member.expect_drained(1);
}

/// Its streams are gone, so nobody will ever end it.
#[test]
fn scheduling_a_capture_ends_with_the_last_context() {
    let mut scene = scene_with_turn();
    scene.puppet.does("begin", "begin 0");
    scene.puppet.does("destroy", "destroy 0");
    scene.member.drain(1);
    scene.member.expect_drained(1);
}

#[test]
fn scheduling_signal_handlers_run_while_a_call_waits() {
    let mut scene = scene();
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    assert!(scene.puppet.waits());
    // SAFETY: a signal to the child of this test, which is alive.
    unsafe { libc::kill(scene.puppet.pid(), libc::SIGUSR1) };
    assert_eq!(scene.puppet.hear(), format!("signal {}", libc::SIGUSR1));
    assert!(scene.puppet.waits(), "the signal ended the wait");
    scene.member.grant(1);
    assert_eq!(scene.puppet.hear(), "launch 0");
}

#[test]
fn scheduling_calls_that_are_not_handled_yet_are_counted_and_work() {
    let mut scene = scene();
    scene.puppet.does("async", "async 0");
    scene.puppet.does("async", "async 0");
    let mut total = 0;
    while total < 2 {
        total += scene.member.expect("Unhandled", |message| match message {
            ClientMessage::Unhandled { name, count } if name == "cuMemAllocAsync" => Some(*count),
            _ => None,
        });
    }
    assert_eq!(total, 2);
}

#[test]
fn scheduling_room_is_made_when_the_driver_is_out_of_memory() {
    let mut scene = scene();
    scene.puppet.tell("module");
    for _ in 0..2 {
        let request = scene.member.expect("HeadRoomWanted", |message| match message {
            ClientMessage::HeadRoomWanted { request, bytes, .. } if *bytes > 0 => Some(*request),
            _ => None,
        });
        scene.member.send(DaemonMessage::HeadRoomMade { request, bytes: 1 << 20 });
    }
    assert_eq!(scene.puppet.hear(), "module 0");
}

#[test]
fn scheduling_an_order_to_evict_is_answered_with_or_without_a_turn() {
    let mut scene = scene_with_turn();
    let device = turnus_protocol::DeviceUuid([7; 16]);
    for (order, has_turn) in [(1, true), (2, false)] {
        if !has_turn {
            scene.member.drain(1);
            scene.member.expect_drained(1);
        }
        let order = turnus_protocol::RequestId(order);
        scene.member.send(DaemonMessage::Evict { device, order, bytes: 1 << 20 });
        scene.member.expect("Evicted", |message| match message {
            ClientMessage::Evicted { order: of, pinned_bytes: 0, .. } if *of == order => Some(()),
            _ => None,
        });
    }
}

#[test]
fn scheduling_a_holder_runs_on_without_its_daemon_and_claims_its_turn_at_the_next() {
    let scene = scene_with_turn();
    let Scene { mut puppet, member, daemon, _bench } = scene;
    drop(member);
    puppet.does("launch 1", "launch 0");
    let mut member = daemon.accept_in(2);
    assert!(
        matches!(&member.hello, ClientMessage::Hello { resume: Some(resume), .. } if resume.incarnation.0 == 1)
    );
    let epoch = member.expect("Device", |message| match message {
        ClientMessage::Device { epoch, .. } => Some(*epoch),
        _ => None,
    });
    assert_eq!(epoch, Some(Epoch(1)));
    member.expect("Ready", |message| (*message == ClientMessage::Ready).then_some(()));
    puppet.does("launch 1", "launch 0");
    let fresh = 2 << 32 | 1;
    member.grant(fresh);
    puppet.does("launch 1", "launch 0");
    member.drain(fresh);
    member.expect_drained(fresh);
    puppet.tell("launch 1");
    member.expect_request();
    assert!(puppet.waits());
}

#[test]
fn scheduling_who_waits_when_the_daemon_is_lost_asks_the_next_one() {
    let mut scene = scene();
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    let Scene { mut puppet, member, daemon, _bench } = scene;
    drop(member);
    let mut member = daemon.accept_in(2);
    member.expect_request();
    assert!(puppet.waits());
    member.grant(2 << 32 | 1);
    assert_eq!(puppet.hear(), "launch 0");
}

#[test]
fn scheduling_a_long_wait_is_one_line_for_a_person() {
    let mut scene = scene();
    scene.puppet.tell("launch 1");
    scene.member.expect_request();
    scene.member.send(DaemonMessage::WaitNotice { holder_name: "train".into(), ahead: 2, waited_ms: 10_000 });
    let line = scene.puppet.complains();
    assert!(line.contains("train") && line.contains("10 s") && line.contains('2'), "{line}");
    std::thread::sleep(Duration::from_millis(50));
    scene.member.grant(1);
    assert_eq!(scene.puppet.hear(), "launch 0");
    let (code, further) = scene.puppet.end();
    assert_eq!((code, further), (Some(0), vec![]));
}

/// The budget is 10 ns; a loaded machine gets more, but neither a lock that others want nor a system
/// call would fit.
#[test]
fn scheduling_a_call_that_passes_costs_nanoseconds() {
    let bench = Bench::with_driver(&["-O2"]);
    let program = bench.program_of("gate_cost.c");
    let mut bare = bench.command(&program);
    bare.env_remove("LD_PRELOAD");
    let bare: f64 = support::succeed(bare).0.trim().parse().expect("a number");
    let daemon = Daemon::listen(bench.path("daemon.sock"));
    let mut gated = bench.command(&program);
    gated.env("TURNUS_SOCKET", &daemon.path).stdout(std::process::Stdio::piped());
    let child = gated.spawn().expect("start");
    let mut member = daemon.accept();
    member.expect_request();
    member.grant(1);
    let output = child.wait_with_output().expect("end");
    let gated: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    println!("bare {bare} ns, gated {gated} ns, added {:.2} ns", gated - bare);
    assert!(gated - bare < 100.0, "bare {bare} ns, gated {gated} ns");
}
