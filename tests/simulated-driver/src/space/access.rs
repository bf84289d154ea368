//! What copy engines do to the address space: checked, page by page, as often as they like.
//!
//! Each call holds the translations from its check to its last byte, so that memory is never given away
//! under it; an engine hands over one chunk per call. Host memory is reached as a device address too when it
//! is pinned or registered.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use turnus_bindings::CUerror;
use turnus_simulated_ptx::DeviceMemory as _;

use super::AddressSpace;
use super::kernel::KernelMemory;
use super::table::{READ, WRITE};
use crate::execution::{Fault, Space};

/// The address space as the engines of one device see it.
#[derive(Debug)]
pub struct DeviceSpace {
    pub(super) space: Arc<AddressSpace>,
    pub(super) device: usize,
}

impl DeviceSpace {
    /// For the engines of `device`.
    pub fn new(space: &Arc<AddressSpace>, device: usize) -> Self {
        Self { space: Arc::clone(space), device }
    }

    /// Calls `each` for every contiguous run of bytes in the range, in order.
    fn walk(
        &self,
        address: u64,
        bytes: u64,
        needed: u64,
        mut each: impl FnMut(*mut u8, u64, usize),
    ) -> std::result::Result<(), Fault> {
        self.check(address, bytes, needed)?;
        let mut done = 0;
        while done < bytes {
            let (pointer, room) = self.find(address + done, needed)?;
            let length = room.min(bytes - done);
            each(pointer, done, length as usize);
            done += length;
        }
        Ok(())
    }

    /// The whole range is mapped with these rights.
    fn check(&self, address: u64, bytes: u64, needed: u64) -> std::result::Result<(), Fault> {
        let mut done = 0;
        while done < bytes {
            let at = address.checked_add(done).ok_or(Fault::at(CUerror::ILLEGAL_ADDRESS, address))?;
            done += self.find(at, needed)?.1;
        }
        Ok(())
    }

    fn find(&self, address: u64, needed: u64) -> std::result::Result<(*mut u8, u64), Fault> {
        let table = &self.space.table;
        if let Some(found) = table.translate(address, needed) {
            return Ok(found);
        }
        if table.populate(address, needed) {
            return self.find(address, needed);
        }
        match self.space.host.find(address) {
            Some(range) => Ok((address as *mut u8, range.start + range.bytes - address)),
            None => {
                let managed = self.space.fault_in(self.device, address);
                managed.ok_or(Fault::at(CUerror::ILLEGAL_ADDRESS, address))
            }
        }
    }
}

impl Space for DeviceSpace {
    unsafe fn copy_to_device(
        &self,
        destination: u64,
        source: *const u8,
        bytes: u64,
    ) -> std::result::Result<(), Fault> {
        let _held = self.space.translations.read();
        self.walk(destination, bytes, WRITE, |pointer, done, length| {
            // SAFETY: `pointer` has `length` bytes of a window that stays mapped; `source` has `bytes` by
            // the caller's promise. Overlap is possible when the program registered the same memory.
            unsafe { std::ptr::copy(source.add(done as usize), pointer, length) }
        })
    }

    unsafe fn copy_from_device(
        &self,
        source: u64,
        destination: *mut u8,
        bytes: u64,
    ) -> std::result::Result<(), Fault> {
        let _held = self.space.translations.read();
        self.walk(source, bytes, READ, |pointer, done, length| {
            // SAFETY: as in copy_to_device, with the roles exchanged.
            unsafe { std::ptr::copy(pointer.cast_const(), destination.add(done as usize), length) }
        })
    }

    fn copy_within(&self, destination: u64, source: u64, bytes: u64) -> std::result::Result<(), Fault> {
        let _held = self.space.translations.read();
        self.check(source, bytes, READ)?;
        self.check(destination, bytes, WRITE)?;
        // When the ranges overlap and the destination is higher, the end must be moved first.
        let backwards = destination > source && destination - source < bytes;
        let mut done = 0;
        while done < bytes {
            let (from, to, length) = if backwards {
                self.last_run(source, destination, bytes - done)?
            } else {
                let (from, room) = self.find(source + done, READ)?;
                let (to, space) = self.find(destination + done, WRITE)?;
                (from, to, room.min(space).min(bytes - done))
            };
            // SAFETY: both have `length` bytes of windows that stay mapped; they may overlap.
            unsafe { std::ptr::copy(from.cast_const(), to, length as usize) };
            done += length;
        }
        Ok(())
    }

    fn fill(
        &self,
        destination: u64,
        value: u32,
        element_bytes: u8,
        count: u64,
    ) -> std::result::Result<(), Fault> {
        let _held = self.space.translations.read();
        let bytes = count * u64::from(element_bytes);
        let pattern = value.to_le_bytes();
        self.walk(destination, bytes, WRITE, |pointer, done, length| {
            // SAFETY: `pointer` has `length` writable bytes of a window that stays mapped.
            let target = unsafe { std::slice::from_raw_parts_mut(pointer, length) };
            if element_bytes == 1 {
                target.fill(pattern[0]);
                return;
            }
            // One element, then ever longer copies of what is there already.
            let element = usize::from(element_bytes);
            let mut filled = length.min(element);
            for (place, byte) in target[..filled].iter_mut().enumerate() {
                *byte = pattern[(done as usize + place) % element];
            }
            while filled < length {
                let more = filled.min(length - filled);
                target.copy_within(..more, filled);
                filled += more;
            }
        })
    }

    fn prefetch(&self, address: u64, bytes: u64, to_host: bool) -> u64 {
        let end = address + bytes;
        let pages = self.space.pages(address, end).filter(|page| match to_host {
            true => self.space.bring_to_host(*page),
            false => self.space.bring(self.device, *page),
        });
        pages.count() as u64 * self.space.table.page_bytes()
    }

    fn load_value(&self, address: u64, bytes: u8) -> std::result::Result<u64, Fault> {
        let mut value = [0; 8];
        let mut memory = self.kernel_memory();
        let width = usize::from(bytes);
        memory
            .load(address, &mut value[..width])
            .map_err(|fault| Fault::at(CUerror::ILLEGAL_ADDRESS, fault.address))?;
        fence(Ordering::SeqCst);
        Ok(u64::from_le_bytes(value))
    }

    fn store_value(&self, address: u64, value: u64, bytes: u8) -> std::result::Result<(), Fault> {
        fence(Ordering::SeqCst);
        let mut memory = self.kernel_memory();
        let value = value.to_le_bytes();
        let stored = memory.store(address, &value[..usize::from(bytes)]);
        stored.map_err(|fault| Fault::at(CUerror::ILLEGAL_ADDRESS, fault.address))
    }
}

impl DeviceSpace {
    /// Memory as kernels see it, for one time slice.
    pub fn kernel_memory(&self) -> KernelMemory<'_> {
        KernelMemory::new(self)
    }

    /// The last contiguous run of the first `bytes` bytes: source, destination, length.
    fn last_run(
        &self,
        source: u64,
        destination: u64,
        bytes: u64,
    ) -> std::result::Result<(*mut u8, *mut u8, u64), Fault> {
        let page_bytes = self.space.table.page_bytes();
        let within = |address: u64| (address + bytes - 1) % page_bytes + 1;
        let length = within(source).min(within(destination)).min(bytes);
        let from = self.find(source + bytes - length, READ)?.0;
        let to = self.find(destination + bytes - length, WRITE)?.0;
        Ok((from, to, length))
    }
}
