//! Devices and contexts: what is visible, which context is current, and what the primary one says of itself.
//!
//! What several devices of one machine are is tested in `../machines.rs`. Contexts that a fault has ended are in
//! `faults.rs`.

use crate::common::{allocate, context, free_bytes, isolated, text, unit};
use turnus_bindings::types::*;

#[test]
fn the_stack_of_contexts_belongs_to_the_thread() {
    isolated("the_stack_of_contexts_belongs_to_the_thread", &[], || {
        let first = context();
        let second = context();
        let current = || {
            let mut handle = std::ptr::null_mut();
            ok!(cuCtxGetCurrent(&mut handle));
            handle as usize
        };
        assert_eq!(current(), second as usize);
        let mut popped = std::ptr::null_mut();
        ok!(cuCtxPopCurrent_v2(&mut popped));
        assert_eq!((popped, current()), (second, first as usize));
        ok!(cuCtxPushCurrent_v2(second));
        ok!(cuCtxSetCurrent(first));
        ok!(cuCtxPopCurrent_v2(&mut popped));
        assert_eq!(popped, first, "set replaces the top");
        assert_eq!(current(), first as usize);
        let first_number = first as usize;
        std::thread::spawn(move || {
            let mut handle = std::ptr::null_mut();
            ok!(cuCtxGetCurrent(&mut handle));
            assert!(handle.is_null());
            fails!(INVALID_CONTEXT, cuCtxSynchronize());
            fails!(INVALID_CONTEXT, cuCtxPopCurrent_v2(&mut handle));
            ok!(cuCtxSetCurrent(first_number as CUcontext));
            ok!(cuCtxDestroy_v2(first_number as CUcontext));
            fails!(INVALID_CONTEXT, cuCtxSynchronize());
        })
        .join()
        .expect("the thread ends well");
        // Destroyed elsewhere, still on top here.
        fails!(CONTEXT_IS_DESTROYED, cuCtxSynchronize());
        ok!(cuCtxSetCurrent(std::ptr::null_mut()));
        ok!(cuCtxSetCurrent(second));
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn the_primary_context_counts_its_users() {
    isolated("the_primary_context_counts_its_users", &[], || {
        ok!(cuInit(0));
        let (mut flags, mut active) = (0, 0);
        ok!(cuDevicePrimaryCtxSetFlags_v2(0, 4));
        ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!((flags, active), (4, 0));
        fails!(INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
        let (mut one, mut two) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuDevicePrimaryCtxRetain(&mut one, 0));
        ok!(cuDevicePrimaryCtxRetain(&mut two, 0));
        assert_eq!(one, two);
        let mut current = std::ptr::null_mut();
        ok!(cuCtxGetCurrent(&mut current));
        assert!(current.is_null(), "retaining makes nothing current");
        fails!(INVALID_CONTEXT, cuCtxDestroy_v2(one));
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!(active, 1);
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!((flags, active), (4, 0), "flags stay");
        fails!(INVALID_VALUE, cuDevicePrimaryCtxSetFlags_v2(0, 3));
        fails!(INVALID_DEVICE, cuDevicePrimaryCtxRetain(&mut one, 9));
    });
}

#[test]
fn a_context_takes_memory_and_gives_all_of_it_back() {
    isolated("a_context_takes_memory_and_gives_all_of_it_back", &[], || {
        let watcher = context();
        let before = free_bytes();
        let other = context();
        let cost = before - free_bytes();
        assert!(cost > 0, "a context takes memory");
        allocate(32 * unit());
        allocate(100);
        let mut module = std::ptr::null_mut();
        ok!(cuModuleLoadData(&mut module, crate::common::STORE_ONE.as_ptr().cast()));
        assert!(free_bytes() <= before - cost - 33 * unit());
        ok!(cuCtxDestroy_v2(other));
        let mut current = std::ptr::null_mut();
        ok!(cuCtxGetCurrent(&mut current));
        assert_eq!(current, watcher);
        assert_eq!(free_bytes(), before);
    });
}

#[test]
fn creation_takes_all_forms_and_checks_its_flags() {
    isolated("creation_takes_all_forms_and_checks_its_flags", &[], || {
        ok!(cuInit(0));
        let mut handle = std::ptr::null_mut();
        ok!(cuCtxCreate_v3(&mut handle, std::ptr::null_mut(), 0, 4, 0));
        let mut flags = 0;
        ok!(cuCtxGetFlags(&mut flags));
        assert_eq!(flags & 7, 4);
        ok!(cuCtxCreate_v4(&mut handle, std::ptr::null_mut(), 0, 0));
        let mut version = 0;
        ok!(cuCtxGetApiVersion(handle, &mut version));
        assert!(version >= 3020);
        fails!(INVALID_VALUE, cuCtxCreate_v2(&mut handle, 3, 0));
        fails!(INVALID_VALUE, cuCtxCreate_v2(&mut handle, 0x100, 0));
        fails!(INVALID_DEVICE, cuCtxCreate_v2(&mut handle, 0, 1));
        fails!(INVALID_VALUE, cuCtxCreate_v2(std::ptr::null_mut(), 0, 0));
        let (mut least, mut greatest) = (9, 9);
        ok!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
        assert!(greatest < least);
        let mut limit = 0;
        ok!(cuCtxGetLimit(&mut limit, CU_LIMIT_STACK_SIZE));
        ok!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, limit + 1024));
        let mut now = 0;
        ok!(cuCtxGetLimit(&mut now, CU_LIMIT_STACK_SIZE));
        assert_eq!(now, limit + 1024);
        fails!(UNSUPPORTED_LIMIT, cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 1));
    });
}

#[test]
fn a_device_answers_every_attribute_and_only_those() {
    isolated("a_device_answers_every_attribute_and_only_those", &[], || {
        ok!(cuInit(0));
        let attribute = |attribute| {
            let mut value = -1;
            ok!(cuDeviceGetAttribute(&mut value, attribute, 0));
            value
        };
        // All that CUDA 11.2 had; newer headers go on from there.
        for number in 1..=115 {
            attribute(CUdevice_attribute_enum(number));
        }
        let mut value = 0;
        fails!(INVALID_VALUE, cuDeviceGetAttribute(&mut value, CUdevice_attribute_enum(1000), 0));
        fails!(INVALID_DEVICE, cuDeviceGetAttribute(&mut value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
        assert_eq!(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
        assert_eq!(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
        let mut whole = [0; 100];
        ok!(cuDeviceGetName(whole.as_mut_ptr(), 100, 0));
        let mut cut = [0; 100];
        ok!(cuDeviceGetName(cut.as_mut_ptr(), 4, 0));
        assert_eq!(text(cut.as_ptr()), text(whole.as_ptr())[..3], "cut to the room there is");
        let (mut total, mut seen) = (0, 0);
        ok!(cuDeviceTotalMem_v2(&mut total, 0));
        context();
        ok!(cuMemGetInfo_v2(&mut 0, &mut seen));
        assert_eq!(seen, total);
        let mut address = [0; 20];
        ok!(cuDeviceGetPCIBusId(address.as_mut_ptr(), 20, 0));
        let mut device = -1;
        ok!(cuDeviceGetByPCIBusId(&mut device, address.as_ptr()));
        assert_eq!(device, 0);
    });
}

#[test]
fn without_a_visible_device_nothing_starts() {
    isolated("without_a_visible_device_nothing_starts", &[("CUDA_VISIBLE_DEVICES", "-1")], || {
        fails!(NO_DEVICE, cuInit(0));
        let mut count = 0;
        fails!(NOT_INITIALIZED, cuDeviceGetCount(&mut count));
    });
}
