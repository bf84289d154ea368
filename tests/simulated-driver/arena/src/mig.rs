//! MIG devices: parts of a device with memory and multiprocessors of their own.
//!
//! Each one is a device of the machine behind the whole ones, with tables, memory file and compute engine of its
//! own, as the parts of a card are isolated; it shares the link of the whole one, which nobody uses directly any
//! more. One compute instance per GPU instance. Which of them a process sees is the driver's business. Words and
//! limits: NVIDIA, Multi-Instance GPU user guide.

use crate::arena::Arena;
use crate::config::{DEVICES_MAX, Device, DeviceConfig, parse_uuid};
use serde::{Deserialize, Serialize};

/// Slices of a device that can be divided.
pub const SLICES: u32 = 7;

/// One MIG device as it stands in `devices.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigConfig {
    /// Compute slices, 1 to 7; they only appear in the name and in answers.
    pub slices: u32,
    /// Capacity before scaling.
    pub memory_bytes: u64,
    /// Number of streaming multiprocessors.
    pub multiprocessor_count: u32,
    /// `MIG-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` or 32 hex digits. Default: derived from the whole device's.
    #[serde(default)]
    pub uuid: Option<String>,
}

/// What part of which device a MIG device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Index of the whole device.
    pub parent: usize,
    /// Position among the parts of that device, as NVML counts them.
    pub index: usize,
    /// Id of the GPU instance; that of its only compute instance is 0.
    pub gpu_instance: u32,
    /// Compute slices.
    pub slices: u32,
}

/// The parts of all `devices`, which follow them.
pub(crate) fn parts(devices: &[Device], scale: u64) -> Result<Vec<Device>, (usize, String)> {
    let mut parts = Vec::new();
    for parent in devices {
        let Some(configs) = &parent.config.mig else { continue };
        check(&parent.config, configs, scale).map_err(|reason| (parent.index, reason))?;
        for (index, part) in configs.iter().enumerate() {
            let place = devices.len() + parts.len();
            let resolved = resolve(parent, part, index, place, scale);
            parts.push(resolved.map_err(|reason| (parent.index, format!("mig {index}: {reason}")))?);
        }
    }
    match devices.len() + parts.len() {
        count if count > DEVICES_MAX => Err((
            0,
            format!("with its MIG devices the machine has {count} devices; {DEVICES_MAX} are possible"),
        )),
        _ => Ok(parts),
    }
}

/// The parent's values are scaled already, those of its parts are not.
fn check(parent: &DeviceConfig, parts: &[MigConfig], scale: u64) -> Result<(), String> {
    let sum = |value: &dyn Fn(&MigConfig) -> u64| parts.iter().map(value).fold(0, u64::saturating_add);
    let limits = [
        ("slices", sum(&|part| part.slices.into()), SLICES.into()),
        ("memory_bytes", sum(&|part| part.memory_bytes / scale), parent.memory_bytes),
        (
            "multiprocessor_count",
            sum(&|part| part.multiprocessor_count.into()),
            parent.multiprocessor_count.into(),
        ),
    ];
    match limits.into_iter().find(|(_, taken, limit)| taken > limit) {
        Some((key, taken, limit)) => {
            Err(format!("its MIG devices have {key} {taken} together, above {limit}"))
        }
        None => Ok(()),
    }
}

fn resolve(
    parent: &Device,
    part: &MigConfig,
    index: usize,
    place: usize,
    scale: u64,
) -> Result<Device, String> {
    if part.slices == 0 || part.multiprocessor_count == 0 {
        return Err("slices and multiprocessor_count must not be 0".to_owned());
    }
    let granularity = parent.config.granularity_bytes;
    let frames = part.memory_bytes / scale / granularity;
    if frames == 0 {
        return Err(format!("memory_bytes {} / scale {scale} is less than {granularity}", part.memory_bytes));
    }
    let uuid = match &part.uuid {
        Some(text) => parse_uuid(text).ok_or_else(|| format!("uuid {text:?} has not 32 hex digits"))?,
        None => derived_uuid(parent.uuid, index),
    };
    let config = DeviceConfig {
        // As nvidia-smi and deviceQuery name them: "NVIDIA A100-SXM4-80GB MIG 1g.10gb".
        name: format!("{} MIG {}g.{}gb", parent.config.name, part.slices, part.memory_bytes >> 30),
        memory_bytes: frames * granularity,
        multiprocessor_count: part.multiprocessor_count,
        instructions_per_s: parent.config.instructions_per_s * u64::from(part.multiprocessor_count)
            / u64::from(parent.config.multiprocessor_count),
        mig: None,
        ..parent.config.clone()
    };
    let instance =
        Instance { parent: parent.index, index, gpu_instance: index as u32 + 1, slices: part.slices };
    Ok(Device { index: place, uuid, pci_bus_id: parent.pci_bus_id.clone(), config, instance: Some(instance) })
}

/// The parent's with its first bytes changed, so that an abbreviation tells the parts apart.
fn derived_uuid(mut uuid: [u8; 16], index: usize) -> [u8; 16] {
    uuid[0] ^= 0x80;
    uuid[1] ^= 1 + index as u8;
    uuid
}

impl Device {
    /// Whether it is in MIG mode, with or without parts.
    pub fn is_divided(&self) -> bool {
        self.config.mig.is_some()
    }

    /// The whole device that it is or is a part of.
    pub fn whole(&self) -> usize {
        self.instance.map_or(self.index, |instance| instance.parent)
    }

    /// Its UUID as programs print it: `GPU-` or `MIG-`, and the usual groups of hex digits.
    pub fn uuid_text(&self) -> String {
        let hex: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let kind = if self.instance.is_some() { "MIG" } else { "GPU" };
        format!("{kind}-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl Arena {
    /// The whole devices.
    pub fn whole_devices(&self) -> &[Device] {
        let count = self.devices().iter().take_while(|device| device.instance.is_none()).count();
        &self.devices()[..count]
    }

    /// The parts of a whole device.
    pub fn parts_of(&self, device: usize) -> impl Iterator<Item = &Device> {
        let is_part = move |part: &&Device| part.instance.is_some_and(|instance| instance.parent == device);
        self.devices().iter().filter(is_part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArenaConfig, Direction, TemporaryMachine};

    const TWO: &str = "[[devices]]\n[[devices.mig]]\nslices = 3\nmemory_bytes = 42949672960\n\
         multiprocessor_count = 42\n[[devices.mig]]\nslices = 1\nmemory_bytes = 10737418240\n\
         multiprocessor_count = 14\nuuid = \"MIG-00112233-4455-6677-8899-aabbccddeeff\"\n[[devices]]\n";

    #[test]
    fn parts_follow_the_whole_devices_and_have_memory_of_their_own() {
        let config: ArenaConfig = toml::from_str(TWO).unwrap();
        let machine = TemporaryMachine::new(&config).unwrap();
        let arena = Arena::open_at(machine.directory()).unwrap();
        assert_eq!((arena.devices().len(), arena.whole_devices().len()), (4, 2));
        assert!(arena.devices()[0].is_divided() && !arena.devices()[1].is_divided());
        let parts: Vec<&Device> = arena.parts_of(0).collect();
        assert_eq!([parts[0].index, parts[1].index], [2, 3]);
        assert_eq!(parts[1].instance.unwrap(), Instance { parent: 0, index: 1, gpu_instance: 2, slices: 1 });
        assert_eq!(parts[0].config.name, "Simulated GPU 80GB MIG 3g.40gb");
        assert_eq!(parts[1].uuid_text(), "MIG-00112233-4455-6677-8899-aabbccddeeff");
        assert!(parts[0].uuid_text().starts_with("MIG-") && parts[0].uuid != arena.devices()[0].uuid);
        arena.allocate(3, 1 << 20).unwrap();
        let used = [0, 1, 2, 3].map(|device| {
            let memory = arena.memory(device).unwrap();
            memory.total_bytes - memory.free_bytes
        });
        assert_eq!(used, [0, 0, 0, 1 << 20]);
        assert_eq!(arena.memory(3).unwrap().total_bytes, (10 << 30) / 64);
        assert_eq!(arena.parts_of(1).count(), 0);
    }

    #[test]
    fn parts_share_the_link_and_nothing_inside() {
        let config: ArenaConfig = toml::from_str(TWO).unwrap();
        let machine = TemporaryMachine::new(&config).unwrap();
        let arena = Arena::open_at(machine.directory()).unwrap();
        let book = |device, direction| arena.link_reserve(device, direction, 64 << 20).unwrap();
        let (first, second) = (book(2, Direction::HostToDevice), book(3, Direction::HostToDevice));
        let length_ns = (64 << 20) * 1_000_000_000 / arena.devices()[2].config.host_to_device_bytes_per_s;
        assert!(second - first >= length_ns, "one after the other: {first} and {second}");
        let (first, second) = (book(2, Direction::DeviceToDevice), book(3, Direction::DeviceToDevice));
        let length_ns = (64 << 20) * 1_000_000_000 / arena.devices()[2].config.device_to_device_bytes_per_s;
        assert!(second - first < length_ns, "at once: {first} and {second}");
    }

    #[test]
    fn parts_are_not_more_than_the_whole() {
        for (from, to, complaint) in [
            ("slices = 3", "slices = 7", "slices 8"),
            ("= 42949672960", "= 85899345920", "memory_bytes"),
            ("_count = 42", "_count = 100", "multiprocessor_count 114"),
            ("slices = 3", "slices = 0", "mig 0"),
            ("= 10737418240", "= 1", "mig 1"),
            ("MIG-0011", "MIG-00x1", "uuid"),
        ] {
            let config: ArenaConfig = toml::from_str(&TWO.replace(from, to)).unwrap();
            let error = config.resolve().unwrap_err().to_string();
            assert!(error.contains(complaint) && !error.contains('\n'), "{to}: {error}");
        }
    }
}
