//! The engines of one device in this process, and which node goes to which.
//!
//! Engines: compute, two link directions, the device's own copies and fills, host functions, and
//! a front end for short steps and memory waits. Their threads live as long as the process and
//! end with it: none holds anything that outlives it but the arena's slice, which the arena takes
//! back from the dead. Order is not decided here: see `node.rs` and `context.rs`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use turnus_bindings::CUerror;
use turnus_simulated_arena::Direction;

use super::engine::Engine;
use super::hardware::Hardware;
use super::node::{Node, Task};
use super::work::{CopyWork, Memory, Work};
use super::{compute, copy, front_end};

/// The engines of one device in this process.
pub struct Executor {
    pub(super) hardware: Arc<dyn Hardware>,
    pub(super) compute: Engine,
    pub(super) to_device: Engine,
    pub(super) to_host: Engine,
    pub(super) device_memory: Engine,
    pub(super) host_functions: Engine,
    pub(super) front_end: Engine,
    running: AtomicUsize,
}

impl fmt::Debug for Executor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Executor").field("running", &self.running()).finish_non_exhaustive()
    }
}

/// A kernel or copy between start and finish, counted for `running`.
pub(super) struct Running(Arc<Node>);

impl Running {
    pub(super) fn new(node: Arc<Node>) -> Self {
        node.domain.running.fetch_add(1, Ordering::AcqRel);
        node.domain.executor.running.fetch_add(1, Ordering::AcqRel);
        Running(node)
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.0
    }

    /// Ends the work, with the fault if it had one, and starts what follows.
    pub(super) fn complete(self, fault: Option<CUerror>) {
        if let Some(error) = fault {
            self.0.domain.fault(error);
        }
        let node = self.0.clone();
        // No longer running before anyone can see that it is done.
        drop(self);
        node.complete();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.domain.running.fetch_sub(1, Ordering::AcqRel);
        self.0.domain.executor.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Executor {
    /// Engines for a device. No thread starts before the first work.
    pub fn new(hardware: Arc<dyn Hardware>) -> Arc<Executor> {
        Arc::new(Executor {
            hardware,
            compute: Engine::default(),
            to_device: Engine::default(),
            to_host: Engine::default(),
            device_memory: Engine::default(),
            host_functions: Engine::default(),
            front_end: Engine::default(),
            running: AtomicUsize::new(0),
        })
    }

    /// True while a kernel or a copy of any context of this process has started on the device and
    /// not finished.
    pub fn running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// Gives a node whose predecessors are done to its engine. Returns it when it needs none:
    /// then it counts as done, and the caller finishes it.
    pub(super) fn start(self: &Arc<Self>, node: Arc<Node>) -> Option<Arc<Node>> {
        let lost = node.domain.check().is_err();
        let task = node.take_task();
        let work = match task {
            None | Some(Task::Work(Work::Nothing)) => return Some(node),
            Some(Task::Mark(mark)) => {
                mark.reach();
                return Some(node);
            }
            Some(Task::Work(work)) => work,
        };
        // A lost context only gets what has to hear of the loss.
        if lost && !matches!(work, Work::Callback(_) | Work::Action(_)) {
            return Some(node);
        }
        let engine = EngineName::of(&work);
        node.set_task(Task::Work(work));
        self.push(engine, node);
        None
    }

    fn push(self: &Arc<Self>, name: EngineName, node: Arc<Node>) {
        let engine = self.engine(name);
        if !engine.push(node) {
            return;
        }
        let executor = self.clone();
        if let Err(stranded) = engine.start_thread(name.thread_name(), move || executor.run(name)) {
            for node in stranded {
                node.domain.fault(CUerror::OPERATING_SYSTEM);
                node.complete();
            }
        }
    }

    fn engine(&self, name: EngineName) -> &Engine {
        match name {
            EngineName::Compute => &self.compute,
            EngineName::ToDevice => &self.to_device,
            EngineName::ToHost => &self.to_host,
            EngineName::DeviceMemory => &self.device_memory,
            EngineName::HostFunctions => &self.host_functions,
            EngineName::FrontEnd => &self.front_end,
        }
    }

    fn run(&self, name: EngineName) {
        match name {
            EngineName::Compute => compute::run(self),
            EngineName::ToDevice => copy::run(self, &self.to_device),
            EngineName::ToHost => copy::run(self, &self.to_host),
            EngineName::DeviceMemory => copy::run(self, &self.device_memory),
            EngineName::HostFunctions => front_end::run_host_functions(self),
            EngineName::FrontEnd => front_end::run(self),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum EngineName {
    Compute,
    ToDevice,
    ToHost,
    DeviceMemory,
    HostFunctions,
    FrontEnd,
}

impl EngineName {
    fn of(work: &Work) -> EngineName {
        match work {
            Work::Kernel(_) => EngineName::Compute,
            Work::Copy(copy) => match direction(copy) {
                Direction::HostToDevice => EngineName::ToDevice,
                Direction::DeviceToHost => EngineName::ToHost,
                Direction::DeviceToDevice => EngineName::DeviceMemory,
            },
            Work::Fill(_) => EngineName::DeviceMemory,
            Work::Prefetch(prefetch) if prefetch.to_host => EngineName::ToHost,
            Work::Prefetch(_) => EngineName::ToDevice,
            Work::HostFunction(_) | Work::Callback(_) => EngineName::HostFunctions,
            // Events and graphs are resolved at submission; they need no engine.
            Work::Nothing
            | Work::Action(_)
            | Work::WriteValue { .. }
            | Work::WaitValue { .. }
            | Work::WaitUntil(_)
            | Work::Batch(_)
            | Work::RecordEvent(_)
            | Work::WaitEvent(_)
            | Work::Child(_)
            | Work::Graph(_) => EngineName::FrontEnd,
        }
    }

    /// As in the thread list; at most 15 bytes.
    fn thread_name(self) -> &'static str {
        match self {
            EngineName::Compute => "cuda-compute",
            EngineName::ToDevice => "cuda-h2d",
            EngineName::ToHost => "cuda-d2h",
            EngineName::DeviceMemory => "cuda-d2d",
            EngineName::HostFunctions => "cuda-host-func",
            EngineName::FrontEnd => "cuda-front-end",
        }
    }
}

/// The engine that a copy's ends call for; host to host goes with the copies to the host.
pub(super) fn direction(copy: &CopyWork) -> Direction {
    let on_device = |memory: &Memory| matches!(memory, Memory::Device(_));
    match (on_device(&copy.source.memory), on_device(&copy.destination.memory)) {
        (false, true) => Direction::HostToDevice,
        (true, true) => Direction::DeviceToDevice,
        (_, false) => Direction::DeviceToHost,
    }
}
