//! The default card, each number with its source, and what is derived from a device's index.
//!
//! Only numbers stand here; `config.rs` checks and scales them. A test or demo that needs another card writes
//! its own `devices.toml`.

use crate::config::DeviceConfig;
use crate::modes::ComputeMode;

/// 80 GiB become 1.25 GiB and 2 MiB become 32 KiB: fits small machines, times unchanged.
pub(crate) const SCALE: u64 = 64;

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            name: "Simulated GPU 80GB".to_owned(),
            uuid: None,
            pci_bus_id: None,
            memory_bytes: 80 << 30,
            // CUDA driver API, cuMemGetAllocationGranularity: 2 MiB on all cards so far.
            granularity_bytes: 2 << 20,
            // nvbandwidth README, PCIe 4 x16, pinned host memory: 26.0 GB/s one way, 18.6 per direction both.
            host_to_device_bytes_per_s: 26_000_000_000,
            device_to_host_bytes_per_s: 26_000_000_000,
            duplex_bytes_per_s: 18_600_000_000,
            // Half of an A100's 2 TB/s (data sheet), since a copy reads and writes, less 20 % overhead.
            device_to_device_bytes_per_s: 800_000_000_000,
            // Reports on torch_memory_saver (issue 111): unmap + release a few ms per GiB with large handles,
            // which is some ten microseconds per 2 MiB and some hundred per large handle. Not measured here.
            map_cost_us: 100,
            unmap_cost_us: 100,
            create_cost_us: 100,
            // A few hundred MiB per context with the usual libraries loaded; not measured here.
            context_bytes: 400 << 20,
            context_cost_us: 100_000,
            module_bytes: 2 << 20,
            // CUDA C++ Best Practices: a launch costs a few microseconds.
            launch_cost_us: 3,
            compute_major: 8,
            compute_minor: 0,
            multiprocessor_count: 108,
            compute_mode: ComputeMode::Default,
            mig: None,
        }
    }
}

/// A version 8 UUID that is the same on every machine for the same index.
pub(crate) fn uuid(index: usize) -> [u8; 16] {
    let mut uuid = *b"turnus-sim-gpu\0\0";
    uuid[14..].copy_from_slice(&(index as u16).to_be_bytes());
    uuid[6] = 0x80 | (uuid[6] & 0x0f);
    uuid[8] = 0x80 | (uuid[8] & 0x3f);
    uuid
}

/// Bus numbers from 1 upwards in domain 0.
pub(crate) fn pci_bus_id(index: usize) -> String {
    format!("0000:{:02x}:00.0", index + 1)
}
