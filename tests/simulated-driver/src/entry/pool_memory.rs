//! Memory in stream order: CUDA driver API, `cuMemAllocAsync` and its kin.
//!
//! An allocation is usable at once, since it is cut when the call is made and reused only where the order of
//! streams allows it (`space/pool.rs`). Memory nodes of graphs are not simulated: a capturing stream is refused.

use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{needed, put, stream_entry};
use crate::driver::driver;
use crate::execution::{Event, Work};
use crate::pools;
use crate::space::{Freed, Origin, Pool, Result};
use crate::stream::{StreamEntry, resolve};

stream_entry! {
    fn cuMemAllocAsync | cuMemAllocAsync_ptsz [default] (dptr: *mut CUdeviceptr, bytesize: usize, h_stream: CUstream) {
        needed(dptr)?;
        let entry = resolve(h_stream, default)?;
        put(dptr, allocate(&entry, &pools::current_of(entry.context.device), bytesize)?)
    }

    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz [default] (
        dptr: *mut CUdeviceptr,
        bytesize: usize,
        pool: CUmemoryPool,
        h_stream: CUstream,
    ) {
        needed(dptr)?;
        let entry = resolve(h_stream, default)?;
        put(dptr, allocate(&entry, &pools::pool(pool)?, bytesize)?)
    }

    fn cuMemFreeAsync | cuMemFreeAsync_ptsz [default] (dptr: CUdeviceptr, h_stream: CUstream) {
        free(&resolve(h_stream, default)?, dptr)
    }
}

fn allocate(entry: &StreamEntry, pool: &Arc<Pool>, bytes: usize) -> Result<u64> {
    entry.check_outside_capture()?;
    let taken = driver()?.space.allocate_from_pool(pool, bytes as u64, entry.stream.id())?;
    for event in &taken.waits {
        entry.context.queue.wait_event(&entry.stream, event, false)?;
    }
    Ok(taken.address)
}

fn free(entry: &StreamEntry, address: u64) -> CUresult {
    entry.check_outside_capture()?;
    let space = &driver()?.space;
    if matches!(space.allocation(address)?.origin, Origin::Managed(_) | Origin::Opened(..)) {
        return Err(CUerror::INVALID_VALUE);
    }
    let allocation = space.take_out(address)?;
    if let Origin::Pool(pool) = &allocation.origin {
        let event = Event::new(false);
        entry.context.queue.record_event(&entry.stream, &event, false)?;
        space.give_to_pool(pool, address, &allocation, Freed { stream: entry.stream.id(), event });
        return Ok(());
    }
    // Memory of no pool of this process (from memory: cudaFreeAsync takes that of cudaMalloc too): it goes when
    // the stream gets there. A lost context runs this all the same.
    let waiting = Mutex::new(Some(allocation));
    let space = Arc::clone(space);
    let step = move |_: Result<()>| {
        if let Some(allocation) = waiting.lock().take() {
            space.give_back(address, allocation);
        }
    };
    entry.context.queue.submit(&entry.stream, Work::Action(Arc::new(step)))
}
