//! Managed memory: CUDA driver API, "Unified Memory" parts of "Memory Management" and "Unified Addressing".
//!
//! Devices may use such memory beside the host (`CONCURRENT_MANAGED_ACCESS`), so the attachment to streams is
//! checked and without effect. Advice is kept; of it only the preferred place on the host changes what happens.
//! NUMA nodes are not told apart: places on them are refused.

use std::ffi::{c_int, c_uint, c_void};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put, stream_entry};
use crate::context::current;
use crate::driver::driver;
use crate::execution::{PrefetchWork, Work, check_unsafe_call};
use crate::space::{Advice, CPU, NOWHERE, Result};
use crate::stream::{Default, StreamEntry, resolve};

const ATTACH_GLOBAL: u32 = 1;
const ATTACH_HOST: u32 = 2;
const ATTACH_SINGLE: u32 = 4;
/// Prefetches and advice are rounded to it.
const HOST_PAGE_BYTES: u64 = 4096;

entry! {
    fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint) {
        needed(dptr)?;
        let context = current::get_sound()?;
        check_unsafe_call()?;
        if bytesize == 0 || !matches!(flags, ATTACH_GLOBAL | ATTACH_HOST) {
            return Err(CUerror::INVALID_VALUE);
        }
        put(dptr, driver()?.space.allocate_managed(context.id(), context.device, bytesize as u64)?)
    }

    fn cuMemAdvise(dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice) {
        advise(dev_ptr, count, advice, || place_of_ordinal(device))
    }

    fn cuMemAdvise_v2(dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation) {
        advise(dev_ptr, count, advice, || place_of(&location))
    }

    fn cuMemRangeGetAttribute(
        data: *mut c_void,
        data_size: usize,
        attribute: CUmem_range_attribute,
        dev_ptr: CUdeviceptr,
        count: usize,
    ) {
        needed(data)?;
        let advice = advice_of(dev_ptr, count)?;
        put_attribute(data, data_size, attribute.0, &advice)
    }

    fn cuMemRangeGetAttributes(
        data: *mut *mut c_void,
        data_sizes: *mut usize,
        attributes: *mut CUmem_range_attribute,
        num_attributes: usize,
        dev_ptr: CUdeviceptr,
        count: usize,
    ) {
        needed(data)?;
        needed(data_sizes)?;
        needed(attributes)?;
        if num_attributes == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let advice = advice_of(dev_ptr, count)?;
        for index in 0..num_attributes {
            let place = data.add(index).read();
            needed(place)?;
            put_attribute(place, data_sizes.add(index).read(), attributes.add(index).read().0, &advice)?;
        }
        Ok(())
    }
}

stream_entry! {
    fn cuMemPrefetchAsync | cuMemPrefetchAsync_ptsz [default] (
        dev_ptr: CUdeviceptr,
        count: usize,
        dst_device: CUdevice,
        h_stream: CUstream,
    ) {
        prefetch(dev_ptr, count, place_of_ordinal(dst_device), &resolve(h_stream, default)?)
    }

    fn cuMemPrefetchAsync_v2 | cuMemPrefetchAsync_v2_ptsz [default] (
        dev_ptr: CUdeviceptr,
        count: usize,
        location: CUmemLocation,
        flags: c_uint,
        h_stream: CUstream,
    ) {
        let entry = resolve(h_stream, default)?;
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        prefetch(dev_ptr, count, place_of(&location), &entry)
    }

    fn cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz [default] (
        h_stream: CUstream,
        dptr: CUdeviceptr,
        length: usize,
        flags: c_uint,
    ) {
        let entry = resolve(h_stream, default)?;
        entry.check_outside_capture()?;
        let (base, allocation, _) = driver()?.space.managed(dptr, 1)?;
        let whole = length == 0 || dptr == base && length as u64 == allocation.bytes;
        let to_default = h_stream.is_null() || h_stream as usize == 1 && default == Default::Legacy;
        match flags {
            ATTACH_GLOBAL | ATTACH_HOST if whole => Ok(()),
            ATTACH_SINGLE if whole && !to_default => Ok(()),
            _ => Err(CUerror::INVALID_VALUE),
        }
    }
}

/// The range in host pages, as offsets into its allocation.
fn offsets(base: u64, address: u64, count: usize) -> (u64, u64) {
    let (start, end) = (address - base, address - base + count as u64);
    (start - start % HOST_PAGE_BYTES, end.next_multiple_of(HOST_PAGE_BYTES))
}

fn advise(
    address: u64,
    count: usize,
    advice: CUmem_advise,
    place: impl FnOnce() -> Result<c_int>,
) -> CUresult {
    if count == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let (base, _, managed) = driver()?.space.managed(address, count as u64)?;
    let (start, end) = offsets(base, address, count);
    match advice {
        CU_MEM_ADVISE_SET_READ_MOSTLY => managed.advise(start, end, |advice| advice.read_mostly = true),
        CU_MEM_ADVISE_UNSET_READ_MOSTLY => managed.advise(start, end, |advice| advice.read_mostly = false),
        CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
            let place = place()?;
            managed.advise(start, end, |advice| advice.preferred = place);
        }
        CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => {
            managed.advise(start, end, |advice| advice.preferred = NOWHERE);
        }
        CU_MEM_ADVISE_SET_ACCESSED_BY | CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
            let place = place()?;
            let set = advice == CU_MEM_ADVISE_SET_ACCESSED_BY;
            managed.advise(start, end, |advice| {
                advice.accessed_by.retain(|other| *other != place);
                advice.accessed_by.extend(set.then_some(place));
            });
        }
        _ => return Err(CUerror::INVALID_VALUE),
    }
    Ok(())
}

/// A prefetch in stream order.
pub(super) fn prefetch(address: u64, count: usize, place: Result<c_int>, entry: &StreamEntry) -> CUresult {
    entry.check_outside_capture()?;
    if count == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let driver = driver()?;
    let (base, _, managed) = driver.space.managed(address, count as u64)?;
    let place = place?;
    if place != CPU && driver.index(place)? != entry.context.device {
        // The other device's engines would have to do it.
        return Err(CUerror::NOT_SUPPORTED);
    }
    let (start, end) = offsets(base, address, count);
    managed.advise(start, end, |advice| advice.prefetched = place);
    let work = PrefetchWork { address: base + start, bytes: end - start, to_host: place == CPU };
    entry.context.queue.submit(&entry.stream, Work::Prefetch(work))
}

fn advice_of(address: u64, count: usize) -> Result<Vec<Advice>> {
    if count == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let (base, _, managed) = driver()?.space.managed(address, count as u64)?;
    let (start, end) = offsets(base, address, count);
    Ok(managed.advice(start, end))
}

/// A device ordinal, or the host.
fn place_of_ordinal(ordinal: CUdevice) -> Result<c_int> {
    if ordinal != CPU {
        driver()?.index(ordinal)?;
    }
    Ok(ordinal)
}

/// The device ordinal that a location stands for, or the host.
pub(super) fn place_of(location: &CUmemLocation) -> Result<c_int> {
    match location.type_ {
        // SAFETY: both variants of the union are plain numbers of the same four bytes.
        CU_MEM_LOCATION_TYPE_DEVICE => place_of_ordinal(unsafe { location.anonymous_1.id }),
        CU_MEM_LOCATION_TYPE_HOST => Ok(CPU),
        CU_MEM_LOCATION_TYPE_HOST_NUMA | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {
            Err(CUerror::NOT_SUPPORTED)
        }
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Writes an attribute of a range as `cuMemRangeGetAttribute` documents it.
///
/// # Safety
/// `data` is valid for writing `bytes` bytes.
unsafe fn put_attribute(data: *mut c_void, bytes: usize, attribute: u32, advice: &[Advice]) -> CUresult {
    let data = data.cast::<c_int>();
    let same = |of: fn(&Advice) -> c_int| {
        let first = of(&advice[0]);
        if advice.iter().all(|other| of(other) == first) { first } else { NOWHERE }
    };
    let kind = |place: c_int| match place {
        NOWHERE => CU_MEM_LOCATION_TYPE_INVALID.0 as c_int,
        CPU => CU_MEM_LOCATION_TYPE_HOST.0 as c_int,
        _ => CU_MEM_LOCATION_TYPE_DEVICE.0 as c_int,
    };
    let (preferred, prefetched) = (same(|advice| advice.preferred), same(|advice| advice.prefetched));
    let value = match attribute {
        1 => c_int::from(advice.iter().all(|advice| advice.read_mostly)),
        2 | 6 => preferred,
        3 if bytes != 0 && bytes.is_multiple_of(4) => {
            let everywhere = |place: &&c_int| advice.iter().all(|other| other.accessed_by.contains(place));
            let mut places = advice[0].accessed_by.iter().filter(everywhere).copied();
            for index in 0..bytes / 4 {
                // SAFETY: index < bytes / 4.
                unsafe { data.add(index).write_unaligned(places.next().unwrap_or(NOWHERE)) };
            }
            return Ok(());
        }
        4 | 8 => prefetched,
        5 => kind(preferred),
        7 => kind(prefetched),
        _ => return Err(CUerror::INVALID_VALUE),
    };
    if bytes != 4 {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { data.write_unaligned(value) };
    Ok(())
}
