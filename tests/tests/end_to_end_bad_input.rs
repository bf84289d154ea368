//! Wrong surroundings and wrong words: each gives one clear line, the documented exit code, and
//! harms nothing else. The codes are those of `turnus --help`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use turnus_protocol::limits::PROTOCOL_VERSION;
use turnus_protocol::paths::{MEMBER_SOCKET, SOCKET_VARIABLE};
use turnus_protocol::{ClientMessage, DaemonMessage, Reason, Version, encode};
use turnus_tests::peer::{FakeDaemon, Peer};
use turnus_tests::{Road, Sandbox, Setup, artifacts, compile, workload};

const SMALL: [&str; 4] = ["--bytes", "1000000", "--rounds", "2"];
const NO_DAEMON: i32 = 4;

fn chain() -> PathBuf {
    compile("chain", Road::Dlsym)
}

/// The shim without `turnus run`, as in a container.
fn preloaded(sandbox: &Sandbox, socket: &Path, when_missing: Option<&str>) -> Command {
    let mut command = sandbox.bare(&chain());
    command.args(SMALL).env("LD_PRELOAD", artifacts::shim()).env(SOCKET_VARIABLE, socket);
    if let Some(word) = when_missing {
        command.env("TURNUS_WHEN_DAEMON_MISSING", word);
    }
    command
}

/// Right result, and exactly one line of ours with these words.
#[track_caller]
fn assert_unscheduled(outcome: &turnus_tests::Outcome, words: &[&str]) {
    outcome.assert_right();
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.describe());
    for word in words {
        assert!(outcome.stderr.contains(word), "{word} is not said: {}", outcome.describe());
    }
}

#[track_caller]
fn assert_unharmed(sandbox: &Sandbox) {
    sandbox.run_under(&chain(), &SMALL).assert_right();
    sandbox.assert_all_freed();
}

#[test]
fn without_a_driver_the_program_says_what_it_always_says() {
    let sandbox = Sandbox::new(Setup::default());
    let mut bare = sandbox.bare(&chain());
    bare.env_remove("LD_LIBRARY_PATH");
    let mut under = sandbox.under(&chain());
    under.env_remove("LD_LIBRARY_PATH");
    let (bare, under) = (sandbox.run("bare", bare), sandbox.run("under", under));
    assert_eq!(bare.code, Some(2), "a machine with a real driver? {}", bare.describe());
    assert_eq!((bare.code, &bare.stderr), (under.code, &under.stderr));
    assert_unharmed(&sandbox);
}

#[test]
fn without_a_daemon_programs_run_unscheduled_by_default() {
    let sandbox = Sandbox::without_daemon(Setup::default());
    for word in [None, Some("run")] {
        let outcome = sandbox.run("run", preloaded(&sandbox, &sandbox.socket(), word));
        assert_unscheduled(&outcome, &["turnus", "unscheduled"]);
    }
}

#[test]
fn without_a_daemon_cuda_is_refused_where_that_is_wanted() {
    let sandbox = Sandbox::without_daemon(Setup::default());
    let outcome = sandbox.run("refuse", preloaded(&sandbox, &sandbox.socket(), Some("refuse")));
    assert_eq!(outcome.code, Some(3), "{}", outcome.describe());
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("turnus") && lines[1].contains("cu.init"), "{lines:?}");
    // CUDA_ERROR_SYSTEM_NOT_READY
    assert!(lines[1].contains("802"), "{lines:?}");
}

#[test]
fn without_a_daemon_programs_wait_where_that_is_wanted() {
    let mut sandbox = Sandbox::without_daemon(Setup::default());
    let mut program = sandbox.start("wait", preloaded(&sandbox, &sandbox.socket(), Some("wait")));
    assert!(program.wait(Duration::from_millis(800)).is_none(), "{}", program.describe());
    assert!(program.stderr().contains("waiting"), "{}", program.describe());
    sandbox.start_daemon();
    let outcome = sandbox.wait(&mut program);
    outcome.assert_right();
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.describe());
}

#[test]
fn run_says_where_it_looked_for_a_daemon() {
    let sandbox = Sandbox::without_daemon(Setup::default());
    let outcome = sandbox.run_under(&chain(), &SMALL);
    outcome.assert_refusal(NO_DAEMON, &[&sandbox.socket().to_string_lossy(), "start turnusd"]);
}

#[test]
fn status_without_a_daemon_is_a_refusal_and_no_empty_answer() {
    let sandbox = Sandbox::without_daemon(Setup::default());
    let mut command = Command::new(artifacts::turnus());
    sandbox.prepare(&mut command);
    command.env(SOCKET_VARIABLE, sandbox.socket()).arg("status");
    sandbox.run("status", command).assert_refusal(NO_DAEMON, &["no turnusd is running", "turnus run"]);
}

#[test]
fn a_daemon_of_another_version_is_named() {
    let sandbox = Sandbox::without_daemon(Setup::default());
    let text = "this is turnusd 99".to_owned();
    let rejected =
        encode(&DaemonMessage::Rejected { reason: Reason::VersionMismatch, text }).expect("message");
    let fake = FakeDaemon::start(&sandbox.socket(), rejected);
    let outcome = sandbox.run_under(&chain(), &SMALL);
    outcome.assert_refusal(NO_DAEMON, &["version-mismatch", "turnusd 99", "same release"]);
    let outcome = sandbox.run("shim", preloaded(&sandbox, &sandbox.socket(), None));
    assert_unscheduled(&outcome, &["turnusd 99", "unscheduled"]);
    drop(fake);
}

#[test]
fn a_shim_of_another_version_is_told_what_to_do() {
    let sandbox = Sandbox::new(Setup::default());
    let protocol = Version { major: PROTOCOL_VERSION.major + 1, minor: 0 };
    let hello = ClientMessage::Hello { protocol, shim_version: "99.0".into(), token: None, resume: None };
    let run = ClientMessage::RegisterRun { protocol, name: "newer".into(), memory_limit_bytes: None };
    for message in [hello, run] {
        let peer = Peer::connect(&sandbox.socket()).expect("the daemon listens");
        peer.send(&message).expect("the daemon takes a message");
        match peer.receive(5000) {
            Some(DaemonMessage::Rejected { reason: Reason::VersionMismatch, text }) => {
                let words = [protocol.to_string(), PROTOCOL_VERSION.to_string()];
                assert!(words.iter().all(|word| text.contains(word.as_str())), "{text}");
            }
            other => panic!("{message:?} was answered by {other:?}"),
        }
        assert!(peer.is_ended(5000), "the conversation goes on");
    }
    assert_unharmed(&sandbox);
}

#[test]
fn something_else_at_the_socket_does_no_harm() {
    let sandbox = Sandbox::without_daemon(Setup::default());
    for answer in [b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), vec![0xff; 4000], vec![0]] {
        let fake = FakeDaemon::start(&sandbox.socket(), answer);
        let outcome = sandbox.run_under(&chain(), &SMALL);
        outcome.assert_refusal(NO_DAEMON, &["turnusd"]);
        let outcome = sandbox.run("shim", preloaded(&sandbox, &sandbox.socket(), None));
        assert_unscheduled(&outcome, &["unscheduled"]);
        drop(fake);
    }
}

#[test]
fn something_silent_at_the_socket_is_not_waited_for_for_ever() {
    let sandbox = Sandbox::without_daemon(Setup::default());
    let fake = FakeDaemon::start(&sandbox.socket(), Vec::new());
    let outcome = sandbox.run_under(&chain(), &SMALL);
    outcome.assert_refusal(NO_DAEMON, &["turnusd does not answer"]);
    let outcome = sandbox.run("shim", preloaded(&sandbox, &sandbox.socket(), None));
    assert_unscheduled(&outcome, &["unscheduled"]);
    drop(fake);
}

#[test]
fn a_second_daemon_for_a_directory_names_the_first() {
    let mut sandbox = Sandbox::new(Setup::default());
    let pid = sandbox.daemon().pid().to_string();
    let second = sandbox.daemon_command(&sandbox.directory());
    sandbox.run("second", second).assert_refusal(3, &["already serves", &pid]);
    assert_unharmed(&sandbox);
}

#[test]
fn a_second_daemon_for_a_device_names_the_first() {
    let mut sandbox = Sandbox::new(Setup::default());
    let first_pid = sandbox.daemon().pid().to_string();
    assert_unharmed(&sandbox);
    let directory = sandbox.folder().join("e");
    let second = sandbox.start("second", sandbox.daemon_command(&directory));
    let socket = directory.join(MEMBER_SOCKET);
    sandbox.wait_for("second daemon", &mut [], |_| socket.exists().then_some(()));
    let outcome = sandbox.run("stranger", preloaded(&sandbox, &socket, None));
    // It must not run as if it were alone with the device without a word.
    assert!(outcome.stderr.contains(&first_pid), "{}\n{}", outcome.describe(), second.stderr());
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.describe());
    assert!(second.stderr().contains("device-taken"), "{}", second.stderr());
    assert_unharmed(&sandbox);
}

#[test]
fn a_socket_that_may_not_be_used_is_named_with_what_to_do() {
    let sandbox = Sandbox::new(Setup::default());
    fs::set_permissions(sandbox.socket(), fs::Permissions::from_mode(0o600)).expect("socket");
    let mut command = sandbox.under(Path::new("/bin/true"));
    if rustix::process::geteuid().is_root() {
        let nobody = 65534;
        command.uid(nobody).gid(nobody).current_dir("/");
    } else {
        fs::set_permissions(sandbox.socket(), fs::Permissions::from_mode(0o000)).expect("socket");
    }
    let socket = sandbox.socket().to_string_lossy().into_owned();
    sandbox.run("denied", command).assert_refusal(NO_DAEMON, &[&socket, "ermission denied"]);
}

#[test]
fn a_socket_path_that_is_too_long_is_named_by_all_three() {
    let sandbox = Sandbox::without_daemon(Setup::default());
    let long = sandbox.folder().join("x".repeat(120));
    let mut daemon = sandbox.daemon_command(&long);
    daemon.env("NO_COLOR", "1");
    sandbox.run("daemon", daemon).assert_refusal(1, &["107 bytes", "shorter"]);
    let socket = long.join(MEMBER_SOCKET);
    let mut run = sandbox.under(&chain());
    run.env(SOCKET_VARIABLE, &socket);
    sandbox.run("run", run).assert_refusal(NO_DAEMON, &["107 bytes", "TURNUS_SOCKET"]);
    let outcome = sandbox.run("shim", preloaded(&sandbox, &socket, None));
    outcome.assert_right();
    assert!(outcome.stderr.contains("longer than a socket's path may be"), "{}", outcome.describe());
}

#[test]
fn nonsense_for_memory_is_refused_with_an_example() {
    let sandbox = Sandbox::new(Setup::default());
    for nonsense in ["lots", "0", "-1G", "80%", "1e9", "99999999T", ""] {
        let mut command = sandbox.under_with(&[&format!("--memory={nonsense}")], &chain());
        command.args(SMALL);
        let outcome = sandbox.run("nonsense", command);
        assert_eq!(outcome.code, Some(2), "{nonsense:?}: {}", outcome.describe());
        let first = outcome.stderr.lines().next().unwrap_or_default();
        assert!(first.contains("--memory"), "{nonsense:?}: {}", outcome.describe());
        assert!(outcome.stdout.is_empty(), "{nonsense:?}: {}", outcome.describe());
    }
    assert_unharmed(&sandbox);
}

#[test]
fn options_of_the_daemon_that_make_no_sense_are_refused() {
    let sandbox = Sandbox::without_daemon(Setup::default());
    for options in [
        ["--quantum-ms", "soon"],
        ["--quantum-ms", "0"],
        ["--handle-bytes", "3M"],
        ["--host-pool", "plenty"],
        ["--log", "=,="],
    ] {
        let mut command = Command::new(artifacts::turnusd());
        command.arg("--directory").arg(sandbox.directory()).args(options);
        let outcome = sandbox.run("turnusd", command);
        assert_eq!(outcome.code, Some(2), "{options:?}: {}", outcome.describe());
        assert!(outcome.stderr.contains(options[0]), "{options:?}: {}", outcome.describe());
    }
}

#[test]
fn programs_that_cannot_be_started_are_told_apart_as_a_shell_does() {
    let sandbox = Sandbox::new(Setup::default());
    let missing = sandbox.run_under(Path::new("no-such-program"), &[]);
    missing.assert_refusal(127, &["no-such-program"]);
    let plain = sandbox.folder().join("plain");
    fs::write(&plain, "echo hello\n").expect("file");
    sandbox.run_under(&plain, &[]).assert_refusal(126, &["plain", "chmod +x"]);
    sandbox.run_under(sandbox.folder(), &[]).assert_refusal(126, &["folder", "cannot be executed"]);
    assert_unharmed(&sandbox);
}

#[test]
fn programs_that_the_shim_cannot_be_loaded_into_are_refused() {
    let sandbox = Sandbox::new(Setup::default());
    let program = workload::compile_with("chain", "static", &["-static".to_owned()]);
    sandbox.run_under(&program, &[]).assert_refusal(126, &["statically linked", "--allow-unmanaged"]);
    let mut header = fs::read(&program).expect("an ELF file");
    header.truncate(4096);
    header[4] = 1;
    let small = sandbox.folder().join("small");
    fs::write(&small, header).expect("file");
    fs::set_permissions(&small, fs::Permissions::from_mode(0o755)).expect("mode");
    sandbox.run_under(&small, &[]).assert_refusal(126, &["32-bit", "--allow-unmanaged"]);
    let allowed = sandbox.run("allowed", sandbox.under_with(&["--allow-unmanaged"], &program));
    assert!(allowed.stderr.contains("takes no turns"), "{}", allowed.describe());
    assert_unharmed(&sandbox);
}

#[test]
fn a_token_that_is_none_is_refused_and_named() {
    let sandbox = Sandbox::new(Setup::default());
    for token in ["00112233445566778899aabbccddeeff", "xyz"] {
        let mut command = preloaded(&sandbox, &sandbox.socket(), None);
        command.env("TURNUS_TOKEN", token);
        let outcome = sandbox.run("token", command);
        outcome.assert_right();
        assert!(
            outcome.stderr.contains("token") || outcome.stderr.contains("TOKEN"),
            "{}",
            outcome.describe()
        );
    }
    assert_unharmed(&sandbox);
}
