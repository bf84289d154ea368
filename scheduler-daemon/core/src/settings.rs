//! What an administrator can change, and the bounds that are not worth a flag.
//!
//! Plain data with defaults; the daemon fills it from its command line. Nothing here is validated
//! but by the arithmetic that uses it, which saturates.

use std::time::Duration;

/// All settings of the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Which life of the daemon this is; at least 1, persisted by the daemon, grows at each start.
    pub incarnation: u64,
    /// Length of a turn while others wait.
    pub quantum: Duration,
    /// After this long a drain is given up for now and the gate reopens.
    pub drain_timeout: Duration,
    /// Failed drains in a row after which a tenant is called not preemptible.
    pub drain_failures_max: u32,
    /// Bound on evicted bytes in host memory. Segments that are filled only in part may come on
    /// top (see `segments`).
    pub host_pool_bytes: u64,
    /// Device memory kept free for the driver; `None`: 1/64 of the device.
    pub head_room_bytes: Option<u64>,
    /// After this long in the queue a member hears who is ahead.
    pub notice_after: Duration,
    /// How long members of a former life are waited for.
    pub recovery: Duration,
    /// Slowest rate at which a healthy member moves bytes: sets the deadlines of evict and restore.
    pub slowest_bytes_per_second: u64,
    /// What an evict order or a restore may take besides the bytes over that rate.
    pub move_patience: Duration,
    /// Largest host segment in one lease.
    pub segment_bytes_max: u64,
    /// Most devices of one member.
    pub devices_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            incarnation: 1,
            quantum: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(10),
            drain_failures_max: 3,
            host_pool_bytes: 16 << 30,
            head_room_bytes: None,
            notice_after: Duration::from_secs(10),
            recovery: Duration::from_secs(2),
            slowest_bytes_per_second: 1 << 30,
            move_patience: Duration::from_secs(5),
            segment_bytes_max: 1 << 30,
            devices_max: 64,
        }
    }
}

impl Settings {
    /// How long a healthy member may take to move this many bytes.
    pub(crate) fn time_to_move(&self, bytes: u64) -> Duration {
        let rate = self.slowest_bytes_per_second.max(1);
        // 1,000 s per device-full would be absurd; the cap keeps lies from making it years.
        let seconds = (bytes / rate).min(600);
        self.move_patience.saturating_add(Duration::from_secs(seconds))
    }
}
