//! What of a device is used and by whom, and capacity taken without backing.
//!
//! All sums are computed from the rows of the moment; the driver's memory queries and NVML both answer from
//! here, so that they cannot disagree.

use crate::arena::Arena;
use crate::clients::client_holder;
use crate::error::ArenaError;
use crate::layout::{CLIENTS, Shared};
use crate::rows::{Holder, RowState};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Capacity.
    pub total_bytes: u64,
    /// Neither allocated nor charged nor being scrubbed.
    pub free_bytes: u64,
}

/// Name of a charge; stale after it was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChargeId {
    device: u16,
    row: u32,
    generation: u32,
}

/// Slots and process ids of the clients of the moment.
pub(crate) fn client_pids(shared: &Shared) -> impl Iterator<Item = (usize, u32)> {
    let header = shared.header();
    let rows = header.clients[..header.client_high.load(Acquire) as usize].iter().enumerate();
    rows.filter(|(_, row)| row.is_live.load(Acquire) != 0).map(|(slot, row)| (slot, row.pid.load(Relaxed)))
}

impl Arena {
    /// Capacity and free bytes of a device; reaps first.
    pub fn memory(&self, device: usize) -> Result<Memory, ArenaError> {
        let total_bytes = self.device(device)?.config.memory_bytes;
        self.reap()?;
        let _guard = self.shared.lock()?;
        Ok(Memory { total_bytes, free_bytes: self.shared.device(device).free_bytes() })
    }

    /// Bytes by process id, by process id; reaps first. An allocation counts once, for its oldest client;
    /// memory that only an export keeps alive counts for nobody. The id is the one that the process had in its
    /// own process id namespace when it attached, also when only a forked child of it is left.
    pub fn usage_by_process(&self, device: usize) -> Result<Vec<(u32, u64)>, ArenaError> {
        let state = self.state(device)?;
        self.reap()?;
        let _guard = self.shared.lock()?;
        let clients = &self.shared.header().clients;
        let mut bytes_by_pid = BTreeMap::<u32, u64>::new();
        let mut add = |holder: Holder, bytes: u64| {
            let pid = clients[usize::from(holder) - 1].pid.load(Relaxed);
            *bytes_by_pid.entry(pid).or_default() += bytes;
        };
        let last_client = client_holder(CLIENTS - 1);
        for row in state.rows().filter(|row| state.row(*row).1 == RowState::Live) {
            let client = state.holds(row).find(|(_, holder, _)| *holder <= last_client);
            if let Some((_, holder, _)) = client {
                add(holder, state.extent(row).1 * state.granularity_bytes);
            }
        }
        state.charges().for_each(|(_, owner, bytes)| add(owner as Holder, bytes));
        Ok(bytes_by_pid.into_iter().collect())
    }

    /// Take `bytes` of capacity without backing (context, module, local memory), until it is returned or this
    /// client is gone.
    pub fn charge(&self, device: usize, bytes: u64) -> Result<ChargeId, ArenaError> {
        let state = self.state(device)?;
        let (row, generation) = self.with_reaping(device, bytes, || state.charge(bytes, self.holder()))?;
        Ok(ChargeId { device: device as u16, row, generation })
    }

    /// Let a charge be `bytes` from now on. On an error it stays as it is.
    pub fn change_charge(&self, charge: ChargeId, bytes: u64) -> Result<(), ArenaError> {
        let device = usize::from(charge.device);
        let state = self.state(device)?;
        let change = || state.change_charge(charge.row, charge.generation, self.holder(), bytes);
        if self.with_reaping(device, bytes, change)? {
            Ok(())
        } else {
            Err(ArenaError::NotCharged { device, charge: charge.row })
        }
    }

    /// Return a charge.
    pub fn discharge(&self, charge: ChargeId) -> Result<(), ArenaError> {
        let device = usize::from(charge.device);
        let state = self.state(device)?;
        let _guard = self.shared.lock()?;
        if state.discharge(charge.row, charge.generation, self.holder()) {
            Ok(())
        } else {
            Err(ArenaError::NotCharged { device, charge: charge.row })
        }
    }

    /// What contradicts itself in the shared tables, in words; empty unless there is a fault in this crate.
    pub fn contradictions(&self) -> Result<Vec<String>, ArenaError> {
        let _guard = self.shared.lock()?;
        Ok(self.shared.devices().flat_map(|device| device.contradictions()).collect())
    }

    /// When the machine was made, CLOCK_MONOTONIC.
    pub fn made_ns(&self) -> u64 {
        self.shared.header().made_ns.load(Relaxed)
    }

    /// How often a process died while it changed the tables, since the machine was made.
    pub fn repair_count(&self) -> u64 {
        self.shared.header().repairs.load(Relaxed)
    }
}
