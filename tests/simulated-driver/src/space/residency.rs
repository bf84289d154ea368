//! Where managed pages are: on one device, which they take capacity of, or on the host.
//!
//! A page comes to a device when the device touches it or by prefetch, which takes the time of its bytes on
//! the link. When the device is full the page that came first goes back to the host; only pages of this process
//! are moved, and the host's own accesses are not seen. The lock here is innermost but for those of the arena.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_simulated_arena::{Arena, ArenaError, ChargeId, Direction, sleep_until};

use super::managed::{CPU, Managed};
use super::peers::only;
use super::physical::Physical;
use super::table::{PageTable, READ, WRITE};
use super::{AddressSpace, Result};

/// See the module's words.
#[derive(Debug)]
pub(super) struct Residency {
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    /// Device and arrival number of each page that is on a device.
    places: HashMap<u64, (usize, u64)>,
    devices: Vec<OnDevice>,
    next_arrival: u64,
}

#[derive(Debug, Default)]
struct OnDevice {
    /// Pages by arrival.
    pages: BTreeMap<u64, u64>,
    charge: Option<ChargeId>,
}

impl Residency {
    pub(super) fn new(device_count: usize) -> Self {
        let devices = (0..device_count).map(|_| OnDevice::default()).collect();
        Self { pages: Mutex::new(Pages { places: HashMap::new(), devices, next_arrival: 0 }) }
    }
}

impl OnDevice {
    /// Lets `count` pages be charged to the device.
    fn charge(&mut self, arena: &Arena, device: usize, bytes: u64) -> std::result::Result<(), ArenaError> {
        match self.charge {
            Some(charge) => arena.change_charge(charge, bytes),
            None => arena.charge(device, bytes).map(|charge| self.charge = Some(charge)),
        }
    }
}

impl Pages {
    /// Takes a page off its device; the device it was on.
    fn leave(&mut self, arena: &Arena, table: &PageTable, page: u64) -> Option<usize> {
        let (device, arrival) = self.places.remove(&page)?;
        table.clear(page, table.page_bytes());
        let on_device = &mut self.devices[device];
        on_device.pages.remove(&arrival);
        let bytes = on_device.pages.len() as u64 * table.page_bytes();
        // A smaller charge is refused only in a forked child, which has no device.
        let _ = on_device.charge(arena, device, bytes);
        Some(device)
    }

    /// Sends the page that came first away; false when there is none.
    fn evict_one(&mut self, arena: &Arena, table: &PageTable, device: usize) -> bool {
        let oldest = self.devices[device].pages.values().next().copied();
        oldest.is_some_and(|page| self.leave(arena, table, page).is_some())
    }

    /// Puts a page on a device, if need be in place of others; false when there is no room.
    fn arrive(&mut self, arena: &Arena, table: &PageTable, device: usize, page: u64) -> bool {
        loop {
            let count = self.devices[device].pages.len() as u64 + 1;
            match self.devices[device].charge(arena, device, count * table.page_bytes()) {
                Ok(()) => break,
                Err(ArenaError::OutOfMemory { .. }) if self.evict_one(arena, table, device) => {}
                Err(_) => return false,
            }
        }
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        self.devices[device].pages.insert(arrival, page);
        self.places.insert(page, (device, arrival));
        // The bytes lie at their own address.
        table.map(page, table.page_bytes(), page as *mut u8, only(device), READ | WRITE);
        true
    }
}

impl AddressSpace {
    /// A device touches an address without entry: the byte and how many follow it, when it is managed memory.
    /// The page moves to the device unless the host is its preferred place or there is no room.
    pub(super) fn fault_in(&self, device: usize, address: u64) -> Option<(*mut u8, u64)> {
        let (base, _, managed) = self.managed(address, 1).ok()?;
        let page_bytes = self.table.page_bytes();
        let page = address - address % page_bytes;
        let prefers_host = managed.advice(address - base, address - base + 1)[0].preferred == CPU;
        if !prefers_host && self.bring(device, page) {
            let arrival = self.arena.link_reserve(device, Direction::HostToDevice, page_bytes);
            arrival.into_iter().for_each(sleep_until);
        }
        Some((address as *mut u8, page + page_bytes - address))
    }

    /// Puts a managed page on a device; whether it had to move.
    pub(super) fn bring(&self, device: usize, page: u64) -> bool {
        let Ok((_, _, managed)) = self.managed(page, 1) else { return false };
        let mut pages = self.residency.pages.lock();
        let is_there = pages.places.get(&page).is_some_and(|place| place.0 == device);
        if is_there || managed.is_freed.load(Ordering::Acquire) {
            return false;
        }
        pages.leave(&self.arena, &self.table, page);
        pages.arrive(&self.arena, &self.table, device, page)
    }

    /// Takes a page off its device; whether it was on one.
    pub(super) fn bring_to_host(&self, page: u64) -> bool {
        self.residency.pages.lock().leave(&self.arena, &self.table, page).is_some()
    }

    /// The pages that the range meets.
    pub(super) fn pages(&self, start: u64, end: u64) -> impl Iterator<Item = u64> {
        let page_bytes = self.table.page_bytes();
        (start - start % page_bytes..end).step_by(page_bytes as usize)
    }

    /// Takes all pages of freed memory off their devices.
    pub(super) fn leave_all(&self, base: u64, managed: &Managed) {
        let mut pages = self.residency.pages.lock();
        managed.is_freed.store(true, Ordering::Release);
        for page in self.pages(base, base + managed.taken_bytes) {
            pages.leave(&self.arena, &self.table, page);
        }
    }

    /// Physical memory of a device; managed pages of this process make room for it.
    pub(super) fn allocate_physical(&self, device: usize, bytes: u64, handle_types: u32) -> Result<Physical> {
        loop {
            match Physical::allocate(&self.arena, device, bytes, handle_types) {
                Err(CUerror::OUT_OF_MEMORY) => {}
                answer => return answer,
            }
            let mut pages = self.residency.pages.lock();
            // One by one would try once for each page.
            let count = bytes.div_ceil(self.table.page_bytes());
            let evicted = (0..count).take_while(|_| pages.evict_one(&self.arena, &self.table, device));
            if evicted.count() == 0 {
                return Err(CUerror::OUT_OF_MEMORY);
            }
        }
    }
}
