//! Copies: a stream of ours, a small ring of pinned buffers, and the pump that keeps both busy.
//!
//! While one buffer travels over the link, another is copied to or from host memory. A task is done
//! only when its last byte has arrived; then the pump says so, and goes on with what is under way.
//! Nothing here knows frames or credits; a [`Mover`] does. Read next: `evict.rs`, `restore.rs`.

use super::driver::{Context, Driver, Lane};
use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ptr::NonNull;
use turnus_bindings::{CUerror, types::CUdevice};

/// Pinned buffers of one lane.
const SLOTS: usize = 4;
/// Longest pinned buffer: long enough for the link's full rate, short enough to cost little.
const SLOT_BYTES_MAX: u64 = 4 << 20;

/// One lane for each device, in a context that lives.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: BTreeMap<CUdevice, Lane>,
}

impl Lanes {
    /// Makes the device's lane in `context`, unless it has one.
    pub(crate) fn ensure(
        &mut self,
        driver: &dyn Driver,
        ordinal: CUdevice,
        context: Context,
        frame_bytes: u64,
    ) -> Result<(), CUerror> {
        if let Entry::Vacant(entry) = self.lanes.entry(ordinal) {
            let slot_bytes = SLOT_BYTES_MAX.min(frame_bytes) as usize;
            entry.insert(driver.open_lane(context, SLOTS, slot_bytes)?);
        }
        Ok(())
    }

    /// The device's lane, if it has one.
    pub(crate) fn get(&self, ordinal: CUdevice) -> Option<&Lane> {
        self.lanes.get(&ordinal)
    }

    /// Takes the lanes out of a context.
    pub(crate) fn close(&mut self, driver: &dyn Driver, context: Context) {
        let ordinals: Vec<CUdevice> = self
            .lanes
            .iter()
            .filter(|(_, lane)| lane.context == context)
            .map(|(&ordinal, _)| ordinal)
            .collect();
        for lane in ordinals.iter().filter_map(|ordinal| self.lanes.remove(ordinal)) {
            driver.close_lane(lane);
        }
    }
}

/// Bytes to be moved between the device and host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task<P> {
    /// What the mover knows it by.
    pub(crate) place: P,
    /// Where on the device; accessible.
    pub(crate) address: u64,
    /// Where in host memory; nobody else touches it until the task is done or given up.
    pub(crate) host: NonNull<u8>,
    /// How many.
    pub(crate) bytes: u64,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the device.
    Out,
    /// To the device.
    In,
}

/// Who knows what is to be moved.
pub(crate) trait Mover<P> {
    /// The next task, or none for now.
    fn next(&mut self) -> Option<Task<P>>;
    /// All bytes of the task have arrived.
    fn done(&mut self, task: Task<P>);
    /// The task failed or was never finished; nothing of it is under way any more.
    fn give_up(&mut self, task: Task<P>);
}

#[derive(Debug)]
struct Chunk<P> {
    task: Task<P>,
    offset: u64,
    bytes: usize,
    slot: usize,
    is_last: bool,
}

/// Moves all tasks of `mover`. On an error nothing is under way any more, and all tasks that were
/// begun and not done have been given up.
pub(crate) fn pump<P: Copy>(
    driver: &dyn Driver,
    lane: &Lane,
    direction: Direction,
    mover: &mut dyn Mover<P>,
) -> Result<(), CUerror> {
    let mut pump = Pump { driver, lane, direction, under_way: VecDeque::new(), next_slot: 0 };
    let mut begun = None;
    let result = pump.run(mover, &mut begun);
    if result.is_err() {
        pump.abandon(mover, begun);
    }
    result
}

struct Pump<'a, P> {
    driver: &'a dyn Driver,
    lane: &'a Lane,
    direction: Direction,
    under_way: VecDeque<Chunk<P>>,
    next_slot: usize,
}

impl<P: Copy> Pump<'_, P> {
    /// `begun` is the task of which some chunks are still to be issued.
    fn run(&mut self, mover: &mut dyn Mover<P>, begun: &mut Option<Task<P>>) -> Result<(), CUerror> {
        loop {
            let Some(task) = mover.next() else {
                // The link must not idle behind the mover's back: finish, then ask once more.
                if self.under_way.is_empty() {
                    return Ok(());
                }
                self.finish_oldest(mover)?;
                continue;
            };
            *begun = Some(task);
            let mut offset = 0;
            while offset < task.bytes {
                if self.under_way.len() == self.lane.slots.len() {
                    self.finish_oldest(mover)?;
                }
                let bytes = (task.bytes - offset).min(self.lane.slot_bytes as u64) as usize;
                let is_last = offset + bytes as u64 == task.bytes;
                let chunk = Chunk { task, offset, bytes, slot: self.next_slot, is_last };
                self.start(&chunk)?;
                self.next_slot = (self.next_slot + 1) % self.lane.slots.len();
                self.under_way.push_back(chunk);
                offset += bytes as u64;
            }
            *begun = None;
        }
    }

    fn start(&self, chunk: &Chunk<P>) -> Result<(), CUerror> {
        let address = chunk.task.address + chunk.offset;
        match self.direction {
            Direction::Out => self.driver.copy_out(self.lane, chunk.slot, address, chunk.bytes),
            Direction::In => {
                self.copy_host(chunk);
                self.driver.copy_in(self.lane, chunk.slot, address, chunk.bytes)
            }
        }
    }

    fn finish_oldest(&mut self, mover: &mut dyn Mover<P>) -> Result<(), CUerror> {
        let Some(chunk) = self.under_way.front() else { return Ok(()) };
        self.driver.wait(self.lane, chunk.slot)?;
        if self.direction == Direction::Out {
            self.copy_host(chunk);
        }
        if let Some(chunk) = self.under_way.pop_front()
            && chunk.is_last
        {
            mover.done(chunk.task);
        }
        Ok(())
    }

    fn copy_host(&self, chunk: &Chunk<P>) {
        let buffer = self.lane.slots[chunk.slot].buffer;
        // SAFETY: the buffer has `slot_bytes` bytes and no copy of the driver's uses it now (it is
        // not under way, or was waited for); the host bytes are the task's alone; they are two
        // different mappings.
        unsafe {
            let host = chunk.task.host.as_ptr().add(chunk.offset as usize);
            match self.direction {
                Direction::Out => std::ptr::copy_nonoverlapping(buffer, host, chunk.bytes),
                Direction::In => std::ptr::copy_nonoverlapping(host, buffer, chunk.bytes),
            }
        }
    }

    /// After an error: waits for all buffers, so that nothing writes behind our back, and gives up
    /// what was begun. If even waiting fails, the context is dead and copies nothing.
    fn abandon(&mut self, mover: &mut dyn Mover<P>, begun: Option<Task<P>>) {
        for slot in 0..self.lane.slots.len() {
            let _ = self.driver.wait(self.lane, slot);
        }
        let under_way = std::mem::take(&mut self.under_way);
        let unfinished = under_way.into_iter().filter(|chunk| chunk.is_last).map(|chunk| chunk.task);
        for task in unfinished.chain(begun) {
            mover.give_up(task);
        }
    }
}
