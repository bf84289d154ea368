//! The real driver in this process: found when first needed, never linked, never unloaded.
//!
//! Nothing here loads anything for a program that only asks for names: a driver that the program
//! has not loaded is not there. Only a hook that was called (a program with weak references)
//! loads it. Finding it fills the pointers of all hooks at once.

use crate::hooks;
use crate::resolve;
use core::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// A loaded driver.
#[derive(Debug)]
pub(crate) struct Driver {
    handle: *mut c_void,
    landmark: usize,
    by_pointer: Vec<(usize, &'static hooks::Entry)>,
}

// SAFETY: the handle is only ever passed to dlsym, which any thread may call.
unsafe impl Send for Driver {}
// SAFETY: as above; the rest is never written after construction.
unsafe impl Sync for Driver {}

static DRIVER: OnceLock<Driver> = OnceLock::new();
const NAME: &CStr = c"libcuda.so.1";

/// The driver, if the program has loaded it.
pub(crate) fn if_loaded() -> Option<&'static Driver> {
    find(libc::RTLD_NOLOAD | libc::RTLD_LAZY)
}

/// The driver; loaded if need be.
pub(crate) fn get_or_load() -> Option<&'static Driver> {
    if_loaded().or_else(|| find(libc::RTLD_LAZY | libc::RTLD_LOCAL))
}

fn find(flags: libc::c_int) -> Option<&'static Driver> {
    if let Some(driver) = DRIVER.get() {
        return Some(driver);
    }
    // SAFETY: the name is a literal; the handle is kept for ever, so the driver stays mapped
    // although the program may close its own handle.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), flags) };
    if handle.is_null() {
        return None;
    }
    // Two threads may both come here; they find the same pointers and one value is kept.
    let driver = Driver::new(handle);
    Some(DRIVER.get_or_init(|| driver))
}

impl Driver {
    fn new(handle: *mut c_void) -> Driver {
        let mut driver = Driver { handle, landmark: 0, by_pointer: Vec::new() };
        for entry in hooks::entries() {
            let pointer = driver.symbol_at(entry.name);
            if !pointer.is_null() && !core::ptr::eq(pointer, entry.hook) {
                driver.landmark = pointer as usize;
                entry.set_real(pointer);
                driver.by_pointer.push((pointer as usize, entry));
            }
        }
        driver.by_pointer.sort_by_key(|(pointer, entry)| (*pointer, entry.name));
        driver
    }

    /// A function of the driver by name; `name` ends with a NUL.
    pub(crate) fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
        Some(self.symbol_at(name)).filter(|pointer| !pointer.is_null())
    }

    pub(crate) fn symbol_at(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle came from dlopen and is never closed.
        unsafe { resolve::real_dlsym(self.handle, name) }
    }

    /// Whether code at this address belongs to the driver.
    pub(crate) fn contains(&self, address: usize) -> bool {
        resolve::same_object(self.landmark, address)
    }

    /// The hook for a pointer that the driver gave out for `symbol`. Several names may share one
    /// pointer; then the one that continues `symbol` is meant.
    pub(crate) fn hook_of(&self, pointer: *mut c_void, symbol: &CStr) -> Option<&'static hooks::Entry> {
        let first = self.by_pointer.partition_point(|(known, _)| *known < pointer as usize);
        let mut candidates = self.by_pointer[first..]
            .iter()
            .take_while(|(known, _)| *known == pointer as usize)
            .map(|(_, entry)| *entry);
        let fallback = candidates.clone().next();
        candidates.find(|entry| entry.name.to_bytes().starts_with(symbol.to_bytes())).or(fallback)
    }
}
