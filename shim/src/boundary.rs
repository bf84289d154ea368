//! The boundary between the program and us: the rules that every hook keeps.
//!
//! 1. Nothing unwinds into the program: a panic of ours becomes one line and a driver error.
//! 2. A call that comes from inside one of our hooks (the driver calling its own exported
//!    functions, our own worker) goes straight to the driver.
//! 3. A hook whose function this driver lacks answers an error and never jumps to nowhere.
//!
//! The macro `hook!` is the only place where hooks are made; `hooks.rs` is the list.

use crate::driver;
use crate::message;
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use turnus_bindings::{CUerror, CUresult};

thread_local! {
    static INSIDE_HOOK: Cell<bool> = const { Cell::new(false) };
    static OWN_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Held while a thread runs one of our handlers.
#[derive(Debug)]
pub(crate) struct Guard(());

impl Guard {
    /// `None` when the thread is inside a handler already.
    pub(crate) fn enter() -> Option<Guard> {
        INSIDE_HOOK.with(|inside| if inside.replace(true) { None } else { Some(Guard(())) })
    }

    /// For a thread of our own: every call it makes goes straight to the driver.
    pub(crate) fn enter_for_ever() {
        INSIDE_HOOK.with(|inside| inside.set(true));
        OWN_THREAD.with(|own| own.set(true));
    }

    /// In the child of a fork: the handler that forked is the parent's.
    pub(crate) fn forget_in_child() {
        INSIDE_HOOK.with(|inside| inside.set(false));
        OWN_THREAD.with(|own| own.set(false));
    }
}

/// Whether the calling thread is one of ours, or runs one of our handlers.
pub(crate) fn is_own_thread() -> bool {
    OWN_THREAD.with(Cell::get) || INSIDE_HOOK.with(Cell::get)
}

impl Drop for Guard {
    fn drop(&mut self) {
        INSIDE_HOOK.with(|inside| inside.set(false));
    }
}

/// Runs a handler; a panic of ours is one line and `CUDA_ERROR_UNKNOWN`.
pub(crate) fn protect(name: &str, handler: impl FnOnce() -> CUresult) -> CUresult {
    match catch_unwind(AssertUnwindSafe(handler)) {
        Ok(result) => result,
        Err(_) => {
            message::error(&format!("a fault inside the shim at {name}; the call was refused"));
            Err(CUerror::UNKNOWN)
        }
    }
}

/// As [`protect`], for a handler that may leave the call to the driver (`None`).
pub(crate) fn protect_option(name: &str, handler: impl FnOnce() -> Option<CUresult>) -> Option<CUresult> {
    let mut forward = false;
    let result = protect(name, || {
        let answer = handler();
        forward = answer.is_none();
        answer.unwrap_or(Ok(()))
    });
    if forward { None } else { Some(result) }
}

/// Runs something that must not fail visibly; `None` if it panicked.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// The driver's pointer behind a hook; looks for the driver when the hook is called before it was
/// found (direct linking). `None`: this driver has no such function.
#[inline(always)]
pub(crate) fn real_pointer(cell: &AtomicPtr<c_void>) -> Option<*mut c_void> {
    let pointer = cell.load(Ordering::Relaxed);
    if pointer.is_null() { find_real_pointer(cell) } else { Some(pointer) }
}

#[cold]
fn find_real_pointer(cell: &AtomicPtr<c_void>) -> Option<*mut c_void> {
    quietly(driver::get_or_load)??;
    Some(cell.load(Ordering::Acquire)).filter(|pointer| !pointer.is_null())
}

/// What a hook answers whose function this driver lacks.
pub(crate) const ABSENT: CUresult = Err(CUerror::SHARED_OBJECT_SYMBOL_NOT_FOUND);

/// Makes one hook. Kinds:
/// * `gate` — waits for the turn, calls the driver, leaves;
/// * `checked(path)` — asks `path(arguments...)`, whose error is the answer; else as `gate`;
/// * `gate(path)` — waits for the turn, calls the handler `path(real, arguments...)`, leaves;
/// * `gate_room` — as `gate`, and makes room when the driver is out of memory;
/// * `room` — not gated, makes room when the driver is out of memory;
/// * `memory(path)` — asks `path(arguments...)`, and the driver if that answers `None`;
/// * `call(path)` — calls the handler, which decides everything.
macro_rules! hook {
    (@ $name:ident ($($argument:ident: $type:ty),*) $real:ident $body:block) => {
        pub(crate) mod $name {
            pub(crate) static REAL: core::sync::atomic::AtomicPtr<core::ffi::c_void> =
                core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());
        }

        /// The hook of the driver's function of this name.
        ///
        /// # Safety
        /// Arguments as of the driver's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            let Some(pointer) = boundary::real_pointer(&$name::REAL) else { return boundary::ABSENT };
            // SAFETY: the pointer was looked up in the driver under this name, whose signature
            // the bindings took from the driver's header.
            let $real = unsafe { core::mem::transmute::<*mut core::ffi::c_void, fns::$name>(pointer) };
            $body
        }

        const _: fns::$name = $name;
    };
    (gate $name:ident ($($argument:ident: $type:ty),*)) => {
        hook! { @ $name ($($argument: $type),*) real {
            hook! { @ gated real ($($argument),*) }
        } }
    };
    (@ gated $real:ident ($($argument:ident),*)) => {{
        let entered = match gate::enter() {
            Ok(entered) => entered,
            Err(error) => return Err(error),
        };
        // SAFETY: the program's arguments under the program's contract with the driver.
        let result = unsafe { $real($($argument),*) };
        entered.leave();
        result
    }};
    (checked($check:path) $name:ident ($($argument:ident: $type:ty),*)) => {
        hook! { @ $name ($($argument: $type),*) real {
            let checked = boundary::quietly(|| {
                #[allow(unused_unsafe, reason = "most checks are safe")]
                // SAFETY: as below.
                unsafe { $check($($argument),*) }
            });
            if let Some(Err(error)) = checked {
                return Err(error);
            }
            hook! { @ gated real ($($argument),*) }
        } }
    };
    (gate($handler:path) $name:ident ($($argument:ident: $type:ty),*)) => {
        hook! { @ $name ($($argument: $type),*) real {
            let entered = match gate::enter() {
                Ok(entered) => entered,
                Err(error) => return Err(error),
            };
            // SAFETY: as above.
            let result = boundary::protect(stringify!($name), || unsafe { $handler(real, $($argument),*) });
            entered.leave();
            result
        } }
    };
    (gate_room $name:ident ($($argument:ident: $type:ty),*)) => {
        hook! { @ $name ($($argument: $type),*) real {
            let entered = match gate::enter() {
                Ok(entered) => entered,
                Err(error) => return Err(error),
            };
            // SAFETY: as above.
            let result = headroom::with_room(stringify!($name), None, || unsafe { real($($argument),*) });
            entered.leave();
            result
        } }
    };
    (room $name:ident ($($argument:ident: $type:ty),*)) => {
        hook! { @ $name ($($argument: $type),*) real {
            // SAFETY: as above.
            headroom::with_room(stringify!($name), None, || unsafe { real($($argument),*) })
        } }
    };
    (memory($handler:path) $name:ident ($($argument:ident: $type:ty),*)) => {
        hook! { @ $name ($($argument: $type),*) real {
            if let Some(_guard) = boundary::Guard::enter()
                && let Some(result) = boundary::protect_option(stringify!($name), || {
                    #[allow(unused_unsafe, reason = "some handlers are safe")]
                    // SAFETY: as above.
                    unsafe { $handler($($argument),*) }
                })
            {
                return result;
            }
            // SAFETY: as above.
            unsafe { real($($argument),*) }
        } }
    };
    (call($handler:path) $name:ident ($($argument:ident: $type:ty),*)) => {
        hook! { @ $name ($($argument: $type),*) real {
            let Some(_guard) = boundary::Guard::enter() else {
                // SAFETY: as above.
                return unsafe { real($($argument),*) };
            };
            // SAFETY: as above.
            boundary::protect(stringify!($name), || unsafe { $handler(real, $($argument),*) })
        } }
    };
}
pub(crate) use hook;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_of_the_driver() {
        assert_eq!(protect("cuTest", || panic!("on purpose")), Err(CUerror::UNKNOWN));
        assert_eq!(quietly(|| -> u8 { panic!("on purpose") }), None);
    }

    #[test]
    fn a_call_from_inside_a_handler_is_recognised() {
        let outer = Guard::enter();
        assert!(outer.is_some());
        assert!(Guard::enter().is_none(), "the driver's nested call would be taken for the program's");
        drop(outer);
        assert!(Guard::enter().is_some());
    }
}
