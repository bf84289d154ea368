//! What kernels reach beside memory: the context's output and its heap.
//!
//! The heap is memory of the device, taken when the first module is loaded that allocates from it (CUDA C++
//! Programming Guide, "Dynamic Global Memory Allocation and Operations"); from then on its size stays. Its memory
//! is free again when the context goes. Read next: `execution/output.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_simulated_ptx::System;

use crate::context::Context;
use crate::context::limits::HEAP_BYTES;
use crate::driver::Driver;
use crate::space::Result;

/// What `malloc` in a kernel promises.
const ALIGNMENT_BYTES: u64 = 16;

/// Memory that kernels take and give back. Both maps hold lengths by start.
#[derive(Debug, Default)]
pub struct Heap {
    free: BTreeMap<u64, u64>,
    taken: BTreeMap<u64, u64>,
}

impl Heap {
    fn of(start: u64, bytes: u64) -> Self {
        Self { free: BTreeMap::from([(start, bytes)]), taken: BTreeMap::new() }
    }

    /// The first range that is large enough, or 0.
    fn allocate(&mut self, bytes: u64) -> u64 {
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(ALIGNMENT_BYTES) else { return 0 };
        let Some((&start, &room)) = self.free.iter().find(|(_, room)| **room >= bytes) else { return 0 };
        self.free.remove(&start);
        if room > bytes {
            self.free.insert(start + bytes, room - bytes);
        }
        self.taken.insert(start, bytes);
        start
    }

    fn free(&mut self, start: u64) -> bool {
        let Some(bytes) = self.taken.remove(&start) else { return false };
        let (mut start, mut bytes) = (start, bytes);
        if let Some(behind) = self.free.remove(&(start + bytes)) {
            bytes += behind;
        }
        if let Some((&before, &room)) = self.free.range(..start).next_back()
            && before + room == start
        {
            (start, bytes) = (before, bytes + room);
        }
        self.free.insert(start, bytes);
        true
    }
}

/// Gives the context its heap, unless it has one. `SHARED_OBJECT_INIT_FAILED` when there is no memory for it, as
/// the guide says.
pub fn prepare_heap(driver: &Driver, context: &Context) -> Result<()> {
    let mut heap = context.heap.lock();
    if heap.is_none() {
        let bytes = context.limits.lock().get(HEAP_BYTES)? as u64;
        let start = driver
            .space
            .allocate(context.id(), context.device, bytes.max(1))
            .map_err(|_| CUerror::SHARED_OBJECT_INIT_FAILED)?;
        *heap = Some(Heap::of(start, bytes));
    }
    Ok(())
}

/// A context as its kernels see it.
#[derive(Debug)]
pub struct DeviceSystem {
    /// The context.
    pub context: Arc<Context>,
}

impl System for DeviceSystem {
    fn print(&self, text: &[u8]) {
        self.context.queue.output().print(text);
    }

    fn assertion_failed(&self, text: &[u8]) {
        self.context.queue.output().assertion_failed(text);
    }

    fn allocate(&self, bytes: u64) -> u64 {
        self.context.heap.lock().as_mut().map_or(0, |heap| heap.allocate(bytes))
    }

    fn free(&self, address: u64) -> bool {
        self.context.heap.lock().as_mut().is_some_and(|heap| heap.free(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_joins_its_neighbours() {
        let mut heap = Heap::of(0x1000, 0x100);
        let parts: Vec<u64> = (0..4).map(|_| heap.allocate(0x3f)).collect();
        assert_eq!(parts, [0x1000, 0x1040, 0x1080, 0x10c0], "rounded to the alignment");
        assert_eq!(heap.allocate(1), 0, "full");
        for part in [parts[2], parts[0], parts[3], parts[1]] {
            assert!(heap.free(part));
        }
        assert!(!heap.free(parts[1]), "twice");
        assert_eq!(heap.allocate(0x100), 0x1000, "one range again");
        assert_eq!(heap.allocate(u64::MAX), 0);
    }
}
