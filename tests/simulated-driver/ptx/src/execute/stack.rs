//! Stacks of the lanes of a warp: calls of functions that have code of their own.
//!
//! Each lane has its own stack, since lanes of one group may have come by different calls. An activation's
//! variables lie in the lane's local memory; its registers stand in the warp's registers, and those of an
//! activation of the same function further out are kept here meanwhile. Read next: `warp.rs`.

use super::Failure;
use super::registers::{Registers, lanes_of};
use crate::program::{Callee, Program, Slot};
use crate::types::{LANE_COUNT, Lanes};

/// Bytes that every activation takes beside its variables: what a device keeps of the caller.
const FRAME_BYTES_MIN: u64 = 16;

#[derive(Debug)]
struct Activation {
    callee: u32,
    return_position: u32,
    /// The stack's end before the call.
    stack_end: u64,
    /// Registers and predicates of the activation further out.
    kept: Vec<u64>,
}

/// The stacks of a warp.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    lanes: Vec<Vec<Activation>>,
    /// Where the next activation's variables go, per lane.
    ends: Vec<u64>,
    /// Bytes of local memory per lane.
    limit: u64,
}

impl Stacks {
    /// Empty stacks behind the kernel's own variables. Programs without calls have none.
    pub(super) fn begin(&mut self, program: &Program, limit: u64) {
        if program.uses_stack {
            self.lanes.resize_with(LANE_COUNT, Vec::new);
            self.lanes.iter_mut().for_each(Vec::clear);
            self.ends.clear();
            self.ends.resize(LANE_COUNT, program.local_bytes.next_multiple_of(16));
            self.limit = limit;
        }
    }

    /// Puts the lanes of `active` into a new activation of `callee`.
    pub(super) fn enter(
        &mut self,
        registers: &mut Registers,
        (number, callee): (u32, &Callee),
        passed: &[Slot],
        active: u32,
        return_position: u32,
    ) -> Result<(), Failure> {
        if passed.len() != callee.passed.len() {
            return Err(Failure::InvalidCall);
        }
        // Read before anything is written: the caller may be an activation of the same function.
        let passed: Vec<Lanes> = passed.iter().map(|slot| *registers.get(*slot)).collect();
        let mut frames = [0; LANE_COUNT];
        for lane in lanes_of(active) {
            let stack_end = self.ends[lane];
            frames[lane] = stack_end.next_multiple_of(16);
            let end = frames[lane] + callee.frame_bytes.next_multiple_of(16) + FRAME_BYTES_MIN;
            if end > self.limit {
                return Err(Failure::StackOverflow);
            }
            self.ends[lane] = end;
            let recursive = self.lanes[lane].iter().rev().any(|outer| outer.callee == number);
            let kept = if recursive { keep(registers, callee, lane) } else { Vec::new() };
            self.lanes[lane].push(Activation { callee: number, return_position, stack_end, kept });
        }
        registers.set(callee.frame, active, &frames);
        for (slot, addresses) in callee.passed.iter().zip(&passed) {
            registers.set(*slot, active, addresses);
        }
        Ok(())
    }

    /// Takes a lane out of its activation; answers where it goes on.
    pub(super) fn leave(&mut self, registers: &mut Registers, program: &Program, lane: usize) -> Option<u32> {
        let activation = self.lanes.get_mut(lane)?.pop()?;
        self.ends[lane] = activation.stack_end;
        if !activation.kept.is_empty() {
            restore(registers, &program.callees[activation.callee as usize], lane, &activation.kept);
        }
        Some(activation.return_position)
    }

    /// `alloca`: addresses in local memory.
    pub(super) fn allocate(&mut self, bytes: &Lanes, align: u64, active: u32) -> Result<Lanes, Failure> {
        let mut found = [0; LANE_COUNT];
        for lane in lanes_of(active) {
            found[lane] = self.ends[lane].next_multiple_of(align.max(1));
            match found[lane].checked_add(bytes[lane]) {
                Some(end) if end <= self.limit => self.ends[lane] = end,
                _ => return Err(Failure::StackOverflow),
            }
        }
        Ok(found)
    }

    /// `stacksave`.
    pub(super) fn ends(&self) -> Lanes {
        std::array::from_fn(|lane| self.ends.get(lane).copied().unwrap_or(0))
    }

    /// `stackrestore`.
    pub(super) fn restore_ends(&mut self, ends: &Lanes, active: u32) -> Result<(), Failure> {
        for lane in lanes_of(active) {
            if ends[lane] > self.limit {
                return Err(Failure::StackOverflow);
            }
            self.ends[lane] = ends[lane];
        }
        Ok(())
    }
}

fn keep(registers: &Registers, callee: &Callee, lane: usize) -> Vec<u64> {
    let values = callee.slots.iter().map(|slot| registers.get(*slot)[lane]);
    let predicates = callee.predicates.clone();
    let predicates =
        predicates.map(|predicate| u64::from(registers.predicates[usize::from(predicate)] >> lane & 1));
    values.chain(predicates).collect()
}

fn restore(registers: &mut Registers, callee: &Callee, lane: usize, kept: &[u64]) {
    let (values, predicates) = kept.split_at(callee.slots.len());
    for (slot, value) in callee.slots.iter().zip(values) {
        registers.values[usize::from(*slot)][lane] = *value;
    }
    for (predicate, value) in callee.predicates.clone().zip(predicates) {
        registers.set_predicate(predicate, 1 << lane, (*value as u32) << lane);
    }
}
