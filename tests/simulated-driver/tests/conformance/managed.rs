//! Managed memory: one address for host and device, what of it is on the device, advice, and its limits.
//!
//! Expected values are those that the driver's documentation states; a page on the device is taken to be a
//! unit of its physical memory.

use std::ffi::c_void;

use crate::common::{allocate, context, free_bytes, function, isolated, launch, unit};
use turnus_bindings::types::*;

const MEBIBYTE: usize = 1 << 20;
const NULL: CUstream = std::ptr::null_mut();
const CPU: i32 = -1;
const NOWHERE: i32 = -2;

fn managed(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAllocManaged(&mut address, bytes, 1));
    address
}

/// The memory as the host sees it, while no device uses it.
fn words(address: CUdeviceptr, count: usize) -> &'static mut [f32] {
    // SAFETY: managed memory of at least `count` words, which the test does not use after its free.
    unsafe { std::slice::from_raw_parts_mut(address as *mut f32, count) }
}

fn attribute(attribute: CUpointer_attribute, address: u64) -> Result<u64, turnus_bindings::CUerror> {
    let mut value = 0_u64;
    call!(cuPointerGetAttribute((&raw mut value).cast(), attribute, address)).map(|()| value)
}

fn range_attribute(attribute: CUmem_range_attribute, address: u64, bytes: usize) -> i32 {
    let mut value = 77_i32;
    ok!(cuMemRangeGetAttribute((&raw mut value).cast(), 4, attribute, address, bytes));
    value
}

#[test]
fn host_and_device_use_one_address() {
    isolated("host_and_device_use_one_address", &[], || {
        let current = context();
        let kernel = function(crate::common::VECTOR_ADD, c"vector_add");
        let count = 3 * unit() / 4 + 5;
        let [a, b, c] = [0; 3].map(|_| managed(4 * count));
        for (index, (a, b)) in words(a, count).iter_mut().zip(words(b, count)).enumerate() {
            (*a, *b) = (index as f32, 2.0);
        }
        let blocks = count.div_ceil(128) as u32;
        assert_eq!(launch(kernel, blocks, 128, NULL, &[&a, &b, &c, &(count as u64)]), Ok(()));
        ok!(cuCtxSynchronize());
        assert!(words(c, count).iter().enumerate().all(|(index, value)| *value == index as f32 + 2.0));
        // Copies take it for either side.
        let device = allocate(4 * count);
        ok!(cuMemcpyHtoD_v2(device, c as *const c_void, 4 * count));
        ok!(cuMemcpyDtoH_v2(a as *mut c_void, device, 4 * count));
        assert_eq!(words(a, count), words(c, count));
        ok!(cuMemsetD32_v2(a, 0, count));
        ok!(cuMemcpyDtoD_v2(b, device, 4 * count));
        ok!(cuMemcpy(c, a, 4));
        ok!(cuCtxSynchronize());
        assert_eq!((words(a, count)[7], words(b, count)[7], words(c, count)[0]), (0.0, 9.0, 0.0));

        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, a + 9), Ok(1));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, device), Ok(0));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, a + 9), Ok(a + 9));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, a + 9), Ok(a + 9));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, a), Ok(current as u64));
        assert_eq!(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, a), Ok(4 * count as u64));
        let mut kinds = [CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR];
        let (mut is_managed, mut start) = (0_u8, 0_u64);
        let mut places = [(&raw mut is_managed).cast(), (&raw mut start).cast::<c_void>()];
        ok!(cuPointerGetAttributes(2, kinds.as_mut_ptr(), places.as_mut_ptr(), b + 100));
        assert_eq!((is_managed, start), (1, b));
        for address in [a, b, c] {
            ok!(cuMemFree_v2(address));
        }
        assert!(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, a).is_err());
        assert_eq!(launch(kernel, 1, 1, NULL, &[&a, &b, &c, &1]), Ok(()));
        fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
    });
}

#[test]
fn pages_are_on_the_device_where_they_are_used_and_make_room_for_others() {
    isolated("pages_are_on_the_device_where_they_are_used_and_make_room_for_others", &[], || {
        context();
        let kernel = function(crate::common::STORE_ONE, c"store_one");
        let before = free_bytes();
        let place = managed(10 * unit());
        assert_eq!(free_bytes(), before, "nothing is there before it is used");
        assert_eq!(launch(kernel, 1, 1, NULL, &[&(place + unit() as u64)]), Ok(()));
        ok!(cuCtxSynchronize());
        assert_eq!(free_bytes(), before - unit());
        ok!(cuMemPrefetchAsync(place, 10 * unit(), 0, NULL));
        ok!(cuCtxSynchronize());
        assert_eq!(free_bytes(), before - 10 * unit());
        ok!(cuMemPrefetchAsync(place, 9 * unit(), CPU, NULL));
        ok!(cuCtxSynchronize());
        assert_eq!(free_bytes(), before - unit());
        // Where the host is preferred a device reads from there.
        ok!(cuMemAdvise(place, unit(), CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CPU));
        assert_eq!(launch(kernel, 1, 1, NULL, &[&place]), Ok(()));
        ok!(cuCtxSynchronize());
        assert_eq!((free_bytes(), words(place, 1)[0].to_bits()), (before - unit(), 1));

        // More than the device holds, of which at most 63 MiB are left free.
        if free_bytes() > 63 * MEBIBYTE {
            allocate((free_bytes() - 63 * MEBIBYTE).next_multiple_of(unit()));
        }
        let before = free_bytes() + unit();
        let large = managed(80 * MEBIBYTE);
        ok!(cuMemsetD32_v2(large, 5, 20 * MEBIBYTE));
        ok!(cuCtxSynchronize());
        assert!(free_bytes() < unit(), "the device is full of it");
        assert!(words(large, 20 * MEBIBYTE).iter().all(|word| word.to_bits() == 5));
        let plain = allocate(40 * MEBIBYTE);
        ok!(cuMemsetD8_v2(plain, 1, 40 * MEBIBYTE));
        let mut address = 0;
        fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, 40 * MEBIBYTE));
        ok!(cuMemFree_v2(plain));
        ok!(cuMemFree_v2(large));
        ok!(cuMemFree_v2(place));
        assert_eq!(free_bytes(), before);
    });
}

#[test]
fn advice_is_kept_by_range() {
    isolated("advice_is_kept_by_range", &[], || {
        context();
        let (bytes, page) = (4 * unit(), 4096);
        let place = managed(bytes);
        assert_eq!(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, place, bytes), 0);
        assert_eq!(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, place, bytes), NOWHERE);
        assert_eq!(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, place, bytes), NOWHERE);
        // Rounded to whole pages of the host.
        ok!(cuMemAdvise(place + 100, page, CU_MEM_ADVISE_SET_READ_MOSTLY, 99));
        assert_eq!(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, place, 2 * page), 1);
        assert_eq!(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, place, 2 * page + 1), 0);
        ok!(cuMemAdvise(place, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
        ok!(cuMemAdvise(place, page, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CPU));
        assert_eq!(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, place, page), CPU);
        assert_eq!(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, place, page), 2);
        assert_eq!(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, place, bytes), NOWHERE);
        assert_eq!(
            range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, place + page as u64, page),
            0
        );
        ok!(cuMemPrefetchAsync(place, bytes, 0, NULL));
        assert_eq!(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, place, bytes), 0);
        ok!(cuMemAdvise(place, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
        ok!(cuMemAdvise(place, page, CU_MEM_ADVISE_SET_ACCESSED_BY, CPU));
        let mut by = [77_i32; 3];
        let mut read_mostly = 77_i32;
        let mut kinds = [CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY];
        let mut places = [by.as_mut_ptr().cast::<c_void>(), (&raw mut read_mostly).cast()];
        let mut sizes = [12, 4];
        ok!(cuMemRangeGetAttributes(
            places.as_mut_ptr(),
            sizes.as_mut_ptr(),
            kinds.as_mut_ptr(),
            2,
            place,
            bytes
        ));
        assert_eq!((by, read_mostly), ([0, NOWHERE, NOWHERE], 0));
    });
}

#[test]
fn wrong_arguments_for_managed_memory_are_refused() {
    isolated("wrong_arguments_for_managed_memory_are_refused", &[], || {
        context();
        let mut address = 0;
        fails!(INVALID_VALUE, cuMemAllocManaged(std::ptr::null_mut(), 100, 1));
        fails!(INVALID_VALUE, cuMemAllocManaged(&mut address, 0, 1));
        fails!(INVALID_VALUE, cuMemAllocManaged(&mut address, 100, 4));
        fails!(OUT_OF_MEMORY, cuMemAllocManaged(&mut address, usize::MAX, 1));
        let (place, plain) = (managed(100), allocate(100));
        for (address, bytes) in [(plain, 100), (0, 100), (place, 101), (place, 0), (place, usize::MAX)] {
            fails!(INVALID_VALUE, cuMemPrefetchAsync(address, bytes, 0, NULL));
            fails!(INVALID_VALUE, cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
        }
        fails!(INVALID_DEVICE, cuMemPrefetchAsync(place, 100, 5, NULL));
        fails!(INVALID_DEVICE, cuMemAdvise(place, 100, CU_MEM_ADVISE_SET_ACCESSED_BY, 5));
        fails!(INVALID_VALUE, cuMemAdvise(place, 100, CUmem_advise_enum(50), 0));
        let mut value = 0_i32;
        let data = (&raw mut value).cast();
        let prefetched = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
        fails!(INVALID_VALUE, cuMemRangeGetAttribute(data, 3, prefetched, place, 100));
        fails!(INVALID_VALUE, cuMemRangeGetAttribute(data, 4, prefetched, plain, 100));
        fails!(INVALID_VALUE, cuMemRangeGetAttribute(std::ptr::null_mut(), 4, prefetched, place, 100));
        fails!(INVALID_VALUE, cuMemFreeAsync(place, NULL));
        fails!(INVALID_VALUE, cuMemcpyHtoD_v2(plain, (place + 50) as *const c_void, 100));
        let mut stream = std::ptr::null_mut();
        ok!(cuStreamCreate(&mut stream, 1));
        ok!(cuStreamAttachMemAsync(stream, place, 0, 4));
        ok!(cuStreamAttachMemAsync(NULL, place, 100, 1));
        fails!(INVALID_VALUE, cuStreamAttachMemAsync(NULL, place, 0, 4));
        fails!(INVALID_VALUE, cuStreamAttachMemAsync(stream, place, 50, 4));
        fails!(INVALID_VALUE, cuStreamAttachMemAsync(stream, plain, 0, 4));
        fails!(INVALID_VALUE, cuStreamAttachMemAsync(stream, place, 0, 3));
    });
}
