//! What programs are told about memory adds up, limits hold, and what cannot be had is refused at
//! once with the driver's code 2, which programs know how to handle.

use turnus_tests::contest::SHARE_BYTES;
use turnus_tests::sandbox::DEVICE_BYTES;
use turnus_tests::{Road, Sandbox, Setup, compile};

#[test]
fn memory_queries_add_up_without_turnus_and_under_it() {
    // Without Turnus the program would feel the scrubbing of what it has just freed.
    let sandbox = Sandbox::new(Setup { scrub_delay_ms: 0, ..Setup::default() });
    for road in Road::ALL {
        let program = compile("memory", road);
        sandbox.run_bare(&program, &["--bytes", "500000"]).assert_right();
        let outcome = sandbox.run_under(&program, &["--bytes", "500000"]);
        outcome.assert_right();
        assert_eq!(outcome.value("total"), Some(DEVICE_BYTES), "{}", outcome.describe());
        let granted = outcome.value("granted").expect("granted bytes");
        assert!(granted > DEVICE_BYTES / 4 * 3, "only {granted} bytes of an empty device were granted");
    }
    sandbox.assert_all_freed();
}

#[test]
fn a_limit_is_the_size_of_the_device_for_the_program() {
    let sandbox = Sandbox::new(Setup::default());
    let program = compile("memory", Road::Dlsym);
    for (pieces, limit) in [("262144", "4M"), ("1000", "1M"), ("999999", "6.5M")] {
        let mut command = sandbox.under_with(&["--memory", limit], &program);
        command.args(["--bytes", pieces]);
        let outcome = sandbox.run("limited", command);
        outcome.assert_right();
        let limit_bytes = turnus_scheduler::size::parse(limit).expect("a size");
        assert_eq!(outcome.value("total"), Some(limit_bytes), "{}", outcome.describe());
        let granted = outcome.value("granted").expect("granted bytes");
        assert!(granted <= limit_bytes, "{granted} bytes granted of {limit}");
    }
    assert!(sandbox.daemon_log().contains("tenant-limit"), "{}", sandbox.dump());
    sandbox.assert_all_freed();
}

#[test]
fn all_processes_of_a_tenant_share_its_limit() {
    let sandbox = Sandbox::new(Setup::default());
    let chain = compile("chain", Road::Dlsym);
    // Each would be granted alone; together they are over it, so exactly one is refused.
    let mut command = sandbox.under_with(&["--memory", "4M"], std::path::Path::new("sh"));
    let line = format!("{} --bytes 3000000 --rounds 60", chain.display());
    command.args(["-c", &format!("{line} & sleep 0.7; {line}; code=$?; wait $! && exit $code")]);
    let outcome = sandbox.run("two", command);
    assert_eq!(outcome.code, Some(3), "{}", outcome.describe());
    assert!(outcome.stderr.contains("failed with 2"), "{}", outcome.describe());
    assert_eq!(outcome.stdout.matches("result=right").count(), 1, "{}", outcome.describe());
}

#[test]
fn more_than_the_device_has_is_refused_and_the_program_goes_on() {
    let sandbox = Sandbox::new(Setup::default());
    let chain = compile("chain", Road::Dlsym);
    let bytes = (DEVICE_BYTES * 4).to_string();
    let outcome = sandbox.run_under(&chain, &["--bytes", &bytes]);
    assert_eq!(outcome.code, Some(3), "{}", outcome.describe());
    assert!(outcome.stderr.contains("cu.memory_alloc") && outcome.stderr.contains("failed with 2"));
    assert!(sandbox.daemon_log().contains("capacity-exceeded"), "{}", sandbox.dump());
    // `memory` is refused at the end of every run and goes on with what it has.
    sandbox.run_under(&compile("memory", Road::Dlsym), &["--bytes", "1000000"]).assert_right();
    sandbox.assert_all_freed();
}

#[test]
fn what_host_memory_could_not_take_is_refused_at_once_and_nobody_else_is_harmed() {
    let sandbox = Sandbox::new(Setup::default().daemon(&["--host-pool", "2M"]));
    let chain = compile("chain", Road::Dlsym);
    let stop_file = sandbox.folder().join("stop");
    let (bytes, stop) = (SHARE_BYTES.to_string(), stop_file.to_string_lossy().into_owned());
    let mut first = sandbox.start_under("first", &chain, &["--bytes", &bytes, "--stop-file", &stop]);
    sandbox.wait_for("first rounds", &mut [&mut first], |programs| (programs[0].rounds() > 1).then_some(()));
    let outcome = sandbox.run_under(&chain, &["--bytes", &bytes]);
    assert_eq!(outcome.code, Some(3), "{}", outcome.describe());
    assert!(outcome.stderr.contains("failed with 2"), "{}", outcome.describe());
    let log = sandbox.daemon_log();
    assert!(log.contains("budget-exceeded") && log.contains("--host-pool"), "{}", sandbox.dump());
    // What does fit is granted beside it.
    sandbox.run_under(&chain, &["--bytes", "2000000", "--rounds", "3"]).assert_right();
    std::fs::write(&stop_file, "").expect("stop file");
    sandbox.wait(&mut first).assert_right();
    sandbox.assert_all_freed();
}

#[test]
fn two_devices_are_two_machines_for_two_programs() {
    let sandbox = Sandbox::new(Setup { devices: 2, ..Setup::default() });
    let chain = compile("chain", Road::Dlsym);
    let bytes = (DEVICE_BYTES / 8 * 6).to_string();
    let mut programs: Vec<_> = ["0", "1"]
        .iter()
        .map(|device| {
            sandbox.start_under(device, &chain, &["--bytes", &bytes, "--rounds", "6", "--device", device])
        })
        .collect();
    for program in &mut programs {
        sandbox.wait(program).assert_right();
    }
    sandbox.assert_all_freed();
}

#[test]
fn a_first_context_finds_room_on_a_full_device() {
    let sandbox = Sandbox::new(Setup::default());
    let chain = compile("chain", Road::Dlsym);
    let stop_file = sandbox.folder().join("stop");
    let stop = stop_file.to_string_lossy().into_owned();
    // Two fill the device; the next context of a mebibyte takes its place from them.
    let bytes = (DEVICE_BYTES / 8 * 5).to_string();
    let arguments = ["--bytes", &bytes, "--stop-file", &stop];
    let mut first = sandbox.start_under("first", &chain, &arguments);
    let mut second = sandbox.start_under("second", &chain, &arguments);
    for _ in 0..4 {
        let (before, other) = (first.rounds(), second.rounds());
        sandbox.wait_for("rounds", &mut [&mut first, &mut second], |programs| {
            (programs[0].rounds() > before && programs[1].rounds() > other).then_some(())
        });
        sandbox.run_under(&chain, &["--bytes", "1000000", "--rounds", "2"]).assert_right();
    }
    std::fs::write(&stop_file, "").expect("stop file");
    sandbox.wait(&mut first).assert_right();
    sandbox.wait(&mut second).assert_right();
    sandbox.assert_all_freed();
}
