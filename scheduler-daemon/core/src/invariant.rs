//! What must always hold, checked in release builds too.
//!
//! After each step the devices that changed are checked; now and then everything is added up
//! again ([`Core::audit`]), at a cost that stays constant per step. A broken rule is a fault of
//! ours: it is logged and the device gets no more turns and credits; the daemon lives and other
//! devices go on. It is never a panic.

use crate::Core;
use crate::ids::{DeviceKey, TenantId};
use crate::output::{Level, Output};
use crate::records::Sums;
use std::collections::BTreeSet;

impl Core {
    pub(crate) fn break_rule(&mut self, key: DeviceKey, text: String) {
        let Some(device) = self.devices.get_mut(&key) else { return };
        if device.quarantined.is_none() {
            self.outputs
                .push(Output::Log { level: Level::Error, text: format!("quarantined: {key}: {text}") });
            device.quarantined = Some(text);
        }
    }

    /// Right after credits were given: they never exceed what tenants can have at once.
    pub(crate) fn check_grant(&mut self, key: DeviceKey) {
        let Some(device) = self.devices.get(&key) else { return };
        let (resident, capacity) =
            (device.sums.resident_bytes, device.capacity_bytes(self.settings.head_room_bytes));
        if resident > capacity {
            self.break_rule(key, format!("{resident} bytes of credits are out, the capacity is {capacity}"));
        }
    }

    pub(crate) fn check_step(&mut self) {
        while let Some(key) = self.unchecked.pop_first() {
            if let Some(text) = self.fault_of(key) {
                self.break_rule(key, text);
            }
        }
        self.steps_since_audit += 1;
        if self.steps_since_audit > 256 + 4 * self.members.len() {
            self.steps_since_audit = 0;
            for (key, text) in self.audit() {
                match key {
                    Some(key) => self.break_rule(key, text),
                    None => self.log(Level::Error, format!("internal: {text}")),
                }
            }
        }
    }

    /// What is wrong with a device, as far as it can be seen without adding up.
    fn fault_of(&self, key: DeviceKey) -> Option<String> {
        let device = self.devices.get(&key)?;
        if let Some(holder) = device.holder {
            let covers = self.tenants.get(&holder).and_then(|tenant| tenant.turn.as_ref());
            if !covers.is_some_and(|turn| turn.devices.contains(&key)) {
                return Some(format!("held by {holder}, whose turn does not cover it"));
            }
            if device.waiters.contains(&holder) {
                return Some(format!("{holder} waits for what it holds"));
            }
        } else if device.sums.wanted_bytes > 0 {
            return Some("credits are wanted and nobody has the turn".into());
        }
        if device.sums.pinned_bytes > device.sums.resident_bytes {
            return Some("more bytes are pinned than resident".into());
        }
        None
    }

    /// Adds everything up again and says what does not agree. Costs a pass over all members.
    pub fn audit(&self) -> Vec<(Option<DeviceKey>, String)> {
        let mut faults = Vec::new();
        for key in self.devices.keys() {
            self.audit_device(*key, &mut faults);
        }
        for (id, tenant) in &self.tenants {
            self.audit_tenant(*id, &mut faults);
            if tenant.members.is_empty() {
                faults.push((None, format!("{id} has no member")));
            }
        }
        for (number, id) in &self.queue {
            let ticket = self.tenants.get(id).and_then(|tenant| tenant.ticket);
            if ticket.is_none_or(|ticket| ticket.number != *number) {
                faults.push((None, format!("{id} is in the queue without a ticket")));
            }
        }
        let leased: u64 = self.tenants.values().map(|tenant| tenant.leased_bytes).sum();
        if leased != self.leased_bytes {
            faults
                .push((None, format!("{} bytes are leased in sum, {leased} by tenants", self.leased_bytes)));
        }
        for (segment, owner) in &self.segments {
            if self.members.get(owner).is_none_or(|member| !member.segments.contains_key(segment)) {
                faults.push((None, format!("{segment} is leased to {owner}, who does not have it")));
            }
        }
        faults
    }

    fn audit_device(&self, key: DeviceKey, faults: &mut Vec<(Option<DeviceKey>, String)>) {
        let device = &self.devices[&key];
        let mut fault = |text: String| faults.push((Some(key), text));
        if let Some(text) = self.fault_of(key) {
            fault(text);
        }
        let mut device_sums = Sums::default();
        let mut ordered = BTreeSet::new();
        for (id, virtual_bytes) in &device.tenants {
            let Some(share) = self.tenants.get(id).and_then(|tenant| tenant.shares.get(&key)) else {
                fault(format!("{id} has gone and is still on the device"));
                continue;
            };
            let mut sums = Sums::default();
            let mut users = 0;
            for member in &self.tenants[id].members {
                let Some(holding) = self.holding(*member, key) else { continue };
                users += 1;
                sums.replace(Sums::default(), holding.sums());
                if holding.order.is_some() {
                    ordered.insert(*member);
                }
            }
            if sums != share.sums || users != share.users || sums.virtual_bytes != *virtual_bytes {
                fault(format!("{id} has {sums:?} by its {users} members, {:?} in the books", share.sums));
            }
            device_sums.replace(Sums::default(), sums);
        }
        if device_sums != device.sums {
            fault(format!("{device_sums:?} by tenants, {:?} in the books", device.sums));
        }
        if ordered != device.ordered {
            fault("evict orders of members and device do not agree".into());
        }
        let waiters = device.waiters.iter().filter(|id| !self.waits_for(**id, key)).count();
        if waiters > 0 {
            fault(format!("{waiters} tenants wait here without a ticket"));
        }
        let holders: Vec<_> = self
            .tenants
            .iter()
            .filter(|(_, tenant)| tenant.turn.as_ref().is_some_and(|turn| turn.devices.contains(&key)))
            .map(|(id, _)| *id)
            .collect();
        if holders != device.holder.into_iter().collect::<Vec<_>>() {
            fault(format!("held by {:?}, but turns of {holders:?} cover it", device.holder));
        }
    }

    fn waits_for(&self, tenant: TenantId, key: DeviceKey) -> bool {
        let tenant = self.tenants.get(&tenant);
        tenant.is_some_and(|tenant| tenant.ticket.is_some() && tenant.shares.contains_key(&key))
    }

    fn audit_tenant(&self, id: TenantId, faults: &mut Vec<(Option<DeviceKey>, String)>) {
        let tenant = &self.tenants[&id];
        if tenant.ticket.is_some() && tenant.turn.is_some() {
            faults.push((None, format!("{id} has a turn and waits for one")));
        }
        for key in tenant.shares.keys() {
            let device = self.devices.get(key);
            if device.is_none_or(|device| !device.tenants.contains_key(&id)) {
                faults.push((Some(*key), format!("{id} is here and the device does not know")));
            }
            if tenant.ticket.is_some() && device.is_some_and(|device| !device.waiters.contains(&id)) {
                faults.push((Some(*key), format!("{id} has a ticket and is not among the waiters")));
            }
        }
        for member in &tenant.members {
            let Some(record) = self.members.get(member) else {
                faults.push((None, format!("{member} of {id} has gone")));
                continue;
            };
            if record.in_turn && tenant.turn.is_none() {
                faults.push((None, format!("{member} is in a turn that {id} does not have")));
            }
            for (key, holding) in &record.holdings {
                if holding.wanted_bytes > 0 && !record.in_turn {
                    faults.push((Some(*key), format!("{member} wants credits without a turn")));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, MemberId, MemberMessage, Settings, ToMember};
    use std::time::Duration;

    const DEVICE: DeviceKey = DeviceKey([1; 16]);

    fn say(core: &mut Core, member: u64, message: MemberMessage) -> Vec<Output> {
        let mut outputs = Vec::new();
        core.step(Duration::ZERO, Input::Message { member: MemberId(member), message }, &mut outputs);
        outputs
    }

    fn core_with_two_tenants() -> Core {
        let mut core = Core::new(Settings::default());
        for number in [1, 2] {
            let connected = Input::MemberConnected {
                member: MemberId(number),
                pid: 1,
                tenant: TenantId(number),
                tenant_name: "t".into(),
                memory_limit_bytes: None,
                resumes: None,
            };
            core.step(Duration::ZERO, connected, &mut Vec::new());
            let device = MemberMessage::Device {
                device: DEVICE,
                name: "small".into(),
                total_bytes: 1000,
                free_bytes: 1000,
                virtual_bytes: 0,
                resident_bytes: 0,
                host_bytes: 0,
                pinned_bytes: 0,
                epoch: None,
            };
            say(&mut core, number, device);
            say(&mut core, number, MemberMessage::Ready);
        }
        core
    }

    /// Breaks the books by hand, as a fault of ours would, and expects quarantine and no panic.
    fn expect_quarantine(core: &mut Core) {
        let outputs = say(core, 2, MemberMessage::TurnRequested);
        let is_error = |output: &Output| matches!(output, Output::Log { level: Level::Error, .. });
        assert!(outputs.iter().any(is_error), "{outputs:?}");
        assert!(core.status(Duration::ZERO).devices[0].quarantined.is_some());
        core.step(Duration::ZERO, Input::MemberGone { member: MemberId(1) }, &mut Vec::new());
        let outputs = say(core, 2, MemberMessage::TurnRequested);
        let granted =
            |output: &Output| matches!(output, Output::Send { message: ToMember::TurnGranted { .. }, .. });
        assert!(!outputs.iter().any(granted), "a quarantined device was granted");
    }

    #[test]
    fn a_holder_without_a_turn_quarantines_the_device() {
        let mut core = core_with_two_tenants();
        core.devices.get_mut(&DEVICE).expect("known").holder = Some(TenantId(1));
        expect_quarantine(&mut core);
    }

    #[test]
    fn more_pinned_than_resident_quarantines_the_device() {
        let mut core = core_with_two_tenants();
        say(&mut core, 1, MemberMessage::TurnRequested);
        core.devices.get_mut(&DEVICE).expect("known").sums.pinned_bytes = 1;
        expect_quarantine(&mut core);
    }

    #[test]
    fn credits_beyond_capacity_quarantine_the_device() {
        let mut core = core_with_two_tenants();
        say(&mut core, 1, MemberMessage::TurnRequested);
        core.devices.get_mut(&DEVICE).expect("known").sums.resident_bytes = 2000;
        core.check_grant(DEVICE);
        assert!(core.status(Duration::ZERO).devices[0].quarantined.is_some());
    }

    #[test]
    fn sums_that_do_not_agree_are_found_by_the_audit() {
        let mut core = core_with_two_tenants();
        assert_eq!(core.audit(), []);
        core.devices.get_mut(&DEVICE).expect("known").sums.virtual_bytes = 5;
        assert!(core.audit().iter().any(|(key, _)| *key == Some(DEVICE)));
    }
}
