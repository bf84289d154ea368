//! Processes die at any instruction, and what they held is free again; a forked child keeps it.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod common;

use common::{Client, machine};
use std::time::Duration;
use turnus_simulated_arena::{Arena, now_ns};

/// One test at a time: between fork and exec a child of another test's would hold this test's
/// descriptors too, and with them what it has dropped.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn tables_stay_whole_when_clients_are_killed_at_random_200_times() {
    let _alone = alone();
    let machine = machine(16 << 10, |_| {});
    let arena = Arena::open_at(machine.directory()).unwrap();
    let total = arena.memory(0).unwrap().total_bytes;
    let bystander = Client::start(&machine, &["churn"]);
    for round in 0..200 {
        // Every fourth is killed while it attaches.
        let start = if round % 4 == 0 { Client::start_silently } else { Client::start };
        let victim = start(&machine, &["churn"]);
        std::thread::sleep(Duration::from_micros(now_ns() % 6000));
        victim.kill();
        assert_eq!(arena.contradictions().unwrap(), Vec::<String>::new(), "round {round}");
    }
    bystander.kill();
    assert_eq!(arena.memory(0).unwrap().free_bytes, total);
    assert_eq!(arena.usage_by_process(0).unwrap(), vec![]);
    let everything = arena.allocate(0, total).unwrap();
    assert_eq!(arena.pieces(everything).unwrap().len(), 1);
    assert!(arena.repair_count() > 0, "no kill hit a process that was changing the tables");
}

#[test]
fn killed_client_is_reaped_when_memory_is_short_and_its_bytes_are_gone() {
    let _alone = alone();
    let machine = machine(256, |_| {});
    let arena = Arena::open_at(machine.directory()).unwrap();
    let total = arena.devices()[0].config.memory_bytes;
    let client = Client::start(&machine, &["hold", &(total / 2).to_string()]);
    let usage = arena.usage_by_process(0).unwrap();
    assert_eq!(usage, vec![(client.id(), total / 2 + 1000)]);
    assert!(arena.allocate(0, total).is_err());
    client.kill();
    let id = arena.allocate(0, total).unwrap();
    let piece = arena.pieces(id).unwrap()[0];
    // SAFETY: the piece is held by this client and nobody else writes to it.
    let bytes = unsafe { std::slice::from_raw_parts(piece.window_pointer, total as usize) };
    assert!(bytes.iter().all(|byte| *byte == 0), "the next owner sees what the dead one wrote");
}

#[test]
fn forked_child_keeps_memory_of_its_dead_parent_and_is_a_client_of_its_own() {
    let _alone = alone();
    let machine = machine(64, |_| {});
    let arena = Arena::open_at(machine.directory()).unwrap();
    let mut parent = Client::start_silently(&machine, &["hold-and-fork", "65536"]);
    assert_eq!(parent.line(), "child");
    parent.wait();
    assert_eq!(arena.reap().unwrap().clients, 0);
    assert_eq!(arena.memory(0).unwrap().free_bytes, 64 * 4096 - 65536 - 4096);
    drop(parent); // ends the child's input
    let deadline = now_ns() + 5_000_000_000;
    while arena.memory(0).unwrap().free_bytes != 64 * 4096 && now_ns() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(arena.memory(0).unwrap().free_bytes, 64 * 4096);
}

#[test]
fn dropping_an_arena_frees_what_it_held() {
    let _alone = alone();
    let machine = machine(64, |_| {});
    let observer = Arena::open_at(machine.directory()).unwrap();
    let arena = Arena::open_at(machine.directory()).unwrap();
    arena.allocate(0, 8192).unwrap();
    arena.charge(0, 100).unwrap();
    assert_eq!(observer.memory(0).unwrap().free_bytes, 64 * 4096 - 8192 - 100);
    drop(arena);
    assert_eq!(observer.reap().unwrap().clients, 0, "the drop itself must have freed it");
    assert_eq!(observer.memory(0).unwrap().free_bytes, 64 * 4096);
}

#[test]
fn many_processes_find_one_machine_when_all_open_it_at_once() {
    let _alone = alone();
    let machine = machine(64, |_| {});
    let mut clients: Vec<_> = (0..12).map(|_| Client::start_silently(&machine, &["hold", "4096"])).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.line(), "ready"));
    let arena = Arena::open_at(machine.directory()).unwrap();
    let mut expected: Vec<_> = clients.iter().map(|client| (client.id(), 5096)).collect();
    expected.sort_unstable();
    assert_eq!(arena.usage_by_process(0).unwrap(), expected);
    let left_over = std::fs::read_dir(machine.directory()).unwrap().count();
    assert_eq!(left_over, 4, "only alive, devices.toml, memory-0 and state may be left");
}
