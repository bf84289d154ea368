//! The admin socket's language: one request, one answer, then the connection ends.
//!
//! Requests are postcard like all messages; the answer is JSON text, since people and scripts
//! read it (`turnus status --json` prints it unchanged). Served only to root or the daemon's own user.

use serde::{Deserialize, Serialize};

/// What an administrator may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminRequest {
    /// The state of all devices and tenants, as [`Status`] in JSON.
    Status,
    /// Changes the quantum of all devices from the next turn on.
    SetQuantum {
        /// Length of a turn while others wait.
        quantum_ms: u64,
    },
    /// Stops the daemon after telling the members.
    Shutdown,
}

/// Everything that `turnus status` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Of this document: grows when a field changes its meaning.
    pub format_version: u32,
    /// The daemon's release.
    pub daemon_version: String,
    /// Which life of the daemon this is.
    pub incarnation: u64,
    /// The daemon waits for members of its former life.
    pub recovering: bool,
    /// Host memory made for evicted bytes: in use and allowed.
    pub host_pool: PoolStatus,
    /// One line each.
    pub devices: Vec<DeviceStatus>,
    /// One line each.
    pub tenants: Vec<TenantStatus>,
}

/// Host memory for evicted bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Leased to tenants now.
    pub leased_bytes: u64,
    /// What admission has promised in the worst case.
    pub promised_bytes: u64,
    /// The bound.
    pub limit_bytes: u64,
}

/// The header line of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// `GPU-…`.
    pub uuid: String,
    /// The driver's name for it.
    pub name: String,
    /// `exclusive`.
    pub mode: String,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// As shown to people; made unique by its number.
    pub name: String,
    /// Unique in this incarnation.
    pub tenant: u64,
    /// `GPU-…`.
    pub device: String,
    /// The state's name.
    pub state: String,
    /// Processes of the tenant.
    pub pids: Vec<u32>,
    /// Allocated by the program.
    pub virtual_bytes: u64,
    /// On the device now.
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
    /// Why it waits or cannot move, in reason words.
    pub reasons: Vec<String>,
}
