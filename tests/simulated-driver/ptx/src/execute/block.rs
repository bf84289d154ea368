//! The warps of one block, its shared memory and its barriers.
//!
//! Reuses its registers and memory for one block after another. Read next: `launch.rs`.

use super::Machine;
use super::registers::Identity;
use super::warp::{Arrival, Pause, Warp};
use crate::error::Trap;
use crate::memory::{DeviceMemory, System};
use crate::program::{BarrierResult, Op, Program};
use crate::types::{ALL_LANES, LANE_COUNT};

/// Barriers of a block.
const BARRIER_COUNT: usize = 16;

#[derive(Debug, Clone, Copy, Default)]
struct BarrierState {
    arrived: u32,
    /// Threads that really came; `arrived` counts exited ones of whole warps too.
    came: u32,
    /// Threads to wait for, where an arrival said so; otherwise all that have not exited.
    threads: Option<u32>,
    /// Threads whose predicate holds.
    holds: u32,
}

#[derive(Debug)]
pub(crate) struct Block {
    identity: Identity,
    warps: Vec<Warp>,
    shared: Vec<u8>,
    barriers: [BarrierState; BARRIER_COUNT],
    live: u32,
}

/// What the blocks of a launch have in common while they run.
pub(crate) struct Surroundings<'a> {
    pub(crate) program: &'a Program,
    pub(crate) parameters: &'a [u8],
    pub(crate) memory: &'a mut dyn DeviceMemory,
    pub(crate) clock: &'a dyn Fn() -> u64,
    pub(crate) system: Option<&'a dyn System>,
}

impl Block {
    /// Makes room for a block; `known` are the values of the slots that no instruction writes.
    pub(crate) fn new(program: &Program, known: &[u64], identity: Identity) -> Self {
        let threads: u32 = identity.block.iter().product();
        let local_bytes = identity.local_bytes as usize;
        let mut warps = Vec::new();
        for _ in 0..threads.div_ceil(LANE_COUNT as u32) {
            let mut warp = Warp::new(local_bytes);
            warp.registers.prepare(program, known);
            warps.push(warp);
        }
        let shared = vec![0; identity.total_shared_bytes.next_multiple_of(4) as usize];
        Self { identity, warps, shared, barriers: Default::default(), live: 0 }
    }

    /// Puts the threads of block `index` at the start of the code.
    pub(crate) fn begin(&mut self, program: &Program, index: [u32; 3]) {
        self.identity.block_index = index;
        self.shared.fill(0);
        self.barriers = Default::default();
        self.live = self.identity.block.iter().product();
        let mut left = self.live;
        for (number, warp) in self.warps.iter_mut().enumerate() {
            let lanes = left.min(LANE_COUNT as u32);
            left -= lanes;
            let identity = Identity { warp: number as u32, ..self.identity.clone() };
            warp.registers.set_specials(program, &identity);
            warp.begin(program, if lanes == 32 { ALL_LANES } else { (1 << lanes) - 1 });
        }
    }

    pub(crate) fn warp_count(&self) -> usize {
        self.warps.len()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.live == 0
    }

    /// Runs one warp until it waits or `left` instructions are executed; answers why it stopped.
    pub(crate) fn run(
        &mut self,
        number: usize,
        surroundings: &mut Surroundings<'_>,
        left: &mut u64,
    ) -> Result<Pause, Trap> {
        loop {
            let mut machine = Machine {
                program: surroundings.program,
                parameters: surroundings.parameters,
                memory: &mut *surroundings.memory,
                clock: surroundings.clock,
                shared: &mut self.shared,
                system: surroundings.system,
                block_index: self.identity.block_index,
                block_extent: self.identity.block,
                first_thread: number as u32 * LANE_COUNT as u32,
            };
            match self.warps[number].run(&mut machine, left)? {
                Pause::Arrived(arrival) => self.arrive(surroundings.program, &arrival),
                Pause::Exited => self.count_live(surroundings.program),
                pause => return Ok(pause),
            }
        }
    }

    fn arrive(&mut self, program: &Program, arrival: &Arrival) {
        let state = &mut self.barriers[usize::from(arrival.id)];
        // A barrier with a count counts whole warps, whatever of them has exited.
        let whole_warp = arrival.threads.is_some() && arrival.whole;
        state.arrived += if whole_warp { LANE_COUNT as u32 } else { arrival.lanes.count_ones() };
        state.came += arrival.lanes.count_ones();
        state.threads = state.threads.or(arrival.threads);
        state.holds += arrival.holds.count_ones();
        self.settle(program, arrival.id);
    }

    /// Exited threads are no longer waited for.
    fn count_live(&mut self, program: &Program) {
        self.live = self.warps.iter().map(|warp| warp.live().count_ones()).sum();
        for id in 0..BARRIER_COUNT {
            self.settle(program, id as u8);
        }
    }

    /// Opens a barrier at which all have arrived.
    fn settle(&mut self, program: &Program, id: u8) {
        let state = self.barriers[usize::from(id)];
        if state.arrived == 0 || state.arrived < state.threads.unwrap_or(self.live) {
            return;
        }
        self.barriers[usize::from(id)] = BarrierState::default();
        for warp in &mut self.warps {
            warp.release(id, |registers, lanes, position| {
                let Some(Op::Barrier(barrier)) = program.code.get(position as usize).map(|found| &found.op)
                else {
                    return;
                };
                let every = |holds: bool| if holds { ALL_LANES } else { 0 };
                match barrier.reduction {
                    Some((_, BarrierResult::Count(d))) => {
                        registers.set(d, lanes, &[u64::from(state.holds); LANE_COUNT]);
                    }
                    Some((_, BarrierResult::All(d))) => {
                        registers.set_predicate(d, lanes, every(state.holds == state.came));
                    }
                    Some((_, BarrierResult::Any(d))) => {
                        registers.set_predicate(d, lanes, every(state.holds > 0));
                    }
                    None => {}
                }
            });
        }
    }
}
