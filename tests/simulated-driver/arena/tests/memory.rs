//! Allocating, holding, exporting and charging: limits are exact, ids never come back, memory starts as zero.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod common;

use common::{Client, machine};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use turnus_simulated_arena::{Arena, ArenaError, PhysicalId};

const UNIT: u64 = 4096;

/// Tests that start processes run one at a time: another test's child would inherit the descriptors
/// whose end this test waits for.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn four_racing_processes_get_exactly_the_capacity() {
    let _alone = alone();
    let machine = machine(4003, |_| {});
    let mut clients: Vec<_> = (0..4).map(|_| Client::start(&machine, &["fill", "4096"])).collect();
    clients.iter_mut().for_each(Client::go);
    let counts: Vec<u64> = clients.iter_mut().map(Client::number).collect();
    assert_eq!(counts.iter().sum::<u64>(), 4003, "{counts:?}");
    let arena = Arena::open_at(machine.directory()).unwrap();
    assert_eq!(arena.memory(0).unwrap().free_bytes, 0);
    assert_eq!(arena.contradictions().unwrap(), Vec::<String>::new());
}

#[test]
fn fragmented_memory_is_given_in_pieces_that_cover_the_allocation() {
    let machine = machine(8, |_| {});
    let arena = Arena::open_at(machine.directory()).unwrap();
    let ids: Vec<_> = (0..8).map(|_| arena.allocate(0, UNIT).unwrap()).collect();
    ids.iter().step_by(2).for_each(|id| arena.release(*id).unwrap());
    let id = arena.allocate(0, 4 * UNIT).unwrap();
    let pieces = arena.pieces(id).unwrap();
    assert_eq!(pieces.len(), 4);
    for (index, piece) in pieces.iter().enumerate() {
        assert_eq!((piece.offset_bytes, piece.bytes), (index as u64 * UNIT, UNIT));
        assert_eq!(piece.file_offset_bytes, 2 * index as u64 * UNIT);
    }
    assert_eq!(arena.size_bytes(id).unwrap(), 4 * UNIT);
    assert!(matches!(arena.allocate(0, UNIT), Err(ArenaError::OutOfMemory { .. })));
}

#[test]
fn a_contiguous_gap_is_preferred_over_pieces() {
    let machine = machine(8, |_| {});
    let arena = Arena::open_at(machine.directory()).unwrap();
    let ids: Vec<_> = (0..8).map(|_| arena.allocate(0, UNIT).unwrap()).collect();
    [0, 2, 5, 6].iter().for_each(|at: &usize| arena.release(ids[*at]).unwrap());
    let id = arena.allocate(0, 2 * UNIT).unwrap();
    let pieces = arena.pieces(id).unwrap();
    assert_eq!((pieces.len(), pieces[0].file_offset_bytes), (1, 5 * UNIT));
}

#[test]
fn sizes_that_are_no_multiple_of_the_granularity_are_refused() {
    let machine = machine(8, |_| {});
    let arena = Arena::open_at(machine.directory()).unwrap();
    for bytes in [0, 1, UNIT - 1, UNIT + 1] {
        assert!(matches!(arena.allocate(0, bytes), Err(ArenaError::Size { .. })), "{bytes}");
    }
    assert!(matches!(arena.allocate(1, UNIT), Err(ArenaError::NoDevice { device: 1 })));
}

#[test]
fn memory_lives_until_the_last_holder_and_its_id_is_stale_for_ever() {
    let machine = machine(8, |_| {});
    let first = Arena::open_at(machine.directory()).unwrap();
    let second = Arena::open_at(machine.directory()).unwrap();
    let id = first.allocate(0, UNIT).unwrap();
    assert!(matches!(second.pieces(id), Err(ArenaError::NotHeld { .. })));
    second.hold(PhysicalId::from_bytes(id.to_bytes())).unwrap();
    first.hold(id).unwrap();
    first.release(id).unwrap();
    first.release(id).unwrap();
    assert!(matches!(first.release(id), Err(ArenaError::NotHeld { .. })));
    assert_eq!(first.memory(0).unwrap().free_bytes, 7 * UNIT);
    second.release(id).unwrap();
    assert_eq!(first.memory(0).unwrap().free_bytes, 8 * UNIT);
    let next = first.allocate(0, UNIT).unwrap();
    assert_ne!(next, id);
    assert!(matches!(first.hold(id), Err(ArenaError::NotHeld { .. })));
    let nonsense = PhysicalId::from_bytes([0xff; 12]);
    assert!(first.hold(nonsense).is_err());
}

#[test]
fn released_memory_reads_as_zero_for_the_next_owner() {
    let machine = machine(16 << 10, |_| {}); // 64 MiB: several scrub steps
    let arena = Arena::open_at(machine.directory()).unwrap();
    let total = arena.devices()[0].config.memory_bytes;
    let id = arena.allocate(0, total).unwrap();
    let piece = arena.pieces(id).unwrap()[0];
    // SAFETY: the piece is held and covers the device.
    unsafe { std::ptr::write_bytes(piece.window_pointer, 0x5a, total as usize) };
    arena.release(id).unwrap();
    let id = arena.allocate(0, total).unwrap();
    let piece = arena.pieces(id).unwrap()[0];
    // SAFETY: the piece is held and nobody writes to it.
    let bytes = unsafe { std::slice::from_raw_parts(piece.window_pointer, total as usize) };
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn scrub_delay_keeps_freed_memory_unavailable_for_a_while() {
    let machine = machine(8, |config| config.scrub_delay_ms = 80);
    let arena = Arena::open_at(machine.directory()).unwrap();
    let id = arena.allocate(0, 8 * UNIT).unwrap();
    let start = Instant::now();
    arena.release(id).unwrap();
    assert!(matches!(arena.allocate(0, UNIT), Err(ArenaError::OutOfMemory { .. })));
    assert_eq!(arena.memory(0).unwrap().free_bytes, 0);
    while arena.allocate(0, 8 * UNIT).is_err() {
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(start.elapsed() >= Duration::from_millis(80));
}

#[test]
fn an_export_keeps_memory_alive_until_its_last_duplicate_is_closed() {
    let _alone = alone();
    let machine = machine(8, |_| {});
    let arena = Arena::open_at(machine.directory()).unwrap();
    let id = arena.allocate(0, UNIT).unwrap();
    // SAFETY: the piece is held by this client.
    unsafe { arena.pieces(id).unwrap()[0].window_pointer.write_volatile(42) };
    let descriptor = arena.export(id).unwrap();
    let duplicate = descriptor.try_clone().unwrap();
    arena.release(id).unwrap();
    drop(descriptor);
    assert_eq!(arena.memory(0).unwrap().free_bytes, 7 * UNIT);
    assert_eq!(arena.usage_by_process(0).unwrap(), vec![]);
    // SAFETY: clears close-on-exec of a descriptor that this test owns.
    unsafe { libc::fcntl(duplicate.as_raw_fd(), libc::F_SETFD, 0) };
    let mut importer = Client::start_silently(&machine, &["import", &duplicate.as_raw_fd().to_string()]);
    drop(duplicate);
    assert_eq!(importer.number(), 42);
    assert_eq!(arena.memory(0).unwrap().free_bytes, 7 * UNIT, "the importer holds it now");
    assert_eq!(arena.usage_by_process(0).unwrap(), vec![(importer.id(), UNIT)]);
    importer.finish();
    assert_eq!(arena.memory(0).unwrap().free_bytes, 8 * UNIT);
}

#[test]
fn only_living_exports_of_the_same_machine_are_imported() {
    let (here, there) = (machine(8, |_| {}), machine(8, |_| {}));
    let arena = Arena::open_at(here.directory()).unwrap();
    let other = Arena::open_at(there.directory()).unwrap();
    let foreign = other.export(other.allocate(0, UNIT).unwrap()).unwrap();
    let id = arena.allocate(0, UNIT).unwrap();
    let descriptor = arena.export(id).unwrap();
    let forged =
        std::fs::File::options().read(true).write(true).open(here.directory().join("alive")).unwrap();
    let stranger = std::fs::File::open("/dev/null").unwrap();
    for refused in [foreign.as_fd(), forged.as_fd(), stranger.as_fd()] {
        assert!(matches!(arena.import(refused), Err(ArenaError::ForeignDescriptor { .. })));
    }
    // SAFETY: moves the offset of a descriptor that this test owns; it only is a hint.
    unsafe { libc::lseek(descriptor.as_raw_fd(), 0, libc::SEEK_SET) };
    assert_eq!(arena.import(descriptor.as_fd()).unwrap(), id);
}

#[test]
fn charges_take_capacity_without_frames_and_are_returned_once() {
    let machine = machine(8, |_| {});
    let arena = Arena::open_at(machine.directory()).unwrap();
    let charge = arena.charge(0, UNIT + 1).unwrap();
    assert!(matches!(arena.allocate(0, 7 * UNIT), Err(ArenaError::OutOfMemory { .. })));
    arena.allocate(0, 6 * UNIT).unwrap();
    assert!(arena.charge(0, UNIT).is_err());
    arena.change_charge(charge, 1).unwrap();
    let other = arena.charge(0, UNIT).unwrap();
    assert!(arena.change_charge(charge, UNIT + 1).is_err(), "what others took is not there");
    arena.discharge(other).unwrap();
    arena.change_charge(charge, UNIT + 1).unwrap();
    arena.discharge(charge).unwrap();
    assert!(matches!(arena.change_charge(charge, 1), Err(ArenaError::NotCharged { .. })));
    let again = arena.charge(0, 1).unwrap();
    assert!(matches!(arena.discharge(charge), Err(ArenaError::NotCharged { .. })));
    arena.discharge(again).unwrap();
    assert_eq!(arena.memory(0).unwrap().free_bytes, 2 * UNIT);
}

#[test]
fn a_device_has_room_for_65536_allocations() {
    let machine = machine(65_536, |_| {});
    let arena = Arena::open_at(machine.directory()).unwrap();
    for _ in 0..65_536 {
        arena.allocate(0, UNIT).unwrap();
    }
    assert!(matches!(arena.allocate(0, UNIT), Err(ArenaError::OutOfMemory { .. })));
}
