//! Every call to the driver fails once, in every place where it is made.

use super::fake_daemon::DEVICE;
use super::fake_driver::GRANULE_BYTES;
use super::world::{HANDLE_BYTES, World};
use std::collections::BTreeSet;
use std::time::Duration;
use turnus_bindings::CUerror;

const SIZES: [u64; 6] = [100, 5 * GRANULE_BYTES, 2 * HANDLE_BYTES + 1, 200, HANDLE_BYTES, 3 * HANDLE_BYTES];

fn allocate(world: &mut World, bytes: u64, error: CUerror) {
    if let Err(answer) = world.allocate(bytes) {
        assert_eq!(answer, error, "the program hears what the driver said");
        world.allocate(bytes).expect("a later allocation works");
    }
}

/// Allocates, works, is evicted, comes back, frees, reuses: each step of each path at least once.
fn scenario(world: &mut World, error: CUerror) {
    for bytes in SIZES {
        allocate(world, bytes, error);
    }
    world.begin(HANDLE_BYTES);
    for address in world.allocations.keys().copied().collect::<Vec<_>>() {
        world.write(address);
    }
    world.end();
    world.evict_all();
    world.begin(HANDLE_BYTES);
    world.verify();
    let addresses: Vec<u64> = world.allocations.keys().copied().collect();
    world.free(addresses[2]);
    world.free(addresses[0]);
    // Other sizes than the freed ones: their frames are moved, dissolved and reused.
    for bytes in [2 * HANDLE_BYTES, HANDLE_BYTES + GRANULE_BYTES, 300] {
        allocate(world, bytes, error);
    }
    world.restore_all(u64::MAX);
    for address in world.allocations.keys().copied().collect::<Vec<_>>() {
        world.write(address);
    }
    world.free(addresses[4]);
    world.end();
    world.tidy_later(Duration::from_secs(1));
    world.evict_all();
    world.begin(u64::MAX);
    world.verify();
    world.end();
}

#[test]
fn every_call_that_fails_once_leaves_every_byte_in_place() {
    let mut kinds = BTreeSet::new();
    for error in [CUerror::OUT_OF_MEMORY, CUerror::UNKNOWN] {
        for number in 1.. {
            let mut world = World::new(16 << 20);
            world.driver.fail_at(number, error);
            scenario(&mut world, error);
            let failed = world.driver.failed();
            kinds.extend(failed);
            let calls = world.driver.calls();
            world.finish();
            if failed.is_none() {
                assert!(number > calls, "call {number} of {calls} should have failed");
                break;
            }
        }
    }
    let expected = [
        "copy_in",
        "copy_out",
        "create",
        "map",
        "memory_info",
        "open_lane",
        "release",
        "reserve",
        "set_access",
        "synchronise",
        "unmap",
        "unreserve",
        "wait",
    ];
    let missing: Vec<_> = expected.iter().filter(|kind| !kinds.contains(*kind)).collect();
    // `memory_info` is called only after another failure: see the test below.
    assert_eq!(missing, [&"memory_info"]);
}

#[test]
fn a_driver_without_memory_is_reported_with_its_numbers_and_asked_again() {
    let mut world = World::new(8 * HANDLE_BYTES);
    let address = world.allocate(4 * HANDLE_BYTES).expect("addresses are not memory");
    world.driver.set_used_by_others(6 * HANDLE_BYTES);
    world.memory.turn_began();
    world.memory.restore(DEVICE);
    world.give(u64::MAX);
    let progress = world.memory.restore(DEVICE);
    assert_eq!((progress.missing_bytes, progress.error), (2 * HANDLE_BYTES, None), "what is done is kept");
    let books = world.daemon.books();
    assert_eq!((books.shorts, books.held_bytes, books.wanted_bytes), (1, 2 * HANDLE_BYTES, 2 * HANDLE_BYTES));
    let told = books.log.iter().rev().find_map(|message| match message {
        turnus_protocol::ClientMessage::CreditsShort { total_bytes, free_bytes, .. } => {
            Some((*total_bytes, *free_bytes))
        }
        _ => None,
    });
    assert_eq!(told, Some((8 * HANDLE_BYTES, 0)));
    drop(books);
    world.memory.restore(DEVICE);
    assert_eq!(world.daemon.books().wanted_bytes, 2 * HANDLE_BYTES, "not wanted twice");
    world.driver.set_used_by_others(0);
    world.restore_all(u64::MAX);
    world.write(address);
    world.verify();
    world.end();
    world.finish();
}

#[test]
fn frames_stay_when_there_is_no_host_memory_and_move_when_there_is_again() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(4 * HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.write(address);
    world.end();
    world.daemon.books().leases_left = Some(1);
    let evicted = world.evict(4 * HANDLE_BYTES);
    assert_eq!(
        (evicted.returned_bytes, evicted.pinned_bytes, evicted.error),
        (HANDLE_BYTES, 3 * HANDLE_BYTES, None)
    );
    world.daemon.books().leases_left = None;
    assert_eq!(world.evict(3 * HANDLE_BYTES).returned_bytes, 3 * HANDLE_BYTES);
    world.begin(u64::MAX);
    world.verify();
    world.end();
    world.finish();
}

#[test]
fn a_refused_allocation_is_out_of_memory_and_leaves_nothing_behind() {
    let mut world = World::new(16 << 20);
    world.daemon.books().limit_bytes = Some(4 * HANDLE_BYTES);
    assert_eq!(world.allocate(5 * HANDLE_BYTES), Err(CUerror::OUT_OF_MEMORY));
    assert_eq!(world.allocate(u64::MAX), Err(CUerror::OUT_OF_MEMORY));
    assert_eq!(world.driver.holdings(), (0, 0, 0));
    world.allocate(4 * HANDLE_BYTES).expect("fits");
    world.finish();
}

#[test]
fn an_answer_of_a_daemon_that_is_gone_is_asked_for_again() {
    let mut world = World::new(16 << 20);
    world.daemon.books().replacements = 3;
    world.allocate(HANDLE_BYTES).expect("admitted in the end");
    assert_eq!(world.daemon.books().virtual_bytes, HANDLE_BYTES);
    world.finish();
}
