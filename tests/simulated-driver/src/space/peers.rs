//! Which devices reach which memory: what contexts gave each other, and the access to mappings.
//!
//! The page table has the answer for each page; here is what it is made from. Access of a context to its peer
//! counts for the whole device of that context, so another context there reaches the memory too. Rights of
//! several devices to one page cannot differ: each has the widest.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use turnus_bindings::CUerror;

use super::allocation::Origin;
use super::table::{READ, WRITE};
use super::{AddressSpace, Result};

/// Devices as bits.
pub type Devices = u16;

/// A single device.
pub(super) fn only(device: usize) -> Devices {
    1 << device
}

/// What `cuCtxEnablePeerAccess` gave: contexts are named by their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// Context that may access.
    pub accessor: u64,
    /// Its device.
    pub device: usize,
    /// Context whose allocations may be accessed.
    pub owner: u64,
}

/// All grants of the process.
pub(super) type Grants = Mutex<BTreeSet<Grant>>;

impl AddressSpace {
    /// `cuDeviceCanAccessPeer`.
    pub fn can_access_peer(&self, device: usize, peer: usize) -> bool {
        device != peer && self.arena.peer_access()
    }

    /// `cuCtxEnablePeerAccess` on devices that can.
    pub fn enable_peer_access(&self, grant: Grant) -> Result<()> {
        if !self.grants.lock().insert(grant) {
            return Err(CUerror::PEER_ACCESS_ALREADY_ENABLED);
        }
        self.renew_access(grant.owner);
        Ok(())
    }

    /// `cuCtxDisablePeerAccess`.
    pub fn disable_peer_access(&self, grant: Grant) -> Result<()> {
        if !self.grants.lock().remove(&grant) {
            return Err(CUerror::PEER_ACCESS_NOT_ENABLED);
        }
        self.renew_access(grant.owner);
        self.shoot_down();
        Ok(())
    }

    /// A context is gone: so is what it was given and gave.
    pub fn forget_grants_of(&self, context: u64) {
        let is_gone = |grant: &Grant| grant.accessor == context || grant.owner == context;
        let mut grants = self.grants.lock();
        let gone: Vec<Grant> = grants.iter().copied().filter(is_gone).collect();
        grants.retain(|grant| !is_gone(grant));
        drop(grants);
        gone.iter().for_each(|grant| self.renew_access(grant.owner));
        if !gone.is_empty() {
            self.shoot_down();
        }
    }

    /// The rights of a device at an address.
    pub fn rights(&self, device: usize, address: u64) -> u64 {
        let has = |right: &u64| self.table.translate_for(device, address, *right).is_some();
        [READ, WRITE].into_iter().filter(has).sum()
    }

    /// The devices that reach allocations of a context on `device`.
    pub(super) fn devices_of(&self, context: u64, device: usize) -> Devices {
        let grants = self.grants.lock();
        let given = grants.iter().filter(|grant| grant.owner == context);
        given.fold(only(device), |devices, grant| devices | only(grant.device))
    }

    /// Writes into the page table who reaches the allocations of a context.
    fn renew_access(&self, context: u64) {
        let state = self.state.lock();
        let plain = state.allocations.iter().filter(|(_, allocation)| {
            allocation.context == context && matches!(allocation.origin, Origin::Context)
        });
        for (&base, allocation) in plain {
            if let Some(physical) = &allocation.physical {
                let devices = self.devices_of(context, allocation.device);
                self.table.give(base, physical.bytes, devices);
            }
        }
        for ((_, device), slabs) in state.slabs.iter().filter(|((owner, _), _)| *owner == context) {
            let devices = self.devices_of(context, *device);
            slabs.iter().for_each(|slab| self.table.give(slab.base, slab.bytes, devices));
        }
    }
}

/// The devices that have any right.
pub(super) fn devices_with(access: &BTreeMap<usize, u64>) -> Devices {
    let having = access.iter().filter(|(_, rights)| **rights != 0);
    having.fold(0, |devices, (device, _)| devices | only(*device))
}
