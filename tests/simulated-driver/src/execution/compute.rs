//! The compute engine: kernels of this process by turns of a time slice, about a millisecond.
//!
//! One kernel runs at a time, inside a slice of the machine-wide engine, and yields when the
//! slice is over; then the next kernel of this process or another process gets one. So kernels
//! that wait for each other, here or across processes, all get on. Short kernels share a slice.
//! A kernel occupies the engine at least for a launch's cost and its instructions by the device's rate; executing
//! it here mostly takes longer than that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use turnus_simulated_arena::{now_ns, sleep_until};

use super::executor::{Executor, Running};
use super::node::{Node, Task};
use super::unwind;
use super::work::{Fault, KernelRun, KernelStep, Work};

/// Most time on the engine that a kernel is credited for later instructions.
const AHEAD_NS_MAX: i64 = 20_000_000;
/// Threads of a warp, whose instructions are executed together.
const WARP: f64 = 32.0;

struct Kernel {
    running: Running,
    run: Box<dyn KernelRun>,
    /// Whether `run` was called.
    has_begun: bool,
    /// Whether all blocks have returned.
    is_over: bool,
    /// What the model says that the kernel occupies the engine longer than it has done, in nanoseconds.
    owed_ns: i64,
}

/// How a kernel's turn on the engine ended.
enum Turn {
    Over,
    Later,
    Faulted(Fault),
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
        let until = Instant::now() + Duration::from_nanos(executor.hardware.time_slice_ns());
        run_slice(executor, &mut active, &mut arrived, until);
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
        match turn(executor, &mut kernel, until) {
            Turn::Later => active.push_back(kernel),
            Turn::Over => kernel.running.complete(None),
            Turn::Faulted(fault) => kernel.running.complete(Some(fault.error)),
        }
        if Instant::now() >= until {
            return;
        }
    }
}

/// Executes a part of a kernel and lets the time pass that this part takes on the device, within the slice.
fn turn(executor: &Executor, kernel: &mut Kernel, until: Instant) -> Turn {
    let begun = now_ns();
    let slice_ns = executor.hardware.time_slice_ns();
    if !kernel.is_over && (kernel.owed_ns <= 0 || !kernel.has_begun) {
        kernel.has_begun = true;
        let rate = executor.hardware.instructions_per_s() as f64 / WARP;
        let most = if rate > 0.0 { ((slice_ns as f64 * rate / 1e9) as u64).max(1) } else { u64::MAX };
        let before = kernel.run.executed_instructions();
        match unwind::caught(|| kernel.run.run(until, most)).unwrap_or_else(KernelStep::Faulted) {
            KernelStep::Yielded => {}
            KernelStep::Finished => kernel.is_over = true,
            KernelStep::Faulted(fault) => return Turn::Faulted(fault),
        }
        if rate > 0.0 {
            let executed = kernel.run.executed_instructions() - before;
            kernel.owed_ns += (executed as f64 / rate * 1e9) as i64;
        }
    }
    let left = until.saturating_duration_since(Instant::now()).as_nanos() as i64;
    let owed = kernel.owed_ns - (now_ns() - begun) as i64;
    if owed > 0 && left > 0 {
        sleep_until(now_ns() + owed.min(left) as u64);
    }
    // What it had too much is taken off later: the engine goes on when this thread gets no processor.
    kernel.owed_ns = (kernel.owed_ns - (now_ns() - begun) as i64).max(-AHEAD_NS_MAX);
    if kernel.is_over && kernel.owed_ns <= 0 { Turn::Over } else { Turn::Later }
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
    let owed_ns = executor.hardware.launch_cost_ns() as i64;
    let kernel = Kernel { running, run, has_begun: false, is_over: false, owed_ns };
    let place =
        active.iter().position(|other| other.running.node().priority > priority).unwrap_or(active.len());
    active.insert(place, kernel);
}
