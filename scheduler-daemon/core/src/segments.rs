//! Host segments: who has which, and the bound on their sum.
//!
//! The daemon makes and drops them; the core only counts. Admission has promised the bytes, so a
//! wish within the pool and within what the tenant has allocated is passed on; others are refused
//! and the bytes stay on the device. The pool bounds what admission promises, in bytes that are
//! saved; segments that are filled in part (two per tenant and device, as large as the
//! largest so far) may come on top, or the promise could not be kept. A returned segment is dropped,
//! never leased again.

use crate::Core;
use crate::ids::{MemberId, Reason, RequestId, SegmentId};
use crate::output::{Output, ToMember};

impl Core {
    pub(crate) fn segment_wanted(&mut self, member: MemberId, request: RequestId, bytes: u64) {
        if let Err(text) = self.judge_segment(member, request, bytes) {
            self.complain(member, Reason::BudgetExceeded.word(), &text);
            return self.send(member, ToMember::Refused { request, reason: Reason::BudgetExceeded });
        }
        let Some(record) = self.members.get_mut(&member) else { return };
        record.segments_pending.insert(request, bytes);
        self.largest_segment_bytes = self.largest_segment_bytes.max(bytes);
        let tenant = record.tenant;
        self.count_leased(tenant, 0, bytes);
        self.outputs.push(Output::LeaseSegment { member, request, bytes });
    }

    fn judge_segment(&self, member: MemberId, request: RequestId, bytes: u64) -> Result<(), String> {
        let record = self.members.get(&member).ok_or("is unknown")?;
        let tenant = self.tenants.get(&record.tenant).ok_or("has no tenant")?;
        if bytes == 0 || bytes > self.settings.segment_bytes_max {
            return Err(format!("wants a host segment of {bytes} bytes, which is no size for one"));
        }
        if record.segments_pending.contains_key(&request) {
            return Err(format!("asks for a host segment twice with the number {}", request.0));
        }
        // Each member's last segment on each device may be filled in part only.
        let virtual_bytes: u64 = tenant.shares.values().map(|share| share.sums.virtual_bytes).sum();
        let users: u64 = tenant.shares.values().map(|share| share.users as u64).sum();
        let allowed = virtual_bytes.saturating_add(users.saturating_mul(self.settings.segment_bytes_max));
        if tenant.leased_bytes.saturating_add(bytes) > allowed {
            return Err(format!("wants {bytes} bytes of host memory beyond what its tenant has allocated"));
        }
        let all_users = self.devices.values().map(|device| device.tenants.len() as u64).sum::<u64>();
        let slack =
            bytes.max(self.largest_segment_bytes).saturating_mul(2).saturating_mul(all_users.max(users));
        if self.leased_bytes.saturating_add(bytes) > self.settings.host_pool_bytes.saturating_add(slack) {
            return Err(format!("wants {bytes} bytes of host memory; {}", Reason::BudgetExceeded.advice()));
        }
        Ok(())
    }

    fn count_leased(&mut self, tenant: crate::ids::TenantId, less: u64, more: u64) {
        self.leased_bytes = self.leased_bytes.saturating_sub(less).saturating_add(more);
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.leased_bytes = tenant.leased_bytes.saturating_sub(less).saturating_add(more);
        }
    }

    pub(crate) fn segment_leased(
        &mut self,
        member: MemberId,
        request: RequestId,
        segment: SegmentId,
        bytes: u64,
    ) {
        let pending = self.members.get_mut(&member).and_then(|record| {
            let pending = record.segments_pending.remove(&request)?;
            record.segments.insert(segment, bytes);
            Some((record.tenant, pending))
        });
        match pending {
            Some((tenant, pending)) => {
                self.segments.insert(segment, member);
                self.count_leased(tenant, pending, bytes);
            }
            // The member is gone, or never asked: nobody may keep it.
            None => self.outputs.push(Output::DropSegment { segment }),
        }
    }

    pub(crate) fn segment_failed(&mut self, member: MemberId, request: RequestId) {
        let Some(record) = self.members.get_mut(&member) else { return };
        let Some(bytes) = record.segments_pending.remove(&request) else { return };
        let tenant = record.tenant;
        self.count_leased(tenant, bytes, 0);
        let text = format!("gets no host segment of {bytes} bytes: the kernel has no memory");
        self.complain(member, Reason::BudgetExceeded.word(), &text);
        self.send(member, ToMember::Refused { request, reason: Reason::BudgetExceeded });
    }

    pub(crate) fn segment_returned(&mut self, member: MemberId, segment: SegmentId) {
        let Some(record) = self.members.get_mut(&member) else { return };
        let tenant = record.tenant;
        let Some(bytes) = record.segments.remove(&segment) else {
            return self.complain(
                member,
                Reason::ProtocolViolation.word(),
                "returns a segment it does not have",
            );
        };
        self.segments.remove(&segment);
        self.count_leased(tenant, bytes, 0);
        self.outputs.push(Output::DropSegment { segment });
    }

    /// From a former life; the daemon has checked the descriptor.
    pub(crate) fn segment_claim(&mut self, member: MemberId, segment: SegmentId, bytes: u64) {
        let Some(record) = self.members.get_mut(&member) else { return };
        let possible = bytes > 0 && bytes <= self.settings.segment_bytes_max;
        if !possible || record.resumes.is_none() || record.ready || self.segments.contains_key(&segment) {
            return self.reject(member, Reason::ProtocolViolation, format!("may not claim {segment}"));
        }
        record.segments.insert(segment, bytes);
        let tenant = record.tenant;
        self.largest_segment_bytes = self.largest_segment_bytes.max(bytes);
        self.segments.insert(segment, member);
        self.count_leased(tenant, 0, bytes);
    }

    /// The member is gone.
    pub(crate) fn drop_segments(&mut self, member: MemberId) {
        let Some(record) = self.members.get_mut(&member) else { return };
        let tenant = record.tenant;
        let segments = std::mem::take(&mut record.segments);
        let pending = std::mem::take(&mut record.segments_pending);
        for bytes in pending.into_values() {
            self.count_leased(tenant, bytes, 0);
        }
        for (segment, bytes) in segments {
            self.segments.remove(&segment);
            self.count_leased(tenant, bytes, 0);
            self.outputs.push(Output::DropSegment { segment });
        }
    }
}
