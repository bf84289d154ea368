//! Handles: numbers that stand for objects, checked at every use and never given out twice.
//!
//! The real driver's handles are pointers that it follows; here a stale or invented handle is found instead.
//! Each kind of object has a registry of its own, so a handle of the wrong kind is found too.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use turnus_bindings::CUerror;

/// Distance of two handles; looks like an aligned pointer.
const STEP: usize = 16;
/// Distance of the first handles of two kinds.
const KIND: usize = 1 << 44;

/// Objects of one kind by handle.
#[derive(Debug)]
pub struct Registry<T> {
    entries: RwLock<HashMap<usize, T, BuildHasherDefault<HandleHasher>>>,
    next: AtomicUsize,
}

impl<T: Clone> Registry<T> {
    /// An empty registry; `kind` (from 1) keeps its handles apart from those of others.
    pub const fn new(kind: usize) -> Self {
        Self {
            entries: RwLock::new(HashMap::with_hasher(BuildHasherDefault::new())),
            next: AtomicUsize::new(kind * KIND + STEP),
        }
    }

    /// A handle that was never given out.
    pub fn new_handle(&self) -> usize {
        self.next.fetch_add(STEP, Ordering::Relaxed)
    }

    /// Adds an object and returns its handle.
    pub fn add(&self, object: T) -> usize {
        let handle = self.new_handle();
        self.put(handle, object);
        handle
    }

    /// Makes `handle` stand for `object`.
    pub fn put(&self, handle: usize, object: T) {
        self.entries.write().insert(handle, object);
    }

    /// The object of a handle.
    pub fn get<P>(&self, handle: *mut P) -> Result<T, CUerror> {
        self.entries.read().get(&(handle as usize)).cloned().ok_or(CUerror::INVALID_HANDLE)
    }

    /// Takes an object out.
    pub fn remove<P>(&self, handle: *mut P) -> Result<T, CUerror> {
        self.entries.write().remove(&(handle as usize)).ok_or(CUerror::INVALID_HANDLE)
    }

    /// Takes out what `gone` says, and returns it.
    pub fn remove_where(&self, gone: impl Fn(&T) -> bool) -> Vec<T> {
        let mut entries = self.entries.write();
        let handles: Vec<usize> =
            entries.iter().filter(|(_, object)| gone(object)).map(|(&handle, _)| handle).collect();
        handles.iter().filter_map(|handle| entries.remove(handle)).collect()
    }

    /// The handle of an object that is as wanted.
    pub fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<usize> {
        self.entries.read().iter().find(|(_, object)| wanted(object)).map(|(handle, _)| *handle)
    }

    /// All objects of the moment.
    pub fn all(&self) -> Vec<T> {
        self.entries.read().values().cloned().collect()
    }
}

/// Handles are spread well enough by themselves.
#[derive(Debug, Default)]
pub struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_usize(&mut self, value: usize) {
        // The upper bits choose the group in the table, so the counting bits are spread over the word.
        self.0 = ((value / STEP) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
