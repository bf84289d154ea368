//! The order of one CUDA context: which node waits for which, the sticky error, synchronisation.
//!
//! Rules (CUDA driver API, "Stream synchronization behavior"): work of a stream is in order;
//! legacy work waits for the last work of every blocking stream, and later work of blocking
//! streams waits for it; a fault ends the context, what is pending is discarded. Engines are in
//! `executor.rs`, capture in `capture.rs`.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use turnus_bindings::CUerror;

use super::capture;
use super::event::{Event, Mark};
use super::executor::Executor;
use super::node::{Node, Task};
use super::output::Output;
use super::stream::{Stream, StreamKind};
use super::work::{Space, Work};

/// Room for what kernels print: the default of `CU_LIMIT_PRINTF_FIFO_SIZE`.
const PRINT_BYTES: usize = 1 << 20;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What all nodes of a context share.
pub(super) struct Domain {
    pub(super) executor: Arc<Executor>,
    pub(super) space: Arc<dyn Space>,
    /// Kernels and copies started and unfinished.
    pub(super) running: AtomicUsize,
    /// What its kernels print.
    pub(super) output: Output,
    sticky: AtomicU32,
    closed: AtomicBool,
}

impl Domain {
    /// The sticky error, if any; a closed context answers `CONTEXT_IS_DESTROYED`.
    pub(super) fn check(&self) -> Result<(), CUerror> {
        match CUerror::new(self.sticky.load(Ordering::Acquire)) {
            Some(error) => Err(error),
            None if self.closed.load(Ordering::Acquire) => Err(CUerror::CONTEXT_IS_DESTROYED),
            None => match self.executor.hardware.failure() {
                Some(error) => {
                    self.fault(error);
                    Err(error)
                }
                None => Ok(()),
            },
        }
    }

    /// `check` for a caller from outside, who gets to see what failed.
    fn check_for_host(&self) -> Result<(), CUerror> {
        self.check().inspect_err(|_| self.output.flush())
    }

    /// The same after a look at the device, for calls that have waited: what they waited for may be gone with it.
    fn check_after_wait(&self) -> Result<(), CUerror> {
        if let Some(error) = self.executor.hardware.failure_now() {
            self.fault(error);
        }
        self.check_for_host()
    }

    /// Makes `error` sticky unless another one is already.
    pub(super) fn fault(&self, error: CUerror) {
        let exchanged = self.sticky.compare_exchange(0, error.code(), Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_ok() {
            self.executor.hardware.note_fault(error);
        }
    }
}

#[derive(Default)]
struct Lane {
    in_use: bool,
    blocking: bool,
    tail: Option<Arc<Node>>,
}

#[derive(Default)]
struct Order {
    lanes: Vec<Lane>,
    free_lanes: Vec<usize>,
    legacy_tail: Option<Arc<Node>>,
    /// Last work of streams that are gone, and whether the legacy stream waits for it.
    orphans: Vec<(Arc<Node>, bool)>,
}

impl Order {
    /// The last work of all lanes, or of the blocking ones.
    fn tails(&self, blocking_only: bool) -> impl Iterator<Item = &Arc<Node>> {
        let lanes = self.lanes.iter().filter_map(|lane| Some((lane.tail.as_ref()?, lane.blocking)));
        let orphans = self.orphans.iter().map(|(node, blocking)| (node, *blocking));
        lanes
            .chain(orphans)
            .filter(move |(_, blocking)| *blocking || !blocking_only)
            .map(|(node, _)| node)
            .chain(&self.legacy_tail)
    }

    /// Puts `first` behind what the stream's next work waits for, and makes `last` its new tail.
    fn append(&mut self, stream: &Stream, first: &Arc<Node>, last: &Arc<Node>) {
        self.orphans.retain(|(node, _)| !node.is_done());
        if stream.kind() == StreamKind::Legacy {
            self.tails(true).for_each(|tail| first.after(tail));
            self.legacy_tail = Some(last.clone());
            return;
        }
        if stream.is_blocking()
            && let Some(legacy) = &self.legacy_tail
        {
            first.after(legacy);
        }
        let lane = &mut self.lanes[stream.lane];
        if let Some(tail) = &lane.tail {
            first.after(tail);
        }
        lane.tail = Some(last.clone());
    }
}

/// A CUDA context as execution sees it.
pub struct ContextQueue {
    id: u64,
    pub(super) domain: Arc<Domain>,
    order: Mutex<Order>,
    legacy: OnceLock<Arc<Stream>>,
}

impl fmt::Debug for ContextQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ContextQueue").field("id", &self.id).finish_non_exhaustive()
    }
}

thread_local! {
    /// The calling thread's per-thread default streams by context.
    static THREAD_STREAMS: RefCell<Vec<(u64, Arc<Stream>)>> = const { RefCell::new(Vec::new()) };
}

impl ContextQueue {
    /// A context on the executor's device, with work in `space`. Starts no thread.
    pub fn new(executor: Arc<Executor>, space: Arc<dyn Space>) -> Arc<ContextQueue> {
        let domain = Domain {
            executor,
            space,
            running: AtomicUsize::new(0),
            output: Output::new(PRINT_BYTES),
            sticky: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        };
        Arc::new(ContextQueue {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            domain: Arc::new(domain),
            order: Mutex::new(Order::default()),
            legacy: OnceLock::new(),
        })
    }

    /// A number unique in the process (`cuCtxGetId`).
    pub fn id(&self) -> u64 {
        self.id
    }

    /// A new stream (`cuStreamCreateWithPriority`); lower priority numbers come first.
    pub fn create_stream(self: &Arc<Self>, non_blocking: bool, priority: i32) -> Arc<Stream> {
        let kind = if non_blocking { StreamKind::NonBlocking } else { StreamKind::Blocking };
        self.new_stream(kind, priority)
    }

    /// `CU_STREAM_LEGACY`, and the null stream of entry points without `_ptsz`.
    pub fn legacy_stream(self: &Arc<Self>) -> Arc<Stream> {
        let weak = Arc::downgrade(self);
        self.legacy.get_or_init(|| Stream::new(weak, StreamKind::Legacy, 0, usize::MAX)).clone()
    }

    /// `CU_STREAM_PER_THREAD` of the calling thread, and the null stream of `_ptsz` entry points.
    pub fn per_thread_stream(self: &Arc<Self>) -> Arc<Stream> {
        let known = THREAD_STREAMS.try_with(|streams| {
            let mut streams = streams.borrow_mut();
            streams.retain(|(_, stream)| stream.context().is_some());
            if let Some((_, stream)) = streams.iter().find(|(context, _)| *context == self.id) {
                return stream.clone();
            }
            let stream = self.new_stream(StreamKind::PerThread, 0);
            streams.push((self.id, stream.clone()));
            stream
        });
        // A thread whose locals are gone (a destructor calls CUDA) gets a stream for this call.
        known.unwrap_or_else(|_| self.new_stream(StreamKind::PerThread, 0))
    }

    fn new_stream(self: &Arc<Self>, kind: StreamKind, priority: i32) -> Arc<Stream> {
        let mut order = self.order.lock();
        let lane = order.free_lanes.pop().unwrap_or_else(|| {
            order.lanes.push(Lane::default());
            order.lanes.len() - 1
        });
        order.lanes[lane] = Lane { in_use: true, blocking: kind != StreamKind::NonBlocking, tail: None };
        Stream::new(Arc::downgrade(self), kind, priority, lane)
    }

    /// The stream is gone; its pending work stays in the order until it is done.
    pub(super) fn retire_lane(&self, lane: usize) {
        let mut order = self.order.lock();
        let Some(retired) = order.lanes.get_mut(lane).filter(|lane| lane.in_use).map(std::mem::take) else {
            return;
        };
        order.free_lanes.push(lane);
        if let Some(tail) = retired.tail.filter(|tail| !tail.is_done()) {
            order.orphans.push((tail, retired.blocking));
        }
    }

    /// Puts work into a stream, or into its graph while it captures. Returns at once.
    ///
    /// Errors: the sticky error; 901, 906 of capture; `INVALID_VALUE` for a child graph, which has
    /// no use in a stream. A kernel waits here while the stream's launch queue is full.
    pub fn submit(&self, stream: &Arc<Stream>, work: Work) -> Result<(), CUerror> {
        self.check_stream(stream)?;
        if capture::admit(self, stream)? {
            return capture::record_work(stream, work);
        }
        match work {
            Work::RecordEvent(event) => self.enqueue_mark(stream, &event),
            Work::WaitEvent(event) => {
                if let Some(node) = event.waited_node() {
                    self.enqueue(stream, Work::Nothing, Some(&node));
                }
            }
            Work::Graph(exec) => exec.enqueue(self, stream),
            Work::Child(_) => return Err(CUerror::INVALID_VALUE),
            Work::Batch(works) => {
                works.iter().for_each(|work| drop(self.enqueue(stream, work.clone(), None)))
            }
            work => {
                if matches!(work, Work::Kernel(_)) {
                    self.domain.output.flush();
                    stream.launches.wait_for_room();
                }
                self.enqueue(stream, work, None);
            }
        }
        Ok(())
    }

    /// Submits and waits for that work alone (synchronous copies). The caller has called
    /// `capture::check_unsafe_call`; a capturing stream answers 900 and loses its capture.
    pub fn submit_and_wait(&self, stream: &Arc<Stream>, work: Work) -> Result<(), CUerror> {
        self.check_stream(stream)?;
        if capture::admit(self, stream)? {
            return Err(capture::break_stream(stream));
        }
        self.enqueue(stream, work, None).wait();
        self.domain.output.flush();
        self.domain.check_after_wait()
    }

    /// `cuEventRecord`, and with `external` `CU_EVENT_RECORD_EXTERNAL` under capture.
    pub fn record_event(
        &self,
        stream: &Arc<Stream>,
        event: &Arc<Event>,
        external: bool,
    ) -> Result<(), CUerror> {
        self.check_stream(stream)?;
        if capture::admit(self, stream)? {
            return capture::record_event(stream, event, external);
        }
        self.enqueue_mark(stream, event);
        Ok(())
    }

    /// `cuStreamWaitEvent`, and with `external` `CU_EVENT_WAIT_EXTERNAL` under capture. The event
    /// may belong to another context or device.
    pub fn wait_event(
        &self,
        stream: &Arc<Stream>,
        event: &Arc<Event>,
        external: bool,
    ) -> Result<(), CUerror> {
        self.check_stream(stream)?;
        if capture::admit_wait(self, stream, event)? {
            return capture::wait_event(stream, event, external);
        }
        if let Some(node) = event.waited_node().filter(|node| !node.is_done()) {
            self.enqueue(stream, Work::Nothing, Some(&node));
        }
        Ok(())
    }

    /// `cuStreamSynchronize`.
    pub fn synchronize_stream(&self, stream: &Arc<Stream>) -> Result<(), CUerror> {
        self.check_stream(stream)?;
        if capture::admit(self, stream)? {
            return Err(capture::break_stream(stream));
        }
        capture::check_unsafe_call()?;
        self.pending_tails(stream).iter().for_each(|node| node.wait());
        self.domain.output.flush();
        self.domain.check_after_wait()
    }

    /// `cuStreamQuery`: `NOT_READY` while work of the stream is unfinished.
    pub fn query_stream(&self, stream: &Arc<Stream>) -> Result<(), CUerror> {
        self.check_stream(stream)?;
        if capture::admit(self, stream)? {
            return Err(capture::break_stream(stream));
        }
        capture::check_unsafe_call()?;
        let pending = !self.pending_tails(stream).is_empty();
        self.domain.check_for_host()?;
        if pending { Err(CUerror::NOT_READY) } else { Ok(()) }
    }

    /// `cuCtxSynchronize`: 900 while a stream of the context captures, which breaks the capture.
    pub fn synchronize_all(&self) -> Result<(), CUerror> {
        self.domain.check_for_host()?;
        capture::check_context_synchronize(self)?;
        capture::check_unsafe_call()?;
        self.wait_all();
        self.domain.check_after_wait()
    }

    /// Waits for everything submitted before the call, whatever its outcome. No checks: for
    /// frees that wait like the driver's, and for destruction.
    pub fn wait_all(&self) {
        let tails: Vec<_> = self.order.lock().tails(false).filter(|tail| !tail.is_done()).cloned().collect();
        tails.iter().for_each(|tail| tail.wait());
        self.domain.output.flush();
    }

    /// What the context's kernels print.
    pub fn output(&self) -> &Output {
        &self.domain.output
    }

    /// The error that every call of the context returns since a fault, or
    /// `CONTEXT_IS_DESTROYED` after `close`.
    pub fn check(&self) -> Result<(), CUerror> {
        self.domain.check_for_host()
    }

    /// `check`, and `INVALID_HANDLE` for a stream of another context.
    fn check_stream(&self, stream: &Stream) -> Result<(), CUerror> {
        self.domain.check_for_host()?;
        if stream.context_id == self.id { Ok(()) } else { Err(CUerror::INVALID_HANDLE) }
    }

    /// The sticky error, if any.
    pub fn sticky(&self) -> Option<CUerror> {
        self.domain.check_for_host().err()
    }

    /// Ends the context with an error: what runs is stopped within a slice or a chunk, what is
    /// pending is discarded, and all waits end. The first fault stays.
    pub fn fault(&self, error: CUerror) {
        self.domain.fault(error);
    }

    /// True while a kernel or a copy of the context has started and not finished.
    pub fn running(&self) -> bool {
        self.domain.running.load(Ordering::Acquire) > 0
    }

    /// Discards what is pending, waits for the engines to let go, and refuses everything later.
    /// Wait first (`wait_all`) where the driver would.
    pub fn close(&self) {
        self.domain.closed.store(true, Ordering::Release);
        self.wait_all();
    }

    /// What synchronising with a stream waits for, without what is done.
    fn pending_tails(&self, stream: &Stream) -> Vec<Arc<Node>> {
        let order = self.order.lock();
        let pending = |node: &&Arc<Node>| !node.is_done();
        if stream.kind() == StreamKind::Legacy {
            return order.tails(true).filter(pending).cloned().collect();
        }
        order.lanes[stream.lane].tail.iter().filter(pending).cloned().collect()
    }

    fn enqueue(&self, stream: &Stream, work: Work, also_after: Option<&Arc<Node>>) -> Arc<Node> {
        let is_launch = matches!(work, Work::Kernel(_));
        let node = Node::new(self.domain.clone(), stream.priority(), Some(Task::Work(work)));
        if is_launch {
            node.count_in(&stream.launches);
        }
        if let Some(predecessor) = also_after {
            node.after(predecessor);
        }
        self.append(stream, &node, &node);
        node.clone().release();
        node
    }

    fn enqueue_mark(&self, stream: &Stream, event: &Event) {
        let node = Node::new(self.domain.clone(), stream.priority(), None);
        let mark = Mark::new(node.clone());
        node.set_task(Task::Mark(mark.clone()));
        // The place in the stream comes first: a wait for the mark by another thread must not
        // end up before it in the same stream.
        self.append(stream, &node, &node);
        event.set_mark(mark);
        node.release();
    }

    /// Places a chain from `first` to `last` at the end of the stream; neither is released.
    pub(super) fn append(&self, stream: &Stream, first: &Arc<Node>, last: &Arc<Node>) {
        self.order.lock().append(stream, first, last);
    }
}
