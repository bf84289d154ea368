//! Stream capture: work of capturing streams becomes nodes of a graph instead of running.
//!
//! A capture spans the stream it began in and every stream that waited for one of its events.
//! A prohibited call breaks it: the call returns a code of the 900 family and `end` returns 901
//! (CUDA driver API, cuStreamBeginCapture and cuThreadExchangeStreamCaptureMode). Captures of the
//! whole process are known here, since calls of other threads and contexts can break them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::ThreadId;

use parking_lot::Mutex;
use turnus_bindings::CUerror;

use super::context::ContextQueue;
use super::event::Event;
use super::graph::{Content, Graph, NodeId};
use super::stream::{Stream, StreamKind};
use super::work::Work;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// Captures that have begun and not ended; `OPEN_COUNT` is its length, readable without the lock.
static OPEN: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
static OPEN_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD_MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

/// `CUstreamCaptureMode`: who may not call what while a capture is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// No thread may make potentially unsafe calls.
    Global,
    /// The capturing thread may not.
    ThreadLocal,
    /// Only calls that conflict with the capture itself are refused.
    Relaxed,
}

/// `CUstreamCaptureStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    /// Not capturing.
    None,
    /// Capturing.
    Active,
    /// Part of a broken capture that has not been ended.
    Invalidated,
}

/// What `cuStreamGetCaptureInfo` tells about an active capture.
#[derive(Clone, Debug)]
pub struct CaptureInfo {
    /// Unique in the process.
    pub id: u64,
    /// The graph so far; the caller must not destroy it.
    pub graph: Arc<Graph>,
    /// What the stream's next node will wait for.
    pub dependencies: Vec<NodeId>,
}

/// How `update_dependencies` changes what the next node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyUpdate {
    /// Add to it.
    Add,
    /// Replace it.
    Set,
}

/// An event recorded under capture.
#[derive(Clone, Debug)]
pub(super) struct CapturedMark {
    pub(super) capture: Arc<Capture>,
    nodes: Vec<NodeId>,
}

#[derive(Debug)]
struct Member {
    context: u64,
    blocking: bool,
    /// What the stream's next node waits for.
    frontier: Vec<NodeId>,
}

/// One capture.
#[derive(Debug)]
pub(super) struct Capture {
    id: u64,
    mode: CaptureMode,
    thread: ThreadId,
    /// The stream it began in.
    origin: u64,
    graph: Arc<Graph>,
    broken: AtomicBool,
    ended: AtomicBool,
    /// The streams in it, by stream id.
    members: Mutex<BTreeMap<u64, Member>>,
}

impl Capture {
    /// Breaks the capture; its streams refuse work until it is ended.
    pub(super) fn invalidate(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    fn frontier(&self, stream: &Stream) -> Vec<NodeId> {
        self.members.lock().get(&stream.id()).map(|member| member.frontier.clone()).unwrap_or_default()
    }

    /// Lets a stream in, or an existing member wait for more.
    fn extend(&self, stream: &Stream, nodes: &[NodeId]) {
        let mut members = self.members.lock();
        let context = stream.context_id;
        let fresh = || Member { context, blocking: stream.is_blocking(), frontier: Vec::new() };
        let member = members.entry(stream.id()).or_insert_with(fresh);
        for node in nodes {
            if !member.frontier.contains(node) {
                member.frontier.push(*node);
            }
        }
    }

    /// Adds a node behind the stream's frontier.
    fn record(&self, stream: &Stream, content: impl Into<Content>) -> Result<(), CUerror> {
        let mut members = self.members.lock();
        let member = members.get_mut(&stream.id()).ok_or(CUerror::STREAM_CAPTURE_INVALIDATED)?;
        let node = self.graph.add_node(content, &member.frontier)?;
        member.frontier = vec![node];
        Ok(())
    }

    fn has_member(&self, wanted: impl Fn(&Member) -> bool) -> bool {
        self.members.lock().values().any(wanted)
    }
}

fn open_captures() -> Vec<Arc<Capture>> {
    if OPEN_COUNT.load(Ordering::Acquire) == 0 { Vec::new() } else { OPEN.lock().clone() }
}

/// `cuThreadExchangeStreamCaptureMode`: sets the calling thread's mode, returns the one before.
pub fn exchange_thread_mode(mode: CaptureMode) -> CaptureMode {
    THREAD_MODE.try_with(|cell| cell.replace(mode)).unwrap_or(CaptureMode::Global)
}

/// Refuses a potentially unsafe call with 900, and breaks the captures it is unsafe for.
pub fn check_unsafe_call() -> Result<(), CUerror> {
    let open = open_captures();
    if open.is_empty() {
        return Ok(());
    }
    let thread_mode = THREAD_MODE.try_with(Cell::get).unwrap_or(CaptureMode::Global);
    let this_thread = std::thread::current().id();
    let prohibits = |capture: &&Arc<Capture>| match thread_mode {
        CaptureMode::Relaxed => false,
        _ if capture.thread == this_thread => capture.mode != CaptureMode::Relaxed,
        CaptureMode::Global => capture.mode == CaptureMode::Global,
        CaptureMode::ThreadLocal => false,
    };
    let mut allowed = Ok(());
    for capture in open.iter().filter(prohibits) {
        capture.invalidate();
        allowed = Err(CUerror::STREAM_CAPTURE_UNSUPPORTED);
    }
    allowed
}

/// `cuStreamBeginCapture`, and with `into` `cuStreamBeginCaptureToGraph`: an existing graph and
/// what the first node waits for.
pub fn begin(
    context: &ContextQueue,
    stream: &Arc<Stream>,
    mode: CaptureMode,
    into: Option<(Arc<Graph>, Vec<NodeId>)>,
) -> Result<(), CUerror> {
    context.check()?;
    if stream.kind() == StreamKind::Legacy {
        return Err(CUerror::STREAM_CAPTURE_UNSUPPORTED);
    }
    if stream.capture().is_some() {
        return Err(CUerror::ILLEGAL_STATE);
    }
    let (graph, frontier) = into.unwrap_or_else(|| (Graph::new(), Vec::new()));
    let known = graph.nodes();
    if frontier.iter().any(|node| !known.contains(node)) {
        return Err(CUerror::INVALID_VALUE);
    }
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        mode,
        thread: std::thread::current().id(),
        origin: stream.id(),
        graph,
        broken: AtomicBool::new(false),
        ended: AtomicBool::new(false),
        members: Mutex::new(BTreeMap::new()),
    });
    capture.extend(stream, &frontier);
    stream.join(capture.clone());
    let mut open = OPEN.lock();
    open.push(capture);
    OPEN_COUNT.store(open.len(), Ordering::Release);
    Ok(())
}

/// `cuStreamEndCapture`: the graph, or why there is none. The capture has ended after any answer
/// but 401 (not capturing), 903 (not the stream it began in) and 908 (not its thread).
pub fn end(context: &ContextQueue, stream: &Arc<Stream>) -> Result<Arc<Graph>, CUerror> {
    context.check()?;
    let capture = stream.capture().ok_or(CUerror::ILLEGAL_STATE)?;
    if capture.origin != stream.id() {
        return Err(CUerror::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != CaptureMode::Relaxed && capture.thread != std::thread::current().id() {
        return Err(CUerror::STREAM_CAPTURE_WRONG_THREAD);
    }
    close(&capture);
    if capture.is_broken() {
        return Err(CUerror::STREAM_CAPTURE_INVALIDATED);
    }
    let joined = capture.graph.ancestors(&capture.frontier(stream));
    if capture.has_member(|member| member.frontier.iter().any(|node| !joined.contains(node))) {
        return Err(CUerror::STREAM_CAPTURE_UNJOINED);
    }
    Ok(capture.graph.clone())
}

fn close(capture: &Arc<Capture>) {
    let mut open = OPEN.lock();
    open.retain(|other| other.id != capture.id);
    OPEN_COUNT.store(open.len(), Ordering::Release);
    capture.ended.store(true, Ordering::Release);
}

/// A capture whose first stream is gone can never be ended: it is over.
pub(super) fn abandon(stream: &Stream) {
    if let Some(capture) = stream.capture() {
        capture.invalidate();
        if capture.origin == stream.id() {
            close(&capture);
        }
    }
}

/// `cuStreamIsCapturing`; 906 for the legacy stream while a blocking stream captures.
pub fn status(context: &ContextQueue, stream: &Arc<Stream>) -> Result<CaptureStatus, CUerror> {
    context.check()?;
    if stream.kind() == StreamKind::Legacy {
        let open = open_captures();
        let conflicts = |capture: &Arc<Capture>| conflicts_with_legacy(capture, context);
        return if open.iter().any(conflicts) {
            Err(CUerror::STREAM_CAPTURE_IMPLICIT)
        } else {
            Ok(CaptureStatus::None)
        };
    }
    Ok(match stream.capture() {
        None => CaptureStatus::None,
        Some(capture) if capture.is_broken() => CaptureStatus::Invalidated,
        Some(_) => CaptureStatus::Active,
    })
}

/// `cuStreamGetCaptureInfo`; the details are there while the capture is active.
pub fn info(
    context: &ContextQueue,
    stream: &Arc<Stream>,
) -> Result<(CaptureStatus, Option<CaptureInfo>), CUerror> {
    let status = status(context, stream)?;
    let active = stream.capture().filter(|_| status == CaptureStatus::Active);
    let details = active.map(|capture| CaptureInfo {
        id: capture.id,
        graph: capture.graph.clone(),
        dependencies: capture.frontier(stream),
    });
    Ok((status, details))
}

/// `cuStreamUpdateCaptureDependencies`.
pub fn update_dependencies(
    context: &ContextQueue,
    stream: &Arc<Stream>,
    nodes: &[NodeId],
    update: DependencyUpdate,
) -> Result<(), CUerror> {
    context.check()?;
    let capture = stream.capture().ok_or(CUerror::ILLEGAL_STATE)?;
    if capture.is_broken() {
        return Err(CUerror::STREAM_CAPTURE_INVALIDATED);
    }
    let known = capture.graph.nodes();
    if nodes.iter().any(|node| !known.contains(node)) {
        return Err(CUerror::INVALID_VALUE);
    }
    if update == DependencyUpdate::Set
        && let Some(member) = capture.members.lock().get_mut(&stream.id())
    {
        member.frontier.clear();
    }
    capture.extend(stream, nodes);
    Ok(())
}

/// True when the stream captures, so that work becomes nodes; 901 when its capture is broken, 906
/// for legacy work beside a capture that it would have to wait for.
pub(super) fn admit(context: &ContextQueue, stream: &Stream) -> Result<bool, CUerror> {
    if OPEN_COUNT.load(Ordering::Acquire) == 0 {
        return Ok(false);
    }
    if stream.kind() == StreamKind::Legacy {
        let mut allowed = Ok(false);
        for capture in open_captures().iter().filter(|capture| conflicts_with_legacy(capture, context)) {
            capture.invalidate();
            allowed = Err(CUerror::STREAM_CAPTURE_IMPLICIT);
        }
        return allowed;
    }
    match stream.capture() {
        None => Ok(false),
        Some(capture) if capture.is_broken() => Err(CUerror::STREAM_CAPTURE_INVALIDATED),
        Some(_) => Ok(true),
    }
}

fn conflicts_with_legacy(capture: &Capture, context: &ContextQueue) -> bool {
    capture.has_member(|member| member.blocking && member.context == context.id())
}

/// As `admit` for a wait: a stream that waits for a captured event joins the capture.
pub(super) fn admit_wait(context: &ContextQueue, stream: &Stream, event: &Event) -> Result<bool, CUerror> {
    match event.captured() {
        Some(mark) if mark.capture.has_ended() => Err(CUerror::CAPTURED_EVENT),
        Some(mark) if stream.kind() == StreamKind::Legacy => {
            mark.capture.invalidate();
            Err(CUerror::STREAM_CAPTURE_IMPLICIT)
        }
        Some(mark) if mark.capture.is_broken() => Err(CUerror::STREAM_CAPTURE_INVALIDATED),
        Some(_) => admit(context, stream).map(|_| true),
        None => admit(context, stream),
    }
}

/// A call that a capturing stream may not get (query, synchronise): breaks the capture, 900.
pub(super) fn break_stream(stream: &Stream) -> CUerror {
    if let Some(capture) = stream.capture() {
        capture.invalidate();
    }
    CUerror::STREAM_CAPTURE_UNSUPPORTED
}

/// Synchronising a context is refused while one of its streams captures, and breaks the capture.
pub(super) fn check_context_synchronize(context: &ContextQueue) -> Result<(), CUerror> {
    let mut allowed = Ok(());
    for capture in open_captures() {
        if capture.has_member(|member| member.context == context.id()) {
            capture.invalidate();
            allowed = Err(CUerror::STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    allowed
}

fn active_capture(stream: &Stream) -> Result<Arc<Capture>, CUerror> {
    stream.capture().ok_or(CUerror::STREAM_CAPTURE_INVALIDATED)
}

/// Work of a capturing stream becomes a node; stream callbacks cannot (cuStreamAddCallback).
pub(super) fn record_work(stream: &Arc<Stream>, work: Work) -> Result<(), CUerror> {
    if matches!(work, Work::Callback(_)) {
        return Err(break_stream(stream));
    }
    let work = match work {
        Work::Graph(exec) => Work::Child(exec.as_graph()?),
        work => work,
    };
    active_capture(stream)?.record(stream, work)
}

/// Adds a node that no work of a stream stands for, behind what the stream's next node waits for.
pub fn record_node(context: &ContextQueue, stream: &Arc<Stream>, content: Content) -> Result<(), CUerror> {
    if admit(context, stream)? {
        return active_capture(stream)?.record(stream, content);
    }
    Err(CUerror::ILLEGAL_STATE)
}

/// An event in a capturing stream: a name for the frontier, or a node when external.
pub(super) fn record_event(stream: &Arc<Stream>, event: &Arc<Event>, external: bool) -> Result<(), CUerror> {
    let capture = active_capture(stream)?;
    if external {
        return capture.record(stream, Work::RecordEvent(event.clone()));
    }
    let nodes = capture.frontier(stream);
    event.set_captured(CapturedMark { capture, nodes });
    Ok(())
}

/// A wait that touches a capture: by a capturing stream, or for a captured event.
pub(super) fn wait_event(stream: &Arc<Stream>, event: &Arc<Event>, external: bool) -> Result<(), CUerror> {
    let own = stream.capture();
    match (event.captured(), own) {
        (_, Some(own)) if external => own.record(stream, Work::WaitEvent(event.clone())),
        (None, Some(_)) if event.waited_node().is_none() => Ok(()),
        (None, Some(own)) => {
            own.invalidate();
            Err(CUerror::STREAM_CAPTURE_ISOLATION)
        }
        (Some(mark), Some(own)) if own.id != mark.capture.id => {
            own.invalidate();
            mark.capture.invalidate();
            Err(CUerror::STREAM_CAPTURE_MERGE)
        }
        (Some(mark), own) => {
            mark.capture.extend(stream, &mark.nodes);
            if own.is_none() {
                stream.join(mark.capture.clone());
            }
            Ok(())
        }
        (None, None) => Ok(()),
    }
}
