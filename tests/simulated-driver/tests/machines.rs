//! What the configuration of a machine makes of its devices: their number and names, what a process sees of them,
//! peer access, and the time of a migration.
//!
//! These tests are about the simulator; what every driver does is in `conformance/`.

#[macro_use]
mod common;

use std::time::{Duration, Instant};

use common::{
    FAST, Machine, access_of, allocate, allocate_in, context, contexts, is_child, isolated, on_machine, text,
    two_devices, word_at,
};
use turnus_bindings::types::*;

const MEBIBYTE: usize = 1 << 20;

#[test]
fn a_device_tells_what_is_simulated() {
    isolated("a_device_tells_what_is_simulated", &[], || {
        ok!(cuInit(0));
        let mut count = 0;
        ok!(cuDeviceGetCount(&mut count));
        assert_eq!(count, 1);
        let attribute = |attribute| {
            let mut value = -1;
            ok!(cuDeviceGetAttribute(&mut value, attribute, 0));
            value
        };
        assert_eq!(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
        assert_eq!(attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED), 1);
        assert_eq!(attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), 1);
        assert_eq!(attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
        assert_eq!(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 8);
        // Every attribute of the header has an answer, and nothing beyond.
        for number in 1..=161 {
            attribute(CUdevice_attribute_enum(number));
        }
        let mut value = 0;
        fails!(INVALID_DEVICE, cuDeviceGetAttribute(&mut value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1));
        let mut name = [0; 100];
        ok!(cuDeviceGetName(name.as_mut_ptr(), 100, 0));
        assert!(text(name.as_ptr()).starts_with("Simulated"), "{}", text(name.as_ptr()));
        let mut total = 0;
        ok!(cuDeviceTotalMem_v2(&mut total, 0));
        assert_eq!(total, 64 << 20);
    });
}

/// Two devices in the default machine, whose UUIDs are known by number.
fn visible(name: &str, wanted: &str, body: impl FnOnce()) {
    if is_child() {
        return body();
    }
    let machine = Machine::new(name, "scale = 64\n[[devices]]\n[[devices]]\nname = \"Second\"\n");
    let status = machine.command(name).env("CUDA_VISIBLE_DEVICES", wanted).status().expect("the child runs");
    assert!(status.success());
}

#[test]
fn visible_devices_are_renumbered() {
    visible("visible_devices_are_renumbered", "1,0", || {
        ok!(cuInit(0));
        let mut name = [0; 100];
        ok!(cuDeviceGetName(name.as_mut_ptr(), 100, 0));
        assert_eq!(text(name.as_ptr()), "Second");
        let mut uuid = CUuuid { bytes: [0; 16] };
        ok!(cuDeviceGetUuid_v2(&mut uuid, 1));
        assert_ne!(uuid.bytes, [0; 16]);
    });
}

#[test]
fn the_first_invalid_entry_ends_the_list() {
    visible("the_first_invalid_entry_ends_the_list", "1,7,0", || {
        ok!(cuInit(0));
        let mut count = 0;
        ok!(cuDeviceGetCount(&mut count));
        assert_eq!(count, 1);
    });
}

#[test]
fn a_machine_without_peer_access_says_so_and_copies_all_the_same() {
    let name = "a_machine_without_peer_access_says_so_and_copies_all_the_same";
    on_machine(name, &two_devices("peer_access = false\n"), || {
        let [owner, current] = contexts();
        let (mut can, mut value) = (9, 9);
        ok!(cuDeviceCanAccessPeer(&mut can, 1, 0));
        ok!(cuDeviceGetP2PAttribute(&mut value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 0));
        assert_eq!((can, value), (0, 0));
        fails!(PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(owner, 0));
        let mut pool = std::ptr::null_mut();
        ok!(cuDeviceGetDefaultMemPool(&mut pool, 0));
        fails!(INVALID_DEVICE, cuMemPoolSetAccess(pool, &access_of(1, 3), 1));
        let (there, here) = (allocate_in(owner, 100), allocate(100));
        ok!(cuMemsetD32_v2(there, 7, 25));
        ok!(cuMemcpyPeer(here, current, there, owner, 100));
        ok!(cuCtxSynchronize());
        assert_eq!(word_at(here + 96), 7);
    });
}

#[test]
fn a_migration_takes_the_time_of_its_bytes() {
    if is_child() {
        context();
        let mut place = 0;
        ok!(cuMemAllocManaged(&mut place, 10 * MEBIBYTE, 1));
        let timed = |target: CUdevice| {
            let begun = Instant::now();
            ok!(cuMemPrefetchAsync(place, 10 * MEBIBYTE, target, std::ptr::null_mut()));
            ok!(cuCtxSynchronize());
            begun.elapsed()
        };
        // 10 MiB at 100 MB/s are 105 ms.
        let there = timed(0);
        assert!(there >= Duration::from_millis(100), "{there:?}");
        let again = timed(0);
        assert!(again < there / 2, "nothing had to move in {again:?}");
        return;
    }
    let slow = FAST.replace("host_to_device_bytes_per_s = 0", "host_to_device_bytes_per_s = 6400000000");
    let machine = Machine::new("migration", &slow);
    let status = machine.command("a_migration_takes_the_time_of_its_bytes").status();
    assert!(status.expect("the child runs").success());
}
