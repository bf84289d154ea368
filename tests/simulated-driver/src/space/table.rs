//! The page table: from a device address to bytes of the arena, without a lock.
//!
//! One region of the process's address space is reserved without access, so that a host dereference faults
//! as on a real card and no host address ever equals a device address. Each page of the region has one
//! 64-bit entry: where its bytes are, which devices reach it, and what is allowed. Device memory is a sparse file,
//! and on a full file system a touch of a hole is the end of the process; so a page's rights come into force when it
//! is first used and its bytes exist. Who may change entries is decided
//! in `mod.rs`; nothing here knows allocations.

use std::sync::atomic::{AtomicU64, Ordering};

use turnus_bindings::CUerror;

use super::peers::Devices;

/// Reading is allowed.
pub const READ: u64 = 1;
/// Writing is allowed.
pub const WRITE: u64 = 2;
/// How far the rights of a page are shifted until its bytes exist ([`PageTable::populate`]).
const WANTED_SHIFT: u32 = 2;
/// Where the bits of the devices lie in an entry; 16 devices at most.
const DEVICES_SHIFT: u32 = 48;
/// Windows are mapped at multiples of 4096, and user space has 47 bits: the rest of an address is free.
const POINTER_MASK: u64 = 0x0000_ffff_ffff_f000;

/// Largest region that is tried, and the most pages it can have.
const REGION_BYTES_MAX: u64 = 16 << 40;
const REGION_PAGES_MAX: u64 = 1 << 25;
/// A region smaller than this is of no use.
const REGION_BYTES_MIN: u64 = 1 << 30;

/// See the module's words.
#[derive(Debug)]
pub struct PageTable {
    base: u64,
    pages: usize,
    page_shift: u32,
    entries: *const AtomicU64,
}

// SAFETY: `entries` points to `pages` atomics that live as long as the process; nothing else is shared.
unsafe impl Send for PageTable {}
// SAFETY: as above; atomics may be used from several threads.
unsafe impl Sync for PageTable {}

impl PageTable {
    /// Reserves the region. `granularity_bytes` is the unit of physical memory of all devices.
    pub fn new(granularity_bytes: u64) -> Result<Self, CUerror> {
        let page_shift = granularity_bytes.trailing_zeros();
        let mut bytes = REGION_BYTES_MAX.min(REGION_PAGES_MAX << page_shift);
        while bytes >= REGION_BYTES_MIN {
            // Room to align the first page.
            if let Some(start) = reserve(bytes + (1 << page_shift), libc::PROT_NONE) {
                let base = start.next_multiple_of(1 << page_shift);
                let pages = (bytes >> page_shift) as usize;
                let entries = reserve(8 * pages as u64, libc::PROT_READ | libc::PROT_WRITE)
                    .ok_or(CUerror::OUT_OF_MEMORY)?;
                return Ok(Self { base, pages, page_shift, entries: entries as *const AtomicU64 });
            }
            bytes /= 2;
        }
        Err(CUerror::OUT_OF_MEMORY)
    }

    /// First address of the region.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Length of the region in bytes.
    pub fn bytes(&self) -> u64 {
        (self.pages as u64) << self.page_shift
    }

    /// Bytes of one page.
    pub fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    /// Whether the address lies in the region (mapped or not).
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.bytes()
    }

    /// The entry of the page of `address`; 0 when nothing is mapped there or it lies outside.
    #[inline(always)]
    fn entry(&self, address: u64) -> u64 {
        let page = (address.wrapping_sub(self.base) >> self.page_shift) as usize;
        if page >= self.pages {
            return 0;
        }
        // SAFETY: `entries` holds `pages` atomics and page < pages.
        unsafe { (*self.entries.add(page)).load(Ordering::Acquire) }
    }

    /// The byte behind `address` and how many bytes follow in its page, if all rights of `needed` are given.
    #[inline(always)]
    pub fn translate(&self, address: u64, needed: u64) -> Option<(*mut u8, u64)> {
        let entry = self.entry(address);
        if entry & needed != needed {
            return None;
        }
        let offset = address & (self.page_bytes() - 1);
        Some((((entry & POINTER_MASK) + offset) as *mut u8, self.page_bytes() - offset))
    }

    /// Like [`Self::translate`], for a kernel of `device`.
    #[inline(always)]
    pub fn translate_for(&self, device: usize, address: u64, needed: u64) -> Option<(*mut u8, u64)> {
        let entry = self.entry(address);
        let needed = needed | 1 << (DEVICES_SHIFT + device as u32);
        if entry & needed != needed {
            return None;
        }
        let offset = address & (self.page_bytes() - 1);
        Some((((entry & POINTER_MASK) + offset) as *mut u8, self.page_bytes() - offset))
    }

    /// Brings the bytes of the page of `address` into being, if it has these rights. False when it has not, or when
    /// there is no room for them. The caller looks again then.
    #[cold]
    pub fn populate(&self, address: u64, needed: u64) -> bool {
        let entry = self.entry(address);
        let rights = (entry >> WANTED_SHIFT) & (READ | WRITE);
        if rights & needed != needed || rights == 0 {
            return false;
        }
        if !exist((entry & POINTER_MASK) as *mut libc::c_void, self.page_bytes() as usize) {
            static TOLD: std::sync::Once = std::sync::Once::new();
            TOLD.call_once(|| {
                eprintln!("simulated driver: no room for device memory on the file system of the machine");
            });
            return false;
        }
        let page = ((address - self.base) >> self.page_shift) as usize;
        let in_force = entry & !((READ | WRITE) << WANTED_SHIFT) | rights;
        // SAFETY: `entries` holds `pages` atomics and the page of an entry is one of them. When the exchange fails
        // somebody else did the same, or took the page away.
        let _ = unsafe {
            (*self.entries.add(page)).compare_exchange(entry, in_force, Ordering::AcqRel, Ordering::Relaxed)
        };
        true
    }

    /// Sets `bytes` from `address` (multiples of the page) to follow each other from `window`.
    pub fn map(&self, address: u64, bytes: u64, window: *mut u8, devices: Devices, rights: u64) {
        for offset in (0..bytes).step_by(self.page_bytes() as usize) {
            let entry =
                (window as u64 + offset) | rights << WANTED_SHIFT | u64::from(devices) << DEVICES_SHIFT;
            self.store(address + offset, entry);
        }
    }

    /// Lets exactly these devices reach what is mapped of `bytes` from `address`.
    pub fn give(&self, address: u64, bytes: u64, devices: Devices) {
        for at in (address..address + bytes).step_by(self.page_bytes() as usize) {
            let entry = self.entry(at) & !(u64::from(Devices::MAX) << DEVICES_SHIFT);
            if entry != 0 {
                self.store(at, entry | u64::from(devices) << DEVICES_SHIFT);
            }
        }
    }

    /// Takes the mapping of `bytes` from `address` away.
    pub fn clear(&self, address: u64, bytes: u64) {
        for offset in (0..bytes).step_by(self.page_bytes() as usize) {
            self.store(address + offset, 0);
        }
    }

    fn store(&self, address: u64, entry: u64) {
        let page = ((address - self.base) >> self.page_shift) as usize;
        assert!(page < self.pages, "page {page} lies outside the region");
        // SAFETY: `entries` holds `pages` atomics and page < pages.
        unsafe { (*self.entries.add(page)).store(entry, Ordering::Release) };
    }
}

/// Makes the bytes of a mapped range exist; false when there is no room for them.
fn exist(start: *mut libc::c_void, bytes: usize) -> bool {
    // SAFETY: the range is of a mapping that stays while translations are held; populating changes no byte.
    let populated = unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) } == 0;
    // EFAULT is where a touch would be a bus error. Kernels before 5.14 do not know the advice: there a touch tells.
    let no_room = [Some(libc::EFAULT), Some(libc::ENOMEM)];
    populated || !no_room.contains(&std::io::Error::last_os_error().raw_os_error())
}

/// Address space that costs nothing until it is touched; never given back.
fn reserve(bytes: u64, protection: libc::c_int) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range was mapped just now. A core dump has no use for it; failure changes nothing.
    unsafe { libc::madvise(start, bytes as usize, libc::MADV_DONTDUMP) };
    Some(start as u64)
}
