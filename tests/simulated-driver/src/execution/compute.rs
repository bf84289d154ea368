//! The compute engine: kernels of this process by turns of about a millisecond.
//!
//! One kernel runs at a time, inside a slice of the machine-wide engine, and yields when the
//! slice is over; then the next kernel of this process or another process gets one. So kernels
//! that wait for each other, here or across processes, all get on. Short kernels share a slice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use turnus_simulated_arena::{now_ns, sleep_until};

use super::executor::{Executor, Running};
use super::node::{Node, Task};
use super::unwind;
use super::work::{KernelRun, KernelStep, Work};

/// The longest time that a kernel keeps the engine from others.
const SLICE: Duration = Duration::from_millis(1);

struct Kernel {
    running: Running,
    run: Box<dyn KernelRun>,
    /// Not done before this time, in nanoseconds: what a launch costs on the device.
    not_before_ns: u64,
}

/// The compute thread.
pub(super) fn run(executor: &Executor) {
    let mut active = VecDeque::new();
    let mut arrived = VecDeque::new();
    loop {
        if active.is_empty() {
            executor.compute.wait(&mut arrived, None);
        }
        let slice = executor.hardware.compute_slice();
        run_slice(executor, &mut active, &mut arrived, Instant::now() + SLICE);
        drop(slice);
    }
}

fn run_slice(
    executor: &Executor,
    active: &mut VecDeque<Kernel>,
    arrived: &mut VecDeque<Arc<Node>>,
    until: Instant,
) {
    loop {
        executor.compute.take(arrived);
        while let Some(node) = arrived.pop_front() {
            admit(executor, active, node);
        }
        let Some(mut kernel) = active.pop_front() else { return };
        if kernel.running.node().domain.check().is_err() {
            kernel.running.complete(None);
            continue;
        }
        match unwind::caught(|| kernel.run.run(until)).unwrap_or_else(KernelStep::Faulted) {
            KernelStep::Yielded => active.push_back(kernel),
            KernelStep::Finished => {
                sleep_until(kernel.not_before_ns);
                kernel.running.complete(None);
            }
            KernelStep::Faulted(fault) => kernel.running.complete(Some(fault.error)),
        }
        if Instant::now() >= until {
            return;
        }
    }
}

/// Starts a kernel, ahead of those with a lower priority.
fn admit(executor: &Executor, active: &mut VecDeque<Kernel>, node: Arc<Node>) {
    let Some(Task::Work(Work::Kernel(image))) = node.take_task() else {
        node.complete();
        return;
    };
    let priority = node.priority;
    let running = Running::new(node);
    let run = match unwind::caught(|| image.start()) {
        Ok(run) => run,
        Err(fault) => return running.complete(Some(fault.error)),
    };
    let kernel = Kernel { running, run, not_before_ns: now_ns() + executor.hardware.launch_cost_ns() };
    let place =
        active.iter().position(|other| other.running.node().priority > priority).unwrap_or(active.len());
    active.insert(place, kernel);
}
