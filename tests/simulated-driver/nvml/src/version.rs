//! The versions that the library reports, which follow from the CUDA version that the driver reports.
//!
//! Each of the simulated driver's versions belongs to one release of NVIDIA's driver (those whose exports and
//! name resolution it follows); other CUDA versions get the newest release that is not newer.

use turnus_simulated_arena::driver_version;

/// CUDA version and release.
const RELEASES: &[(u32, &str)] = &[
    (12_020, "535.261.03"),
    (12_040, "550.163.01"),
    (12_050, "555.58.02"),
    // CUDA 13.0 needs 580.65.06 (CUDA release notes).
    (13_000, "580.65.06"),
    // nvidia-ml-py 13.615.71 goes with CUDA 13.5; the last part of the number is made up.
    (13_050, "615.71.00"),
];

/// The release, or what `SIMULATED_NVML_DRIVER_VERSION` says.
pub fn driver() -> String {
    std::env::var("SIMULATED_NVML_DRIVER_VERSION").unwrap_or_else(|_| {
        let cuda = driver_version();
        let release = RELEASES.iter().rev().find(|(version, _)| *version <= cuda).unwrap_or(&RELEASES[0]);
        release.1.to_owned()
    })
}

/// The library's own version: the major version of CUDA before that of the driver.
pub fn library() -> String {
    format!("{}.{}", driver_version() / 1000, driver())
}

#[cfg(test)]
mod tests {
    use super::RELEASES;

    #[test]
    fn releases_are_in_order() {
        assert!(RELEASES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
