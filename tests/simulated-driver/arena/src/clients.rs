//! Attaching to the machine, and freeing what the dead held.
//!
//! A client lives as long as its description in the alive file (`alive.rs`). Reaping is idempotent: the row of
//! a dead client is freed last, so that a reaper who dies leaves the work to the next one.

use crate::alive::AliveFile;
use crate::arena::Arena;
use crate::clock::now_ns;
use crate::error::ArenaError;
use crate::layout::{CLIENTS, EXPORTS, Shared};
use crate::rows::{Holder, RowState};
use std::fs::File;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// What [`Arena::reap`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Dead clients.
    pub clients: usize,
    /// Exports whose last descriptor was closed.
    pub exports: usize,
}

/// The client in `slot` as a holder.
pub(crate) fn client_holder(slot: usize) -> Holder {
    (1 + slot) as Holder
}

/// The export in `slot` as a holder.
pub(crate) fn export_holder(slot: usize) -> Holder {
    (1 + CLIENTS + slot) as Holder
}

/// The byte of a holder in the alive file.
pub(crate) fn alive_byte(holder: Holder) -> u64 {
    u64::from(holder) - 1
}

/// Become a client: a locked description and its slot.
pub(crate) fn attach(shared: &Shared, alive: &AliveFile) -> Result<(File, usize), ArenaError> {
    let _guard = shared.lock()?;
    if let Some(attached) = take_slot(shared, alive)? {
        return Ok(attached);
    }
    bury_dead(shared, alive);
    take_slot(shared, alive)?.ok_or(ArenaError::TooManyClients)
}

fn take_slot(shared: &Shared, alive: &AliveFile) -> Result<Option<(File, usize)>, ArenaError> {
    let header = shared.header();
    for slot in 0..CLIENTS {
        let row = &header.clients[slot];
        if row.is_live.load(Relaxed) != 0 {
            continue;
        }
        let own = alive.new_description(0)?;
        let holder = client_holder(slot);
        if !AliveFile::try_lock(&own, alive_byte(holder))? {
            continue;
        }
        header.client_high.fetch_max(slot as u32 + 1, Release);
        shared.devices().for_each(|device| device.forget_engine_user(slot));
        row.pid.store(std::process::id(), Relaxed);
        row.is_live.store(1, Release);
        return Ok(Some((own, slot)));
    }
    Ok(None)
}

/// Drop the holds of dead clients and exports. The caller has the lock.
pub(crate) fn bury_dead(shared: &Shared, alive: &AliveFile) -> Reaped {
    let header = shared.header();
    let is_dead = |holder: &Holder| !alive.is_alive(alive_byte(*holder));
    let clients: Vec<usize> = (0..header.client_high.load(Acquire) as usize)
        .filter(|slot| header.clients[*slot].is_live.load(Acquire) != 0 && is_dead(&client_holder(*slot)))
        .collect();
    let exports: Vec<usize> = (0..header.export_high.load(Acquire) as usize)
        .filter(|slot| header.exports[*slot].load(Acquire) != 0 && is_dead(&export_holder(*slot)))
        .collect();
    if clients.is_empty() && exports.is_empty() {
        return Reaped::default();
    }
    let mut dead = vec![false; 1 + CLIENTS + EXPORTS];
    clients.iter().for_each(|slot| dead[usize::from(client_holder(*slot))] = true);
    exports.iter().for_each(|slot| dead[usize::from(export_holder(*slot))] = true);
    for device in shared.devices() {
        device.drop_dead(|holder| dead[usize::from(holder)]);
        clients.iter().for_each(|slot| device.forget_engine_user(*slot));
    }
    exports.iter().for_each(|slot| header.exports[*slot].store(0, Release));
    clients.iter().for_each(|slot| header.clients[*slot].is_live.store(0, Release));
    Reaped { clients: clients.len(), exports: exports.len() }
}

impl crate::layout::DeviceState<'_> {
    /// Take a dead or new client out of the engine's queue.
    fn forget_engine_user(&self, slot: usize) {
        self.tables.waiters[slot].ticket.store(0, SeqCst);
        self.tables.waiters[slot].activity.clear();
        self.tables.waiters[slot].contexts.store(0, SeqCst);
        let owner = self.tables.engine_owner.load(SeqCst);
        if owner as Holder == client_holder(slot) {
            // When this fails somebody else has taken the engine over already.
            let _ = self.tables.engine_owner.compare_exchange(owner, 0, SeqCst, SeqCst);
        }
    }
}

impl Arena {
    /// Free what dead clients and closed exports held, and finish scrubbing that others began.
    ///
    /// Runs by itself on open, in memory queries and before an allocation fails.
    pub fn reap(&self) -> Result<Reaped, ArenaError> {
        let mut dying = Vec::new();
        let reaped = {
            let _guard = self.shared.lock()?;
            let reaped = bury_dead(&self.shared, &self.alive);
            let now = now_ns();
            for (index, device) in self.shared.devices().enumerate() {
                for row in device.rows() {
                    match device.row(row) {
                        (generation, RowState::Dying) => dying.push((index, row, generation)),
                        (generation, RowState::Resting)
                            if device.tables.ready_ns[row as usize].load(Relaxed) <= now =>
                        {
                            device.free(row, generation);
                        }
                        _ => {}
                    }
                }
            }
            reaped
        };
        for (device, row, generation) in dying {
            self.scrub(device, row, generation)?;
        }
        Ok(reaped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArenaConfig, TemporaryMachine};

    #[test]
    fn a_machine_has_room_for_4096_clients_and_refuses_one_more() {
        let limit = libc::rlimit { rlim_cur: 5000, rlim_max: 5000 };
        // SAFETY: setrlimit reads one rlimit.
        let is_raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
        assert!(is_raised, "this test needs 5000 open files");
        let config = ArenaConfig::with_devices(1);
        let machine = TemporaryMachine::new(&config).unwrap();
        let shared = Shared::open(machine.directory(), &config.resolve().unwrap()).unwrap();
        let alive = AliveFile::open(machine.directory()).unwrap();
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| attach(&shared, &alive).unwrap()).collect();
        assert!(matches!(attach(&shared, &alive), Err(ArenaError::TooManyClients)));
        let (_, slot) = clients.swap_remove(1234);
        assert_eq!(attach(&shared, &alive).unwrap().1, slot, "the slot of a dead client is used again");
    }
}
