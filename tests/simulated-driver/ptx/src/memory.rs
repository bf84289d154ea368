//! Device memory as a kernel sees it: what the caller of `Launch::run` implements.
//!
//! Whole warps are served at once where their lanes touch one run of addresses, so that an implementation
//! translates an address once per instruction and not 32 times. Holds no memory itself. Read next:
//! `execute/memory.rs`.

use crate::error::Fault;
use crate::texture::{Fetch, SurfaceAccess};
use crate::types::{ALL_LANES, LANE_COUNT, Lanes};

/// Memory behind device addresses.
///
/// All ranges are aligned to their element, but a range of several elements may cross from one mapping into the
/// next. Elements of 1, 2, 4 and 8 bytes should be read and written whole, as programs poll flags.
pub trait DeviceMemory {
    /// Reads `bytes.len()` bytes (at most 512) from `address`.
    ///
    /// # Errors
    /// `Fault` when any of them cannot be read.
    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Writes `bytes` (at most 512) to `address`.
    ///
    /// # Errors
    /// `Fault` when any of them cannot be written; then none of them is.
    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Replaces the little-endian number of `width` bytes (4 or 8) at `address` by what `update` makes of it, in
    /// one step; answers the old number. `update` may be called again when another writer came first.
    ///
    /// # Errors
    /// `Fault` when it cannot be read and written.
    fn atomic(
        &mut self,
        address: u64,
        width: usize,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault>;

    /// Reads through a texture: the four components, as the bits of what `tex` writes.
    ///
    /// # Errors
    /// `Fault` when there is no such texture, or it cannot be read so.
    fn fetch(&mut self, fetch: &Fetch) -> Result<[u32; 4], Fault> {
        Err(Fault { address: fetch.object })
    }

    /// Reads `bytes.len()` bytes of a surface.
    ///
    /// # Errors
    /// `Fault` when there is no such surface, or the place is outside and the access says that it then fails.
    fn load_surface(&mut self, access: &SurfaceAccess, bytes: &mut [u8]) -> Result<(), Fault> {
        bytes.fill(0);
        Err(Fault { address: access.object })
    }

    /// Writes `bytes` to a surface.
    ///
    /// # Errors
    /// As `load_surface`.
    fn store_surface(&mut self, access: &SurfaceAccess, bytes: &[u8]) -> Result<(), Fault> {
        let _ = bytes;
        Err(Fault { address: access.object })
    }

    /// Orders everything before it against everything after it, as seen by the host and other kernels.
    fn fence(&mut self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Reads one number of `width` bytes (1, 2, 4 or 8) for every lane of `mask`, zero-extended. Other lanes of
    /// `values` keep what they hold.
    ///
    /// # Errors
    /// `Fault` with the address of the first lane that cannot read.
    fn load_lanes(
        &mut self,
        addresses: &Lanes,
        mask: u32,
        width: usize,
        values: &mut Lanes,
    ) -> Result<(), Fault> {
        if mask == ALL_LANES && is_run(addresses, width as u64) {
            let mut bytes = [0; LANE_COUNT * 8];
            let bytes = &mut bytes[..LANE_COUNT * width];
            if self.load(addresses[0], bytes).is_ok() {
                unpack(bytes, width, values);
                return Ok(());
            }
        } else if mask == ALL_LANES && is_run(addresses, 0) {
            let mut bytes = [0; 8];
            self.load(addresses[0], &mut bytes[..width])?;
            *values = [u64::from_le_bytes(bytes); LANE_COUNT];
            return Ok(());
        }
        for lane in 0..LANE_COUNT {
            if mask >> lane & 1 == 1 {
                let mut bytes = [0; 8];
                self.load(addresses[lane], &mut bytes[..width])?;
                values[lane] = u64::from_le_bytes(bytes);
            }
        }
        Ok(())
    }

    /// Writes the low `width` bytes (1, 2, 4 or 8) of every lane of `mask`, lowest lane first.
    ///
    /// # Errors
    /// `Fault` with the address of the first lane that cannot write; lanes before it are written.
    fn store_lanes(
        &mut self,
        addresses: &Lanes,
        mask: u32,
        width: usize,
        values: &Lanes,
    ) -> Result<(), Fault> {
        if mask == ALL_LANES && is_run(addresses, width as u64) {
            let mut bytes = [0; LANE_COUNT * 8];
            let bytes = &mut bytes[..LANE_COUNT * width];
            pack(values, width, bytes);
            if self.store(addresses[0], bytes).is_ok() {
                return Ok(());
            }
        }
        for lane in 0..LANE_COUNT {
            if mask >> lane & 1 == 1 {
                self.store(addresses[lane], &values[lane].to_le_bytes()[..width])?;
            }
        }
        Ok(())
    }
}

/// What a device offers kernels beside memory (CUDA C++ Programming Guide, "Formatted Output", "Dynamic Global
/// Memory Allocation", "Assertion"): what the caller of `Launch::set_system` implements.
pub trait System: Send + Sync + std::fmt::Debug {
    /// A kernel printed this; the host sees it later.
    fn print(&self, text: &[u8]);

    /// An assertion of a kernel failed; the text is the line for the host's stderr.
    fn assertion_failed(&self, text: &[u8]);

    /// Memory of the heap, aligned to 16 bytes, or 0 when there is not enough.
    fn allocate(&self, bytes: u64) -> u64;

    /// Gives it back. False when nothing was allocated there.
    fn free(&self, address: u64) -> bool;
}

/// Whether every lane's address lies `stride` behind that of the lane before.
#[inline]
pub(crate) fn is_run(addresses: &Lanes, stride: u64) -> bool {
    let mut difference = 0;
    for (lane, address) in addresses.iter().enumerate() {
        difference |= address ^ addresses[0].wrapping_add(lane as u64 * stride);
    }
    difference == 0
}

/// Spreads a run of numbers over the lanes.
fn unpack(bytes: &[u8], width: usize, values: &mut Lanes) {
    match width {
        1 => values.iter_mut().zip(bytes).for_each(|(value, byte)| *value = u64::from(*byte)),
        2 => spread(bytes, values, |bytes| u64::from(u16::from_le_bytes(bytes))),
        4 => spread(bytes, values, |bytes| u64::from(u32::from_le_bytes(bytes))),
        _ => spread(bytes, values, u64::from_le_bytes),
    }
}

#[inline(always)]
fn spread<const N: usize>(bytes: &[u8], values: &mut Lanes, number: impl Fn([u8; N]) -> u64) {
    for (value, part) in values.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *value = number(*part);
    }
}

/// Puts the low `width` bytes of the lanes one behind another.
fn pack(values: &Lanes, width: usize, bytes: &mut [u8]) {
    match width {
        1 => values.iter().zip(bytes).for_each(|(value, byte)| *byte = *value as u8),
        2 => gather(values, bytes, |value| (value as u16).to_le_bytes()),
        4 => gather(values, bytes, |value| (value as u32).to_le_bytes()),
        _ => gather(values, bytes, u64::to_le_bytes),
    }
}

#[inline(always)]
fn gather<const N: usize>(values: &Lanes, bytes: &mut [u8], number: impl Fn(u64) -> [u8; N]) {
    for (value, part) in values.iter().zip(bytes.as_chunks_mut::<N>().0) {
        *part = number(*value);
    }
}

/// Bytes from address 0 on: shared and local memory, and parameters.
pub(crate) struct Window<'a> {
    pub(crate) bytes: &'a mut [u8],
}

impl Window<'_> {
    fn part(&mut self, address: u64, length: usize) -> Result<&mut [u8], Fault> {
        let start = usize::try_from(address).map_err(|_| Fault { address })?;
        let end = start.checked_add(length).ok_or(Fault { address })?;
        self.bytes.get_mut(start..end).ok_or(Fault { address })
    }

    #[inline(always)]
    fn load_each<const N: usize>(
        &self,
        addresses: &Lanes,
        mask: u32,
        values: &mut Lanes,
        number: impl Fn([u8; N]) -> u64,
    ) -> Result<(), Fault> {
        for lane in 0..LANE_COUNT {
            if mask >> lane & 1 == 1 {
                let address = addresses[lane];
                let part = self.bytes.get(address as usize..).and_then(|rest| rest.first_chunk::<N>());
                values[lane] = number(*part.ok_or(Fault { address })?);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn store_each<const N: usize>(
        &mut self,
        addresses: &Lanes,
        mask: u32,
        values: &Lanes,
        number: impl Fn(u64) -> [u8; N],
    ) -> Result<(), Fault> {
        for lane in 0..LANE_COUNT {
            if mask >> lane & 1 == 1 {
                let address = addresses[lane];
                let part =
                    self.bytes.get_mut(address as usize..).and_then(|rest| rest.first_chunk_mut::<N>());
                *part.ok_or(Fault { address })? = number(values[lane]);
            }
        }
        Ok(())
    }
}

impl DeviceMemory for Window<'_> {
    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        bytes.copy_from_slice(self.part(address, bytes.len())?);
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.part(address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(
        &mut self,
        address: u64,
        width: usize,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let part = self.part(address, width)?;
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(part);
        let old = u64::from_le_bytes(bytes);
        part.copy_from_slice(&update(old).to_le_bytes()[..width]);
        Ok(old)
    }

    // Shared memory is read in patterns, so each lane is made cheap instead of looking for runs.
    fn load_lanes(
        &mut self,
        addresses: &Lanes,
        mask: u32,
        width: usize,
        values: &mut Lanes,
    ) -> Result<(), Fault> {
        match width {
            1 => self.load_each(addresses, mask, values, |bytes: [u8; 1]| u64::from(bytes[0])),
            2 => self.load_each(addresses, mask, values, |bytes| u64::from(u16::from_le_bytes(bytes))),
            4 => self.load_each(addresses, mask, values, |bytes| u64::from(u32::from_le_bytes(bytes))),
            _ => self.load_each(addresses, mask, values, u64::from_le_bytes),
        }
    }

    fn store_lanes(
        &mut self,
        addresses: &Lanes,
        mask: u32,
        width: usize,
        values: &Lanes,
    ) -> Result<(), Fault> {
        match width {
            1 => self.store_each(addresses, mask, values, |value| [value as u8]),
            2 => self.store_each(addresses, mask, values, |value| (value as u16).to_le_bytes()),
            4 => self.store_each(addresses, mask, values, |value| (value as u32).to_le_bytes()),
            _ => self.store_each(addresses, mask, values, u64::to_le_bytes),
        }
    }
}

/// Bytes from address 0 on that cannot be written: a kernel's parameters.
pub(crate) struct ReadOnlyWindow<'a> {
    pub(crate) bytes: &'a [u8],
}

impl DeviceMemory for ReadOnlyWindow<'_> {
    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let start = usize::try_from(address).map_err(|_| Fault { address })?;
        let end = start.checked_add(bytes.len()).ok_or(Fault { address })?;
        bytes.copy_from_slice(self.bytes.get(start..end).ok_or(Fault { address })?);
        Ok(())
    }

    fn store(&mut self, address: u64, _bytes: &[u8]) -> Result<(), Fault> {
        Err(Fault { address })
    }

    fn atomic(
        &mut self,
        address: u64,
        _width: usize,
        _update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        Err(Fault { address })
    }
}
