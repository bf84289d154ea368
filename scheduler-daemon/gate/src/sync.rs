//! Atomics of the standard library, or loom's when the model is checked.
//!
//! Only what the gate's argument rests on goes through here. Nothing else may use it.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
