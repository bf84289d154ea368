//! A driver that forgives nothing, over ordinary memory.
//!
//! Panics on what would be a defect of ours (unmapping what is under copy, reusing a buffer too
//! early); answers with an error what the real driver answers with one. Copies happen when they are
//! waited for, as late as the real driver may do them. Any call can be made to fail, by number.

use crate::memory::driver::{Context, Driver, Handle, Lane, Slot};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use turnus_bindings::{CUerror, types::CUdevice};

/// Unit of frames: small, so that tests have many.
pub(super) const GRANULE_BYTES: u64 = 4096;

#[derive(Debug)]
struct Physical {
    bytes: Vec<u8>,
    mapped_at: Option<u64>,
    is_released: bool,
}

#[derive(Debug, Clone, Copy)]
struct Mapping {
    handle: u64,
    bytes: u64,
    is_accessible: bool,
}

#[derive(Debug, Clone, Copy)]
struct Copy {
    is_out: bool,
    address: u64,
    bytes: usize,
    buffer: usize,
}

#[derive(Debug, Default)]
struct Inner {
    capacity_bytes: u64,
    used_by_others_bytes: u64,
    last_number: u64,
    reservations: BTreeMap<u64, u64>,
    physical: BTreeMap<u64, Physical>,
    mappings: BTreeMap<u64, Mapping>,
    /// By stream and slot.
    copies: BTreeMap<(usize, usize), Copy>,
    lanes: usize,
    calls: u64,
    fail_at: Option<(u64, CUerror)>,
    failed: Option<&'static str>,
    synchronised: u64,
    sync_memops: Vec<Context>,
    current: Option<(Context, CUdevice)>,
}

/// Shared by the memory and its test.
#[derive(Debug, Clone)]
pub(super) struct FakeDriver(Arc<Mutex<Inner>>);

impl FakeDriver {
    pub(super) fn new(capacity_bytes: u64) -> FakeDriver {
        let current = Some((Context(1), 0));
        FakeDriver(Arc::new(Mutex::new(Inner { capacity_bytes, current, ..Inner::default() })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("a test has failed before")
    }

    /// Counts a call; fails it if its number has come.
    fn call(&self, kind: &'static str) -> Result<MutexGuard<'_, Inner>, CUerror> {
        let mut inner = self.inner();
        inner.calls += 1;
        match inner.fail_at {
            Some((number, error)) if number == inner.calls => {
                inner.failed = Some(kind);
                Err(error)
            }
            _ => Ok(inner),
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.inner().calls
    }

    /// Call number `number` from the beginning will fail. Answers through `failed` which it was.
    pub(super) fn fail_at(&self, number: u64, error: CUerror) {
        let mut inner = self.inner();
        (inner.fail_at, inner.failed) = (Some((number, error)), None);
    }

    pub(super) fn failed(&self) -> Option<&'static str> {
        self.inner().failed
    }

    pub(super) fn set_current(&self, current: Option<(Context, CUdevice)>) {
        self.inner().current = current;
    }

    pub(super) fn set_used_by_others(&self, bytes: u64) {
        self.inner().used_by_others_bytes = bytes;
    }

    pub(super) fn physical_bytes(&self) -> u64 {
        self.inner().physical.values().map(|physical| physical.bytes.len() as u64).sum()
    }

    pub(super) fn synchronised(&self) -> u64 {
        self.inner().synchronised
    }

    pub(super) fn sync_memops(&self) -> Vec<Context> {
        self.inner().sync_memops.clone()
    }

    pub(super) fn lanes(&self) -> usize {
        self.inner().lanes
    }

    /// Reservations, handles, mappings.
    pub(super) fn holdings(&self) -> (usize, usize, usize) {
        let inner = self.inner();
        (inner.reservations.len(), inner.physical.len(), inner.mappings.len())
    }

    /// Whether the address is in a reservation.
    pub(super) fn holds_addresses(&self, address: u64) -> bool {
        let inner = self.inner();
        let before = inner.reservations.range(..=address).next_back();
        before.is_some_and(|(start, bytes)| address - start < *bytes)
    }

    /// What the program's work does; panics where the device would fault.
    pub(super) fn touch(&self, address: u64, bytes: u64, mut act: impl FnMut(u64, &mut [u8])) {
        self.inner().touch(address, bytes, &mut act);
    }
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn free_bytes(&self) -> u64 {
        let used: u64 = self.physical.values().map(|physical| physical.bytes.len() as u64).sum();
        self.capacity_bytes - (used + self.used_by_others_bytes).min(self.capacity_bytes)
    }

    fn touch(&mut self, address: u64, bytes: u64, act: &mut dyn FnMut(u64, &mut [u8])) {
        let mut done = 0;
        while done < bytes {
            let at = address + done;
            let (&base, mapping) =
                self.mappings.range(..=at).next_back().expect("touched below all mappings");
            assert!(at < base + mapping.bytes, "{at:#x} is not mapped");
            assert!(mapping.is_accessible, "{at:#x} is not accessible");
            let physical = self.physical.get_mut(&mapping.handle).expect("mapped handles exist");
            let start = (at - base) as usize;
            let length = (mapping.bytes - (at - base)).min(bytes - done) as usize;
            act(done, &mut physical.bytes[start..start + length]);
            done += length as u64;
        }
    }

    fn drop_physical_if_unused(&mut self, handle: u64) {
        let is_unused =
            self.physical.get(&handle).is_some_and(|entry| entry.is_released && entry.mapped_at.is_none());
        if is_unused {
            self.physical.remove(&handle);
        }
    }

    fn start(&mut self, lane: &Lane, slot: usize, copy: Copy) {
        assert!(copy.bytes <= lane.slot_bytes);
        let before = self.copies.insert((lane.stream, slot), copy);
        assert!(before.is_none(), "buffer {slot} is used again before it was waited for");
    }
}

impl Driver for FakeDriver {
    fn granularity(&self, _ordinal: CUdevice) -> Result<u64, CUerror> {
        Ok(GRANULE_BYTES)
    }

    fn total(&self, _ordinal: CUdevice) -> Result<u64, CUerror> {
        Ok(self.inner().capacity_bytes)
    }

    fn pitch_alignment(&self, _ordinal: CUdevice) -> Result<u64, CUerror> {
        Ok(32)
    }

    fn current(&self) -> Option<(Context, CUdevice)> {
        self.inner().current
    }

    fn memory_info(&self, _context: Context) -> Result<(u64, u64), CUerror> {
        let inner = self.call("memory_info")?;
        Ok((inner.capacity_bytes, inner.free_bytes()))
    }

    fn synchronise(&self, _context: Context) -> Result<(), CUerror> {
        self.call("synchronise")?.synchronised += 1;
        Ok(())
    }

    fn set_sync_memops(&self, context: Context) -> Result<(), CUerror> {
        self.call("set_sync_memops")?.sync_memops.push(context);
        Ok(())
    }

    fn reserve(&self, bytes: u64, _alignment: u64) -> Result<u64, CUerror> {
        let mut inner = self.call("reserve")?;
        assert!(bytes > 0 && bytes.is_multiple_of(GRANULE_BYTES));
        // Ranges of different sizes lie apart, so that no overrun stays unseen.
        let address = (inner.number() << 32) + (1 << 40);
        inner.reservations.insert(address, bytes);
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), CUerror> {
        let mut inner = self.call("unreserve")?;
        let mapped = inner.mappings.range(address..address + bytes).next();
        assert!(mapped.is_none(), "addresses given back with something mapped at {address:#x}");
        assert_eq!(inner.reservations.remove(&address), Some(bytes), "not a reservation: {address:#x}");
        Ok(())
    }

    fn create(&self, _ordinal: CUdevice, bytes: u64) -> Result<Handle, CUerror> {
        let mut inner = self.call("create")?;
        assert!(bytes > 0 && bytes.is_multiple_of(GRANULE_BYTES));
        if inner.free_bytes() < bytes {
            return Err(CUerror::OUT_OF_MEMORY);
        }
        let handle = inner.number();
        // What a frame holds before it is written is not the program's business: not zero here.
        let bytes = vec![0xa5; bytes as usize];
        inner.physical.insert(handle, Physical { bytes, mapped_at: None, is_released: false });
        Ok(Handle(handle))
    }

    fn release(&self, handle: Handle) -> Result<(), CUerror> {
        let mut inner = self.call("release")?;
        let physical = inner.physical.get_mut(&handle.0).expect("released a handle that does not exist");
        assert!(!physical.is_released, "released twice");
        physical.is_released = true;
        inner.drop_physical_if_unused(handle.0);
        Ok(())
    }

    fn map(&self, address: u64, bytes: u64, handle: Handle) -> Result<(), CUerror> {
        let mut inner = self.call("map")?;
        let (&base, &reserved) =
            inner.reservations.range(..=address).next_back().expect("mapped outside all reservations");
        assert!(address + bytes <= base + reserved, "mapped beyond the reservation");
        let overlap = inner.mappings.range(..address + bytes).next_back();
        assert!(overlap.is_none_or(|(at, mapping)| at + mapping.bytes <= address), "mapped twice");
        let physical = inner.physical.get_mut(&handle.0).expect("mapped a handle that does not exist");
        assert_eq!((physical.bytes.len() as u64, physical.mapped_at), (bytes, None));
        physical.mapped_at = Some(address);
        inner.mappings.insert(address, Mapping { handle: handle.0, bytes, is_accessible: false });
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUerror> {
        let mut inner = self.call("unmap")?;
        assert!(inner.copies.is_empty(), "unmapped {address:#x} under a copy");
        let mapping = inner.mappings.remove(&address).expect("unmapped what is not mapped");
        assert_eq!(mapping.bytes, bytes, "unmapped a part of a mapping");
        if let Some(physical) = inner.physical.get_mut(&mapping.handle) {
            physical.mapped_at = None;
        }
        inner.drop_physical_if_unused(mapping.handle);
        Ok(())
    }

    fn set_access(&self, _ordinal: CUdevice, address: u64, bytes: u64) -> Result<(), CUerror> {
        let mut inner = self.call("set_access")?;
        let mapping = inner.mappings.get_mut(&address).expect("access to what is not mapped");
        assert_eq!(mapping.bytes, bytes);
        mapping.is_accessible = true;
        Ok(())
    }

    fn open_lane(&self, context: Context, slots: usize, slot_bytes: usize) -> Result<Lane, CUerror> {
        let mut inner = self.call("open_lane")?;
        inner.lanes += 1;
        let stream = inner.number() as usize;
        let slot =
            |_| Slot { buffer: Box::leak(vec![0x5a; slot_bytes].into_boxed_slice()).as_mut_ptr(), event: 0 };
        Ok(Lane { context, stream, slots: (0..slots).map(slot).collect(), slot_bytes })
    }

    fn close_lane(&self, lane: Lane) {
        let mut inner = self.inner();
        assert!(!inner.copies.keys().any(|(stream, _)| *stream == lane.stream), "closed under a copy");
        inner.lanes -= 1;
        for slot in lane.slots {
            let buffer = std::ptr::slice_from_raw_parts_mut(slot.buffer, lane.slot_bytes);
            // SAFETY: made by `open_lane` from a box of this length, and the lane is given up.
            drop(unsafe { Box::from_raw(buffer) });
        }
    }

    fn copy_out(&self, lane: &Lane, slot: usize, address: u64, bytes: usize) -> Result<(), CUerror> {
        let buffer = lane.slots[slot].buffer as usize;
        self.call("copy_out")?.start(lane, slot, Copy { is_out: true, address, bytes, buffer });
        Ok(())
    }

    fn copy_in(&self, lane: &Lane, slot: usize, address: u64, bytes: usize) -> Result<(), CUerror> {
        let buffer = lane.slots[slot].buffer as usize;
        self.call("copy_in")?.start(lane, slot, Copy { is_out: false, address, bytes, buffer });
        Ok(())
    }

    fn wait(&self, lane: &Lane, slot: usize) -> Result<(), CUerror> {
        let mut inner = self.call("wait")?;
        if let Some(copy) = inner.copies.remove(&(lane.stream, slot)) {
            inner.touch(copy.address, copy.bytes as u64, &mut |done, device| {
                let host = (copy.buffer + done as usize) as *mut u8;
                // SAFETY: the buffer has at least `copy.bytes` bytes (checked when the copy was
                // started) and lives until its lane is closed, which panics under a copy.
                let host = unsafe { std::slice::from_raw_parts_mut(host, device.len()) };
                if copy.is_out { host.copy_from_slice(device) } else { device.copy_from_slice(host) }
            });
        }
        Ok(())
    }
}
