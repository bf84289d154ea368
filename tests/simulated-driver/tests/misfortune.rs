//! Misfortunes on demand: lost devices, memory errors, kernels without end, faults by chance, late calls.
//!
//! About the simulator alone: its fault rules, its log of XID errors, its markers of lost devices.

#[macro_use]
mod common;

use std::io::{BufReader, Write as _};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use common::talk::{go_on, line, wait_for_word};
use common::two_devices;
use common::{
    FAST, Machine, WAIT_FOR_FLAG, allocate, context, function, is_child, isolated, launch, role, start,
};
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

const NO_STREAM: CUstream = std::ptr::null_mut();

fn directory() -> PathBuf {
    std::env::var_os("SIMULATED_CUDA_DIR").expect("set for the child").into()
}

fn xids() -> String {
    std::fs::read_to_string(directory().join("xid")).unwrap_or_default()
}

/// What a child says next.
fn said(child: &mut Child) -> String {
    line(&mut BufReader::with_capacity(1, child.stdout.as_mut().expect("a pipe")), "said: ")
}

fn say(text: &str) {
    println!("said: {text}");
    std::io::stdout().flush().expect("flushed");
}

#[test]
fn work_on_a_lost_device_ends_and_the_other_device_goes_on() {
    let name = "work_on_a_lost_device_ends_and_the_other_device_goes_on";
    if is_child() {
        ok!(cuInit(0));
        let (mut lost, mut sound, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        ok!(cuDeviceGetCount(&mut count));
        assert_eq!(count, 2);
        ok!(cuCtxCreate_v2(&mut lost, 0, 0));
        let flag = allocate(4096);
        ok!(cuMemsetD8_v2(flag, 0, 4096));
        let kernel = function(WAIT_FOR_FLAG, c"wait_for_flag");
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&flag]), Ok(()));
        say("a kernel runs");
        fails!(UNKNOWN, cuCtxSynchronize());
        let mut address = 0;
        fails!(UNKNOWN, cuMemAlloc_v2(&mut address, 4096));
        fails!(UNKNOWN, cuMemFree_v2(flag));
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&flag]), Err(CUerror::UNKNOWN));
        ok!(cuCtxDestroy_v2(lost));
        fails!(DEVICE_UNAVAILABLE, cuCtxCreate_v2(&mut lost, 0, 0));
        fails!(DEVICE_UNAVAILABLE, cuDevicePrimaryCtxRetain(&mut lost, 0));
        ok!(cuCtxCreate_v2(&mut sound, 0, 1));
        ok!(cuMemsetD8_v2(allocate(4096), 1, 4096));
        ok!(cuCtxSynchronize());
        return;
    }
    let machine = Machine::new(name, &two_devices(""));
    let mut child = start(&machine, name, "");
    assert_eq!(said(&mut child), "a kernel runs");
    std::thread::sleep(Duration::from_millis(50));
    std::fs::write(machine.directory.join("lost-0"), "").expect("the marker");
    assert!(child.wait().expect("the child ends").success());
}

#[test]
fn new_processes_do_not_see_a_lost_device() {
    let name = "new_processes_do_not_see_a_lost_device";
    if is_child() {
        if role() == "none" {
            fails!(NO_DEVICE, cuInit(0));
            return;
        }
        ok!(cuInit(0));
        let (mut count, mut device) = (0, 0);
        ok!(cuDeviceGetCount(&mut count));
        assert_eq!(count, 1);
        let mut address = [0_i8; 16];
        ok!(cuDeviceGetPCIBusId(address.as_mut_ptr(), 16, 0));
        assert_eq!(common::text(address.as_ptr()), "0000:02:00.0", "the second device has the first place");
        fails!(INVALID_DEVICE, cuDeviceGet(&mut device, 1));
        context();
        ok!(cuCtxSynchronize());
        return;
    }
    let machine = Machine::new(name, &two_devices(""));
    std::fs::write(machine.directory.join("lost-0"), "").expect("the marker");
    assert!(start(&machine, name, "").wait().expect("the child ends").success());
    std::fs::write(machine.directory.join("lost-1"), "").expect("the marker");
    assert!(start(&machine, name, "none").wait().expect("the child ends").success());
}

#[test]
fn a_rule_lets_the_device_fall_off_the_bus() {
    let rules = [("SIMULATED_CUDA_FAIL", "cuMemAlloc_v2:2=lost")];
    isolated("a_rule_lets_the_device_fall_off_the_bus", &rules, || {
        context();
        let (kept, mut address) = (allocate(4096), 0);
        fails!(UNKNOWN, cuMemAlloc_v2(&mut address, 4096));
        fails!(UNKNOWN, cuMemsetD8_v2(kept, 0, 1));
        assert_eq!(xids(), "0 79\n");
        assert!(directory().join("lost-0").exists());
    });
}

#[test]
fn an_uncorrectable_memory_error_loses_the_context_at_the_next_look() {
    let rules = [("SIMULATED_CUDA_FAIL", "cuMemsetD8Async:2=sticky214")];
    isolated("an_uncorrectable_memory_error_loses_the_context_at_the_next_look", &rules, || {
        let lost = context();
        let place = allocate(4096);
        ok!(cuMemsetD8Async(place, 1, 4096, NO_STREAM));
        ok!(cuCtxSynchronize());
        ok!(cuMemsetD8Async(place, 1, 4096, NO_STREAM));
        fails!(ECC_UNCORRECTABLE, cuCtxSynchronize());
        fails!(ECC_UNCORRECTABLE, cuMemsetD8Async(place, 1, 4096, NO_STREAM));
        assert_eq!(xids(), "0 48\n");
        ok!(cuCtxDestroy_v2(lost));
        context();
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn a_kernel_without_end_is_ended_by_the_time_out() {
    let rules = [("SIMULATED_CUDA_FAIL", "cuLaunchKernel:2=timeout100ms")];
    isolated("a_kernel_without_end_is_ended_by_the_time_out", &rules, || {
        context();
        let kernel = function(common::STORE_ONE, c"store_one");
        let place = allocate(4);
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&place]), Ok(()));
        ok!(cuCtxSynchronize());
        let begun = Instant::now();
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&place]), Ok(()), "the launch itself is fine");
        fails!(LAUNCH_TIMEOUT, cuCtxSynchronize());
        assert!(begun.elapsed() >= Duration::from_millis(100), "{:?}", begun.elapsed());
        assert_eq!(xids(), "0 8\n");
    });
}

#[test]
fn a_kernel_without_end_takes_turns_with_other_processes_and_goes_with_its_own() {
    let name = "a_kernel_without_end_takes_turns_with_other_processes_and_goes_with_its_own";
    if is_child() {
        context();
        let kernel = function(common::STORE_ONE, c"store_one");
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&allocate(4)]), Ok(()));
        if role() == "endless" {
            say("launched");
            wait_for_word();
            fails!(NOT_READY, cuStreamQuery(NO_STREAM));
            say("still runs");
            wait_for_word();
        } else {
            ok!(cuCtxSynchronize());
        }
        return;
    }
    let machine = Machine::new(name, FAST);
    std::fs::write(machine.directory.join("rules"), "").expect("a file");
    let mut command = machine.command(name);
    command.env("SIMULATED_CUDA_FAIL", "cuLaunchKernel:1=hang").env("SIMULATED_DRIVER_TEST_ROLE", "endless");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut endless = command.spawn().expect("the child runs");
    assert_eq!(said(&mut endless), "launched");
    assert!(start(&machine, name, "other").wait().expect("the child ends").success());
    go_on(&mut endless);
    assert_eq!(said(&mut endless), "still runs");
    go_on(&mut endless);
    assert!(endless.wait().expect("the child ends").success(), "the end of the process ends the kernel");
}

#[test]
fn a_rule_delays_a_call_and_may_fail_it_then() {
    let rules = [("SIMULATED_CUDA_FAIL", "cuMemAlloc_v2:2=delay60ms+2,cuMemAlloc_v2:3=delay60ms")];
    isolated("a_rule_delays_a_call_and_may_fail_it_then", &rules, || {
        context();
        allocate(4096);
        let (begun, mut address) = (Instant::now(), 0);
        fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, 4096));
        assert!(begun.elapsed() >= Duration::from_millis(60));
        allocate(4096);
        assert!(begun.elapsed() >= Duration::from_millis(120));
    });
}

#[test]
fn chance_is_the_same_in_every_process_with_the_same_seed() {
    let name = "chance_is_the_same_in_every_process_with_the_same_seed";
    if is_child() {
        context();
        let mut hits = String::new();
        for _ in 0..400 {
            let mut address = 0;
            hits.push(if call!(cuMemAlloc_v2(&mut address, 64)).is_ok() { '.' } else { 'x' });
        }
        say(&hits);
        return;
    }
    let machine = Machine::new(name, FAST);
    let hits = |seed: &str| {
        let mut command = machine.command(name);
        command.env("SIMULATED_CUDA_FAIL", "cuMemAlloc_v2:5%=2").env("SIMULATED_CUDA_FAIL_SEED", seed);
        let output = command.output().expect("the child runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let found = text.lines().find_map(|line| Some(line.split_once("said: ")?.1.to_owned()));
        found.expect("hits")
    };
    let first = hits("7");
    assert_eq!(first, hits("7"));
    assert_ne!(first, hits("8"));
    assert!((5..50).contains(&first.matches('x').count()), "{first}");
}

#[test]
fn a_rule_that_makes_no_sense_is_told_in_one_line_and_left_out() {
    let name = "a_rule_that_makes_no_sense_is_told_in_one_line_and_left_out";
    if is_child() {
        context();
        let mut address = 0;
        fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, 64));
        return;
    }
    let machine = Machine::new(name, FAST);
    let mut command = machine.command(name);
    command.env("SIMULATED_CUDA_FAIL", "cuMemAlloc_v2:first=2,cuMemAlloc_v2:1=2");
    let output = command.output().expect("the child runs");
    assert!(output.status.success());
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("SIMULATED_CUDA_FAIL") && told.contains("cuMemAlloc_v2:first=2"), "{told}");
}
