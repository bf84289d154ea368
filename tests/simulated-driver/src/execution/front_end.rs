//! The two threads that serve streams without moving bytes or running kernels: host functions,
//! which may block for as long as they like, and short steps with waits.
//!
//! Host functions of all streams share one thread, as the API allows ("may be serialized"); a
//! step that never blocks must not wait behind them, so it has the other thread.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::executor::Executor;
use super::node::{Node, Task};
use super::unwind;
use super::work::{Condition, Fault, Space, Step, WaitCondition, Work};

/// How often waited-for memory is looked at.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// True on a driver thread that runs a host function or a stream callback, where the CUDA API
/// must not be called (`CUDA_ERROR_NOT_PERMITTED`).
pub fn in_host_function() -> bool {
    IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false)
}

/// The thread of host functions and callbacks.
pub(super) fn run_host_functions(executor: &Executor) {
    IN_HOST_FUNCTION.with(|inside| inside.set(true));
    let mut arrived = VecDeque::new();
    loop {
        executor.host_functions.wait(&mut arrived, None);
        while let Some(node) = arrived.pop_front() {
            let state = node.domain.check();
            match node.take_task() {
                Some(Task::Work(Work::HostFunction(host))) if state.is_ok() => {
                    // SAFETY: the program handed function and argument to cuLaunchHostFunc for
                    // exactly one call per launch on a driver thread.
                    unsafe { (host.function)(host.data.0) }
                }
                Some(Task::Work(Work::Callback(step))) => run_step(&node, &*step),
                _ => {}
            }
            node.complete();
        }
    }
}

/// Runs a driver-side step; one that panics faults the context.
fn run_step(node: &Node, step: &Step) {
    if let Err(fault) = unwind::caught(|| step(node.domain.check())) {
        node.domain.fault(fault.error);
    }
}

/// A stream that waits.
struct Wait {
    node: Arc<Node>,
    until: Until,
}

/// What it waits for.
enum Until {
    Memory { address: u64, value: u64, bytes: u8, condition: WaitCondition },
    Condition(Arc<Condition>),
}

/// The thread of short steps and waits.
pub(super) fn run(executor: &Executor) {
    let mut arrived = VecDeque::new();
    let mut waits: Vec<Wait> = Vec::new();
    loop {
        executor.front_end.wait(&mut arrived, (!waits.is_empty()).then_some(LOOK_AGAIN));
        while let Some(node) = arrived.pop_front() {
            waits.extend(serve(node));
        }
        let (over, still): (Vec<_>, Vec<_>) = waits.drain(..).partition(Wait::is_over);
        waits = still;
        over.iter().for_each(|wait| wait.node.complete());
    }
}

/// Does a short step, or returns the wait that goes on.
fn serve(node: Arc<Node>) -> Option<Wait> {
    let domain = node.domain.clone();
    match node.take_task() {
        Some(Task::Work(Work::Action(step))) => run_step(&node, &*step),
        Some(Task::Work(Work::WriteValue { address, value, bytes })) if domain.check().is_ok() => {
            if let Err(fault) = domain.space.store_value(address, value, bytes) {
                domain.fault(fault.error);
            }
        }
        Some(Task::Work(Work::WaitValue { address, value, bytes, condition })) => {
            return Some(Wait { node, until: Until::Memory { address, value, bytes, condition } });
        }
        Some(Task::Work(Work::WaitUntil(condition))) => {
            return Some(Wait { node, until: Until::Condition(condition) });
        }
        _ => {}
    }
    node.complete();
    None
}

impl Wait {
    /// True when what it waits for is there, or when the context is lost.
    fn is_over(&self) -> bool {
        let domain = &self.node.domain;
        if domain.check().is_err() {
            return true;
        }
        match self.compare(&*domain.space) {
            Ok(over) => over,
            Err(fault) => {
                domain.fault(fault.error);
                true
            }
        }
    }

    fn compare(&self, space: &dyn Space) -> Result<bool, Fault> {
        let (address, value, bytes, condition) = match &self.until {
            Until::Memory { address, value, bytes, condition } => (*address, *value, *bytes, *condition),
            Until::Condition(condition) => return Ok(condition()),
        };
        let width_bits = u32::from(bytes) * 8;
        let mask = u64::MAX >> (64 - width_bits);
        let (found, value) = (space.load_value(address, bytes)? & mask, value & mask);
        Ok(match condition {
            WaitCondition::GreaterOrEqual => found.wrapping_sub(value) & (1 << (width_bits - 1)) == 0,
            WaitCondition::Equal => found == value,
            WaitCondition::And => found & value != 0,
            WaitCondition::Nor => !(found | value) & mask != 0,
        })
    }
}
