//! Compute modes: who may have contexts on a device.
//!
//! A device has the mode of `devices.toml` when its machine is made, and another one when somebody sets it, until
//! the machine is removed (as a card until the next start). Contexts are counted per client and device; those of
//! the dead count no more. What programs are told of a refusal is the driver's business.

use crate::arena::Arena;
use crate::error::ArenaError;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// CUDA driver API, `CUcomputemode`; the numbers are the same in NVML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Any number of contexts.
    #[default]
    Default = 0,
    /// No context.
    Prohibited = 2,
    /// One context of one process.
    ExclusiveProcess = 3,
}

impl ComputeMode {
    /// The mode with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Default, Self::Prohibited, Self::ExclusiveProcess]
            .into_iter()
            .find(|mode| *mode as u32 == number)
    }
}

impl Arena {
    /// The mode that the device has now.
    pub fn compute_mode(&self, device: usize) -> Result<ComputeMode, ArenaError> {
        let number = self.state(device)?.tables.compute_mode.load(Acquire);
        // Only `set_compute_mode` and the maker of the machine write it.
        Ok(ComputeMode::from_number(number).unwrap_or_default())
    }

    /// Give the device another mode. Contexts that exist stay, as on a card.
    pub fn set_compute_mode(&self, device: usize, mode: ComputeMode) -> Result<(), ArenaError> {
        let state = self.state(device)?;
        let _guard = self.shared.lock()?;
        state.tables.compute_mode.store(mode as u32, Release);
        Ok(())
    }

    /// Count a new context of this client.
    ///
    /// # Errors
    /// [`ArenaError::Unavailable`] when the device's mode forbids it.
    pub fn enter_context(&self, device: usize) -> Result<(), ArenaError> {
        let waiters = &self.state(device)?.tables.waiters;
        let _guard = self.shared.lock()?;
        let refuse = |reason| Err(ArenaError::Unavailable { device, reason });
        match self.compute_mode(device)? {
            ComputeMode::Default => {}
            ComputeMode::Prohibited => return refuse("its compute mode prohibits contexts"),
            ComputeMode::ExclusiveProcess => {
                crate::clients::bury_dead(&self.shared, &self.alive);
                let high = self.shared.header().client_high.load(Acquire) as usize;
                if waiters[..high].iter().any(|waiter| waiter.contexts.load(Relaxed) > 0) {
                    return refuse("its compute mode is exclusive and it has a context");
                }
            }
        }
        waiters[self.slot].contexts.fetch_add(1, Relaxed);
        Ok(())
    }

    /// A context that [`Arena::enter_context`] counted is gone.
    pub fn leave_context(&self, device: usize) -> Result<(), ArenaError> {
        let waiters = &self.state(device)?.tables.waiters;
        let _guard = self.shared.lock()?;
        waiters[self.slot].contexts.fetch_sub(1, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArenaConfig, DeviceConfig, TemporaryMachine};

    #[test]
    fn the_mode_of_the_file_counts_until_another_one_is_set() {
        let devices = ["default", "prohibited", "exclusive_process"];
        let devices: String =
            devices.map(|mode| format!("[[devices]]\ncompute_mode = \"{mode}\"\n")).concat();
        let config: ArenaConfig = toml::from_str(&devices).unwrap();
        let machine = TemporaryMachine::new(&config).unwrap();
        let arena = Arena::open_at(machine.directory()).unwrap();
        let modes = || [0, 1, 2].map(|device| arena.compute_mode(device).unwrap() as u32);
        assert_eq!(modes(), [0, 2, 3]);
        arena.set_compute_mode(0, ComputeMode::Prohibited).unwrap();
        arena.set_compute_mode(1, ComputeMode::Default).unwrap();
        let other = Arena::open_at(machine.directory()).unwrap();
        assert_eq!(modes(), [2, 0, 3]);
        assert_eq!(
            other.compute_mode(0).unwrap(),
            ComputeMode::Prohibited,
            "it is the machine's, not the process's"
        );
        assert!(matches!(arena.enter_context(0), Err(ArenaError::Unavailable { device: 0, .. })));
        arena.enter_context(1).unwrap();
    }

    #[test]
    fn an_exclusive_device_has_one_context_and_is_free_when_its_client_is_gone() {
        let device = DeviceConfig { compute_mode: ComputeMode::ExclusiveProcess, ..DeviceConfig::default() };
        let config = ArenaConfig { devices: vec![device], ..ArenaConfig::default() };
        let machine = TemporaryMachine::new(&config).unwrap();
        let [first, second] = [0, 1].map(|_| Arena::open_at(machine.directory()).unwrap());
        first.enter_context(0).unwrap();
        assert!(matches!(second.enter_context(0), Err(ArenaError::Unavailable { .. })));
        assert!(
            matches!(first.enter_context(0), Err(ArenaError::Unavailable { .. })),
            "not even its own second"
        );
        first.leave_context(0).unwrap();
        second.enter_context(0).unwrap();
        drop(second);
        first.enter_context(0).unwrap();
    }
}
