//! Stream-ordered allocation and memory pools: reuse in stream order, what goes back to the device and when,
//! the numbers that pools tell, and pools shared between processes.
//!
//! Expected values are those that the driver's documentation states; sizes follow the device's granularity.

use std::ffi::c_void;
use std::io::{BufReader, Write as _};

use crate::common::talk::{heard, line};
use crate::common::{
    FAST, Machine, allocate, context, free_bytes, function, is_child, isolated, launch, more_than_there_is,
    role, start, unit,
};
use turnus_bindings::types::*;

const NULL: CUstream = std::ptr::null_mut();

/// What a pool grows by.
fn block() -> usize {
    16 * unit()
}

fn default_pool() -> CUmemoryPool {
    let mut pool = std::ptr::null_mut();
    ok!(cuDeviceGetDefaultMemPool(&mut pool, 0));
    pool
}

fn pool_properties(handle_types: u32, maximum: usize) -> CUmemPoolProps {
    // SAFETY: all-zero is a valid value.
    let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CUmemAllocationHandleType_enum(handle_types);
    properties.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.maxSize = maximum;
    properties
}

fn new_pool(handle_types: u32, maximum: usize) -> CUmemoryPool {
    let mut pool = std::ptr::null_mut();
    ok!(cuMemPoolCreate(&mut pool, &pool_properties(handle_types, maximum)));
    pool
}

fn number(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> u64 {
    let mut value = 0_u64;
    ok!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    value
}

fn set(pool: CUmemoryPool, attribute: CUmemPool_attribute, mut value: u64) -> CUresult {
    call!(cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()))
}

fn take(bytes: usize, stream: CUstream) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAllocAsync(&mut address, bytes, stream));
    address
}

fn new_stream() -> CUstream {
    let mut stream = std::ptr::null_mut();
    ok!(cuStreamCreate(&mut stream, 1));
    stream
}

/// A pinned word, and a stream that a kernel holds until the word is not 0.
fn held_stream() -> (CUstream, *mut u32) {
    let mut flag = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut flag, 4096, 0));
    let stream = new_stream();
    let kernel = function(crate::common::WAIT_FOR_FLAG, c"wait_for_flag");
    assert_eq!(launch(kernel, 1, 1, stream, &[&(flag as u64)]), Ok(()));
    (stream, flag.cast())
}

fn let_go(flag: *mut u32) {
    // SAFETY: pinned memory of the test, which kernels only read.
    unsafe { flag.write_volatile(1) };
}

#[test]
fn memory_of_a_pool_works_and_goes_back_at_a_synchronisation() {
    isolated("memory_of_a_pool_works_and_goes_back_at_a_synchronisation", &[], || {
        context();
        let kernel = function(crate::common::STORE_ONE, c"store_one");
        let (mut value, before) = (0, free_bytes());
        ok!(cuDeviceGetAttribute(&mut value, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
        assert_eq!(value, 1);
        let stream = new_stream();
        let place = take(1000, stream);
        assert_eq!(free_bytes(), before - block(), "a pool takes a block");
        assert_eq!(launch(kernel, 1, 1, stream, &[&place]), Ok(()));
        let mut back = 0_u32;
        ok!(cuMemcpyDtoHAsync_v2((&raw mut back).cast(), place, 4, stream));
        ok!(cuMemFreeAsync(place, stream));
        let freed = free_bytes();
        ok!(cuStreamSynchronize(stream));
        assert_eq!(back, 1);
        assert_eq!((freed, free_bytes()), (before - block(), before));
        // Beyond the block's size a pool grows by what is asked for.
        let large = take(block() + 1, NULL);
        assert_eq!(free_bytes(), before - block() - unit());
        ok!(cuMemFreeAsync(large, NULL));
        ok!(cuCtxSynchronize());
        assert_eq!(free_bytes(), before);
        // The memory is gone: a kernel that uses it all the same loses its context.
        assert_eq!(launch(kernel, 1, 1, stream, &[&large]), Ok(()));
        fails!(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
        fails!(ILLEGAL_ADDRESS, cuMemFreeAsync(place, stream));
        fails!(ILLEGAL_ADDRESS, cuMemAllocAsync(&mut 0, 100, stream));
    });
}

#[test]
fn wrong_arguments_for_pools_are_refused() {
    isolated("wrong_arguments_for_pools_are_refused", &[], || {
        context();
        let mut address = 0;
        fails!(INVALID_VALUE, cuMemAllocAsync(std::ptr::null_mut(), 100, NULL));
        fails!(INVALID_VALUE, cuMemAllocAsync(&mut address, 0, NULL));
        fails!(OUT_OF_MEMORY, cuMemAllocAsync(&mut address, more_than_there_is(), NULL));
        fails!(OUT_OF_MEMORY, cuMemAllocAsync(&mut address, usize::MAX, NULL));
        fails!(INVALID_HANDLE, cuMemAllocAsync(&mut address, 100, std::ptr::without_provenance_mut(77)));
        fails!(INVALID_VALUE, cuMemAllocFromPoolAsync(&mut address, 100, std::ptr::null_mut(), NULL));
        let place = take(100, NULL);
        let own = 5_u64;
        for foreign in [0, place + 8, (&raw const own) as u64] {
            fails!(INVALID_VALUE, cuMemFreeAsync(foreign, NULL));
        }
        ok!(cuMemFreeAsync(place, NULL));
        fails!(INVALID_VALUE, cuMemFreeAsync(place, NULL));
        fails!(INVALID_VALUE, cuMemFree_v2(place));
        let pool = default_pool();
        fails!(INVALID_VALUE, cuMemPoolDestroy(pool));
        fails!(INVALID_VALUE, cuMemPoolDestroy(std::ptr::null_mut()));
        fails!(INVALID_VALUE, cuMemPoolTrimTo(std::ptr::without_provenance_mut(16), 0));
        fails!(INVALID_DEVICE, cuDeviceGetMemPool(&mut std::ptr::null_mut(), 9));
        fails!(INVALID_VALUE, cuMemPoolCreate(&mut std::ptr::null_mut(), std::ptr::null()));
        let mut properties = pool_properties(8, 0);
        fails!(NOT_SUPPORTED, cuMemPoolCreate(&mut std::ptr::null_mut(), &properties));
        properties = pool_properties(0, 0);
        properties.allocType = CUmemAllocationType_enum(9);
        fails!(INVALID_VALUE, cuMemPoolCreate(&mut std::ptr::null_mut(), &properties));
        let mut value = 0_u64;
        fails!(
            INVALID_VALUE,
            cuMemPoolGetAttribute(pool, CUmemPool_attribute_enum(99), (&raw mut value).cast())
        );
        fails!(
            INVALID_VALUE,
            cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::ptr::null_mut())
        );
        assert!(set(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 0).is_err(), "read only");
    });
}

#[test]
fn the_release_threshold_keeps_memory_and_trimming_gives_it_back() {
    isolated("the_release_threshold_keeps_memory_and_trimming_gives_it_back", &[], || {
        context();
        let (pool, before) = (default_pool(), free_bytes());
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES), 1);
        assert_eq!(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX), Ok(()));
        let places = [take(block(), NULL), take(1000, NULL)];
        let used = (block() + 1024) as u64;
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), used);
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * block() as u64);
        places.iter().for_each(|place| ok!(cuMemFreeAsync(*place, NULL)));
        ok!(cuStreamSynchronize(NULL));
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), used);
        assert_eq!(free_bytes(), before - 2 * block(), "kept below the threshold");
        ok!(cuMemPoolTrimTo(pool, 1));
        assert_eq!(
            number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
            block() as u64,
            "at least one byte stays"
        );
        ok!(cuMemPoolTrimTo(pool, 0));
        assert_eq!(free_bytes(), before);
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 2 * block() as u64);
        assert_eq!(set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0), Ok(()));
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0);
        assert!(set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 5).is_err(), "marks are only reset");
        // cuMemFree of such memory: free without waiting.
        let place = take(100, NULL);
        ok!(cuMemFree_v2(place));
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    });
}

#[test]
fn freed_memory_is_used_again_where_the_order_of_streams_allows_it() {
    isolated("freed_memory_is_used_again_where_the_order_of_streams_allows_it", &[], || {
        context();
        // Room for one block: what comes must reuse it or wait for it.
        let pool = new_pool(0, block());
        let (held, flag) = held_stream();
        let other = new_stream();
        let mut first = 0;
        ok!(cuMemAllocFromPoolAsync(&mut first, block(), pool, held));
        ok!(cuMemFreeAsync(first, held));
        let mut again = 0;
        ok!(cuMemAllocFromPoolAsync(&mut again, block(), pool, held));
        assert_eq!(again, first, "the same stream uses it at once");
        ok!(cuMemsetD8Async(again, 1, block(), held));
        ok!(cuMemFreeAsync(again, held));
        // Without permission to wait for the other stream there is no memory.
        assert_eq!(set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0), Ok(()));
        fails!(OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&mut again, 100, pool, other));
        assert_eq!(set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1), Ok(()));
        ok!(cuMemAllocFromPoolAsync(&mut again, 100, pool, other));
        ok!(cuMemsetD8Async(again, 2, 100, other));
        fails!(NOT_READY, cuStreamQuery(other));
        let_go(flag);
        ok!(cuStreamSynchronize(other));
        let mut back = [0_u8; 100];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), again, 100));
        assert_eq!(back, [2; 100], "the older memset came first");
        ok!(cuStreamSynchronize(held));
        // What was freed and is over is for everybody.
        let mut rest = 0;
        ok!(cuMemAllocFromPoolAsync(&mut rest, block() - 512, pool, other));
        fails!(OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&mut 0, 100, pool, other));
        ok!(cuMemFreeAsync(rest, other));
        ok!(cuMemFreeAsync(again, other));
        ok!(cuStreamSynchronize(other));
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    });
}

#[test]
fn threads_share_a_small_pool_without_disturbing_each_other() {
    isolated("threads_share_a_small_pool_without_disturbing_each_other", &[], || {
        let context = context() as usize;
        // Too small for all at once: ranges go from stream to stream, with waits where needed.
        let pool = new_pool(0, block()) as usize;
        let work = |number: u8| {
            ok!(cuCtxSetCurrent(context as CUcontext));
            let stream = new_stream();
            let mut back = vec![0_u8; block() / 3];
            for round in 0..100_usize {
                let bytes = 1 + (round * 7919 + usize::from(number) * 104_729) % back.len();
                let mut address = 0;
                // The others may have everything in use.
                while call!(cuMemAllocFromPoolAsync(&mut address, bytes, pool as CUmemoryPool, stream))
                    .is_err()
                {
                    std::thread::yield_now();
                }
                ok!(cuMemsetD8Async(address, number, bytes, stream));
                ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), address, bytes, stream));
                ok!(cuMemFreeAsync(address, stream));
                if round % 3 == 0 {
                    ok!(cuStreamSynchronize(stream));
                    assert!(back[..bytes].iter().all(|byte| *byte == number), "round {round} of {number}");
                }
            }
            ok!(cuStreamSynchronize(stream));
        };
        std::thread::scope(|scope| (1..=4).for_each(|number| drop(scope.spawn(move || work(number)))));
        assert_eq!(number(pool as CUmemoryPool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
        ok!(cuCtxSynchronize());
        assert_eq!(number(pool as CUmemoryPool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    });
}

#[test]
fn a_device_has_a_current_pool_and_a_destroyed_one_lives_until_its_memory_is_freed() {
    isolated("a_device_has_a_current_pool_and_a_destroyed_one_lives_until_its_memory_is_freed", &[], || {
        context();
        let before = free_bytes();
        let (pool, mut found) = (new_pool(0, 3 * block() - 1), std::ptr::null_mut());
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_MAX_POOL_SIZE), 3 * block() as u64, "rounded to units");
        ok!(cuDeviceGetMemPool(&mut found, 0));
        assert_eq!(found, default_pool());
        ok!(cuDeviceSetMemPool(0, pool));
        // SAFETY: all-zero is a valid value.
        let mut location: CUmemLocation = unsafe { std::mem::zeroed() };
        location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
        ok!(cuMemGetMemPool(&mut found, &mut location, CU_MEM_ALLOCATION_TYPE_PINNED));
        assert_eq!(found, pool);
        ok!(cuMemGetDefaultMemPool(&mut found, &mut location, CU_MEM_ALLOCATION_TYPE_PINNED));
        assert_eq!(found, default_pool());
        let mut flags = CUmemAccess_flags_enum(0);
        ok!(cuMemPoolGetAccess(&mut flags, pool, &mut location));
        assert_eq!(flags.0, 3);
        fails!(INVALID_VALUE, cuMemPoolSetAccess(pool, &crate::common::access(1), 1));
        ok!(cuMemPoolSetAccess(pool, &crate::common::access(3), 1));

        let place = take(100, NULL);
        assert_eq!(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 512);
        let mut value = 0_u64;
        let target = (&raw mut value).cast::<c_void>();
        ok!(cuPointerGetAttribute(target, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, place + 5));
        assert_eq!(value, pool as u64);
        ok!(cuPointerGetAttribute(target, CU_POINTER_ATTRIBUTE_RANGE_SIZE, place));
        assert_eq!(value, 100);
        ok!(cuPointerGetAttribute(target, CU_POINTER_ATTRIBUTE_CONTEXT, place));
        assert_eq!(value, 0, "no context's");
        ok!(cuMemPoolDestroy(pool));
        fails!(INVALID_VALUE, cuMemPoolTrimTo(pool, 0));
        ok!(cuDeviceGetMemPool(&mut found, 0));
        assert_eq!(found, default_pool());
        ok!(cuMemsetD8_v2(place, 1, 100));
        assert_eq!(free_bytes(), before - block());
        ok!(cuMemFreeAsync(place, NULL));
        ok!(cuCtxSynchronize());
        assert_eq!(free_bytes(), before);
        // Memory of cuMemAlloc can be freed in stream order too.
        let plain = allocate(10 * unit());
        ok!(cuMemFreeAsync(plain, NULL));
        fails!(INVALID_VALUE, cuMemFree_v2(plain));
        ok!(cuCtxSynchronize());
        assert_eq!(free_bytes(), before);
    });
}

#[test]
fn pools_and_their_pointers_are_used_by_another_process() {
    let test = "pools_and_their_pointers_are_used_by_another_process";
    if is_child() {
        context();
        return if role() == "exporter" { export() } else { import() };
    }
    let machine = Machine::new("pools", FAST);
    let mut exporter = start(&machine, test, "exporter");
    let mut exporter_out = BufReader::new(exporter.stdout.take().expect("a pipe"));
    let said = line(&mut exporter_out, "says=");
    let mut importer = start(&machine, test, "importer");
    let mut importer_out = BufReader::new(importer.stdout.take().expect("a pipe"));
    writeln!(importer.stdin.as_mut().expect("a pipe"), "{} {said}", exporter.id()).expect("written");
    assert_eq!(line(&mut importer_out, "says="), "imported");
    writeln!(exporter.stdin.as_mut().expect("a pipe"), "look").expect("written");
    assert_eq!(line(&mut exporter_out, "says="), "seen");
    // The importer's memory outlives the exporter's.
    assert!(exporter.wait().expect("gone").success());
    writeln!(importer.stdin.as_mut().expect("a pipe"), "go on").expect("written");
    assert_eq!(line(&mut importer_out, "says="), "freed");
    assert!(importer.wait().expect("gone").success());
}

fn export() {
    let posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let (closed, pool, mut descriptor) = (new_pool(0, 0), new_pool(1, 0), -1);
    fails!(INVALID_VALUE, cuMemPoolExportToShareableHandle((&raw mut descriptor).cast(), closed, posix, 0));
    ok!(cuMemPoolExportToShareableHandle((&raw mut descriptor).cast(), pool, posix, 0));
    let (mut pad, mut place) = (0, 0);
    ok!(cuMemAllocFromPoolAsync(&mut pad, 5000, pool, NULL));
    ok!(cuMemAllocFromPoolAsync(&mut place, 40, pool, NULL));
    ok!(cuMemsetD32_v2(place, 77, 10));
    let mut data = CUmemPoolPtrExportData_st { reserved: [0; 64] };
    let private = take(100, NULL);
    fails!(INVALID_VALUE, cuMemPoolExportPointer(&mut data, private));
    fails!(INVALID_VALUE, cuMemPoolExportPointer(&mut data, place + 1));
    ok!(cuMemPoolExportPointer(&mut data, place));
    ok!(cuCtxSynchronize());
    let hex: String = data.reserved.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("says={descriptor} {hex}");
    heard();
    let mut back = 0_u32;
    ok!(cuMemcpyDtoH_v2((&raw mut back).cast(), place + 36, 4));
    assert_eq!(back, 78, "what the importer wrote");
    println!("says=seen");
}

fn import() {
    let posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let heard_words = heard();
    let words: Vec<&str> = heard_words.split_whitespace().collect();
    // Another way to hand a descriptor over: open it through the exporter's list.
    let file = std::fs::File::open(format!("/proc/{}/fd/{}", words[0], words[1])).expect("the descriptor");
    let handle = std::os::fd::AsRawFd::as_raw_fd(&file) as usize as *mut c_void;
    let before = free_bytes();
    let mut pool = std::ptr::null_mut();
    let output = std::ptr::without_provenance_mut(1);
    fails!(INVALID_VALUE, cuMemPoolImportFromShareableHandle(&mut pool, output, posix, 0));
    ok!(cuMemPoolImportFromShareableHandle(&mut pool, handle, posix, 0));
    let mut data = CUmemPoolPtrExportData_st { reserved: [0; 64] };
    let mut place = 0;
    fails!(INVALID_VALUE, cuMemPoolImportPointer(&mut place, pool, &mut data));
    for (index, byte) in data.reserved.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&words[2][2 * index..2 * index + 2], 16).expect("hex");
    }
    fails!(INVALID_VALUE, cuMemPoolImportPointer(&mut place, default_pool(), &mut data));
    ok!(cuMemPoolImportPointer(&mut place, pool, &mut data));
    let mut back = [0_u32; 10];
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), place, 40));
    assert_eq!(back, [77; 10]);
    ok!(cuMemsetD32_v2(place + 36, 78, 1));
    ok!(cuCtxSynchronize());
    fails!(INVALID_VALUE, cuMemAllocFromPoolAsync(&mut 0, 100, pool, NULL));
    fails!(INVALID_VALUE, cuDeviceSetMemPool(0, pool));
    println!("says=imported");
    heard();
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), place, 40));
    assert_eq!(back[8..], [77, 78]);
    ok!(cuMemFreeAsync(place, NULL));
    ok!(cuCtxSynchronize());
    assert!(free_bytes() >= before, "the last holder gave it back");
    println!("says=freed");
}
