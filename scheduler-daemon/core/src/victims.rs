//! Whose bytes go: the tenant whose next turn is farthest.
//!
//! With turns in rotation the future is known, so the choice is Belady's and not a guess from the
//! past: who is not in the queue goes first (longest without a turn before others), then the
//! queue from its tail. Never who has the turn, never pinned bytes, never who is being asked.

use crate::Core;
use crate::ids::{DeviceKey, MemberId, TenantId};
use std::cmp::Reverse;
use std::time::Duration;

impl Core {
    /// Members and bytes to ask for, in sum at most `needed_bytes`; and when to look again if
    /// that is too little only because somebody is spared for the moment.
    pub(crate) fn choose_victims(
        &self,
        key: DeviceKey,
        needed_bytes: u64,
    ) -> (Vec<(MemberId, u64)>, Option<Duration>) {
        let (mut chosen, mut look_again_at) = (Vec::new(), None::<Duration>);
        let mut needed = needed_bytes;
        for tenant in self.farthest_first(key) {
            for member in &self.tenants[&tenant].members {
                if needed == 0 {
                    return (chosen, None);
                }
                let Some(holding) = self.holding(*member, key) else { continue };
                let movable = holding.resident_bytes.saturating_sub(holding.effective_pinned_bytes());
                if movable == 0 || holding.order.is_some() {
                    continue;
                }
                if holding.spared_until > self.now {
                    let until = holding.spared_until;
                    look_again_at = Some(look_again_at.map_or(until, |at| at.min(until)));
                    continue;
                }
                let bytes = movable.min(needed);
                needed -= bytes;
                chosen.push((*member, bytes));
            }
        }
        (chosen, look_again_at.filter(|_| needed > 0))
    }

    /// Tenants with bytes on the device and without a turn there.
    fn farthest_first(&self, key: DeviceKey) -> Vec<TenantId> {
        let Some(device) = self.devices.get(&key) else { return Vec::new() };
        let mut found = Vec::new();
        for id in device.tenants.keys() {
            let Some(tenant) = self.tenants.get(id) else { continue };
            let resident = tenant.shares.get(&key).is_some_and(|share| share.sums.resident_bytes > 0);
            if !resident || device.holder == Some(*id) {
                continue;
            }
            let place = tenant.ticket.map_or(u64::MAX, |ticket| ticket.number);
            found.push((Reverse(place), tenant.turn_ended_at, *id));
        }
        found.sort_unstable();
        found.into_iter().map(|(_, _, id)| id).collect()
    }
}
