//! Memory and events of one process in another: `cuIpc...`.
//!
//! Two processes of this test program talk over pipes through their parent. Expected values are those that the
//! driver's documentation states, but for those that say otherwise.

use std::io::{BufReader, Write as _};
use std::process::{Child, ChildStdout};

use crate::common::talk::{heard, line};
use crate::common::{
    FAST, Machine, allocate, context, free_bytes, function, is_child, isolated, launch, role, start, unit,
    word_at,
};
use turnus_bindings::types::*;

const NULL: CUstream = std::ptr::null_mut();

/// A child and what it says.
struct Peer {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(machine: &Machine, test: &str, role: &str) -> Peer {
        let mut child = start(machine, test, role);
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Peer { child, output }
    }

    fn hears(&mut self, words: &str) {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{words}").expect("the child reads");
    }

    fn says(&mut self) -> String {
        line(&mut self.output, "says=")
    }

    fn ends(mut self) {
        assert!(self.child.wait().expect("gone").success());
    }
}

fn to_hex(bytes: &[i8; 64]) -> String {
    bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect()
}

fn from_hex(text: &str) -> [i8; 64] {
    let mut bytes = [0; 64];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).expect("hex") as i8;
    }
    bytes
}

fn memory_handle(address: CUdeviceptr) -> CUipcMemHandle {
    let mut handle = CUipcMemHandle_st { reserved: [0; 64] };
    ok!(cuIpcGetMemHandle(&mut handle, address));
    handle
}

#[test]
fn memory_is_opened_by_another_process_and_stays_while_it_is_open() {
    let test = "memory_is_opened_by_another_process_and_stays_while_it_is_open";
    if is_child() {
        context();
        return if role() == "exporter" { export_memory() } else { import_memory() };
    }
    let machine = Machine::new("ipc-memory", FAST);
    let mut exporter = Peer::start(&machine, test, "exporter");
    let said = exporter.says();
    let mut importer = Peer::start(&machine, test, "importer");
    importer.hears(&said);
    assert_eq!(importer.says(), "opened");
    exporter.hears("look and free");
    assert_eq!(exporter.says(), "freed");
    exporter.ends();
    importer.hears("go on");
    assert_eq!(importer.says(), "closed");
    importer.ends();
}

fn export_memory() {
    let (large, small) = (allocate(5 * unit()), allocate(100));
    ok!(cuMemsetD32_v2(large, 11, 5 * unit() / 4));
    ok!(cuMemsetD32_v2(small, 22, 25));
    ok!(cuCtxSynchronize());
    let (first, second) = (memory_handle(large), memory_handle(small));
    // Only in other processes.
    let mut address = 0;
    fails!(INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&mut address, first, 1));
    println!("says={} {}", to_hex(&first.reserved), to_hex(&second.reserved));
    heard();
    assert_eq!(word_at(large + 4 * unit() as u64), 1, "what the importer's kernel wrote");
    let before = free_bytes();
    ok!(cuMemFree_v2(large));
    assert_eq!(free_bytes(), before, "the importer holds it");
    println!("says=freed");
}

fn import_memory() {
    let said = heard();
    let handles: Vec<CUipcMemHandle> =
        said.split(' ').map(|text| CUipcMemHandle_st { reserved: from_hex(text) }).collect();
    let kernel = function(crate::common::STORE_ONE, c"store_one");
    let (mut large, mut small, mut again) = (0, 0, 0);
    fails!(INVALID_VALUE, cuIpcOpenMemHandle_v2(&mut large, handles[0], 0));
    fails!(INVALID_VALUE, cuIpcOpenMemHandle_v2(std::ptr::null_mut(), handles[0], 1));
    ok!(cuIpcOpenMemHandle_v2(&mut large, handles[0], 1));
    ok!(cuIpcOpenMemHandle_v2(&mut small, handles[1], 1));
    ok!(cuIpcOpenMemHandle(&mut again, handles[0], 1));
    assert_eq!(again, large, "opened twice");
    assert_eq!((word_at(large), word_at(small + 96)), (11, 22));
    let (mut base, mut bytes) = (0, 0);
    ok!(cuMemGetAddressRange_v2(&mut base, &mut bytes, small + 50));
    assert_eq!((base, bytes), (small, 100));
    assert_eq!(launch(kernel, 1, 1, NULL, &[&(large + 4 * unit() as u64)]), Ok(()));
    ok!(cuCtxSynchronize());
    let mut handle = CUipcMemHandle_st { reserved: [0; 64] };
    fails!(INVALID_VALUE, cuIpcGetMemHandle(&mut handle, large));
    fails!(INVALID_VALUE, cuMemFree_v2(large));
    fails!(INVALID_VALUE, cuMemFreeAsync(large, NULL));
    println!("says=opened");
    heard();
    // The exporter is gone.
    assert_eq!((word_at(large), word_at(small)), (11, 22));
    let before = free_bytes();
    ok!(cuIpcCloseMemHandle(large));
    assert_eq!(free_bytes(), before, "still opened once");
    ok!(cuIpcCloseMemHandle(large));
    assert_eq!(free_bytes(), before + 5 * unit());
    fails!(INVALID_VALUE, cuIpcCloseMemHandle(large));
    fails!(INVALID_VALUE, cuIpcOpenMemHandle_v2(&mut again, handles[0], 1));
    ok!(cuIpcCloseMemHandle(small));
    println!("says=closed");
}

#[test]
fn only_memory_of_cu_mem_alloc_has_a_handle() {
    isolated("only_memory_of_cu_mem_alloc_has_a_handle", &[], || {
        context();
        let mut handle = CUipcMemHandle_st { reserved: [0; 64] };
        let place = allocate(100);
        let (mut managed, mut pooled, mut pinned) = (0, 0, std::ptr::null_mut());
        ok!(cuMemAllocManaged(&mut managed, 100, 1));
        ok!(cuMemAllocAsync(&mut pooled, 100, NULL));
        ok!(cuMemHostAlloc(&mut pinned, 100, 0));
        for address in [0, place + 1, managed, pooled, pinned as u64] {
            fails!(INVALID_VALUE, cuIpcGetMemHandle(&mut handle, address));
        }
        fails!(INVALID_VALUE, cuIpcGetMemHandle(std::ptr::null_mut(), place));
        fails!(INVALID_VALUE, cuIpcOpenMemHandle_v2(&mut managed, handle, 1));
        fails!(INVALID_VALUE, cuIpcCloseMemHandle(place));
        let mut capable = 9_u8;
        for (address, expected) in [(place, 1), (pooled, 0)] {
            let kind = CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
            ok!(cuPointerGetAttribute((&raw mut capable).cast(), kind, address));
            assert_eq!(capable, expected);
        }
        let mut event = std::ptr::null_mut();
        ok!(cuEventCreate(&mut event, 2));
        let mut event_handle = CUipcEventHandle_st { reserved: [0; 64] };
        fails!(INVALID_HANDLE, cuIpcGetEventHandle(&mut event_handle, event));
        fails!(INVALID_HANDLE, cuIpcGetEventHandle(&mut event_handle, std::ptr::null_mut()));
        fails!(INVALID_VALUE, cuIpcOpenEventHandle(&mut event, event_handle));
        fails!(INVALID_VALUE, cuEventCreate(&mut event, 4));
        ok!(cuEventCreate(&mut event, 6));
        ok!(cuIpcGetEventHandle(&mut event_handle, event));
        fails!(INVALID_CONTEXT, cuIpcOpenEventHandle(&mut event, event_handle));
    });
}

#[test]
fn events_order_the_work_of_processes() {
    let test = "events_order_the_work_of_processes";
    if is_child() {
        context();
        return if role() == "recorder" { record() } else { wait() };
    }
    let machine = Machine::new("ipc-events", FAST);
    let mut recorder = Peer::start(&machine, test, "recorder");
    let said = recorder.says();
    let mut waiter = Peer::start(&machine, test, "waiter");
    waiter.hears(&said);
    assert_eq!(waiter.says(), "waits");
    recorder.hears("let go");
    assert_eq!(waiter.says(), "came");
    recorder.hears("record and die");
    assert_eq!(recorder.says(), "recorded");
    waiter.hears("wait");
    assert_eq!(waiter.says(), "not ready");
    recorder.child.kill().expect("killed");
    recorder.child.wait().expect("gone");
    assert_eq!(waiter.says(), "over");
    waiter.ends();
}

fn record() {
    let mut event = std::ptr::null_mut();
    ok!(cuEventCreate(&mut event, 6));
    ok!(cuEventQuery(event));
    let mut handle = CUipcEventHandle_st { reserved: [0; 64] };
    ok!(cuIpcGetEventHandle(&mut handle, event));
    let mut flag = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut flag, 4096, 0));
    let kernel = function(crate::common::WAIT_FOR_FLAG, c"wait_for_flag");
    assert_eq!(launch(kernel, 1, 1, NULL, &[&(flag as u64)]), Ok(()));
    ok!(cuEventRecord(event, NULL));
    fails!(NOT_READY, cuEventQuery(event));
    println!("says={}", to_hex(&handle.reserved));
    heard();
    // SAFETY: pinned memory of ours, which the kernel only reads.
    unsafe { flag.cast::<u32>().write_volatile(1) };
    ok!(cuEventSynchronize(event));
    heard();
    // SAFETY: as above.
    unsafe { flag.cast::<u32>().write_volatile(0) };
    assert_eq!(launch(kernel, 1, 1, NULL, &[&(flag as u64)]), Ok(()));
    ok!(cuEventRecord(event, NULL));
    println!("says=recorded");
    heard();
}

fn wait() {
    let handle = CUipcEventHandle_st { reserved: from_hex(&heard()) };
    let (mut event, mut other, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut(), NULL);
    ok!(cuIpcOpenEventHandle(&mut event, handle));
    ok!(cuStreamCreate(&mut stream, 1));
    let place = allocate(4);
    ok!(cuMemsetD32_v2(place, 0, 1));
    ok!(cuStreamWaitEvent(stream, event, 0));
    ok!(cuMemsetD32Async(place, 1, 1, stream));
    fails!(NOT_READY, cuEventQuery(event));
    fails!(NOT_READY, cuStreamQuery(stream));
    assert_eq!(word_at(place), 0);
    println!("says=waits");
    ok!(cuStreamSynchronize(stream));
    ok!(cuEventQuery(event));
    assert_eq!(word_at(place), 1);
    // No times, and no part in graphs.
    ok!(cuEventCreate(&mut other, 0));
    let mut milliseconds = 0.0;
    fails!(INVALID_HANDLE, cuEventElapsedTime(&mut milliseconds, other, event));
    let (mut graph, mut node) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphCreate(&mut graph, 0));
    fails!(NOT_SUPPORTED, cuGraphAddEventWaitNode(&mut node, graph, std::ptr::null(), 0, event));
    println!("says=came");
    heard();
    fails!(NOT_READY, cuEventQuery(event));
    println!("says=not ready");
    // Its recorder dies meanwhile.
    ok!(cuEventSynchronize(event));
    println!("says=over");
}
