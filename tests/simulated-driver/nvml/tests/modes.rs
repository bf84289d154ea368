//! Compute modes: NVML sets what the driver then goes by.

#[macro_use]
mod common;

use common::*;

const INVALID: u32 = INVALID_ARGUMENT;
const NO_PERMISSION: u32 = 4;
const DEVICE_UNAVAILABLE: u32 = 46;

#[test]
fn root_sets_the_compute_mode_and_the_driver_goes_by_it() {
    isolated("root_sets_the_compute_mode_and_the_driver_goes_by_it", &[], || {
        ok!(nvmlInit_v2());
        let (first, second) = (device(0), device(1));
        assert_eq!(number("nvmlDeviceGetComputeMode", first), 0);
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            assert_eq!(call!(nvmlDeviceSetComputeMode(first, 3_u32)), NO_PERMISSION);
            return;
        }
        assert_eq!(
            call!(nvmlDeviceSetComputeMode(first, 1_u32)),
            NOT_SUPPORTED,
            "exclusive threads are history"
        );
        assert_eq!(call!(nvmlDeviceSetComputeMode(first, 4_u32)), INVALID);
        assert_eq!(call!(nvmlDeviceSetComputeMode(std::ptr::null_mut::<u8>(), 0_u32)), INVALID);

        ok!(cuInit(0_u32));
        let (mut context, mut other, mut mode): (Handle, Handle, i32) =
            (std::ptr::null_mut(), std::ptr::null_mut(), -1);
        ok!(nvmlDeviceSetComputeMode(first, 2_u32));
        assert_eq!(call!(cuCtxCreate_v2(&raw mut context, 0_u32, 0_i32)), DEVICE_UNAVAILABLE);
        ok!(cuCtxCreate_v2(&raw mut other, 0_u32, 1_i32));
        ok!(nvmlDeviceSetComputeMode(first, 3_u32));
        ok!(cuDeviceGetAttribute(&raw mut mode, 20_u32, 0_i32));
        assert_eq!(mode, 3);
        assert_eq!(number("nvmlDeviceGetComputeMode", first), 3);
        assert_eq!(number("nvmlDeviceGetComputeMode", second), 0);
        ok!(cuCtxCreate_v2(&raw mut context, 0_u32, 0_i32));
        assert_eq!(call!(cuCtxCreate_v2(&raw mut other, 0_u32, 0_i32)), DEVICE_UNAVAILABLE);
        ok!(nvmlDeviceSetComputeMode(first, 0_u32));
        ok!(cuCtxCreate_v2(&raw mut other, 0_u32, 0_i32));

        // SAFETY: the process gives up its rights and goes on; it is this test's own.
        assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        assert_eq!(call!(nvmlDeviceSetComputeMode(second, 3_u32)), NO_PERMISSION);
        assert_eq!(number("nvmlDeviceGetComputeMode", second), 0);
    });
}
