//! Room for what the driver takes by itself: contexts, modules, local memory.
//!
//! A member whose driver call ran out of memory asks; tenants without a turn evict for it, the
//! asker's own among them. What was evicted for it is withheld from wants for a moment, so that
//! the driver gets it. Every question is answered, with what was made, as soon as nothing more is
//! on its way.

use crate::Core;
use crate::ids::{DeviceKey, MemberId, RequestId};
use crate::output::ToMember;
use crate::records::HeadRoomRequest;
use crate::timers::Purpose;
use std::time::Duration;

/// After this long the driver has taken what it needed, and `Usage` will show it.
const WITHHELD: Duration = Duration::from_secs(1);
/// Questions of one member that may be open on a device.
const OPEN_MAX: usize = 16;

impl Core {
    pub(crate) fn head_room_wanted(
        &mut self,
        member: MemberId,
        request: RequestId,
        key: DeviceKey,
        bytes: u64,
    ) {
        let known = self.holding(member, key).is_some() && !self.recovery.is_active();
        let device = self.devices.get_mut(&key).filter(|_| known);
        let Some(device) = device else {
            return self.send(member, ToMember::HeadRoomMade { request, bytes: 0 });
        };
        let open = device.head_room_requests.iter().filter(|open| open.member == member).count();
        if open >= OPEN_MAX || bytes == 0 {
            return self.send(member, ToMember::HeadRoomMade { request, bytes: 0 });
        }
        let bytes = bytes.min(device.total_bytes);
        device.head_room_requests.push_back(HeadRoomRequest { member, request, bytes, made_bytes: 0 });
        self.touch(key);
    }

    pub(crate) fn head_room_lacking_bytes(&self, key: DeviceKey) -> u64 {
        let Some(device) = self.devices.get(&key) else { return 0 };
        device
            .head_room_requests
            .iter()
            .fold(0u64, |sum, open| sum.saturating_add(open.bytes.saturating_sub(open.made_bytes)))
    }

    /// Bytes came back: those who need head-room get them first, the oldest first.
    pub(crate) fn give_to_head_room(&mut self, key: DeviceKey, bytes: u64) {
        let Some(device) = self.devices.get_mut(&key) else { return };
        let mut left = bytes;
        for open in &mut device.head_room_requests {
            let taken = open.bytes.saturating_sub(open.made_bytes).min(left);
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
        let Some(device) = self.devices.get_mut(&key) else { return };
        let mut answered = Vec::new();
        device.head_room_requests.retain(|open| {
            let done = nothing_comes || open.made_bytes >= open.bytes;
            if done {
                answered.push(*open);
            }
            !done
        });
        for open in answered {
            self.send(open.member, ToMember::HeadRoomMade { request: open.request, bytes: open.made_bytes });
        }
    }

    pub(crate) fn forget_head_room(&mut self, member: MemberId, key: DeviceKey) {
        if let Some(device) = self.devices.get_mut(&key) {
            device.head_room_requests.retain(|open| open.member != member);
        }
    }
}
