//! What operations of the driver cost in time, most of it under one lock of the whole machine.
//!
//! Mapping operations of all processes on all devices pass one after the other: four processes on four L40S
//! reached 1.1 to 1.9 times the rate of one (kvcached, bench_map_parallelism), of 4 that independence would
//! give; here it is 1. Pinning host memory holds up other starts of CUDA and nvidia-smi too (reports on
//! TensorRT-LLM, pull request 15431), so it is under the same lock. As on the links (`link.rs`) the lock is one
//! word, from which each user reserves a stretch of time.

use crate::arena::Arena;
use crate::clock::sleep_until;
use crate::config::{ArenaConfig, DeviceConfig};
use crate::error::ArenaError;
use crate::link::{GAP_NS, reserve, transfer_ns};

/// An hour in microseconds; also the limit of milliseconds per GiB.
const COST_MAX: f64 = 3_600_000_000.0;
/// Who keeps the engine for much longer is taken for stopped (`engine.rs`).
const TIME_SLICE_US_MAX: f64 = 20_000.0;

/// Operation on device memory under the machine-wide lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Create a handle.
    Create,
    /// Map a handle.
    Map,
    /// Give access to a mapping.
    Access,
    /// Unmap a mapping.
    Unmap,
    /// Give the memory of a handle back.
    Release,
}

/// Operation on host memory under the same lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOperation {
    /// Allocate pinned memory.
    Allocate,
    /// Register memory in pages of 4 KiB.
    Register,
    /// Register memory in pages of 2 MiB or more.
    RegisterHuge,
}

/// Microseconds per operation and milliseconds per GiB.
fn cost(config: &DeviceConfig, operation: Operation) -> (f64, f64) {
    match operation {
        Operation::Create => (config.create_cost_us, config.create_ms_per_gib),
        Operation::Map => (config.map_cost_us, 0.0),
        Operation::Access => (config.access_cost_us, 0.0),
        Operation::Unmap => (config.unmap_cost_us, config.unmap_ms_per_gib),
        Operation::Release => (config.release_cost_us, config.release_ms_per_gib),
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// A time that must not be negative, absurd, or no number.
fn check(name: &str, value: f64) -> Result<(), String> {
    if value > COST_MAX {
        return Err(format!("{name} {value} is above an hour"));
    }
    if value >= 0.0 { Ok(()) } else { Err(format!("{name} {value} is no time")) }
}

/// Check the values of the machine that are times.
pub(crate) fn check_machine(config: &ArenaConfig) -> Result<(), String> {
    if !(1e-3..=1e3).contains(&config.time_factor) {
        return Err(format!("time_factor {} is not between 0.001 and 1000", config.time_factor));
    }
    if config.scrub_delay_ms as f64 > COST_MAX / 1e3 {
        return Err(format!("scrub_delay_ms {} is above an hour", config.scrub_delay_ms));
    }
    check("host_allocation_ms_per_gib", config.host_allocation_ms_per_gib)?;
    check("host_registration_ms_per_gib", config.host_registration_ms_per_gib)?;
    check("host_registration_huge_ms_per_gib", config.host_registration_huge_ms_per_gib)
}

impl DeviceConfig {
    /// Check all times and change them to those of the machine: a byte of it stands for `scale` bytes.
    pub(crate) fn scale_times(&mut self, scale: f64, time_factor: f64) -> Result<(), String> {
        for (name, cost_us) in self.costs_us() {
            check(name, *cost_us)?;
            *cost_us *= time_factor;
        }
        for (name, cost) in self.costs_ms_per_gib() {
            check(name, *cost)?;
            *cost *= scale * time_factor;
        }
        if !(1.0..=TIME_SLICE_US_MAX).contains(&self.time_slice_us) {
            return Err(format!(
                "time_slice_us {}, times time_factor, is not between 1 and {TIME_SLICE_US_MAX}",
                self.time_slice_us
            ));
        }
        Ok(())
    }

    fn costs_us(&mut self) -> [(&'static str, &mut f64); 9] {
        [
            ("create_cost_us", &mut self.create_cost_us),
            ("map_cost_us", &mut self.map_cost_us),
            ("access_cost_us", &mut self.access_cost_us),
            ("unmap_cost_us", &mut self.unmap_cost_us),
            ("release_cost_us", &mut self.release_cost_us),
            ("context_cost_us", &mut self.context_cost_us),
            ("module_cost_us", &mut self.module_cost_us),
            ("launch_cost_us", &mut self.launch_cost_us),
            ("time_slice_us", &mut self.time_slice_us),
        ]
    }

    fn costs_ms_per_gib(&mut self) -> [(&'static str, &mut f64); 3] {
        [
            ("create_ms_per_gib", &mut self.create_ms_per_gib),
            ("unmap_ms_per_gib", &mut self.unmap_ms_per_gib),
            ("release_ms_per_gib", &mut self.release_ms_per_gib),
        ]
    }
}

impl Arena {
    /// Wait for the machine-wide lock and spend the time of `count` operations on `bytes` in all under it.
    pub fn mapping_cost(
        &self,
        device: usize,
        operation: Operation,
        count: u64,
        bytes: u64,
    ) -> Result<(), ArenaError> {
        let (per_operation_us, ms_per_gib) = cost(&self.device(device)?.config, operation);
        self.spend_locked(per_operation_us * 1e3 * count as f64 + ms_per_gib * 1e6 * gib(bytes));
        Ok(())
    }

    /// Wait for the machine-wide lock and spend the time of pinning `bytes` of host memory under it. A byte of
    /// host memory stands for as many bytes as one of a device does.
    pub fn host_cost(&self, operation: HostOperation, bytes: u64) {
        let config = &self.config;
        let ms_per_gib = match operation {
            HostOperation::Allocate => config.host_allocation_ms_per_gib,
            HostOperation::Register => config.host_registration_ms_per_gib,
            HostOperation::RegisterHuge => config.host_registration_huge_ms_per_gib,
        };
        self.spend_locked(ms_per_gib * 1e6 * gib(bytes) * config.scale as f64 * config.time_factor);
    }

    /// Wait until the machine-wide lock is free, as whoever starts CUDA must.
    pub fn wait_for_lock(&self) {
        sleep_until(self.shared.header().mapping_next_ns.load(std::sync::atomic::Ordering::Relaxed));
    }

    fn spend_locked(&self, cost_ns: f64) {
        if cost_ns > 0.0 {
            sleep_until(reserve(&self.shared.header().mapping_next_ns, GAP_NS, |_| cost_ns as u64));
        }
    }

    /// When memory that is freed now will be erased; `None` when that takes no time.
    pub(crate) fn scrubbed_at_ns(&self, device: usize, bytes: u64) -> Option<u64> {
        if self.config.scrub_delay_ms == 0 {
            return None;
        }
        let delay_ns = self.config.scrub_delay_ms as f64 * 1e6 * self.config.time_factor;
        let rate = self.devices()[device].config.device_to_device_bytes_per_s;
        let erasing_ns = if rate == 0 { 0 } else { transfer_ns(bytes, rate) };
        let next_ns = &self.shared.device(device).tables.scrub_next_ns;
        Some(reserve(next_ns, 0, |_| erasing_ns) + delay_ns as u64)
    }
}
