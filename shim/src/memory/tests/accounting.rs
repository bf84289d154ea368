//! What the daemon, and the program, are told about bytes.

use super::fake_daemon::DEVICE;
use super::fake_driver::GRANULE_BYTES;
use super::world::{HANDLE_BYTES, World};

#[test]
fn small_requests_share_one_admission_and_large_ones_are_rounded() {
    let mut world = World::new(16 << 20);
    let small: Vec<u64> = (0..8).map(|_| world.allocate(512).expect("room")).collect();
    assert_eq!(world.daemon.books().virtual_bytes, GRANULE_BYTES);
    assert!(small.iter().all(|address| address % 512 == 0));
    world.allocate(1).expect("room");
    assert_eq!(world.daemon.books().virtual_bytes, 2 * GRANULE_BYTES);
    world.allocate(GRANULE_BYTES + 1).expect("room");
    assert_eq!(world.daemon.books().virtual_bytes, 4 * GRANULE_BYTES);
    world.finish();
}

#[test]
fn credits_without_a_turn_go_back_at_once_and_the_rest_at_its_end() {
    let mut world = World::new(16 << 20);
    world.allocate(2 * HANDLE_BYTES).expect("room");
    world.daemon.books().held_bytes = 100;
    world.memory.credits_arrived(DEVICE, 100);
    assert_eq!(world.daemon.books().held_bytes, 0);
    world.memory.turn_began();
    world.memory.restore(DEVICE);
    world.give(HANDLE_BYTES + 1);
    world.memory.restore(DEVICE);
    assert_eq!(world.daemon.books().held_bytes, HANDLE_BYTES + 1);
    world.end();
    assert_eq!(world.daemon.books().held_bytes, HANDLE_BYTES);
    world.finish();
}

#[test]
fn credits_for_what_was_freed_meanwhile_go_back() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(2 * HANDLE_BYTES).expect("room");
    world.memory.turn_began();
    world.memory.restore(DEVICE);
    world.free(address);
    world.give(u64::MAX);
    assert_eq!(world.memory.restore(DEVICE).missing_bytes, 0);
    assert_eq!(world.daemon.books().held_bytes, 0);
    world.finish();
}

#[test]
fn claims_name_every_byte_and_every_segment() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(4 * HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.write(address);
    world.end();
    world.evict(HANDLE_BYTES);
    let segments = world.daemon.books().segments.clone();
    world.memory.with_claims(0, |claims| {
        let claim = claims.devices[0];
        assert_eq!((claim.device, claim.virtual_bytes), (DEVICE, 4 * HANDLE_BYTES));
        assert_eq!(
            (claim.resident_bytes, claim.host_bytes, claim.pinned_bytes),
            (3 * HANDLE_BYTES, HANDLE_BYTES, 0)
        );
        assert_eq!(
            claims.segments.iter().map(|(id, bytes, _)| (*id, *bytes)).collect::<Vec<_>>(),
            Vec::from_iter(segments)
        );
    });
    world.begin(u64::MAX);
    world.verify();
    world.end();
    world.finish();
}

#[test]
fn a_small_tenant_leases_what_it_needs_and_not_a_whole_frame() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(100).expect("room");
    world.begin(u64::MAX);
    world.write(address);
    world.end();
    world.evict(GRANULE_BYTES);
    assert_eq!(world.daemon.books().segments.values().sum::<u64>(), GRANULE_BYTES);
    world.finish();
}

#[test]
fn memory_info_is_the_daemons_and_is_carried_on_without_it() {
    let mut world = World::new(1 << 20);
    world.driver.set_used_by_others(1 << 19);
    world.allocate(HANDLE_BYTES).expect("room");
    assert_eq!(
        world.memory.info_of_current(),
        Some((1 << 20, (1 << 19) - HANDLE_BYTES)),
        "the driver's, corrected"
    );
    world.daemon.books().answer = Some((100 * HANDLE_BYTES, 200 * HANDLE_BYTES));
    assert_eq!(world.memory.info(0), Some((100 * HANDLE_BYTES, 100 * HANDLE_BYTES)), "never more than all");
    world.daemon.books().answer = Some((100 * HANDLE_BYTES, 2 * HANDLE_BYTES));
    assert_eq!(world.memory.info_of_current(), Some((100 * HANDLE_BYTES, 2 * HANDLE_BYTES)));
    world.daemon.books().answer = None;
    assert_eq!(world.memory.info_of_current(), Some((100 * HANDLE_BYTES, 2 * HANDLE_BYTES)));
    let address = world.allocate(HANDLE_BYTES).expect("room");
    assert_eq!(world.memory.info(0), Some((100 * HANDLE_BYTES, HANDLE_BYTES)));
    world.allocate(5 * HANDLE_BYTES).expect("room");
    assert_eq!(world.memory.info(0), Some((100 * HANDLE_BYTES, 0)), "never below nothing");
    world.free(address);
    assert_eq!(world.memory.info(1), None, "a device without a context is the driver's");
    world.finish();
}
