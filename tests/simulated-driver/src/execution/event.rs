//! Events: a mark in a stream that can be waited for, asked about and timed.
//!
//! An event remembers its last mark only. A mark made under capture belongs to the capture and
//! can be waited for by streams (see `capture.rs`), not asked about.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use super::capture::{self, CapturedMark};
use super::node::Node;
use turnus_bindings::CUerror;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// One recording of an event.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) node: Arc<Node>,
    reached: OnceLock<Instant>,
}

impl Mark {
    pub(super) fn new(node: Arc<Node>) -> Arc<Mark> {
        Arc::new(Mark { node, reached: OnceLock::new() })
    }

    pub(super) fn reach(&self) {
        self.reached.get_or_init(Instant::now);
    }
}

#[derive(Debug)]
enum Last {
    Never,
    Stream(Arc<Mark>),
    Captured(CapturedMark),
}

/// A `CUevent`.
#[derive(Debug)]
pub struct Event {
    id: u64,
    timing: bool,
    last: Mutex<Last>,
}

impl Event {
    /// An event that was never recorded; `timing` is false for `CU_EVENT_DISABLE_TIMING`.
    pub fn new(timing: bool) -> Arc<Event> {
        Arc::new(Event { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), timing, last: Mutex::new(Last::Never) })
    }

    /// A number unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// `cuEventQuery`: `NOT_READY` while the marked work is unfinished.
    pub fn query(&self) -> Result<(), CUerror> {
        let mark = self.mark()?;
        capture::check_unsafe_call()?;
        match mark {
            None => Ok(()),
            Some(mark) => {
                mark.node.domain.check()?;
                if mark.node.is_done() { Ok(()) } else { Err(CUerror::NOT_READY) }
            }
        }
    }

    /// `cuEventSynchronize`: waits for the marked work; an event never recorded is complete.
    pub fn synchronize(&self) -> Result<(), CUerror> {
        let mark = self.mark()?;
        capture::check_unsafe_call()?;
        match mark {
            None => Ok(()),
            Some(mark) => {
                mark.node.wait();
                mark.node.domain.output.flush();
                mark.node.domain.check()
            }
        }
    }

    /// `cuEventElapsedTime` from `self` to `end`, in milliseconds.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f32, CUerror> {
        if !self.timing || !end.timing {
            return Err(CUerror::INVALID_HANDLE);
        }
        let (Some(first), Some(last)) = (self.mark()?, end.mark()?) else {
            return Err(CUerror::INVALID_HANDLE);
        };
        first.node.domain.check()?;
        last.node.domain.check()?;
        let (Some(from), Some(to)) = (first.reached.get(), last.reached.get()) else {
            return Err(CUerror::NOT_READY);
        };
        let milliseconds = match to.checked_duration_since(*from) {
            Some(forward) => forward.as_secs_f64(),
            None => -from.duration_since(*to).as_secs_f64(),
        };
        Ok((milliseconds * 1000.0) as f32)
    }

    /// The last mark made outside capture; a captured event may not be asked, and asking breaks
    /// its capture.
    fn mark(&self) -> Result<Option<Arc<Mark>>, CUerror> {
        match &*self.last.lock() {
            Last::Never => Ok(None),
            Last::Stream(mark) => Ok(Some(mark.clone())),
            Last::Captured(captured) => {
                captured.capture.invalidate();
                Err(CUerror::CAPTURED_EVENT)
            }
        }
    }

    pub(super) fn set_mark(&self, mark: Arc<Mark>) {
        *self.last.lock() = Last::Stream(mark);
    }

    pub(super) fn set_captured(&self, captured: CapturedMark) {
        *self.last.lock() = Last::Captured(captured);
    }

    pub(super) fn captured(&self) -> Option<CapturedMark> {
        match &*self.last.lock() {
            Last::Captured(captured) => Some(captured.clone()),
            _ => None,
        }
    }

    /// Whether the marked work is over, well or not; allowed while a stream captures.
    pub fn is_over(&self) -> bool {
        self.waited_node().is_none_or(|node| node.is_done())
    }

    /// What a stream waits for; `None` when never recorded.
    pub(super) fn waited_node(&self) -> Option<Arc<Node>> {
        match &*self.last.lock() {
            Last::Stream(mark) => Some(mark.node.clone()),
            _ => None,
        }
    }
}
