//! What execution needs from the machine-wide hardware: the compute engine in slices, and links
//! that take time. A device of the arena is such hardware; tests may bring their own.
//!
//! Nothing here moves a byte: it only says when bytes would have arrived.

use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_simulated_arena::{Arena, DeviceConfig, Direction};

/// Bounds of a chunk: a page, and what memory moves within a millisecond.
const CHUNK_BYTES_MIN: u64 = 4 << 10;
const CHUNK_BYTES_MAX: u64 = 4 << 20;

/// The compute engine held by this process; dropping it lets others in.
pub trait SliceGuard {}

/// One simulated device, shared by all processes of the machine. Times are nanoseconds of
/// CLOCK_MONOTONIC (`turnus_simulated_arena::now_ns`).
pub trait Hardware: Send + Sync {
    /// Waits until this process may use the compute engine, and holds it until the guard drops.
    fn compute_slice(&self) -> Box<dyn SliceGuard + '_>;

    /// Books `bytes` on a link that others use too, and says when they will have arrived. The
    /// caller moves the bytes meanwhile and counts them as done no earlier.
    fn book_transfer(&self, direction: Direction, bytes: u64) -> u64;

    /// How many bytes to book at a time: about a millisecond's worth, so that others get in between.
    fn chunk_bytes(&self, direction: Direction) -> u64;

    /// How long a kernel occupies the compute engine at the least, in nanoseconds.
    fn launch_cost_ns(&self) -> u64;

    /// Why no context on the device can go on, when that is so; asked at every call, so it may be a little late.
    fn failure(&self) -> Option<CUerror> {
        None
    }

    /// The same, known for sure now.
    fn failure_now(&self) -> Option<CUerror> {
        self.failure()
    }

    /// A context was lost with this error: what the kernel module logs of it.
    fn note_fault(&self, _error: CUerror) {}

    /// The longest time that a process keeps the compute engine from others, in nanoseconds.
    fn time_slice_ns(&self) -> u64;

    /// Instructions of single threads that the device executes per second; 0 = not limited.
    fn instructions_per_s(&self) -> u64;
}

/// One device of an arena.
#[derive(Debug)]
pub struct ArenaDevice {
    arena: Arc<Arena>,
    index: usize,
}

impl ArenaDevice {
    /// The device with this index in `arena.devices()`.
    pub fn new(arena: Arc<Arena>, index: usize) -> Arc<ArenaDevice> {
        Arc::new(ArenaDevice { arena, index })
    }

    fn config(&self) -> Option<&DeviceConfig> {
        self.arena.devices().get(self.index).map(|device| &device.config)
    }
}

struct Held<T>(T);

impl<T> SliceGuard for Held<T> {}

impl Hardware for ArenaDevice {
    fn compute_slice(&self) -> Box<dyn SliceGuard + '_> {
        // An error means that the machine's directory is unusable; then nothing is shared any
        // more, and running without the slice lets the process end.
        Box::new(Held(self.arena.engine_slice(self.index).ok()))
    }

    fn book_transfer(&self, direction: Direction, bytes: u64) -> u64 {
        self.arena
            .link_reserve(self.index, direction, bytes)
            .unwrap_or_else(|_| turnus_simulated_arena::now_ns())
    }

    fn chunk_bytes(&self, direction: Direction) -> u64 {
        let rate = self.config().map_or(0, |config| match direction {
            Direction::HostToDevice => config.host_to_device_bytes_per_s,
            Direction::DeviceToHost => config.device_to_host_bytes_per_s,
            Direction::DeviceToDevice => config.device_to_device_bytes_per_s,
        });
        // A rate of 0 is not limited; chunks then only bound the time between two looks.
        if rate == 0 {
            CHUNK_BYTES_MAX
        } else {
            ((rate / 1000) & !0xfff).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
        }
    }

    fn launch_cost_ns(&self) -> u64 {
        self.config().map_or(0, |config| (config.launch_cost_us * 1e3) as u64)
    }

    fn time_slice_ns(&self) -> u64 {
        self.config().map_or(1_000_000, |config| (config.time_slice_us * 1e3) as u64)
    }

    fn instructions_per_s(&self) -> u64 {
        self.config().map_or(0, |config| config.instructions_per_s)
    }

    fn failure(&self) -> Option<CUerror> {
        self.arena.device_was_lost(self.index).then_some(LOST)
    }

    fn failure_now(&self) -> Option<CUerror> {
        self.arena.look_for_device(self.index).then_some(LOST)
    }

    fn note_fault(&self, error: CUerror) {
        if let Some(xid) = xid_of(error) {
            // A log that cannot be written must not change what the program sees.
            let _ = self.arena.report_xid(self.index, xid);
        }
    }
}

/// What programs get from a device that has fallen off the bus while they use it. The documentation names no code;
/// programs report the unknown error (gpu-burn, issue 1, with XID 79 in the kernel's log; timemachine, pull request
/// 1203, "handle GPU fell off bus").
const LOST: CUerror = CUerror::UNKNOWN;

/// The XID that the kernel module logs with an error of a context (NVIDIA, "XID errors"). Which XID goes with which
/// code is written from memory but for 48, "double bit ECC error", and 94, "contained ECC error".
fn xid_of(error: CUerror) -> Option<u64> {
    match error {
        CUerror::ILLEGAL_ADDRESS => Some(31),
        CUerror::MISALIGNED_ADDRESS | CUerror::LAUNCH_FAILED => Some(13),
        CUerror::ECC_UNCORRECTABLE => Some(48),
        CUerror::LAUNCH_TIMEOUT => Some(8),
        CUerror::CONTAINED => Some(94),
        _ => None,
    }
}
