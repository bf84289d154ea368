//! Costs in time and memory that the machine takes: the lock of all mapping operations, scrubbing, the time factor.
//!
//! Costs can only be exceeded when the test machine is busy, so upper bounds are wide.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod common;

use common::machine;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use turnus_simulated_arena::{Arena, ArenaConfig, ArenaError, DeviceConfig, HostOperation, Operation};

/// Measurements of time run one by one.
static QUIET: Mutex<()> = Mutex::new(());

fn quiet() -> MutexGuard<'static, ()> {
    QUIET.lock().unwrap_or_else(PoisonError::into_inner)
}

fn elapsed(action: impl FnOnce()) -> Duration {
    let start = Instant::now();
    action();
    start.elapsed()
}

#[test]
fn the_defaults_are_honest() {
    let config = ArenaConfig::default();
    let device = &config.devices[0];
    let times = [
        config.scrub_delay_ms as f64,
        config.host_allocation_ms_per_gib,
        config.host_registration_ms_per_gib,
        config.host_registration_huge_ms_per_gib,
        device.create_cost_us,
        device.create_ms_per_gib,
        device.map_cost_us,
        device.access_cost_us,
        device.unmap_cost_us,
        device.unmap_ms_per_gib,
        device.release_cost_us,
        device.release_ms_per_gib,
        device.context_cost_us,
        device.module_cost_us,
        device.launch_cost_us,
        device.time_slice_us,
    ];
    assert!(times.iter().all(|time| *time > 0.0), "{times:?}");
    assert!(device.context_bytes > 0 && device.module_bytes > 0 && device.local_memory_cost);
    assert_eq!((config.time_factor, device.instructions_per_s > 0), (1.0, true));
}

#[test]
fn mapping_and_pinning_on_all_devices_queue_behind_one_another() {
    let _quiet = quiet();
    let machine = machine(64, |config| {
        config.devices[0].map_cost_us = 10_000.0;
        config.devices[0].unmap_cost_us = 10_000.0;
        config.devices.push(config.devices[0].clone());
        config.host_allocation_ms_per_gib = 10_240.0;
    });
    let arenas = [(); 3].map(|()| Arena::open_at(machine.directory()).unwrap());
    let work: [&(dyn Fn() + Sync); 3] = [
        &|| (0..5).for_each(|_| arenas[0].mapping_cost(0, Operation::Map, 1, 0).unwrap()),
        &|| (0..5).for_each(|_| arenas[1].mapping_cost(1, Operation::Unmap, 1, 0).unwrap()),
        &|| (0..5).for_each(|_| arenas[2].host_cost(HostOperation::Allocate, 1 << 20)),
    ];
    let all = elapsed(|| {
        std::thread::scope(|scope| {
            work.iter().for_each(|work| {
                scope.spawn(work);
            });
        });
    });
    assert!(all >= Duration::from_millis(149), "15 operations of 10 ms each passed in {all:?}");
    // Who starts CUDA waits for what is under way.
    let waited = std::thread::scope(|scope| {
        scope.spawn(|| arenas[0].host_cost(HostOperation::Allocate, 10 << 20));
        std::thread::sleep(Duration::from_millis(20));
        elapsed(|| arenas[1].wait_for_lock())
    });
    assert!(waited >= Duration::from_millis(50), "{waited:?}");
}

#[test]
fn a_cost_has_a_part_per_operation_and_a_part_per_byte_of_the_card() {
    let config = |scale| ArenaConfig { scale, ..ArenaConfig::with_devices(1) };
    let machine = |config: &ArenaConfig| {
        let device = &config.resolve().unwrap()[0].config;
        (device.release_cost_us, device.release_ms_per_gib)
    };
    // 1 GiB of the card is 16 MiB at scale 64 and takes as long.
    assert_eq!(machine(&config(1)), (19.0, 2.0));
    assert_eq!(machine(&config(64)), (19.0, 128.0));
    let _quiet = quiet();
    let machine = common::machine(64, |config| {
        config.devices[0].create_cost_us = 2000.0;
        config.devices[0].create_ms_per_gib = 1024.0;
    });
    let arena = Arena::open_at(machine.directory()).unwrap();
    let small = elapsed(|| arena.mapping_cost(0, Operation::Create, 1, 4096).unwrap());
    assert!(small >= Duration::from_micros(1800), "{small:?}");
    let large = elapsed(|| arena.mapping_cost(0, Operation::Create, 1, 40 << 20).unwrap());
    // Less what the lock forgives who comes back at once.
    assert!(large >= Duration::from_micros(41_800), "{large:?}");
}

#[test]
fn freed_memory_is_out_of_reach_until_it_is_scrubbed() {
    let _quiet = quiet();
    let machine = machine(64, |config| config.scrub_delay_ms = 300);
    let arena = Arena::open_at(machine.directory()).unwrap();
    let total = arena.memory(0).unwrap().total_bytes;
    let id = arena.allocate(0, total).unwrap();
    let start = Instant::now();
    arena.release(id).unwrap();
    assert_eq!(arena.memory(0).unwrap().free_bytes, 0, "what is being scrubbed is not free");
    assert!(matches!(arena.allocate(0, 4096), Err(ArenaError::OutOfMemory { .. })));
    while arena.allocate(0, total).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "the shortage never ends");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
}

#[test]
fn scrubbing_takes_time_by_its_bytes_one_release_after_the_other() {
    let _quiet = quiet();
    // 256 KiB take 262 ms.
    let machine = machine(128, |config| {
        config.scrub_delay_ms = 1;
        config.devices[0].device_to_device_bytes_per_s = 1_000_000;
    });
    let arena = Arena::open_at(machine.directory()).unwrap();
    let ids = [(); 2].map(|()| arena.allocate(0, 256 << 10).unwrap());
    let start = Instant::now();
    ids.into_iter().for_each(|id| arena.release(id).unwrap());
    let seen: Vec<_> = [256 << 10, 512 << 10]
        .into_iter()
        .map(|bytes| {
            while arena.memory(0).unwrap().free_bytes < bytes {
                assert!(start.elapsed() < Duration::from_secs(20));
                std::thread::sleep(Duration::from_millis(1));
            }
            start.elapsed()
        })
        .collect();
    assert!(seen[0] >= Duration::from_millis(262) && seen[1] >= Duration::from_millis(524), "{seen:?}");
}

#[test]
fn a_time_factor_changes_all_times_alike() {
    let times = |config: &DeviceConfig| {
        [
            config.create_cost_us,
            config.release_ms_per_gib,
            config.context_cost_us,
            config.module_cost_us,
            config.launch_cost_us,
            config.time_slice_us,
            1e18 / config.host_to_device_bytes_per_s as f64,
            1e18 / config.duplex_bytes_per_s as f64,
            1e18 / config.device_to_device_bytes_per_s as f64,
            1e18 / config.instructions_per_s as f64,
        ]
    };
    let at = |time_factor| {
        times(&ArenaConfig { time_factor, ..ArenaConfig::default() }.resolve().unwrap()[0].config)
    };
    for (one, tenth) in at(1.0).into_iter().zip(at(0.1)) {
        assert!((tenth / one - 0.1).abs() < 1e-6, "{one} became {tenth}");
    }
    let _quiet = quiet();
    // Scrubbing and pinning too: upper bounds, with much room for a busy machine.
    let machine = machine(64, |config| {
        config.time_factor = 0.001;
        config.scrub_delay_ms = 100_000;
        config.host_registration_ms_per_gib = 100_000.0 * 1024.0;
    });
    let arena = Arena::open_at(machine.directory()).unwrap();
    let registering = elapsed(|| arena.host_cost(HostOperation::Register, 1 << 20));
    assert!((0.1..20.0).contains(&registering.as_secs_f64()), "{registering:?}");
    arena.release(arena.allocate(0, 4096).unwrap()).unwrap();
    let start = Instant::now();
    while arena.memory(0).unwrap().free_bytes != 64 * 4096 {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(start.elapsed() >= Duration::from_millis(90), "{:?}", start.elapsed());
}

#[test]
fn times_that_are_none_are_refused_by_name() {
    let refusal = |change: &dyn Fn(&mut ArenaConfig)| {
        let mut config = ArenaConfig::default();
        change(&mut config);
        config.resolve().expect_err("must be refused").to_string()
    };
    assert!(refusal(&|config| config.time_factor = 0.0).contains("time_factor 0"));
    assert!(refusal(&|config| config.time_factor = f64::NAN).contains("time_factor NaN"));
    assert!(
        refusal(&|config| config.host_allocation_ms_per_gib = -1.0).contains("host_allocation_ms_per_gib -1")
    );
    assert!(refusal(&|config| config.devices[0].map_cost_us = -1.0).contains("device 0: map_cost_us -1"));
    assert!(
        refusal(&|config| config.devices[0].unmap_ms_per_gib = f64::INFINITY)
            .contains("unmap_ms_per_gib inf")
    );
    assert!(refusal(&|config| config.devices[0].time_slice_us = 0.0).contains("time_slice_us"));
    assert!(refusal(&|config| config.devices[0].time_slice_us = 1e6).contains("time_slice_us"));
}
