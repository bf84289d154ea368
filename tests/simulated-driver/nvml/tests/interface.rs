//! The library as a whole: what it exports, initialisation, and what wrong arguments do.

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::process::Command;

use common::*;

const NAMES: &str = include_str!("../data/exports.txt");

fn names() -> BTreeSet<&'static str> {
    NAMES.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn the_exports_are_those_of_real_libraries() {
    let library = library_directory().join("libnvidia-ml.so.1");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().expect("nm runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let exported: BTreeSet<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(exported, names());
    let output = Command::new("readelf").arg("-d").arg(&library).output().expect("readelf runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Library soname: [libnvidia-ml.so.1]"));
}

#[test]
fn before_initialisation_all_but_a_few_functions_refuse() {
    isolated("before_initialisation_all_but_a_few_functions_refuse", &[], || {
        let answered = [
            "nvmlErrorString",
            "nvmlInit",
            "nvmlInit_v2",
            "nvmlInitWithFlags",
            "nvmlSystemGetNVMLVersion",
            "nvmlSystemGetCudaDriverVersion",
            "nvmlSystemGetCudaDriverVersion_v2",
            "nvmlGetExcludedDeviceCount",
            "nvmlGetBlacklistDeviceCount",
        ];
        for name in names().into_iter().filter(|name| !answered.contains(name)) {
            assert_eq!(call(name, (0_u64, 0_u64, 0_u64, 0_u64, 0_u64, 0_u64)), UNINITIALIZED, "{name}");
        }
        let mut version = 0_i32;
        ok!(nvmlSystemGetCudaDriverVersion_v2(&raw mut version));
        assert_eq!(version, 13050);
    });
}

#[test]
fn null_arguments_crash_nothing_and_get_nowhere() {
    isolated("null_arguments_crash_nothing_and_get_nowhere", &[], || {
        ok!(nvmlInit_v2());
        let succeed = ["nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"];
        let nulls = || (0_u64, 0_u64, 0_u64, 0_u64, 0_u64, 0_u64, 0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
        for name in names() {
            if succeed.contains(&name) || ["nvmlErrorString", "nvmlShutdown"].contains(&name) {
                continue;
            }
            let code = call(name, nulls());
            assert!([INVALID_ARGUMENT, NOT_SUPPORTED].contains(&code), "{name} answers {code}");
        }
    });
}

#[test]
fn foreign_handles_are_refused_and_not_followed() {
    isolated("foreign_handles_are_refused_and_not_followed", &[], || {
        ok!(nvmlInit_v2());
        let mut place = [0_u64; 64];
        for foreign in [1_usize, 0xdead_beef_0000, device(1).addr() + 1, device(0).addr().wrapping_sub(1)] {
            let buffer = place.as_mut_ptr();
            let code = call!(nvmlDeviceGetMemoryInfo(foreign, buffer));
            assert_eq!(code, INVALID_ARGUMENT, "{foreign:#x}");
            assert_eq!(call!(nvmlEventSetWait_v2(foreign, buffer, 0_u32)), INVALID_ARGUMENT);
            assert_eq!(call!(nvmlEventSetFree(foreign)), INVALID_ARGUMENT);
        }
        assert_eq!(place, [0; 64], "nothing was written");
    });
}

#[test]
fn initialisation_is_counted() {
    isolated("initialisation_is_counted", &[], || {
        assert_eq!(call!(nvmlShutdown()), UNINITIALIZED);
        ok!(nvmlInit_v2());
        ok!(nvmlInitWithFlags(1_u32));
        ok!(nvmlShutdown());
        let mut count = 0_u32;
        ok!(nvmlDeviceGetCount_v2(&raw mut count));
        assert_eq!(count, 2);
        ok!(nvmlShutdown());
        assert_eq!(call!(nvmlDeviceGetCount_v2(&raw mut count)), UNINITIALIZED);
        ok!(nvmlInit());
        assert_eq!(call!(nvmlInitWithFlags(8_u32)), INVALID_ARGUMENT, "an unknown flag");
    });
}

#[test]
fn the_first_to_initialise_makes_the_machine() {
    if is_child() {
        ok!(nvmlInit_v2());
        let mut count = 0_u32;
        ok!(nvmlDeviceGetCount_v2(&raw mut count));
        assert_eq!(count, 3);
        return;
    }
    let machine = Machine::new("first", &two_devices(""));
    std::fs::remove_dir_all(&machine.directory).expect("no machine yet");
    let mut command = machine.command("the_first_to_initialise_makes_the_machine");
    let output = command.env("SIMULATED_CUDA_DEVICES", "3").output().expect("the child runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(machine.directory.join("devices.toml").exists());
}

#[test]
fn versions_follow_the_drivers() {
    let name = "versions_follow_the_drivers";
    isolated(name, &[("SIMULATED_CUDA_DRIVER_VERSION", "12040")], || {
        ok!(nvmlInit_v2());
        assert_eq!(text(|place, size| call!(nvmlSystemGetDriverVersion(place, size))), "550.163.01");
        assert_eq!(text(|place, size| call!(nvmlSystemGetNVMLVersion(place, size))), "12.550.163.01");
        let mut short = [1_u8; 8];
        assert_eq!(call!(nvmlSystemGetDriverVersion(short.as_mut_ptr(), 8_u32)), INSUFFICIENT_SIZE);
        assert_eq!(short, [1; 8]);
    });
}

#[test]
fn a_forked_child_goes_on() {
    isolated("a_forked_child_goes_on", &[], || {
        ok!(nvmlInit_v2());
        // SAFETY: this process has one thread that uses the library, and the child only calls it and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut memory = [0_u64; 3];
            let code = call!(nvmlDeviceGetMemoryInfo(device(1), memory.as_mut_ptr()));
            // SAFETY: ends the child without the test harness.
            unsafe { libc::_exit(if code == 0 && memory[0] == 64 << 20 { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: waits for our own child; `status` is valid.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    });
}
