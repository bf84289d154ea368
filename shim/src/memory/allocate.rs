//! Allocating and freeing: any thread, any time, no frame is touched.
//!
//! An allocation is admitted by the daemon, gets addresses, and is entered; its frames come when the
//! next call passes the gate. Freeing waits for running work as the driver's own does, and leaves
//! the frames to the worker. Read next: `table.rs`, `restore.rs`.

use super::Memory;
use super::driver::Context;
use super::ranges::Ranges;
use super::state::State;
use super::table::{Allocation, Block};
use turnus_bindings::{CUerror, CUresult, types::CUdevice};
use turnus_protocol::DeviceUuid;

/// Pitches are multiples of this at least, as the driver's are.
const PITCH_BYTES: u64 = 512;

/// What a new block is for.
#[derive(Debug, Clone, Copy)]
struct Request {
    ordinal: CUdevice,
    uuid: DeviceUuid,
    context: Context,
    /// What the program asked for.
    bytes: u64,
    /// What it takes in frames.
    block_bytes: u64,
    /// What it takes in a slab, if it is small.
    part_bytes: Option<u64>,
}

impl Request {
    /// Enters the allocation at the front of a block that has just become live.
    fn enter(&self, state: &mut State, base: u64) -> u64 {
        state.add_allocation(base, self.bytes, base, self.context, self.ordinal);
        base
    }

    /// The slab of a new block, in which this request has the front.
    fn slab(&self) -> Option<Ranges> {
        self.part_bytes.map(|bytes| {
            let mut ranges = Ranges::new(self.block_bytes);
            ranges.take(bytes);
            ranges
        })
    }
}

impl Memory {
    /// Allocates in the calling thread's context. `None`: it has no context whose device we manage.
    pub(crate) fn allocate(&self, bytes: u64) -> Option<Result<u64, CUerror>> {
        let (context, ordinal) = self.driver.current()?;
        self.allocate_in(context, ordinal, bytes)
    }

    /// Rows of `width` bytes, each beginning at a multiple of the answered pitch.
    pub(crate) fn allocate_pitch(&self, width: u64, height: u64) -> Option<Result<(u64, u64), CUerror>> {
        let (context, ordinal) = self.driver.current()?;
        let alignment = self.driver.pitch_alignment(ordinal).unwrap_or(PITCH_BYTES).max(PITCH_BYTES);
        let pitch = width.checked_next_multiple_of(alignment);
        let Some((pitch, bytes)) = pitch.and_then(|pitch| Some((pitch, pitch.checked_mul(height)?))) else {
            return Some(Err(CUerror::OUT_OF_MEMORY));
        };
        let answer = self.allocate_in(context, ordinal, bytes)?;
        Some(answer.map(|address| (address, pitch)))
    }

    fn allocate_in(&self, context: Context, ordinal: CUdevice, bytes: u64) -> Option<Result<u64, CUerror>> {
        let mut state = self.state();
        let device = state.device(ordinal)?;
        let (uuid, part_bytes) = (device.uuid, device.slab_part_bytes(bytes));
        let Some(block_bytes) = device.block_bytes(bytes) else {
            return Some(Err(CUerror::OUT_OF_MEMORY));
        };
        state.add_context(ordinal, context);
        if let Some(part_bytes) = part_bytes
            && let Some((block, address)) = state.table.take_from_slab(ordinal, part_bytes)
        {
            state.add_allocation(address, bytes, block, context, ordinal);
            return Some(Ok(address));
        }
        drop(state);
        let request = Request { ordinal, uuid, context, bytes, block_bytes, part_bytes };
        match self.allocate_block(request) {
            // The daemon has refused the program for good while it was asked: the driver's business.
            Err(_) if super::is_forgotten() => None,
            answer => Some(answer),
        }
    }

    /// Asks the daemon, then the driver; asks again if a daemon that does not know of the answer
    /// has taken over in between.
    fn allocate_block(&self, request: Request) -> Result<u64, CUerror> {
        let mut addresses = None;
        let answer = loop {
            let connection = match self.scheduler.reserve(request.uuid, request.block_bytes) {
                Ok(connection) => connection,
                Err(reason) => {
                    let word = reason.map_or("daemon-missing", |reason| reason.word());
                    crate::message::debug(|| format!("{word}: {} bytes were refused", request.bytes));
                    break Err(CUerror::OUT_OF_MEMORY);
                }
            };
            if let Some(address) = self.enter(&request, connection, &mut addresses) {
                break Ok(address);
            }
            if addresses.is_none() {
                match self.driver.reserve(request.block_bytes, 0) {
                    Ok(base) => addresses = Some(base),
                    Err(error) => {
                        self.take_back(&request, connection);
                        break Err(error);
                    }
                }
                if let Some(address) = self.enter(&request, connection, &mut addresses) {
                    break Ok(address);
                }
            }
        };
        if let Some(base) = addresses {
            self.state().table.retire(base, request.block_bytes);
        }
        self.give_back_addresses();
        answer
    }

    /// Enters an admitted request into a cached block or at `addresses`; `None` if there is neither
    /// or if the daemon that admitted it has been replaced.
    fn enter(&self, request: &Request, connection: u64, addresses: &mut Option<u64>) -> Option<u64> {
        let mut state = self.state();
        if !state.is_connection(connection) {
            return None;
        }
        if let Some(base) = state.table.adopt(request.ordinal, request.block_bytes, request.slab()) {
            return Some(request.enter(&mut state, base));
        }
        let base = addresses.take()?;
        state.add_block(request.ordinal, base, request.block_bytes, request.slab());
        self.scheduler.frames_missing();
        Some(request.enter(&mut state, base))
    }

    /// The driver has no addresses for what the daemon has admitted.
    fn take_back(&self, request: &Request, connection: u64) {
        let state = self.state();
        if state.is_connection(connection) {
            let (device, bytes) = (request.uuid, request.block_bytes);
            self.scheduler.send(turnus_protocol::ClientMessage::Unreserve { device, bytes });
        }
    }

    /// Frees the allocation that begins at this address; `None` if there is none.
    pub(crate) fn free(&self, address: u64) -> Option<CUresult> {
        let mut state = self.state();
        let allocation = state.table.remove_allocation(address)?;
        let has_frames =
            |block: &Block| block.frames.iter().any(|frame| frame.is_moving || frame.resident_bytes() > 0);
        let may_be_in_use = state.table.block(allocation.block).is_some_and(has_frames);
        let contexts = state.device(allocation.ordinal).map_or(Vec::new(), |device| device.contexts.clone());
        drop(state);
        if !may_be_in_use {
            self.finish_free(&[allocation], true);
            return Some(Ok(()));
        }
        if self.scheduler.capture_is_open() {
            // Waiting would break the capture. The next free or drain that waits will do for both.
            self.finish_free(&[allocation], false);
            return Some(Ok(()));
        }
        // The wait serves also for what was freed without one, but not for what others free
        // meanwhile: younger work may touch that.
        let last = self.state().last_freeing();
        let result = self.synchronise_all(&contexts);
        if result.is_ok() {
            self.state().promote_freed(&*self.scheduler, allocation.ordinal, last);
        }
        let ordinal = allocation.ordinal;
        self.finish_free(&[allocation], result.is_ok());
        if result.is_ok() {
            // What fails here is tried again by the worker.
            let _ = self.shrink_cache(ordinal);
            self.give_back_addresses();
        }
        Some(result)
    }

    /// A context was destroyed or reset: what was allocated in it is gone, as with the driver.
    pub(crate) fn context_gone(&self, context: Context) {
        let mut state = self.state();
        state.remove_context(context);
        let addresses = state.table.allocations_of(context);
        let removed: Vec<Allocation> =
            addresses.into_iter().filter_map(|address| state.table.remove_allocation(address)).collect();
        drop(state);
        self.finish_free(&removed, true);
        self.scheduler.wake_worker();
    }

    fn finish_free(&self, allocations: &[Allocation], is_synchronised: bool) {
        let mut state = self.state();
        for allocation in allocations {
            state.free(&*self.scheduler, allocation, is_synchronised);
        }
        drop(state);
        self.give_back_addresses();
        self.scheduler.wake_worker();
    }

    /// Waits for all work of these contexts. One that the program has destroyed has none left.
    pub(super) fn synchronise_all(&self, contexts: &[Context]) -> CUresult {
        for &context in contexts {
            match self.driver.synchronise(context) {
                Ok(()) | Err(CUerror::INVALID_CONTEXT | CUerror::CONTEXT_IS_DESTROYED) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives addresses back to the driver in which nothing is mapped any more. What it refuses is
    /// tried again the next time.
    pub(super) fn give_back_addresses(&self) {
        let retired = self.state().table.take_retired();
        for (base, bytes) in retired {
            if self.driver.unreserve(base, bytes).is_err() {
                self.state().table.retire(base, bytes);
            }
        }
    }

    /// The allocation that contains this address.
    pub(crate) fn find(&self, address: u64) -> Option<Allocation> {
        self.state().table.find(address).cloned()
    }
}
