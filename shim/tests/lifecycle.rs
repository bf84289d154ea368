//! Beginning and ending: no daemon, a daemon that says no, forks, exits.

mod support;

use std::time::Duration;
use support::Bench;
use support::daemon::{Daemon, Member, forget};
use support::puppet::Puppet;
use turnus_protocol::{ClientMessage, DaemonMessage, Reason};

fn start(bench: &Bench, variables: &[(&str, &str)]) -> Puppet {
    let mut command = bench.puppet_command();
    command.envs(variables.iter().copied());
    Puppet::start(command)
}

/// A program that is a member and holds turn 1.
fn member_with_turn(bench: &Bench, variables: &[(&str, &str)]) -> (Puppet, Member, Daemon) {
    let daemon = Daemon::listen(bench.path("daemon.sock"));
    let mut command = bench.puppet_command();
    command.env("TURNUS_SOCKET", &daemon.path).envs(variables.iter().copied());
    let mut puppet = Puppet::start(command);
    puppet.tell("init");
    let mut member = daemon.accept();
    assert_eq!(puppet.hear(), "init 0");
    puppet.does("context", "context 0");
    puppet.tell("launch 1");
    member.expect_request();
    member.grant(1);
    assert_eq!(puppet.hear(), "launch 0");
    (puppet, member, daemon)
}

#[test]
fn lifecycle_without_a_daemon_the_program_runs_and_one_line_says_so() {
    let bench = Bench::with_driver(&[]);
    let mut puppet = start(&bench, &[]);
    puppet.does("init", "init 0");
    puppet.does("init", "init 0");
    puppet.does("context", "context 0");
    puppet.does("launch 1", "launch 0");
    puppet.does("threads", "threads 1");
    let (code, lines) = puppet.end();
    assert_eq!(code, Some(0));
    assert!(
        matches!(lines.as_slice(), [line] if line.contains("no daemon") && line.contains("unscheduled")),
        "{lines:?}"
    );
}

#[test]
fn lifecycle_without_a_daemon_cuda_may_be_refused() {
    let bench = Bench::with_driver(&[]);
    let mut puppet = start(&bench, &[("TURNUS_WHEN_DAEMON_MISSING", "refuse")]);
    puppet.does("init", "init 802");
    assert!(puppet.complains().contains("CUDA is refused"));
    // The program is asked again when it asks again.
    let daemon = Daemon::listen(bench.path("no-such.sock"));
    puppet.tell("init");
    let _member = daemon.accept();
    assert_eq!(puppet.hear(), "init 0");
}

#[test]
fn lifecycle_without_a_daemon_the_program_may_wait_for_one() {
    let bench = Bench::with_driver(&[]);
    let mut puppet = start(&bench, &[("TURNUS_WHEN_DAEMON_MISSING", "wait")]);
    puppet.tell("init");
    assert!(puppet.complains().contains("waiting for it"));
    assert!(puppet.waits());
    let daemon = Daemon::listen(bench.path("no-such.sock"));
    let _member = daemon.accept();
    assert_eq!(puppet.hear(), "init 0");
}

#[test]
fn lifecycle_a_daemon_that_says_no_is_as_good_as_none() {
    let bench = Bench::with_driver(&[]);
    let daemon = Daemon::listen(bench.path("no-such.sock"));
    let mut puppet = start(&bench, &[]);
    puppet.tell("init");
    daemon.reject(Reason::TooManyMembers, "enough is enough");
    assert_eq!(puppet.hear(), "init 0");
    let line = puppet.complains();
    assert!(line.contains("enough is enough") && line.contains("too-many-members"), "{line}");
    puppet.does("launch 1", "launch 0");
}

#[test]
fn lifecycle_the_token_reaches_the_daemon() {
    let bench = Bench::with_driver(&[]);
    let daemon = Daemon::listen(bench.path("no-such.sock"));
    let mut puppet = start(&bench, &[("TURNUS_TOKEN", "000102030405060708090a0b0c0d0e0f")]);
    puppet.tell("init");
    let member = daemon.accept();
    match member.hello {
        ClientMessage::Hello { token: Some(token), resume: None, .. } => assert_eq!(token.0[15], 15),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn lifecycle_a_program_of_turnus_run_does_not_slip_through_a_restart_of_its_daemon() {
    let bench = Bench::with_driver(&[]);
    let mut puppet = start(&bench, &[("TURNUS_TOKEN", "000102030405060708090a0b0c0d0e0f")]);
    puppet.tell("init");
    assert!(puppet.waits(), "it runs although its daemon is only being restarted");
    let daemon = Daemon::listen(bench.path("no-such.sock"));
    let _member = daemon.accept();
    assert_eq!(puppet.hear(), "init 0");
    // One that has no daemon any more runs in the end.
    let mut puppet = start(&bench, &[("TURNUS_TOKEN", "000102030405060708090a0b0c0d0e0f")]);
    drop(daemon);
    std::fs::remove_file(bench.path("no-such.sock")).expect("remove");
    puppet.does("init", "init 0");
    let line = puppet.complains();
    assert!(line.contains("no daemon") && line.contains("unscheduled"), "{line}");
}

#[test]
fn lifecycle_the_child_of_a_fork_is_no_member_and_its_calls_go_to_the_driver() {
    let bench = Bench::with_driver(&[]);
    let (mut puppet, mut member, daemon) = member_with_turn(&bench, &[]);
    member.drain(1);
    member.expect_drained(1);
    // The child's launch would wait for ever if it were gated.
    puppet.does("fork", "fork 0");
    assert!(daemon.nobody_connects(Duration::ZERO));
    // The parent is what it was.
    puppet.tell("launch 1");
    member.expect_request();
    assert!(puppet.waits());
    member.grant(2);
    assert_eq!(puppet.hear(), "launch 0");
}

#[test]
fn lifecycle_a_child_that_initialises_cuda_is_a_member_of_its_own() {
    let bench = Bench::with_driver(&[]);
    let (mut puppet, parent, daemon) = member_with_turn(&bench, &[]);
    puppet.tell("fork-init");
    let mut child = daemon.accept();
    child.expect_request();
    child.grant(1);
    assert_eq!(puppet.hear(), "fork-init 0");
    assert!(child.ends());
    drop(parent);
}

/// A child that lives on would hide the parent's death from the daemon, did it keep the socket.
#[test]
fn lifecycle_a_child_does_not_keep_the_parents_connection() {
    let bench = Bench::with_driver(&[]);
    let (mut puppet, member, daemon) = member_with_turn(&bench, &[]);
    puppet.does("fork-and-stay", "fork-and-stay 0");
    forget(&daemon.path);
    let group = puppet.pid();
    // SAFETY: kills the parent only, which is this test's child.
    unsafe { libc::kill(group, libc::SIGKILL) };
    assert!(member.ends(), "the connection is still open");
}

#[test]
fn lifecycle_an_exit_says_goodbye_and_is_quick() {
    let bench = Bench::with_driver(&[]);
    let (mut puppet, mut member, _daemon) = member_with_turn(&bench, &[]);
    puppet.tell("exit");
    member.expect("Goodbye", |message| (*message == ClientMessage::Goodbye).then_some(()));
    assert!(member.ends());
    assert_eq!(puppet.end(), (Some(0), vec![]));
}

#[test]
fn lifecycle_the_counts_of_a_short_program_arrive() {
    let bench = Bench::with_driver(&[]);
    let (mut puppet, mut member, _daemon) = member_with_turn(&bench, &[]);
    puppet.does("async", "async 0");
    puppet.tell("exit");
    let counted = std::cell::Cell::new(0);
    member.expect("Goodbye", |message| match message {
        ClientMessage::Unhandled { name, count } if name == "cuMemAllocAsync" => {
            counted.set(counted.get() + count);
            None
        }
        ClientMessage::Goodbye => Some(()),
        _ => None,
    });
    assert_eq!(counted.get(), 1);
}

#[test]
fn lifecycle_an_exit_from_another_thread_says_goodbye_while_a_call_waits() {
    let bench = Bench::with_driver(&[]);
    let (mut puppet, mut member, _daemon) = member_with_turn(&bench, &[]);
    member.drain(1);
    member.expect_drained(1);
    puppet.tell("apart 1");
    member.expect_request();
    puppet.tell("exit-apart");
    member.expect("Goodbye", |message| (*message == ClientMessage::Goodbye).then_some(()));
    assert!(member.ends());
    let (code, lines) = puppet.end();
    assert_eq!((code, lines), (Some(7), vec![]));
}

/// Handlers that were registered before CUDA was initialised run after ours: their work finds CUDA
/// being torn down, as it does with the driver alone.
#[test]
fn lifecycle_work_after_our_end_is_refused_as_the_driver_does() {
    let bench = Bench::with_driver(&[]);
    let (mut puppet, mut member, _daemon) = member_with_turn(&bench, &[("LATE_LAUNCH", "1")]);
    puppet.tell("exit");
    member.expect("Goodbye", |message| (*message == ClientMessage::Goodbye).then_some(()));
    assert_eq!(puppet.hear(), "late 4");
}

/// The blocked signals of every thread of the shim that has its name.
fn masks_of_our_threads(pid: i32) -> Vec<u64> {
    let mut masks = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("tasks") {
        let status = std::fs::read_to_string(task.expect("task").path().join("status")).expect("status");
        let value = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key)).expect("a line of status");
            line[key.len()..].trim().to_owned()
        };
        if value("Name:").starts_with("turnus-") {
            masks.push(u64::from_str_radix(&value("SigBlk:"), 16).expect("a mask"));
        }
    }
    masks
}

#[test]
fn lifecycle_our_threads_take_no_signals() {
    let bench = Bench::with_driver(&[]);
    let (puppet, _member, _daemon) = member_with_turn(&bench, &[]);
    // A thread names itself, a moment after it has begun.
    let start = std::time::Instant::now();
    let masks = loop {
        let masks = masks_of_our_threads(puppet.pid());
        if masks.len() == 3 || start.elapsed().as_secs() >= 20 {
            break masks;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    for blocked in &masks {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD, libc::SIGALRM] {
            assert_ne!(blocked & 1 << (signal - 1), 0, "signal {signal} may run on a thread of ours");
        }
    }
    assert_eq!(masks.len(), 3);
}

#[test]
fn lifecycle_our_descriptors_do_not_survive_exec() {
    let bench = Bench::with_driver(&[]);
    let (puppet, _member, _daemon) = member_with_turn(&bench, &[]);
    let mut ours = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{}/fd", puppet.pid())).expect("descriptors") {
        let path = entry.expect("entry").path();
        let target = std::fs::read_link(&path).expect("target").to_string_lossy().into_owned();
        if target.starts_with("socket:") || target.contains("eventfd") || target.contains("turnus") {
            let info = path.to_string_lossy().replace("/fd/", "/fdinfo/");
            let text = std::fs::read_to_string(info).expect("fdinfo");
            let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags").trim();
            let flags = i32::from_str_radix(flags, 8).expect("octal");
            assert_ne!(flags & libc::O_CLOEXEC, 0, "{target} would be inherited");
            ours.push(target);
        }
    }
    assert!(ours.len() >= 2, "the socket and the bell are not among {ours:?}");
}

#[test]
fn lifecycle_destroying_the_last_context_is_not_held_up() {
    let bench = Bench::with_driver(&[]);
    let (mut puppet, mut member, _daemon) = member_with_turn(&bench, &[]);
    puppet.does("destroy", "destroy 0");
    member.drain(1);
    member.expect_drained(1);
    member.send(DaemonMessage::OthersWaiting { count: 0 });
}
