//! Starting, stopping, asking: directory, signals, administrators, idleness.

use crate::harness::{Daemon, command, wait_until};
use nix::sys::signal::Signal;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use turnus_protocol::admin::AdminRequest;
use turnus_protocol::limits::PROTOCOL_VERSION;
use turnus_protocol::paths::ADMIN_SOCKET;
use turnus_protocol::{ClientMessage, encode};
use turnus_scheduler::cli::contact;
use turnus_scheduler::packet;

fn ask(daemon: &Daemon, request: AdminRequest) -> serde_json::Value {
    let text = contact::ask(&daemon.directory(), request).expect("an answer");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_second_daemon_ends_with_code_3_and_names_the_first() {
    let daemon = Daemon::start(&[]);
    let output = command(&daemon.folder).output().expect("turnusd");
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr);
    let pid = format!("pid {})", daemon.child.id());
    assert!(said.lines().count() == 1 && said.contains(&pid), "{said}");
    daemon.member();
}

#[test]
fn signals_end_it_in_good_order() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut daemon = Daemon::start(&[]);
        let member = daemon.member();
        daemon.signal(signal);
        assert_eq!(daemon.wait().code(), Some(0));
        assert!(member.peer.ends());
    }
}

#[test]
fn its_own_user_asks_and_sets_on_the_admin_socket_that_is_nobody_elses() {
    let mut daemon = Daemon::start(&[]);
    let _member = daemon.member().ready();
    wait_until("the member is shown", || {
        ask(&daemon, AdminRequest::Status)["tenants"][0]["pids"][0] == std::process::id()
    });
    assert_eq!(ask(&daemon, AdminRequest::SetQuantum { quantum_ms: 50 })["done"], true);
    assert!(ask(&daemon, AdminRequest::SetQuantum { quantum_ms: 0 })["error"].is_string());
    let socket = daemon.directory().join(ADMIN_SOCKET);
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(socket.parent().expect("folder"))), (0o600, 0o700));
    assert_eq!(mode(&daemon.socket()), 0o666);
    let peer = packet::connect(&socket).expect("connect");
    packet::send(&peer, &[0xff; 300], None).expect("send");
    let answer = packet::receive(&peer, 4096).expect("receive").expect("an answer");
    assert!(String::from_utf8_lossy(&answer.bytes).contains("error"));
    assert_eq!(ask(&daemon, AdminRequest::Shutdown)["done"], true);
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn a_private_daemon_ends_when_nobody_is_there_but_not_before() {
    let mut daemon = Daemon::start(&["--exit-when-idle-ms", "200"]);
    let member = daemon.member();
    std::thread::sleep(Duration::from_millis(400));
    assert!(daemon.child.try_wait().expect("wait").is_none(), "it has left its member");
    drop(member);
    assert_eq!(daemon.wait().code(), Some(0));
}

/// A program may prepare its work for long before it needs a device.
#[test]
fn a_private_daemon_waits_for_programs_that_it_has_given_a_token() {
    let mut daemon = Daemon::start(&["--exit-when-idle-ms", "100"]);
    let runner = daemon.connect();
    let name = "slow".to_owned();
    runner.send(&ClientMessage::RegisterRun { protocol: PROTOCOL_VERSION, name, memory_limit_bytes: None });
    assert!(runner.receive().is_some());
    drop(runner);
    std::thread::sleep(Duration::from_millis(500));
    assert!(daemon.child.try_wait().expect("wait").is_none(), "it has left a program that runs");
}

/// Somebody may wait for the end of a pipe, or hold a lock by a descriptor.
#[test]
fn a_daemon_in_the_background_keeps_nothing_of_its_starter_open() {
    let folder = std::env::temp_dir().join(format!("turnusd-detach-{}", std::process::id()));
    let mut turnusd = command(&folder);
    turnusd.args(["--detach", "--exit-when-idle-ms", "3000"]);
    let mut line = String::from("exec 9>&1; exec");
    for word in std::iter::once(turnusd.get_program()).chain(turnusd.get_args()) {
        line += &format!(" '{}'", word.to_str().expect("plain words"));
    }
    let start = Instant::now();
    let output =
        Command::new("sh").arg("-c").arg(line).stdin(Stdio::null()).output().expect("sh and turnusd");
    assert!(output.status.success(), "{output:?}");
    assert!(start.elapsed() < Duration::from_millis(2500), "the pipe was kept open");
    let socket = folder.join("d").join(turnus_protocol::paths::MEMBER_SOCKET);
    wait_until("it serves", || packet::connect(&socket).is_ok());
    let pid = std::fs::read_to_string(folder.join("d/turnusd.lock")).expect("pid");
    let pid: i32 = pid.trim().parse().expect("a number");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM).expect("it runs");
    wait_until("it ends", || std::fs::metadata(format!("/proc/{pid}")).is_err());
    std::fs::remove_dir_all(&folder).expect("clean up");
}

#[test]
fn a_packet_to_the_admin_is_not_waited_for() {
    let daemon = Daemon::start(&[]);
    let silent = packet::connect(&daemon.directory().join(ADMIN_SOCKET)).expect("connect");
    assert!(ask(&daemon, AdminRequest::Status)["incarnation"].is_number());
    packet::send(&silent, &encode(&AdminRequest::Status).expect("message"), None).expect("send");
    assert!(packet::receive(&silent, 1 << 16).expect("receive").is_some());
}

/// In /tmp anybody can put a daemon of his own where ours is looked for.
#[test]
fn a_daemon_of_another_user_is_not_trusted() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("turnusd-foreign-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("d")).expect("folder");
    for path in [folder.clone(), folder.join("d")] {
        chown(path, Some(4242), Some(4242)).expect("owner");
    }
    let output = command(&folder).output().expect("turnusd");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("belongs to user 4242"), "{said}");
    let copy = folder.join("turnusd");
    std::fs::copy(env!("CARGO_BIN_EXE_turnusd"), &copy).expect("copy");
    let mut foreign = Command::new(&copy);
    foreign.arg("--directory").arg(folder.join("d")).arg("--lock-directory").arg(folder.join("locks"));
    let mut child = foreign.uid(4242).gid(4242).stderr(Stdio::null()).spawn().expect("turnusd");
    let socket = folder.join("d").join(turnus_protocol::paths::MEMBER_SOCKET);
    wait_until("it listens", || packet::connect(&socket).is_ok());
    assert_eq!(std::fs::metadata(&socket).expect("socket").uid(), 4242);
    let error = contact::ask(&folder.join("d"), AdminRequest::Status).expect_err("trusted").to_string();
    assert!(error.contains("another user"), "{error}");
    assert!(!contact::is_trusted(&packet::connect(&socket).expect("connect")));
    child.kill().expect("kill");
    child.wait().expect("wait");
    std::fs::remove_dir_all(&folder).expect("clean up");
}
