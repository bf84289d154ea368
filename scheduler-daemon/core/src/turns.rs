//! Who runs: tickets, turns, the quantum.
//!
//! Tickets are first come, first served. A ticket is granted when none of its devices is held and
//! no older ticket wants any of them: the oldest reserves, so nobody starves, and a turn takes all
//! its devices at once, so nobody deadlocks. The quantum counts only while others wait. Ending a
//! turn by force is in `drain`; bytes are none of this module's business.

use crate::Core;
use crate::ids::{DeviceKey, Epoch, MemberId, TenantId};
use crate::output::{Level, Output, ToMember};
use crate::records::{Rest, Ticket, Turn};
use crate::timers::Purpose;
use std::collections::BTreeSet;
use std::time::Duration;

impl Core {
    pub(crate) fn turn_requested(&mut self, member: MemberId) {
        let Some(record) = self.members.get_mut(&member) else { return };
        record.requested = true;
        let (tenant_id, ready) = (record.tenant, record.ready);
        if !ready {
            return; // `Ready` looks at it.
        }
        let Some(tenant) = self.tenants.get(&tenant_id) else { return };
        match &tenant.turn {
            None => self.enqueue(tenant_id),
            // The end of the drain looks at it, whatever the end is.
            Some(turn) if turn.draining => {}
            // It has the turn already, or hears so: a second grant could cross a release and look
            // like its answer.
            Some(_) if record.in_turn && record.rest == Rest::No => record.requested = false,
            Some(turn) => {
                let epoch = turn.epoch;
                self.grant_if_covered(member, epoch);
            }
        }
    }

    /// A member that uses a device outside of the turn waits for the next one, which covers it.
    pub(crate) fn grant_if_covered(&mut self, member: MemberId, epoch: Epoch) {
        let Some(record) = self.members.get(&member) else { return };
        let turn = self.tenants.get(&record.tenant).and_then(|tenant| tenant.turn.as_ref());
        if turn.is_some_and(|turn| record.holdings.keys().all(|key| turn.devices.contains(key))) {
            self.grant_to_member(member, epoch);
        }
    }

    /// Idle, or faulted: at rest until it asks again.
    pub(crate) fn turn_released(&mut self, member: MemberId, epoch: Epoch) {
        if self.is_in_turn(member, epoch) {
            self.rest(member, Rest::Released);
        }
    }

    /// Notes that a member of the turn is at rest; the turn ends with the last.
    pub(crate) fn rest(&mut self, member: MemberId, rest: Rest) {
        let Some(record) = self.members.get_mut(&member) else { return };
        record.rest = rest;
        let tenant = record.tenant;
        self.end_turn_if_at_rest(tenant);
    }

    /// Whether this epoch is the member's present turn. Others are late, or lies; both are harmless.
    pub(crate) fn is_in_turn(&mut self, member: MemberId, epoch: Epoch) -> bool {
        let Some(record) = self.members.get(&member) else { return false };
        let turn = self.tenants.get(&record.tenant).and_then(|tenant| tenant.turn.as_ref());
        record.in_turn && turn.is_some_and(|turn| turn.epoch == epoch)
    }

    /// Gives the tenant a ticket if it has neither ticket nor turn.
    pub(crate) fn enqueue(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        if tenant.ticket.is_some() || tenant.turn.is_some() {
            return;
        }
        let number = self.next_ticket;
        self.next_ticket += 1;
        tenant.ticket = Some(Ticket { number, since: self.now });
        self.queue.insert(number, tenant_id);
        let keys: Vec<DeviceKey> = tenant.shares.keys().copied().collect();
        for key in &keys {
            if let Some(device) = self.devices.get_mut(key) {
                device.waiters.insert(tenant_id);
            }
            self.refresh(tenant_id, *key);
            self.touch(*key);
        }
        self.timers.set(Purpose::Notice(tenant_id), self.now.saturating_add(self.settings.notice_after));
        if keys.is_empty() && !self.recovery.is_active() {
            // Nothing to wait for, and the queue is only searched as far as devices are free.
            self.start_turn(tenant_id, BTreeSet::new());
        }
        self.look_at_queue = true;
    }

    /// Takes the tenant's ticket away, if it has one.
    pub(crate) fn withdraw(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let Some(ticket) = tenant.ticket.take() else { return };
        tenant.wait_time = tenant.wait_time.saturating_add(self.now.saturating_sub(ticket.since));
        self.queue.remove(&ticket.number);
        self.timers.clear(Purpose::Notice(tenant_id));
        let keys: Vec<DeviceKey> = tenant.shares.keys().copied().collect();
        for key in keys {
            if let Some(device) = self.devices.get_mut(&key) {
                device.waiters.remove(&tenant_id);
            }
            self.touch(key);
        }
        self.look_at_queue = true;
    }

    /// After a member has gone: a ticket that nobody waits for is given back.
    pub(crate) fn withdraw_if_unwanted(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get(&tenant_id) else { return };
        if tenant.ticket.is_some() && !self.somebody_requested(tenant_id) {
            self.withdraw(tenant_id);
            self.refresh_all(tenant_id);
        }
    }

    fn somebody_requested(&self, tenant: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(&tenant) else { return false };
        tenant
            .members
            .iter()
            .filter_map(|id| self.members.get(id))
            .any(|member| member.ready && member.requested)
    }

    /// Grants every ticket that may be granted, oldest first.
    pub(crate) fn grant_turns(&mut self) {
        if self.recovery.is_active() {
            return;
        }
        let mut blocked: BTreeSet<DeviceKey> = BTreeSet::new();
        for (key, device) in &self.devices {
            let makes_room = device.head_room_requests.iter().any(|open| open.is_due);
            if device.holder.is_some() || device.quarantined.is_some() || makes_room {
                blocked.insert(*key);
            }
        }
        let mut granted = Vec::new();
        for tenant_id in self.queue.values() {
            if blocked.len() == self.devices.len() {
                break;
            }
            let Some(tenant) = self.tenants.get(tenant_id) else { continue };
            if tenant.shares.keys().any(|key| self.is_quarantined(*key)) {
                continue; // It may wait for ever, so it reserves nothing.
            }
            if !tenant.shares.keys().any(|key| blocked.contains(key)) {
                granted.push(*tenant_id);
            }
            blocked.extend(tenant.shares.keys());
        }
        for tenant_id in granted {
            let all = self.tenants.get(&tenant_id).map(|tenant| tenant.shares.keys().copied().collect());
            self.start_turn(tenant_id, all.unwrap_or_default());
        }
    }

    pub(crate) fn is_quarantined(&self, key: DeviceKey) -> bool {
        self.devices.get(&key).is_some_and(|device| device.quarantined.is_some())
    }

    /// The caller has made sure that these devices are free. They are all of the tenant's, but for
    /// a turn that is claimed while others may hold the rest: then it must end, to ask for all.
    pub(crate) fn start_turn(&mut self, tenant_id: TenantId, devices: BTreeSet<DeviceKey>) {
        let Some(epoch) = self.next_epoch() else { return };
        self.withdraw(tenant_id);
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let must_end = tenant.shares.len() > devices.len();
        tenant.turns = tenant.turns.saturating_add(1);
        tenant.turn = Some(Turn {
            epoch,
            devices: devices.clone(),
            granted_at: self.now,
            quantum: self.settings.quantum,
            quantum_from: Some(self.now),
            restore_over: false,
            restore_bytes: 0,
            draining: false,
            failed_drains: 0,
            retry_at: Duration::ZERO,
            must_end,
            not_preemptible: false,
        });
        let members: Vec<MemberId> = tenant.members.iter().copied().collect();
        for key in &devices {
            if let Some(share) = tenant.shares.get_mut(key) {
                share.has_run = true;
            }
            if let Some(device) = self.devices.get_mut(key) {
                device.holder = Some(tenant_id);
            }
        }
        self.outputs.push(Output::OpenGate { tenant: tenant_id, epoch });
        for member in members {
            if self.members.get(&member).is_some_and(|record| record.ready) {
                self.grant_if_covered(member, epoch);
            }
        }
        for key in devices {
            self.refresh(tenant_id, key);
            self.touch(key);
        }
    }

    /// Tells a member of the running turn, which it thereby takes part in.
    pub(crate) fn grant_to_member(&mut self, member: MemberId, epoch: Epoch) {
        let Some(record) = self.members.get_mut(&member) else { return };
        record.in_turn = true;
        record.requested = false;
        record.rest = Rest::No;
        self.send(member, ToMember::TurnGranted { epoch });
    }

    /// Epochs hold the incarnation in the upper half. The gate word has room for the lower 31
    /// bits, of which all zero means "no turn", so such numbers are left out.
    fn next_epoch(&mut self) -> Option<Epoch> {
        self.turn_counter += 1;
        if self.turn_counter & 0x7fff_ffff == 0 {
            self.turn_counter += 1;
        }
        if self.turn_counter > u64::from(u32::MAX) {
            self.turn_counter = u64::from(u32::MAX);
            self.log(Level::Error, "epochs-exhausted: restart the daemon to go on".into());
            return None;
        }
        Some(Epoch((self.settings.incarnation << 32) | self.turn_counter))
    }

    /// Ends the turn if every member that takes part is at rest.
    pub(crate) fn end_turn_if_at_rest(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get(&tenant_id) else { return };
        if tenant.turn.is_none() {
            return;
        }
        let busy = |member: &MemberId| {
            self.members.get(member).is_some_and(|record| record.in_turn && record.rest == Rest::No)
        };
        if !tenant.members.iter().any(busy) {
            self.end_turn(tenant_id);
        }
    }

    /// The turn is over: its devices are free, unmet wants are forgotten, who asked meanwhile
    /// stands at the end of the queue.
    pub(crate) fn end_turn(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let Some(turn) = tenant.turn.take() else { return };
        tenant.turn_time = tenant.turn_time.saturating_add(self.now.saturating_sub(turn.granted_at));
        tenant.turn_ended_at = self.now;
        if !turn.draining {
            self.outputs.push(Output::CloseGate { tenant: tenant_id, epoch: turn.epoch });
        }
        if std::mem::take(&mut tenant.others_announced) != 0 {
            self.outputs.push(Output::SetOthersWaiting { tenant: tenant_id, count: 0 });
        }
        for purpose in [Purpose::Quantum(tenant_id), Purpose::Drain(tenant_id), Purpose::Restore(tenant_id)] {
            self.timers.clear(purpose);
        }
        let members: Vec<MemberId> = tenant.members.iter().copied().collect();
        for member in members {
            let Some(record) = self.members.get_mut(&member) else { continue };
            record.in_turn = false;
            record.rest = Rest::No;
            record.restoring = false;
            let keys: Vec<DeviceKey> = record.holdings.keys().copied().collect();
            for key in keys {
                self.adjust(member, key, |holding| {
                    holding.wanted_bytes = 0;
                    holding.short = None;
                });
            }
        }
        for key in turn.devices {
            if let Some(device) = self.devices.get_mut(&key) {
                device.holder = None;
            }
            self.refresh(tenant_id, key);
            self.touch(key);
        }
        self.look_at_queue = true;
        if self.somebody_requested(tenant_id) || turn.must_end && self.has_ready_member(tenant_id) {
            self.enqueue(tenant_id);
        }
    }

    fn has_ready_member(&self, tenant: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(&tenant) else { return false };
        tenant.members.iter().filter_map(|id| self.members.get(id)).any(|member| member.ready)
    }

    /// Other tenants that wait for a device of this tenant's turn, or for room on it.
    pub(crate) fn others_waiting(&self, tenant_id: TenantId) -> u32 {
        let Some(turn) = self.tenants.get(&tenant_id).and_then(|tenant| tenant.turn.as_ref()) else {
            return 0;
        };
        let mut waiters =
            turn.devices.iter().filter_map(|key| self.devices.get(key)).map(|device| &device.waiters);
        let count = match (turn.devices.len(), waiters.next()) {
            (_, None) => 0,
            (1, Some(only)) => only.len(),
            (_, Some(first)) => waiters.fold(first.clone(), |all, more| &all | more).len(),
        };
        let for_room = turn.devices.iter().filter(|key| self.head_room_waits_for_holder(**key)).count();
        u32::try_from(count + for_room).unwrap_or(u32::MAX)
    }

    /// Tells the device's holder how many wait, if that has changed, and watches its quantum.
    pub(crate) fn announce_waiters(&mut self, key: DeviceKey) {
        let Some(tenant_id) = self.devices.get(&key).and_then(|device| device.holder) else { return };
        let count = self.others_waiting(tenant_id);
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let before = std::mem::replace(&mut tenant.others_announced, count);
        if before != count {
            self.outputs.push(Output::SetOthersWaiting { tenant: tenant_id, count });
            if (before == 0) != (count == 0) {
                self.send_to_turn(tenant_id, ToMember::OthersWaiting { count });
            }
        }
        self.watch_quantum(tenant_id);
    }

    /// Starts the drain if the quantum is over and others wait, else sees to it that it will be.
    pub(crate) fn watch_quantum(&mut self, tenant_id: TenantId) {
        self.timers.clear(Purpose::Quantum(tenant_id));
        let others = self.others_waiting(tenant_id);
        let Some(turn) = self.tenants.get(&tenant_id).and_then(|tenant| tenant.turn.as_ref()) else { return };
        let wanted = others > 0 || turn.must_end;
        let Some(from) = turn.quantum_from.filter(|_| wanted && !turn.draining) else { return };
        let over = if turn.must_end { self.now } else { from.saturating_add(turn.quantum) };
        let at = over.max(turn.retry_at);
        if at <= self.now {
            self.begin_drain(tenant_id);
        } else {
            self.timers.set(Purpose::Quantum(tenant_id), at);
        }
    }

    /// A member has become ready: it joins a turn of its tenant, or claims its own from before.
    pub(crate) fn join_turn(&mut self, member: MemberId, claimed: bool) {
        let Some(tenant_id) = self.members.get(&member).map(|record| record.tenant) else { return };
        let turn = self.tenants.get(&tenant_id).and_then(|tenant| tenant.turn.as_ref());
        match turn.map(|turn| (turn.epoch, turn.draining)) {
            None if claimed => self.resume_turn(member, tenant_id),
            None => {}
            Some((epoch, false)) if claimed => self.grant_to_member(member, epoch),
            Some((epoch, false)) => self.grant_if_covered(member, epoch),
            Some((epoch, true)) if claimed => {
                self.grant_to_member(member, epoch);
                self.send(member, ToMember::Drain { epoch });
            }
            Some((_, true)) => {}
        }
    }

    /// A member uses a device that its tenant's turn does not cover: the turn grows if nobody is
    /// in the way, else it ends and the tenant asks again, for all its devices.
    pub(crate) fn cover_new_device(&mut self, member: MemberId, key: DeviceKey) {
        let Some(record) = self.members.get(&member) else { return };
        let (tenant_id, claimed) = (record.tenant, record.claimed_epoch.is_some());
        let (Some(tenant), Some(device)) = (self.tenants.get_mut(&tenant_id), self.devices.get_mut(&key))
        else {
            return;
        };
        let Some(turn) = &mut tenant.turn else { return };
        if turn.devices.contains(&key) {
            return;
        }
        let free = device.holder.is_none() && device.quarantined.is_none();
        let nobody_first = device.waiters.is_empty() && !turn.draining && !self.recovery.is_active();
        // Claimed: its work is running there already, whoever waits.
        if free && (claimed || nobody_first) {
            turn.devices.insert(key);
            device.holder = Some(tenant_id);
            if let Some(share) = tenant.shares.get_mut(&key) {
                share.has_run = true;
            }
            self.refresh(tenant_id, key);
            return;
        }
        turn.must_end = true;
        self.watch_quantum(tenant_id);
    }

    /// Tells those who wait long who is ahead of them. Once per wait.
    pub(crate) fn notice(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get(&tenant_id) else { return };
        let Some(ticket) = tenant.ticket else { return };
        let holder =
            tenant.shares.keys().find_map(|key| self.devices.get(key).and_then(|device| device.holder));
        let holder_name =
            holder.and_then(|id| self.tenants.get(&id)).map_or(String::new(), |t| t.name.clone());
        let ahead = self
            .queue
            .range(..ticket.number)
            .filter(|(_, id)| {
                tenant.shares.keys().any(|key| self.devices.get(key).is_some_and(|d| d.waiters.contains(id)))
            })
            .count();
        let message = ToMember::WaitNotice {
            holder_name,
            ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
            waited_ms: u64::try_from(self.now.saturating_sub(ticket.since).as_millis()).unwrap_or(u64::MAX),
        };
        let members: Vec<MemberId> = tenant.members.iter().copied().collect();
        for member in members {
            if self.members.get(&member).is_some_and(|record| record.requested) {
                self.send(member, message.clone());
            }
        }
    }
}
