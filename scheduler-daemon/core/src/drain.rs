//! Ending a turn by force: drain, stall, time-out, and the restore that holds the quantum back.
//!
//! A drain waits for every member of the turn to come to rest. One that takes too long is given
//! up: the gate reopens with the same epoch and the next try comes after 1, 2, then 4 quanta;
//! after `drain_failures_max` in a row the tenant is called not preemptible, and tries go on.

use crate::Core;
use crate::ids::{Epoch, MemberId, Reason, TenantId};
use crate::output::{Level, Output, ToMember};
use crate::records::Rest;
use crate::timers::Purpose;

impl Core {
    pub(crate) fn begin_drain(&mut self, tenant_id: TenantId) {
        let Some(turn) = self.tenants.get_mut(&tenant_id).and_then(|tenant| tenant.turn.as_mut()) else {
            return;
        };
        if turn.draining {
            return;
        }
        turn.draining = true;
        let epoch = turn.epoch;
        self.outputs.push(Output::CloseGate { tenant: tenant_id, epoch });
        self.send_to_turn(tenant_id, ToMember::Drain { epoch });
        self.timers.set(Purpose::Drain(tenant_id), self.now.saturating_add(self.settings.drain_timeout));
        self.refresh_all(tenant_id);
        self.end_turn_if_at_rest(tenant_id);
    }

    pub(crate) fn drained(&mut self, member: MemberId, epoch: Epoch) {
        if self.is_in_turn(member, epoch) && self.is_draining(member) {
            self.rest(member, Rest::Drained);
        }
    }

    /// The member's work may wait for a submission that another member holds back.
    pub(crate) fn drain_stalled(&mut self, member: MemberId, epoch: Epoch) {
        if !self.is_in_turn(member, epoch) || !self.is_draining(member) {
            return;
        }
        let Some(tenant) = self.members.get(&member).and_then(|record| self.tenants.get(&record.tenant))
        else {
            return;
        };
        let others: Vec<MemberId> = tenant.members.iter().copied().filter(|other| *other != member).collect();
        for other in others {
            let Some(record) = self.members.get_mut(&other) else { continue };
            // Who has not come to rest admits by itself, or will be asked at the next stall.
            if record.in_turn && record.rest != Rest::No {
                record.rest = Rest::No;
                self.send(other, ToMember::AdmitOne { epoch });
            }
        }
    }

    fn is_draining(&self, member: MemberId) -> bool {
        let tenant = self.members.get(&member).and_then(|record| self.tenants.get(&record.tenant));
        tenant.and_then(|tenant| tenant.turn.as_ref()).is_some_and(|turn| turn.draining)
    }

    /// The drain has taken too long: the tenant runs on for a while.
    pub(crate) fn cancel_drain(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let Some(turn) = tenant.turn.as_mut().filter(|turn| turn.draining) else { return };
        turn.draining = false;
        turn.failed_drains = turn.failed_drains.saturating_add(1);
        let pause = turn.quantum.saturating_mul(1 << turn.failed_drains.saturating_sub(1).min(2));
        turn.retry_at = self.now.saturating_add(pause);
        let epoch = turn.epoch;
        if turn.failed_drains >= self.settings.drain_failures_max && !turn.not_preemptible {
            turn.not_preemptible = true;
            let text = format!(
                "{}: {} did not finish its work in {} drains; {}",
                Reason::NotPreemptible,
                tenant.name,
                turn.failed_drains,
                Reason::NotPreemptible.advice()
            );
            self.outputs.push(Output::Log { level: Level::Warn, text });
        }
        let members: Vec<MemberId> = tenant.members.iter().copied().collect();
        self.outputs.push(Output::OpenGate { tenant: tenant_id, epoch });
        for member in members {
            self.reopen(member, epoch);
        }
        self.refresh_all(tenant_id);
        self.watch_quantum(tenant_id);
    }

    /// A member's side of a cancelled drain: it goes on. One that had released and asked again, or
    /// has joined meanwhile, is granted; one that had released and not asked stays at rest.
    fn reopen(&mut self, member: MemberId, epoch: Epoch) {
        let Some(record) = self.members.get_mut(&member) else { return };
        if record.in_turn && record.rest != Rest::Released {
            record.rest = Rest::No;
            record.requested = false;
            self.send(member, ToMember::DrainCancelled { epoch });
        } else if record.ready && (record.requested || !record.in_turn) {
            self.grant_if_covered(member, epoch);
        }
    }

    pub(crate) fn restored(&mut self, member: MemberId, epoch: Epoch) {
        if !self.is_in_turn(member, epoch) {
            return;
        }
        let Some(record) = self.members.get_mut(&member) else { return };
        record.restoring = false;
        let (tenant, keys) = (record.tenant, record.holdings.keys().copied().collect::<Vec<_>>());
        for key in keys {
            self.adjust(member, key, |holding| holding.short = None);
        }
        self.end_restore_if_done(tenant);
    }

    /// A member that wants credits before the first `Restored` of the turn holds the quantum
    /// back, for as long as a healthy member needs to move the bytes twice (out and in).
    pub(crate) fn begin_restore(&mut self, member: MemberId, bytes: u64) {
        let Some(record) = self.members.get_mut(&member) else { return };
        let tenant_id = record.tenant;
        let Some(turn) = self.tenants.get_mut(&tenant_id).and_then(|tenant| tenant.turn.as_mut()) else {
            return;
        };
        if turn.restore_over {
            return;
        }
        record.restoring = true;
        turn.quantum_from = None;
        turn.restore_bytes = turn.restore_bytes.saturating_add(bytes);
        let patience = self.settings.time_to_move(turn.restore_bytes.saturating_mul(2));
        self.timers.set(Purpose::Restore(tenant_id), turn.granted_at.saturating_add(patience));
        self.refresh_all(tenant_id);
    }

    /// The quantum begins once no member restores any more.
    pub(crate) fn end_restore_if_done(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let Some(turn) = tenant.turn.as_mut().filter(|turn| turn.quantum_from.is_none()) else { return };
        let members = &self.members;
        if tenant.members.iter().any(|id| members.get(id).is_some_and(|record| record.restoring)) {
            return;
        }
        turn.quantum_from = Some(self.now);
        turn.restore_over = true;
        self.timers.clear(Purpose::Restore(tenant_id));
        self.refresh_all(tenant_id);
        self.watch_quantum(tenant_id);
    }

    pub(crate) fn restore_patience_over(&mut self, tenant_id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else { return };
        let Some(turn) = tenant.turn.as_mut().filter(|turn| turn.quantum_from.is_none()) else { return };
        turn.quantum_from = Some(self.now);
        turn.restore_over = true;
        let text =
            format!("slow-restore: {} has not restored its bytes in time; its quantum begins", tenant.name);
        self.log(Level::Warn, text);
        self.refresh_all(tenant_id);
        self.watch_quantum(tenant_id);
    }
}
