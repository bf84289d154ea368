//! Members and tenants come and go; devices become used and unused.
//!
//! Whatever way a member leaves (end of process, lost connection, expulsion), it goes through
//! `Core::remove_member`, so that "who is gone owns nothing" is true in one place. A tenant lives
//! as long as it has a member. Read next: `recovery` for claims, `turns` for what `Ready` starts.

use crate::Core;
use crate::ids::{DeviceKey, Epoch, MemberId, Reason, TenantId};
use crate::output::{Level, Output, ToMember};
use crate::records::{BYTES_MAX, Device, Holding, Member, Rest, Share, Sums, Tenant};
use crate::state::State;
use crate::timers::Purpose;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The fields of `MemberMessage::Device`.
pub(crate) struct DeviceSaid {
    pub(crate) device: DeviceKey,
    pub(crate) name: String,
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) host_bytes: u64,
    pub(crate) pinned_bytes: u64,
    pub(crate) epoch: Option<Epoch>,
}

impl DeviceSaid {
    fn claims_something(&self) -> bool {
        self.virtual_bytes | self.resident_bytes | self.host_bytes | self.pinned_bytes != 0
            || self.epoch.is_some()
    }

    fn is_possible(&self) -> bool {
        (1..=BYTES_MAX).contains(&self.total_bytes)
            && self.free_bytes <= self.total_bytes
            && self.virtual_bytes <= self.total_bytes
            && self.resident_bytes <= self.total_bytes
            && self.host_bytes <= BYTES_MAX
    }
}

impl Core {
    pub(crate) fn connect(
        &mut self,
        member: MemberId,
        pid: u32,
        (tenant, name, memory_limit_bytes): (TenantId, String, Option<u64>),
        resumes: Option<MemberId>,
    ) {
        if self.members.contains_key(&member) {
            self.log(Level::Error, format!("internal: {member} connected twice"));
            return;
        }
        let record = self.tenants.entry(tenant).or_insert_with(|| Tenant {
            name,
            memory_limit_bytes,
            members: BTreeSet::new(),
            shares: BTreeMap::new(),
            ticket: None,
            turn: None,
            leased_bytes: 0,
            turns: 0,
            turn_time: Duration::ZERO,
            wait_time: Duration::ZERO,
            turn_ended_at: Duration::ZERO,
            others_announced: 0,
            unhandled: BTreeMap::new(),
        });
        record.members.insert(member);
        self.members.insert(
            member,
            Member {
                tenant,
                pid,
                resumes,
                ready: false,
                requested: false,
                in_turn: false,
                rest: Rest::No,
                restoring: false,
                claimed_epoch: None,
                holdings: BTreeMap::new(),
                segments: BTreeMap::new(),
                segments_pending: BTreeMap::new(),
                complaints: Default::default(),
            },
        );
    }

    /// Tells the member why, and forgets it.
    pub(crate) fn reject(&mut self, member: MemberId, reason: Reason, text: String) {
        self.complain(member, reason.word(), &format!("is expelled: {text}"));
        self.remove_member(member);
        self.outputs.push(Output::RejectMember { member, reason, text });
    }

    pub(crate) fn device_said(&mut self, member: MemberId, said: DeviceSaid) {
        let Some(record) = self.members.get(&member) else { return };
        if !said.is_possible() {
            return self.reject(member, Reason::ProtocolViolation, "impossible sizes of a device".into());
        }
        if said.claims_something() && (record.resumes.is_none() || record.ready) {
            return self.reject(member, Reason::ProtocolViolation, "claims without an earlier life".into());
        }
        let key = said.device;
        if record.holdings.contains_key(&key) {
            return self.usage(member, key, said.total_bytes, said.free_bytes);
        }
        if record.holdings.len() >= self.settings.devices_max {
            return self.reject(member, Reason::ProtocolViolation, "too many devices".into());
        }
        self.add_device(member, &said);
        self.claim(member, &said);
        self.see_device(member, key, said.total_bytes, said.free_bytes);
        self.cover_new_device(member, key);
        self.touch(key);
    }

    fn add_device(&mut self, member: MemberId, said: &DeviceSaid) {
        let Some(record) = self.members.get_mut(&member) else { return };
        let tenant_id = record.tenant;
        record.holdings.insert(said.device, Holding::default());
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let share = tenant.shares.entry(said.device).or_insert_with(|| Share {
            users: 0,
            sums: Sums::default(),
            state: State::Registered,
            has_run: false,
            own_sight: None,
            to_host_bytes: 0,
            to_device_bytes: 0,
        });
        share.users += 1;
        let device = self.devices.entry(said.device).or_insert_with(|| Device {
            name: said.name.clone(),
            total_bytes: said.total_bytes,
            usable_bytes: said.free_bytes,
            doubted: None,
            sights: BTreeMap::new(),
            claimed_free_bytes: None,
            tenants: BTreeMap::new(),
            sums: Sums::default(),
            holder: None,
            waiters: BTreeSet::new(),
            ordered: BTreeSet::new(),
            head_room_requests: VecDeque::new(),
            withheld_bytes: 0,
            withheld_until: Duration::ZERO,
            withheld_for: None,
            strangers_at: Duration::ZERO,
            last_motion: Duration::ZERO,
            quarantined: None,
        });
        device.tenants.entry(tenant_id).or_insert(0);
        if tenant.ticket.is_some() {
            device.waiters.insert(tenant_id);
        }
        self.refresh(tenant_id, said.device);
    }

    pub(crate) fn ready(&mut self, member: MemberId) {
        let Some(record) = self.members.get_mut(&member) else { return };
        if std::mem::replace(&mut record.ready, true) {
            return self.complain(member, Reason::ProtocolViolation.word(), "says ready twice");
        }
        let (tenant, requested) = (record.tenant, record.requested);
        let claimed = record.claimed_epoch.take().is_some();
        if let Some(former) = record.resumes {
            self.expected_gone(former);
        }
        self.join_turn(member, claimed);
        let has_turn = self.tenants.get(&tenant).is_some_and(|tenant| tenant.turn.is_some());
        if requested && !has_turn {
            self.enqueue(tenant);
        }
    }

    /// Everything of the member returns; the tenant goes with its last member.
    pub(crate) fn remove_member(&mut self, member: MemberId) {
        let Some(record) = self.members.get(&member) else { return };
        let (tenant_id, former) = (record.tenant, record.resumes);
        let keys: Vec<DeviceKey> = record.holdings.keys().copied().collect();
        for key in &keys {
            self.close_order(member, *key);
            let left_bytes = self.holding(member, *key).map_or(0, |holding| holding.resident_bytes);
            self.adjust(member, *key, |holding| *holding = Holding::default());
            if let Some(device) = self.devices.get_mut(key).filter(|_| left_bytes > 0) {
                // The driver takes a moment to free what a dead process had.
                device.last_motion = self.now;
            }
        }
        self.drop_segments(member);
        self.forget_head_room(member);
        self.members.remove(&member);
        if let Some(former) = former {
            self.expected_gone(former);
        }
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        tenant.members.remove(&member);
        if tenant.members.is_empty() {
            self.withdraw(tenant_id);
            self.end_turn(tenant_id);
        }
        for key in keys {
            self.leave_device(tenant_id, key);
        }
        if self.tenants.get(&tenant_id).is_some_and(|tenant| tenant.members.is_empty()) {
            self.tenants.remove(&tenant_id);
            self.outputs.push(Output::TenantGone { tenant: tenant_id });
        } else {
            self.withdraw_if_unwanted(tenant_id);
            self.end_restore_if_done(tenant_id);
            self.end_turn_if_at_rest(tenant_id);
        }
    }

    /// One member fewer of the tenant uses the device.
    fn leave_device(&mut self, tenant_id: TenantId, key: DeviceKey) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let Some(share) = tenant.shares.get_mut(&key) else { return };
        share.users = share.users.saturating_sub(1);
        let unused = share.users == 0;
        self.refresh(tenant_id, key);
        if unused {
            let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
            if let Some(turn) = &mut tenant.turn {
                turn.devices.remove(&key);
            }
            tenant.shares.remove(&key);
            if let Some(device) = self.devices.get_mut(&key) {
                device.tenants.remove(&tenant_id);
                device.sights.remove(&tenant_id);
                device.believe_sights();
                device.waiters.remove(&tenant_id);
                if device.holder == Some(tenant_id) {
                    device.holder = None;
                }
                if device.tenants.is_empty() && device.quarantined.is_none() {
                    self.timers.clear(Purpose::Credits(key));
                    if let Some(device) = self.devices.remove(&key) {
                        self.answer_all_head_room(&device);
                    }
                }
            }
        }
        self.look_at_queue = true;
        self.touch(key);
    }

    /// A sticky CUDA error: what the member has there stays there until it is gone.
    pub(crate) fn faulted(&mut self, member: MemberId, key: DeviceKey, code: u32) {
        let Some(record) = self.members.get_mut(&member) else { return };
        let tenant = record.tenant;
        if record.in_turn {
            record.rest = Rest::Released;
        }
        record.restoring = false;
        self.close_order(member, key);
        self.adjust(member, key, |holding| {
            holding.faulted = true;
            holding.wanted_bytes = 0;
            holding.short = None;
        });
        self.complain(
            member,
            "faulted",
            &format!("reports CUDA error {code} on {key}; its bytes stay there"),
        );
        self.touch(key);
        self.end_restore_if_done(tenant);
        self.end_turn_if_at_rest(tenant);
    }

    /// Sends to all members that take part in the tenant's turn.
    pub(crate) fn send_to_turn(&mut self, tenant: TenantId, message: ToMember) {
        let Some(tenant) = self.tenants.get(&tenant) else { return };
        for member in &tenant.members {
            if self.members.get(member).is_some_and(|record| record.in_turn) {
                self.outputs.push(Output::Send { member: *member, message: message.clone() });
            }
        }
    }
}
