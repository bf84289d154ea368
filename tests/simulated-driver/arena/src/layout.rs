//! The shared state as it lies in the file `state`, and the rules that keep it whole.
//!
//! Rules: (1) tables change only under the lock (`lock.rs`), links and engines are lock-free; (2) every change
//! becomes true by one store of one word, and what is written before that store means nothing without it;
//! (3) sums are computed from rows, never kept; (4) `*_high` is raised before a row is used and only bounds
//! scans; hints only say where to look first. So a process may die between any two instructions: `repair`
//! (in `rows.rs`) drops what was not committed and finishes what was.

use crate::activity::Activity;
use crate::clock::now_ns;
use crate::config::Device;
use crate::error::ArenaError;
use crate::lock::{LockGuard, RobustLock};
use crate::mapping::Mapping;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Clients that a machine can have at once.
pub(crate) const CLIENTS: usize = 4096;
/// Exports that can live at once.
pub(crate) const EXPORTS: usize = 8192;
/// Allocations of a device.
pub(crate) const ROWS: usize = 1 << 17;
/// Distinct holders of one allocation.
pub(crate) const HOLDS: usize = 28;
/// Charges of a device.
pub(crate) const CHARGES: usize = 1 << 16;

const MAGIC: u64 = u64::from_le_bytes(*b"SimArena");
const VERSION: u32 = 4;
const PAGE_BYTES: usize = 4096;

/// Start of the state file. All zero but the first five fields in a new machine.
#[repr(C)]
pub(crate) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    device_count: AtomicU32,
    digest: AtomicU64,
    /// When the machine was made, CLOCK_MONOTONIC.
    pub(crate) made_ns: AtomicU64,
    lock: RobustLock,
    /// When the machine-wide lock of `costs.rs` is free again.
    pub(crate) mapping_next_ns: AtomicU64,
    /// How often an owner of the lock died in its section; only told, never used.
    pub(crate) repairs: AtomicU64,
    pub(crate) client_high: AtomicU32,
    pub(crate) export_high: AtomicU32,
    pub(crate) clients: [ClientRow; CLIENTS],
    /// 0 = free, else `EXPORT_LIVE | device << 32 | row`.
    pub(crate) exports: [AtomicU64; EXPORTS],
}

/// A client; its byte in the alive file is its index.
#[repr(C)]
pub(crate) struct ClientRow {
    /// 0 = free. Written last by an attaching and by a reaping process.
    pub(crate) is_live: AtomicU32,
    pub(crate) pid: AtomicU32,
}

/// Tables of one device; its frames follow.
#[repr(C)]
pub(crate) struct DeviceTables {
    /// When each direction of the link is free again, by `Direction as usize`.
    pub(crate) link_next_ns: [AtomicU64; 3],
    /// When all memory that was freed will be erased.
    pub(crate) scrub_next_ns: AtomicU64,
    /// 0 = free, else `microseconds << 16 | holder`.
    pub(crate) engine_owner: AtomicU64,
    pub(crate) engine_ticket: AtomicU64,
    /// Nanoseconds of the compute engine.
    pub(crate) engine_activity: Activity,
    /// Nanoseconds of copies, whatever their direction.
    pub(crate) copy_activity: Activity,
    /// Bytes copied, by `Direction as usize`.
    pub(crate) link_activity: [Activity; 3],
    pub(crate) row_high: AtomicU32,
    pub(crate) row_hint: AtomicU32,
    pub(crate) charge_high: AtomicU32,
    pub(crate) charge_hint: AtomicU32,
    /// `ComputeMode` as a number.
    pub(crate) compute_mode: AtomicU32,
    unused: AtomicU32,
    pub(crate) waiters: [Waiter; CLIENTS],
    /// `generation << 8 | state` of each allocation; the word that commits.
    pub(crate) states: [AtomicU64; ROWS],
    /// `first frame << 32 | number of frames`.
    pub(crate) extents: [AtomicU64; ROWS],
    /// When the memory of a resting row may be used again.
    pub(crate) ready_ns: [AtomicU64; ROWS],
    /// `holder << 18 | count`, 0 = empty.
    pub(crate) holds: [[AtomicU32; HOLDS]; ROWS],
    pub(crate) charges: [ChargeRow; CHARGES],
}

/// A client at the engine.
#[repr(C)]
pub(crate) struct Waiter {
    /// 0 = does not wait.
    pub(crate) ticket: AtomicU64,
    /// Futex; raised when the engine is handed to this client.
    pub(crate) wake: AtomicU32,
    /// Contexts that it has on the device.
    pub(crate) contexts: AtomicU32,
    /// Nanoseconds of the compute engine that this client had.
    pub(crate) activity: Activity,
}

/// Capacity taken without backing.
#[repr(C)]
pub(crate) struct ChargeRow {
    /// `generation << 16 | holder`; holder 0 = free. Written last.
    pub(crate) owner: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// One device's part of the state.
#[derive(Clone, Copy)]
pub(crate) struct DeviceState<'shared> {
    pub(crate) tables: &'shared DeviceTables,
    /// Owner of each frame: row + 1, or 0.
    pub(crate) frames: &'shared [AtomicU32],
    pub(crate) granularity_bytes: u64,
}

/// The mapped state file.
#[derive(Debug)]
pub(crate) struct Shared {
    mapping: Mapping,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    offset: usize,
    frame_count: usize,
    granularity_bytes: u64,
}

impl Shared {
    /// Map the state of the machine, making it when it is new.
    pub(crate) fn open(directory: &Path, devices: &[Device]) -> Result<Self, ArenaError> {
        let path = directory.join("state");
        let (places, bytes) = places(devices);
        let digest = digest(devices);
        let file_error =
            |what| move |source| ArenaError::File { what, path: directory.join("state"), source };
        crate::files::publish_with(directory, "state", |file| {
            if !crate::files::has_room(directory) {
                return Err(std::io::Error::from_raw_os_error(libc::ENOSPC));
            }
            crate::files::set_length(file, bytes as u64)?;
            let mapping = Mapping::shared(file, bytes as u64).map_err(std::io::Error::other)?;
            let shared = Self { mapping, places: places.clone() };
            let header = shared.header();
            // SAFETY: the file has no name yet that another process looks for.
            unsafe { header.lock.initialise() }.map_err(std::io::Error::other)?;
            header.version.store(VERSION, Ordering::Relaxed);
            header.device_count.store(devices.len() as u32, Ordering::Relaxed);
            header.digest.store(digest, Ordering::Relaxed);
            header.made_ns.store(now_ns(), Ordering::Relaxed);
            for (state, device) in shared.devices().zip(devices) {
                state.tables.compute_mode.store(device.config.compute_mode as u32, Ordering::Relaxed);
            }
            header.magic.store(MAGIC, Ordering::Release);
            Ok(())
        })
        .map_err(file_error("making"))?;
        let file = crate::files::open_sized(&path, 0).map_err(file_error("opening"))?;
        let length = file.metadata().map_err(file_error("reading"))?.len();
        let foreign = |reason: String| Err(ArenaError::Version { path: path.clone(), reason });
        if length < size_of::<Header>() as u64 {
            return foreign(format!("has {length} bytes and is no state file"));
        }
        let mapping = Mapping::shared(&file, length)?;
        let shared = Self { mapping, places };
        let header = shared.header();
        if header.magic.load(Ordering::Acquire) != MAGIC || header.version.load(Ordering::Relaxed) != VERSION
        {
            let found = header.version.load(Ordering::Relaxed);
            return foreign(format!("is a state of version {found}, not {VERSION}"));
        }
        if length != bytes as u64 || header.digest.load(Ordering::Relaxed) != digest {
            let reason = "was made for other devices than devices.toml now names".to_owned();
            return Err(ArenaError::State { path, reason });
        }
        Ok(shared)
    }

    /// The header and machine-wide tables.
    pub(crate) fn header(&self) -> &Header {
        assert!(self.mapping.bytes() >= size_of::<Header>());
        // SAFETY: the mapping is long enough and page-aligned, lives as long as `self`, and the header consists
        // of atomics and a lock, for which any bytes are valid and shared access is allowed.
        unsafe { &*self.mapping.start().cast::<Header>() }
    }

    /// The tables of a device that exists.
    pub(crate) fn device(&self, index: usize) -> DeviceState<'_> {
        let place = self.places[index];
        let frames_at = place.offset + size_of::<DeviceTables>();
        assert!(frames_at + place.frame_count * 4 <= self.mapping.bytes());
        // SAFETY: both ranges lie in the mapping (asserted), `offset` is a multiple of the page size and the
        // tables' size one of 8, so both are aligned; they consist of atomics only and live as long as `self`.
        unsafe {
            let start = self.mapping.start().add(place.offset);
            let frames = start.add(size_of::<DeviceTables>()).cast::<AtomicU32>();
            DeviceState {
                tables: &*start.cast::<DeviceTables>(),
                frames: std::slice::from_raw_parts(frames, place.frame_count),
                granularity_bytes: place.granularity_bytes,
            }
        }
    }

    /// All devices.
    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceState<'_>> {
        (0..self.places.len()).map(|index| self.device(index))
    }

    /// Lock the tables; they are whole when this returns.
    pub(crate) fn lock(&self) -> Result<LockGuard<'_>, ArenaError> {
        self.header().lock.lock(|| {
            self.header().repairs.fetch_add(1, Ordering::Relaxed);
            self.devices().for_each(|device| device.repair());
        })
    }
}

fn places(devices: &[Device]) -> (Vec<Place>, usize) {
    let mut end = size_of::<Header>().next_multiple_of(PAGE_BYTES);
    let mut places = Vec::new();
    for device in devices {
        let frame_count = device.frame_count() as usize;
        places.push(Place { offset: end, frame_count, granularity_bytes: device.config.granularity_bytes });
        end = (end + size_of::<DeviceTables>() + frame_count * 4).next_multiple_of(PAGE_BYTES);
    }
    (places, end)
}

/// FNV-1a over what the tables depend on; rates and costs may change between runs.
fn digest(devices: &[Device]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for device in devices {
        add(&device.uuid);
        add(&device.config.memory_bytes.to_le_bytes());
        add(&device.config.granularity_bytes.to_le_bytes());
    }
    hash
}
