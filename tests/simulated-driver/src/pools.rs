//! Memory pools as handles: those of the program, the default one of each device, and the current one.
//!
//! A destroyed pool lives on here until its last allocation is freed. What a pool holds is in `space/pool.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::CUmemoryPool;
use turnus_simulated_arena::now_ns;

use crate::driver::driver;
use crate::registry::Registry;
use crate::space::{Pool, PoolProperties, Result};

/// All pools that the program may name.
static POOLS: Registry<Arc<Pool>> = Registry::new(10);
/// Destroyed pools that still hold memory.
static CLOSING: Mutex<Vec<Arc<Pool>>> = Mutex::new(Vec::new());
static OF_DEVICES: Mutex<BTreeMap<usize, OfDevice>> = Mutex::new(BTreeMap::new());
/// Set when a pool first gave memory: until then a synchronisation has nothing to look at.
static IN_USE: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct OfDevice {
    default: Arc<Pool>,
    current: Arc<Pool>,
}

/// A new pool.
pub fn create(device: usize, handle_types: u32, maximum_bytes: u64) -> Arc<Pool> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed) << 32 | u64::from(std::process::id());
    add(PoolProperties { device, handle_types, maximum_bytes, identity: [now_ns(), number], imported: false })
}

/// A pool of another process.
pub fn import(device: usize, identity: [u64; 2]) -> Arc<Pool> {
    add(PoolProperties { device, handle_types: 0, maximum_bytes: 0, identity, imported: true })
}

fn add(properties: PoolProperties) -> Arc<Pool> {
    let handle = POOLS.new_handle();
    let pool = Pool::new(handle, properties);
    POOLS.put(handle, Arc::clone(&pool));
    IN_USE.store(true, Ordering::Relaxed);
    pool
}

/// The pool of a handle.
pub fn pool(handle: CUmemoryPool) -> Result<Arc<Pool>> {
    POOLS.get(handle).map_err(|_| CUerror::INVALID_VALUE)
}

fn with<T>(device: usize, action: impl FnOnce(&mut OfDevice) -> T) -> T {
    let mut devices = OF_DEVICES.lock();
    action(devices.entry(device).or_insert_with(|| {
        let default = create(device, 0, 0);
        OfDevice { current: Arc::clone(&default), default }
    }))
}

/// `cuDeviceGetDefaultMemPool`.
pub fn default_of(device: usize) -> Arc<Pool> {
    with(device, |pools| Arc::clone(&pools.default))
}

/// `cuDeviceGetMemPool`.
pub fn current_of(device: usize) -> Arc<Pool> {
    with(device, |pools| Arc::clone(&pools.current))
}

/// `cuDeviceSetMemPool`: the pool must be of the device and of this process.
pub fn set_current(device: usize, pool: Arc<Pool>) -> Result<()> {
    if pool.properties.device != device || pool.properties.imported {
        return Err(CUerror::INVALID_VALUE);
    }
    with(device, |pools| pools.current = pool);
    Ok(())
}

/// `cuMemPoolDestroy`; the default pool stays.
pub fn destroy(handle: CUmemoryPool) -> Result<()> {
    let gone = pool(handle)?;
    with(gone.properties.device, |pools| {
        if pools.default.handle == gone.handle {
            return Err(CUerror::INVALID_VALUE);
        }
        if pools.current.handle == gone.handle {
            pools.current = Arc::clone(&pools.default);
        }
        Ok(())
    })?;
    POOLS.remove(handle).map_err(|_| CUerror::INVALID_VALUE)?;
    CLOSING.lock().push(gone);
    release_destroyed()
}

/// A stream, an event or a context was synchronised: pools above their threshold give memory back.
pub fn synchronised() -> Result<()> {
    if !IN_USE.load(Ordering::Relaxed) {
        return Ok(());
    }
    let space = &driver()?.space;
    for pool in POOLS.all() {
        pool.trim(space, pool.numbers().release_threshold_bytes);
    }
    release_destroyed()
}

/// Gives back what destroyed pools need no more.
pub fn release_destroyed() -> Result<()> {
    let space = &driver()?.space;
    CLOSING.lock().retain(|pool| {
        pool.trim(space, 0);
        !pool.is_empty()
    });
    Ok(())
}
