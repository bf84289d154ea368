//! Memory in stream order: CUDA driver API, `cuMemAllocAsync` and its kin.
//!
//! An allocation is usable at once, since it is cut when the call is made and reused only where the order of
//! streams allows it (`space/pool.rs`). A capturing stream gets memory nodes instead (`graph_memory.rs`).

use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{needed, put, stream_entry};
use crate::driver::driver;
use crate::execution::{CaptureInfo, CaptureStatus, Event, Work, info, record_node};
use crate::graph_memory;
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
    if let Some(capture) = capture_of(entry)? {
        return capture_allocation(entry, &capture, pool, bytes);
    }
    let taken = driver()?.space.allocate_from_pool(pool, bytes as u64, entry.stream.id())?;
    for event in &taken.waits {
        entry.context.queue.wait_event(&entry.stream, event, false)?;
    }
    Ok(taken.address)
}

/// The capture that the stream takes part in.
fn capture_of(entry: &StreamEntry) -> Result<Option<CaptureInfo>> {
    entry.context.queue.check()?;
    match info(&entry.context.queue, &entry.stream)? {
        (CaptureStatus::Invalidated, _) => Err(CUerror::STREAM_CAPTURE_INVALIDATED),
        (_, capture) => Ok(capture),
    }
}

/// An allocation node with the properties of the pool, whose memory is the graph's.
fn capture_allocation(entry: &StreamEntry, capture: &CaptureInfo, pool: &Pool, bytes: usize) -> Result<u64> {
    // SAFETY: all-zero is a valid value.
    let mut said: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    let device = pool.properties.device;
    said.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    said.poolProps.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
    said.poolProps.location.anonymous_1.id = driver()?.ordinal(device).ok_or(CUerror::INVALID_DEVICE)?;
    said.bytesize = bytes;
    let others: Vec<usize> = pool
        .numbers()
        .access
        .into_iter()
        .filter(|(_, rights)| *rights != 0)
        .map(|(device, _)| device)
        .collect();
    let content =
        graph_memory::allocation(&capture.graph, &capture.dependencies, device, &others, &mut said)?;
    record_node(&entry.context.queue, &entry.stream, content)?;
    Ok(said.dptr)
}

fn free(entry: &StreamEntry, address: u64) -> CUresult {
    let space = &driver()?.space;
    if let Some(capture) = capture_of(entry)? {
        let content = graph_memory::free(&capture.graph, address)?;
        return record_node(&entry.context.queue, &entry.stream, content);
    }
    let found = space.allocation(address)?;
    if matches!(found.origin, Origin::Managed(_) | Origin::Opened(..)) {
        return Err(CUerror::INVALID_VALUE);
    }
    if let Origin::Graph = found.origin {
        let event = Event::new(false);
        entry.context.queue.record_event(&entry.stream, &event, false)?;
        let freed = Freed { stream: entry.stream.id(), event };
        return space.free_graph_allocation(found.device, address, Some(freed));
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
