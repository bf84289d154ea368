//! The process's device address space: what lies where, and what the program may do with it.
//!
//! One for all devices, since addresses are unified. Structure is kept under one lock; engines translate
//! through the page table (`table.rs`) without it. A change that takes bytes away first clears the entries,
//! then waits in [`AddressSpace::shoot_down`] until no engine uses an old translation, then gives the memory
//! back. Errors are those of the driver functions. Next: `virtual_memory.rs` (cuMemMap and friends),
//! `allocation.rs` (cuMemAlloc), `pool.rs` (cuMemAllocAsync), `graph_pool.rs` (memory nodes),
//! `managed.rs` (cuMemAllocManaged), `host.rs` (pinned memory), `access.rs` and `kernel.rs` (what engines do).

mod access;
mod allocation;
mod array;
mod graph_pool;
mod host;
mod kernel;
mod managed;
mod peers;
mod physical;
mod pool;
mod pool_memory;
mod ranges;
mod residency;
mod table;
mod virtual_memory;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use turnus_bindings::CUerror;
use turnus_simulated_arena::Arena;

pub use access::DeviceSpace;
pub use allocation::{Allocation, Origin};
pub use array::ArrayMemory;
pub use graph_pool::GraphLaunch;
pub use host::{HostKind, HostRange, HostRanges};
pub use managed::{Advice, CPU, NOWHERE};
pub use peers::Grant;
pub use physical::Physical;
pub use pool::{Freed, Pool, PoolProperties};
pub use pool_memory::SharedPart;
pub use table::{READ, WRITE};
pub use virtual_memory::Mapping;

/// The driver's answers.
pub type Result<T> = std::result::Result<T, CUerror>;

/// Alignment of suballocations, as on real cards.
const ALLOCATION_ALIGNMENT_BYTES: u64 = 512;
/// Reservation sizes and hints are multiples of this.
const HOST_PAGE_BYTES: u64 = 4096;

/// See the module's words.
#[derive(Debug)]
pub struct AddressSpace {
    arena: Arc<Arena>,
    granularity_bytes: Vec<u64>,
    table: table::PageTable,
    state: Mutex<State>,
    host: HostRanges,
    grants: peers::Grants,
    residency: residency::Residency,
    graph_pools: Vec<graph_pool::GraphPool>,
    /// Read while an engine uses translations; written to wait until none does.
    translations: RwLock<()>,
}

#[derive(Debug)]
struct State {
    free: ranges::FreeRanges,
    reservations: BTreeMap<u64, Reservation>,
    mappings: BTreeMap<u64, Mapping>,
    allocations: BTreeMap<u64, Allocation>,
    slabs: HashMap<allocation::SlabOwner, Vec<allocation::Slab>>,
    handles: physical::Handles,
    next_buffer_id: u64,
}

/// An address range the program reserved.
#[derive(Clone, Copy, Debug)]
pub struct Reservation {
    /// As the program asked.
    pub bytes: u64,
    /// As taken from the free ranges.
    taken_bytes: u64,
}

/// What lies at a device address.
#[derive(Clone, Debug)]
pub enum Place {
    /// From `cuMemAlloc` or a pool.
    Allocation(u64, Allocation),
    /// From `cuMemMap`, with the reservation around it.
    Mapping(u64, Mapping, u64, Reservation),
    /// Reserved, nothing mapped.
    Reserved(u64, Reservation),
}

impl AddressSpace {
    /// The empty space over the devices of `arena`.
    pub fn new(arena: &Arc<Arena>) -> Result<Self> {
        let granularity_bytes: Vec<u64> =
            arena.devices().iter().map(|device| device.config.granularity_bytes).collect();
        // One page size for all devices: what divides each granularity.
        let page_bytes =
            granularity_bytes.iter().map(|bytes| 1 << bytes.trailing_zeros()).min().unwrap_or(1 << 21);
        let table = table::PageTable::new(page_bytes)?;
        let state = State {
            free: ranges::FreeRanges::new(table.base(), table.bytes()),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            allocations: BTreeMap::new(),
            slabs: HashMap::new(),
            handles: physical::Handles::new(),
            next_buffer_id: 1,
        };
        Ok(Self {
            arena: Arc::clone(arena),
            granularity_bytes,
            table,
            state: Mutex::new(state),
            host: HostRanges::default(),
            grants: peers::Grants::default(),
            residency: residency::Residency::new(arena.devices().len()),
            graph_pools: arena.devices().iter().map(|_| graph_pool::GraphPool::default()).collect(),
            translations: RwLock::new(()),
        })
    }

    /// Unit of physical memory of a device.
    pub fn granularity_bytes(&self, device: usize) -> u64 {
        self.granularity_bytes[device]
    }

    /// Whether `address` is of the device region, mapped or not.
    pub fn is_device_address(&self, address: u64) -> bool {
        self.table.contains(address)
    }

    /// Host memory that devices reach.
    pub fn host(&self) -> &HostRanges {
        &self.host
    }

    /// What lies at `address`.
    pub fn place(&self, address: u64) -> Option<Place> {
        let state = self.state.lock();
        if let Some((&base, allocation)) = state.allocations.range(..=address).next_back()
            && address < base + allocation.bytes
        {
            return Some(Place::Allocation(base, allocation.clone()));
        }
        let (&base, &reservation) = state.reservations.range(..=address).next_back()?;
        if address >= base + reservation.bytes {
            return None;
        }
        match state.mapping_at(address) {
            Some((start, mapping)) => Some(Place::Mapping(start, mapping.clone(), base, reservation)),
            None => Some(Place::Reserved(base, reservation)),
        }
    }

    /// Returns when no engine uses a translation made before the call.
    fn shoot_down(&self) {
        drop(self.translations.write());
    }

    fn map_pages(
        &self,
        address: u64,
        bytes: u64,
        physical: &Physical,
        devices: peers::Devices,
        rights: u64,
    ) -> Result<()> {
        for piece in physical.pieces()? {
            let length = piece.bytes.min(bytes.saturating_sub(piece.offset_bytes));
            if length > 0 {
                let at = address + piece.offset_bytes;
                self.table.map(at, length, piece.window_pointer, devices, rights);
            }
        }
        Ok(())
    }
}

impl State {
    fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&base, mapping) = self.mappings.range(..=address).next_back()?;
        (address < base + mapping.bytes).then_some((base, mapping))
    }

    fn new_buffer_id(&mut self) -> u64 {
        let id = self.next_buffer_id;
        self.next_buffer_id += 1;
        id
    }
}
