//! Named cards: their numbers, each with its source. Read-only; a `devices.toml` describes any other card.
//!
//! Names, memory and units are those of NVIDIA's data sheets; the memory in MiB is what `nvidia-smi` shows,
//! from memory, rounded to the granularity. What nobody has published (costs of contexts and of map operations
//! with large handles) is that of the default card. Times of kernels are not modelled: PTX is interpreted.

use crate::config::DeviceConfig;

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
}

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
    },
    Profile {
        name: "A100-pcie4",
        product: "NVIDIA A100 80GB PCIe",
        memory_mib: 81920,
        memory_rate: 1935,
        link: PCIE_4,
        capability: (8, 0),
        multiprocessors: 108,
    },
    Profile {
        name: "H100-pcie5",
        product: "NVIDIA H100 PCIe",
        memory_mib: 81558,
        memory_rate: 2000,
        link: PCIE_5,
        capability: (9, 0),
        multiprocessors: 114,
    },
    Profile {
        name: "H200-pcie5",
        product: "NVIDIA H200",
        memory_mib: 143_770,
        memory_rate: 4800,
        link: PCIE_5,
        capability: (9, 0),
        multiprocessors: 132,
    },
    Profile {
        name: "L4",
        product: "NVIDIA L4",
        memory_mib: 23034,
        memory_rate: 300,
        link: PCIE_4,
        capability: (8, 9),
        multiprocessors: 58,
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
        ..DeviceConfig::default()
    })
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
    use crate::config::ArenaConfig;

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
}
