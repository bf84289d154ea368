//! What programs do to devices: memory, processes, load.

#[macro_use]
mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use common::*;

const MIB: u64 = 1 << 20;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ProcessInfo {
    pid: u32,
    used_bytes: u64,
    instances: [u32; 2],
}

fn memory(device: Handle) -> [u64; 3] {
    let mut memory = [0_u64; 3];
    ok!(nvmlDeviceGetMemoryInfo(device, memory.as_mut_ptr()));
    memory
}

fn processes(device: Handle) -> Vec<ProcessInfo> {
    let mut infos = [ProcessInfo::default(); 8];
    let mut count = 8_u32;
    ok!(nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, infos.as_mut_ptr()));
    infos[..count as usize].to_vec()
}

/// cuInit, a context on a device, and memory there.
fn hold(ordinal: i32, bytes: usize) -> u64 {
    let (mut context, mut address): (Handle, u64) = (std::ptr::null_mut(), 0);
    assert_eq!(call!(cuInit(0_u32)), 0);
    assert_eq!(call!(cuCtxCreate_v2(&raw mut context, 0_u32, ordinal)), 0);
    assert_eq!(call!(cuMemAlloc_v2(&raw mut address, bytes)), 0);
    address
}

#[test]
fn memory_and_processes_are_those_of_the_machine() {
    let name = "memory_and_processes_are_those_of_the_machine";
    if is_second() {
        hold(1, 8 << 20);
        println!("\nholding");
        // Until the other process closes the pipe.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    isolated(name, &[], || {
        ok!(nvmlInit_v2());
        assert_eq!(memory(device(1)), [64 * MIB, 64 * MIB, 0]);
        assert!(processes(device(1)).is_empty());
        let mut child = second_process(name);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.expect("text") == "holding"));
        let used = 9 * MIB;
        assert_eq!(memory(device(1)), [64 * MIB, 64 * MIB - used, used], "memory and a context of 1 MiB");
        assert_eq!(memory(device(0))[2], 0, "the other device is free");
        let info = ProcessInfo { pid: child.id(), used_bytes: used, instances: [u32::MAX; 2] };
        assert_eq!(processes(device(1)), [info]);
        assert!(processes(device(0)).is_empty());

        let mut count = 0_u32;
        let nothing = std::ptr::null_mut::<ProcessInfo>();
        let code = call!(nvmlDeviceGetComputeRunningProcesses_v3(device(1), &raw mut count, nothing));
        assert_eq!((code, count), (INSUFFICIENT_SIZE, 1), "the size is asked with no room");
        let mut first = [0_u64; 4];
        ok!(nvmlDeviceGetComputeRunningProcesses(device(1), &raw mut count, first.as_mut_ptr()));
        assert_eq!((count, first[0] as u32, first[1]), (1, child.id(), used));
        assert_eq!(first[2..], [0, 0], "16 bytes in the first version");
        let path = text(|place, size| call!(nvmlSystemGetProcessName(child.id(), place, size)));
        let own = std::env::current_exe().expect("own path");
        assert!(own.to_str().expect("UTF-8").starts_with(&path), "{path}");

        child.stdin.take().expect("piped").write_all(b"x").expect("the child reads");
        assert!(child.wait().expect("the child ends").success());
        assert_eq!(memory(device(1))[2], 0, "what a process held is free when it is gone");
        assert!(processes(device(1)).is_empty());
    });
}

#[test]
fn the_second_version_of_memory_checks_its_version() {
    isolated("the_second_version_of_memory_checks_its_version", &[], || {
        ok!(nvmlInit_v2());
        let mut memory = [0x0200_0028_u64, 9, 9, 9, 9];
        ok!(nvmlDeviceGetMemoryInfo_v2(device(0), memory.as_mut_ptr()));
        assert_eq!(memory[1..], [64 * MIB, 0, 64 * MIB, 0]);
        for wrong in [0_u64, 2, 0x0100_0028, 0x0200_0018] {
            memory[0] = wrong;
            let code = call!(nvmlDeviceGetMemoryInfo_v2(device(0), memory.as_mut_ptr()));
            assert_eq!(code, ARGUMENT_VERSION_MISMATCH, "{wrong:#x}");
        }
    });
}

#[test]
fn a_running_kernel_is_load() {
    isolated("a_running_kernel_is_load", &[], || {
        ok!(nvmlInit_v2());
        let busy = device(0);
        let rates = |device: Handle| {
            let mut rates = [0_u32; 2];
            ok!(nvmlDeviceGetUtilizationRates(device, rates.as_mut_ptr()));
            rates[0]
        };
        assert_eq!(rates(busy), 0);
        let idle_power = number("nvmlDeviceGetPowerUsage", busy);
        let flag = hold(0, 4096);
        start_kernel(flag);
        let begun = Instant::now();
        while rates(busy) < 60 {
            assert!(begun.elapsed() < Duration::from_secs(20), "load is {} %", rates(busy));
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(rates(device(1)), 0, "the other device is idle");
        assert!(number("nvmlDeviceGetPowerUsage", busy) > idle_power);
        let mut clock = 0_u32;
        ok!(nvmlDeviceGetClockInfo(busy, 1_u32, &raw mut clock));
        assert_eq!(clock, 1410);

        let mut samples = [[0_u64; 4]; 4];
        let mut count = 4_u32;
        ok!(nvmlDeviceGetProcessUtilization(busy, samples.as_mut_ptr(), &raw mut count, 0_u64));
        assert_eq!((count, samples[0][0] as u32), (1, std::process::id()), "the upper half is padding");
        assert!(samples[0][2] as u32 > 0, "this process has load");
        let seen = samples[0][1] + 60_000_000;
        let code = call!(nvmlDeviceGetProcessUtilization(busy, samples.as_mut_ptr(), &raw mut count, seen));
        assert_eq!(code, NOT_FOUND, "nothing is newer than the next minute");

        let (mut kind, mut count) = (0_u32, 0_u32);
        let nothing = std::ptr::null_mut::<[u64; 2]>();
        ok!(nvmlDeviceGetSamples(busy, 1_u32, 0_u64, &raw mut kind, &raw mut count, nothing));
        assert!(count > 5 && kind == 1, "{count} samples of type {kind}");
        let mut samples = vec![[0_u64; 2]; count as usize];
        ok!(nvmlDeviceGetSamples(busy, 1_u32, 0_u64, &raw mut kind, &raw mut count, samples.as_mut_ptr()));
        assert!(samples.windows(2).all(|pair| pair[0][0] < pair[1][0]), "oldest first");
        assert_eq!(call!(cuMemsetD32Async(flag, 1_u32, 1_usize, stream())), 0);
        assert_eq!(call!(cuCtxSynchronize()), 0);
    });
}

/// A stream that does not wait for the kernel.
fn stream() -> Handle {
    let mut stream: Handle = std::ptr::null_mut();
    assert_eq!(call!(cuStreamCreate(&raw mut stream, 1_u32)), 0);
    stream
}

/// A kernel that runs until the number at `flag` is not 0.
fn start_kernel(flag: u64) {
    let ptx = c".version 7.0
.target sm_60
.address_size 64
.visible .entry wait_for_flag(.param .u64 flag)
{
    .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [flag];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}
";
    let (mut module, mut function): (Handle, Handle) = (std::ptr::null_mut(), std::ptr::null_mut());
    assert_eq!(call!(cuMemsetD32_v2(flag, 0_u32, 1_usize)), 0);
    assert_eq!(call!(cuModuleLoadData(&raw mut module, ptx.as_ptr())), 0);
    assert_eq!(call!(cuModuleGetFunction(&raw mut function, module, c"wait_for_flag".as_ptr())), 0);
    let mut arguments = [(&raw const flag).cast_mut()];
    let nothing: Handle = std::ptr::null_mut();
    let (one, arguments) = (1_u32, arguments.as_mut_ptr());
    let code =
        call!(cuLaunchKernel(function, one, one, one, one, one, one, 0_u32, stream(), arguments, nothing));
    assert_eq!(code, 0);
}
