//! Copies, fills and prefetches: bytes moved in chunks, each no earlier than the link would have brought it.
//!
//! Some chunks are booked before the last one has arrived, so that late wake-ups of this thread
//! cost no bandwidth. A fault, or one elsewhere in the context, ends the copy at the next chunk.

use std::collections::VecDeque;
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_simulated_arena::{Direction, sleep_until};

use super::engine::Engine;
use super::executor::{Executor, Running, direction};
use super::node::{Node, Task};
use super::unwind;
use super::work::{CopyEnd, CopyWork, Fault, FillWork, Memory, PrefetchWork, Space, Work};

/// Chunks booked and not waited for: the link stays busy though this thread wakes some
/// milliseconds late, as it does when other programs use all cores.
const CHUNKS_AHEAD: usize = 4;

/// A copy thread.
pub(super) fn run(executor: &Executor, engine: &Engine) {
    let mut arrived = VecDeque::new();
    loop {
        engine.wait(&mut arrived, None);
        while let Some(node) = arrived.pop_front() {
            perform(executor, node);
        }
    }
}

fn perform(executor: &Executor, node: Arc<Node>) {
    let Some(Task::Work(work)) = node.take_task() else {
        node.complete();
        return;
    };
    let running = Running::new(node);
    let move_bytes = || match &work {
        Work::Copy(copy) => copy_all(executor, running.node(), copy),
        Work::Fill(fill) => fill_all(executor, running.node(), fill),
        Work::Prefetch(prefetch) => prefetch_all(executor, running.node(), *prefetch),
        _ => Ok(()),
    };
    let outcome = unwind::caught(move_bytes).and_then(|outcome| outcome);
    running.complete(outcome.err().map(|fault| fault.error));
}

/// The time of a transfer that goes on in chunks.
struct Pace<'a> {
    executor: &'a Executor,
    node: &'a Node,
    direction: Direction,
    /// The most bytes moved between two looks at the clock, the mapping and the context's health.
    chunk_bytes: u64,
    /// Bytes moved since the last booking (many short rows make one chunk).
    moved_bytes: u64,
    /// When what is booked will have arrived.
    arrivals_ns: VecDeque<u64>,
}

impl<'a> Pace<'a> {
    fn new(executor: &'a Executor, node: &'a Node, direction: Direction) -> Self {
        let chunk_bytes = executor.hardware.chunk_bytes(direction);
        Pace { executor, node, direction, chunk_bytes, moved_bytes: 0, arrivals_ns: VecDeque::new() }
    }

    /// Accounts for bytes that were moved; ends early when the context is lost.
    fn moved(&mut self, bytes: u64) -> Result<(), Fault> {
        self.moved_bytes += bytes;
        if self.moved_bytes < self.chunk_bytes {
            return Ok(());
        }
        self.book();
        while self.arrivals_ns.len() > CHUNKS_AHEAD {
            self.arrivals_ns.pop_front().into_iter().for_each(sleep_until);
        }
        self.node.domain.check().map_err(|error| Fault::at(error, 0))
    }

    fn book(&mut self) {
        let bytes = std::mem::take(&mut self.moved_bytes);
        if bytes > 0 {
            self.arrivals_ns.push_back(self.executor.hardware.book_transfer(self.direction, bytes));
        }
    }

    /// Waits until everything has arrived.
    fn finish(mut self) {
        self.book();
        self.arrivals_ns.drain(..).for_each(sleep_until);
    }
}

fn copy_all(executor: &Executor, node: &Node, copy: &CopyWork) -> Result<(), Fault> {
    let space = &*node.domain.space;
    let mut pace = Pace::new(executor, node, direction(copy));
    for slice in 0..copy.depth {
        for row in 0..copy.height {
            let place = |end: &CopyEnd| slice * end.slice_pitch_bytes + row * end.row_pitch_bytes;
            let (to, from) = (place(&copy.destination), place(&copy.source));
            let mut done = 0;
            while done < copy.width_bytes {
                let bytes = pace.chunk_bytes.min(copy.width_bytes - done);
                copy_chunk(space, copy, to + done, from + done, bytes)?;
                pace.moved(bytes)?;
                done += bytes;
            }
        }
    }
    pace.finish();
    Ok(())
}

/// Moves `bytes` at these offsets from the two ends.
fn copy_chunk(space: &dyn Space, copy: &CopyWork, to: u64, from: u64, bytes: u64) -> Result<(), Fault> {
    match (&copy.destination.memory, &copy.source.memory) {
        (Memory::Device(destination), Memory::Device(source)) => {
            space.copy_within(destination + to, source + from, bytes)
        }
        (Memory::Device(destination), Memory::Host(source)) => {
            // SAFETY: the program promised a readable range for the time of the copy (CUDA
            // driver API, cuMemcpyHtoDAsync); offsets stay inside its extent.
            unsafe { space.copy_to_device(destination + to, source.0.cast::<u8>().add(from as usize), bytes) }
        }
        (Memory::Device(destination), Memory::Staged(staged)) => {
            let source = staged_range(staged, from, bytes)?;
            // SAFETY: the range lies inside `staged`, which lives until the copy returns.
            unsafe { space.copy_to_device(destination + to, source.as_ptr(), bytes) }
        }
        (Memory::Host(destination), Memory::Device(source)) => {
            // SAFETY: as above, a writable range (cuMemcpyDtoHAsync).
            unsafe {
                space.copy_from_device(source + from, destination.0.cast::<u8>().add(to as usize), bytes)
            }
        }
        (Memory::Host(destination), Memory::Host(source)) => {
            // SAFETY: as above for both ends; `copy` allows overlap.
            unsafe {
                let source = source.0.cast::<u8>().add(from as usize);
                std::ptr::copy(source, destination.0.cast::<u8>().add(to as usize), bytes as usize);
            }
            Ok(())
        }
        (Memory::Host(destination), Memory::Staged(staged)) => {
            let source = staged_range(staged, from, bytes)?;
            // SAFETY: the source is a checked range of our own bytes, the destination as above.
            unsafe {
                let destination = destination.0.cast::<u8>().add(to as usize);
                std::ptr::copy(source.as_ptr(), destination, bytes as usize);
            }
            Ok(())
        }
        (Memory::Staged(_), _) => Err(Fault::at(CUerror::INVALID_VALUE, 0)),
    }
}

fn staged_range(staged: &[u8], from: u64, bytes: u64) -> Result<&[u8], Fault> {
    let from = from as usize;
    staged.get(from..from + bytes as usize).ok_or(Fault::at(CUerror::INVALID_VALUE, 0))
}

fn fill_all(executor: &Executor, node: &Node, fill: &FillWork) -> Result<(), Fault> {
    let space = &*node.domain.space;
    let element_bytes = u64::from(fill.element_bytes);
    let mut pace = Pace::new(executor, node, Direction::DeviceToDevice);
    for row in 0..fill.height {
        let mut done = 0;
        while done < fill.width {
            let count = (pace.chunk_bytes / element_bytes).min(fill.width - done);
            let address = fill.destination + row * fill.row_pitch_bytes + done * element_bytes;
            space.fill(address, fill.value, fill.element_bytes, count)?;
            pace.moved(count * element_bytes)?;
            done += count;
        }
    }
    pace.finish();
    Ok(())
}

/// Only pages that are elsewhere take time.
fn prefetch_all(executor: &Executor, node: &Node, work: PrefetchWork) -> Result<(), Fault> {
    let space = &*node.domain.space;
    let direction = if work.to_host { Direction::DeviceToHost } else { Direction::HostToDevice };
    let mut pace = Pace::new(executor, node, direction);
    let mut done = 0;
    while done < work.bytes {
        let bytes = pace.chunk_bytes.min(work.bytes - done);
        pace.moved(space.prefetch(work.address + done, bytes, work.to_host))?;
        done += bytes;
    }
    pace.finish();
    Ok(())
}
