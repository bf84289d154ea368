//! Virtual memory management: the whole life of a mapping, every error on the way, and bytes that stay.
//!
//! The rules are those of the CUDA driver API, "Virtual Memory Management". Sharing with other processes is in
//! `processes.rs`, unmapping under running work in `faults.rs`.

use crate::common::{access, context, free_bytes, isolated, more_than_there_is, properties, unit};
use turnus_bindings::types::*;

fn reserve(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAddressReserve(&mut address, bytes, 0, 0, 0));
    address
}

fn create(bytes: usize) -> CUmemGenericAllocationHandle {
    let mut handle = 0;
    ok!(cuMemCreate(&mut handle, bytes, &properties(0), 0));
    handle
}

#[test]
fn memory_moves_to_new_frames_under_the_same_address() {
    isolated("memory_moves_to_new_frames_under_the_same_address", &[], || {
        context();
        let mut granularity = 0;
        ok!(cuMemGetAllocationGranularity(
            &mut granularity,
            &properties(0),
            CU_MEM_ALLOC_GRANULARITY_MINIMUM
        ));
        assert_eq!(granularity, unit());
        let address = reserve(4 * unit());
        let bytes: Vec<u8> = (0..4 * unit()).map(|index| (index / 7) as u8).collect();
        let mut back = vec![0_u8; 4 * unit()];
        for round in 0..3 {
            let handle = create(4 * unit());
            ok!(cuMemMap(address, 4 * unit(), 0, handle, 0));
            ok!(cuMemRelease(handle));
            ok!(cuMemSetAccess(address, 4 * unit(), &access(3), 1));
            if round == 0 {
                ok!(cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()));
            } else {
                ok!(cuMemcpyHtoD_v2(address, back.as_ptr().cast(), back.len()));
            }
            back.fill(0);
            ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address, back.len()));
            assert_eq!(back, bytes, "round {round}");
            ok!(cuMemUnmap(address, 4 * unit()));
        }
        ok!(cuMemAddressFree(address, 4 * unit()));
    });
}

#[test]
fn memory_is_free_again_when_the_last_reference_is_gone() {
    isolated("memory_is_free_again_when_the_last_reference_is_gone", &[], || {
        context();
        let before = free_bytes();
        let address = reserve(2 * unit());
        assert_eq!(free_bytes(), before, "an address costs no memory");
        let handle = create(2 * unit());
        assert_eq!(free_bytes(), before - 2 * unit());
        ok!(cuMemMap(address, 2 * unit(), 0, handle, 0));
        ok!(cuMemRelease(handle));
        assert_eq!(free_bytes(), before - 2 * unit(), "the mapping holds it");
        let mut again = 0;
        ok!(cuMemRetainAllocationHandle(&mut again, address as *mut _));
        assert_eq!(again, handle, "the handle that was mapped");
        ok!(cuMemUnmap(address, 2 * unit()));
        assert_eq!(free_bytes(), before - 2 * unit(), "the handle holds it");
        ok!(cuMemRelease(handle));
        assert_eq!(free_bytes(), before);
        fails!(INVALID_VALUE, cuMemRelease(handle));
    });
}

#[test]
fn reservations_are_checked() {
    isolated("reservations_are_checked", &[], || {
        context();
        let mut address = 0;
        fails!(INVALID_VALUE, cuMemAddressReserve(&mut address, 0, 0, 0, 0));
        fails!(INVALID_VALUE, cuMemAddressReserve(&mut address, 100, 0, 0, 0));
        fails!(INVALID_VALUE, cuMemAddressReserve(&mut address, unit(), 3, 0, 0));
        fails!(INVALID_VALUE, cuMemAddressReserve(&mut address, unit(), 0, 0, 1));
        fails!(INVALID_VALUE, cuMemAddressReserve(std::ptr::null_mut(), unit(), 0, 0, 0));
        fails!(OUT_OF_MEMORY, cuMemAddressReserve(&mut address, 1 << 50, 0, 0, 0));
        ok!(cuMemAddressReserve(&mut address, unit(), 1 << 20, 0, 0));
        assert_eq!(address % (1 << 20), 0, "aligned as asked");
        fails!(INVALID_VALUE, cuMemAddressFree(address, 2 * unit()));
        fails!(INVALID_VALUE, cuMemAddressFree(address + unit() as u64, unit()));
        // A hint is taken where it is free.
        let hint = address + (1 << 24);
        let mut hinted = 0;
        ok!(cuMemAddressReserve(&mut hinted, unit(), 0, hint, 0));
        assert_eq!(hinted, hint);
        let mut other = 0;
        ok!(cuMemAddressReserve(&mut other, unit(), 0, hint, 0));
        assert_ne!(other, hint, "a hint only");
        ok!(cuMemAddressFree(address, unit()));
        fails!(INVALID_VALUE, cuMemAddressFree(address, unit()));
    });
}

#[test]
fn handles_are_checked() {
    isolated("handles_are_checked", &[], || {
        context();
        let mut handle = 0;
        fails!(INVALID_VALUE, cuMemCreate(&mut handle, 0, &properties(0), 0));
        fails!(INVALID_VALUE, cuMemCreate(&mut handle, unit() + 4096, &properties(0), 0));
        fails!(INVALID_VALUE, cuMemCreate(&mut handle, unit(), &properties(0), 1));
        fails!(INVALID_VALUE, cuMemCreate(&mut handle, unit(), std::ptr::null(), 0));
        fails!(NOT_SUPPORTED, cuMemCreate(&mut handle, unit(), &properties(8), 0));
        fails!(OUT_OF_MEMORY, cuMemCreate(&mut handle, more_than_there_is(), &properties(0), 0));
        let mut elsewhere = properties(0);
        elsewhere.location.anonymous_1.id = 7;
        fails!(INVALID_DEVICE, cuMemCreate(&mut handle, unit(), &elsewhere, 0));
        let mut unset = properties(0);
        unset.type_ = CU_MEM_ALLOCATION_TYPE_INVALID;
        fails!(INVALID_VALUE, cuMemCreate(&mut handle, unit(), &unset, 0));
        let handle = create(unit());
        let mut shared = 0_i32;
        fails!(
            INVALID_VALUE,
            cuMemExportToShareableHandle(
                (&raw mut shared).cast(),
                handle,
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                0
            )
        );
        let mut known = properties(1);
        ok!(cuMemGetAllocationPropertiesFromHandle(&mut known, handle));
        assert_eq!(known.type_, CU_MEM_ALLOCATION_TYPE_PINNED);
        assert_eq!(known.requestedHandleTypes.0, 0);
        fails!(INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(&mut known, handle + 1));
    });
}

#[test]
fn mappings_are_checked() {
    isolated("mappings_are_checked", &[], || {
        context();
        let address = reserve(4 * unit());
        let handle = create(2 * unit());
        let at = |units: usize| address + (units * unit()) as u64;
        fails!(INVALID_VALUE, cuMemMap(address, 4 * unit(), 0, handle, 0));
        fails!(INVALID_VALUE, cuMemMap(address, 2 * unit(), unit(), handle, 0));
        fails!(INVALID_VALUE, cuMemMap(address, 2 * unit(), 0, handle, 1));
        fails!(INVALID_VALUE, cuMemMap(address + 4096, unit(), 0, handle, 0));
        fails!(INVALID_VALUE, cuMemMap(address, 4096, 0, handle, 0));
        fails!(INVALID_VALUE, cuMemMap(at(3), 2 * unit(), 0, handle, 0));
        fails!(INVALID_VALUE, cuMemMap(at(100), 2 * unit(), 0, handle, 0));
        fails!(INVALID_VALUE, cuMemMap(address, 2 * unit(), 0, handle + 1, 0));
        ok!(cuMemMap(address, 2 * unit(), 0, handle, 0));
        fails!(INVALID_VALUE, cuMemMap(at(1), 2 * unit(), 0, handle, 0));
        ok!(cuMemMap(at(2), 2 * unit(), 0, handle, 0));
        fails!(INVALID_VALUE, cuMemAddressFree(address, 4 * unit()));
        // Access to whole mappings only, and to nothing unmapped.
        fails!(INVALID_VALUE, cuMemSetAccess(address, unit(), &access(3), 1));
        fails!(INVALID_VALUE, cuMemSetAccess(address, 8 * unit(), &access(3), 1));
        fails!(INVALID_VALUE, cuMemSetAccess(address, 2 * unit(), &access(2), 1));
        fails!(INVALID_VALUE, cuMemSetAccess(address, 2 * unit(), std::ptr::null(), 1));
        let mut flags = 77;
        ok!(cuMemGetAccess(&mut flags, &access(0).location, address));
        assert_eq!(flags, 0, "a mapping begins without access");
        ok!(cuMemSetAccess(address, 4 * unit(), &access(3), 1));
        ok!(cuMemGetAccess(&mut flags, &access(0).location, at(3)));
        assert_eq!(flags, 3);
        // The same frames lie at both addresses.
        ok!(cuMemsetD32_v2(address, 42, 4));
        let mut value = 0_u32;
        ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), at(2), 4));
        assert_eq!(value, 42);
        // A sub-range cannot be unmapped; several whole mappings can.
        fails!(INVALID_VALUE, cuMemUnmap(address, unit()));
        fails!(INVALID_VALUE, cuMemUnmap(at(1), unit()));
        ok!(cuMemUnmap(address, 4 * unit()));
        fails!(INVALID_VALUE, cuMemUnmap(address, 4 * unit()));
        fails!(INVALID_VALUE, cuMemGetAccess(&mut flags, &access(0).location, address));
        fails!(INVALID_VALUE, cuMemRetainAllocationHandle(&mut flags, address as *mut _));
        ok!(cuMemAddressFree(address, 4 * unit()));
    });
}

#[test]
fn a_read_only_mapping_cannot_be_written() {
    isolated("a_read_only_mapping_cannot_be_written", &[], || {
        context();
        let address = reserve(unit());
        let handle = create(unit());
        ok!(cuMemMap(address, unit(), 0, handle, 0));
        ok!(cuMemSetAccess(address, unit(), &access(1), 1));
        let mut value = 1_u32;
        ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), address, 4));
        assert_eq!(value, 0, "fresh memory reads as zero");
        fails!(ILLEGAL_ADDRESS, cuMemcpyHtoD_v2(address, (&raw const value).cast(), 4));
        fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
    });
}

#[test]
fn the_host_cannot_follow_a_device_pointer() {
    isolated("the_host_cannot_follow_a_device_pointer", &[], || {
        context();
        let address = crate::common::allocate(4096);
        // A system call on the address fails where a dereference would end the process.
        let mut pipe = [0; 2];
        // SAFETY: a pipe of our own; write only reads the given memory, and refuses what is not there.
        let written = unsafe {
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            libc::write(pipe[1], address as *const libc::c_void, 16)
        };
        assert_eq!(written, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
    });
}
