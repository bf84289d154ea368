//! What the program hears about its addresses.

use super::world::{CONTEXT, HANDLE_BYTES, World};
use crate::memory::pointers::write;
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

/// Eight bytes are enough for every attribute but the tokens.
fn ask(world: &World, address: u64, attribute: CUpointer_attribute) -> Result<u64, Option<CUerror>> {
    let allocation = world.memory.find(address).expect("ours");
    let mut datum = [0u8; 8];
    // SAFETY: room for the widest attribute that is answered.
    let result = unsafe { write(&allocation, address, attribute, datum.as_mut_ptr().cast()) };
    match result {
        Some(Ok(())) => Ok(u64::from_ne_bytes(datum)),
        Some(Err(error)) => Err(Some(error)),
        None => Err(None),
    }
}

#[test]
fn answers_are_those_for_an_allocation_and_stay_over_a_move() {
    let mut world = World::new(16 << 20);
    let bytes = 2 * HANDLE_BYTES + 5;
    let address = world.allocate(bytes).expect("room");
    let inside = address + HANDLE_BYTES + 1;
    let answers = |world: &World| {
        [
            CU_POINTER_ATTRIBUTE_CONTEXT,
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            CU_POINTER_ATTRIBUTE_MAPPED,
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
            CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
            CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
            CU_POINTER_ATTRIBUTE_BUFFER_ID,
        ]
        .map(|attribute| ask(world, inside, attribute).expect("known"))
    };
    let before = answers(&world);
    let device = u64::from(CU_MEMORYTYPE_DEVICE.0);
    assert_eq!(before[..11], [CONTEXT.0 as u64, device, inside, 0, 0, address, bytes, 1, 0, 0, 0]);
    world.begin(u64::MAX);
    assert_eq!(answers(&world), before);
    world.end();
    world.evict_all();
    assert_eq!(answers(&world), before);
    assert_eq!(ask(&world, address, CU_POINTER_ATTRIBUTE_HOST_POINTER), Err(Some(CUerror::INVALID_VALUE)));
    assert_eq!(ask(&world, address, CUpointer_attribute_enum(9999)), Err(None), "the driver's own answer");
    world.finish();
}

#[test]
fn a_buffer_id_is_never_used_again() {
    let mut world = World::new(16 << 20);
    world.begin(u64::MAX);
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..10 {
        let address = world.allocate(HANDLE_BYTES).expect("room");
        world.restore_all(u64::MAX);
        ids.insert(ask(&world, address, CU_POINTER_ATTRIBUTE_BUFFER_ID).expect("known"));
        world.free(address);
    }
    assert_eq!(ids.len(), 10);
    world.end();
    world.finish();
}

#[test]
fn an_allocation_ends_where_the_program_asked_it_to() {
    let mut world = World::new(16 << 20);
    let (large, small) = (world.allocate(HANDLE_BYTES + 5).expect("room"), world.allocate(7).expect("room"));
    for (address, bytes) in [(large, HANDLE_BYTES + 5), (small, 7)] {
        assert!(world.memory.find(address - 1).is_none());
        assert!(world.memory.find(address + bytes - 1).is_some());
        assert!(world.memory.find(address + bytes).is_none());
    }
    world.finish();
}

#[test]
fn a_range_is_admitted_while_it_is_allocated_wherever_its_bytes_are() {
    let mut world = World::new(16 << 20);
    let (tiny, small) = (world.allocate(5).expect("room"), world.allocate(3000).expect("room"));
    let large = world.allocate(2 * HANDLE_BYTES + 5).expect("room");
    let check = |world: &World| {
        for (address, bytes) in [(tiny, 5), (small, 3000), (large, 2 * HANDLE_BYTES + 5)] {
            assert!(world.memory.extents.admits(address, bytes));
            assert!(world.memory.extents.admits(address + bytes - 1, 1));
            assert!(!world.memory.extents.admits(address, bytes + 1));
            assert!(!world.memory.extents.admits(address + 1, bytes));
        }
    };
    check(&world);
    world.begin(u64::MAX);
    check(&world);
    world.end();
    world.evict_all();
    check(&world);
    for address in [tiny, small, large] {
        world.free(address);
        assert!(world.driver.holds_addresses(address) != world.memory.extents.admits(address, 1));
    }
    world.finish();
}

#[test]
fn addresses_in_the_cache_are_refused_until_the_driver_has_them_back() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(2 * HANDLE_BYTES).expect("room");
    world.begin(u64::MAX);
    world.free(address);
    assert!(world.driver.holds_addresses(address), "its frames are cached");
    assert!(!world.memory.extents.admits(address, 1));
    world.end();
    world.evict_all();
    assert!(!world.driver.holds_addresses(address));
    assert!(world.memory.extents.admits(address, 1), "now it may be anybody's");
    world.finish();
}

#[test]
fn synchronous_memory_operations_are_asked_of_the_context() {
    let mut world = World::new(16 << 20);
    let address = world.allocate(HANDLE_BYTES).expect("room");
    world.memory.set_sync_memops(address + 1, true).expect("works");
    assert_eq!(world.driver.sync_memops(), [CONTEXT]);
    assert_eq!(ask(&world, address, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), Ok(1));
    world.finish();
}

#[test]
fn rows_begin_at_multiples_of_the_pitch() {
    let mut world = World::new(16 << 20);
    let (address, pitch) = world.memory.allocate_pitch(1000, 30).expect("known").expect("room");
    assert_eq!(pitch, 1024);
    let allocation = world.memory.find(address + 1024 * 30 - 1).expect("the last row is there");
    assert_eq!(allocation.bytes, 1024 * 30);
    assert_eq!(world.memory.allocate_pitch(1 << 40, 1 << 40), Some(Err(CUerror::OUT_OF_MEMORY)));
    world.allocations.insert(address, (1024 * 30, None));
    world.finish();
}
