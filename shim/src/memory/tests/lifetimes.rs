//! What may happen to an allocation while its bytes are somewhere else, and to its context.

use super::fake_daemon::DEVICE;
use super::fake_driver::GRANULE_BYTES;
use super::world::{CONTEXT, HANDLE_BYTES, World};
use crate::memory::Context;
use std::time::Duration;
use turnus_bindings::CUerror;
use turnus_protocol::ClientMessage;

fn suspended(bytes: u64) -> (World, u64) {
    let mut world = World::new(16 << 20);
    let address = world.allocate(bytes).expect("room");
    world.begin(u64::MAX);
    world.write(address);
    world.end();
    world.evict_all();
    (world, address)
}

#[test]
fn allocating_makes_no_frames_and_closes_the_gate() {
    let mut world = World::new(16 << 20);
    world.daemon.books().is_ready = true;
    world.allocate(3 * HANDLE_BYTES).expect("room");
    assert_eq!(world.driver.physical_bytes(), 0);
    assert!(!world.daemon.books().is_ready);
    assert_eq!(world.memory.if_complete(|| ()), None);
    assert_eq!(world.memory.incomplete_devices(), [DEVICE]);
    world.finish();
}

#[test]
fn freeing_what_is_suspended_only_drops_the_host_copy() {
    let (mut world, address) = suspended(3 * HANDLE_BYTES);
    let (calls, synchronised) = (world.driver.calls(), world.driver.synchronised());
    world.free(address);
    assert_eq!(world.driver.synchronised(), synchronised, "nothing runs that could touch it");
    assert_eq!(world.driver.calls() - calls, 1, "only the addresses go back");
    assert_eq!(world.driver.holdings(), (0, 0, 0));
    world.finish();
}

#[test]
fn suspending_and_resuming_twice_changes_nothing() {
    let (mut world, _) = suspended(3 * HANDLE_BYTES);
    let calls = world.driver.calls();
    let again = world.evict(HANDLE_BYTES);
    assert_eq!((again.returned_bytes, again.pinned_bytes, again.error), (0, 0, None));
    assert_eq!(world.driver.calls(), calls);
    world.begin(u64::MAX);
    let calls = world.driver.calls();
    world.restore_all(u64::MAX);
    assert_eq!(world.driver.calls(), calls);
    world.verify();
    world.end();
    world.finish();
}

#[test]
fn a_freed_address_is_unknown_and_a_second_free_is_the_drivers_business() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(HANDLE_BYTES).expect("room");
    assert!(world.memory.free(address + 512).is_none(), "not the beginning");
    world.free(address);
    assert!(world.memory.free(address).is_none());
    assert!(world.memory.free(0).is_none());
    assert!(world.memory.find(address).is_none());
    world.finish();
}

#[test]
fn an_address_is_not_given_out_again_while_work_may_touch_it() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(HANDLE_BYTES).expect("room");
    let small = [world.allocate(64).expect("room"), world.allocate(64).expect("room")];
    world.begin(u64::MAX);
    world.daemon.books().capture_is_open = true;
    world.free(address);
    world.free(small[0]);
    assert_eq!(world.driver.synchronised(), 0, "that would break the capture");
    assert_ne!(world.allocate(HANDLE_BYTES).expect("room"), address);
    assert_ne!(world.allocate(64).expect("room"), small[0]);
    world.tidy_later(Duration::from_secs(60));
    assert_ne!(world.allocate(64).expect("room"), small[0], "the capture is still open");
    world.daemon.books().capture_is_open = false;
    let other = *world.allocations.keys().find(|known| **known != small[1]).expect("allocated above");
    world.free(other);
    assert!(world.driver.synchronised() > 0, "this free waits, for the earlier ones too");
    assert_eq!(world.allocate(HANDLE_BYTES).expect("room"), address);
    assert_eq!(world.allocate(64).expect("room"), small[0]);
    world.end();
    world.finish();
}

#[test]
fn frames_of_a_freed_block_serve_the_next_allocation_without_any_call() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(2 * HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.free(address);
    let calls = world.driver.calls();
    assert_eq!(world.allocate(2 * HANDLE_BYTES).expect("room"), address);
    assert_eq!(world.driver.calls(), calls);
    assert!(world.memory.if_complete(|| ()).is_some(), "the gate stays open");
    world.end();
    world.finish();
}

#[test]
fn cached_frames_become_others_without_new_credits() {
    let mut world = World::new(16 << 20);
    let old = world.allocate(4 * HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.free(old);
    world.allocate(3 * HANDLE_BYTES + GRANULE_BYTES).expect("room");
    world.memory.restore(DEVICE);
    assert!(world.memory.if_complete(|| ()).is_some());
    let wants = world
        .daemon
        .books()
        .log
        .iter()
        .filter(|message| matches!(message, ClientMessage::CreditsWanted { .. }))
        .count();
    assert_eq!(wants, 1, "only at the beginning");
    world.end();
    world.finish();
}

#[test]
fn cached_frames_leave_first_and_without_a_copy() {
    let mut world = World::new(16 << 20);
    let kept = world.allocate(HANDLE_BYTES).expect("room");
    let freed = world.allocate(2 * HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.write(kept);
    world.write(freed);
    world.free(freed);
    world.end();
    world.evict(2 * HANDLE_BYTES);
    assert!(world.daemon.books().segments.is_empty(), "nothing was saved");
    assert!(world.memory.if_complete(|| ()).is_some(), "nothing was missed");
    world.finish();
}

#[test]
fn cached_frames_are_given_up_after_a_while() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.free(address);
    assert_eq!(world.memory.tidy(), None, "work may run: nothing is unmapped");
    world.tidy_later(Duration::from_secs(60));
    assert_eq!(world.driver.physical_bytes(), HANDLE_BYTES);
    world.end();
    let again = world.memory.tidy().expect("there is something to come back for");
    assert!(again <= Duration::from_millis(500));
    assert_eq!(world.driver.physical_bytes(), HANDLE_BYTES);
    world.tidy_later(again);
    assert_eq!((world.driver.physical_bytes(), world.daemon.books().held_bytes), (0, 0));
    assert_eq!(world.memory.tidy(), None);
    world.finish();
}

#[test]
fn bytes_that_nothing_was_submitted_after_are_not_copied() {
    let mut world = World::new(16 << 20);
    world.daemon.books().submissions = Some(5);
    world.allocate(2 * HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.end();
    world.evict_all();
    assert!(world.daemon.books().segments.is_empty());
    world.begin(u64::MAX);
    let address = world.allocations.keys().next().copied().expect("allocated above");
    world.write(address);
    world.end();
    world.evict_all();
    assert!(!world.daemon.books().segments.is_empty());
    world.begin(u64::MAX);
    world.verify();
    world.end();
    world.evict_all();
    world.begin(u64::MAX);
    world.verify();
    world.end();
    world.finish();
}

#[test]
fn what_a_context_allocated_goes_with_it() {
    let other = Context(2);
    let mut world = World::new(16 << 20);
    world.memory.context_created(other, 0, DEVICE).expect("known device");
    let kept = world.allocate(100).expect("room");
    world.driver.set_current(Some((other, 0)));
    let gone = world.memory.allocate(HANDLE_BYTES).expect("known").expect("room");
    let gone_small = world.memory.allocate(100).expect("known").expect("room");
    world.driver.set_current(Some((CONTEXT, 0)));
    world.begin(u64::MAX);
    world.memory.context_leaving(other);
    world.memory.context_gone(other);
    assert!(world.memory.find(gone).is_none() && world.memory.find(gone_small).is_none());
    assert!(world.memory.find(kept).is_some());
    world.end();
    world.finish();
}

#[test]
fn without_a_context_frames_stay_and_the_lane_comes_back_with_one() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.write(address);
    world.end();
    world.evict_all();
    assert_eq!(world.driver.lanes(), 1);
    world.memory.context_leaving(CONTEXT);
    world.memory.tidy();
    assert_eq!(world.driver.lanes(), 0, "a lane was made in a context that is being destroyed");
    world.memory.context_stays(CONTEXT);
    world.begin(u64::MAX);
    world.verify();
    assert_eq!(world.driver.lanes(), 1, "the context was not destroyed after all");
    world.end();
    world.memory.context_leaving(CONTEXT);
    world.allocations.clear();
    world.memory.context_gone(CONTEXT);
    world.evict_all();
    world.finish();
}

#[test]
fn a_context_that_was_destroyed_behind_our_back_is_forgotten() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(HANDLE_BYTES).expect("room");
    world.memory.context_created(Context(2), 0, DEVICE).expect("known device");
    world.driver.fail_at(world.driver.calls() + 1, CUerror::CONTEXT_IS_DESTROYED);
    world.begin(u64::MAX);
    assert_eq!(world.driver.failed(), Some("open_lane"));
    world.write(address);
    world.verify();
    world.memory.context_leaving(Context(2));
    assert_eq!(world.driver.lanes(), 0, "the lane was in the other context");
    world.end();
    world.memory.context_gone(Context(2));
    world.finish();
}

/// The lane was there already: what fails is a copy.
#[test]
fn a_lane_that_went_with_its_context_is_made_in_another() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.write(address);
    world.end();
    world.evict_all();
    world.memory.context_created(Context(2), 0, DEVICE).expect("known device");
    // Making, mapping, and opening a frame come first.
    world.driver.fail_at(world.driver.calls() + 4, CUerror::CONTEXT_IS_DESTROYED);
    world.begin(u64::MAX);
    assert_eq!(world.driver.failed(), Some("copy_in"));
    world.verify();
    world.memory.context_leaving(Context(2));
    assert_eq!(world.driver.lanes(), 0, "the lane was in the other context");
    world.end();
    world.memory.context_gone(Context(2));
    world.finish();
}

/// A kernel that runs may be told of an address through memory that it watches.
#[test]
fn bytes_that_came_under_running_work_are_copied_though_nothing_was_submitted() {
    let mut world = World::new(16 << 20);
    world.daemon.books().submissions = Some(5);
    world.allocate(HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.allocate(HANDLE_BYTES).expect("room");
    world.restore_all(u64::MAX);
    world.end();
    world.evict_all();
    let saved: u64 = world.memory.holdings(DEVICE).expect("known device").host_bytes;
    assert_eq!(saved, HANDLE_BYTES);
    world.begin(u64::MAX);
    world.end();
    world.finish();
}

#[test]
fn a_free_of_more_than_the_cache_may_hold_gives_the_frames_up_at_once() {
    let mut world = World::new(16 << 20);
    let kept_bytes = (16 << 20) / 64;
    let address = world.allocate(2 * kept_bytes).expect("room");
    world.begin(u64::MAX);
    world.free(address);
    assert_eq!((world.driver.physical_bytes(), world.daemon.books().held_bytes), (kept_bytes, kept_bytes));
    world.end();
    world.finish();
}

#[test]
fn mid_turn_cached_frames_are_unmapped_only_after_running_work_has_ended() {
    let mut world = World::new(16 << 20);
    let old = world.allocate(2 * HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.free(old);
    let synchronised = world.driver.synchronised();
    world.allocate(HANDLE_BYTES).expect("room");
    world.restore_all(u64::MAX);
    assert_eq!(world.driver.synchronised(), synchronised + 1);
    world.end();
    world.finish();
}
