//! What the simulated machine looks like: the environment table, `devices.toml`, and the effective devices.
//!
//! The file holds the numbers of the real card and one `scale`; [`ArenaConfig::resolve`] divides capacity,
//! granularity and rates by it, so that every time stays what it would be on the card. Nothing here touches
//! shared memory. `defaults.rs` has the default card with its sources, `arena.rs` the opening.

use crate::costs;
use crate::defaults;
use crate::mig::{self, Instance, MigConfig};
use crate::modes::ComputeMode;
use crate::profiles;
use serde::{Deserialize, Serialize};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Directory of the simulated machine. Default: `/dev/shm/simulated-cuda-<uid>`.
pub const DIRECTORY_VARIABLE: &str = "SIMULATED_CUDA_DIR";
/// Number of default devices ("2"), names of cards ("2xH100-pcie5,L4"), or path of a TOML file; read only by the first opener of a directory that
/// has no `devices.toml` yet. Default: "1".
pub const DEVICES_VARIABLE: &str = "SIMULATED_CUDA_DEVICES";
/// Name of the configuration inside the directory.
pub const CONFIG_FILE: &str = "devices.toml";

/// What the driver reports as its version, e.g. 12040 for CUDA 12.4: a number, by default [`NEWEST_VERSION`].
pub const DRIVER_VERSION_VARIABLE: &str = "SIMULATED_CUDA_DRIVER_VERSION";
/// The newest CUDA version that the simulated driver knows.
pub const NEWEST_VERSION: u32 = 13050;

/// Most devices one machine can have.
pub const DEVICES_MAX: usize = 16;
/// Smallest granularity: one page of the backing file.
pub const GRANULARITY_BYTES_MIN: u64 = 4096;
const FRAMES_MAX: u64 = 1 << 26;
/// Most bytes of a device as it is simulated: all of them are mapped.
const MEMORY_BYTES_MAX: u64 = 1 << 40;
/// More than any card has.
const MULTIPROCESSORS_MAX: u32 = 1024;
const CAPABILITY_MAX: u32 = 99;
/// Longest configuration file that is read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The version of CUDA that the environment asks the libraries to report; read anew at each call.
pub fn driver_version() -> u32 {
    let Ok(text) = std::env::var(DRIVER_VERSION_VARIABLE) else { return NEWEST_VERSION };
    text.parse().unwrap_or_else(|_| {
        eprintln!(
            "simulated driver: {DRIVER_VERSION_VARIABLE}={text} is not a number; using {NEWEST_VERSION}"
        );
        NEWEST_VERSION
    })
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not the TOML that [`ArenaConfig`] describes.
    #[error("{}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, key and complaint of the parser.
        reason: String,
    },
    /// `SIMULATED_CUDA_DEVICES` is neither a number in range, nor names of cards, nor a file.
    #[error(
        "{DEVICES_VARIABLE}={value:?} is neither a number from 1 to {DEVICES_MAX}, nor a readable file, nor a list \
         of {}", profiles::names().collect::<Vec<_>>().join(", ")
    )]
    Environment {
        /// The value found.
        value: String,
    },
    /// A machine-wide value is out of range.
    #[error("simulated machine: {reason}")]
    Machine {
        /// Which value and why.
        reason: String,
    },
    /// A value of one device is out of range.
    #[error("simulated device {index}: {reason}")]
    Device {
        /// Position in `devices`.
        index: usize,
        /// Which value and why.
        reason: String,
    },
}

/// The whole configuration as it stands in `devices.toml`, in numbers of the real card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArenaConfig {
    /// Divides capacities, granularity and rates of all devices. 1 = as on the card.
    pub scale: u64,
    /// Multiplies all times: 0.1 makes everything ten times as fast, in the same order.
    pub time_factor: f64,
    /// How long freed memory stays unavailable, in milliseconds, over the time of its erasure (at
    /// `device_to_device_bytes_per_s`, one release after the other). 0 = it is free at once.
    pub scrub_delay_ms: u64,
    /// Time that pinned memory takes to allocate, in milliseconds per GiB.
    pub host_allocation_ms_per_gib: f64,
    /// Time that host memory in pages of 4 KiB takes to register, in milliseconds per GiB.
    pub host_registration_ms_per_gib: f64,
    /// The same in pages of 2 MiB or more.
    pub host_registration_huge_ms_per_gib: f64,
    /// Whether devices reach each other's memory.
    pub peer_access: bool,
    /// The devices by index.
    pub devices: Vec<DeviceConfig>,
}

/// One device as it stands in `devices.toml`. Rates of 0 mean "not limited".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceConfig {
    /// Name of a card of `profiles.rs`, whose numbers then are this device's and cannot be changed beside it.
    pub profile: Option<String>,
    /// Product name.
    pub name: String,
    /// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` or 32 hex digits. Default: derived from the index.
    pub uuid: Option<String>,
    /// `domain:bus:device.function` in hex. Default: derived from the index.
    pub pci_bus_id: Option<String>,
    /// Capacity before scaling.
    pub memory_bytes: u64,
    /// Smallest unit of physical memory before scaling.
    pub granularity_bytes: u64,
    /// Rate of the link towards the device while the other direction is idle.
    pub host_to_device_bytes_per_s: u64,
    /// Rate of the link towards the host while the other direction is idle.
    pub device_to_host_bytes_per_s: u64,
    /// Rate per direction while both directions are busy.
    pub duplex_bytes_per_s: u64,
    /// Rate of copies inside the device.
    pub device_to_device_bytes_per_s: u64,
    /// Cost of creating one handle, in microseconds. All costs from here to `release_ms_per_gib` are spent
    /// under one lock of the whole machine.
    pub create_cost_us: f64,
    /// What its size adds, in milliseconds per GiB.
    pub create_ms_per_gib: f64,
    /// Cost of one map operation, in microseconds.
    pub map_cost_us: f64,
    /// Cost of giving access to one mapping, in microseconds.
    pub access_cost_us: f64,
    /// Cost of one unmap operation, in microseconds.
    pub unmap_cost_us: f64,
    /// What its size adds, in milliseconds per GiB.
    pub unmap_ms_per_gib: f64,
    /// Cost of giving memory back, in microseconds.
    pub release_cost_us: f64,
    /// What its size adds, in milliseconds per GiB.
    pub release_ms_per_gib: f64,
    /// Device memory that a context takes, before scaling; 1 KiB of local memory per thread is part of it.
    pub context_bytes: u64,
    /// Time that creating a context takes, in microseconds.
    pub context_cost_us: f64,
    /// Device memory that a loaded module takes, before scaling.
    pub module_bytes: u64,
    /// Time that loading a module takes, in microseconds.
    pub module_cost_us: f64,
    /// Whether contexts grow with the local memory that their kernels need.
    pub local_memory_cost: bool,
    /// Cost of one kernel launch on the device, in microseconds.
    pub launch_cost_us: f64,
    /// Instructions of single threads that the device executes per second; the time of a kernel is at least
    /// their number by this rate.
    pub instructions_per_s: u64,
    /// Longest time that one process has the compute engine while others wait, in microseconds.
    pub time_slice_us: f64,
    /// Major compute capability.
    pub compute_major: u32,
    /// Minor compute capability.
    pub compute_minor: u32,
    /// Number of streaming multiprocessors.
    pub multiprocessor_count: u32,
    /// Who may have contexts: `default`, `exclusive_process` or `prohibited`. Read when the machine is made.
    pub compute_mode: ComputeMode,
    /// MIG devices that it is divided into; an empty list: MIG mode without any. See `mig.rs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<Vec<MigConfig>>,
    /// Threads that one of them holds.
    pub threads_per_multiprocessor: u32,
}

/// One device as the machine has it: scaled, checked, nothing optional.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Position, as CUDA counts devices.
    pub index: usize,
    /// 16 bytes as `cuDeviceGetUuid_v2` returns them.
    pub uuid: [u8; 16],
    /// Lower case `domain:bus:device.function`.
    pub pci_bus_id: String,
    /// Scaled values; `memory_bytes` is a multiple of `granularity_bytes`.
    pub config: DeviceConfig,
    /// What part of which device it is, for MIG devices; they follow the whole ones.
    pub instance: Option<Instance>,
}

impl Device {
    /// `memory_bytes / granularity_bytes`.
    pub fn frame_count(&self) -> u64 {
        self.config.memory_bytes / self.config.granularity_bytes
    }
}

impl Default for ArenaConfig {
    fn default() -> Self {
        ArenaConfig::with_devices(1)
    }
}

impl ArenaConfig {
    /// `count` default cards at the default scale.
    pub fn with_devices(count: usize) -> Self {
        Self {
            scale: defaults::SCALE,
            time_factor: 1.0,
            scrub_delay_ms: defaults::SCRUB_DELAY_MS,
            host_allocation_ms_per_gib: defaults::HOST_ALLOCATION_MS_PER_GIB,
            host_registration_ms_per_gib: defaults::HOST_REGISTRATION_MS_PER_GIB,
            host_registration_huge_ms_per_gib: defaults::HOST_REGISTRATION_HUGE_MS_PER_GIB,
            peer_access: true,
            devices: vec![DeviceConfig::default(); count],
        }
    }

    /// What the environment asks for when the directory has no configuration yet.
    pub fn from_environment() -> Result<Self, ConfigError> {
        let value = std::env::var(DEVICES_VARIABLE).unwrap_or_else(|_| "1".to_owned());
        match value.parse::<usize>() {
            Ok(count) if (1..=DEVICES_MAX).contains(&count) => Ok(Self::with_devices(count)),
            Ok(_) => Err(ConfigError::Environment { value }),
            Err(_) if Path::new(&value).is_file() => Self::read(Path::new(&value)),
            Err(_) => match profiles::list(&value) {
                Some(devices) => Ok(Self { devices, ..Self::default() }),
                None => Err(ConfigError::Environment { value }),
            },
        }
    }

    /// Read a configuration file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_text(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
        profiles::read(&text).map_err(|reason| ConfigError::Syntax { path: path.to_owned(), reason })
    }

    /// Write `<directory>/devices.toml` unless there is one; the directory is made when missing. The file
    /// appears whole or not at all. Returns whether this call wrote it. Invalid values are refused.
    pub fn write(&self, directory: &Path) -> Result<bool, ConfigError> {
        self.resolve()?;
        let text = profiles::write(self)
            .map_err(|reason| ConfigError::Syntax { path: directory.join(CONFIG_FILE), reason })?;
        crate::files::make_directory(directory)
            .and_then(|_| crate::files::publish(directory, CONFIG_FILE, text.as_bytes()))
            .map_err(|source| ConfigError::File { path: directory.join(CONFIG_FILE), source })
    }

    /// Check all values and compute the devices in their scaled form.
    pub fn resolve(&self) -> Result<Vec<Device>, ConfigError> {
        let machine = |reason: String| Err(ConfigError::Machine { reason });
        if self.scale == 0 {
            return machine("scale is 0; 1 means as on the card".to_owned());
        }
        costs::check_machine(self).map_err(|reason| ConfigError::Machine { reason })?;
        if self.devices.is_empty() || self.devices.len() > DEVICES_MAX {
            return machine(format!("{} devices; 1 to {DEVICES_MAX} are possible", self.devices.len()));
        }
        let mut devices = (self.devices.iter().enumerate())
            .map(|(index, device)| {
                device
                    .resolve(index, self.scale, self.time_factor)
                    .map_err(|reason| ConfigError::Device { index, reason })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let parts = mig::parts(&devices, self.scale)
            .map_err(|(index, reason)| ConfigError::Device { index, reason })?;
        devices.extend(parts);
        for (index, device) in devices.iter().enumerate() {
            let twin = devices[..index].iter().find(|other| other.uuid == device.uuid);
            if let Some(twin) = twin {
                let reason = format!("has the uuid of device {}", twin.index);
                return Err(ConfigError::Device { index, reason });
            }
        }
        Ok(devices)
    }
}

impl DeviceConfig {
    fn resolve(&self, index: usize, scale: u64, time_factor: f64) -> Result<Device, String> {
        profiles::check_unchanged(self)?;
        if self.name.is_empty() || self.name.len() > 255 {
            return Err("name must have 1 to 255 bytes".to_owned());
        }
        if self.compute_major == 0 || self.multiprocessor_count == 0 || self.threads_per_multiprocessor == 0 {
            return Err(
                "compute_major, multiprocessor_count and threads_per_multiprocessor must not be 0".to_owned()
            );
        }
        if self.compute_major.max(self.compute_minor) > CAPABILITY_MAX
            || self.multiprocessor_count > MULTIPROCESSORS_MAX
        {
            return Err(format!(
                "compute_major, compute_minor or multiprocessor_count is above {CAPABILITY_MAX}, {CAPABILITY_MAX} or \
                 {MULTIPROCESSORS_MAX}"
            ));
        }
        let granularity = self.granularity_bytes / scale;
        if granularity < GRANULARITY_BYTES_MIN
            || !granularity.is_multiple_of(GRANULARITY_BYTES_MIN)
            || granularity * scale != self.granularity_bytes
        {
            return Err(format!(
                "granularity_bytes {} / scale {scale} must be a multiple of {GRANULARITY_BYTES_MIN}",
                self.granularity_bytes
            ));
        }
        let frames = self.memory_bytes / scale / granularity;
        if frames == 0 || frames > FRAMES_MAX {
            return Err(format!(
                "memory_bytes {} / scale {scale} gives {frames} units of {granularity} bytes; \
                 1 to {FRAMES_MAX} are possible",
                self.memory_bytes
            ));
        }
        if frames * granularity > MEMORY_BYTES_MAX {
            return Err(format!(
                "memory_bytes {} / scale {scale} is above {MEMORY_BYTES_MAX}; a larger scale makes it fit",
                self.memory_bytes
            ));
        }
        let mut config = self.clone();
        config.granularity_bytes = granularity;
        config.memory_bytes = frames * granularity;
        config.context_bytes /= scale;
        config.module_bytes /= scale;
        for rate in config.rates() {
            // A limited rate must not turn into 0, which means "not limited".
            let scaled = *rate as f64 / scale as f64 / time_factor;
            *rate = if *rate == 0 { 0 } else { (scaled as u64).max(1) };
        }
        config.scale_times(scale as f64, time_factor)?;
        for single in [config.host_to_device_bytes_per_s, config.device_to_host_bytes_per_s] {
            let duplex = config.duplex_bytes_per_s;
            if single != 0 && duplex > single {
                return Err("duplex_bytes_per_s is above the rate of a direction alone".to_owned());
            }
        }
        let uuid = match &self.uuid {
            Some(text) => parse_uuid(text).ok_or_else(|| format!("uuid {text:?} has not 32 hex digits"))?,
            None => defaults::uuid(index),
        };
        let pci_bus_id = match &self.pci_bus_id {
            Some(text) => {
                parse_pci(text).ok_or_else(|| format!("pci_bus_id {text:?} is not like 0000:01:00.0"))?
            }
            None => defaults::pci_bus_id(index),
        };
        Ok(Device { index, uuid, pci_bus_id, config, instance: None })
    }

    fn rates(&mut self) -> [&mut u64; 5] {
        [
            &mut self.instructions_per_s,
            &mut self.host_to_device_bytes_per_s,
            &mut self.device_to_host_bytes_per_s,
            &mut self.duplex_bytes_per_s,
            &mut self.device_to_device_bytes_per_s,
        ]
    }
}

/// The text of a file, if it is one of a sensible length.
fn read_text(path: &Path) -> std::io::Result<String> {
    let other = |what: &'static str| std::io::Error::new(std::io::ErrorKind::InvalidInput, what);
    // A pipe would keep the reader waiting.
    if !std::fs::metadata(path)?.is_file() {
        return Err(other("is not a file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        return Err(other("is too long for a configuration"));
    }
    String::from_utf8(bytes).map_err(|_| other("is not a text in UTF-8"))
}

pub(crate) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits = text.strip_prefix("GPU-").or(text.strip_prefix("MIG-")).unwrap_or(text);
    let digits: String = digits.chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

fn parse_pci(text: &str) -> Option<String> {
    let (address, function) = text.split_once('.')?;
    let parts: Vec<&str> = address.split(':').collect();
    let [domain, bus, device] = parts.as_slice() else { return None };
    let hex = |part: &str, longest: usize| {
        (1..=longest).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    (hex(domain, 8) && hex(bus, 2) && hex(device, 2) && hex(function, 1)).then(|| text.to_ascii_lowercase())
}
