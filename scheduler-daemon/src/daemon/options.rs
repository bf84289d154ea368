//! The command line of `turnusd`, and what the core and the members get from it.
//!
//! Every setting has its default here and nowhere else. `docs/operating.md` explains them.

use crate::size;
use clap::Parser;
use std::path::PathBuf;
use std::time::Duration;
use turnus_core::Settings;
use turnus_protocol::MemberSettings;

/// Hands out exclusive turns on GPUs and keeps the account of their memory.
#[derive(Debug, Clone, Parser)]
#[command(name = "turnusd", version, about)]
pub struct Options {
    /// Directory of sockets and state [default: /run/turnus for root, else below XDG_RUNTIME_DIR]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Length of a turn while others wait
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    pub quantum_ms: u64,
    /// A holder that is idle for this long, and as long as the switch to it took, gives the turn up when
    /// others wait
    #[arg(long, value_name = "MS", default_value_t = 2)]
    pub idle_hold_ms: u32,
    /// After this long a drain is given up for now and the gate reopens
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub drain_timeout_ms: u64,
    /// While a drain stalls, one waiting submission is let through each time this has passed
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pub drain_step_ms: u32,
    /// Bound on host memory for evicted bytes [default: half of RAM, less if the cgroup has less]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub host_pool: Option<u64>,
    /// Device memory kept free for the driver [default: 1/64 of the device]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub head_room: Option<u64>,
    /// Size of a frame handle
    #[arg(long, value_name = "BYTES", value_parser = handle_size, default_value = "64M")]
    pub handle_bytes: u64,
    /// After this long at the gate a program prints one line that says who holds the device
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub notice_after_ms: u32,
    /// After a restart members of the former life are waited for this long
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    pub recovery_ms: u64,
    /// Exit when no member has been connected for this long (private daemons)
    #[arg(long, value_name = "MS")]
    pub exit_when_idle_ms: Option<u64>,
    /// Folder of the locks that keep one daemon per device [default: /run/lock/turnus and
    /// /tmp/turnus-locks, both where both can be used]
    #[arg(long, value_name = "DIR")]
    pub lock_directory: Option<PathBuf>,
    /// Go to the background once the directory is ours; the log goes to turnusd.log in it
    #[arg(long)]
    pub detach: bool,
    /// Filter for the log on standard error (tracing syntax)
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
}

/// Frames are mapped by whole pages of the device, which are powers of two.
fn handle_size(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    if bytes < HANDLE_BYTES_MIN || !bytes.is_power_of_two() {
        return Err(format!(
            "a frame handle has a power of two of bytes, from 64K on, such as 64M; {text} is none"
        ));
    }
    Ok(bytes)
}

/// Smaller ones make more map operations than a switch can take.
const HANDLE_BYTES_MIN: u64 = 64 << 10;

impl Options {
    /// Where devices are locked. Not every user may make a folder in /run/lock, so one of these is
    /// enough; all that can be are used, so that any two daemons meet in one.
    pub fn lock_folders(&self) -> Vec<PathBuf> {
        let defaults = || vec!["/run/lock/turnus".into(), "/tmp/turnus-locks".into()];
        self.lock_directory.clone().map_or_else(defaults, |folder| vec![folder])
    }

    /// For the core.
    pub fn core_settings(&self, incarnation: u64) -> Settings {
        Settings {
            incarnation,
            quantum: Duration::from_millis(self.quantum_ms),
            drain_timeout: Duration::from_millis(self.drain_timeout_ms),
            host_pool_bytes: self.host_pool.unwrap_or_else(default_host_pool_bytes),
            head_room_bytes: self.head_room,
            notice_after: Duration::from_millis(u64::from(self.notice_after_ms)),
            recovery: Duration::from_millis(self.recovery_ms),
            segment_bytes_max: turnus_protocol::limits::SEGMENT_BYTES_MAX,
            devices_max: turnus_protocol::limits::DEVICES_MAX,
            ..Settings::default()
        }
    }

    /// For the members.
    pub fn member_settings(&self) -> MemberSettings {
        MemberSettings {
            notice_after_ms: self.notice_after_ms,
            idle_hold_ms: self.idle_hold_ms,
            drain_step_ms: self.drain_step_ms,
            handle_bytes: self.handle_bytes,
            in_flight_ms: 50,
        }
    }
}

/// Half of RAM, but no more than three quarters of the daemon's own cgroup limit.
fn default_host_pool_bytes() -> u64 {
    let half_of_ram = memory_total_bytes() / 2;
    cgroup_limit_bytes().map_or(half_of_ram, |limit| half_of_ram.min(limit / 4 * 3))
}

fn memory_total_bytes() -> u64 {
    let information = rustix::system::sysinfo();
    (information.totalram as u64).saturating_mul(u64::from(information.mem_unit))
}

/// The tightest `memory.max` from the own cgroup (v2) to the root.
fn cgroup_limit_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own = PathBuf::from(own.trim_start_matches('/'));
    let limit_of = |folder: &std::path::Path| -> Option<u64> {
        let file = std::path::Path::new("/sys/fs/cgroup").join(folder).join("memory.max");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    own.ancestors().filter_map(limit_of).min()
}
