//! Contexts: what a `CUcontext` stands for, made and destroyed here.
//!
//! A context takes device memory and time, owns a queue (`execution`), allocations, modules, streams and
//! events, and gives all of it back when it is destroyed. Which one is current: `current.rs`; the one that
//! all users of a device share: `primary.rs`.

pub mod current;
pub mod limits;
mod local_memory;
pub mod primary;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_simulated_arena::{ChargeId, now_ns, sleep_until};

use crate::driver::{Driver, arena_error};
use crate::execution::ContextQueue;
use crate::registry::Registry;
use crate::space::{HostKind, Result};
use crate::tables::storage;
use crate::{arrays, module, stream, textures};

/// All living contexts.
pub static CONTEXTS: Registry<Arc<Context>> = Registry::new(1);

/// Flags that `cuCtxCreate` and `cuDevicePrimaryCtxSetFlags` take (`CU_CTX_FLAGS_MASK`).
pub const FLAGS_MASK: u32 = 0xff;
/// `CU_CTX_MAP_HOST`, which every context has on 64-bit systems.
pub const FLAG_MAP_HOST: u32 = 0x08;
/// The scheduling part of the flags (`CU_CTX_SCHED_MASK`).
const SCHEDULING_MASK: u32 = 0x07;

/// A CUDA context.
#[derive(Debug)]
pub struct Context {
    /// The handle the program has.
    pub handle: usize,
    /// Device on the machine.
    pub device: usize,
    /// Whether it is the primary context of its device.
    pub primary: bool,
    /// As given at creation or by `cuCtxSetFlags`.
    pub flags: AtomicU32,
    /// What `cuCtxGetApiVersion` reports.
    pub api_version: u32,
    /// Its work.
    pub queue: Arc<ContextQueue>,
    /// What `cuCtxSetLimit` set.
    pub limits: Mutex<limits::Limits>,
    /// Memory that its kernels allocate, once a module of it can.
    pub heap: Mutex<Option<module::system::Heap>>,
    /// Local memory of a thread: the limit, readable without its lock.
    pub stack_bytes: AtomicUsize,
    /// Held while that changes.
    resizing: Mutex<()>,
    /// `CUfunc_cache` and `CUsharedconfig` as set; without effect.
    pub cache_config: AtomicU32,
    /// See `cache_config`.
    pub shared_config: AtomicU32,
    /// Users counted by the deprecated `cuCtxAttach` and `cuCtxDetach`.
    pub users: AtomicU32,
    destroyed: AtomicBool,
    charge: ChargeId,
}

/// Whether the flags are known and name at most one way of scheduling.
pub fn flags_are_valid(flags: u32) -> bool {
    flags & !FLAGS_MASK == 0 && matches!(flags & SCHEDULING_MASK, 0 | 1 | 2 | 4)
}

impl Context {
    /// Makes a context under `handle`, or under a new one. Takes the memory and the time that it costs.
    ///
    /// On a lost device: `DEVICE_UNAVAILABLE`, by what the documentation says of that code; not seen on a card. Where
    /// the compute mode forbids it, too: cuda.h names exclusive and prohibited devices at that code (since CUDA 11; old
    /// drivers said `INVALID_DEVICE` for exclusive ones), though the text on `cuCtxCreate` still has `UNKNOWN` for
    /// prohibited ones.
    pub fn create(
        driver: &Driver,
        device: usize,
        flags: u32,
        api_version: u32,
        primary_handle: Option<usize>,
    ) -> Result<Arc<Context>> {
        if driver.arena.look_for_device(device) {
            return Err(CUerror::DEVICE_UNAVAILABLE);
        }
        let config = &driver.arena.devices()[device].config;
        driver.arena.wait_for_lock();
        let begun = now_ns();
        driver.arena.enter_context(device).map_err(arena_error)?;
        let charge = driver.arena.charge(device, config.context_bytes).map_err(|error| {
            // Refused only in a forked child, which has no contexts.
            let _ = driver.arena.leave_context(device);
            arena_error(error)
        })?;
        sleep_until(begun + (config.context_cost_us * 1e3) as u64);
        let (executor, space) = driver.engines(device);
        let handle = primary_handle.unwrap_or_else(|| CONTEXTS.new_handle());
        let context = Arc::new(Context {
            handle,
            device,
            primary: primary_handle.is_some(),
            flags: AtomicU32::new(flags | FLAG_MAP_HOST),
            api_version,
            queue: ContextQueue::new(executor, space),
            limits: Mutex::new(limits::Limits::default()),
            heap: Mutex::new(None),
            stack_bytes: AtomicUsize::new(limits::STACK_BYTES_AT_FIRST),
            resizing: Mutex::new(()),
            cache_config: AtomicU32::new(0),
            shared_config: AtomicU32::new(0),
            users: AtomicU32::new(1),
            destroyed: AtomicBool::new(false),
            charge,
        });
        CONTEXTS.put(handle, Arc::clone(&context));
        if let Err(error) = module::library::load_all_into(&context) {
            context.destroy(driver)?;
            return Err(error);
        }
        Ok(context)
    }

    /// Number of the context, never used twice (`cuCtxGetId`).
    pub fn id(&self) -> u64 {
        self.queue.id()
    }

    /// Whether `destroy` has begun.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// Waits for its work and gives everything back. Only the first call does so.
    pub fn destroy(&self, driver: &Driver) -> Result<()> {
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return Err(CUerror::CONTEXT_IS_DESTROYED);
        }
        self.queue.wait_all();
        self.queue.close();
        storage::end_of(self);
        // A primary context that was reset may live again under the same handle.
        let _ = CONTEXTS.remove_where(|context| context.id() == self.id());
        stream::forget_all_of(self.id());
        textures::forget_all_of(self.id());
        arrays::forget_all_of(self.id());
        module::unload_all_of(driver, self.id());
        driver.space.forget_grants_of(self.id());
        driver.space.free_all_of(self.id());
        for range in driver.space.host().remove_all_of(self.id()) {
            if range.kind == HostKind::Allocated {
                crate::host_memory::release(range.start, range.bytes);
            }
        }
        driver.arena.leave_context(self.device).map_err(arena_error)?;
        driver.arena.discharge(self.charge).map_err(arena_error)
    }
}

/// All living contexts of a device.
pub fn of_device(device: usize) -> Vec<Arc<Context>> {
    CONTEXTS.all().into_iter().filter(|context| context.device == device).collect()
}
