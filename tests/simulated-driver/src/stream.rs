//! Streams and events as handles, and which stream a `CUstream` argument means.
//!
//! 0 is the default stream: the legacy one, or that of the thread for entry points with `_ptds` or `_ptsz`;
//! 1 and 2 name the two always. The work itself is in `execution`.

use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::{CUevent, CUstream};

use crate::context::{Context, current};
use crate::execution::{CaptureStatus, Event, Stream, status};
use crate::registry::Registry;
use crate::shared_event::SharedEvent;
use crate::space::Result;

/// What the null stream means to an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// `CU_STREAM_LEGACY`.
    Legacy,
    /// `CU_STREAM_PER_THREAD`.
    PerThread,
}

/// A stream with its context.
#[derive(Clone, Debug)]
pub struct StreamEntry {
    /// The stream.
    pub stream: Arc<Stream>,
    /// Where it was created.
    pub context: Arc<Context>,
}

impl StreamEntry {
    /// For calls that have no node in a graph: the context is sound and the stream does not capture.
    pub fn check_outside_capture(&self) -> Result<()> {
        self.context.queue.check()?;
        match status(&self.context.queue, &self.stream)? {
            CaptureStatus::None => Ok(()),
            CaptureStatus::Invalidated => Err(CUerror::STREAM_CAPTURE_INVALIDATED),
            CaptureStatus::Active => Err(CUerror::NOT_SUPPORTED),
        }
    }
}

/// An event with its context.
#[derive(Clone, Debug)]
pub struct EventEntry {
    /// The event.
    pub event: Arc<Event>,
    /// Where it was created.
    pub context: Arc<Context>,
    /// Of an event for several processes: its marks, instead of those of `event`.
    pub shared: Option<Arc<SharedEvent>>,
}

/// Streams that programs created.
pub static STREAMS: Registry<StreamEntry> = Registry::new(2);
/// Events that programs created.
pub static EVENTS: Registry<EventEntry> = Registry::new(3);

/// The stream that `handle` means, with its context.
pub fn resolve(handle: CUstream, default: Default) -> Result<StreamEntry> {
    match (handle as usize, default) {
        (0, Default::Legacy) | (1, _) => {
            let context = current::get()?;
            Ok(StreamEntry { stream: context.queue.legacy_stream(), context })
        }
        (0, Default::PerThread) | (2, _) => {
            let context = current::get()?;
            Ok(StreamEntry { stream: context.queue.per_thread_stream(), context })
        }
        _ => {
            // A current context is needed even where the stream has its own.
            current::get()?;
            STREAMS.get(handle)
        }
    }
}

/// The event of a handle; null is never one.
pub fn event(handle: CUevent) -> Result<EventEntry> {
    if handle.is_null() {
        return Err(CUerror::INVALID_HANDLE);
    }
    EVENTS.get(handle)
}

/// The event of a handle for uses that processes cannot share: nodes of graphs.
pub fn own_event(handle: CUevent) -> Result<EventEntry> {
    let entry = event(handle)?;
    if entry.shared.is_some() { Err(CUerror::NOT_SUPPORTED) } else { Ok(entry) }
}

/// The context is gone: so are its handles.
pub fn forget_all_of(context: u64) {
    drop(STREAMS.remove_where(|entry| entry.context.id() == context));
    drop(EVENTS.remove_where(|entry| entry.context.id() == context));
}
