//! Execution: streams, events, work queues, engines, host functions, capture and graphs.
//!
//! Work is a graph of nodes (`node.rs`): submission (`context.rs`) gives a node its predecessors
//! by the rules of streams, an engine (`engine.rs`, `compute.rs`, `copy.rs`, `front_end.rs`)
//! takes it when all are done. Nothing here knows an `extern "C"` signature, a handle or a
//! mapping: the surface turns handles into `Arc`s and implements `Space` and `KernelImage`.
//!
//! # The interface in short
//! - `Executor::new(hardware)` once per process and device; `ContextQueue::new(executor, space)`
//!   once per CUDA context. No thread exists before the first piece of work.
//! - `ContextQueue`: `create_stream`, `legacy_stream`, `per_thread_stream`, `submit`,
//!   `submit_and_wait` (synchronous copies), `synchronize_stream`, `synchronize_all`,
//!   `query_stream`, `record_event`, `wait_event`, `check` (sticky error, first thing in every
//!   entry point that the driver refuses after a fault), `fault`, `running`, `wait_all` (no
//!   checks: frees, destruction), `close`.
//! - `Event`: `query`, `synchronize`, `elapsed_ms`.
//! - `capture`: `begin`, `end`, `info`, `status`, `update_dependencies`, `exchange_thread_mode`,
//!   `record_node` (a node that no work stands for: allocations), and `check_unsafe_call`: call it first in every entry point that a capture may prohibit
//!   (allocation, synchronous copies and memsets, module load, host registration, frees);
//!   queries and synchronisation here call it themselves.
//! - `Graph` (template), `GraphExec` (instantiated); launched by `Work::Graph`.
//! - `in_host_function()`: the calling thread runs a host function; the API answers 800.
//!
//! Every function that returns an error returns exactly what the driver function would.

mod capture;
mod compute;
mod context;
mod copy;
mod engine;
mod event;
mod executor;
mod front_end;
mod graph;
mod graph_exec;
mod graph_plan;
mod hardware;
mod launch_queue;
mod node;
mod output;
mod stream;
mod unwind;
mod work;

#[cfg(test)]
mod tests;

pub use capture::{
    CaptureInfo, CaptureMode, CaptureStatus, DependencyUpdate, begin, check_unsafe_call, end,
    exchange_thread_mode, info, record_node, status, update_dependencies,
};
pub use context::ContextQueue;
pub use event::Event;
pub use executor::Executor;
pub use front_end::in_host_function;
pub use graph::{Content, Given, Graph, NodeId, NodeKind};
pub use graph_exec::GraphExec;
pub use graph_plan::{Difference, Mismatch};
pub use hardware::{ArenaDevice, Hardware, SliceGuard};
pub use output::Output;
pub use stream::{Stream, StreamKind};
pub use turnus_bindings::CUerror;
pub use work::{
    Condition, CopyEnd, CopyWork, Fault, FillWork, HostFunction, HostPointer, KernelImage, KernelRun,
    KernelStep, Memory, PrefetchWork, Space, Step, WaitCondition, Work,
};
