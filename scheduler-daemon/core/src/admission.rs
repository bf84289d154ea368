//! May a tenant allocate more? Decided at once, so that nothing is ever lost at a switch.
//!
//! With V the sum of virtual bytes on a device and C its capacity: every tenant needs a lease of
//! host memory of min(v, max(0, V - C)), all leases of all devices must fit the pool; and the
//! tenant must be runnable: v + pinned bytes of all others <= C. A tenant's own limit is on its
//! virtual bytes per device. What `cuMemGetInfo` says is the largest request that would pass.

use crate::Core;
use crate::ids::{DeviceKey, MemberId, Reason, RequestId, TenantId};
use crate::output::ToMember;

/// All that a decision depends on.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    /// Virtual bytes of the tenant that asks, on this device.
    pub(crate) own_bytes: u64,
    /// Virtual bytes of every other tenant on this device.
    pub(crate) others_bytes: Vec<u64>,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) total_bytes: u64,
    pub(crate) capacity_bytes: u64,
    pub(crate) pinned_of_others_bytes: u64,
    /// Leases promised on other devices.
    pub(crate) promised_elsewhere_bytes: u128,
    pub(crate) pool_bytes: u64,
}

impl Demand {
    /// Whether this many more bytes may be allocated.
    pub(crate) fn judge(&self, asked_bytes: u64) -> Result<(), Reason> {
        let own = self.own_bytes.checked_add(asked_bytes).ok_or(Reason::CapacityExceeded)?;
        if self.limit_bytes.is_some_and(|limit| own > limit) {
            return Err(Reason::TenantLimit);
        }
        if u128::from(own) + u128::from(self.pinned_of_others_bytes) > u128::from(self.capacity_bytes) {
            return Err(Reason::CapacityExceeded);
        }
        if self.promised_elsewhere_bytes + self.leases_bytes(own) > u128::from(self.pool_bytes) {
            return Err(Reason::BudgetExceeded);
        }
        Ok(())
    }

    /// Sum of the leases on this device if the tenant had `own` virtual bytes.
    fn leases_bytes(&self, own: u64) -> u128 {
        leases_bytes(self.others_bytes.iter().copied().chain([own]), self.capacity_bytes)
    }

    /// The size of the device as the tenant is to see it.
    pub(crate) fn visible_total_bytes(&self) -> u64 {
        self.limit_bytes.map_or(self.total_bytes, |limit| limit.min(self.total_bytes))
    }

    /// The largest request that [`Demand::judge`] admits; 0 if none. What it refuses, it refuses
    /// in every larger size too, so halving the interval finds it.
    pub(crate) fn largest_bytes(&self) -> u64 {
        let ceiling = self.visible_total_bytes().saturating_sub(self.own_bytes);
        if self.judge(ceiling).is_ok() {
            return ceiling;
        }
        let (mut admitted, mut refused) = (0, ceiling);
        while refused - admitted > 1 {
            let middle = admitted + (refused - admitted) / 2;
            if self.judge(middle).is_ok() {
                admitted = middle;
            } else {
                refused = middle;
            }
        }
        admitted
    }
}

/// Host memory needed in the worst case by tenants with these virtual bytes.
pub(crate) fn leases_bytes(virtual_bytes: impl Iterator<Item = u64> + Clone, capacity_bytes: u64) -> u128 {
    let sum: u128 = virtual_bytes.clone().map(u128::from).sum();
    let excess = sum.saturating_sub(u128::from(capacity_bytes));
    if excess == 0 { 0 } else { virtual_bytes.map(|bytes| u128::from(bytes).min(excess)).sum() }
}

impl Core {
    /// What is promised on a device now.
    pub(crate) fn promised_bytes(&self, key: DeviceKey) -> u128 {
        let Some(device) = self.devices.get(&key) else { return 0 };
        let capacity = device.lasting_capacity_bytes(self.settings.head_room_bytes);
        if device.sums.virtual_bytes <= capacity {
            return 0;
        }
        leases_bytes(device.tenants.values().copied(), capacity)
    }

    fn demand(&self, tenant_id: TenantId, key: DeviceKey) -> Option<Demand> {
        let (tenant, device) = (self.tenants.get(&tenant_id)?, self.devices.get(&key)?);
        let share = tenant.shares.get(&key)?;
        let own = share.sums;
        let elsewhere = self.devices.keys().filter(|other| **other != key);
        Some(Demand {
            own_bytes: own.virtual_bytes,
            others_bytes: device
                .tenants
                .iter()
                .filter(|(id, _)| **id != tenant_id)
                .map(|(_, v)| *v)
                .collect(),
            limit_bytes: tenant.memory_limit_bytes,
            total_bytes: device.total_bytes,
            capacity_bytes: device.capacity_for_bytes(share.own_sight, self.settings.head_room_bytes),
            pinned_of_others_bytes: device.sums.pinned_bytes.saturating_sub(own.pinned_bytes),
            promised_elsewhere_bytes: elsewhere.map(|other| self.promised_bytes(*other)).sum(),
            pool_bytes: self.settings.host_pool_bytes,
        })
    }

    pub(crate) fn reserve(&mut self, member: MemberId, request: RequestId, key: DeviceKey, bytes: u64) {
        let used = self.holding(member, key).is_some();
        let demand = self.members.get(&member).and_then(|record| self.demand(record.tenant, key));
        let Some(demand) = demand.filter(|_| used) else {
            self.complain(member, Reason::ProtocolViolation.word(), "reserves on a device it does not use");
            return self.send(member, ToMember::Refused { request, reason: Reason::ProtocolViolation });
        };
        match demand.judge(bytes) {
            Ok(()) => {
                self.adjust(member, key, |holding| {
                    holding.virtual_bytes = holding.virtual_bytes.saturating_add(bytes);
                });
                self.send(member, ToMember::Reserved { request });
            }
            Err(reason) => {
                let text = format!(
                    "may not allocate {bytes} more bytes on {key}, where its tenant has {} and all others have {}; {}",
                    demand.own_bytes,
                    demand.others_bytes.iter().sum::<u64>(),
                    reason.advice()
                );
                self.complain(member, reason.word(), &text);
                self.send(member, ToMember::Refused { request, reason });
            }
        }
    }

    pub(crate) fn unreserve(&mut self, member: MemberId, key: DeviceKey, bytes: u64) {
        let Some(held) = self.holding(member, key).map(|holding| holding.virtual_bytes) else {
            return self.complain(
                member,
                Reason::ProtocolViolation.word(),
                "frees on a device it does not use",
            );
        };
        if bytes > held {
            self.complain(member, Reason::ProtocolViolation.word(), "frees more than it has reserved");
        }
        self.adjust(member, key, |holding| holding.virtual_bytes = held.saturating_sub(bytes));
    }

    pub(crate) fn memory_query(&mut self, member: MemberId, request: RequestId, key: DeviceKey) {
        let used = self.holding(member, key).is_some();
        let demand = self.members.get(&member).and_then(|record| self.demand(record.tenant, key));
        let (total_bytes, free_bytes) = demand
            .filter(|_| used)
            .map_or((0, 0), |demand| (demand.visible_total_bytes(), demand.largest_bytes()));
        self.send(member, ToMember::MemoryAnswer { request, total_bytes, free_bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The two inequalities word for word, over single bytes, without shortcuts.
    fn dumb_verdict(demand: &Demand, asked: u64) -> bool {
        let own = u128::from(demand.own_bytes) + u128::from(asked);
        let mut all: Vec<u128> = demand.others_bytes.iter().map(|v| u128::from(*v)).collect();
        all.push(own);
        let v: u128 = all.iter().sum();
        let c = u128::from(demand.capacity_bytes);
        let mut leases = demand.promised_elsewhere_bytes;
        for tenant in &all {
            leases += if v > c { (*tenant).min(v - c) } else { 0 };
        }
        let within_limit = demand.limit_bytes.is_none_or(|limit| own <= u128::from(limit));
        within_limit
            && own + u128::from(demand.pinned_of_others_bytes) <= c
            && leases <= u128::from(demand.pool_bytes)
    }

    fn small_demand() -> impl Strategy<Value = Demand> {
        (
            0u64..40,
            prop::collection::vec(0u64..40, 0..5),
            prop::option::of(0u64..60),
            1u64..60,
            0u64..20,
            0u64..20,
            0u64..90,
        )
            .prop_flat_map(|(own, others, limit, total, pinned, elsewhere, pool)| {
                (0..=total).prop_map(move |capacity| Demand {
                    own_bytes: own,
                    others_bytes: others.clone(),
                    limit_bytes: limit,
                    total_bytes: total,
                    capacity_bytes: capacity,
                    pinned_of_others_bytes: pinned,
                    promised_elsewhere_bytes: u128::from(elsewhere),
                    pool_bytes: pool,
                })
            })
    }

    proptest! {
        #[test]
        fn the_verdict_is_that_of_the_two_inequalities(demand in small_demand(), asked in 0u64..80) {
            prop_assert_eq!(demand.judge(asked).is_ok(), dumb_verdict(&demand, asked));
        }

        #[test]
        fn free_is_the_largest_request_that_passes(demand in small_demand()) {
            let ceiling = demand.visible_total_bytes().saturating_sub(demand.own_bytes);
            let dumb = (0..=ceiling).rev().find(|asked| dumb_verdict(&demand, *asked)).unwrap_or(0);
            prop_assert_eq!(demand.largest_bytes(), dumb);
        }

        #[test]
        fn absurd_sizes_are_refused_and_never_wrap(asked in (u64::MAX - 9)..=u64::MAX, own in 0u64..1 << 50) {
            let demand = Demand {
                own_bytes: own,
                others_bytes: vec![1 << 50; 8],
                limit_bytes: None,
                total_bytes: 1 << 50,
                capacity_bytes: 1 << 50,
                pinned_of_others_bytes: 0,
                promised_elsewhere_bytes: 0,
                pool_bytes: u64::MAX,
            };
            prop_assert_eq!(demand.judge(asked), Err(Reason::CapacityExceeded));
            prop_assert!(demand.largest_bytes() <= (1 << 50) - own);
        }
    }
}
