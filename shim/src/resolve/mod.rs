//! How a program gets a hook when it asks `dlsym`, `dlvsym` or `cuGetProcAddress`.
//!
//! Only exact names from our own table are looked at, and a hook is given only for what really
//! lies in the driver: the real answer is compared with the driver's own pointer of that name.
//! Everything else is a jump to the real function. The driver's own questions are never answered
//! with a hook. What the driver lacks stays absent. Direct linking needs no code: the hooks are
//! exported and a preloaded library comes first.

mod elf;
mod naked;
pub(crate) mod proc_address;

pub(crate) use elf::same_object;

use crate::driver;
use crate::hooks;
use crate::unhandled;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Versions under which glibc exports `dlsym`, newest first: all architectures since 2.34, then
/// x86-64, then aarch64.
const VERSION_TAGS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];

/// What the naked functions get back; in two registers on both architectures.
#[repr(C)]
pub(super) struct Answer {
    pointer: *mut c_void,
    /// Zero: jump to the real function. Otherwise `pointer` is the answer, also when it is null.
    is_answer: usize,
}

const ASK_THE_REAL_ONE: Answer = Answer { pointer: null_mut(), is_answer: 0 };

/// Finds the real functions once. False only where no later library has them: then nothing can be
/// resolved in this process at all, and null is the honest answer.
fn find_real_functions() -> bool {
    if !REAL_DLSYM.load(Ordering::Acquire).is_null() {
        return true;
    }
    let dlvsym = elf::function_after_this_object(c"dlvsym");
    let mut dlsym = null_mut();
    if !dlvsym.is_null() {
        // SAFETY: the address is that of a function called dlvsym, which has this signature.
        let dlvsym = unsafe { core::mem::transmute::<*mut c_void, Dlvsym>(dlvsym) };
        for tag in VERSION_TAGS {
            // RTLD_NEXT as seen from here: another preloaded library that wraps dlsym stays in
            // the chain.
            // SAFETY: both texts are NUL-terminated literals.
            dlsym = unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), tag.as_ptr()) };
            if !dlsym.is_null() {
                break;
            }
        }
    }
    if dlsym.is_null() {
        dlsym = elf::function_after_this_object(c"dlsym");
    }
    REAL_DLVSYM.store(if dlvsym.is_null() { answers_null as *mut c_void } else { dlvsym }, Ordering::Release);
    REAL_DLSYM.store(dlsym, Ordering::Release);
    !dlsym.is_null()
}

extern "C" fn answers_null() -> *mut c_void {
    null_mut()
}

/// The real `dlsym`, as called by us. Null if there is none.
///
/// # Safety
/// `handle` is a handle of dlopen or one of the pseudo handles.
pub(crate) unsafe fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    if !find_real_functions() {
        return null_mut();
    }
    // SAFETY: found by name, so it has dlsym's signature; the handle is the caller's promise.
    unsafe {
        core::mem::transmute::<*mut c_void, Dlsym>(REAL_DLSYM.load(Ordering::Acquire))(handle, name.as_ptr())
    }
}

/// Called by the naked `dlsym`.
pub(super) extern "C" fn decide(handle: *mut c_void, name: *const c_char, caller: usize) -> Answer {
    decide_with(handle, name, caller, |name| {
        // SAFETY: the handle is what the program gave; the real function checks it.
        unsafe { real_dlsym(handle, name) }
    })
}

/// Called by the naked `dlvsym`.
pub(super) extern "C" fn decide_versioned(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Answer {
    decide_with(handle, name, caller, |name| {
        // SAFETY: as in `real_dlsym`; the version is what the program gave.
        unsafe {
            let dlvsym = core::mem::transmute::<*mut c_void, Dlvsym>(REAL_DLVSYM.load(Ordering::Acquire));
            dlvsym(handle, name.as_ptr(), version)
        }
    })
}

fn decide_with(
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
    ask: impl Fn(&CStr) -> *mut c_void,
) -> Answer {
    if !find_real_functions() {
        return Answer { pointer: null_mut(), is_answer: 1 };
    }
    if name.is_null() {
        return ASK_THE_REAL_ONE;
    }
    // SAFETY: dlsym's contract: a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(name) };
    // The cheap test first: nearly every question of a program is about something else, and may
    // come from a place where nothing may be allocated.
    if !name.to_bytes().starts_with(b"cu") {
        return ASK_THE_REAL_ONE;
    }
    crate::boundary::quietly(|| decide_driver_name(handle, name, caller, ask)).unwrap_or(ASK_THE_REAL_ONE)
}

fn decide_driver_name(
    handle: *mut c_void,
    name: &CStr,
    caller: usize,
    ask: impl Fn(&CStr) -> *mut c_void,
) -> Answer {
    let driver = driver::if_loaded();
    let Some(entry) = hooks::by_name(name) else {
        if name.to_bytes().get(2).is_some_and(u8::is_ascii_uppercase) {
            let is_there = || driver.is_some_and(|driver| !driver.symbol_at(name).is_null());
            unhandled::note_unhooked(name, is_there);
        }
        return ASK_THE_REAL_ONE;
    };
    if driver.is_some_and(|driver| driver.contains(caller)) {
        return ASK_THE_REAL_ONE;
    }
    let mut answer = ask(name);
    if answer.is_null() && core::ptr::eq(handle, libc::RTLD_NEXT) {
        // We asked for what comes after us; who asked may stand before us, and find us.
        // SAFETY: a pseudo handle.
        answer = unsafe { real_dlsym(libc::RTLD_DEFAULT, name) };
    }
    let in_driver = driver.map_or(null_mut(), |driver| entry.real_pointer(driver));
    let is_ours = core::ptr::eq(answer, entry.hook);
    if is_ours && in_driver.is_null() {
        // The program asked the global scope, where we stand, for something the driver lacks (or
        // there is no driver). libc lacks it too, and says so in dlerror.
        return Answer { pointer: ask_libc(name), is_answer: 1 };
    }
    if in_driver.is_null() || !(is_ours || core::ptr::eq(answer, in_driver)) {
        return ASK_THE_REAL_ONE;
    }
    Answer { pointer: entry.hook.cast_mut(), is_answer: 1 }
}

fn ask_libc(name: &CStr) -> *mut c_void {
    // SAFETY: libc is loaded, so this only returns its handle; asking it for a name is always
    // allowed. The extra reference is harmless: libc is never unloaded.
    unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if libc.is_null() { null_mut() } else { real_dlsym(libc, name) }
    }
}
