//! Event sets: which devices and events a program waits for, and how far each has read the log of errors.
//!
//! The only events are XID errors, out of the machine's log (`turnus_simulated_arena::XID_FILE`). Handles are
//! numbers, never addresses, so that a foreign or freed one is refused. Waiting looks every few milliseconds;
//! it holds no lock meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use turnus_simulated_arena::Arena;

use crate::code::{Error, Result};
use crate::device::Device;
use crate::library;

/// `nvmlEventTypeXidCriticalError`.
pub const XID_CRITICAL_ERROR: u64 = 8;
const LOOK: Duration = Duration::from_millis(5);

/// An event that happened.
pub struct Event {
    pub device: usize,
    pub xid: u64,
}

/// Registered devices: how much of the log was read for each.
type EventSet = BTreeMap<usize, u64>;

struct Sets {
    last: usize,
    sets: BTreeMap<usize, EventSet>,
}

static SETS: Mutex<Sets> = Mutex::new(Sets { last: 0, sets: BTreeMap::new() });

/// A new empty set's number, never 0.
pub fn create() -> usize {
    let mut sets = SETS.lock();
    sets.last += 1;
    let number = sets.last;
    sets.sets.insert(number, EventSet::new());
    number
}

/// Free a set.
pub fn free(number: usize) -> Result<()> {
    SETS.lock().sets.remove(&number).map(|_| ()).ok_or(Error::INVALID_ARGUMENT)
}

/// Free all sets.
pub fn clear() {
    SETS.lock().sets.clear();
}

/// Record events of a device from now on; a second time changes nothing.
pub fn register(number: usize, device: &Device, event_types: u64) -> Result<()> {
    let mut sets = SETS.lock();
    let set = sets.sets.get_mut(&number).ok_or(Error::INVALID_ARGUMENT)?;
    if event_types & !XID_CRITICAL_ERROR != 0 {
        return Err(Error::NOT_SUPPORTED);
    }
    if event_types != 0 {
        set.entry(device.configured().whole()).or_insert_with(|| device.arena.xid_log_bytes());
    }
    Ok(())
}

/// The next event of a set.
pub fn wait(number: usize, timeout_ms: u32) -> Result<Event> {
    let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
    loop {
        let arena = library::arena()?;
        if let Some(event) = next(number, &arena)? {
            return Ok(event);
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(Error::TIMEOUT);
        }
        std::thread::sleep(LOOK.min(deadline - now));
    }
}

/// The oldest event that the set has not delivered; when there is none, a lost device of it is an error.
fn next(number: usize, arena: &Arena) -> Result<Option<Event>> {
    let mut sets = SETS.lock();
    let set = sets.sets.get_mut(&number).ok_or(Error::INVALID_ARGUMENT)?;
    let Some(from_bytes) = set.values().min().copied() else { return Ok(None) };
    for xid in arena.xids(from_bytes) {
        if let Some(read_bytes) = set.get_mut(&xid.device)
            && xid.end_bytes > *read_bytes
        {
            *read_bytes = xid.end_bytes;
            return Ok(Some(Event { device: xid.device, xid: xid.code }));
        }
    }
    match set.keys().any(|device| arena.device_is_lost(*device)) {
        true => Err(Error::GPU_IS_LOST),
        false => Ok(None),
    }
}
