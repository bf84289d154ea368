//! The default card, each number with its source, and what is derived from a device's index.
//!
//! Only numbers stand here; `config.rs` checks and scales them. A test or demo that needs another card writes
//! its own `devices.toml`.

use crate::config::DeviceConfig;
use crate::modes::ComputeMode;

/// 80 GiB become 1.25 GiB and 2 MiB become 32 KiB: fits small machines, times unchanged.
pub(crate) const SCALE: u64 = 64;

/// Freed memory is erased before it can be had again (NVIDIA's open kernel modules, scrub-on-free), behind the
/// back of who freed it. How long that takes to begin and to be seen is not published: an assumption.
pub(crate) const SCRUB_DELAY_MS: u64 = 2;

/// `cuMemHostAlloc`: 0.34 s per GiB on a server with 8 H100 (ai-dynamo, pull request 13710), 0.49 on a small
/// virtual machine (cudf, issue 23457).
pub(crate) const HOST_ALLOCATION_MS_PER_GIB: f64 = 340.0;
/// The same reports, memory that was touched before by many threads: 0.115 s per GiB in pages of 4 KiB.
pub(crate) const HOST_REGISTRATION_MS_PER_GIB: f64 = 115.0;
/// The same reports: 0.097 s per GiB in huge pages.
pub(crate) const HOST_REGISTRATION_HUGE_MS_PER_GIB: f64 = 97.0;

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            profile: None,
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
            // kvcached's bench_vmm on an A100, handles of 2 MiB: create 193 us, map 1.45, set access 36, unmap 25.6.
            // Reports on torch_memory_saver (issue 111) for large handles: unmap and release a few ms per GiB.
            // So each cost has a part per operation and one per byte: 2 ms per GiB are 4 us of those 2 MiB.
            // How the few milliseconds divide, and that creating costs as much as releasing, are assumptions.
            create_cost_us: 189.0,
            create_ms_per_gib: 2.0,
            map_cost_us: 1.45,
            access_cost_us: 36.0,
            unmap_cost_us: 23.6,
            unmap_ms_per_gib: 1.0,
            // vAttention (table of latencies, from memory): about as much as an unmap for 2 MiB.
            release_cost_us: 19.0,
            release_ms_per_gib: 2.0,
            // A few hundred MiB per context with the usual libraries loaded; not measured here.
            context_bytes: 400 << 20,
            // An assumption: tenths of a second are what people report of cuInit and a context.
            context_cost_us: 100_000.0,
            module_bytes: 2 << 20,
            // An assumption, for a module without PTX to compile.
            module_cost_us: 300.0,
            local_memory_cost: true,
            // CUDA C++ Best Practices: a launch costs a few microseconds.
            launch_cost_us: 3.0,
            // A100 data sheet: 19.5 TFLOPS in single precision, two operations per instruction.
            instructions_per_s: 9_750_000_000_000,
            // NVIDIA's open kernel modules: slices of 128 << 3 = 1024 us by default, from Volta on.
            time_slice_us: 1024.0,
            compute_major: 8,
            compute_minor: 0,
            multiprocessor_count: 108,
            compute_mode: ComputeMode::Default,
            mig: None,
            // CUDA C++ Programming Guide, compute capabilities: 2048 on 6.0, 7.0, 8.0 and 9.0.
            threads_per_multiprocessor: 2048,
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
