//! How programs and daemons end: in good order, in bad order, stopped, killed, left behind.
//!
//! Whatever ends, the other tenant goes on and is right, and the memory comes back.

use nix::sys::signal::Signal;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;
use turnus_tests::contest::{Contest, SHARE_BYTES, TURNS_MIN};
use turnus_tests::{Outcome, Program, Road, Sandbox, Setup, compile};

fn shell(sandbox: &Sandbox, options: &[&str], script: &str) -> Command {
    let mut command = sandbox.under_with(options, Path::new("sh"));
    command.args(["-c", script]);
    command
}

/// Waits until the program has done this many more rounds.
fn wait_for_more_rounds(sandbox: &Sandbox, program: &mut Program, more: u64) {
    let before = program.rounds();
    sandbox.wait_for("more rounds", &mut [program], |programs| {
        assert!(programs[0].is_running(), "{}\n{}", programs[0].describe(), sandbox.dump());
        (programs[0].rounds() >= before + more).then_some(())
    });
}

#[test]
fn run_becomes_the_program_under_the_same_process_id() {
    let sandbox = Sandbox::new(Setup::default());
    let mut program = sandbox.start("pid", shell(&sandbox, &[], "echo $$"));
    let pid = program.pid();
    assert_eq!(sandbox.wait(&mut program).stdout.trim(), pid.to_string());
}

#[test]
fn exit_codes_and_signals_of_the_program_pass_through() {
    let sandbox = Sandbox::new(Setup::default());
    assert_eq!(sandbox.run("exit", shell(&sandbox, &[], "exit 37")).code, Some(37));
    assert_eq!(sandbox.run("signal", shell(&sandbox, &[], "kill -TERM $$")).signal, Some(15));
}

#[test]
fn a_preload_of_the_person_is_kept_behind_the_shim() {
    let sandbox = Sandbox::new(Setup::default());
    let mut command = shell(&sandbox, &[], "echo \"$LD_PRELOAD\"");
    command.env("LD_PRELOAD", "libm.so.6");
    let words = sandbox.run("preload", command).stdout;
    let words: Vec<&str> = words.trim().split(':').collect();
    assert!(words.len() == 2 && words[0].ends_with("libturnus.so") && words[1] == "libm.so.6", "{words:?}");
}

#[test]
fn a_program_without_cuda_never_meets_the_daemon() {
    let sandbox = Sandbox::new(Setup::default());
    let outcome = sandbox.run("ls", shell(&sandbox, &[], "ls /proc/self/task | wc -l"));
    assert_eq!((outcome.code, outcome.stdout.trim(), outcome.stderr.as_str()), (Some(0), "1", ""));
    assert!(sandbox.status().tenants.is_empty());
}

/// Ends a program in this way beside a rival, which must go on and be right.
fn end_beside_a_rival(how: &str, is_right: impl Fn(&Outcome) -> bool) {
    let sandbox = Sandbox::new(Setup::default());
    let program = compile("endings", Road::Dlsym);
    let arguments = ["--how", how, "--host-ms", "400"];
    let (bytes, rounds) = (SHARE_BYTES.to_string(), "4");
    let by_itself = [&arguments[..], &["--bytes", &bytes, "--rounds", rounds]].concat();
    let bare = sandbox.run_bare(&program, &by_itself);
    assert!(is_right(&bare), "without Turnus: {}", bare.describe());
    let alone = sandbox.run_under(&program, &by_itself);
    assert!(is_right(&alone), "{}\n{}", alone.describe(), sandbox.dump());
    sandbox.assert_all_freed();
    let stop_file = sandbox.folder().join("stop-rival");
    let stop = stop_file.to_string_lossy().into_owned();
    let chain = compile("chain", Road::Dlsym);
    let mut rival = sandbox.start_under("rival", &chain, &["--bytes", &bytes, "--stop-file", &stop]);
    wait_for_more_rounds(&sandbox, &mut rival, 1);
    for _ in 0..3 {
        let outcome = sandbox.run_under(&program, &by_itself);
        assert!(is_right(&outcome), "{}\n{}", outcome.describe(), sandbox.dump());
        wait_for_more_rounds(&sandbox, &mut rival, 2);
    }
    std::fs::write(&stop_file, "").expect("stop file");
    sandbox.wait(&mut rival).assert_right();
    sandbox.assert_all_freed();
}

fn is_right(outcome: &Outcome) -> bool {
    outcome.code == Some(0) && outcome.stdout.contains("result=right")
}

#[test]
fn exit_from_another_thread_while_launching() {
    end_beside_a_rival("exit-thread", is_right);
}

#[test]
fn exit_without_handlers_while_work_runs() {
    end_beside_a_rival("quick", is_right);
}

#[test]
fn the_driver_library_closed_before_the_end() {
    end_beside_a_rival("dlclose", is_right);
}

#[test]
fn a_context_destroyed_with_work_under_way() {
    end_beside_a_rival("destroy", is_right);
}

#[test]
fn terminated_while_launching() {
    end_beside_a_rival("abort-wait", |outcome| outcome.signal == Some(15));
}

#[test]
fn a_killed_tenant_leaves_nothing_behind_and_the_other_goes_on() {
    let sandbox = Sandbox::new(Setup::default());
    let mut contest = Contest::start(&sandbox, &compile("chain", Road::Dlsym), &[]);
    contest.wait_for_switches(&sandbox, TURNS_MIN);
    contest.first.kill();
    wait_for_more_rounds(&sandbox, &mut contest.rival, 3);
    assert!(sandbox.tenant("first").is_none(), "{}", sandbox.dump());
    // Only the rival's bytes, context and module are left on the device.
    let used = sandbox.used_bytes(0);
    assert!(used < SHARE_BYTES + (3 << 20), "{used} bytes are in use\n{}", sandbox.dump());
    contest.stop();
    sandbox.wait(&mut contest.rival).assert_right();
    sandbox.assert_all_freed();
}

#[test]
fn a_stopped_holder_is_named_to_who_waits_and_goes_on_when_continued() {
    let setup = Setup::default().daemon(&["--drain-timeout-ms", "200", "--notice-after-ms", "500"]);
    let sandbox = Sandbox::new(setup);
    let mut contest = Contest::start(&sandbox, &compile("chain", Road::Dlsym), &[]);
    contest.wait_for_switches(&sandbox, TURNS_MIN);
    let holder = sandbox.wait_for("holder", &mut [], |_| sandbox.look()?.devices[0].holder.clone());
    let stopped = if holder.starts_with("first") { &contest.first } else { &contest.rival };
    stopped.signal(Signal::SIGSTOP);
    // It may have given up the turn in the moment before; then its bytes cannot move.
    sandbox.wait_for("reason for the wait", &mut [], |_| {
        let status = sandbox.look()?;
        let reasons = status.tenants.iter().flat_map(|tenant| &tenant.reasons);
        reasons
            .into_iter()
            .any(|reason| reason.contains("not-preemptible") || reason.contains("unresponsive"))
            .then_some(())
    });
    let waiter = if holder.starts_with("first") { &contest.rival } else { &contest.first };
    sandbox.wait_for("line for the person who waits", &mut [], |_| {
        waiter.stderr().contains(&holder).then_some(())
    });
    stopped.signal(Signal::SIGCONT);
    wait_for_more_rounds(&sandbox, &mut contest.first, 2);
    wait_for_more_rounds(&sandbox, &mut contest.rival, 2);
    contest.finish(&sandbox);
}

#[test]
fn a_daemon_killed_and_restarted_twice_loses_no_byte() {
    let mut sandbox = Sandbox::new(Setup::default());
    let mut contest = Contest::start(&sandbox, &compile("chain", Road::Dlsym), &[]);
    contest.wait_for_switches(&sandbox, TURNS_MIN);
    for pause_ms in [0, 700] {
        sandbox.kill_daemon();
        sleep(Duration::from_millis(pause_ms));
        sandbox.start_daemon();
        contest.wait_for_switches(&sandbox, TURNS_MIN);
        wait_for_more_rounds(&sandbox, &mut contest.first, 1);
        wait_for_more_rounds(&sandbox, &mut contest.rival, 1);
    }
    contest.finish(&sandbox);
}

#[test]
fn a_program_that_ends_while_the_daemon_is_away_is_right() {
    let mut sandbox = Sandbox::new(Setup::default());
    let stop_file = sandbox.folder().join("stop");
    let stop = stop_file.to_string_lossy().into_owned();
    let bytes = SHARE_BYTES.to_string();
    let chain = compile("chain", Road::Dlsym);
    let mut program = sandbox.start_under("alone", &chain, &["--bytes", &bytes, "--stop-file", &stop]);
    wait_for_more_rounds(&sandbox, &mut program, 2);
    sandbox.kill_daemon();
    // Who holds the turn runs on without a daemon.
    wait_for_more_rounds(&sandbox, &mut program, 2);
    std::fs::write(&stop_file, "").expect("stop file");
    sandbox.wait(&mut program).assert_right();
    sandbox.assert_all_freed();
    sandbox.start_daemon();
    sandbox.run_under(&chain, &["--bytes", &bytes, "--rounds", "2"]).assert_right();
}

#[test]
fn a_child_that_stays_does_not_keep_the_tenant() {
    let sandbox = Sandbox::new(Setup::default());
    let program = compile("forkstay", Road::Dlsym);
    let bytes = (4u64 << 20).to_string();
    let mut parent = sandbox.start_under("parent", &program, &["--bytes", &bytes, "--rounds", "3"]);
    let outcome = sandbox.wait(&mut parent);
    outcome.assert_right();
    let child = outcome.value("child").expect("the child's process id");
    assert!(Path::new(&format!("/proc/{child}")).exists(), "the child is meant to stay");
    sandbox.wait_for("end of the tenant", &mut [], |_| sandbox.tenant("parent").is_none().then_some(()));
    // The simulated driver, like a real one, keeps a dead process's memory while its child has the device open.
    let kept = sandbox.used_bytes(0);
    assert!(kept > 4 << 20, "the child keeps nothing, so this test shows nothing");
    let chain = compile("chain", Road::Dlsym);
    let fits = (sandbox.arena().memory(0).expect("arena").free_bytes - (3 << 20)).to_string();
    let mut other = sandbox.start_under("other", &chain, &["--bytes", &fits, "--rounds", "30"]);
    wait_for_more_rounds(&sandbox, &mut other, 1);
    let device = sandbox.status().devices.remove(0);
    assert!(
        device.capacity_bytes <= device.total_bytes - kept,
        "{kept} bytes are held by the child, but capacity is {}",
        device.capacity_bytes
    );
    sandbox.wait(&mut other).assert_right();
    drop(parent);
    sandbox.assert_all_freed();
}
