//! From what a member says to what it means: one arm per message, no policy.
//!
//! Unknown members are those that were expelled or are gone; what they still say is dropped.

use crate::Core;
use crate::ids::{DeviceKey, MemberId, Reason};
use crate::input::MemberMessage as Say;
use crate::members::DeviceSaid;
use crate::records::{BYTES_MAX, Member};

/// Different names of unhandled calls that are kept for a tenant.
const UNHANDLED_NAMES_MAX: usize = 256;

impl Core {
    pub(crate) fn message(&mut self, member: MemberId, message: Say) {
        if !self.members.contains_key(&member) {
            return;
        }
        let is_question =
            matches!(message, Say::Reserve { .. } | Say::MemoryQuery { .. } | Say::HeadRoomWanted { .. });
        if self.recovery.is_active() && is_question {
            return self.defer(member, message);
        }
        match message {
            Say::Device {
                device,
                name,
                total_bytes,
                free_bytes,
                virtual_bytes,
                resident_bytes,
                host_bytes,
                pinned_bytes,
                epoch,
            } => {
                let said = DeviceSaid {
                    device,
                    name,
                    total_bytes,
                    free_bytes,
                    virtual_bytes,
                    resident_bytes,
                    host_bytes,
                    pinned_bytes,
                    epoch,
                };
                self.device_said(member, said);
            }
            Say::SegmentClaim { segment, bytes } => self.segment_claim(member, segment, bytes),
            Say::Ready => self.ready(member),
            Say::TurnRequested => self.turn_requested(member),
            Say::TurnReleased { epoch } => self.turn_released(member, epoch),
            Say::Drained { epoch } => self.drained(member, epoch),
            Say::DrainStalled { epoch } => self.drain_stalled(member, epoch),
            Say::CreditsWanted { device, bytes } => self.credits_wanted(member, device, bytes),
            Say::CreditsReturned { device, bytes } => self.credits_returned(member, device, bytes),
            Say::CreditsShort { device, bytes, total_bytes: _, free_bytes } => {
                self.credits_short(member, device, bytes, free_bytes);
            }
            Say::Restored { epoch } => self.restored(member, epoch),
            Say::Evicted { device, order, pinned_bytes } => self.evicted(member, device, order, pinned_bytes),
            Say::Reserve { request, device, bytes } => self.reserve(member, request, device, bytes),
            Say::Unreserve { device, bytes } => self.unreserve(member, device, bytes),
            Say::MemoryQuery { request, device } => self.memory_query(member, request, device),
            Say::SegmentWanted { request, bytes } => self.segment_wanted(member, request, bytes),
            Say::SegmentReturned { segment } => self.segment_returned(member, segment),
            Say::HeadRoomWanted { request, device, bytes } => {
                self.head_room_wanted(member, request, device, bytes);
            }
            Say::Usage { device, total_bytes, free_bytes } => {
                self.usage(member, device, total_bytes, free_bytes)
            }
            Say::Moved {
                device,
                to_host_bytes,
                to_device_bytes,
                host_bytes,
                pinned_bytes,
                resident_bytes: _,
            } => {
                self.moved(member, device, (to_host_bytes, to_device_bytes), (host_bytes, pinned_bytes));
            }
            Say::Unhandled { name, count } => self.unhandled(member, name, count),
            Say::Faulted { device, code } => self.faulted(member, device, code),
            Say::Goodbye => self.remove_member(member),
        }
    }

    /// What was moved, and where the bytes are now. Credits are not touched: they have messages
    /// of their own.
    fn moved(
        &mut self,
        member: MemberId,
        key: DeviceKey,
        (to_host, to_device): (u64, u64),
        (host, pinned): (u64, u64),
    ) {
        let Some(record) = self.members.get(&member).filter(|record| record.holdings.contains_key(&key))
        else {
            return self.complain(
                member,
                Reason::ProtocolViolation.word(),
                "moves bytes on a strange device",
            );
        };
        let tenant = record.tenant;
        self.adjust(member, key, |holding| {
            holding.host_bytes = host.min(BYTES_MAX);
            holding.pinned_bytes = pinned.min(BYTES_MAX);
        });
        if let Some(share) = self.tenants.get_mut(&tenant).and_then(|tenant| tenant.shares.get_mut(&key)) {
            share.to_host_bytes = share.to_host_bytes.saturating_add(to_host);
            share.to_device_bytes = share.to_device_bytes.saturating_add(to_device);
        }
        self.touch(key);
    }

    fn unhandled(&mut self, member: MemberId, name: String, count: u64) {
        let tenant = self.members.get(&member).map(|record: &Member| record.tenant);
        let Some(tenant) = tenant.and_then(|tenant| self.tenants.get_mut(&tenant)) else { return };
        let full = tenant.unhandled.len() >= UNHANDLED_NAMES_MAX;
        let name = if full && !tenant.unhandled.contains_key(&name) { "others".into() } else { name };
        let sum = tenant.unhandled.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
}
