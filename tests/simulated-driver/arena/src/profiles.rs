//! Named cards: their numbers, each with its source. Read-only; a `devices.toml` describes any other card.
//!
//! A device with `profile = "L4"` has the numbers of that card and none of its own: the file may only say which
//! one of several it is. Names, memory and units are those of NVIDIA's data sheets; the memory in MiB is what
//! `nvidia-smi` shows, from memory, rounded to the granularity. What was not published per card (costs of
//! contexts, modules, launches and map operations) is that of the default card, see `defaults.rs`.

use crate::config::{ArenaConfig, DeviceConfig};
use toml::Value;

const MIB: u64 = 1 << 20;
const GB_PER_S: u64 = 1_000_000_000;

/// What tells a card from the default one.
struct Profile {
    name: &'static str,
    product: &'static str,
    memory_mib: u64,
    /// Data sheet, in GB/s.
    memory_rate: u64,
    /// One way, and each way while both are busy, in units of 0.1 GB/s.
    link: (u64, u64),
    capability: (u32, u32),
    multiprocessors: u32,
    /// CUDA C++ Programming Guide, compute capabilities: threads of a multiprocessor.
    threads: u32,
    /// Data sheet, single precision in units of 0.1 TFLOPS; two operations per instruction.
    single_precision: u64,
}

/// Keys that may stand beside `profile`: they say which device it is and who may use it, not how it performs.
const KEYS_BESIDE: [&str; 5] = ["profile", "uuid", "pci_bus_id", "compute_mode", "mig"];

/// PCIe 3 x16, pinned memory: both ways together moved about 12 GB/s in the measurements of nvshare's thesis
/// (P100, chapter 12); one way alone is taken to be the same.
const PCIE_3: (u64, u64) = (120, 60);
/// nvbandwidth README, PCIe 4 x16: 26.0 GB/s one way, 18.6 per direction both ways.
const PCIE_4: (u64, u64) = (260, 186);
/// nvbandwidth tutorial, PCIe 5 x16: 55.6 GB/s host to device. Both ways: the ratio of PCIe 4, not measured.
const PCIE_5: (u64, u64) = (556, 397);

const PROFILES: [Profile; 5] = [
    Profile {
        name: "P100-pcie3",
        product: "Tesla P100-PCIE-16GB",
        memory_mib: 16280,
        memory_rate: 732,
        link: PCIE_3,
        capability: (6, 0),
        multiprocessors: 56,
        threads: 2048,
        single_precision: 93,
    },
    Profile {
        name: "A100-pcie4",
        product: "NVIDIA A100 80GB PCIe",
        memory_mib: 81920,
        memory_rate: 1935,
        link: PCIE_4,
        capability: (8, 0),
        multiprocessors: 108,
        threads: 2048,
        single_precision: 195,
    },
    Profile {
        name: "H100-pcie5",
        product: "NVIDIA H100 PCIe",
        memory_mib: 81558,
        memory_rate: 2000,
        link: PCIE_5,
        capability: (9, 0),
        multiprocessors: 114,
        threads: 2048,
        single_precision: 510,
    },
    Profile {
        name: "H200-pcie5",
        product: "NVIDIA H200",
        memory_mib: 143_770,
        memory_rate: 4800,
        link: PCIE_5,
        capability: (9, 0),
        multiprocessors: 132,
        threads: 2048,
        single_precision: 670,
    },
    Profile {
        name: "L4",
        product: "NVIDIA L4",
        memory_mib: 23034,
        memory_rate: 300,
        link: PCIE_4,
        capability: (8, 9),
        multiprocessors: 58,
        threads: 1536,
        single_precision: 303,
    },
];

/// Names of all profiles.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|profile| profile.name)
}

/// The card of that name, upper and lower case alike.
pub fn by_name(name: &str) -> Option<DeviceConfig> {
    let profile = PROFILES.iter().find(|profile| profile.name.eq_ignore_ascii_case(name))?;
    let (one_way, both_ways) = profile.link;
    Some(DeviceConfig {
        profile: Some(profile.name.to_owned()),
        name: profile.product.to_owned(),
        memory_bytes: profile.memory_mib * MIB,
        host_to_device_bytes_per_s: one_way * GB_PER_S / 10,
        device_to_host_bytes_per_s: one_way * GB_PER_S / 10,
        duplex_bytes_per_s: both_ways * GB_PER_S / 10,
        // A copy reads and writes; less 20 % overhead.
        device_to_device_bytes_per_s: profile.memory_rate * GB_PER_S / 2 / 5 * 4,
        compute_major: profile.capability.0,
        compute_minor: profile.capability.1,
        multiprocessor_count: profile.multiprocessors,
        threads_per_multiprocessor: profile.threads,
        instructions_per_s: profile.single_precision * 1_000_000_000_000 / 10 / 2,
        ..DeviceConfig::default()
    })
}

/// Whether a device with a profile has that card's numbers still.
pub(crate) fn check_unchanged(device: &DeviceConfig) -> Result<(), String> {
    let Some(name) = &device.profile else { return Ok(()) };
    let card = by_name(name).ok_or_else(|| unknown(name))?;
    let expected = DeviceConfig {
        profile: device.profile.clone(),
        uuid: device.uuid.clone(),
        pci_bus_id: device.pci_bus_id.clone(),
        compute_mode: device.compute_mode,
        mig: device.mig.clone(),
        ..card
    };
    if *device == expected {
        Ok(())
    } else {
        Err(format!("profile {name} is read-only; its numbers were changed"))
    }
}

fn unknown(name: &str) -> String {
    format!("profile {name:?} is none of {}", names().collect::<Vec<_>>().join(", "))
}

/// The content of a `devices.toml`: devices with a profile get the numbers of their card.
pub(crate) fn read(text: &str) -> Result<ArenaConfig, String> {
    let complaint = |error: toml::de::Error| {
        let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        // The parser's own text has several lines.
        format!("{place}{}", error.message().replace('\n', " "))
    };
    let mut config: ArenaConfig = toml::from_str(text).map_err(complaint)?;
    let table: toml::Table = text.parse().map_err(complaint)?;
    let written = table.get("devices").and_then(Value::as_array).into_iter().flatten();
    for (index, (device, written)) in config.devices.iter_mut().zip(written).enumerate() {
        let Some(name) = device.profile.clone() else { continue };
        let card = by_name(&name).ok_or_else(|| format!("device {index}: {}", unknown(&name)))?;
        let keys = written.as_table().into_iter().flat_map(|table| table.keys());
        if let Some(key) = keys.map(String::as_str).find(|key| !KEYS_BESIDE.contains(key)) {
            return Err(format!(
                "device {index}: profile {name} is read-only, so {key} cannot stand beside it; leave out profile and \
                 write the numbers of another card"
            ));
        }
        *device = DeviceConfig {
            uuid: device.uuid.take(),
            pci_bus_id: device.pci_bus_id.take(),
            compute_mode: device.compute_mode,
            mig: device.mig.take(),
            ..card
        };
    }
    Ok(config)
}

/// The text of a `devices.toml`: of devices with a profile only what may stand beside it.
pub(crate) fn write(config: &ArenaConfig) -> Result<String, String> {
    let mut table = toml::Table::try_from(config).map_err(|error| error.to_string())?;
    let devices = table.get_mut("devices").and_then(Value::as_array_mut);
    for device in devices.into_iter().flatten().filter_map(Value::as_table_mut) {
        if device.contains_key("profile") {
            device.retain(|key, _| KEYS_BESIDE.contains(&key));
        }
    }
    toml::to_string(&table).map_err(|error| error.to_string())
}

/// The cards of a list such as `2xH100-pcie5,L4`; `None` if it is none.
pub(crate) fn list(text: &str) -> Option<Vec<DeviceConfig>> {
    let mut devices = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (count, name) = match part.split_once('x') {
            Some((count, name)) if count.parse::<usize>().is_ok() => (count.parse().ok()?, name),
            _ => (1, part),
        };
        let device = by_name(name)?;
        if count > crate::config::DEVICES_MAX {
            return None;
        }
        devices.extend(std::iter::repeat_n(device, count));
    }
    Some(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_a_valid_device_at_the_default_scale_and_at_none() {
        for name in names() {
            let device = by_name(name).expect(name);
            for scale in [1, crate::defaults::SCALE] {
                let config = ArenaConfig { scale, devices: vec![device.clone()], ..ArenaConfig::default() };
                config.resolve().unwrap_or_else(|error| panic!("{name} / {scale}: {error}"));
            }
        }
    }

    #[test]
    fn lists_name_cards_with_their_number() {
        let names = |text: &str| {
            list(text).map(|devices| devices.into_iter().map(|device| device.name).collect::<Vec<_>>())
        };
        assert_eq!(names("l4").as_deref(), Some(&["NVIDIA L4".to_owned()][..]));
        let three = names("2xH100-pcie5, P100-pcie3").expect("three cards");
        assert_eq!(three, ["NVIDIA H100 PCIe", "NVIDIA H100 PCIe", "Tesla P100-PCIE-16GB"]);
        for nonsense in ["", "H100", "2x", "0.5xL4", "17xL4", "L4,,L4"] {
            assert_eq!(names(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_profile_given_by_name_cannot_be_altered_by_the_file() {
        let refused = read("[[devices]]\nprofile = \"L4\"\nmap_cost_us = 0\n").unwrap_err();
        assert!(refused.contains("device 0: profile L4 is read-only, so map_cost_us"), "{refused}");
        let refused = read("[[devices]]\n[[devices]]\nprofile = \"L5\"\n").unwrap_err();
        assert!(refused.contains("device 1: profile \"L5\" is none of P100-pcie3"), "{refused}");
        let mut config = ArenaConfig { devices: vec![by_name("L4").unwrap()], ..ArenaConfig::default() };
        config.devices[0].launch_cost_us = 0.0;
        let refused = config.resolve().unwrap_err().to_string();
        assert!(refused.contains("profile L4 is read-only"), "{refused}");
        // Copied, with its numbers written out, it is another card and may be anything.
        config.devices[0].profile = None;
        assert_eq!(config.resolve().unwrap()[0].config.launch_cost_us, 0.0);
        let copied = read(&write(&config).unwrap()).unwrap();
        assert_eq!(copied, config);
    }

    #[test]
    fn a_profile_stands_in_the_file_by_its_name_and_place_alone() {
        let mut config = ArenaConfig { devices: list("2xl4").unwrap(), ..ArenaConfig::default() };
        config.devices[1].uuid = Some("GPU-00000000-0000-0000-0000-000000000009".to_owned());
        let text = write(&config).unwrap();
        assert!(text.contains("profile = \"L4\"") && text.contains("000000000009"), "{text}");
        assert!(!text.contains("memory_bytes"), "{text}");
        assert_eq!(read(&text).unwrap(), config);
    }
}
