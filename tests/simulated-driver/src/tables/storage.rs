//! Values that the runtime keeps with a context, by keys of its own, and hears of when the context ends.
//!
//! The runtime stores its state of a context here and looks for it at each call.

use std::collections::HashMap;
use std::ffi::c_void;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::CUcontext;

use crate::context::{CONTEXTS, Context, current};
use crate::space::Result;

/// Called with context, key and value when the context is destroyed.
pub type End = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void);

#[derive(Debug, Clone, Copy)]
struct Value {
    value: usize,
    end: Option<End>,
}

/// By number of the context and key.
static VALUES: Mutex<Option<HashMap<(u64, usize), Value>>> = Mutex::new(None);

fn with<T>(action: impl FnOnce(&mut HashMap<(u64, usize), Value>) -> T) -> T {
    action(VALUES.lock().get_or_insert_default())
}

/// The number of this context; null is the current one.
fn number(context: CUcontext) -> Result<u64> {
    if context.is_null() {
        return Ok(current::get()?.id());
    }
    CONTEXTS.get(context).map(|context| context.id()).map_err(|_| CUerror::INVALID_CONTEXT)
}

/// Keeps a value.
pub fn put(context: CUcontext, key: usize, value: usize, end: Option<End>) -> Result<()> {
    let number = number(context)?;
    with(|values| values.insert((number, key), Value { value, end }));
    Ok(())
}

/// Forgets a value without telling its owner.
pub fn remove(context: CUcontext, key: usize) -> Result<()> {
    let number = number(context)?;
    with(|values| values.remove(&(number, key))).map(drop).ok_or(CUerror::INVALID_HANDLE)
}

/// The value of a key; `INVALID_HANDLE` if there is none, which the runtime takes as a reason to make it.
pub fn get(context: CUcontext, key: usize) -> Result<usize> {
    let number = number(context)?;
    with(|values| values.get(&(number, key)).map(|found| found.value)).ok_or(CUerror::INVALID_HANDLE)
}

/// The context ends: its values go, and their owners hear of it.
pub fn end_of(context: &Context) {
    let number = context.id();
    let gone: Vec<_> = with(|values| {
        let keys: Vec<_> = values.keys().filter(|(of, _)| *of == number).copied().collect();
        keys.into_iter().filter_map(|key| Some((key.1, values.remove(&key)?))).collect()
    });
    for (key, Value { value, end }) in gone {
        if let Some(end) = end {
            // SAFETY: the runtime gave this function for this call, with these values.
            unsafe { end(context.handle as CUcontext, key as *mut c_void, value as *mut c_void) };
        }
    }
}
