//! What the simulated card is where the configuration of the machine does not say it: an A100 PCIe 80 GB.
//!
//! All constants of NVML's answers stand here, each with its source, and the few models that turn measured
//! load into degrees and watts. The driver's `device/attributes.rs` describes the same card.

/// Vendor 10de, device 20b5, as in the driver's attributes.
pub const PCI_DEVICE_ID: u32 = 0x20b5_10de;
/// As in the driver's attributes.
pub const PCI_SUBSYSTEM_ID: u32 = 0x1533_10de;
/// PCI code and ID assignment specification: display controller, of the kind "3D".
pub const PCI_BASE_CLASS: u32 = 3;
/// As above.
pub const PCI_SUB_CLASS: u32 = 2;
/// NVIDIA A100 data sheet: PCIe 4.0 with 16 lanes.
pub const PCIE_GENERATION: u32 = 4;
/// As above.
pub const PCIE_WIDTH: u32 = 16;
/// 16 GT/s per lane are what PCIe 4.0 has, in units of Mbit/s per lane.
pub const PCIE_SPEED_MBPS: u32 = 16_000;
/// `NVML_PCIE_LINK_MAX_SPEED_16000MBPS`.
pub const PCIE_SPEED_CLASS: u32 = 4;
/// NVIDIA A100 whitepaper: boost clock.
pub const SM_CLOCK_MHZ: u32 = 1410;
/// What data-centre cards show while nothing runs (as published outputs of nvidia-smi show; not measured here).
pub const SM_CLOCK_IDLE_MHZ: u32 = 210;
/// NVIDIA A100 PCIe 80 GB product brief: memory clock.
pub const MEMORY_CLOCK_MHZ: u32 = 1512;
/// As above: memory bus.
pub const MEMORY_BUS_BITS: u32 = 5120;
/// As above: board power, which is the default limit and the highest.
pub const POWER_LIMIT_MW: u32 = 300_000;
/// As above: the lowest limit that can be set.
pub const POWER_LIMIT_MIN_MW: u32 = 150_000;
/// Model: what the card draws while nothing runs.
const POWER_IDLE_MW: u32 = 50_000;
/// Model: temperature of an idle card, and how much hotter a busy one is.
const TEMPERATURE_IDLE_C: u32 = 32;
const TEMPERATURE_RISE_C: u32 = 33;

/// Model: power rises linearly with the load of the compute engine.
pub fn power_mw(load_percent: u32) -> u32 {
    POWER_IDLE_MW + (POWER_LIMIT_MW - POWER_IDLE_MW) / 100 * load_percent.min(100)
}

/// The same model over the life of the machine, in mJ.
pub fn energy_mj(alive_ns: u64, busy_ns: u64) -> u64 {
    let mj =
        |power_mw: u32, time_ns: u64| (u128::from(power_mw) * u128::from(time_ns) / 1_000_000_000) as u64;
    mj(POWER_IDLE_MW, alive_ns) + mj(POWER_LIMIT_MW - POWER_IDLE_MW, busy_ns)
}

/// Model: temperature follows the load at once.
pub fn temperature_c(load_percent: u32) -> u32 {
    TEMPERATURE_IDLE_C + TEMPERATURE_RISE_C * load_percent.min(100) / 100
}

/// `nvmlDeviceArchitecture_t` of a compute capability (CUDA C++ programming guide, "Compute Capabilities").
pub fn architecture(major: u32, minor: u32) -> u32 {
    match (major, minor) {
        (3, _) => 2,
        (5, _) => 3,
        (6, _) => 4,
        (7, 0..=2) => 5,
        (7, _) => 6,
        (8, 9) => 8,
        (8, _) => 7,
        (9, _) => 9,
        (10 | 12, _) => 10,
        _ => 0xffff_ffff,
    }
}

/// FP32 cores of a multiprocessor (the same guide, arithmetic throughput); `None` where it is not known.
pub fn cores_of_multiprocessor(major: u32, minor: u32) -> Option<u32> {
    match (major, minor) {
        (3, _) => Some(192),
        (5, _) | (6, 1 | 2) | (8, 6..=9) | (9 | 10 | 12, _) => Some(128),
        (6, 0) | (7, _) | (8, 0) => Some(64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_card_draws_its_limit_and_energy_follows_power() {
        assert_eq!((power_mw(0), power_mw(100)), (50_000, POWER_LIMIT_MW));
        assert_eq!(energy_mj(2_000_000_000, 1_000_000_000), 2 * 50_000 + 250_000);
    }

    #[test]
    fn the_default_card_is_an_a100() {
        assert_eq!((architecture(8, 0), cores_of_multiprocessor(8, 0)), (7, Some(64)));
    }
}
