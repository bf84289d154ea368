//! Making room: evict orders, their answers and their deadlines.
//!
//! At most one order is out per member and device. What is on its way back counts, so that no
//! byte is ordered twice; an order that is overdue stops counting and its member's bytes count as
//! pinned until it moves again. Whose bytes go is decided in `victims`.

use crate::Core;
use crate::ids::{DeviceKey, MemberId, Reason, RequestId};
use crate::output::{Level, Output, ToMember};
use crate::records::Order;
use crate::timers::Purpose;
use std::time::Duration;

/// Who could not give what it was asked for is left alone for this long.
const SPARED: Duration = Duration::from_millis(500);

impl Core {
    /// Orders as much as is lacking for wants and head-room and is not on its way yet.
    pub(crate) fn make_room(&mut self, key: DeviceKey) {
        self.admit_stranger_to_head_room(key);
        let lacking = self.lacking_bytes(key).saturating_sub(self.returning_bytes(key));
        if lacking > 0 {
            let (victims, look_again_at) = self.choose_victims(key, lacking);
            for (member, bytes) in victims {
                self.order(member, key, bytes);
            }
            if let Some(at) = look_again_at {
                self.timers.set_earlier(Purpose::Credits(key), at);
            }
        }
        self.answer_head_room(key);
    }

    fn lacking_bytes(&self, key: DeviceKey) -> u64 {
        let Some(device) = self.devices.get(&key) else { return 0 };
        let free = device.free_bytes(self.settings.head_room_bytes);
        device.sums.wanted_bytes.saturating_sub(free).saturating_add(self.head_room_lacking_bytes(key))
    }

    /// Ordered and expected to come back.
    pub(crate) fn returning_bytes(&self, key: DeviceKey) -> u64 {
        let Some(device) = self.devices.get(&key) else { return 0 };
        let mut sum = 0u64;
        for member in &device.ordered {
            let tenant = self.members.get(member).map(|record| record.tenant);
            let Some(holding) = self.holding(*member, key) else { continue };
            let Some(order) = holding.order.filter(|_| !holding.unresponsive && tenant != device.holder)
            else {
                continue;
            };
            let rest = order.bytes.saturating_sub(order.returned_bytes);
            sum = sum.saturating_add(rest.min(holding.resident_bytes));
        }
        sum
    }

    fn order(&mut self, member: MemberId, key: DeviceKey, bytes: u64) {
        self.next_order += 1;
        let id = RequestId(self.next_order);
        let Some(device) = self.devices.get_mut(&key) else { return };
        device.ordered.insert(member);
        device.last_motion = self.now;
        self.adjust(member, key, |holding| holding.order = Some(Order { id, bytes, returned_bytes: 0 }));
        let resident_bytes = self.holding(member, key).map_or(0, |holding| holding.resident_bytes);
        let pid = self.members.get(&member).map_or(0, |record| record.pid);
        let text =
            format!("evict: process {pid} is asked for {bytes} of {resident_bytes} resident bytes on {key}");
        self.log(Level::Debug, text);
        let patience = self.settings.time_to_move(bytes);
        self.timers.set(Purpose::Order(member, key), self.now.saturating_add(patience));
        self.send(member, ToMember::Evict { device: key, order: id, bytes });
    }

    pub(crate) fn evicted(&mut self, member: MemberId, key: DeviceKey, order: RequestId, pinned_bytes: u64) {
        let Some(open) = self.holding(member, key).and_then(|holding| holding.order) else {
            return self.complain(
                member,
                Reason::ProtocolViolation.word(),
                "answers an evict order that is not out",
            );
        };
        if open.id != order {
            return self.complain(member, Reason::ProtocolViolation.word(), "answers a strange evict order");
        }
        self.close_order(member, key);
        let spared_until = self.now.saturating_add(SPARED);
        if open.returned_bytes < open.bytes
            && let Some(holding) =
                self.members.get_mut(&member).and_then(|record| record.holdings.get_mut(&key))
        {
            holding.spared_until = spared_until;
        }
        if pinned_bytes == 0 {
            // Nothing is pinned any more, whatever was said before.
            self.adjust(member, key, |holding| holding.pinned_bytes = 0);
        }
        if let Some(device) = self.devices.get_mut(&key) {
            device.last_motion = self.now;
        }
        self.touch(key);
    }

    /// Takes the order out of the books, answered or not.
    pub(crate) fn close_order(&mut self, member: MemberId, key: DeviceKey) {
        self.timers.clear(Purpose::Order(member, key));
        if let Some(device) = self.devices.get_mut(&key) {
            device.ordered.remove(&member);
        }
        self.adjust(member, key, |holding| {
            holding.order = None;
            holding.unresponsive = false;
        });
    }

    pub(crate) fn order_overdue(&mut self, member: MemberId, key: DeviceKey) {
        let Some(record) = self.members.get(&member) else { return };
        let (tenant, pid) = (record.tenant, record.pid);
        let name = self.tenants.get(&tenant).map_or(String::new(), |tenant| tenant.name.clone());
        self.adjust(member, key, |holding| holding.unresponsive = holding.order.is_some());
        let text =
            format!("unresponsive: {name} (process {pid}) does not give up its bytes on {key} in time");
        self.outputs.push(Output::Log { level: Level::Warn, text });
        self.touch(key);
    }
}
