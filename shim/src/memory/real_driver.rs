//! [`Driver`] over the driver that is loaded in this process.
//!
//! One call for one method, with the arguments that this project always uses: pinned device memory
//! without a handle type, read and write access for its own device, non-blocking streams. The
//! calling thread's current context is pushed over and popped again, never changed.

use super::driver::{Context, Driver, Handle, Lane, Slot};
use crate::real::Api;
use core::ffi::c_uint;
use std::ptr::{null_mut, without_provenance_mut};
use turnus_bindings::types::*;
use turnus_bindings::{CUerror, CUresult};

/// The real driver.
#[derive(Debug)]
pub(crate) struct RealDriver {
    api: &'static Api,
}

impl RealDriver {
    /// Over these functions.
    pub(crate) fn new(api: &'static Api) -> RealDriver {
        RealDriver { api }
    }

    fn with<R>(&self, context: Context, act: impl FnOnce() -> Result<R, CUerror>) -> Result<R, CUerror> {
        // SAFETY: the handle is one that the driver gave to the program; a stale one is refused.
        unsafe { self.api.cuCtxPushCurrent_v2(without_provenance_mut(context.0)) }?;
        let result = act();
        let mut popped = null_mut();
        // SAFETY: pops what was pushed above, into a variable of this function.
        unsafe { self.api.cuCtxPopCurrent_v2(&mut popped) }?;
        result
    }

    fn attribute(&self, ordinal: CUdevice, attribute: CUdevice_attribute) -> Result<u64, CUerror> {
        let mut value = 0;
        // SAFETY: the output is a variable of this function.
        unsafe { self.api.cuDeviceGetAttribute(&mut value, attribute, ordinal) }?;
        Ok(u64::try_from(value).unwrap_or(0))
    }

    fn fill_lane(&self, lane: &mut Lane, slots: usize) -> CUresult {
        let mut stream = null_mut();
        // SAFETY: the outputs are variables of this function; the context is current.
        unsafe { self.api.cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING.0) }?;
        lane.stream = stream as usize;
        for _ in 0..slots {
            let mut buffer = null_mut();
            let mut event = null_mut();
            // Not spinning: the program needs its processors more than a copy needs microseconds.
            let flags: c_uint = CU_EVENT_DISABLE_TIMING.0 | CU_EVENT_BLOCKING_SYNC.0;
            // SAFETY: as above. A buffer without an event is entered before the error is seen.
            unsafe {
                self.api.cuMemHostAlloc(&mut buffer, lane.slot_bytes, 0)?;
                let made = self.api.cuEventCreate(&mut event, flags);
                lane.slots.push(Slot { buffer: buffer.cast(), event: event as usize });
                made?;
            }
        }
        Ok(())
    }
}

fn stream(lane: &Lane) -> CUstream {
    without_provenance_mut(lane.stream)
}

fn event(lane: &Lane, slot: usize) -> CUevent {
    without_provenance_mut(lane.slots[slot].event)
}

fn location(ordinal: CUdevice) -> CUmemLocation {
    let mut location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, ..Default::default() };
    location.anonymous_1.id = ordinal;
    location
}

fn properties(ordinal: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        location: location(ordinal),
        ..Default::default()
    }
}

impl Driver for RealDriver {
    fn granularity(&self, ordinal: CUdevice) -> Result<u64, CUerror> {
        let (mut bytes, properties) = (0, properties(ordinal));
        let option = CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: input and output are variables of this function.
        unsafe { self.api.cuMemGetAllocationGranularity(&mut bytes, &properties, option) }?;
        Ok(bytes as u64)
    }

    fn total(&self, ordinal: CUdevice) -> Result<u64, CUerror> {
        let mut bytes = 0;
        // SAFETY: the output is a variable of this function.
        unsafe { self.api.cuDeviceTotalMem_v2(&mut bytes, ordinal) }?;
        Ok(bytes as u64)
    }

    fn pitch_alignment(&self, ordinal: CUdevice) -> Result<u64, CUerror> {
        self.attribute(ordinal, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)
    }

    fn current(&self) -> Option<(Context, CUdevice)> {
        let (mut context, mut ordinal) = (null_mut(), 0);
        // SAFETY: the outputs are variables of this function.
        unsafe {
            self.api.cuCtxGetCurrent(&mut context).ok()?;
            self.api.cuCtxGetDevice(&mut ordinal).ok()?;
        }
        (!context.is_null()).then_some((Context(context as usize), ordinal))
    }

    fn memory_info(&self, context: Context) -> Result<(u64, u64), CUerror> {
        let (mut free, mut total) = (0, 0);
        self.with(context, || {
            // SAFETY: the outputs are variables of this function.
            unsafe { self.api.cuMemGetInfo_v2(&mut free, &mut total) }
        })?;
        Ok((total as u64, free as u64))
    }

    fn synchronise(&self, context: Context) -> Result<(), CUerror> {
        self.with(context, || {
            // SAFETY: takes no argument; the context is current.
            unsafe { self.api.cuCtxSynchronize() }
        })
    }

    fn set_sync_memops(&self, context: Context) -> Result<(), CUerror> {
        self.with(context, || {
            let mut flags = 0;
            // SAFETY: the output is a variable of this function; the context is current.
            unsafe {
                self.api.cuCtxGetFlags(&mut flags)?;
                self.api.cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS.0)
            }
        })
    }

    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64, CUerror> {
        let mut address = 0;
        // SAFETY: the output is a variable of this function.
        unsafe { self.api.cuMemAddressReserve(&mut address, bytes as usize, alignment as usize, 0, 0) }?;
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), CUerror> {
        // SAFETY: the range is one that `reserve` gave, and the table has forgotten it.
        unsafe { self.api.cuMemAddressFree(address, bytes as usize) }
    }

    fn create(&self, ordinal: CUdevice, bytes: u64) -> Result<Handle, CUerror> {
        let (mut handle, properties) = (0, properties(ordinal));
        // SAFETY: input and output are variables of this function.
        unsafe { self.api.cuMemCreate(&mut handle, bytes as usize, &properties, 0) }?;
        Ok(Handle(handle))
    }

    fn release(&self, handle: Handle) -> Result<(), CUerror> {
        // SAFETY: a handle of ours, mapped nowhere; the table forgets it when this succeeds.
        unsafe { self.api.cuMemRelease(handle.0) }
    }

    fn map(&self, address: u64, bytes: u64, handle: Handle) -> Result<(), CUerror> {
        // SAFETY: an unmapped part of a range of ours, of the handle's length.
        unsafe { self.api.cuMemMap(address, bytes as usize, 0, handle.0, 0) }
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUerror> {
        // SAFETY: exactly one mapping of ours, which no running work touches: the caller has
        // drained, or nobody has the address any more.
        unsafe { self.api.cuMemUnmap(address, bytes as usize) }
    }

    fn set_access(&self, ordinal: CUdevice, address: u64, bytes: u64) -> Result<(), CUerror> {
        let flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = CUmemAccessDesc { location: location(ordinal), flags };
        // SAFETY: a whole mapping of ours and one description.
        unsafe { self.api.cuMemSetAccess(address, bytes as usize, &access, 1) }
    }

    fn open_lane(&self, context: Context, slots: usize, slot_bytes: usize) -> Result<Lane, CUerror> {
        let mut lane = Lane { context, stream: 0, slots: Vec::with_capacity(slots), slot_bytes };
        match self.with(context, || self.fill_lane(&mut lane, slots)) {
            Ok(()) => Ok(lane),
            Err(error) => {
                self.close_lane(lane);
                Err(error)
            }
        }
    }

    fn close_lane(&self, lane: Lane) {
        // What fails here fails because the context is gone, and everything in it with it.
        let _ = self.with(lane.context, || {
            // SAFETY: made by `open_lane` in this context, and given up by taking the lane; null
            // ones are of a lane that was never finished. The stream is waited for before its
            // buffers go.
            unsafe {
                if lane.stream != 0 {
                    let _ = self.api.cuStreamSynchronize(stream(&lane));
                    let _ = self.api.cuStreamDestroy_v2(stream(&lane));
                }
                for slot in &lane.slots {
                    let _ = self.api.cuMemFreeHost(slot.buffer.cast());
                    if slot.event != 0 {
                        let _ = self.api.cuEventDestroy_v2(without_provenance_mut(slot.event));
                    }
                }
            }
            Ok(())
        });
    }

    fn copy_out(&self, lane: &Lane, slot: usize, address: u64, bytes: usize) -> Result<(), CUerror> {
        self.with(lane.context, || {
            // SAFETY: the buffer is pinned, long enough, and used by no other copy; the device's
            // bytes are mapped, and stay so until the event has been waited for.
            unsafe {
                let buffer = lane.slots[slot].buffer.cast();
                self.api.cuMemcpyDtoHAsync_v2(buffer, address, bytes, stream(lane))?;
                self.api.cuEventRecord(event(lane, slot), stream(lane))
            }
        })
    }

    fn copy_in(&self, lane: &Lane, slot: usize, address: u64, bytes: usize) -> Result<(), CUerror> {
        self.with(lane.context, || {
            // SAFETY: as in `copy_out`.
            unsafe {
                let buffer = lane.slots[slot].buffer.cast_const().cast();
                self.api.cuMemcpyHtoDAsync_v2(address, buffer, bytes, stream(lane))?;
                self.api.cuEventRecord(event(lane, slot), stream(lane))
            }
        })
    }

    fn wait(&self, lane: &Lane, slot: usize) -> Result<(), CUerror> {
        // SAFETY: an event of ours; one that was never recorded has nothing to wait for.
        self.with(lane.context, || unsafe { self.api.cuEventSynchronize(event(lane, slot)) })
    }
}
