//! What `turnus status` shows, as the core sees it; the daemon adds its release and prints.
//!
//! Field for field the protocol's admin document, with keys instead of texts for devices. Built
//! on demand in one pass over tenants and queue; nothing here changes the core.

use crate::Core;
use crate::ids::{DeviceKey, Reason, TenantId};
use crate::records::{Device, Tenant};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything that is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusView {
    /// Which life of the daemon this is.
    pub incarnation: u64,
    /// The daemon waits for members of its former life.
    pub recovering: bool,
    /// Host memory for evicted bytes.
    pub host_pool: PoolView,
    /// One line each.
    pub devices: Vec<DeviceView>,
    /// One line per tenant and device; a tenant without a device has no line.
    pub tenants: Vec<TenantView>,
}

/// Host memory for evicted bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolView {
    /// Leased to tenants now.
    pub leased_bytes: u64,
    /// What admission has promised in the worst case.
    pub promised_bytes: u64,
    /// The bound.
    pub limit_bytes: u64,
}

/// The header line of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceView {
    /// Which.
    pub device: DeviceKey,
    /// The driver's name for it.
    pub name: String,
    /// All tenants' virtual bytes.
    pub wanted_bytes: u64,
    /// What tenants can have at once.
    pub capacity_bytes: u64,
    /// Frame credits that are out.
    pub resident_bytes: u64,
    /// Memory of the device, as the driver says.
    pub total_bytes: u64,
    /// Name of the tenant that holds the turn.
    pub holder: Option<String>,
    /// Of the running quantum, if somebody waits.
    pub time_left_ms: Option<u64>,
    /// A rule of the ledger was broken: no more turns are granted.
    pub quarantined: Option<String>,
}

/// The line of a tenant on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    /// As shown to people.
    pub name: String,
    /// Unique in this incarnation.
    pub tenant: TenantId,
    /// Where.
    pub device: DeviceKey,
    /// The state's name.
    pub state: &'static str,
    /// Processes of the tenant.
    pub pids: Vec<u32>,
    /// Allocated by the program.
    pub virtual_bytes: u64,
    /// Credits held.
    pub resident_bytes: u64,
    /// Saved in host memory.
    pub host_bytes: u64,
    /// Resident and not movable.
    pub pinned_bytes: u64,
    /// Limit on virtual bytes, if one was set.
    pub memory_limit_bytes: Option<u64>,
    /// Place in the queue: 0 is next.
    pub queue_place: Option<u32>,
    /// Turns so far.
    pub turns: u64,
    /// Time with the turn.
    pub turn_ms: u64,
    /// Time at the gate.
    pub wait_ms: u64,
    /// Moved so far, device to host.
    pub to_host_bytes: u64,
    /// Moved so far, host to device.
    pub to_device_bytes: u64,
    /// Driver calls that are not handled yet, with counts, by name.
    pub unhandled: Vec<(String, u64)>,
    /// Why it waits or cannot move: a reason word, or `waits-for: NAME`, `ahead: NAME`.
    pub reasons: Vec<String>,
}

impl Core {
    /// What to show at this time.
    pub fn status(&self, now: Duration) -> StatusView {
        let now = now.max(self.now);
        let places = self.queue_places();
        let mut tenants = Vec::new();
        for (id, tenant) in &self.tenants {
            let pids: Vec<u32> =
                tenant.members.iter().filter_map(|member| self.members.get(member)).map(|m| m.pid).collect();
            for (key, share) in &tenant.shares {
                let turn =
                    tenant.turn.as_ref().map_or(Duration::ZERO, |turn| now.saturating_sub(turn.granted_at));
                let wait = tenant.ticket.map_or(Duration::ZERO, |ticket| now.saturating_sub(ticket.since));
                tenants.push(TenantView {
                    name: tenant.name.clone(),
                    tenant: *id,
                    device: *key,
                    state: share.state.word(),
                    pids: pids.clone(),
                    virtual_bytes: share.sums.virtual_bytes,
                    resident_bytes: share.sums.resident_bytes,
                    host_bytes: share.sums.host_bytes,
                    pinned_bytes: share.sums.pinned_bytes,
                    memory_limit_bytes: tenant.memory_limit_bytes,
                    queue_place: places.get(id).copied(),
                    turns: tenant.turns,
                    turn_ms: milliseconds(tenant.turn_time.saturating_add(turn)),
                    wait_ms: milliseconds(tenant.wait_time.saturating_add(wait)),
                    to_host_bytes: share.to_host_bytes,
                    to_device_bytes: share.to_device_bytes,
                    unhandled: tenant.unhandled.iter().map(|(name, count)| (name.clone(), *count)).collect(),
                    reasons: self.reasons(*id, *key),
                });
            }
        }
        StatusView {
            incarnation: self.settings.incarnation,
            recovering: self.recovery.is_active(),
            host_pool: PoolView {
                leased_bytes: self.leased_bytes,
                promised_bytes: u64::try_from(
                    self.devices.keys().map(|key| self.promised_bytes(*key)).sum::<u128>(),
                )
                .unwrap_or(u64::MAX),
                limit_bytes: self.settings.host_pool_bytes,
            },
            devices: self.devices.iter().map(|(key, device)| self.device_view(*key, device, now)).collect(),
            tenants,
        }
    }

    fn device_view(&self, key: DeviceKey, device: &Device, now: Duration) -> DeviceView {
        let holder = device.holder.and_then(|id| self.tenants.get(&id));
        let turn = holder.and_then(|tenant| tenant.turn.as_ref()).filter(|_| !device.waiters.is_empty());
        let end = turn.and_then(|turn| turn.quantum_from.map(|from| from.saturating_add(turn.quantum)));
        DeviceView {
            device: key,
            name: device.name.clone(),
            wanted_bytes: device.sums.virtual_bytes,
            capacity_bytes: device.capacity_bytes(self.settings.head_room_bytes),
            resident_bytes: device.sums.resident_bytes,
            total_bytes: device.total_bytes,
            holder: holder.map(|tenant| tenant.name.clone()),
            time_left_ms: end.map(|end| milliseconds(end.saturating_sub(now))),
            quarantined: device.quarantined.clone(),
        }
    }

    /// How many older tickets want one of the tenant's devices: the most of any device.
    fn queue_places(&self) -> BTreeMap<TenantId, u32> {
        let mut ahead: BTreeMap<DeviceKey, u32> = BTreeMap::new();
        let mut places = BTreeMap::new();
        for id in self.queue.values() {
            let Some(tenant) = self.tenants.get(id) else { continue };
            let mut place = 0;
            for key in tenant.shares.keys() {
                let count = ahead.entry(*key).or_default();
                place = place.max(*count);
                *count += 1;
            }
            places.insert(*id, place);
        }
        places
    }

    /// Why the tenant does not run on this device, or cannot move. Never empty for a tenant that
    /// waits or restores.
    fn reasons(&self, id: TenantId, key: DeviceKey) -> Vec<String> {
        let (Some(tenant), Some(device)) = (self.tenants.get(&id), self.devices.get(&key)) else {
            return Vec::new();
        };
        let mut reasons = Vec::new();
        if let Some(text) = &device.quarantined {
            reasons.push(format!("quarantined: {text}"));
        }
        if tenant.ticket.is_some() {
            self.reasons_to_wait(id, device, &mut reasons);
        }
        let Some(share) = tenant.shares.get(&key) else { return reasons };
        if share.sums.wanted_bytes > 0 {
            self.reasons_to_lack(key, device, &mut reasons);
        }
        if tenant.turn.as_ref().is_some_and(|turn| turn.not_preemptible) {
            reasons.push(Reason::NotPreemptible.word().into());
        }
        if share.sums.faulted > 0 {
            reasons.push("faulted".into());
        }
        if self.is_unresponsive(tenant, key) {
            reasons.push("unresponsive".into());
        }
        reasons
    }

    fn reasons_to_wait(&self, id: TenantId, device: &Device, reasons: &mut Vec<String>) {
        if self.recovery.is_active() {
            reasons.push(Reason::Recovering.word().into());
        }
        if let Some(holder) = device.holder.and_then(|holder| self.tenants.get(&holder)) {
            reasons.push(format!("waits-for: {}", holder.name));
            if holder.turn.as_ref().is_some_and(|turn| turn.not_preemptible) {
                reasons.push(format!("{}: {}", Reason::NotPreemptible, holder.name));
            }
        }
        let Some(tenant) = self.tenants.get(&id) else { return };
        let number = tenant.ticket.map_or(0, |ticket| ticket.number);
        let ahead = self.queue.range(..number).next_back().map(|(_, other)| *other);
        if let Some(ahead) =
            ahead.filter(|ahead| device.waiters.contains(ahead)).and_then(|id| self.tenants.get(&id))
        {
            reasons.push(format!("ahead: {}", ahead.name));
        }
        if reasons.is_empty() {
            // A gang that waits for another of its devices.
            let busy =
                tenant.shares.keys().filter_map(|key| self.devices.get(key)).find_map(|device| device.holder);
            let name =
                busy.and_then(|holder| self.tenants.get(&holder)).map_or("the queue", |t| t.name.as_str());
            reasons.push(format!("waits-for: {name}"));
        }
    }

    fn reasons_to_lack(&self, key: DeviceKey, device: &Device, reasons: &mut Vec<String>) {
        let mut named = false;
        for member in &device.ordered {
            let Some(tenant) = self.members.get(member).and_then(|m| self.tenants.get(&m.tenant)) else {
                continue;
            };
            let late = self.holding(*member, key).is_some_and(|holding| holding.unresponsive);
            reasons.push(format!("{}: {}", if late { "unresponsive" } else { "evicting" }, tenant.name));
            named = true;
        }
        if !named {
            reasons.push(Reason::CapacityExceeded.word().into());
        }
    }

    fn is_unresponsive(&self, tenant: &Tenant, key: DeviceKey) -> bool {
        tenant
            .members
            .iter()
            .any(|member| self.holding(*member, key).is_some_and(|holding| holding.unresponsive))
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
