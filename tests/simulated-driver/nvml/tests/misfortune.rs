//! Misfortunes: XID errors, lost devices, faults on demand.

#[macro_use]
mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use common::*;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Event {
    device: Handle,
    event_type: u64,
    event_data: u64,
    instances: [u32; 2],
}

fn set() -> Handle {
    let mut set: Handle = std::ptr::null_mut();
    ok!(nvmlEventSetCreate(&raw mut set));
    assert!(!set.is_null());
    set
}

fn wait(set: Handle, timeout_ms: u32) -> Result<(Handle, u64, u64), u32> {
    let mut event = Event { device: std::ptr::null_mut(), event_type: 0, event_data: 0, instances: [0; 2] };
    match call!(nvmlEventSetWait_v2(set, &raw mut event, timeout_ms)) {
        SUCCESS => Ok((event.device, event.event_type, event.event_data)),
        code => Err(code),
    }
}

fn log(text: &str) {
    let path = machine_directory().join("xid");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("the log opens");
    file.write_all(text.as_bytes()).expect("the log can be written");
}

#[test]
fn xid_errors_arrive_once_and_in_order() {
    isolated("xid_errors_arrive_once_and_in_order", &[], || {
        ok!(nvmlInit_v2());
        let mut types = 0_u64;
        ok!(nvmlDeviceGetSupportedEventTypes(device(0), &raw mut types));
        assert_eq!(types, 8, "XID errors");
        log("1 13\n");
        let set = set();
        ok!(nvmlDeviceRegisterEvents(device(1), types, set));
        assert_eq!(
            call!(nvmlDeviceRegisterEvents(device(1), 2_u64, set)),
            NOT_SUPPORTED,
            "double bit errors"
        );
        assert_eq!(wait(set, 0), Err(TIMEOUT), "what was before the registration is not recorded");
        log("0 31\n1 79\n1 48\n");
        assert_eq!(wait(set, 1000), Ok((device(1), 8, 79)), "device 0 is not registered");
        assert_eq!(wait(set, 1000), Ok((device(1), 8, 48)));
        assert_eq!(wait(set, 0), Err(TIMEOUT));

        let writer = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            log("1 63\n");
        });
        assert_eq!(wait(set, 10_000), Ok((device(1), 8, 63)), "an event ends the wait");
        writer.join().expect("the writer ends");
        ok!(nvmlEventSetFree(set));
        assert_eq!(wait(set, 0), Err(INVALID_ARGUMENT), "a freed set is no set");
    });
}

#[test]
fn waiting_without_events_takes_the_time_given() {
    isolated("waiting_without_events_takes_the_time_given", &[], || {
        ok!(nvmlInit_v2());
        let set = set();
        ok!(nvmlDeviceRegisterEvents(device(0), 8_u64, set));
        let begun = Instant::now();
        assert_eq!(wait(set, 100), Err(TIMEOUT));
        assert!(begun.elapsed() >= Duration::from_millis(100));
    });
}

#[test]
fn a_lost_device_is_lost_and_the_other_is_not() {
    isolated("a_lost_device_is_lost_and_the_other_is_not", &[], || {
        ok!(nvmlInit_v2());
        let (lost, well) = (device(0), device(1));
        let set = set();
        ok!(nvmlDeviceRegisterEvents(lost, 8_u64, set));
        std::fs::write(machine_directory().join("lost-0"), "").expect("marker");
        let mut memory = [0_u64; 3];
        assert_eq!(call!(nvmlDeviceGetMemoryInfo(lost, memory.as_mut_ptr())), GPU_IS_LOST);
        assert_eq!(wait(set, 1000), Err(GPU_IS_LOST));
        let mut handle: Handle = std::ptr::null_mut();
        assert_eq!(call!(nvmlDeviceGetHandleByIndex_v2(0_u32, &raw mut handle)), GPU_IS_LOST);
        ok!(nvmlDeviceGetMemoryInfo(well, memory.as_mut_ptr()));
        std::fs::remove_file(machine_directory().join("lost-0")).expect("marker");
        ok!(nvmlDeviceGetMemoryInfo(lost, memory.as_mut_ptr()));
    });
}

#[test]
fn faults_come_when_the_rules_say_so() {
    let rules = [("SIMULATED_NVML_FAIL", "nvmlDeviceGetCount_v2:2=999,nvmlInit_v2:1=9")];
    isolated("faults_come_when_the_rules_say_so", &rules, || {
        assert_eq!(call!(nvmlInit_v2()), 9, "the driver is not loaded");
        ok!(nvmlInit_v2());
        let mut count = 0_u32;
        ok!(nvmlDeviceGetCount_v2(&raw mut count));
        count = 7;
        assert_eq!(call!(nvmlDeviceGetCount_v2(&raw mut count)), 999);
        assert_eq!(count, 7, "a failing call has no effect");
        ok!(nvmlDeviceGetCount_v2(&raw mut count));
    });
}

#[test]
fn calls_are_traced() {
    let trace = format!("/dev/shm/simulated-nvml-trace-{}", std::process::id());
    isolated("calls_are_traced", &[("SIMULATED_NVML_TRACE", &trace)], || {
        ok!(nvmlInit_v2());
        assert_eq!(call!(nvmlDeviceGetFanSpeed(device(0), std::ptr::null_mut::<u32>())), NOT_SUPPORTED);
    });
    if !is_child() {
        let text = std::fs::read_to_string(&trace).expect("the trace is there");
        let calls: Vec<(&str, &str)> = text
            .lines()
            .map(|line| (line.split('\t').next().unwrap_or(""), line.split('\t').nth(1).unwrap_or("")))
            .collect();
        assert_eq!(
            calls,
            [("nvmlInit_v2", "0"), ("nvmlDeviceGetHandleByIndex_v2", "0"), ("nvmlDeviceGetFanSpeed", "3")]
        );
        std::fs::remove_file(&trace).expect("the trace can be removed");
    }
}

#[test]
fn a_device_that_falls_off_the_bus_is_an_event_and_then_lost() {
    let rules = [("SIMULATED_NVML_FAIL", "nvmlDeviceGetTemperature:1=lost1")];
    isolated("a_device_that_falls_off_the_bus_is_an_event_and_then_lost", &rules, || {
        ok!(nvmlInit_v2());
        let (well, lost) = (device(0), device(1));
        let set = set();
        ok!(nvmlDeviceRegisterEvents(lost, 8_u64, set));
        let mut degrees = 0_u32;
        ok!(nvmlDeviceGetTemperature(well, 0_u32, &raw mut degrees));
        assert_eq!(wait(set, 1000), Ok((lost, 8, 79)), "the event comes before the loss");
        assert_eq!(wait(set, 1000), Err(GPU_IS_LOST));
        assert_eq!(call!(nvmlDeviceGetTemperature(lost, 0_u32, &raw mut degrees)), GPU_IS_LOST);
    });
}

#[test]
fn a_fault_of_the_driver_is_an_event_here() {
    let rules = [("SIMULATED_CUDA_FAIL", "cuMemsetD8_v2:1=sticky214")];
    isolated("a_fault_of_the_driver_is_an_event_here", &rules, || {
        ok!(nvmlInit_v2());
        let set = set();
        ok!(nvmlDeviceRegisterEvents(device(0), 8_u64, set));
        let (mut context, mut address): (Handle, u64) = (std::ptr::null_mut(), 0);
        ok!(cuInit(0_u32));
        ok!(cuCtxCreate_v2(&raw mut context, 0_u32, 0_i32));
        ok!(cuMemAlloc_v2(&raw mut address, 4096_usize));
        ok!(cuMemsetD8_v2(address, 0_u32, 4096_usize));
        assert_eq!(call!(cuCtxSynchronize()), 214);
        let errors = |device: Handle, uncorrected: u32| {
            let mut errors = 7_u64;
            ok!(nvmlDeviceGetTotalEccErrors(device, uncorrected, 0_u32, &raw mut errors));
            errors
        };
        assert_eq!([errors(device(0), 1), errors(device(0), 0), errors(device(1), 1)], [1, 0, 0]);
        assert_eq!(wait(set, 1000), Ok((device(0), 8, 48)));
    });
}

#[test]
fn a_machine_of_another_version_is_a_mismatch_and_the_library_can_start_later() {
    isolated("a_machine_of_another_version_is_a_mismatch_and_the_library_can_start_later", &[], || {
        ok!(nvmlInit_v2());
        ok!(nvmlShutdown());
        let state = machine_directory().join("state");
        let sound = std::fs::read(&state).expect("the state");
        let mut other = sound.clone();
        other[8] ^= 1;
        std::fs::write(&state, other).expect("written");
        assert_eq!(call!(nvmlInit_v2()), 18, "library and kernel module do not fit");
        assert_eq!(call!(nvmlDeviceGetCount_v2(std::ptr::null_mut::<u32>())), UNINITIALIZED);
        std::fs::write(&state, sound).expect("written");
        ok!(nvmlInit_v2());
    });
}
