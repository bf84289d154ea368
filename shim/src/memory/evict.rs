//! Giving up frames, with their bytes saved first.
//!
//! Only after a drain: nothing runs, nothing passes the gate. Cached frames of freed blocks go
//! first, then frames whose bytes are not on the device anyway, then the others from the highest
//! address down. A frame is unmapped only when its last byte has arrived in host memory and no copy
//! is under way; so a few are saved, then given up together, and their credits go back at once, so
//! that who waits for them need not wait for the rest.

use super::Memory;
use super::frames::{Content, Rung};
use super::lane::{Direction, Lanes, Mover, Task, pump};
use super::restore::Credit;
use super::segments::Span;
use super::table::{Life, Place};
use turnus_bindings::{CUerror, types::CUdevice};
use turnus_protocol::{ClientMessage, DeviceUuid};

/// What became of an order to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// Frames that are gone; their credits have been returned.
    pub(crate) returned_bytes: u64,
    /// If that is less than was asked for: frames that are left because they cannot move now.
    pub(crate) pinned_bytes: u64,
    /// What the driver answered, if it failed. The bytes are where they were.
    pub(crate) error: Option<CUerror>,
}

impl Memory {
    /// Gives up frames of at least this many bytes. Only the worker, only after a drain.
    pub(crate) fn evict(&self, uuid: DeviceUuid, bytes: u64) -> Evicted {
        let mut lanes = self.lanes();
        let found = self.state().ordinal_of(uuid);
        let Some(ordinal) = found else {
            return Evicted { returned_bytes: 0, pinned_bytes: 0, error: None };
        };
        let mut state = self.state();
        state.is_quiet = true;
        state.promote_freed(&*self.scheduler, ordinal, u64::MAX);
        drop(state);
        let mut evicting = Evicting::new(self, ordinal, bytes);
        evicting.evict_cached();
        evicting.evict_live(&mut lanes);
        let Evicting { returned_bytes, copied_bytes, error, .. } = evicting;
        drop(lanes);
        self.give_back_addresses();
        let state = self.state();
        if returned_bytes > 0 {
            state.report_move(&*self.scheduler, ordinal, copied_bytes, 0);
        }
        let left_bytes =
            state.device(ordinal).map_or(0, |device| state.claim(ordinal, device).resident_bytes);
        let pinned_bytes = if returned_bytes < bytes { left_bytes } else { 0 };
        Evicted { returned_bytes, pinned_bytes, error }
    }
}

/// Whole frames that are saved before they are given up together: the copies pause for it.
const BATCH_FRAMES: u64 = 4;

struct Evicting<'a> {
    memory: &'a Memory,
    ordinal: CUdevice,
    wanted_bytes: u64,
    /// Frames that have been begun with.
    planned_bytes: u64,
    returned_bytes: u64,
    copied_bytes: u64,
    /// Frames from this address on have been looked at.
    cursor: u64,
    /// Where the bytes of tasks under way go, in the order in which they were begun.
    spans: Vec<(Place, Span)>,
    /// Frames that are saved and not yet given up, and their bytes.
    saved: Vec<Place>,
    saved_bytes: u64,
    batch_bytes: u64,
    error: Option<CUerror>,
}

impl<'a> Evicting<'a> {
    fn new(memory: &'a Memory, ordinal: CUdevice, wanted_bytes: u64) -> Evicting<'a> {
        Evicting {
            memory,
            ordinal,
            wanted_bytes,
            planned_bytes: 0,
            returned_bytes: 0,
            copied_bytes: 0,
            cursor: u64::MAX,
            spans: Vec::new(),
            saved: Vec::new(),
            saved_bytes: 0,
            batch_bytes: 0,
            error: None,
        }
    }

    /// Frames of freed blocks: nobody misses what is in them.
    fn evict_cached(&mut self) {
        while self.returned_bytes < self.wanted_bytes {
            let picked = self.memory.state().table.pick_freed(self.ordinal, |block, _| block.is_reusable());
            let Some(place) = picked else { break };
            if !self.give_up_frame(place) {
                break;
            }
        }
        self.planned_bytes = self.returned_bytes;
    }

    /// The program's own frames.
    fn evict_live(&mut self, lanes: &mut Lanes) {
        if self.planned_bytes >= self.wanted_bytes {
            return;
        }
        let frame_bytes = self.memory.state().device(self.ordinal).map_or(0, |device| device.frame_bytes);
        self.batch_bytes = frame_bytes * BATCH_FRAMES;
        // Without a living context there is nothing to copy with; the frames stay where they are.
        let moved = match self.memory.open_lane(lanes, self.ordinal) {
            Ok(Some(lane)) => {
                let context = lane.context;
                let moved = pump(&*self.memory.driver, lane, Direction::Out, self);
                if let Err(error) = moved {
                    // The next order finds another context, if there is one.
                    self.memory.is_lost(lanes, context, error);
                }
                moved
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        self.give_up_saved();
        self.error = moved.err().or(self.error);
    }

    /// Nothing is under way: frames whose bytes have arrived go.
    fn give_up_saved(&mut self) {
        self.saved_bytes = 0;
        for place in std::mem::take(&mut self.saved) {
            self.give_up_frame(place);
        }
    }

    /// Takes a moving frame, whose bytes are not needed, down. False: the driver failed.
    fn give_up_frame(&mut self, place: Place) -> bool {
        let bytes = self.memory.locate(place).map_or(0, |(_, _, bytes)| bytes);
        let result = self.memory.descend(place, Credit::Return);
        self.memory.state().stop_moving(place);
        match result {
            Ok(()) => self.returned_bytes += bytes,
            Err(error) => self.error = Some(error),
        }
        result.is_ok()
    }

    /// Marks the highest frame below the cursor as moving. True: its bytes must be saved.
    fn pick(&mut self) -> Option<(Place, u64, u64, bool)> {
        let submissions = self.memory.scheduler.submissions();
        let mut state = self.memory.state();
        let cursor = self.cursor;
        let place = state.table.blocks_of(self.ordinal).rev().find_map(|(base, block)| {
            if block.life != Life::Live || base >= cursor {
                return None;
            }
            let is_wanted = |frame: &super::frames::Frame| {
                base + frame.offset < cursor && frame.rung != Rung::None && !frame.is_moving
            };
            let index = block.frames.iter().rposition(is_wanted)?;
            Some(Place { block: base, index })
        })?;
        let frame = state.table.frame_mut(place)?;
        frame.is_moving = true;
        if let Content::Device { unwritten_since } = frame.content
            && unwritten_since.is_some()
            && unwritten_since == submissions
        {
            frame.content = Content::Unwritten;
        }
        let is_needed = matches!(frame.content, Content::Device { .. });
        self.cursor = place.block + frame.offset;
        Some((place, self.cursor, frame.bytes, is_needed))
    }

    /// Host memory for a frame, leased if need be: at first as much as the order will need, so that
    /// small frames share a segment, then just enough.
    fn find_host(&self, bytes: u64) -> Option<Span> {
        if let Some(span) = self.memory.state().segments.take(bytes) {
            return Some(span);
        }
        let frame_bytes = self.memory.state().device(self.ordinal).map_or(bytes, |device| device.frame_bytes);
        let ahead_bytes =
            self.wanted_bytes.saturating_sub(self.planned_bytes).clamp(bytes, frame_bytes.max(bytes));
        let generous = ahead_bytes.next_multiple_of(bytes).min(frame_bytes.max(bytes));
        let lease = match self.memory.scheduler.lease(generous) {
            None if generous > bytes => self.memory.scheduler.lease(bytes),
            answer => answer,
        }?;
        let mut state = self.memory.state();
        let segment = lease.segment;
        if !state.is_connection(lease.connection) {
            // The daemon that made it is gone, and the next one was not told of it.
            return None;
        }
        if !state.segments.add(lease) {
            self.memory.scheduler.send(ClientMessage::SegmentReturned { segment });
            return None;
        }
        state.segments.take(bytes)
    }

    fn take_span(&mut self, place: Place) -> Option<Span> {
        let index = self.spans.iter().position(|(known, _)| *known == place)?;
        Some(self.spans.swap_remove(index).1)
    }
}

impl Mover<Place> for Evicting<'_> {
    fn next(&mut self) -> Option<Task<Place>> {
        while self.planned_bytes < self.wanted_bytes {
            if self.saved_bytes >= self.batch_bytes {
                if !self.spans.is_empty() {
                    return None;
                }
                self.give_up_saved();
            }
            let (place, address, bytes, is_needed) = self.pick()?;
            if !is_needed {
                self.planned_bytes += bytes;
                self.saved.push(place);
                self.saved_bytes += bytes;
                continue;
            }
            let Some(span) = self.find_host(bytes) else {
                self.memory.state().stop_moving(place);
                self.cursor = 0;
                return None;
            };
            self.planned_bytes += bytes;
            let host = span.address();
            self.spans.push((place, span));
            return Some(Task { place, address, host, bytes });
        }
        None
    }

    fn done(&mut self, task: Task<Place>) {
        self.copied_bytes += task.bytes;
        if let Some(span) = self.take_span(task.place) {
            self.memory.state().set_content(task.place, Content::Host(span));
            self.saved.push(task.place);
            self.saved_bytes += task.bytes;
        }
    }

    fn give_up(&mut self, task: Task<Place>) {
        let span = self.take_span(task.place);
        let mut state = self.memory.state();
        if let Some(span) = span {
            state.segments.give(span);
        }
        state.stop_moving(task.place);
    }
}
