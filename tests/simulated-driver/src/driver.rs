//! The one driver of the process: what `cuInit` makes and everything else needs.
//!
//! Opens the simulated machine, picks the visible devices, and makes the driver useless in forked children,
//! as the real one is. No thread starts here; executors start theirs with the first piece of work.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_simulated_arena::{Arena, ArenaError, ConfigError, Device};

use crate::call;
use crate::device::visible;
use crate::execution::{ArenaDevice, Executor};
use crate::space::{AddressSpace, DeviceSpace, Result};

/// See the module's words.
#[derive(Debug)]
pub struct Driver {
    /// The machine.
    pub arena: Arc<Arena>,
    /// The device address space.
    pub space: Arc<AddressSpace>,
    /// Visible devices: their index on the machine, by ordinal.
    visible: Vec<usize>,
    engines: Vec<OnceLock<Engines>>,
}

#[derive(Clone)]
struct Engines {
    executor: Arc<Executor>,
    space: Arc<DeviceSpace>,
}

impl std::fmt::Debug for Engines {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Engines")
    }
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
static INITIALISING: Mutex<()> = Mutex::new(());

/// `cuInit`. A second call finds everything done.
pub fn initialise() -> Result<()> {
    let _one_at_a_time = INITIALISING.lock();
    if DRIVER.get().is_some() {
        return Ok(());
    }
    let arena = Arena::open().map_err(opening_error)?;
    // That a lost device is left out, and others take its index, is what programs on such machines show; not seen
    // on a card.
    let present = |device: &&Device| !arena.device_is_lost(device.index);
    let present: Vec<&Device> = arena.devices().iter().filter(present).collect();
    let visible = visible::choose(&present, std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
    if visible.is_empty() {
        return Err(CUerror::NO_DEVICE);
    }
    let space = Arc::new(AddressSpace::new(&arena)?);
    let engines = arena.devices().iter().map(|_| OnceLock::new()).collect();
    // SAFETY: the handler only sets a flag, which is allowed in a forked child.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    if DRIVER.set(Driver { arena, space, visible, engines }).is_err() {
        return Err(CUerror::UNKNOWN);
    }
    call::initialised();
    Ok(())
}

extern "C" fn forked() {
    call::forked();
}

/// The driver after `cuInit`.
pub fn driver() -> Result<&'static Driver> {
    DRIVER.get().ok_or(CUerror::NOT_INITIALIZED)
}

impl Driver {
    /// Number of visible devices.
    pub fn device_count(&self) -> usize {
        self.visible.len()
    }

    /// Index on the machine of the device with this ordinal.
    pub fn index(&self, ordinal: i32) -> Result<usize> {
        let ordinal = usize::try_from(ordinal).map_err(|_| CUerror::INVALID_DEVICE)?;
        self.visible.get(ordinal).copied().ok_or(CUerror::INVALID_DEVICE)
    }

    /// The device with this ordinal.
    pub fn device(&self, ordinal: i32) -> Result<&Device> {
        Ok(&self.arena.devices()[self.index(ordinal)?])
    }

    /// Ordinal of a device of the machine; `None` when it is not visible.
    pub fn ordinal(&self, index: usize) -> Option<i32> {
        self.visible.iter().position(|&visible| visible == index).map(|place| place as i32)
    }

    /// What runs the work of the device with this index.
    pub fn engines(&self, index: usize) -> (Arc<Executor>, Arc<DeviceSpace>) {
        let engines = self.engines[index].get_or_init(|| Engines {
            executor: Executor::new(ArenaDevice::new(Arc::clone(&self.arena), index)),
            space: Arc::new(DeviceSpace::new(&self.space, index)),
        });
        (Arc::clone(&engines.executor), Arc::clone(&engines.space))
    }
}

/// The answer of `cuInit` when the machine cannot be opened; what is wrong is said on stderr, in one line.
fn opening_error(error: ArenaError) -> CUerror {
    eprintln!("simulated driver: {error}");
    match error {
        ArenaError::Version { .. } => CUerror::SYSTEM_DRIVER_MISMATCH,
        error if error.is_no_space() => CUerror::OUT_OF_MEMORY,
        ArenaError::Config(ConfigError::File { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            CUerror::OPERATING_SYSTEM
        }
        // "Verify the system configuration is in a valid state", as cuda.h has it.
        ArenaError::Config(_) | ArenaError::State { .. } => CUerror::SYSTEM_NOT_READY,
        ArenaError::File { .. } | ArenaError::System { .. } => CUerror::OPERATING_SYSTEM,
        _ => CUerror::UNKNOWN,
    }
}

/// The driver's answer to an error of the machine. What no correct program can meet is said on stderr.
pub fn arena_error(error: ArenaError) -> CUerror {
    match error {
        ArenaError::OutOfMemory { .. } => CUerror::OUT_OF_MEMORY,
        ArenaError::Forked => CUerror::NOT_INITIALIZED,
        ArenaError::Unavailable { .. } => CUerror::DEVICE_UNAVAILABLE,
        ArenaError::Size { .. } | ArenaError::NotHeld { .. } | ArenaError::ForeignDescriptor { .. } => {
            CUerror::INVALID_VALUE
        }
        other => {
            eprintln!("simulated driver: {other}");
            CUerror::UNKNOWN
        }
    }
}
