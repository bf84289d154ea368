//! What can be submitted to a stream, and the two things that work needs from outside: the
//! process's device address space (`Space`) and kernels that can be interrupted (`KernelRun`).
//!
//! Work is data: it is cloned when a graph is launched, so parameters are copied at submission
//! and never read again from the caller. Next: `context.rs` for submission, `node.rs` for order.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::event::Event;
use super::graph::Graph;
use super::graph_exec::GraphExec;
use turnus_bindings::CUerror;

/// Why work failed. It becomes the sticky error of its context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The code that every later call of the context returns.
    pub error: CUerror,
    /// The device address that was touched, or 0 when the fault has none.
    pub address: u64,
}

impl Fault {
    /// A fault at a device address.
    pub fn at(error: CUerror, address: u64) -> Self {
        Fault { error, address }
    }
}

/// The device address space of this process on one device, as work sees it.
///
/// Every call checks its whole range; calls come from several driver threads at once. Execution
/// hands over at most one link chunk at a time, so that a range unmapped in the middle of a copy
/// is found at the next chunk.
pub trait Space: Send + Sync {
    /// Writes `bytes` bytes from host memory to a device address.
    ///
    /// # Safety
    /// `source` is readable for `bytes` bytes. It comes from the program, as on the real driver.
    unsafe fn copy_to_device(&self, destination: u64, source: *const u8, bytes: u64) -> Result<(), Fault>;

    /// Reads `bytes` bytes at a device address into host memory.
    ///
    /// # Safety
    /// `destination` is writable for `bytes` bytes.
    unsafe fn copy_from_device(&self, source: u64, destination: *mut u8, bytes: u64) -> Result<(), Fault>;

    /// Copies inside the address space; ranges may overlap (the outcome is then as of memmove).
    fn copy_within(&self, destination: u64, source: u64, bytes: u64) -> Result<(), Fault>;

    /// Writes `count` elements of `element_bytes` (1, 2 or 4) with the low bytes of `value`.
    fn fill(&self, destination: u64, value: u32, element_bytes: u8, count: u64) -> Result<(), Fault>;

    /// Moves managed memory to this device, or to the host; returns how many bytes had to move. What finds no
    /// room stays where it is.
    fn prefetch(&self, address: u64, bytes: u64, to_host: bool) -> u64;

    /// Reads 4 or 8 bytes, aligned, at a device address or a device alias of host memory, as one
    /// access that orders what was written before the value.
    fn load_value(&self, address: u64, bytes: u8) -> Result<u64, Fault>;

    /// Writes 4 or 8 bytes, as `load_value` reads them.
    fn store_value(&self, address: u64, value: u64, bytes: u8) -> Result<(), Fault>;
}

/// A kernel with its launch shape and its parameters, ready to be started any number of times.
pub trait KernelImage: Send + Sync {
    /// Starts one launch. Called on the compute thread when the launch's turn has come.
    fn start(&self) -> Box<dyn KernelRun>;

    /// The name for messages.
    fn name(&self) -> &str;

    /// The image itself, for the surface to know it again.
    fn as_any(&self) -> &dyn std::any::Any;

    /// Local memory that each thread needs.
    fn local_bytes(&self) -> u64 {
        0
    }
}

/// One launch under way.
pub trait KernelRun: Send {
    /// Runs until the kernel ends, faults, `most` instructions of warps are executed, or `until` is
    /// reached (roughly; a step over by a tenth of a millisecond is fine). A kernel that only waits must come back too. The memory that it
    /// works on comes with the image; locks on mappings are taken inside and not kept.
    fn run(&mut self, until: Instant, most: u64) -> KernelStep;

    /// Instructions of warps executed so far.
    fn executed_instructions(&self) -> u64 {
        0
    }
}

/// How a slice of a kernel ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelStep {
    /// Time was up; call `run` again.
    Yielded,
    /// All blocks have returned.
    Finished,
    /// The kernel failed; its context is lost.
    Faulted(Fault),
}

/// A pointer into the program's memory that work may carry to a driver thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPointer(pub *mut c_void);

// SAFETY: the pointer is only dereferenced by the work that carries it; that the memory outlives
// the work and is not raced on is the program's duty in the CUDA driver API (asynchronous copies).
unsafe impl Send for HostPointer {}
// SAFETY: as above; sharing the value shares no access by itself.
unsafe impl Sync for HostPointer {}

/// One end of a copy.
#[derive(Clone, Debug)]
pub enum Memory {
    /// Host memory that stays put until the copy is done (pinned, or the caller waits).
    Host(HostPointer),
    /// Bytes already taken from the program (a pageable source of an asynchronous copy).
    Staged(Arc<[u8]>),
    /// A device address.
    Device(u64),
}

/// One end of a copy with its layout; pitches are ignored when height and depth are 1.
#[derive(Clone, Debug)]
pub struct CopyEnd {
    /// Where the first byte lies.
    pub memory: Memory,
    /// Bytes from one row to the next.
    pub row_pitch_bytes: u64,
    /// Bytes from one slice (of rows) to the next.
    pub slice_pitch_bytes: u64,
}

/// A copy of up to three dimensions. The engine follows from the two ends.
#[derive(Clone, Debug)]
pub struct CopyWork {
    /// Where to.
    pub destination: CopyEnd,
    /// Where from.
    pub source: CopyEnd,
    /// Bytes of one row.
    pub width_bytes: u64,
    /// Rows of one slice; 1 for a linear copy.
    pub height: u64,
    /// Slices; 1 for a linear or two-dimensional copy.
    pub depth: u64,
}

impl CopyWork {
    /// A copy of one contiguous range.
    pub fn linear(destination: Memory, source: Memory, bytes: u64) -> Self {
        let end = |memory| CopyEnd { memory, row_pitch_bytes: bytes, slice_pitch_bytes: bytes };
        CopyWork {
            destination: end(destination),
            source: end(source),
            width_bytes: bytes,
            height: 1,
            depth: 1,
        }
    }
}

/// A memset of up to two dimensions.
#[derive(Clone, Debug)]
pub struct FillWork {
    /// The first device address.
    pub destination: u64,
    /// Bytes from one row to the next; ignored when height is 1.
    pub row_pitch_bytes: u64,
    /// The value; its low `element_bytes` bytes are written.
    pub value: u32,
    /// 1, 2 or 4.
    pub element_bytes: u8,
    /// Elements of one row.
    pub width: u64,
    /// Rows; 1 for a linear fill.
    pub height: u64,
}

/// A range of managed memory on its way to where it will be used (`cuMemPrefetchAsync`).
#[derive(Clone, Copy, Debug)]
pub struct PrefetchWork {
    /// The first address.
    pub address: u64,
    /// Length.
    pub bytes: u64,
    /// To the host, or to the device that the stream is on.
    pub to_host: bool,
}

/// How `Work::WaitValue` compares memory with its value (`CUstreamWaitValue_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCondition {
    /// Cyclic greater or equal: the signed difference is not negative.
    GreaterOrEqual,
    /// Equal.
    Equal,
    /// Any bit of value set in memory.
    And,
    /// `!(memory | value)` is not zero.
    Nor,
}

/// A function of the program's, and its argument (`CUhostFn`).
#[derive(Clone, Copy)]
pub struct HostFunction {
    /// Called on a driver thread; must not call the CUDA API.
    pub function: unsafe extern "C" fn(*mut c_void),
    /// Handed to the function.
    pub data: HostPointer,
}

impl fmt::Debug for HostFunction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HostFunction").field("data", &self.data).finish_non_exhaustive()
    }
}

/// A driver-side step with the context's state as argument: `Ok` while the context is sound.
pub type Step = dyn Fn(Result<(), CUerror>) + Send + Sync;

/// What `Work::WaitUntil` looks at.
pub type Condition = dyn Fn() -> bool + Send + Sync;

/// What a stream can be asked to do.
#[derive(Clone)]
pub enum Work {
    /// Nothing; a join of what it depends on (also graph empty nodes).
    Nothing,
    /// A kernel launch.
    Kernel(Arc<dyn KernelImage>),
    /// A copy on the engine that its ends call for.
    Copy(Arc<CopyWork>),
    /// A memset on the device's own engine.
    Fill(Arc<FillWork>),
    /// A migration of managed memory, on the engine of its direction.
    Prefetch(PrefetchWork),
    /// A function of the program's; skipped in a faulted context (`cuLaunchHostFunc`).
    HostFunction(HostFunction),
    /// Driver-side work in stream order that may block or call into the program; also run, with
    /// the error, in a faulted context (`cuStreamAddCallback`).
    Callback(Arc<Step>),
    /// Short driver-side work in stream order that never blocks (stream-ordered frees); also run,
    /// with the error, in a faulted context.
    Action(Arc<Step>),
    /// Marks the event; outside capture use `ContextQueue::record_event`.
    RecordEvent(Arc<Event>),
    /// Waits for what the event marks when the node is reached (graphs, external waits); streams
    /// use `ContextQueue::wait_event`.
    WaitEvent(Arc<Event>),
    /// Writes a 4- or 8-byte value (`cuStreamWriteValue`).
    WriteValue {
        /// Device address or device alias of host memory.
        address: u64,
        /// The value; the low 4 bytes when `bytes` is 4.
        value: u64,
        /// 4 or 8.
        bytes: u8,
    },
    /// Waits until memory compares with a value (`cuStreamWaitValue`).
    WaitValue {
        /// Device address or device alias of host memory.
        address: u64,
        /// What memory is compared with.
        value: u64,
        /// 4 or 8.
        bytes: u8,
        /// The comparison.
        condition: WaitCondition,
    },
    /// Several pieces in order, as one node of a graph (`cuStreamBatchMemOp`).
    Batch(Arc<[Work]>),
    /// Waits until the condition holds, which is looked at often and must not block (events of other
    /// processes).
    WaitUntil(Arc<Condition>),
    /// A graph inside a graph (`cuGraphAddChildGraphNode`); only as a node of a graph.
    Child(Arc<Graph>),
    /// A launch of an instantiated graph.
    Graph(Arc<GraphExec>),
}

impl fmt::Debug for Work {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Nothing => formatter.write_str("Nothing"),
            Work::Kernel(image) => write!(formatter, "Kernel({})", image.name()),
            Work::Copy(copy) => write!(formatter, "{copy:?}"),
            Work::Fill(fill) => write!(formatter, "{fill:?}"),
            Work::Prefetch(prefetch) => write!(formatter, "{prefetch:?}"),
            Work::HostFunction(function) => write!(formatter, "{function:?}"),
            Work::Callback(_) => formatter.write_str("Callback"),
            Work::Action(_) => formatter.write_str("Action"),
            Work::RecordEvent(event) => write!(formatter, "RecordEvent({})", event.id()),
            Work::WaitEvent(event) => write!(formatter, "WaitEvent({})", event.id()),
            Work::WriteValue { address, value, .. } => write!(formatter, "WriteValue({address:#x}, {value})"),
            Work::WaitValue { address, value, condition, .. } => {
                write!(formatter, "WaitValue({address:#x}, {condition:?} {value})")
            }
            Work::Batch(works) => write!(formatter, "Batch({works:?})"),
            Work::WaitUntil(_) => formatter.write_str("WaitUntil"),
            Work::Child(graph) => write!(formatter, "Child({})", graph.id()),
            Work::Graph(exec) => write!(formatter, "Graph({})", exec.id()),
        }
    }
}
