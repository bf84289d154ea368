//! Which streams are in capture: while one is, the turn is not given up.
//!
//! Any synchronising call can invalidate a capture, and threads other than the one that began it
//! may add to it. So beginning is gated, ending is only noted, and while a capture is open every
//! thread passes. Bounded by the daemon's time-out for drains, which names the tenant.

use crate::member;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use turnus_bindings::{CUerror, CUresult, fns, types::*};

/// The open captures of a member.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    open: Mutex<BTreeSet<Key>>,
    count: AtomicUsize,
}

/// A stream; the thread counts too where the stream is "the calling thread's own".
type Key = (usize, libc::pid_t);

fn key(stream: CUstream) -> Key {
    match stream as usize {
        // 0 begins a capture only through the per-thread forms of the call, where it means 2.
        // SAFETY: gettid(2) takes no argument and cannot fail; glibc's wrapper is too young.
        0 | 2 => (2, unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }),
        stream => (stream, 0),
    }
}

impl Captures {
    /// Whether any stream of this process is in capture.
    pub(crate) fn any_open(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// No context is left, and no stream: what was in capture went with them.
    pub(crate) fn forget_all(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clear();
        self.count.store(0, Ordering::Release);
    }

    fn begun(&self, stream: CUstream) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(key(stream));
        self.count.store(open.len(), Ordering::Release);
    }

    fn ended(&self, stream: CUstream) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&key(stream));
        self.count.store(open.len(), Ordering::Release);
    }
}

fn note_begun(stream: CUstream, result: CUresult) -> CUresult {
    if let (Ok(()), Some(member)) = (result, member::current()) {
        member.captures.begun(stream);
    }
    result
}

/// Handler of `cuStreamBeginCapture`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn begin(real: fns::cuStreamBeginCapture, stream: CUstream) -> CUresult {
    // SAFETY: the arguments are passed through.
    note_begun(stream, unsafe { real(stream) })
}

/// Handler of `cuStreamBeginCapture_v2`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn begin_v2(
    real: fns::cuStreamBeginCapture_v2,
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> CUresult {
    // SAFETY: the arguments are passed through.
    note_begun(stream, unsafe { real(stream, mode) })
}

/// Handler of `cuStreamBeginCaptureToGraph`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn begin_to_graph(
    real: fns::cuStreamBeginCaptureToGraph,
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> CUresult {
    // SAFETY: the arguments are passed through.
    note_begun(stream, unsafe { real(stream, graph, dependencies, edges, count, mode) })
}

/// Handler of `cuStreamBeginRecaptureToGraph`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn begin_recapture(
    real: fns::cuStreamBeginRecaptureToGraph,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    graph: CUgraph,
    callback: CUgraphRecaptureCallback,
    user_data: *mut c_void,
) -> CUresult {
    // SAFETY: the arguments are passed through.
    note_begun(stream, unsafe { real(stream, mode, graph, callback, user_data) })
}

/// Handler of `cuStreamEndCapture`: whatever it answers, the capture of this stream is over, unless
/// the call came from a thread that may not end it.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn end(real: fns::cuStreamEndCapture, stream: CUstream, graph: *mut CUgraph) -> CUresult {
    // SAFETY: the arguments are passed through.
    let result = unsafe { real(stream, graph) };
    if result != Err(CUerror::STREAM_CAPTURE_WRONG_THREAD)
        && let Some(member) = member::current()
    {
        member.captures.ended(stream);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: usize) -> CUstream {
        core::ptr::without_provenance_mut(number)
    }

    #[test]
    fn a_capture_is_open_from_its_begin_to_its_end() {
        let captures = Captures::default();
        captures.begun(stream(100));
        captures.begun(stream(200));
        captures.ended(stream(100));
        assert!(captures.any_open());
        captures.ended(stream(100));
        assert!(captures.any_open(), "ending one stream twice ended the other's capture");
        captures.ended(stream(200));
        assert!(!captures.any_open());
    }

    #[test]
    fn the_threads_own_default_stream_is_another_one_in_each_thread() {
        let captures = Captures::default();
        captures.begun(CU_STREAM_PER_THREAD);
        std::thread::scope(|scope| {
            scope.spawn(|| captures.ended(stream(0)));
        });
        assert!(captures.any_open());
        captures.ended(stream(0));
        assert!(!captures.any_open());
    }
}
