//! What a real driver does not forgive: errors that stick to a context, and the ways out of them.
//!
//! A fault shows at the next call that waits or looks, not at the launch; from then on every call of the
//! context answers it. Wrong arguments, on the other hand, harm nothing.

use std::time::{Duration, Instant};

use crate::common::{
    STORE_ONE, WAIT_FOR_FLAG, access, allocate, context, free_bytes, function, isolated, launch, properties,
    unit,
};
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

const NO_STREAM: CUstream = std::ptr::null_mut();

/// Every call that uses the context answers `code`.
fn expect_lost(code: CUerror) {
    let (mut address, mut stream, mut event) = (0, std::ptr::null_mut(), std::ptr::null_mut());
    let mut value = 0_u32;
    let lost = Err(code);
    assert_eq!(call!(cuCtxSynchronize()), lost);
    assert_eq!(call!(cuMemAlloc_v2(&mut address, 4096)), lost);
    assert_eq!(call!(cuStreamCreate(&mut stream, 0)), lost);
    assert_eq!(call!(cuEventCreate(&mut event, 0)), lost);
    assert_eq!(call!(cuStreamQuery(NO_STREAM)), lost);
    assert_eq!(call!(cuMemcpyDtoH_v2((&raw mut value).cast(), 4096, 4)), lost);
    assert_eq!(call!(cuMemsetD8_v2(4096, 0, 1)), lost);
    let mut module = std::ptr::null_mut();
    assert_eq!(call!(cuModuleLoadData(&mut module, STORE_ONE.as_ptr().cast())), lost);
}

#[test]
fn a_kernel_that_leaves_its_memory_loses_the_context() {
    isolated("a_kernel_that_leaves_its_memory_loses_the_context", &[], || {
        let lost = context();
        let fresh = free_bytes();
        let kernel = function(STORE_ONE, c"store_one");
        let place = allocate(4);
        let far = place + (1 << 40);
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&far]), Ok(()), "the launch itself is fine");
        fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
        expect_lost(CUerror::ILLEGAL_ADDRESS);
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&place]), Err(CUerror::ILLEGAL_ADDRESS));
        // A new context is sound, and the memory of the lost one is given back with it.
        ok!(cuCtxDestroy_v2(lost));
        context();
        assert_eq!(free_bytes(), fresh, "the new context alone");
        let kernel = function(STORE_ONE, c"store_one");
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&allocate(4)]), Ok(()));
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn a_misaligned_access_loses_the_context() {
    isolated("a_misaligned_access_loses_the_context", &[], || {
        context();
        let kernel = function(STORE_ONE, c"store_one");
        let odd = allocate(64) + 2;
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&odd]), Ok(()));
        fails!(MISALIGNED_ADDRESS, cuCtxSynchronize());
        expect_lost(CUerror::MISALIGNED_ADDRESS);
    });
}

#[test]
fn a_copy_to_an_address_without_memory_loses_the_context() {
    isolated("a_copy_to_an_address_without_memory_loses_the_context", &[], || {
        context();
        let mut address = 0;
        ok!(cuMemAddressReserve(&mut address, unit(), 0, 0, 0));
        let value = 1_u32;
        // An address that the driver never gave out is only a wrong argument.
        fails!(INVALID_VALUE, cuMemcpyHtoD_v2(0x1234, (&raw const value).cast(), 4));
        fails!(INVALID_VALUE, cuMemcpyHtoD_v2(address + (1 << 40), (&raw const value).cast(), 4));
        ok!(cuCtxSynchronize());
        fails!(ILLEGAL_ADDRESS, cuMemcpyHtoD_v2(address, (&raw const value).cast(), 4));
        expect_lost(CUerror::ILLEGAL_ADDRESS);
    });
}

#[test]
fn a_copy_beyond_an_allocation_is_refused() {
    isolated("a_copy_beyond_an_allocation_is_refused", &[], || {
        context();
        let place = allocate(100);
        let bytes = [0_u8; 200];
        ok!(cuMemcpyHtoD_v2(place, bytes.as_ptr().cast(), 100));
        fails!(INVALID_VALUE, cuMemcpyHtoD_v2(place, bytes.as_ptr().cast(), 101));
        fails!(INVALID_VALUE, cuMemcpyHtoD_v2(place + 50, bytes.as_ptr().cast(), 51));
        fails!(INVALID_VALUE, cuMemcpyHtoD_v2(place, std::ptr::null(), 4));
        fails!(INVALID_VALUE, cuMemsetD32_v2(place + 2, 0, 1));
        fails!(INVALID_VALUE, cuMemsetD8_v2(place, 0, 101));
        // An end that wraps around the address space.
        fails!(INVALID_VALUE, cuMemsetD8_v2(place + 50, 0, usize::MAX - 20));
        fails!(INVALID_VALUE, cuMemcpyDtoD_v2(place, place + 50, usize::MAX - 20));
        ok!(cuCtxSynchronize());
    });
}

/// A range mapped with access, and the handle's reference given up.
fn mapped(bytes: usize) -> CUdeviceptr {
    let (mut address, mut handle) = (0, 0);
    ok!(cuMemAddressReserve(&mut address, bytes, 0, 0, 0));
    ok!(cuMemCreate(&mut handle, bytes, &properties(0), 0));
    ok!(cuMemMap(address, bytes, 0, handle, 0));
    ok!(cuMemRelease(handle));
    ok!(cuMemSetAccess(address, bytes, &access(3), 1));
    address
}

fn wait_until_running(stream: CUstream) {
    let begun = Instant::now();
    while call!(cuStreamQuery(stream)) == Ok(()) && begun.elapsed() < Duration::from_secs(5) {}
    // The kernel has to be on the engine, not only in the queue.
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn unmapping_under_a_running_kernel_loses_the_context() {
    isolated("unmapping_under_a_running_kernel_loses_the_context", &[], || {
        context();
        let kernel = function(WAIT_FOR_FLAG, c"wait_for_flag");
        let flag = mapped(unit());
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&flag]), Ok(()));
        wait_until_running(NO_STREAM);
        ok!(cuMemUnmap(flag, unit()));
        fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
        expect_lost(CUerror::ILLEGAL_ADDRESS);
    });
}

#[test]
fn unmapping_after_the_work_is_done_is_fine() {
    isolated("unmapping_after_the_work_is_done_is_fine", &[], || {
        context();
        let kernel = function(STORE_ONE, c"store_one");
        let place = mapped(unit());
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&place]), Ok(()));
        ok!(cuCtxSynchronize());
        ok!(cuMemUnmap(place, unit()));
        ok!(cuCtxSynchronize());
        // Work that comes later and still uses the range is lost.
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&place]), Ok(()));
        fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
    });
}

#[test]
fn freeing_waits_for_the_work_as_the_driver_does() {
    isolated("freeing_waits_for_the_work_as_the_driver_does", &[], || {
        context();
        let kernel = function(WAIT_FOR_FLAG, c"wait_for_flag");
        let flag = allocate(4096);
        ok!(cuMemsetD8_v2(flag, 0, 4096));
        let mut stream = std::ptr::null_mut();
        ok!(cuStreamCreate(&mut stream, 1));
        ok!(cuCtxSynchronize());
        assert_eq!(launch(kernel, 1, 1, stream, &[&flag]), Ok(()));
        let stream_number = stream as usize;
        let mut current = std::ptr::null_mut();
        ok!(cuCtxGetCurrent(&mut current));
        let context_number = current as usize;
        let setter = std::thread::spawn(move || {
            ok!(cuCtxSetCurrent(context_number as CUcontext));
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(call!(cuStreamQuery(stream_number as CUstream)), Err(CUerror::NOT_READY));
            let mut other = std::ptr::null_mut();
            ok!(cuStreamCreate(&mut other, 1));
            ok!(cuMemsetD32Async(flag, 1, 1, other));
        });
        let begun = Instant::now();
        ok!(cuMemFree_v2(flag));
        assert!(begun.elapsed() > Duration::from_millis(150), "freed under a running kernel");
        setter.join().expect("the flag is set");
        fails!(INVALID_VALUE, cuMemFree_v2(flag));
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn resetting_the_primary_context_gives_a_sound_one_under_the_same_handle() {
    isolated("resetting_the_primary_context_gives_a_sound_one_under_the_same_handle", &[], || {
        ok!(cuInit(0));
        let mut primary = std::ptr::null_mut();
        ok!(cuDevicePrimaryCtxRetain(&mut primary, 0));
        ok!(cuCtxSetCurrent(primary));
        let kernel = function(STORE_ONE, c"store_one");
        assert_eq!(launch(kernel, 1, 1, NO_STREAM, &[&0x7000]), Ok(()));
        fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
        ok!(cuDevicePrimaryCtxReset_v2(0));
        fails!(CONTEXT_IS_DESTROYED, cuCtxSynchronize());
        let mut again = std::ptr::null_mut();
        ok!(cuDevicePrimaryCtxRetain(&mut again, 0));
        assert_eq!(again, primary);
        ok!(cuCtxSynchronize());
        assert_eq!(
            launch(kernel, 1, 1, NO_STREAM, &[&0x7000]),
            Err(CUerror::INVALID_HANDLE),
            "its module is gone"
        );
    });
}

#[test]
fn stale_handles_are_found() {
    isolated("stale_handles_are_found", &[], || {
        let current = context();
        let (mut stream, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuStreamCreate(&mut stream, 0));
        ok!(cuEventCreate(&mut event, 0));
        ok!(cuStreamDestroy_v2(stream));
        ok!(cuEventDestroy_v2(event));
        fails!(INVALID_HANDLE, cuStreamSynchronize(stream));
        fails!(INVALID_HANDLE, cuStreamDestroy_v2(stream));
        fails!(INVALID_HANDLE, cuEventRecord(event, NO_STREAM));
        fails!(INVALID_HANDLE, cuEventQuery(event));
        fails!(INVALID_HANDLE, cuEventQuery(stream.cast()));
        ok!(cuCtxDestroy_v2(current));
        fails!(INVALID_CONTEXT, cuCtxDestroy_v2(current));
        fails!(INVALID_CONTEXT, cuCtxSetCurrent(current));
        fails!(INVALID_CONTEXT, cuCtxSynchronize());
    });
}
