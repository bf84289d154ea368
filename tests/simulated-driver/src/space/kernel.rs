//! Memory as running kernels see it: pages of their own device, managed pages,
//! which come when they are touched, and host memory that devices reach.
//!
//! Lives for one time slice and holds the translations meanwhile, so that memory is not given away under a
//! kernel. The usual access, some bytes within one page, is one look into the page table and one copy.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLockReadGuard;
use turnus_simulated_ptx::{DeviceMemory, Fault, Fetch, SurfaceAccess};

use super::access::DeviceSpace;
use super::host::HostRange;
use super::table::{PageTable, READ, WRITE};
use crate::sampling;

/// See the module's words.
#[derive(Debug)]
pub struct KernelMemory<'space> {
    space: &'space DeviceSpace,
    table: &'space PageTable,
    device: usize,
    /// The host range used last.
    host: Option<HostRange>,
    _held: RwLockReadGuard<'space, ()>,
}

impl<'space> KernelMemory<'space> {
    pub(super) fn new(space: &'space DeviceSpace) -> Self {
        Self {
            space,
            table: &space.space.table,
            device: space.device,
            host: None,
            _held: space.space.translations.read(),
        }
    }

    /// The byte behind `address` and how many follow it in one piece.
    #[inline(always)]
    fn find(&mut self, address: u64, needed: u64) -> Result<(*mut u8, u64), Fault> {
        match self.table.translate_for(self.device, address, needed) {
            Some(found) => Ok(found),
            None => self.find_at_first_use(address, needed),
        }
    }

    #[cold]
    fn find_at_first_use(&mut self, address: u64, needed: u64) -> Result<(*mut u8, u64), Fault> {
        if self.table.populate(address, needed)
            && let Some(found) = self.table.translate_for(self.device, address, needed)
        {
            return Ok(found);
        }
        self.find_elsewhere(address)
    }

    fn find_elsewhere(&mut self, address: u64) -> Result<(*mut u8, u64), Fault> {
        if self.table.contains(address) {
            return self.space.space.fault_in(self.device, address).ok_or(Fault { address });
        }
        let around = |range: &HostRange| address.wrapping_sub(range.start) < range.bytes;
        let range = match self.host.filter(around) {
            Some(range) => range,
            None => self.space.space.host.find(address).ok_or(Fault { address })?,
        };
        self.host = Some(range);
        Ok((address as *mut u8, range.start + range.bytes - address))
    }

    /// An access that crosses pages: all of it is looked up before a byte moves.
    #[cold]
    fn in_pieces(
        &mut self,
        address: u64,
        length: usize,
        needed: u64,
        mut each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < length {
            done += self.find(address.wrapping_add(done as u64), needed)?.1 as usize;
        }
        done = 0;
        while done < length {
            let (pointer, room) = self.find(address.wrapping_add(done as u64), needed)?;
            let part = (room as usize).min(length - done);
            each(pointer, done, part);
            done += part;
        }
        Ok(())
    }
}

impl DeviceMemory for KernelMemory<'_> {
    fn fetch(&mut self, fetch: &Fetch) -> Result<[u32; 4], Fault> {
        sampling::fetch(self, fetch)
    }

    fn load_surface(&mut self, access: &SurfaceAccess, bytes: &mut [u8]) -> Result<(), Fault> {
        sampling::load_surface(self, access, bytes)
    }

    fn store_surface(&mut self, access: &SurfaceAccess, bytes: &[u8]) -> Result<(), Fault> {
        sampling::store_surface(self, access, bytes)
    }

    #[inline]
    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let (pointer, room) = self.find(address, READ)?;
        if room >= bytes.len() as u64 {
            // SAFETY: `pointer` has `room` readable bytes of a window or of host memory that stays mapped.
            unsafe { read(pointer, bytes) };
            return Ok(());
        }
        self.in_pieces(address, bytes.len(), READ, |pointer, done, part| {
            // SAFETY: as above, for each piece.
            unsafe { read(pointer, &mut bytes[done..done + part]) }
        })
    }

    #[inline]
    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (pointer, room) = self.find(address, WRITE)?;
        if room >= bytes.len() as u64 {
            // SAFETY: `pointer` has `room` writable bytes of a window or of host memory that stays mapped.
            unsafe { write(pointer, bytes) };
            return Ok(());
        }
        self.in_pieces(address, bytes.len(), WRITE, |pointer, done, part| {
            // SAFETY: as above, for each piece.
            unsafe { write(pointer, &bytes[done..done + part]) }
        })
    }

    fn atomic(
        &mut self,
        address: u64,
        width: usize,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let (pointer, room) = self.find(address, READ | WRITE)?;
        if room < width as u64 || !address.is_multiple_of(width as u64) {
            return Err(Fault { address });
        }
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        if width == 8 {
            // SAFETY: 8 aligned bytes that stay mapped; all engines of all processes use atomics on them.
            let cell = unsafe { AtomicU64::from_ptr(pointer.cast()) };
            return cell.fetch_update(success, failure, |old| Some(update(old))).or(Err(Fault { address }));
        }
        // SAFETY: as above with 4 bytes.
        let cell = unsafe { AtomicU32::from_ptr(pointer.cast()) };
        let old = cell.fetch_update(success, failure, |old| Some(update(u64::from(old)) as u32));
        old.map(u64::from).or(Err(Fault { address }))
    }
}

/// Reads one element whole, or a run of elements.
///
/// # Safety
/// `pointer` has `bytes.len()` readable bytes, aligned if that is the size of an element.
#[inline(always)]
unsafe fn read(pointer: *mut u8, bytes: &mut [u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes.len() {
            1 => bytes[0] = AtomicU8::from_ptr(pointer).load(Ordering::Relaxed),
            2 if is_aligned(pointer, 2) => {
                bytes.copy_from_slice(
                    &AtomicU16::from_ptr(pointer.cast()).load(Ordering::Relaxed).to_ne_bytes(),
                );
            }
            4 if is_aligned(pointer, 4) => {
                bytes.copy_from_slice(
                    &AtomicU32::from_ptr(pointer.cast()).load(Ordering::Relaxed).to_ne_bytes(),
                );
            }
            8 if is_aligned(pointer, 8) => {
                bytes.copy_from_slice(
                    &AtomicU64::from_ptr(pointer.cast()).load(Ordering::Relaxed).to_ne_bytes(),
                );
            }
            length => std::ptr::copy_nonoverlapping(pointer.cast_const(), bytes.as_mut_ptr(), length),
        }
    }
}

/// Writes one element whole, or a run of elements.
///
/// # Safety
/// `pointer` has `bytes.len()` writable bytes, aligned if that is the size of an element.
#[inline(always)]
unsafe fn write(pointer: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        match *bytes {
            [byte] => AtomicU8::from_ptr(pointer).store(byte, Ordering::Relaxed),
            [a, b] if is_aligned(pointer, 2) => {
                AtomicU16::from_ptr(pointer.cast()).store(u16::from_ne_bytes([a, b]), Ordering::Relaxed);
            }
            [a, b, c, d] if is_aligned(pointer, 4) => {
                AtomicU32::from_ptr(pointer.cast())
                    .store(u32::from_ne_bytes([a, b, c, d]), Ordering::Relaxed);
            }
            [a, b, c, d, e, f, g, h] if is_aligned(pointer, 8) => {
                let value = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
                AtomicU64::from_ptr(pointer.cast()).store(value, Ordering::Relaxed);
            }
            _ => std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, bytes.len()),
        }
    }
}

fn is_aligned(pointer: *mut u8, bytes: usize) -> bool {
    pointer.addr().is_multiple_of(bytes)
}
