//! Room for what the driver takes by itself: contexts, modules, local memory.
//!
//! A member whose driver call ran out of memory asks; tenants without a turn evict for it, the
//! asker's own among them. If only the holder has bytes to give, the question waits like a ticket
//! until that turn has ended, and no turn begins before the bytes are on their way. What was
//! evicted for it is withheld from wants for a moment, so that the driver gets it. Every question
//! is answered, with what was made, as soon as nothing more can come.

use crate::Core;
use crate::ids::{DeviceKey, MemberId, RequestId};
use crate::output::ToMember;
use crate::records::{Device, HeadRoomRequest};
use crate::timers::Purpose;
use std::time::Duration;

/// After this long the driver has taken what it needed, and `Usage` will show it.
const WITHHELD: Duration = Duration::from_secs(1);
/// Questions of one member that may be open on a device.
const OPEN_MAX: usize = 16;
/// Beside one failed drain of the holder, a question waits this long for the end of its turn.
const HOLDER_PATIENCE: Duration = Duration::from_secs(5);
/// Room is made for one member without anything on the device at a time, this far apart: the first
/// context of a new program needs it, but who only asks and vanishes must not cost the others turns.
const STRANGERS_APART: Duration = Duration::from_secs(1);

impl Core {
    pub(crate) fn head_room_wanted(
        &mut self,
        member: MemberId,
        request: RequestId,
        key: DeviceKey,
        bytes: u64,
    ) {
        let open =
            |device: &Device| device.head_room_requests.iter().filter(|open| open.member == member).count();
        let bytes = self.head_room_for_bytes(member, key, bytes);
        let until = self.now.saturating_add(self.settings.drain_timeout).saturating_add(HOLDER_PATIENCE);
        let is_known = self.holding(member, key).is_some();
        let possible = bytes > 0 && !self.recovery.is_active();
        let device = self.devices.get_mut(&key).filter(|device| possible && open(device) < OPEN_MAX);
        let Some(device) = device else {
            return self.send(member, ToMember::HeadRoomMade { request, bytes: 0 });
        };
        let is_due = is_known;
        device.head_room_requests.push_back(HeadRoomRequest {
            member,
            request,
            bytes,
            made_bytes: 0,
            is_due,
            until,
        });
        self.timers.set_earlier(Purpose::Credits(key), until);
        self.admit_stranger_to_head_room(key);
        self.touch(key);
    }

    /// How much of a request may be met. A first context on a device is as good a reason as any,
    /// but takes the room for ever: never so much that a tenant could not be whole any more.
    fn head_room_for_bytes(&self, member: MemberId, key: DeviceKey, bytes: u64) -> u64 {
        let Some(device) = self.devices.get(&key) else { return 0 };
        let bytes = bytes.min(device.total_bytes);
        if self.holding(member, key).is_some() {
            return bytes;
        }
        let largest = device.tenants.values().copied().max().unwrap_or(0);
        bytes.min(device.lasting_capacity_bytes(self.settings.head_room_bytes).saturating_sub(largest))
    }

    /// Lets room be made for the oldest question of a member that has nothing here, if it is time.
    pub(crate) fn admit_stranger_to_head_room(&mut self, key: DeviceKey) {
        let now = self.now;
        let Some(device) = self.devices.get_mut(&key) else { return };
        let Some(open) = device.head_room_requests.iter_mut().find(|open| !open.is_due) else { return };
        if device.strangers_at <= now {
            open.is_due = true;
            device.strangers_at = now.saturating_add(STRANGERS_APART);
            // The holder's members hear that somebody waits.
            self.touched.insert(key);
        }
        if device.head_room_requests.iter().any(|open| !open.is_due) {
            self.timers.set_earlier(Purpose::Credits(key), device.strangers_at);
        }
    }

    /// Whether somebody outside of the holder's tenant waits for head-room that only the end of
    /// the holder's turn can make.
    pub(crate) fn head_room_waits_for_holder(&self, key: DeviceKey) -> bool {
        let Some(device) = self.devices.get(&key) else { return false };
        device.head_room_requests.iter().any(|open| open.is_due && self.waits_for_holder(key, open))
    }

    fn waits_for_holder(&self, key: DeviceKey, open: &HeadRoomRequest) -> bool {
        let Some(holder) = self.devices.get(&key).and_then(|device| device.holder) else { return false };
        let is_own = self.members.get(&open.member).is_none_or(|record| record.tenant == holder);
        if is_own || open.until <= self.now || open.made_bytes >= open.bytes {
            return false;
        }
        let share = self.tenants.get(&holder).and_then(|tenant| tenant.shares.get(&key));
        share.is_some_and(|share| share.sums.resident_bytes > share.sums.pinned_bytes)
    }

    pub(crate) fn head_room_lacking_bytes(&self, key: DeviceKey) -> u64 {
        let Some(device) = self.devices.get(&key) else { return 0 };
        device
            .head_room_requests
            .iter()
            .filter(|open| open.is_due)
            .fold(0u64, |sum, open| sum.saturating_add(open.bytes.saturating_sub(open.made_bytes)))
    }

    /// Bytes came back: those who need head-room get them first, the oldest first.
    pub(crate) fn give_to_head_room(&mut self, key: DeviceKey, bytes: u64) {
        let Some(device) = self.devices.get_mut(&key) else { return };
        let mut left = bytes;
        for open in device.head_room_requests.iter_mut().filter(|open| open.is_due) {
            let taken = open.bytes.saturating_sub(open.made_bytes).min(left);
            if taken > 0 {
                device.withheld_for = Some(open.member);
            }
            open.made_bytes += taken;
            left -= taken;
        }
        if left < bytes {
            device.withheld_bytes = device.withheld_bytes.saturating_add(bytes - left);
            device.withheld_until = self.now.saturating_add(WITHHELD);
            self.timers.set_earlier(Purpose::Credits(key), device.withheld_until);
        }
    }

    /// Answers who has enough; and everybody, if nothing more is on its way.
    pub(crate) fn answer_head_room(&mut self, key: DeviceKey) {
        if self.devices.get(&key).is_none_or(|device| device.head_room_requests.is_empty()) {
            return;
        }
        let nothing_comes = self.returning_bytes(key) == 0;
        let Some(device) = self.devices.get(&key) else { return };
        let is_done = |open: &HeadRoomRequest| {
            let nothing_comes = nothing_comes && !self.waits_for_holder(key, open);
            open.made_bytes >= open.bytes || nothing_comes && (open.is_due || open.until <= self.now)
        };
        let (answered, kept): (Vec<_>, Vec<_>) = device.head_room_requests.iter().copied().partition(is_done);
        if answered.is_empty() {
            return;
        }
        if let Some(device) = self.devices.get_mut(&key) {
            device.head_room_requests = kept.into();
        }
        for open in answered {
            self.send(open.member, ToMember::HeadRoomMade { request: open.request, bytes: open.made_bytes });
        }
        self.look_at_queue = true;
    }

    /// The member is gone: nobody waits for its answers.
    pub(crate) fn forget_head_room(&mut self, member: MemberId) {
        for (key, device) in &mut self.devices {
            let before = device.head_room_requests.len();
            device.head_room_requests.retain(|open| open.member != member);
            if device.withheld_for == Some(member) {
                device.withheld_for = None;
                device.withheld_bytes = 0;
                self.touched.insert(*key);
            }
            if device.head_room_requests.len() != before {
                self.look_at_queue = true;
                self.touched.insert(*key);
            }
        }
    }

    /// Nobody uses the device any more, so all of it is free.
    pub(crate) fn answer_all_head_room(&mut self, device: &Device) {
        for open in &device.head_room_requests {
            self.send(open.member, ToMember::HeadRoomMade { request: open.request, bytes: open.bytes });
        }
    }
}
