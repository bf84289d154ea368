//! Frames under a stable address: the program's device memory, there in its turns, elsewhere between.
//!
//! An allocation is a reservation of addresses for its whole life; the frames behind it come, go to
//! host memory, and come back. Nothing here decides when: the worker calls [`Memory::evict`] after
//! a drain and [`Memory::restore`] during a turn. No lock is held while the driver copies or the
//! daemon thinks. This module knows the driver only by [`Driver`] and the daemon only by
//! [`Scheduler`], so that tests can fail every step of both.
//!
//! | called by | what |
//! |---|---|
//! | hooks, any thread | `calls::*`: `None` means "not ours, forward to the driver" |
//! | hooks of copies and fills, any thread | `bounds::*`: an error means "the driver would refuse this range" |
//! | context hooks, any thread | [`Memory::context_created`], [`Memory::context_leaving`] (before), [`Memory::context_gone`] or [`Memory::context_stays`] (after) |
//! | the thread that reads the socket | [`Memory::turn_began`], [`Memory::turn_ended`], [`Memory::credits_arrived`], [`Memory::with_claims`] |
//! | the worker only | [`Memory::restore`], [`Memory::evict`], [`Memory::tidy`], [`Memory::synchronised`], [`Memory::if_complete`] |
//!
//! Read next: `table.rs` (what is known about addresses), `frames.rs` (the ladder that a frame
//! climbs and descends), `restore.rs` and `evict.rs` (who moves it), `segments.rs`, `lane.rs`.

mod allocate;
pub(crate) mod bounds;
mod cache;
pub(crate) mod calls;
mod driver;
mod evict;
mod extents;
mod frames;
mod info;
mod lane;
mod ledger;
mod pointers;
mod ranges;
mod real_driver;
mod restore;
mod segments;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod tidy;

pub(crate) use driver::{Context, Driver};
pub(crate) use real_driver::RealDriver;

use extents::Extents;
use lane::Lanes;
use state::State;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use turnus_bindings::{CUerror, types::CUdevice};
use turnus_protocol::{ClientMessage, DeviceUuid, Reason, SegmentId};

/// What the memory needs from the rest of the shim: the daemon's answers and the gate.
///
/// `send`, `frames_missing`, `wake_worker`, `capture_is_open` and `submissions` are called with the
/// memory's lock held: they must neither block nor call back.
pub(crate) trait Scheduler: Send + Sync {
    /// Asks the daemon to admit this many more virtual bytes and waits for the answer, without any
    /// lock of the memory's. `Ok` carries the number of the connection that answered, see
    /// [`Memory::with_claims`]. `None` as the reason: there is no daemon and none is waited for.
    fn reserve(&self, device: DeviceUuid, bytes: u64) -> Result<u64, Option<Reason>>;
    /// Total and free bytes as the program is to see them; `None` when no daemon answers.
    fn query(&self, device: DeviceUuid) -> Option<(u64, u64)>;
    /// A new host segment; `None` when it was refused or the daemon is lost. Called by the worker.
    fn lease(&self, bytes: u64) -> Option<Lease>;
    /// Queues a message; drops it when the daemon is lost.
    fn send(&self, message: ClientMessage);
    /// There are allocated bytes without frames: from here on no call passes the gate before the
    /// worker has restored (`Gate::set_ready(READY_FOR_NONE)`; the program cannot yet know the new
    /// address, so no barrier is needed).
    fn frames_missing(&self);
    /// There is something for [`Memory::tidy`] to do.
    fn wake_worker(&self);
    /// Whether a stream of this process is in capture: then nothing may be synchronised.
    fn capture_is_open(&self) -> bool;
    /// How many calls have passed the gate, if every call that can write device memory is gated
    /// (then bytes that nothing was submitted after are known to be unwritten); else `None`.
    fn submissions(&self) -> Option<u64>;
}

/// A host segment that the daemon has leased to this process.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The daemon's number for it.
    pub(crate) segment: SegmentId,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// The sealed memfd.
    pub(crate) descriptor: OwnedFd,
    /// The connection that brought it, see [`Memory::with_claims`].
    pub(crate) connection: u64,
}

/// What this process holds on one device, for a daemon that has forgotten it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceClaim {
    /// Which device.
    pub(crate) device: DeviceUuid,
    /// Admitted and not freed.
    pub(crate) virtual_bytes: u64,
    /// Frames that exist, whatever they hold.
    pub(crate) resident_bytes: u64,
    /// Saved in host segments.
    pub(crate) host_bytes: u64,
    /// Resident and not movable.
    pub(crate) pinned_bytes: u64,
}

/// Everything this process holds.
#[derive(Debug)]
pub(crate) struct Claims<'a> {
    /// One for each device, in the order of their UUIDs.
    pub(crate) devices: Vec<DeviceClaim>,
    /// Each leased segment, its size and its descriptor.
    pub(crate) segments: Vec<(SegmentId, u64, BorrowedFd<'a>)>,
}

/// The memory of this process. One for the process; tests make their own.
pub(crate) struct Memory {
    driver: Box<dyn Driver>,
    scheduler: Box<dyn Scheduler>,
    /// Bookkeeping. Held for short, never across a driver call that waits or an answer of the daemon.
    state: Mutex<State>,
    /// Where the allocations in the table end; readable without the lock above.
    extents: Arc<Extents>,
    /// Streams and pinned buffers; who holds this lock is the only one to move frames.
    lanes: Mutex<Lanes>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Memory").finish_non_exhaustive()
    }
}

static MEMORY: OnceLock<Memory> = OnceLock::new();
static IS_FORGOTTEN: AtomicBool = AtomicBool::new(false);

/// The memory of this process; `None` in pass-through mode and in a forked child.
pub(crate) fn get() -> Option<&'static Memory> {
    if is_forgotten() { None } else { MEMORY.get() }
}

/// See [`forget`].
fn is_forgotten() -> bool {
    IS_FORGOTTEN.load(Ordering::Relaxed)
}

/// Takes over the program's device memory from here on. `handle_bytes` is the daemon's setting.
/// A second call changes nothing.
pub(crate) fn install(driver: Box<dyn Driver>, scheduler: Box<dyn Scheduler>, handle_bytes: u64) {
    let _ = MEMORY.get_or_init(|| Memory::new(driver, scheduler, handle_bytes));
}

/// No longer ours: in the child of a fork, whose frames are the parent's, and where the daemon has
/// refused the program for good (then nothing of it is in our frames).
pub(crate) fn forget() {
    IS_FORGOTTEN.store(true, Ordering::Relaxed);
}

impl Memory {
    /// A memory in which nothing is allocated.
    pub(crate) fn new(driver: Box<dyn Driver>, scheduler: Box<dyn Scheduler>, handle_bytes: u64) -> Memory {
        let state = State::new(handle_bytes);
        Memory {
            driver,
            scheduler,
            extents: state.table.extents(),
            state: Mutex::new(state),
            lanes: Mutex::new(Lanes::default()),
        }
    }

    /// Whether the program has nothing allocated here.
    pub(crate) fn is_unused(&self) -> bool {
        self.state().table.has_no_allocations()
    }

    /// A context of this device was found. Called again for a known one it changes nothing.
    /// An error is the driver's: the device's memory then stays with the driver.
    pub(crate) fn context_created(
        &self,
        context: Context,
        ordinal: CUdevice,
        uuid: DeviceUuid,
    ) -> Result<(), CUerror> {
        let is_known = self.state().device(ordinal).is_some();
        if !is_known {
            let granule_bytes = self.driver.granularity(ordinal)?;
            let total_bytes = self.driver.total(ordinal)?;
            self.state().add_device(ordinal, uuid, granule_bytes, total_bytes);
        }
        self.state().add_context(ordinal, context);
        self.scheduler.wake_worker();
        Ok(())
    }

    /// Before a context is destroyed or reset: our stream and buffers leave it. Waits for a move
    /// that is under way. If the context lives on, they come back when they are needed.
    pub(crate) fn context_leaving(&self, context: Context) {
        // First, so that no lane is made in it any more: one that was would go with the context.
        self.state().leaving.insert(context);
        self.lanes().close(&*self.driver, context);
    }

    /// After [`Memory::context_leaving`]: the context was not destroyed.
    pub(crate) fn context_stays(&self, context: Context) {
        self.state().leaving.remove(&context);
        self.scheduler.wake_worker();
    }

    /// All members of the tenant may submit: credits may be asked for.
    pub(crate) fn turn_began(&self) {
        self.state().set_in_turn(true);
    }

    /// The turn is over: what was wanted is forgotten, credits without frames go back.
    pub(crate) fn turn_ended(&self) {
        let mut state = self.state();
        state.set_in_turn(false);
        state.return_all_credits(&*self.scheduler);
    }

    /// The daemon allows this many more bytes of frames. Without a turn they go back at once.
    pub(crate) fn credits_arrived(&self, uuid: DeviceUuid, bytes: u64) {
        self.state().credits_arrived(&*self.scheduler, uuid, bytes);
    }

    /// Calls `act` with what this process holds, while none of it can change and no message of the
    /// memory's can be sent: the place to switch to a new connection. Credits without frames and
    /// wants are dropped. `connection` is what [`Scheduler::reserve`] answers from here on.
    pub(crate) fn with_claims<R>(&self, connection: u64, act: impl FnOnce(Claims<'_>) -> R) -> R {
        let mut state = self.state();
        state.drop_credits(connection);
        act(state.claims())
    }

    /// What this process holds on one device; changes nothing.
    pub(crate) fn holdings(&self, uuid: DeviceUuid) -> Option<DeviceClaim> {
        let state = self.state();
        let ordinal = state.ordinal_of(uuid)?;
        state.device(ordinal).map(|device| state.claim(ordinal, device))
    }

    /// Calls `act` if every allocated byte of every device has its frame and its content, while
    /// that cannot change: the place to declare readiness. `None` says: let the worker restore
    /// (perhaps it finds nothing to do), then ask again there.
    pub(crate) fn if_complete<R>(&self, act: impl FnOnce() -> R) -> Option<R> {
        let mut state = self.state();
        let is_complete = !state.is_tidying && state.is_complete();
        is_complete.then(|| {
            state.is_quiet = false;
            act()
        })
    }

    /// The devices on which frames are missing.
    pub(crate) fn incomplete_devices(&self) -> Vec<DeviceUuid> {
        self.state().incomplete_devices()
    }

    /// All work of all contexts has finished, and the gate is closed so that none has begun since:
    /// what was freed without waiting for it may be used again.
    pub(crate) fn synchronised(&self) {
        let mut state = self.state();
        state.is_quiet = true;
        for ordinal in state.ordinals() {
            state.promote_freed(&*self.scheduler, ordinal, u64::MAX);
        }
        drop(state);
        self.scheduler.wake_worker();
        self.give_back_addresses();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
