//! The arena as a process sees it: opening the machine, its devices, and what the other modules need.
//!
//! The operations are in `physical.rs` (memory), `export.rs`, `usage.rs` (queries and charges), `clients.rs`
//! (attaching, the dead), `link.rs` (copies and mapping costs) and `engine.rs` (compute). Nothing in here may
//! keep a copy of shared state.

use crate::alive::AliveFile;
use crate::config::{ArenaConfig, CONFIG_FILE, DIRECTORY_VARIABLE, Device};
use crate::engine::LocalQueue;
use crate::error::ArenaError;
use crate::incidents::Presence;
use crate::layout::{DeviceState, Shared};
use crate::mapping::{ForkMark, Mapping};
use crate::rows::Holder;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One process's attachment to the simulated machine. Dropping it frees what it holds, unless a forked child
/// still has its descriptor.
///
/// All methods may be called from any thread. In a forked child they answer [`ArenaError::Forked`]; the child
/// opens an arena of its own and is another client.
#[derive(Debug)]
pub struct Arena {
    directory: PathBuf,
    devices: Vec<Device>,
    pub(crate) config: ArenaConfig,
    pub(crate) shared: Shared,
    pub(crate) alive: AliveFile,
    /// The description whose lock says that this client lives; taken out only by drop.
    pub(crate) own: Option<File>,
    pub(crate) slot: usize,
    memories: Vec<DeviceMemory>,
    pub(crate) queues: Vec<LocalQueue>,
    pub(crate) presences: Vec<Presence>,
    fork_mark: ForkMark,
}

/// The memory file of a device and this process's window on all of it.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    pub(crate) file: File,
    pub(crate) window: Mapping,
}

impl Arena {
    /// Attach to the machine that the environment names (see `config.rs`), making it when it is new.
    pub fn open() -> Result<Arc<Self>, ArenaError> {
        let directory = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from).unwrap_or_else(|| {
            // SAFETY: getuid has no preconditions and cannot fail.
            let user = unsafe { libc::getuid() };
            PathBuf::from(format!("/dev/shm/simulated-cuda-{user}"))
        });
        Self::open_at(&directory)
    }

    /// Attach to the machine in `directory`, making it from its `devices.toml`, or from the environment when it
    /// has none.
    pub fn open_at(directory: &Path) -> Result<Arc<Self>, ArenaError> {
        let made = Self::make(directory)?;
        let config = ArenaConfig::read(&directory.join(CONFIG_FILE))?;
        let devices = config.resolve()?;
        let shared = Shared::open(directory, &devices).inspect_err(|_| made.undo(directory))?;
        crate::files::remove_left_over(directory);
        if !crate::files::has_room(directory) {
            let (path, source) = (directory.to_owned(), std::io::Error::from_raw_os_error(libc::ENOSPC));
            return Err(ArenaError::File { what: "attaching to", path, source });
        }
        let alive = AliveFile::open(directory)?;
        let memories =
            devices.iter().map(|device| DeviceMemory::open(directory, device)).collect::<Result<_, _>>()?;
        let (own, slot) = crate::clients::attach(&shared, &alive)?;
        let arena = Self {
            directory: directory.to_owned(),
            queues: devices.iter().map(|_| LocalQueue::default()).collect(),
            presences: devices.iter().map(|_| Presence::default()).collect(),
            devices,
            config,
            shared,
            alive,
            own: Some(own),
            slot,
            memories,
            fork_mark: ForkMark::new()?,
        };
        arena.reap()?;
        Ok(Arc::new(arena))
    }

    /// The directory with its configuration.
    fn make(directory: &Path) -> Result<Made, ArenaError> {
        let mut made = Made::default();
        if directory.join(CONFIG_FILE).symlink_metadata().is_ok() {
            return Ok(made);
        }
        let config = ArenaConfig::from_environment()?;
        config.resolve()?;
        made.directory = crate::files::make_directory(directory).map_err(|source| ArenaError::File {
            what: "making the machine's directory",
            path: directory.to_owned(),
            source,
        })?;
        made.configuration = config.write(directory).inspect_err(|_| made.undo(directory))?;
        Ok(made)
    }

    /// The directory of the machine.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The devices of the machine, scaled.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// What capacities, granularity and rates of the card are divided by.
    pub fn scale(&self) -> u64 {
        self.config.scale
    }

    /// Whether the devices reach each other's memory.
    pub fn peer_access(&self) -> bool {
        self.config.peer_access
    }

    /// False in a forked child, where every operation answers [`ArenaError::Forked`].
    pub fn is_of_this_process(&self) -> bool {
        self.fork_mark.is_of_this_process()
    }

    /// The memory file of a device, to map pieces elsewhere (MAP_SHARED at `file_offset_bytes`).
    pub fn memory_file(&self, device: usize) -> Result<BorrowedFd<'_>, ArenaError> {
        self.device(device)?;
        Ok(self.memories[device].file.as_fd())
    }

    /// Start of this process's window on all of a device's memory; byte n of the memory file is at start + n.
    pub fn window_start(&self, device: usize) -> Result<*mut u8, ArenaError> {
        self.device(device)?;
        Ok(self.memories[device].window.start())
    }

    /// The device, or why it cannot be used.
    pub(crate) fn device(&self, device: usize) -> Result<&Device, ArenaError> {
        if !self.is_of_this_process() {
            return Err(ArenaError::Forked);
        }
        self.devices.get(device).ok_or(ArenaError::NoDevice { device })
    }

    pub(crate) fn state(&self, device: usize) -> Result<DeviceState<'_>, ArenaError> {
        self.device(device)?;
        Ok(self.shared.device(device))
    }

    pub(crate) fn device_memory(&self, device: usize) -> &DeviceMemory {
        &self.memories[device]
    }

    /// This client as a holder.
    pub(crate) fn holder(&self) -> Holder {
        crate::clients::client_holder(self.slot)
    }
}

/// What an opener made before there was a state.
#[derive(Clone, Copy, Default)]
struct Made {
    directory: bool,
    configuration: bool,
}

impl Made {
    /// Leave nothing behind, unless another process has got further.
    fn undo(self, directory: &Path) {
        if self.configuration && !directory.join("state").exists() {
            // What cannot be removed is told by the error that led here.
            let _ = std::fs::remove_file(directory.join(CONFIG_FILE));
        }
        if self.directory {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl DeviceMemory {
    fn open(directory: &Path, device: &Device) -> Result<Self, ArenaError> {
        let path = directory.join(format!("memory-{}", device.index));
        let bytes = device.config.memory_bytes;
        let file = crate::files::open_sized(&path, bytes).map_err(|source| ArenaError::File {
            what: "opening",
            path,
            source,
        })?;
        let window = Mapping::shared(&file, bytes)?;
        // A core dump of a client is not a dump of the device.
        window.advise(libc::MADV_DONTDUMP)?;
        Ok(Self { file, window })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let is_of_this_process = self.is_of_this_process();
        drop(self.own.take());
        if is_of_this_process {
            // Nobody can be told of an error here, and whoever needs the memory next reaps again.
            let _ = self.reap();
        }
    }
}
