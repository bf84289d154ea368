//! Making allocated bytes touchable: frames for what has none, content for what lies on the host.
//!
//! Goes through the frames in the order of their addresses, as far as the credits reach; asks for
//! what is lacking; is called again when more has come. Frames of freed blocks are used first, see
//! `cache.rs`. A step that fails leaves its frame on the rung where it was, with its bytes where they were, and
//! the next call goes on from there: nothing is lost and the program sees nothing.

use super::Memory;
use super::driver::{Context, Handle, Lane};
use super::frames::{Content, Rung};
use super::lane::{Direction, Lanes, Mover, Task, pump};
use super::table::{Life, Place};
use turnus_bindings::{CUerror, types::CUdevice};
use turnus_protocol::{ClientMessage, DeviceUuid};

/// How far a restore came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Allocated bytes that cannot be touched yet. Zero: this device is complete.
    pub(crate) missing_bytes: u64,
    /// What the driver answered, if it was not out of memory. Worth another try after a while,
    /// unless it sticks to the context.
    pub(crate) error: Option<CUerror>,
}

/// What becomes of the credit of a frame that is dissolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Credit {
    /// Back to the daemon.
    Return,
    /// For the next frame that is made.
    Keep,
}

/// Why a frame did not become accessible.
enum Stop {
    /// Credits, or memory for them, are lacking: they are asked for.
    Credits,
    /// The driver failed.
    Failed(CUerror),
}

impl Memory {
    /// Restores what the credits allow on this device. Only the worker, only during a turn.
    pub(crate) fn restore(&self, uuid: DeviceUuid) -> Progress {
        let mut lanes = self.lanes();
        let found = self.state().ordinal_of(uuid);
        let Some(ordinal) = found else {
            return Progress { missing_bytes: 0, error: None };
        };
        let (moved_bytes, error) = self.restore_frames(&mut lanes, ordinal);
        drop(lanes);
        self.give_back_addresses();
        self.conclude_restore(ordinal, moved_bytes, error)
    }

    fn restore_frames(&self, lanes: &mut Lanes, ordinal: CUdevice) -> (u64, Option<CUerror>) {
        let mut moved_bytes = 0;
        loop {
            match self.restore_once(lanes, ordinal, &mut moved_bytes) {
                Ok(true) => {}
                Ok(false) => return (moved_bytes, None),
                Err(error) => return (moved_bytes, Some(error)),
            }
        }
    }

    /// True: there was no memory, some was found in the cache, and another try is worth while.
    fn restore_once(
        &self,
        lanes: &mut Lanes,
        ordinal: CUdevice,
        moved_bytes: &mut u64,
    ) -> Result<bool, CUerror> {
        self.use_cache(ordinal)?;
        // Every frame is made with the lane open: one that must be filled may turn up any time.
        let Some(lane) = self.open_lane(lanes, ordinal)? else { return Ok(false) };
        let context = lane.context;
        let mut restoring =
            Restoring { memory: self, ordinal, cursor: 0, moved_bytes: 0, is_short: false, error: None };
        let copied = pump(&*self.driver, lane, Direction::In, &mut restoring);
        *moved_bytes += restoring.moved_bytes;
        if let Err(error) = copied {
            return if self.is_lost(lanes, context, error) { Ok(true) } else { Err(error) };
        }
        restoring.error.map_or(Ok(()), Err)?;
        if !restoring.is_short {
            return Ok(false);
        }
        if self.empty_cache(ordinal)? {
            return Ok(true);
        }
        // The daemon believes these numbers; without them it only knows that something is wrong.
        let numbers = match self.driver.memory_info(context) {
            Ok(numbers) => numbers,
            Err(error) if self.is_lost(lanes, context, error) => return Ok(true),
            Err(error) => return Err(error),
        };
        if let Some(device) = self.state().device_mut(ordinal) {
            device.ledger.short(&*self.scheduler, device.uuid, numbers);
        }
        Ok(false)
    }

    fn conclude_restore(&self, ordinal: CUdevice, to_device_bytes: u64, error: Option<CUerror>) -> Progress {
        let mut state = self.state();
        let in_turn = state.in_turn();
        let not_ready = state.table.live_frames(ordinal).filter(|frame| !frame.is_ready());
        let (mut missing_bytes, mut frameless_bytes) = (0, 0);
        for frame in not_ready {
            missing_bytes += frame.bytes;
            frameless_bytes += frame.bytes - frame.resident_bytes();
        }
        let cached = state.table.freed_blocks(ordinal).filter(|block| block.is_reusable());
        let cached_bytes: u64 =
            cached.flat_map(|block| &block.frames).map(|frame| frame.resident_bytes()).sum();
        if let Some(device) = state.device_mut(ordinal) {
            if missing_bytes == 0 {
                device.ledger.return_unspent(&*self.scheduler, device.uuid);
            } else if in_turn {
                let lacking_bytes = frameless_bytes.saturating_sub(cached_bytes);
                device.ledger.want(&*self.scheduler, device.uuid, lacking_bytes);
            }
        }
        if to_device_bytes > 0 {
            state.report_move(&*self.scheduler, ordinal, 0, to_device_bytes);
        }
        Progress { missing_bytes, error }
    }

    /// Takes a frame down to nothing. It is marked as moving, and stays on the rung where a step
    /// failed.
    pub(super) fn descend(&self, place: Place, credit: Credit) -> Result<(), CUerror> {
        let (ordinal, address, bytes) = self.locate(place)?;
        loop {
            match self.rung(place)? {
                Rung::None => return Ok(()),
                Rung::Mapped(handle) | Rung::Accessible(handle) => {
                    self.driver.unmap(address, bytes)?;
                    self.set_rung(place, Rung::Created(handle));
                }
                Rung::Created(handle) => {
                    self.driver.release(handle)?;
                    let mut state = self.state();
                    if let Some(frame) = state.table.frame_mut(place) {
                        frame.rung = Rung::None;
                    }
                    let in_turn = state.in_turn();
                    let Some(device) = state.device_mut(ordinal) else { return Ok(()) };
                    if credit == Credit::Keep && in_turn {
                        device.ledger.add(bytes);
                    } else {
                        self.scheduler.send(ClientMessage::CreditsReturned { device: device.uuid, bytes });
                    }
                }
            }
        }
    }

    /// The device's lane, in the oldest context that lives; `None` if there is none. One that the
    /// program destroyed behind our back is forgotten.
    pub(super) fn open_lane<'a>(
        &self,
        lanes: &'a mut Lanes,
        ordinal: CUdevice,
    ) -> Result<Option<&'a Lane>, CUerror> {
        loop {
            let state = self.state();
            let stays = |context: &&Context| !state.leaving.contains(*context);
            let found = state
                .device(ordinal)
                .and_then(|device| Some((*device.contexts.iter().find(stays)?, device.frame_bytes)));
            drop(state);
            let Some((context, frame_bytes)) = found else { return Ok(None) };
            match lanes.ensure(&*self.driver, ordinal, context, frame_bytes) {
                Ok(()) => return Ok(lanes.get(ordinal)),
                Err(CUerror::INVALID_CONTEXT | CUerror::CONTEXT_IS_DESTROYED) => {
                    self.state().remove_context(context);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The lane's context was destroyed behind our back, if the error says so: it is forgotten with
    /// its lane, and another one may serve.
    pub(super) fn is_lost(&self, lanes: &mut Lanes, context: Context, error: CUerror) -> bool {
        let is_lost = matches!(error, CUerror::INVALID_CONTEXT | CUerror::CONTEXT_IS_DESTROYED);
        if is_lost {
            self.state().remove_context(context);
            lanes.close(&*self.driver, context);
        }
        is_lost
    }

    /// Device, address and length of a frame that is marked as moving.
    pub(super) fn locate(&self, place: Place) -> Result<(CUdevice, u64, u64), CUerror> {
        let state = self.state();
        let block = state.table.block(place.block).ok_or(CUerror::INVALID_VALUE)?;
        let frame = block.frames.get(place.index).ok_or(CUerror::INVALID_VALUE)?;
        Ok((block.ordinal, place.block + frame.offset, frame.bytes))
    }

    pub(super) fn rung(&self, place: Place) -> Result<Rung, CUerror> {
        self.state().table.frame_mut(place).map(|frame| frame.rung).ok_or(CUerror::INVALID_VALUE)
    }

    pub(super) fn set_rung(&self, place: Place, rung: Rung) {
        if let Some(frame) = self.state().table.frame_mut(place) {
            frame.rung = rung;
        }
    }
}

struct Restoring<'a> {
    memory: &'a Memory,
    ordinal: CUdevice,
    /// Frames below this address have been looked at.
    cursor: u64,
    moved_bytes: u64,
    /// The driver has no memory although there is credit.
    is_short: bool,
    error: Option<CUerror>,
}

impl Restoring<'_> {
    /// Marks the next frame that is not ready as moving.
    fn pick(&mut self) -> Option<Place> {
        let mut state = self.memory.state();
        let cursor = self.cursor;
        let (place, next) = state.table.blocks_of(self.ordinal).find_map(|(base, block)| {
            if block.life != Life::Live || base + block.bytes <= cursor {
                return None;
            }
            let is_wanted = |frame: &super::frames::Frame| {
                base + frame.offset >= cursor && !frame.is_ready() && !frame.is_moving
            };
            let index = block.frames.iter().position(is_wanted)?;
            Some((Place { block: base, index }, base + block.frames[index].offset + 1))
        })?;
        self.cursor = next;
        state.table.frame_mut(place)?.is_moving = true;
        Some(place)
    }

    /// Takes a frame up to where the device can touch it.
    fn climb(&mut self, place: Place) -> Result<(), Stop> {
        let memory = self.memory;
        let (ordinal, address, bytes) = memory.locate(place).map_err(Stop::Failed)?;
        loop {
            match memory.rung(place).map_err(Stop::Failed)? {
                Rung::None => self.find_memory(place, bytes)?,
                Rung::Created(handle) => {
                    memory.driver.map(address, bytes, handle).map_err(Stop::Failed)?;
                    memory.set_rung(place, Rung::Mapped(handle));
                }
                Rung::Mapped(handle) => {
                    memory.driver.set_access(ordinal, address, bytes).map_err(Stop::Failed)?;
                    memory.set_rung(place, Rung::Accessible(handle));
                }
                Rung::Accessible(_) => return Ok(()),
            }
        }
    }

    /// Memory for a frame, if there is credit for it.
    fn find_memory(&mut self, place: Place, bytes: u64) -> Result<(), Stop> {
        if !self.with_ledger(|ledger, _, _| ledger.begin_spending(bytes)).unwrap_or(false) {
            return Err(Stop::Credits);
        }
        match self.memory.driver.create(self.ordinal, bytes) {
            Ok(handle) => {
                self.made(place, bytes, handle);
                Ok(())
            }
            Err(error) => Err(self.not_made(bytes, error)),
        }
    }

    fn made(&self, place: Place, bytes: u64, handle: Handle) {
        let mut state = self.memory.state();
        if let Some(frame) = state.table.frame_mut(place) {
            frame.rung = Rung::Created(handle);
        }
        if let Some(device) = state.device_mut(self.ordinal) {
            device.ledger.spent(bytes);
        }
    }

    fn not_made(&mut self, bytes: u64, error: CUerror) -> Stop {
        self.with_ledger(|ledger, in_turn, uuid| {
            ledger.not_spent(&*self.memory.scheduler, uuid, bytes, in_turn);
        });
        if error == CUerror::OUT_OF_MEMORY {
            self.is_short = true;
            return Stop::Credits;
        }
        Stop::Failed(error)
    }

    fn with_ledger<R>(
        &self,
        act: impl FnOnce(&mut super::ledger::Ledger, bool, DeviceUuid) -> R,
    ) -> Option<R> {
        let mut state = self.memory.state();
        let in_turn = state.in_turn();
        let device = state.device_mut(self.ordinal)?;
        let uuid = device.uuid;
        Some(act(&mut device.ledger, in_turn, uuid))
    }

    /// What an accessible frame still needs: bytes from the host, or nothing.
    fn task(&self, place: Place) -> Option<Task<Place>> {
        let mut state = self.memory.state();
        let frame = state.table.frame_mut(place)?;
        let (address, bytes) = (place.block + frame.offset, frame.bytes);
        if let Content::Host(span) = &frame.content {
            let host = span.address();
            return Some(Task { place, address, host, bytes });
        }
        // Work that runs already may be told the address by other means than a call.
        let unwritten_since = if state.is_quiet { self.memory.scheduler.submissions() } else { None };
        state.set_content(place, Content::Device { unwritten_since });
        state.stop_moving(place);
        None
    }
}

impl Mover<Place> for Restoring<'_> {
    fn next(&mut self) -> Option<Task<Place>> {
        if self.error.is_some() {
            return None;
        }
        while let Some(place) = self.pick() {
            match self.climb(place) {
                Ok(()) => {}
                Err(stop) => {
                    self.memory.state().stop_moving(place);
                    if let Stop::Failed(error) = stop {
                        self.error = Some(error);
                    }
                    self.cursor = u64::MAX;
                    return None;
                }
            }
            if let Some(task) = self.task(place) {
                return Some(task);
            }
        }
        None
    }

    fn done(&mut self, task: Task<Place>) {
        self.moved_bytes += task.bytes;
        let mut state = self.memory.state();
        state.set_content(task.place, Content::Device { unwritten_since: None });
        state.stop_moving(task.place);
    }

    fn give_up(&mut self, task: Task<Place>) {
        self.memory.state().stop_moving(task.place);
    }
}
