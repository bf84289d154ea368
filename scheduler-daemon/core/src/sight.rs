//! How large a device is for tenants: total less contexts, strangers and head-room.
//!
//! Members report what the driver says. A report counts only while no credits move, since bytes
//! on their way are on neither side's account. Of the tenants' reports of the last 30 s the
//! largest is believed: who sees too little harms nobody else, and who claims too much is
//! corrected by the next member that runs short (`ledger`), which all others then start from.
//! A tenant is admitted (`admission`) by the least of its own reports, so that nobody is talked
//! into allocating more than the device can ever hold. Two things have to be taken on trust until
//! the daemon reads the driver itself: the device's total is that of the first report, and credits
//! that are held without making frames of them make the device look larger.

use crate::Core;
use crate::ids::{DeviceKey, MemberId, Reason};
use crate::records::Sight;
use std::time::Duration;

/// A report this much older than the newest is forgotten.
const FRESH: Duration = Duration::from_secs(30);
/// So many tenants' reports are compared; more would tell nothing new.
const SIGHTS_MAX: usize = 64;
/// Credits given or returned less than this ago are still being spent or freed.
const MOTION: Duration = Duration::from_millis(50);

impl Core {
    /// A member's first report of a device. That of the first user is all that is known; when
    /// nobody's counts any more because somebody ran short, the belief from before is better than
    /// a look at bytes on their way.
    pub(crate) fn see_device(&mut self, member: MemberId, key: DeviceKey, total_bytes: u64, free_bytes: u64) {
        let Some(device) = self.devices.get(&key) else { return };
        let is_alone = device.tenants.len() == 1;
        if is_alone && device.sights.is_empty() && device.doubted.is_none() {
            self.see(member, key, total_bytes, free_bytes);
        } else {
            self.usage(member, key, total_bytes, free_bytes);
        }
    }

    /// A later report: counts only while nothing moves.
    pub(crate) fn usage(&mut self, member: MemberId, key: DeviceKey, total_bytes: u64, free_bytes: u64) {
        let known = self.holding(member, key).is_some();
        let Some(device) = self.devices.get(&key).filter(|_| known) else {
            return self.complain(
                member,
                Reason::ProtocolViolation.word(),
                "reports a device it does not use",
            );
        };
        let still = device.ordered.is_empty() && self.now.saturating_sub(device.last_motion) >= MOTION;
        if still {
            self.see(member, key, total_bytes, free_bytes);
        }
    }

    fn see(&mut self, member: MemberId, key: DeviceKey, total_bytes: u64, free_bytes: u64) {
        let Some(tenant) = self.members.get(&member).map(|record| record.tenant) else { return };
        let Some(device) = self.devices.get_mut(&key) else { return };
        if total_bytes != device.total_bytes || free_bytes > total_bytes {
            let text = format!("reports another size of {key} than others before");
            return self.complain(member, Reason::ProtocolViolation.word(), &text);
        }
        if self.recovery.is_active() {
            // Others' bytes are not in the books yet, so this says nothing before the end.
            device.claimed_free_bytes = Some(free_bytes);
            return;
        }
        let at = self.now;
        let usable_bytes = free_bytes.saturating_add(device.sums.resident_bytes).min(total_bytes);
        if device.sights.len() < SIGHTS_MAX || device.sights.contains_key(&tenant) {
            device.sights.insert(tenant, Sight { at, usable_bytes });
        }
        if let Some(share) = self.tenants.get_mut(&tenant).and_then(|tenant| tenant.shares.get_mut(&key)) {
            let lower = |own: &Sight| usable_bytes < own.usable_bytes || at.saturating_sub(own.at) > FRESH;
            if share.own_sight.as_ref().is_none_or(lower) {
                share.own_sight = Some(Sight { at, usable_bytes });
            }
        }
        device.sights.retain(|_, sight| at.saturating_sub(sight.at) <= FRESH);
        device.believe_sights();
        device.doubted = None;
        device.withheld_bytes = 0;
        self.touch(key);
    }

    /// Somebody has come back late: what was seen before took these bytes for a stranger's.
    pub(crate) fn recognise_bytes(&mut self, key: DeviceKey, bytes: u64) {
        let Some(device) = self.devices.get_mut(&key) else { return };
        let total_bytes = device.total_bytes;
        let raise = |usable: &mut u64| *usable = usable.saturating_add(bytes).min(total_bytes);
        raise(&mut device.usable_bytes);
        device.sights.values_mut().for_each(|sight| raise(&mut sight.usable_bytes));
        device.doubted.iter_mut().for_each(|doubt| raise(&mut doubt.usable_bytes));
        for tenant in device.tenants.keys() {
            let share = self.tenants.get_mut(tenant).and_then(|tenant| tenant.shares.get_mut(&key));
            if let Some(sight) = share.and_then(|share| share.own_sight.as_mut()) {
                raise(&mut sight.usable_bytes);
            }
        }
    }

    /// Recovery is over: with all claims in the books, what was said last is a sight of the device.
    pub(crate) fn see_claims(&mut self, key: DeviceKey) {
        let Some(device) = self.devices.get_mut(&key) else { return };
        let Some(free_bytes) = device.claimed_free_bytes.take() else { return };
        let usable_bytes = free_bytes.saturating_add(device.sums.resident_bytes);
        device.usable_bytes = usable_bytes.min(device.total_bytes);
        device.doubted = None;
    }
}
