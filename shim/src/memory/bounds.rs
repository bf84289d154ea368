//! Before a copy or fill: does every range of ours that it names end where its allocation does?
//!
//! Each check has the arguments of the driver's functions that it is for (hooks.rs says which) and
//! answers `CUDA_ERROR_INVALID_VALUE` as the driver does for memory of `cuMemAlloc`, before the call
//! waits for a turn. What counts are the bytes that the call would touch: two- and
//! three-dimensional ranges from their first to their last byte. Host pointers, other kinds of
//! memory and anything else that may be wrong are left to the driver. Not checked: batches, nodes of
//! graphs, and the 32-bit first versions, in which an address of ours does not fit.
//! Read next: `extents.rs`, the rule.

use super::get;
use crate::{boundary, marks, message};
use core::ffi::{c_uint, c_void};
use turnus_bindings::types::*;
use turnus_bindings::{CUerror, CUresult};
use turnus_gate::gate::ThreadMark;

/// One range; `u64::MAX` bytes are too many for any allocation.
#[inline]
fn check(address: u64, bytes: u64) -> CUresult {
    match get() {
        Some(memory) if !memory.extents.admits(address, bytes) => refuse(address, bytes),
        _ => Ok(()),
    }
}

/// Only the program is refused: the driver, and our worker through it, may touch whole frames.
#[cold]
fn refuse(address: u64, bytes: u64) -> CUresult {
    if boundary::is_own_thread() || marks::mine_if_any().is_some_and(ThreadMark::is_inside) {
        return Ok(());
    }
    message::debug(|| format!("refused: {bytes} bytes at {address:#x} are not inside one allocation"));
    Err(CUerror::INVALID_VALUE)
}

/// Rows of the same length, a pitch apart.
fn check_rows(address: u64, pitch_bytes: u64, row_bytes: u64, rows: u64) -> CUresult {
    if row_bytes == 0 || rows == 0 {
        return Ok(());
    }
    check(address, (rows - 1).saturating_mul(pitch_bytes).saturating_add(row_bytes))
}

/// Makes each check twice: as written, and for the form that has a stream behind the arguments.
macro_rules! with_and_without_stream {
    ($(
        $(#[$note:meta])*
        $name:ident, $name_async:ident $(<$generic:ident>)? ($($argument:ident: $type:ty),* $(,)?) $body:block
    )*) => {$(
        $(#[$note])*
        pub(crate) fn $name$(<$generic>)?($($argument: $type),*) -> CUresult $body

        $(#[$note])*
        pub(crate) fn $name_async$(<$generic>)?($($argument: $type,)* _: CUstream) -> CUresult {
            $name($($argument),*)
        }
    )*};
}

with_and_without_stream! {
    /// `cuMemcpy`, `cuMemcpyDtoD`: each side may be ours.
    between, between_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        check(to, bytes as u64)?;
        check(from, bytes as u64)
    }

    /// `cuMemcpyHtoD`.
    to_device, to_device_async(to: CUdeviceptr, _host: *const c_void, bytes: usize) {
        check(to, bytes as u64)
    }

    /// `cuMemcpyDtoH`.
    to_host, to_host_async(_host: *mut c_void, from: CUdeviceptr, bytes: usize) {
        check(from, bytes as u64)
    }

    /// `cuMemcpyPeer`.
    peer, peer_async(
        to: CUdeviceptr,
        _to_context: CUcontext,
        from: CUdeviceptr,
        _from_context: CUcontext,
        bytes: usize,
    ) {
        between(to, from, bytes)
    }

    /// `cuMemsetD8`, `cuMemsetD16`, `cuMemsetD32`: the value's type is the element.
    fill, fill_async<Element>(to: CUdeviceptr, _value: Element, count: usize) {
        check(to, (count as u64).saturating_mul(size_of::<Element>() as u64))
    }

    /// `cuMemsetD2D8`, `cuMemsetD2D16`, `cuMemsetD2D32`.
    fill_rows, fill_rows_async<Element>(
        to: CUdeviceptr,
        pitch: usize,
        _value: Element,
        width: usize,
        height: usize,
    ) {
        let row_bytes = (width as u64).saturating_mul(size_of::<Element>() as u64);
        check_rows(to, pitch as u64, row_bytes, height as u64)
    }
}

/// `cuMemcpyWithAttributesAsync`.
pub(crate) fn with_attributes(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    _: *mut CUmemcpyAttributes,
    _: CUstream,
) -> CUresult {
    between(to, from, bytes)
}

/// `cuMemcpyAtoD`.
pub(crate) fn from_array(to: CUdeviceptr, _: CUarray, _: usize, bytes: usize) -> CUresult {
    check(to, bytes as u64)
}

/// `cuMemcpyDtoA`.
pub(crate) fn to_array(_: CUarray, _: usize, from: CUdeviceptr, bytes: usize) -> CUresult {
    check(from, bytes as u64)
}

/// One side of a copy that a structure describes.
struct Side {
    memory_type: c_uint,
    device: u64,
    x_bytes: u64,
    y: u64,
    z: u64,
    pitch_bytes: u64,
    rows: u64,
}

impl Side {
    fn check(&self, extents: [usize; 3]) -> CUresult {
        self.range(extents).map_or(Ok(()), |(address, bytes)| check(address, bytes))
    }

    /// From the first byte to the last one; `None` where there are none, or not at an address.
    fn range(&self, extents: [usize; 3]) -> Option<(u64, u64)> {
        let [width_bytes, height, depth] = extents.map(|extent| extent as u64);
        let is_address = [CU_MEMORYTYPE_DEVICE.0, CU_MEMORYTYPE_UNIFIED.0].contains(&self.memory_type);
        if !is_address || width_bytes == 0 || height == 0 || depth == 0 {
            return None;
        }
        // Where nothing is said, there are no gaps.
        let said_or = |said: u64, least: u64| if said == 0 { least } else { said };
        let pitch_bytes = said_or(self.pitch_bytes, self.x_bytes.saturating_add(width_bytes));
        let slice_bytes = pitch_bytes.saturating_mul(said_or(self.rows, self.y.saturating_add(height)));
        let place = |slices: u64, rows: u64, bytes: u64| {
            let rows_bytes = rows.saturating_mul(pitch_bytes);
            slices.saturating_mul(slice_bytes).saturating_add(rows_bytes).saturating_add(bytes)
        };
        let Some(start) = self.device.checked_add(place(self.z, self.y, self.x_bytes)) else {
            return Some((self.device, u64::MAX));
        };
        Some((start, place(depth - 1, height - 1, width_bytes)))
    }
}

/// A side from the fields of a structure. Two dimensions have no slices: zero, and no rows said.
macro_rules! side {
    ($copy:ident: $kind:ident $device:ident $x:ident $y:ident $pitch:ident, $z:expr, $rows:expr) => {
        Side {
            memory_type: $copy.$kind.0,
            device: $copy.$device,
            x_bytes: $copy.$x as u64,
            y: $copy.$y as u64,
            z: $z as u64,
            pitch_bytes: $copy.$pitch as u64,
            rows: $rows as u64,
        }
    };
}

/// A check of a copy that a structure describes, without and with a stream.
macro_rules! described {
    ($($(#[$note:meta])* $name:ident, $name_async:ident($type:ty) |$copy:ident| $body:block)*) => {$(
        $(#[$note])*
        ///
        /// # Safety
        /// `copy` is null or points to a whole structure.
        pub(crate) unsafe fn $name(copy: *const $type) -> CUresult {
            // SAFETY: as the caller promises.
            let Some($copy) = (unsafe { copy.as_ref() }) else { return Ok(()) };
            $body
        }

        $(#[$note])*
        ///
        /// # Safety
        /// As above.
        pub(crate) unsafe fn $name_async(copy: *const $type, _: CUstream) -> CUresult {
            // SAFETY: as the caller promises.
            unsafe { $name(copy) }
        }
    )*};
}

described! {
    /// `cuMemcpy2D`.
    planar, planar_async(CUDA_MEMCPY2D) |copy| {
        let extents = [copy.WidthInBytes, copy.Height, 1];
        side!(copy: dstMemoryType dstDevice dstXInBytes dstY dstPitch, 0, 0).check(extents)?;
        side!(copy: srcMemoryType srcDevice srcXInBytes srcY srcPitch, 0, 0).check(extents)
    }

    /// `cuMemcpy3D`.
    spatial, spatial_async(CUDA_MEMCPY3D) |copy| {
        let extents = [copy.WidthInBytes, copy.Height, copy.Depth];
        side!(copy: dstMemoryType dstDevice dstXInBytes dstY dstPitch, copy.dstZ, copy.dstHeight).check(extents)?;
        side!(copy: srcMemoryType srcDevice srcXInBytes srcY srcPitch, copy.srcZ, copy.srcHeight).check(extents)
    }

    /// `cuMemcpy3DPeer`.
    spatial_peer, spatial_peer_async(CUDA_MEMCPY3D_PEER) |copy| {
        let extents = [copy.WidthInBytes, copy.Height, copy.Depth];
        side!(copy: dstMemoryType dstDevice dstXInBytes dstY dstPitch, copy.dstZ, copy.dstHeight).check(extents)?;
        side!(copy: srcMemoryType srcDevice srcXInBytes srcY srcPitch, copy.srcZ, copy.srcHeight).check(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100-byte rows, eight to a slice; the first byte is the third of row 2 of slice 1.
    const SIDE: Side =
        Side { memory_type: 2, device: 1 << 40, x_bytes: 3, y: 2, z: 1, pitch_bytes: 100, rows: 8 };

    fn offset_and_bytes(side: &Side, extents: [usize; 3]) -> Option<(u64, u64)> {
        side.range(extents).map(|(start, bytes)| (start - side.device, bytes))
    }

    #[test]
    fn a_described_range_goes_from_its_first_byte_to_its_last() {
        assert_eq!(offset_and_bytes(&SIDE, [10, 1, 1]), Some((1003, 10)));
        assert_eq!(offset_and_bytes(&SIDE, [10, 4, 1]), Some((1003, 310)));
        assert_eq!(offset_and_bytes(&SIDE, [10, 4, 3]), Some((1003, 1910)));
        let dense = Side { pitch_bytes: 0, rows: 0, ..SIDE };
        assert_eq!(offset_and_bytes(&dense, [10, 4, 3]), Some((6 * 13 + 2 * 13 + 3, 2 * 78 + 3 * 13 + 10)));
    }

    #[test]
    fn arrays_host_memory_and_empty_extents_have_no_range() {
        for extents in [[0, 4, 3], [10, 0, 3], [10, 4, 0]] {
            assert_eq!(SIDE.range(extents), None, "{extents:?}");
        }
        for (memory_type, is_address) in [(1, false), (2, true), (3, false), (4, true), (0, false)] {
            let side = Side { memory_type, ..SIDE };
            assert_eq!(side.range([10, 4, 3]).is_some(), is_address, "memory type {memory_type}");
        }
    }

    #[test]
    fn extents_beyond_all_numbers_make_a_range_that_fits_nowhere() {
        assert_eq!(offset_and_bytes(&SIDE, [10, usize::MAX, 1]), Some((1003, u64::MAX)));
        let far = Side { z: u64::MAX, ..SIDE };
        assert_eq!(far.range([1, 1, 1]), Some((1 << 40, u64::MAX)));
    }
}
