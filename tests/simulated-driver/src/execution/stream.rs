//! Streams: a lane of the context's order plus what identifies it, and its capture if any.
//!
//! A stream holds no work; its last node lies in the context (`context.rs`), so that dropping
//! the stream lets pending work finish.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::capture::{self, Capture};
use super::context::ContextQueue;
use super::launch_queue::LaunchQueue;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// How a stream stands to the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// `CU_STREAM_LEGACY` and the null stream: waits for and holds up all blocking streams.
    Legacy,
    /// `CU_STREAM_PER_THREAD`: blocking.
    PerThread,
    /// Created with `CU_STREAM_DEFAULT`.
    Blocking,
    /// Created with `CU_STREAM_NON_BLOCKING`: independent of the legacy stream.
    NonBlocking,
}

/// A `CUstream`.
#[derive(Debug)]
pub struct Stream {
    id: u64,
    kind: StreamKind,
    priority: i32,
    pub(super) lane: usize,
    context: Weak<ContextQueue>,
    pub(super) context_id: u64,
    pub(super) launches: Arc<LaunchQueue>,
    /// The process that made it.
    process: u32,
    capture: Mutex<Option<Arc<Capture>>>,
    /// Values that programs gave to attributes, by number.
    attributes: Mutex<BTreeMap<u32, [c_char; 64]>>,
}

impl Stream {
    pub(super) fn new(
        context: Weak<ContextQueue>,
        kind: StreamKind,
        priority: i32,
        lane: usize,
    ) -> Arc<Stream> {
        Arc::new(Stream {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            kind,
            priority,
            lane,
            context_id: context.upgrade().map_or(0, |context| context.id()),
            context,
            launches: Arc::default(),
            process: std::process::id(),
            capture: Mutex::new(None),
            attributes: Mutex::default(),
        })
    }

    /// A number unique in the process (`cuStreamGetId`).
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How it stands to the legacy stream (`cuStreamGetFlags`).
    pub fn kind(&self) -> StreamKind {
        self.kind
    }

    /// As given at creation (`cuStreamGetPriority`); lower numbers come first.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// The context that made it, while that lives (`cuStreamGetCtx`).
    pub fn context(&self) -> Option<Arc<ContextQueue>> {
        self.context.upgrade()
    }

    /// What the program gave to an attribute (`cuStreamSetAttribute`).
    pub fn attribute(&self, number: u32) -> Option<[c_char; 64]> {
        self.attributes.lock().get(&number).copied()
    }

    /// Keeps a value of an attribute.
    pub fn set_attribute(&self, number: u32, value: [c_char; 64]) {
        self.attributes.lock().insert(number, value);
    }

    /// True when the legacy stream waits for it.
    pub(super) fn is_blocking(&self) -> bool {
        self.kind != StreamKind::NonBlocking
    }

    /// The capture that the stream takes part in, valid or not, until it ends.
    pub(super) fn capture(&self) -> Option<Arc<Capture>> {
        let mut capture = self.capture.lock();
        if capture.as_ref().is_some_and(|capture| capture.has_ended()) {
            *capture = None;
        }
        capture.clone()
    }

    pub(super) fn join(&self, capture: Arc<Capture>) {
        *self.capture.lock() = Some(capture);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // In a forked child the locks below may be held by threads that do not exist there.
        if std::process::id() != self.process {
            return;
        }
        capture::abandon(self);
        if let Some(context) = self.context.upgrade() {
            context.retire_lane(self.lane);
        }
    }
}
