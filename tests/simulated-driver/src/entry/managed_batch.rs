//! Prefetches and discards of managed memory in batches: CUDA driver API, `cuMemPrefetchBatchAsync` and its kin.
//!
//! Ranges and places of a batch are checked before anything is submitted. A discard gives up what the memory holds: here its
//! bytes stay as they are, which is one of the values that may be read.

use std::ffi::{c_int, c_ulonglong};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::copy_batch::{Spread, stream_of_batch};
use super::managed::{place_of, prefetch};
use super::stream_entry;
use crate::driver::driver;
use crate::space::Result;
use crate::stream::StreamEntry;

stream_entry! {
    fn cuMemPrefetchBatchAsync | cuMemPrefetchBatchAsync_ptsz [default] (
        dptrs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        prefetch_locs: *mut CUmemLocation,
        prefetch_loc_idxs: *mut usize,
        num_prefetch_locs: usize,
        flags: c_ulonglong,
        h_stream: CUstream,
    ) {
        let entry = stream_of_batch(h_stream, default)?;
        let locations = Spread { values: prefetch_locs, firsts: prefetch_loc_idxs, count: num_prefetch_locs };
        prefetch_all(&entry, &ranges(dptrs, sizes, count, flags)?, &locations)
    }

    fn cuMemDiscardBatchAsync | cuMemDiscardBatchAsync_ptsz [default] (
        dptrs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        flags: c_ulonglong,
        h_stream: CUstream,
    ) {
        stream_of_batch(h_stream, default)?.check_outside_capture()?;
        ranges(dptrs, sizes, count, flags).map(drop)
    }

    fn cuMemDiscardAndPrefetchBatchAsync | cuMemDiscardAndPrefetchBatchAsync_ptsz [default] (
        dptrs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        prefetch_locs: *mut CUmemLocation,
        prefetch_loc_idxs: *mut usize,
        num_prefetch_locs: usize,
        flags: c_ulonglong,
        h_stream: CUstream,
    ) {
        let entry = stream_of_batch(h_stream, default)?;
        let locations = Spread { values: prefetch_locs, firsts: prefetch_loc_idxs, count: num_prefetch_locs };
        prefetch_all(&entry, &ranges(dptrs, sizes, count, flags)?, &locations)
    }
}

/// The ranges of a batch; all of them are managed memory.
///
/// # Safety
/// Both arrays are null or have `count` elements.
unsafe fn ranges(
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    flags: c_ulonglong,
) -> Result<Vec<(u64, usize)>> {
    if addresses.is_null() || sizes.is_null() || count == 0 || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's promise.
    let (addresses, sizes) =
        unsafe { (std::slice::from_raw_parts(addresses, count), std::slice::from_raw_parts(sizes, count)) };
    let ranges: Vec<(u64, usize)> = addresses.iter().copied().zip(sizes.iter().copied()).collect();
    for (address, bytes) in &ranges {
        if *bytes == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        driver()?.space.managed(*address, *bytes as u64)?;
    }
    Ok(ranges)
}

/// # Safety
/// As [`Spread::over`].
unsafe fn prefetch_all(
    entry: &StreamEntry,
    ranges: &[(u64, usize)],
    locations: &Spread<CUmemLocation>,
) -> CUresult {
    // SAFETY: the caller's promise.
    let places: Vec<c_int> =
        unsafe { locations.over(ranges.len()) }?.iter().map(place_of).collect::<Result<_>>()?;
    ranges
        .iter()
        .zip(places)
        .try_for_each(|((address, bytes), place)| prefetch(*address, *bytes, Ok(place), entry))
}
