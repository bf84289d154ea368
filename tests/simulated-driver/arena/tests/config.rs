//! Bad configurations are refused with the value in the message; scaling keeps times.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod common;

use turnus_simulated_arena::{Arena, ArenaConfig, ArenaError, DeviceConfig, TemporaryMachine};

fn refusal(change: impl FnOnce(&mut ArenaConfig)) -> String {
    let mut config = ArenaConfig::with_devices(2);
    change(&mut config);
    config.resolve().expect_err("must be refused").to_string()
}

#[test]
fn scale_divides_capacity_granularity_and_rates_alike() {
    let config = ArenaConfig { scale: 64, ..ArenaConfig::with_devices(1) };
    let device = config.resolve().unwrap().remove(0).config;
    let full = DeviceConfig::default();
    assert_eq!(device.memory_bytes * 64, full.memory_bytes);
    assert_eq!(device.granularity_bytes * 64, full.granularity_bytes);
    assert_eq!(device.host_to_device_bytes_per_s, full.host_to_device_bytes_per_s / 64);
    assert_eq!(device.context_bytes * 64, full.context_bytes);
    assert_eq!(device.map_cost_us, full.map_cost_us);
}

#[test]
fn bad_values_are_named_with_their_device() {
    assert!(refusal(|config| config.scale = 0).contains("scale is 0"));
    assert!(refusal(|config| config.scale = 1024).contains("granularity_bytes 2097152 / scale 1024"));
    assert!(refusal(|config| config.devices.clear()).contains("0 devices"));
    assert!(refusal(|config| config.devices[1].memory_bytes = 5).contains("device 1: memory_bytes 5"));
    assert!(refusal(|config| config.devices[1].uuid = Some("GPU-12".to_owned())).contains("GPU-12"));
    assert!(refusal(|config| config.devices[0].pci_bus_id = Some("x".to_owned())).contains("pci_bus_id"));
    assert!(refusal(|config| config.devices[0].duplex_bytes_per_s = u64::MAX).contains("duplex"));
    let twin = Some("GPU-00000000-0000-0000-0000-000000000001".to_owned());
    let message = refusal(|config| config.devices.iter_mut().for_each(|device| device.uuid = twin.clone()));
    assert!(message.contains("uuid of device 0"), "{message}");
}

#[test]
fn a_file_with_an_unknown_key_is_refused_with_its_path_and_key() {
    let machine = common::machine(8, |_| {});
    let path = machine.directory().join("devices.toml");
    std::fs::write(&path, "scale = 1\nsclae = 2\n").unwrap();
    let message = Arena::open_at(machine.directory()).unwrap_err().to_string();
    assert!(message.contains("devices.toml") && message.contains("sclae"), "{message}");
}

#[test]
fn a_written_configuration_is_read_back_equal_and_never_overwritten() {
    let machine = common::machine(8, |config| config.scrub_delay_ms = 7);
    let read = ArenaConfig::read(&machine.directory().join("devices.toml")).unwrap();
    assert_eq!((read.scrub_delay_ms, read.devices[0].memory_bytes), (7, 8 * 4096));
    assert!(!ArenaConfig::with_devices(3).write(machine.directory()).unwrap());
    assert_eq!(ArenaConfig::read(&machine.directory().join("devices.toml")).unwrap(), read);
}

#[test]
fn state_of_other_devices_is_refused() {
    let machine = TemporaryMachine::new(&ArenaConfig::with_devices(1)).unwrap();
    drop(Arena::open_at(machine.directory()).unwrap());
    let config = machine.directory().join("devices.toml");
    std::fs::remove_file(&config).unwrap();
    ArenaConfig::with_devices(2).write(machine.directory()).unwrap();
    let refused = Arena::open_at(machine.directory());
    assert!(matches!(refused, Err(ArenaError::State { .. })), "{refused:?}");
}

#[test]
fn uuids_differ_by_index_and_are_the_same_every_time() {
    let devices = ArenaConfig::with_devices(3).resolve().unwrap();
    assert_ne!(devices[0].uuid, devices[1].uuid);
    assert_eq!(devices[2].uuid, ArenaConfig::with_devices(3).resolve().unwrap()[2].uuid);
}
