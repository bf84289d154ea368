//! Initialisation: how often, and the machine that is open meanwhile.
//!
//! Reference counted, as documented for `nvmlInit_v2` and `nvmlShutdown`. A forked child finds the library
//! initialised, as it does with a real one, and attaches to the machine by itself at its first call.

use std::sync::Arc;

use parking_lot::Mutex;
use turnus_simulated_arena::{Arena, ArenaError};

use crate::code::{Error, Result};
use crate::events;

struct State {
    references: u32,
    arena: Option<Arc<Arena>>,
}

static STATE: Mutex<State> = Mutex::new(State { references: 0, arena: None });

/// `nvmlInit_v2`: opens the machine, or makes it, with the environment variables of the simulated driver.
pub fn initialise() -> Result<()> {
    let mut state = STATE.lock();
    if state.arena.is_none() {
        state.arena = Some(Arena::open().map_err(arena_error)?);
    }
    state.references += 1;
    Ok(())
}

/// `nvmlShutdown`: the last one leaves the machine and frees all event sets.
pub fn shut_down() -> Result<()> {
    let mut state = STATE.lock();
    if state.references == 0 {
        return Err(Error::UNINITIALIZED);
    }
    state.references -= 1;
    if state.references == 0 {
        state.arena = None;
        events::clear();
    }
    Ok(())
}

/// Whether there were more calls of `nvmlInit` than of `nvmlShutdown`.
pub fn is_initialised() -> bool {
    STATE.lock().references > 0
}

/// The machine.
pub fn arena() -> Result<Arc<Arena>> {
    let mut state = STATE.lock();
    let arena = state.arena.as_ref().ok_or(Error::UNINITIALIZED)?;
    if arena.is_of_this_process() {
        return Ok(Arc::clone(arena));
    }
    let own = Arena::open().map_err(arena_error)?;
    state.arena = Some(Arc::clone(&own));
    Ok(own)
}

/// What a program is told of an error of the machine; its text goes to stderr.
pub fn arena_error(error: ArenaError) -> Error {
    eprintln!("simulated NVML: {error}");
    match error {
        ArenaError::Version { .. } => Error::LIB_RM_VERSION_MISMATCH,
        error if error.is_no_space() => Error::MEMORY,
        ArenaError::File { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Error::NO_PERMISSION
        }
        _ => Error::UNKNOWN,
    }
}
