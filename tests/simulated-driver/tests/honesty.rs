//! What the driver takes without being asked for, on by default: local memory, the time of scrubbing, and engines
//! that other processes use too. Here through the driver, with the switches of `devices.toml`.

#[macro_use]
mod common;

use std::ffi::CStr;
use std::io::BufReader;
use std::time::{Duration, Instant};

use common::talk::{go_on, line, wait_for_word};
use common::{FAST, Machine, allocate, context, function, is_child, launch, role, start};
use turnus_bindings::types::*;

const NULL: CUstream = std::ptr::null_mut();
const MEBIBYTE: usize = 1 << 20;

/// Runs `body` in a fresh process on a machine with a fast device and these lines in its configuration: some for
/// the machine and some for the device.
fn on_machine(name: &str, of_machine: &str, of_device: &str, body: impl FnOnce()) {
    if is_child() {
        return body();
    }
    let machine = Machine::new(name, &configuration(of_machine, of_device));
    let status = machine.command(name).status().expect("the child runs");
    assert!(status.success(), "{name} in its process: {status}");
}

/// The fast machine; lines of its own that name the same key are left out.
fn configuration(of_machine: &str, of_device: &str) -> String {
    let (machine, device) = FAST.split_once("[[devices]]\n").expect("a device");
    let without = |text: &str, given: &str| {
        let key = |line: &str| line.split(" =").next().unwrap_or_default().to_owned();
        let kept = text.lines().filter(|line| !given.lines().any(|other| key(other) == key(line)));
        kept.map(|line| format!("{line}\n")).collect::<String>()
    };
    format!(
        "{}{of_machine}\n[[devices]]\n{}{of_device}\n",
        without(machine, of_machine),
        without(device, of_device)
    )
}

fn used_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    total - free
}

/// A kernel with `bytes` of local memory per thread.
fn hungry(bytes: usize) -> CUfunction {
    let text = format!(
        ".version 7.0\n.target sm_60\n.address_size 64\n.visible .entry hungry()\n{{\n\
         .local .align 4 .b8 space[{bytes}];\n.reg .b32 %r<2>;\nmov.u32 %r1, 1;\nst.local.u32 [space], %r1;\nret;\n}}\n\0"
    );
    function(CStr::from_bytes_with_nul(text.as_bytes()).expect("a text"), c"hungry")
}

fn run(kernel: CUfunction) -> CUresult {
    launch(kernel, 1, 1, NULL, &[])?;
    call!(cuCtxSynchronize())
}

fn stack_bytes() -> usize {
    let mut value = 0;
    ok!(cuCtxGetLimit(&mut value, CU_LIMIT_STACK_SIZE));
    value
}

/// Threads that the default device holds: 108 multiprocessors with 2048.
const THREADS: usize = 108 * 2048;

#[test]
fn local_memory_is_taken_for_all_threads_of_the_device_and_kept_until_the_limit_is_set() {
    let name = "local_memory_is_taken_for_all_threads_of_the_device_and_kept_until_the_limit_is_set";
    on_machine(name, "", "local_memory_cost = true", || {
        context();
        let (modest, kernel) = (hungry(512), hungry(4096));
        let before = used_bytes();
        assert_eq!(stack_bytes(), 1024);
        assert_eq!(run(modest), Ok(()));
        assert_eq!(used_bytes(), before, "every thread has 1 KiB from the beginning");
        assert_eq!(run(kernel), Ok(()));
        let grown = before + (4096 - 1024) * THREADS / 64;
        assert_eq!(used_bytes(), grown);
        assert_eq!(stack_bytes(), 4096, "the driver increases the limit as needed");
        assert_eq!(run(modest), Ok(()));
        assert_eq!(used_bytes(), grown, "and does not take it back after a launch");
        ok!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
        assert_eq!(used_bytes(), before + 1024 * THREADS / 64, "setting the limit resizes at once");
        fails!(INVALID_VALUE, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, (512 << 10) + 1));
        ok!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
        assert_eq!(used_bytes(), before);
    });
}

#[test]
fn a_launch_without_room_for_its_local_memory_is_refused_and_the_context_goes_on() {
    let name = "a_launch_without_room_for_its_local_memory_is_refused_and_the_context_goes_on";
    on_machine(name, "", "local_memory_cost = true", || {
        context();
        let (kernel, modest) = (hungry(64 << 10), hungry(16));
        let before = used_bytes();
        fails!(OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 64 << 10));
        assert_eq!(run(kernel), Err(turnus_bindings::CUerror::OUT_OF_MEMORY));
        assert_eq!((used_bytes(), stack_bytes()), (before, 1024));
        assert_eq!(run(modest), Ok(()));
        // A graph takes the memory when it becomes launchable.
        let (mut stream, mut graph, mut exec) = (NULL, std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuStreamCreate(&mut stream, 1));
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        assert_eq!(launch(kernel, 1, 1, stream, &[]), Ok(()));
        ok!(cuStreamEndCapture(stream, &mut graph));
        fails!(OUT_OF_MEMORY, cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    });
}

#[test]
fn local_memory_costs_nothing_where_the_file_says_so() {
    let name = "local_memory_costs_nothing_where_the_file_says_so";
    on_machine(name, "", "local_memory_cost = false", || {
        context();
        let kernel = hungry(64 << 10);
        let before = used_bytes();
        assert_eq!(run(kernel), Ok(()));
        assert_eq!((used_bytes(), stack_bytes()), (before, 64 << 10));
    });
}

#[test]
fn memory_that_was_just_freed_may_be_out_of_reach_for_a_moment() {
    let name = "memory_that_was_just_freed_may_be_out_of_reach_for_a_moment";
    on_machine(name, "scrub_delay_ms = 300", "", || {
        context();
        let (place, mut again) = (allocate(40 * MEBIBYTE), 0);
        let before = used_bytes();
        ok!(cuMemFree_v2(place));
        let freed = Instant::now();
        assert_eq!(used_bytes(), before, "what is being scrubbed is not free");
        fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&mut again, 40 * MEBIBYTE));
        while call!(cuMemAlloc_v2(&mut again, 40 * MEBIBYTE)).is_err() {
            assert!(freed.elapsed() < Duration::from_secs(20), "the shortage never ends");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(freed.elapsed() >= Duration::from_millis(290), "{:?}", freed.elapsed());
    });
}

#[test]
fn contexts_and_modules_take_time_and_memory_as_the_file_says() {
    let name = "contexts_and_modules_take_time_and_memory_as_the_file_says";
    let costs = "context_cost_us = 150000\ncontext_bytes = 268435456\nmodule_cost_us = 80000\nmodule_bytes = 134217728";
    on_machine(name, "", costs, || {
        ok!(cuInit(0));
        let begun = Instant::now();
        context();
        assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
        assert_eq!(used_bytes(), 4 * MEBIBYTE);
        let begun = Instant::now();
        hungry(16);
        assert!(begun.elapsed() >= Duration::from_millis(80), "{:?}", begun.elapsed());
        assert_eq!(used_bytes(), 6 * MEBIBYTE);
    });
}

#[test]
fn registering_host_memory_takes_time_by_its_bytes() {
    let name = "registering_host_memory_takes_time_by_its_bytes";
    // 1 MiB stands for 64 MiB of the card's host: 100 ms.
    on_machine(name, "host_registration_ms_per_gib = 1600\nhost_allocation_ms_per_gib = 3200", "", || {
        context();
        let mut memory = vec![1_u8; MEBIBYTE];
        let begun = Instant::now();
        ok!(cuMemHostRegister_v2(memory.as_mut_ptr().cast(), MEBIBYTE, 0));
        assert!(begun.elapsed() >= Duration::from_millis(99), "{:?}", begun.elapsed());
        ok!(cuMemHostUnregister(memory.as_mut_ptr().cast()));
        let (begun, mut pinned) = (Instant::now(), std::ptr::null_mut());
        ok!(cuMemHostAlloc(&mut pinned, MEBIBYTE, 0));
        assert!(begun.elapsed() >= Duration::from_millis(199), "{:?}", begun.elapsed());
    });
}

/// Counts to its argument: at least 4 instructions each time.
const COUNT: &CStr = c".version 7.0
.target sm_60
.address_size 64
.visible .entry count(.param .u64 times)
{
    .reg .pred %p<2>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [times];
    mov.u64 %rd2, 0;
AGAIN:
    add.u64 %rd2, %rd2, 1;
    setp.lt.u64 %p1, %rd2, %rd1;
    @%p1 bra AGAIN;
    ret;
}
";

#[test]
fn kernels_of_two_processes_share_the_device_by_time_slices() {
    let test = "kernels_of_two_processes_share_the_device_by_time_slices";
    if is_child() {
        context();
        let kernel = function(COUNT, c"count");
        println!("ready=1");
        assert!(wait_for_word());
        let begun = Instant::now();
        assert_eq!(launch(kernel, 1, 1, NULL, &[&10_000]), Ok(()));
        ok!(cuCtxSynchronize());
        println!("seconds={}", begun.elapsed().as_secs_f64());
        return;
    }
    // 30,000 instructions of a warp at 3.2 million of threads per second and scale 64: 0.3 s.
    let configuration = configuration("", "instructions_per_s = 204800000");
    let seconds = |count: usize| -> Vec<f64> {
        let machine = Machine::new(test, &configuration);
        let mut children: Vec<_> = (0..count)
            .map(|_| {
                let mut child = start(&machine, test, "");
                let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
                line(&mut output, "ready=");
                (child, output)
            })
            .collect();
        children.iter_mut().for_each(|(child, _)| go_on(child));
        let times =
            children.iter_mut().map(|(_, output)| line(output, "seconds=").parse().expect("a number"));
        let times = times.collect();
        children.iter_mut().for_each(|(child, _)| assert!(child.wait().expect("gone").success()));
        times
    };
    // A busy test machine only makes it slower, so it may be measured several times.
    let mut seen = Vec::new();
    for _ in 0..5 {
        let (alone, shared) = (seconds(1)[0], seconds(2));
        assert!(alone >= 0.295, "the model says 0.3 s, it took {alone}");
        assert!(shared.iter().all(|time| *time >= 0.5), "{shared:?} is less than the engine has for two");
        if alone < 0.36 && shared.iter().all(|time| (0.54..0.72).contains(time)) {
            return;
        }
        seen.push((alone, shared));
    }
    panic!("expected 0.3 s alone and 0.6 s for two, saw {seen:?}");
}

/// A program that lives as long as its input.
const WAITER: [&CStr; 3] = [c"/bin/sh", c"-c", c"while read line; do :; done"];

#[test]
fn memory_of_a_killed_process_stays_until_its_forked_child_ends_or_executes() {
    let test = "memory_of_a_killed_process_stays_until_its_forked_child_ends_or_executes";
    if is_child() && role() == "looks" {
        context();
        while wait_for_word() {
            println!("used={}", used_bytes());
        }
        return;
    }
    if is_child() {
        context();
        allocate(20 * MEBIBYTE);
        let executes = role() == "executes";
        // SAFETY: the child uses only system calls.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; the buffer holds a byte, and the arguments end with a null pointer.
            unsafe {
                let mut byte = 0_u8;
                libc::read(0, (&raw mut byte).cast(), 1);
                if executes {
                    let words = WAITER.map(CStr::as_ptr);
                    let arguments = [words[0], words[1], words[2], std::ptr::null()];
                    libc::execv(words[0], arguments.as_ptr());
                }
                libc::_exit(0);
            }
        }
        println!("forked=1");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let machine = Machine::new(test, FAST);
    let mut observer = start(&machine, test, "looks");
    let mut answers = BufReader::new(observer.stdout.take().expect("a pipe"));
    let mut used = || -> usize {
        go_on(&mut observer);
        line(&mut answers, "used=").parse().expect("a number")
    };
    let alone = used();
    for role in ["ends", "executes"] {
        let mut parent = start(&machine, test, role);
        let mut output = BufReader::new(parent.stdout.take().expect("a pipe"));
        line(&mut output, "forked=");
        let both = used();
        assert_eq!(both, alone + 21 * MEBIBYTE, "20 MiB and a context of 1 MiB");
        parent.kill().expect("killed");
        // Not `wait`: that would close the pipe, and with it the child's input.
        while parent.try_wait().expect("a status").is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(used(), both, "{role}: the child has the device open still");
        go_on(&mut parent);
        let begun = Instant::now();
        while used() != alone {
            assert!(begun.elapsed() < Duration::from_secs(20), "{role}: the memory is never free again");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    observer.kill().expect("killed");
    observer.wait().expect("gone");
}
