//! Random programs against the byte model: the seed is in the failure's text.

use super::fake_driver::GRANULE_BYTES;
use super::world::{HANDLE_BYTES, World};
use std::time::Duration;

/// splitmix64: enough to shuffle tests, the same everywhere.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

fn size(dice: &mut Dice) -> u64 {
    match dice.below(4) {
        0 => 1 + dice.below(GRANULE_BYTES / 2),
        1 => GRANULE_BYTES * (1 + dice.below(4)),
        2 => 1 + dice.below(HANDLE_BYTES * 5),
        _ => HANDLE_BYTES,
    }
}

fn some_address(world: &World, dice: &mut Dice) -> Option<u64> {
    let count = world.allocations.len() as u64;
    let index = (count > 0).then(|| dice.below(count))?;
    world.allocations.keys().nth(index as usize).copied()
}

fn allocate_or_free(world: &mut World, dice: &mut Dice) {
    if world.allocations.len() < 24 && dice.below(5) < 3 {
        let bytes = size(dice);
        world.allocate(bytes).expect("the device is large enough");
    } else if let Some(address) = some_address(world, dice) {
        world.free(address);
    }
}

/// One turn with work in it, then what may happen between two turns.
fn cycle(world: &mut World, dice: &mut Dice) {
    world.daemon.books().capture_is_open = dice.below(8) == 0;
    world.begin(500 + dice.below(HANDLE_BYTES * 2));
    world.verify();
    for _ in 0..dice.below(12) {
        match dice.below(6) {
            0 | 1 => allocate_or_free(world, dice),
            2 => world.tidy_later(Duration::from_millis(dice.below(2000))),
            3 if dice.below(4) == 0 => world.replace_daemon(),
            _ => {
                world.restore_all(500 + dice.below(HANDLE_BYTES * 3));
                if let Some(address) = some_address(world, dice) {
                    world.write(address);
                }
            }
        }
    }
    world.restore_all(u64::MAX);
    world.verify();
    world.end();
    for _ in 0..dice.below(6) {
        match dice.below(6) {
            0 | 1 => allocate_or_free(world, dice),
            2 => world.replace_daemon(),
            3 => world.tidy_later(Duration::from_secs(dice.below(8))),
            _ => {
                let bytes = dice.below(HANDLE_BYTES * 8);
                let evicted = world.evict(bytes);
                assert_eq!(evicted.error, None);
                assert!(evicted.returned_bytes >= bytes || world.driver.physical_bytes() == 0);
            }
        }
    }
}

#[test]
fn contents_survive_any_order_of_events_and_nothing_is_left() {
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let mut world = World::new(64 << 20);
        world.daemon.books().submissions = (seed % 2 == 0).then_some(0);
        for _ in 0..25 {
            cycle(&mut world, &mut dice);
        }
        world.daemon.books().capture_is_open = false;
        world.finish();
    }
}

#[test]
fn a_hundred_suspensions_leave_the_same_bytes_and_no_frames() {
    let mut world = World::new(64 << 20);
    let mut dice = Dice::new(4711);
    for _ in 0..8 {
        let bytes = size(&mut dice);
        world.allocate(bytes).expect("room");
    }
    world.begin(u64::MAX);
    for address in world.allocations.keys().copied().collect::<Vec<_>>() {
        world.write(address);
    }
    world.end();
    world.evict_all();
    let holdings = world.driver.holdings();
    let segments = world.daemon.books().segments.clone();
    for _ in 0..100 {
        world.begin(3 * GRANULE_BYTES);
        world.verify();
        world.end();
        world.evict_all();
        assert_eq!(world.driver.holdings(), holdings, "reservations, handles, mappings");
    }
    assert_eq!(world.daemon.books().segments, segments, "host memory is used again, not more of it");
    world.finish();
}
