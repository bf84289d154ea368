//! Primary contexts: one per device, shared by all who retain it, with a handle that never changes.
//!
//! Flags can be set while it is inactive and stay for later activations; reset destroys it whatever the
//! count, which stays as it is in the documentation's sense: the next retain makes a new one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;

use super::{CONTEXTS, Context, FLAG_MAP_HOST};
use crate::configuration;
use crate::driver::Driver;
use crate::space::Result;

#[derive(Debug, Default)]
struct Primary {
    handle: usize,
    flags: u32,
    retained: u32,
    context: Option<Arc<Context>>,
}

/// By device index. Held while a context is made, so that two threads do not make two.
static PRIMARIES: Mutex<Option<HashMap<usize, Primary>>> = Mutex::new(None);

fn with<T>(device: usize, action: impl FnOnce(&mut Primary) -> T) -> T {
    let mut primaries = PRIMARIES.lock();
    let primary = primaries.get_or_insert_default().entry(device).or_default();
    if primary.handle == 0 {
        primary.handle = CONTEXTS.new_handle();
    }
    action(primary)
}

/// `cuDevicePrimaryCtxRetain`.
pub fn retain(driver: &Driver, device: usize) -> Result<Arc<Context>> {
    with(device, |primary| {
        let context = match &primary.context {
            Some(context) => Arc::clone(context),
            None => {
                let version = configuration::driver_version();
                let made = Context::create(driver, device, primary.flags, version, Some(primary.handle))?;
                primary.context = Some(Arc::clone(&made));
                made
            }
        };
        primary.retained += 1;
        Ok(context)
    })
}

/// `cuDevicePrimaryCtxRelease`: the last one destroys it.
pub fn release(driver: &Driver, device: usize) -> Result<()> {
    let last = with(device, |primary| {
        if primary.retained == 0 {
            return Err(CUerror::INVALID_CONTEXT);
        }
        primary.retained -= 1;
        Ok(if primary.retained == 0 { primary.context.take() } else { None })
    })?;
    match last {
        Some(context) => context.destroy(driver),
        None => Ok(()),
    }
}

/// `cuDevicePrimaryCtxReset`: destroys it; whoever retained it may still release it.
pub fn reset(driver: &Driver, device: usize) -> Result<()> {
    match with(device, |primary| primary.context.take()) {
        Some(context) => context.destroy(driver),
        None => Ok(()),
    }
}

/// `cuDevicePrimaryCtxSetFlags`, which a living context takes over too.
pub fn set_flags(device: usize, flags: u32) {
    with(device, |primary| {
        primary.flags = flags;
        if let Some(context) = &primary.context {
            context.flags.store(flags | FLAG_MAP_HOST, std::sync::atomic::Ordering::Relaxed);
        }
    });
}

/// `cuDevicePrimaryCtxGetState`: flags and whether it is active.
pub fn state(device: usize) -> (u32, bool) {
    with(device, |primary| (primary.flags, primary.context.is_some()))
}
