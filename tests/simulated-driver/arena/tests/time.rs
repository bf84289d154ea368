//! Links keep their rate, are shared evenly, and the engine serves clients in turn.
//!
//! Rates can only fall behind when the test machine is busy, so each measurement may be repeated.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod common;

use common::{Client, machine};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use turnus_simulated_arena::{Arena, ArenaError, Direction, Operation, TemporaryMachine};

/// Measurements of time run one by one.
static QUIET: Mutex<()> = Mutex::new(());

fn quiet() -> MutexGuard<'static, ()> {
    QUIET.lock().unwrap_or_else(PoisonError::into_inner)
}

const ALONE: u64 = 100_000_000;
const DUPLEX: u64 = 70_000_000;

fn limited_machine() -> TemporaryMachine {
    machine(1024, |config| {
        config.devices[0].host_to_device_bytes_per_s = ALONE;
        config.devices[0].device_to_host_bytes_per_s = ALONE;
        config.devices[0].duplex_bytes_per_s = DUPLEX;
        config.devices[0].map_cost_us = 300.0;
    })
}

/// Rates that processes copying in these directions at the same time reach.
fn rates(directions: &[&str]) -> Vec<u64> {
    let machine = limited_machine();
    let start = |direction: &&str| Client::start(&machine, &["copy", direction, "60000000"]);
    let mut clients: Vec<_> = directions.iter().map(start).collect();
    clients.iter_mut().for_each(Client::go);
    clients.iter_mut().map(Client::number).collect()
}

/// Measure up to five times until every rate is within `percent` of what is expected.
fn assert_rates(directions: &[&str], expected: u64, percent: u64) {
    let mut seen = Vec::new();
    for _ in 0..5 {
        let rates = rates(directions);
        let is_near = |rate: &u64| rate.abs_diff(expected) * 100 <= expected * percent;
        if rates.iter().all(is_near) {
            return;
        }
        seen.push(rates);
    }
    panic!("expected {expected} bytes/s within {percent} %, saw {seen:?}");
}

#[test]
fn a_copy_alone_has_the_rate_of_its_direction() {
    let _quiet = quiet();
    assert_rates(&["in"], ALONE, 2);
    assert_rates(&["out"], ALONE, 2);
}

#[test]
fn two_processes_in_one_direction_get_half_each() {
    let _quiet = quiet();
    assert_rates(&["in", "in"], ALONE / 2, 3);
}

#[test]
fn both_directions_at_once_have_the_duplex_rate_each() {
    let _quiet = quiet();
    assert_rates(&["in", "out"], DUPLEX, 3);
}

#[test]
fn a_cancelled_copy_ends_early_and_says_how_far_it_came() {
    let _quiet = quiet();
    let machine = limited_machine();
    let arena = Arena::open_at(machine.directory()).unwrap();
    let cancel = AtomicBool::new(false);
    let bytes = ALONE as usize;
    let (source, mut destination) = (vec![1_u8; bytes], vec![0_u8; bytes]);
    let start = Instant::now();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            cancel.store(true, Ordering::Relaxed);
        });
        // SAFETY: both buffers have `bytes` bytes and live on.
        unsafe {
            arena.copy(
                0,
                Direction::HostToDevice,
                destination.as_mut_ptr(),
                source.as_ptr(),
                bytes as u64,
                &cancel,
            )
        }
    });
    let Err(ArenaError::Cancelled { copied_bytes }) = result else { panic!("{result:?}") };
    assert!(start.elapsed() < Duration::from_millis(500));
    let copied = copied_bytes as usize;
    assert!((1_000_000..20_000_000).contains(&copied), "{copied}");
    assert!(destination[..copied].iter().all(|byte| *byte == 1));
}

#[test]
fn mapping_operations_of_two_clients_pass_one_after_the_other() {
    let _quiet = quiet();
    let machine = limited_machine();
    let arenas = [(); 2].map(|()| Arena::open_at(machine.directory()).unwrap());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for arena in &arenas {
            scope.spawn(|| (0..20).for_each(|_| arena.mapping_cost(0, Operation::Map, 2, 0).unwrap()));
        }
    });
    // 2 clients x 20 calls x 2 operations x 300 us.
    assert!(start.elapsed() >= Duration::from_millis(23), "{:?}", start.elapsed());
}

#[test]
fn engine_slices_are_shared_evenly_and_never_overlap() {
    let _quiet = quiet();
    let machine = limited_machine();
    let mut last = Vec::new();
    for _ in 0..5 {
        let mut clients: Vec<_> =
            (0..3).map(|_| Client::start(&machine, &["slices", "600", "1000"])).collect();
        clients.iter_mut().for_each(Client::go);
        last = clients.iter_mut().map(Client::number).collect::<Vec<_>>();
        let (least, most) = (last.iter().min().unwrap(), last.iter().max().unwrap());
        // Overlapping slices of 1 ms would add up to more than the time that passed.
        assert!(last.iter().sum::<u64>() <= 620, "{last:?}");
        if *least >= 100 && most - least <= most / 5 {
            return;
        }
    }
    panic!("three equal clients got {last:?} slices");
}

#[test]
fn the_engine_goes_on_when_its_owner_is_killed_or_stopped() {
    let _quiet = quiet();
    let machine = limited_machine();
    let arena = Arena::open_at(machine.directory()).unwrap();
    for signal in [libc::SIGKILL, libc::SIGSTOP] {
        let owner = Client::start(&machine, &["keep-slice"]);
        owner.signal(signal);
        let start = Instant::now();
        drop(arena.engine_slice(0).unwrap());
        assert!(start.elapsed() < Duration::from_millis(400), "signal {signal}: {:?}", start.elapsed());
        // A free engine is taken at once again.
        let start = Instant::now();
        drop(arena.engine_slice(0).unwrap());
        assert!(start.elapsed() < Duration::from_millis(50));
    }
}

#[test]
fn kernels_that_wait_for_each_other_both_end() {
    let _quiet = quiet();
    let machine = limited_machine();
    let flags = [(); 2].map(|()| AtomicBool::new(false));
    let arenas = [(); 2].map(|()| Arena::open_at(machine.directory()).unwrap());
    std::thread::scope(|scope| {
        for own in 0..2 {
            let (arena, flags) = (&arenas[own], &flags);
            scope.spawn(move || {
                let limit = Instant::now() + Duration::from_secs(10);
                let mut has_seen_other = false;
                while !has_seen_other {
                    assert!(Instant::now() < limit, "kernel {own} never saw the other one run");
                    // Only work inside a slice counts, so that each must let the other in.
                    let _slice = arena.engine_slice(0).unwrap();
                    flags[own].store(true, Ordering::SeqCst);
                    let end = Instant::now() + Duration::from_millis(1);
                    while !has_seen_other && Instant::now() < end {
                        has_seen_other = flags[1 - own].load(Ordering::SeqCst);
                    }
                }
            });
        }
    });
}
