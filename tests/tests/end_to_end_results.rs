//! Every workload gives the right result three times: without Turnus, alone under it, and beside a
//! rival with which it does not fit on the device, with several forced switches.
//!
//! The workloads compare every byte that they have on the device with a model; see
//! `tests/workloads`. What a test protects is said in the workload's first comment.

use nix::sys::signal::Signal;
use std::path::Path;
use turnus_tests::contest::{Contest, SHARE_BYTES, TURNS_MIN};
use turnus_tests::{Road, Sandbox, Setup, artifacts, compile};

fn check_everywhere(program: &Path, arguments: &[&str], rounds_min: u64) {
    let sandbox = Sandbox::new(Setup::default());
    let (bytes, rounds) = (SHARE_BYTES.to_string(), rounds_min.to_string());
    let by_itself = [arguments, &["--bytes", &bytes, "--rounds", &rounds]].concat();
    sandbox.run_bare(program, &by_itself).assert_right();
    sandbox.assert_all_freed();
    sandbox.run_under(program, &by_itself).assert_right();
    sandbox.assert_all_freed();
    let mut contest = Contest::start(&sandbox, program, arguments);
    contest.wait_for_switches(&sandbox, TURNS_MIN);
    sandbox.wait_for("rounds", &mut [&mut contest.first], |programs| {
        assert!(programs[0].is_running(), "{}", programs[0].describe());
        (programs[0].rounds() >= rounds_min).then_some(())
    });
    contest.finish(&sandbox);
}

macro_rules! workloads {
    ($($test:ident: $program:literal by $road:ident, $rounds:literal rounds;)*) => {
        $(#[test]
        fn $test() {
            check_everywhere(&compile($program, Road::$road), &[], $rounds);
        })*
    };
}

workloads! {
    read_modify_write_chains_by_dlsym: "chain" by Dlsym, 4 rounds;
    read_modify_write_chains_by_proc_address: "chain" by ProcAddress, 4 rounds;
    read_modify_write_chains_linked: "chain" by Linked, 4 rounds;
    fill_by_dlsym: "fill" by Dlsym, 4 rounds;
    fill_by_proc_address: "fill" by ProcAddress, 4 rounds;
    fill_linked: "fill" by Linked, 4 rounds;
    saxpy: "saxpy" by ProcAddress, 4 rounds;
    hash_of_64_bits: "hash" by Linked, 4 rounds;
    reduction: "reduce" by Dlsym, 4 rounds;
    a_thousand_launches_at_once: "queue" by ProcAddress, 2 rounds;
    three_streams_and_two_threads: "streams" by Dlsym, 5 rounds;
    a_kernel_that_waits_for_the_host: "spin" by ProcAddress, 5 rounds;
    two_processes_whose_kernels_wait_for_each_other: "peers" by Linked, 5 rounds;
    a_host_function_and_a_mutex_held_at_the_gate: "hostfunc" by Dlsym, 4 rounds;
    a_graph_replayed_twenty_times: "capture" by ProcAddress, 20 rounds;
    random_allocations_and_frees: "allocfree" by Dlsym, 8 rounds;
    ranges_that_leave_an_allocation: "ranges" by Dlsym, 4 rounds;
    signals_while_calls_wait: "signals" by Linked, 4 rounds;
    children_by_vfork_and_fork: "children" by Dlsym, 4 rounds;
}

#[test]
fn python_with_cuda_bindings_and_nvrtc() {
    let Some(python) = artifacts::python("chain.py under Turnus") else { return };
    let script = artifacts::workspace().join("tests/workloads/chain.py");
    check_everywhere(&python, &[&script.to_string_lossy()], 3);
}

/// What the other tests rely on: a single wrong byte in a frame does not stay unseen.
#[test]
fn a_byte_changed_behind_its_back_is_seen_by_a_workload() {
    let sandbox = Sandbox::without_daemon(Setup::default());
    let bytes = SHARE_BYTES.to_string();
    for name in ["chain", "saxpy", "hash", "streams", "capture", "allocfree", "hostfunc", "stress"] {
        let stop_file = sandbox.folder().join(format!("stop-{name}"));
        let mut command = sandbox.bare(&compile(name, Road::Dlsym));
        command.args(["--bytes", &bytes, "--stop-file", &stop_file.to_string_lossy()]);
        if name == "stress" {
            command.args(["--how", "0"]);
        }
        let mut program = sandbox.start(name, command);
        sandbox.wait_for("rounds", &mut [&mut program], |programs| (programs[0].rounds() >= 4).then_some(()));
        program.signal(Signal::SIGSTOP);
        sandbox.corrupt(0);
        program.signal(Signal::SIGCONT);
        std::fs::write(&stop_file, "").expect("stop file");
        let outcome = sandbox.wait(&mut program);
        assert!(outcome.code == Some(1) && outcome.stdout.contains("result=wrong"), "{}", outcome.describe());
        sandbox.assert_all_freed();
    }
}
