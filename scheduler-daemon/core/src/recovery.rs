//! After a restart: wait for those who were here before, believe what they hold.
//!
//! Until every expected member is back (`Ready`) or gone, or the time is over, no turn and no
//! credit is granted; questions about memory wait, since the sums are not known. A claimed turn
//! goes on under a fresh epoch, because its holder's work is running whatever we say. Claimed
//! bytes count as resident even above capacity; then nothing is granted until they are evicted.

use crate::Core;
use crate::ids::{DeviceKey, MemberId, Reason, TenantId};
use crate::input::MemberMessage;
use crate::members::DeviceSaid;
use crate::output::{Level, ToMember};
use crate::timers::Purpose;
use std::collections::{BTreeMap, BTreeSet};

/// Questions of one member that are kept for later.
const DEFERRED_MAX: usize = 64;

/// What is known of the former life.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recovery {
    active: bool,
    expected: BTreeSet<MemberId>,
    deferred: Vec<(MemberId, MemberMessage)>,
    deferred_by_member: BTreeMap<MemberId, usize>,
}

impl Recovery {
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }
}

impl Core {
    pub(crate) fn begin_recovery(&mut self, expected: Vec<MemberId>) {
        if expected.is_empty() || !self.members.is_empty() {
            return;
        }
        self.recovery.active = true;
        self.recovery.expected = expected.into_iter().collect();
        self.timers.set(Purpose::Recovery, self.now.saturating_add(self.settings.recovery));
        let count = self.recovery.expected.len();
        self.log(Level::Info, format!("recovering: waiting for {count} members of the former life"));
    }

    /// An expected member is back, or will not come.
    pub(crate) fn expected_gone(&mut self, former: MemberId) {
        if self.recovery.expected.remove(&former) && self.recovery.expected.is_empty() {
            self.end_recovery();
        }
    }

    pub(crate) fn end_recovery(&mut self) {
        if !std::mem::take(&mut self.recovery.active) {
            return;
        }
        self.timers.clear(Purpose::Recovery);
        let missing = std::mem::take(&mut self.recovery.expected).len();
        let level = if missing == 0 { Level::Info } else { Level::Warn };
        self.log(level, format!("recovered: {missing} members of the former life have not come back"));
        self.recovery.deferred_by_member.clear();
        let keys: Vec<DeviceKey> = self.devices.keys().copied().collect();
        for key in &keys {
            self.see_claims(*key);
        }
        for (member, message) in std::mem::take(&mut self.recovery.deferred) {
            self.message(member, message);
        }
        let without_device: Vec<TenantId> = self.queue.values().copied().collect();
        for tenant in without_device {
            if self.tenants.get(&tenant).is_some_and(|tenant| tenant.shares.is_empty()) {
                self.start_turn(tenant, BTreeSet::new());
            }
        }
        for key in keys {
            self.touch(key);
        }
        self.look_at_queue = true;
    }

    /// Keeps a question for later, or refuses it if the member has asked too many.
    pub(crate) fn defer(&mut self, member: MemberId, message: MemberMessage) {
        let count = self.recovery.deferred_by_member.entry(member).or_default();
        if *count < DEFERRED_MAX {
            *count += 1;
            return self.recovery.deferred.push((member, message));
        }
        match message {
            MemberMessage::Reserve { request, .. } => {
                self.send(member, ToMember::Refused { request, reason: Reason::Recovering });
            }
            MemberMessage::MemoryQuery { request, .. } => {
                self.send(member, ToMember::MemoryAnswer { request, total_bytes: 0, free_bytes: 0 });
            }
            MemberMessage::HeadRoomWanted { request, .. } => {
                self.send(member, ToMember::HeadRoomMade { request, bytes: 0 });
            }
            _ => {}
        }
    }

    /// Takes over what a member of the former life holds. Sizes have been checked.
    pub(crate) fn claim(&mut self, member: MemberId, said: &DeviceSaid) {
        self.adjust(member, said.device, |holding| {
            holding.virtual_bytes = said.virtual_bytes;
            holding.resident_bytes = said.resident_bytes;
            holding.host_bytes = said.host_bytes;
            holding.pinned_bytes = said.pinned_bytes.min(said.resident_bytes);
        });
        if said.resident_bytes > 0 && !self.recovery.is_active() {
            self.recognise_bytes(said.device, said.resident_bytes);
        }
        let Some(epoch) = said.epoch else { return };
        if epoch.0 >> 32 >= self.settings.incarnation {
            return self.complain(member, Reason::ProtocolViolation.word(), "claims a turn that never was");
        }
        if let Some(record) = self.members.get_mut(&member) {
            record.claimed_epoch = Some(epoch);
        }
    }

    /// The member's work is still running: its tenant has the turn, on the devices of all members
    /// that say so, if they are free. Other devices may be held by somebody who is not back yet.
    pub(crate) fn resume_turn(&mut self, member: MemberId, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get(&tenant_id) else { return };
        let claims = |id: &MemberId| {
            let record = self.members.get(id)?;
            (*id == member || record.claimed_epoch.is_some()).then(|| record.holdings.keys().copied())
        };
        let devices: BTreeSet<DeviceKey> = tenant.members.iter().filter_map(claims).flatten().collect();
        let free = devices.iter().all(|key| {
            self.devices
                .get(key)
                .is_some_and(|device| device.holder.is_none() && device.quarantined.is_none())
        });
        if free {
            self.start_turn(tenant_id, devices);
        } else {
            self.complain(member, "turn-lost", "held a turn before the restart, but its device is taken");
        }
    }
}
