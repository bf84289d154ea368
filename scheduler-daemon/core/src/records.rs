//! The records that the core keeps: tenants, members, devices, and what a member holds of one.
//!
//! Data with sums only. A member's holding is the one truth about its bytes; a tenant's share and
//! a device's sums are kept equal to it by `Core::adjust` (`ledger`) alone, and `invariant` adds
//! them up again now and then. No policy here.

use crate::ids::{DeviceKey, Epoch, MemberId, RequestId, SegmentId, TenantId};
use crate::state::{Progress, State};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// No size that a member may name is larger: 1 PiB, so that no sum over 8,192 members overflows.
pub(crate) const BYTES_MAX: u64 = 1 << 50;

/// Who is scheduled and accounted.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) name: String,
    pub(crate) memory_limit_bytes: Option<u64>,
    pub(crate) members: BTreeSet<MemberId>,
    /// The union of its members' devices.
    pub(crate) shares: BTreeMap<DeviceKey, Share>,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) turn: Option<Turn>,
    pub(crate) leased_bytes: u64,
    pub(crate) turns: u64,
    pub(crate) turn_time: Duration,
    pub(crate) wait_time: Duration,
    pub(crate) turn_ended_at: Duration,
    /// What its members were last told about other waiters.
    pub(crate) others_announced: u32,
    pub(crate) unhandled: BTreeMap<String, u64>,
}

/// A place in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    pub(crate) number: u64,
    pub(crate) since: Duration,
}

/// The right to submit work.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) epoch: Epoch,
    pub(crate) devices: BTreeSet<DeviceKey>,
    pub(crate) granted_at: Duration,
    pub(crate) quantum: Duration,
    /// When the quantum began; `None` while the first restore lasts.
    pub(crate) quantum_from: Option<Duration>,
    /// The first restore is over or its patience is; later ones are charged to the quantum.
    pub(crate) restore_over: bool,
    /// What has been wanted in this turn before the first restore was over.
    pub(crate) restore_bytes: u64,
    pub(crate) draining: bool,
    pub(crate) failed_drains: u32,
    /// Not before this time is a failed drain tried again.
    pub(crate) retry_at: Duration,
    /// The turn must end although nobody waits: the tenant needs more devices than it covers.
    pub(crate) must_end: bool,
    pub(crate) not_preemptible: bool,
}

impl Turn {
    pub(crate) fn progress(&self) -> Progress {
        match (self.draining, self.quantum_from) {
            (true, _) => Progress::Draining,
            (false, None) => Progress::Restoring,
            (false, Some(_)) => Progress::Running,
        }
    }
}

/// A tenant on a device.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    /// Members that use the device.
    pub(crate) users: usize,
    pub(crate) sums: Sums,
    pub(crate) state: State,
    /// A turn of the tenant has covered the device.
    pub(crate) has_run: bool,
    /// The least that the tenant itself has lately reported; the size by which it is admitted.
    pub(crate) own_sight: Option<Sight>,
    pub(crate) to_host_bytes: u64,
    pub(crate) to_device_bytes: u64,
}

/// What is added up over members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) virtual_bytes: u64,
    pub(crate) resident_bytes: u64,
    /// Effective: includes what a faulted or unresponsive member holds.
    pub(crate) pinned_bytes: u64,
    pub(crate) wanted_bytes: u64,
    pub(crate) host_bytes: u64,
    pub(crate) orders: u64,
    pub(crate) faulted: u64,
}

impl Sums {
    pub(crate) fn replace(&mut self, before: Sums, after: Sums) {
        let swap = |sum: &mut u64, out: u64, new: u64| *sum = sum.saturating_sub(out).saturating_add(new);
        swap(&mut self.virtual_bytes, before.virtual_bytes, after.virtual_bytes);
        swap(&mut self.resident_bytes, before.resident_bytes, after.resident_bytes);
        swap(&mut self.pinned_bytes, before.pinned_bytes, after.pinned_bytes);
        swap(&mut self.wanted_bytes, before.wanted_bytes, after.wanted_bytes);
        swap(&mut self.host_bytes, before.host_bytes, after.host_bytes);
        swap(&mut self.orders, before.orders, after.orders);
        swap(&mut self.faulted, before.faulted, after.faulted);
    }
}

/// One process.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) tenant: TenantId,
    pub(crate) pid: u32,
    pub(crate) resumes: Option<MemberId>,
    pub(crate) ready: bool,
    /// A call of this member waits at the gate.
    pub(crate) requested: bool,
    /// It was told of the tenant's turn and must come to rest before the turn can end.
    pub(crate) in_turn: bool,
    pub(crate) rest: Rest,
    /// It wanted credits in this turn and has not said `Restored` since.
    pub(crate) restoring: bool,
    pub(crate) claimed_epoch: Option<Epoch>,
    pub(crate) holdings: BTreeMap<DeviceKey, Holding>,
    pub(crate) segments: BTreeMap<SegmentId, u64>,
    pub(crate) segments_pending: BTreeMap<RequestId, u64>,
    pub(crate) complaints: Complaints,
}

/// Whether a member with the turn is at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It may be working.
    No,
    /// It gave the turn up.
    Released,
    /// It has answered the present drain.
    Drained,
}

/// How many lines a member has caused lately.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Complaints {
    pub(crate) window_start: Duration,
    pub(crate) lines: u32,
    pub(crate) suppressed: u64,
}

/// What a member holds on a device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holding {
    pub(crate) virtual_bytes: u64,
    /// Frame credits, spent or not.
    pub(crate) resident_bytes: u64,
    /// As the member says.
    pub(crate) pinned_bytes: u64,
    pub(crate) host_bytes: u64,
    pub(crate) wanted_bytes: u64,
    pub(crate) order: Option<Order>,
    pub(crate) short: Option<Short>,
    /// It has just evicted less than it was asked; not asked again before this time.
    pub(crate) spared_until: Duration,
    /// An order is overdue: counts as pinned until it moves again.
    pub(crate) unresponsive: bool,
    pub(crate) faulted: bool,
}

impl Holding {
    /// Resident bytes that cannot be moved now.
    pub(crate) fn effective_pinned_bytes(&self) -> u64 {
        if self.faulted || self.unresponsive {
            self.resident_bytes
        } else {
            self.pinned_bytes.min(self.resident_bytes)
        }
    }

    pub(crate) fn sums(&self) -> Sums {
        Sums {
            virtual_bytes: self.virtual_bytes,
            resident_bytes: self.resident_bytes,
            pinned_bytes: self.effective_pinned_bytes(),
            wanted_bytes: self.wanted_bytes,
            host_bytes: self.host_bytes,
            orders: u64::from(self.order.is_some()),
            faulted: u64::from(self.faulted),
        }
    }
}

/// An evict order that is out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) id: RequestId,
    pub(crate) bytes: u64,
    pub(crate) returned_bytes: u64,
}

/// The driver had no memory behind credits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Short {
    pub(crate) back_off: Duration,
    pub(crate) retry_at: Duration,
}

/// What tenants can use of a device in sum, as one tenant's members saw it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight {
    pub(crate) at: Duration,
    pub(crate) usable_bytes: u64,
}

/// A belief that the driver has contradicted, perhaps only for a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doubt {
    pub(crate) usable_bytes: u64,
    pub(crate) since: Duration,
}

/// One physical GPU or MIG instance.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) total_bytes: u64,
    /// Free bytes plus credits that are out: total without contexts and strangers.
    pub(crate) usable_bytes: u64,
    /// A member ran short: what was believed before, and since when it is not.
    pub(crate) doubted: Option<Doubt>,
    pub(crate) sights: BTreeMap<TenantId, Sight>,
    /// While recovering: what the latest claim said is free.
    pub(crate) claimed_free_bytes: Option<u64>,
    /// Tenants here, with their virtual bytes.
    pub(crate) tenants: BTreeMap<TenantId, u64>,
    pub(crate) sums: Sums,
    pub(crate) holder: Option<TenantId>,
    /// Tenants in the queue that need this device.
    pub(crate) waiters: BTreeSet<TenantId>,
    /// Members with an evict order on this device.
    pub(crate) ordered: BTreeSet<MemberId>,
    pub(crate) head_room_requests: VecDeque<HeadRoomRequest>,
    /// Evicted for the driver's own needs; not granted again before `withheld_until`.
    pub(crate) withheld_bytes: u64,
    pub(crate) withheld_until: Duration,
    /// Who made it be withheld last; if that member goes, nothing is.
    pub(crate) withheld_for: Option<MemberId>,
    /// Before this time no room is made for another member that has nothing here yet.
    pub(crate) strangers_at: Duration,
    pub(crate) last_motion: Duration,
    pub(crate) quarantined: Option<String>,
}

/// A member waits for room that the driver needs for itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadRoomRequest {
    pub(crate) member: MemberId,
    pub(crate) request: RequestId,
    pub(crate) bytes: u64,
    pub(crate) made_bytes: u64,
    /// Whether room may be made for it by now.
    pub(crate) is_due: bool,
    /// Not longer than this does it wait for the end of the holder's turn.
    pub(crate) until: Duration,
}

impl Device {
    pub(crate) fn head_room_bytes(&self, setting: Option<u64>) -> u64 {
        setting.unwrap_or(self.total_bytes / 64)
    }

    /// What tenants can have at once.
    pub(crate) fn capacity_bytes(&self, head_room: Option<u64>) -> u64 {
        self.usable_bytes.saturating_sub(self.head_room_bytes(head_room))
    }

    /// What tenants can have at once in the long run: a shortage that may pass does not count, so
    /// that no program is refused memory because freed frames are still being scrubbed.
    pub(crate) fn lasting_capacity_bytes(&self, head_room: Option<u64>) -> u64 {
        self.lasting_usable_bytes().saturating_sub(self.head_room_bytes(head_room))
    }

    /// The same for one tenant: not more than it has seen itself, or than anybody has, if it
    /// has not reported yet.
    pub(crate) fn capacity_for_bytes(&self, own_sight: Option<Sight>, head_room: Option<u64>) -> u64 {
        let least = || self.sights.values().map(|sight| sight.usable_bytes).min();
        let seen = own_sight.map(|sight| sight.usable_bytes).or_else(least).unwrap_or(u64::MAX);
        self.lasting_usable_bytes().min(seen).saturating_sub(self.head_room_bytes(head_room))
    }

    /// The largest of the tenants' reports, if there is any.
    pub(crate) fn believe_sights(&mut self) {
        if let Some(most) = self.sights.values().map(|sight| sight.usable_bytes).max() {
            self.usable_bytes = most;
        }
    }

    pub(crate) fn lasting_usable_bytes(&self) -> u64 {
        self.doubted.map_or(0, |doubt| doubt.usable_bytes).max(self.usable_bytes)
    }

    /// What can be granted now.
    pub(crate) fn free_bytes(&self, head_room: Option<u64>) -> u64 {
        self.capacity_bytes(head_room)
            .saturating_sub(self.sums.resident_bytes)
            .saturating_sub(self.withheld_bytes)
    }
}
