//! The stack of current contexts that each host thread has.
//!
//! `cuCtxSetCurrent` replaces the top, push and pop do what they say; most entry points begin with
//! [`get`] or [`get_sound`].

use std::cell::RefCell;
use std::sync::Arc;

use turnus_bindings::CUerror;

use super::{CONTEXTS, Context};
use crate::execution::in_host_function;
use crate::space::Result;

thread_local! {
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// The stack, unless the thread's locals are gone already (a destructor calls CUDA).
fn with<T>(action: impl FnOnce(&mut Vec<Arc<Context>>) -> T) -> Result<T> {
    if in_host_function() {
        return Err(CUerror::NOT_PERMITTED);
    }
    STACK.try_with(|stack| action(&mut stack.borrow_mut())).map_err(|_| CUerror::DEINITIALIZED)
}

/// The current context, destroyed or not; `None` when there is none.
pub fn peek() -> Result<Option<Arc<Context>>> {
    with(|stack| stack.last().cloned())
}

/// The current context.
///
/// Errors: `INVALID_CONTEXT` without one, `CONTEXT_IS_DESTROYED` when it was destroyed by another thread.
pub fn get() -> Result<Arc<Context>> {
    with(|stack| {
        let top = stack.last_mut().ok_or(CUerror::INVALID_CONTEXT)?;
        if top.is_destroyed() {
            // The primary context keeps its handle over a reset: go on with the one that lives now.
            let revived = if top.primary { CONTEXTS.get(top.handle as *mut ()).ok() } else { None };
            *top = revived.ok_or(CUerror::CONTEXT_IS_DESTROYED)?;
        }
        Ok(Arc::clone(top))
    })?
}

/// The current context if no fault has ended it.
pub fn get_sound() -> Result<Arc<Context>> {
    let context = get()?;
    context.queue.check()?;
    Ok(context)
}

/// `cuCtxPushCurrent`.
pub fn push(context: Arc<Context>) -> Result<()> {
    with(|stack| stack.push(context))
}

/// `cuCtxPopCurrent`.
pub fn pop() -> Result<Arc<Context>> {
    with(|stack| stack.pop())?.ok_or(CUerror::INVALID_CONTEXT)
}

/// `cuCtxSetCurrent`: replaces the top; `None` only takes it off.
pub fn set(context: Option<Arc<Context>>) -> Result<()> {
    with(|stack| {
        stack.pop();
        stack.extend(context);
    })
}

/// `cuCtxDestroy` takes the context off if it is on top.
pub fn remove_if_on_top(context: &Context) -> Result<()> {
    with(|stack| {
        if stack.last().is_some_and(|top| top.id() == context.id()) {
            stack.pop();
        }
    })
}
