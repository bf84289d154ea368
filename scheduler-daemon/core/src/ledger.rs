//! Who may be on the device: frame credits, given, returned, short.
//!
//! A credit is counted as resident from the moment it is given until it is returned, so the sum
//! of credits bounds what can be on the device whatever members do. Only members of the device's
//! holder may want credits. Everything that changes a holding goes through `Core::adjust`.
//! Read next: `evict` (making room), `sight` (how large the device is), `victims` (whose bytes go).

use crate::Core;
use crate::ids::{DeviceKey, MemberId, Reason, TenantId};
use crate::output::ToMember;
use crate::records::{BYTES_MAX, Doubt, Holding, Short};
use crate::state::{Facts, State};
use crate::timers::Purpose;
use std::time::Duration;

const BACK_OFF_MIN: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

impl Core {
    /// Changes what a member holds on a device, and with it the sums of tenant and device.
    /// Nothing happens if the member does not use the device.
    pub(crate) fn adjust(&mut self, member: MemberId, key: DeviceKey, change: impl FnOnce(&mut Holding)) {
        let Some(record) = self.members.get_mut(&member) else { return };
        let tenant_id = record.tenant;
        let Some(holding) = record.holdings.get_mut(&key) else { return };
        let before = holding.sums();
        change(holding);
        let after = holding.sums();
        if before == after {
            return;
        }
        let share = self.tenants.get_mut(&tenant_id).and_then(|tenant| tenant.shares.get_mut(&key));
        if let (Some(share), Some(device)) = (share, self.devices.get_mut(&key)) {
            share.sums.replace(before, after);
            device.sums.replace(before, after);
            device.tenants.insert(tenant_id, share.sums.virtual_bytes);
        }
        self.refresh(tenant_id, key);
    }

    /// Reads the state of a tenant on a device off the facts again.
    pub(crate) fn refresh(&mut self, tenant_id: TenantId, key: DeviceKey) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let queued = tenant.ticket.is_some();
        let turn =
            tenant.turn.as_ref().filter(|turn| turn.devices.contains(&key)).map(|turn| turn.progress());
        let Some(share) = tenant.shares.get_mut(&key) else { return };
        let next = State::of(Facts {
            gone: share.users == 0,
            faulted: share.sums.faulted > 0,
            turn,
            evicting: share.sums.orders > 0,
            queued,
            has_resident_bytes: share.sums.resident_bytes > 0,
            has_saved_bytes: share.sums.host_bytes > 0 || share.has_run && share.sums.virtual_bytes > 0,
        });
        let before = std::mem::replace(&mut share.state, next);
        self.unchecked.insert(key);
        if !before.may_become(next) {
            let name = &self.tenants[&tenant_id].name;
            let text = format!("{name} went from {} to {}", before.word(), next.word());
            self.break_rule(key, text);
        }
    }

    pub(crate) fn refresh_all(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get(&tenant_id) else { return };
        let keys: Vec<DeviceKey> = tenant.shares.keys().copied().collect();
        for key in keys {
            self.refresh(tenant_id, key);
        }
    }

    pub(crate) fn holding(&self, member: MemberId, key: DeviceKey) -> Option<&Holding> {
        self.members.get(&member)?.holdings.get(&key)
    }

    fn holds_turn(&self, member: MemberId, key: DeviceKey) -> bool {
        let holder = self.devices.get(&key).and_then(|device| device.holder);
        self.members.get(&member).is_some_and(|record| record.in_turn && holder == Some(record.tenant))
    }

    pub(crate) fn credits_wanted(&mut self, member: MemberId, key: DeviceKey, bytes: u64) {
        let bytes = bytes.min(BYTES_MAX);
        if !self.holds_turn(member, key) {
            return self.complain(member, Reason::ProtocolViolation.word(), "wants credits without a turn");
        }
        if bytes == 0 || self.holding(member, key).is_none_or(|holding| holding.faulted) {
            return;
        }
        self.adjust(member, key, |holding| {
            holding.wanted_bytes = holding.wanted_bytes.saturating_add(bytes).min(BYTES_MAX);
        });
        self.begin_restore(member, bytes);
        self.touch(key);
    }

    pub(crate) fn credits_returned(&mut self, member: MemberId, key: DeviceKey, bytes: u64) {
        let Some(held) = self.holding(member, key).map(|holding| holding.resident_bytes) else {
            return self.complain(
                member,
                Reason::ProtocolViolation.word(),
                "returns credits of a strange device",
            );
        };
        if bytes > held {
            self.complain(member, Reason::ProtocolViolation.word(), "returns more credits than it holds");
        }
        let bytes = bytes.min(held);
        self.adjust(member, key, |holding| {
            holding.resident_bytes -= bytes;
            holding.unresponsive = false;
            if let Some(order) = &mut holding.order {
                order.returned_bytes = order.returned_bytes.saturating_add(bytes);
            }
        });
        self.give_to_head_room(key, bytes);
        self.moved_credits(key);
        self.end_back_off(key);
    }

    /// Real memory has become free: who was short may try at once.
    fn end_back_off(&mut self, key: DeviceKey) {
        let Some(holder) = self.devices.get(&key).and_then(|device| device.holder) else { return };
        let Some(tenant) = self.tenants.get(&holder) else { return };
        if tenant.shares.get(&key).is_none_or(|share| share.sums.wanted_bytes == 0) {
            return;
        }
        for member in &tenant.members {
            let holding = self.members.get_mut(member).and_then(|record| record.holdings.get_mut(&key));
            if let Some(short) = holding.and_then(|holding| holding.short.as_mut()) {
                *short = Short { back_off: BACK_OFF_MIN, retry_at: self.now };
            }
        }
    }

    fn moved_credits(&mut self, key: DeviceKey) {
        if let Some(device) = self.devices.get_mut(&key) {
            device.last_motion = self.now;
        }
        self.touch(key);
    }

    /// The driver is right: the credits go back, the device is as small as it says, and the
    /// member wants them still. Others are evicted if that makes room; else, or if nobody is
    /// left to evict, the old belief is tried again after a back-off.
    pub(crate) fn credits_short(&mut self, member: MemberId, key: DeviceKey, bytes: u64, free_bytes: u64) {
        let Some(held) = self.holding(member, key).map(|holding| holding.resident_bytes) else {
            return self.complain(member, Reason::ProtocolViolation.word(), "is short on a strange device");
        };
        let bytes = bytes.min(held);
        if bytes == 0 || !self.holds_turn(member, key) {
            // Nothing of the device is believed of who has no work there; the credits go back.
            self.credits_returned(member, key, bytes);
            return;
        }
        let Some(device) = self.devices.get_mut(&key) else { return };
        let believed = device.lasting_usable_bytes();
        let left = device.sums.resident_bytes.saturating_sub(bytes);
        device.usable_bytes = device.usable_bytes.min(left.saturating_add(free_bytes));
        device.doubted = Some(Doubt { usable_bytes: believed, since: self.now });
        device.sights.clear();
        let now = self.now;
        let mut retry_at = now;
        self.adjust(member, key, |holding| {
            holding.resident_bytes -= bytes;
            if !holding.faulted {
                holding.wanted_bytes = holding.wanted_bytes.saturating_add(bytes).min(BYTES_MAX);
                let back_off =
                    holding.short.map_or(BACK_OFF_MIN, |short| (short.back_off * 2).min(BACK_OFF_MAX));
                retry_at = now.saturating_add(back_off);
                holding.short = Some(Short { back_off, retry_at });
            }
        });
        self.timers.set_earlier(Purpose::Credits(key), retry_at);
        self.moved_credits(key);
    }

    /// Gives the holder's members what they want as far as there is room, and makes room.
    pub(crate) fn grant_credits(&mut self, key: DeviceKey) {
        if self.recovery.is_active() || self.is_quarantined(key) {
            return;
        }
        let now = self.now;
        let Some(device) = self.devices.get_mut(&key) else { return };
        if device.withheld_bytes > 0 && device.withheld_until <= now {
            device.withheld_bytes = 0;
        }
        let Some(tenant) = device.holder.and_then(|holder| self.tenants.get(&holder)) else {
            return self.make_room(key);
        };
        if tenant.shares.get(&key).is_none_or(|share| share.sums.wanted_bytes == 0) {
            return self.make_room(key);
        }
        let members: Vec<MemberId> = tenant.members.iter().copied().collect();
        for member in &members {
            self.grant_to(*member, key);
        }
        self.make_room(key);
        if self.end_doubt(key, &members) {
            for member in members {
                self.grant_to(member, key);
            }
        }
    }

    fn grant_to(&mut self, member: MemberId, key: DeviceKey) {
        let Some(holding) = self.holding(member, key).filter(|holding| holding.wanted_bytes > 0) else {
            return;
        };
        let wanted = holding.wanted_bytes;
        if let Some(short) = holding.short.filter(|short| short.retry_at > self.now) {
            return self.timers.set_earlier(Purpose::Credits(key), short.retry_at);
        }
        let Some(device) = self.devices.get_mut(&key) else { return };
        let bytes = wanted.min(device.free_bytes(self.settings.head_room_bytes));
        if bytes == 0 {
            return;
        }
        device.last_motion = self.now;
        self.adjust(member, key, |holding| {
            holding.wanted_bytes -= bytes;
            holding.resident_bytes = holding.resident_bytes.saturating_add(bytes);
        });
        self.check_grant(key);
        self.send(member, ToMember::Credits { device: key, bytes });
    }

    /// Wants are unmet and nothing comes back: what was believed before a shortage is tried again,
    /// after the back-off of who was short, or half a second for others. True if it is time.
    fn end_doubt(&mut self, key: DeviceKey, members: &[MemberId]) -> bool {
        let Some(device) = self.devices.get(&key) else { return false };
        let Some(doubt) = device.doubted.filter(|_| device.sums.wanted_bytes > 0) else { return false };
        if self.returning_bytes(key) > 0 {
            return false;
        }
        let shorts = members.iter().filter_map(|member| self.holding(*member, key)?.short);
        let retry_at = shorts.map(|short| short.retry_at).min();
        let at = retry_at.unwrap_or_else(|| doubt.since.saturating_add(BACK_OFF_MAX));
        if at > self.now {
            self.timers.set_earlier(Purpose::Credits(key), at);
            return false;
        }
        let Some(device) = self.devices.get_mut(&key) else { return false };
        device.usable_bytes = device.lasting_usable_bytes();
        device.doubted = None;
        true
    }
}
