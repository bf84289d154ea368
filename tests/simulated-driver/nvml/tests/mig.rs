//! MIG devices as NVML shows them.

#[macro_use]
mod common;

use common::*;

const DEVICE: &str =
    "[[devices]]\nmemory_bytes = 4294967296\ncontext_bytes = 67108864\ncontext_cost_us = 0\n";

fn parts() -> String {
    let part = "[[devices.mig]]\nslices = 2\nmemory_bytes = 1073741824\nmultiprocessor_count = 28\n";
    format!("scale = 64\n{DEVICE}{part}{part}{DEVICE}")
}

/// The handle of a part of device 0.
fn part(index: u32) -> Handle {
    let mut part: Handle = std::ptr::null_mut();
    ok!(nvmlDeviceGetMigDeviceHandleByIndex(device(0), index, &raw mut part));
    part
}

fn uuid(device: Handle) -> String {
    text(|buffer, length| call!(nvmlDeviceGetUUID(device, buffer, length)))
}

/// (total, free, used) bytes.
fn memory(device: Handle) -> [u64; 3] {
    let mut memory = [0_u64; 3];
    ok!(nvmlDeviceGetMemoryInfo(device, memory.as_mut_ptr()));
    memory
}

/// Own processes on a device: bytes and instances.
fn processes(device: Handle) -> Vec<(u64, u32, u32)> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Process {
        pid: u32,
        bytes: u64,
        instances: [u32; 2],
    }
    let mut list = [Process { pid: 0, bytes: 0, instances: [7; 2] }; 4];
    let mut count = 4_u32;
    ok!(nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, list.as_mut_ptr()));
    let own = list[..count as usize].iter().filter(|process| process.pid == std::process::id());
    own.map(|process| (process.bytes, process.instances[0], process.instances[1])).collect()
}

#[test]
fn parts_are_found_and_described() {
    on_machine_with("parts_are_found_and_described", &parts(), &[], || {
        ok!(nvmlInit_v2());
        let mut count = 0_u32;
        ok!(nvmlDeviceGetCount_v2(&raw mut count));
        assert_eq!(count, 2, "whole devices");
        let (whole, other) = (device(0), device(1));
        let mode = |device| {
            let (mut current, mut pending) = (7_u32, 7_u32);
            ok!(nvmlDeviceGetMigMode(device, &raw mut current, &raw mut pending));
            (current, pending)
        };
        assert_eq!((mode(whole), mode(other)), ((1, 1), (0, 0)));
        assert_eq!(number("nvmlDeviceGetMaxMigDeviceCount", whole), 7);
        assert_eq!(number("nvmlDeviceGetMaxMigDeviceCount", other), 0);
        let mut handle: Handle = std::ptr::null_mut();
        assert_eq!(call!(nvmlDeviceGetMigDeviceHandleByIndex(whole, 2_u32, &raw mut handle)), NOT_FOUND);
        assert_eq!(call!(nvmlDeviceGetMigDeviceHandleByIndex(other, 0_u32, &raw mut handle)), NOT_FOUND);
        assert_eq!(
            call!(nvmlDeviceGetMigDeviceHandleByIndex(part(0), 0_u32, &raw mut handle)),
            INVALID_ARGUMENT
        );
        for (index, part) in [part(0), part(1)].into_iter().enumerate() {
            let id = index as u32;
            assert_eq!(number("nvmlDeviceIsMigDeviceHandle", part), 1);
            assert_eq!(number("nvmlDeviceGetGpuInstanceId", part), 1 + id);
            assert_eq!(number("nvmlDeviceGetComputeInstanceId", part), 0);
            assert_eq!(number("nvmlDeviceGetIndex", part), id);
            ok!(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part, &raw mut handle));
            assert_eq!(handle, whole);
            let uuid = uuid(part);
            assert!(uuid.starts_with("MIG-"), "{uuid}");
            let name = std::ffi::CString::new(uuid).expect("no zero");
            ok!(nvmlDeviceGetHandleByUUID(name.as_ptr(), &raw mut handle));
            assert_eq!(handle, part);
            let name = text(|buffer, length| call!(nvmlDeviceGetName(part, buffer, length)));
            assert_eq!(name, "Simulated GPU 80GB MIG 2g.1gb");
            let mut attributes = [0_u32; 10];
            ok!(nvmlDeviceGetAttributes_v2(part, attributes.as_mut_ptr()));
            assert_eq!((attributes[0], &attributes[6..]), (28, &[2, 2, 16, 0][..]), "16 MiB");
            assert_eq!(call!(nvmlDeviceGetTemperature(part, 0_u32, &raw mut count)), NOT_SUPPORTED);
        }
        assert_eq!(number("nvmlDeviceIsMigDeviceHandle", whole), 0);
        let mut attributes = [0_u32; 10];
        assert_eq!(call!(nvmlDeviceGetAttributes_v2(whole, attributes.as_mut_ptr())), NOT_SUPPORTED);
        assert_eq!(call!(nvmlDeviceGetGpuInstanceId(whole, &raw mut count)), NOT_SUPPORTED);
        assert_eq!(
            call!(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(whole, &raw mut handle)),
            INVALID_ARGUMENT
        );
        let mut rates = [0_u32; 2];
        assert_eq!(call!(nvmlDeviceGetUtilizationRates(whole, rates.as_mut_ptr())), NOT_SUPPORTED);
        ok!(nvmlDeviceGetUtilizationRates(other, rates.as_mut_ptr()));
    });
}

#[test]
fn what_a_process_holds_is_on_its_part_and_in_the_sum() {
    on_machine_with("what_a_process_holds_is_on_its_part_and_in_the_sum", &parts(), &[], || {
        ok!(nvmlInit_v2());
        let (first, second) = (part(0), part(1));
        // SAFETY: this process has one thread that reads the environment, this one.
        unsafe { std::env::set_var("CUDA_VISIBLE_DEVICES", uuid(second)) };
        let mut context: Handle = std::ptr::null_mut();
        ok!(cuInit(0_u32));
        ok!(cuCtxCreate_v2(&raw mut context, 0_u32, 0_i32));
        let mebibyte = 1_u64 << 20;
        assert_eq!(memory(first), [16 * mebibyte, 16 * mebibyte, 0]);
        assert_eq!(memory(second), [16 * mebibyte, 15 * mebibyte, mebibyte]);
        assert_eq!(memory(device(0)), [64 * mebibyte, 63 * mebibyte, mebibyte]);
        assert_eq!(processes(first), []);
        assert_eq!(processes(second), [(mebibyte, 2, 0)]);
        assert_eq!(processes(device(0)), [(mebibyte, 2, 0)]);
        assert_eq!(processes(device(1)), []);
    });
}
