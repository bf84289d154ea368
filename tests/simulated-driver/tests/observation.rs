//! Faults on demand and the trace: what tests of other parts rely on.
//!
//! Rules come from the environment or from a file that the test changes while the program runs. The calls
//! themselves are tested elsewhere.

#[macro_use]
mod common;

use common::{context, is_child, isolated};

#[test]
fn the_chosen_calls_fail_and_no_others() {
    let rules = [("SIMULATED_CUDA_FAIL", "cuMemAlloc_v2:2=2,cuStreamCreate:2+=999")];
    isolated("the_chosen_calls_fail_and_no_others", &rules, || {
        context();
        let mut address = 0;
        ok!(cuMemAlloc_v2(&mut address, 512));
        fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, 512));
        ok!(cuMemAlloc_v2(&mut address, 512));
        let mut stream = std::ptr::null_mut();
        ok!(cuStreamCreate(&mut stream, 0));
        for _ in 0..3 {
            fails!(UNKNOWN, cuStreamCreate(&mut stream, 0));
        }
    });
}

#[test]
fn faults_can_be_switched_on_and_off_while_the_program_runs() {
    let path = format!("/dev/shm/simulated-driver-test-rules-{}", std::process::id());
    let name = "faults_can_be_switched_on_and_off_while_the_program_runs";
    isolated(name, &[("SIMULATED_CUDA_FAIL_FILE", &path)], || {
        let path = std::env::var("SIMULATED_CUDA_FAIL_FILE").expect("set by the parent");
        context();
        let mut address = 0;
        ok!(cuMemAlloc_v2(&mut address, 512));
        std::fs::write(&path, "cuMemAlloc_v2:1=2\ncuCtxSynchronize:1+=999\n").expect("rules");
        fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, 512));
        ok!(cuMemAlloc_v2(&mut address, 512));
        fails!(UNKNOWN, cuCtxSynchronize());
        fails!(UNKNOWN, cuCtxSynchronize());
        std::fs::remove_file(&path).expect("rules go");
        ok!(cuCtxSynchronize());
    });
    let _ = std::fs::remove_file(&path);
}

#[test]
fn the_trace_has_a_line_for_each_call() {
    let path = format!("/dev/shm/simulated-driver-test-trace-{}", std::process::id());
    isolated("the_trace_has_a_line_for_each_call", &[("SIMULATED_CUDA_TRACE", &path)], || {
        context();
        let mut address = 0;
        fails!(INVALID_VALUE, cuMemAlloc_v2(&mut address, 0));
    });
    if is_child() {
        return;
    }
    let trace = std::fs::read_to_string(&path).expect("a trace");
    let _ = std::fs::remove_file(&path);
    let calls: Vec<(&str, &str)> = trace
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            assert_eq!(fields.len(), 5, "{line}");
            assert!(fields[2].parse::<u64>().is_ok(), "nanoseconds in {line}");
            (fields[0], fields[1])
        })
        .collect();
    assert_eq!(calls, [("cuInit", "0"), ("cuCtxCreate_v2", "0"), ("cuMemAlloc_v2", "1")]);
}
