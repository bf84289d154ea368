//! One kernel launch that can be interrupted after any number of instructions and resumed.
//!
//! A few blocks are resident at once and take turns, so that blocks of a grid can wait for each other. The order
//! of execution does not depend on the budgets of the `run` calls. Knows no time and no device: memory and clock
//! come with each call. Read next: `execute/block.rs`.

use std::sync::Arc;

use crate::compile::layout::{LOCAL_LIMIT, SHARED_LIMIT};
use crate::error::{LaunchError, Trap};
use crate::execute::block::{Block, Surroundings};
use crate::execute::registers::Identity;
use crate::execute::warp::Pause;
use crate::memory::{DeviceMemory, System};
use crate::module::Entry;
use crate::program::{Program, SlotSource};
use crate::types::LANE_COUNT;

/// Blocks that are resident at once unless the caller says otherwise.
pub const RESIDENT_BLOCKS: usize = 16;
/// Most threads of a block, on every device so far.
pub const BLOCK_THREADS_LIMIT: u32 = 1024;
/// Bytes of a thread's stack unless the caller says otherwise: CUDA's default.
pub const STACK_BYTES: u64 = 1024;
/// Instructions that a warp executes before the next one runs.
const QUANTUM: u64 = 2048;
/// Bytes of registers and memory that resident blocks take, unless one takes more.
const RESIDENT_BYTES: u64 = 64 << 20;

/// How far a launch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The budget is used up, or every thread waits for one that cannot come.
    Yielded,
    /// All threads have exited.
    Finished,
}

/// A kernel on its way through its grid.
#[derive(Debug)]
pub struct Launch {
    program: Arc<Program>,
    parameters: Vec<u8>,
    /// Values of the slots that no instruction writes.
    known: Vec<u64>,
    identity: Identity,
    residency: usize,
    resident: Vec<Block>,
    /// Number of the next block to begin.
    next_block: u64,
    block_count: u64,
    /// Resident block and warp that run.
    turn: (usize, usize),
    quantum_left: u64,
    executed: u64,
    trap: Option<Trap>,
    system: Option<Arc<dyn System>>,
}

impl Launch {
    /// Prepares a launch. `parameters` is laid out as `Entry::parameters` says; `address_of` answers the device
    /// addresses of module variables (`Module::globals`).
    ///
    /// # Errors
    /// `LaunchError` when the shape, the parameters or the shared memory are not possible for this kernel.
    pub fn new(
        entry: &Entry,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared_bytes: u64,
        parameters: &[u8],
        address_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Self, LaunchError> {
        check_shape(entry, grid, block)?;
        let program = Arc::clone(&entry.program);
        let needed = program.parameter_bytes as usize;
        let Some(parameters) = parameters.get(..needed) else {
            return Err(LaunchError::ParametersTooShort { given: parameters.len(), needed });
        };
        // Dynamic shared memory begins at the next multiple of 16, where compilers expect it.
        let dynamic_start = program.static_shared_bytes.next_multiple_of(16);
        let total = match dynamic_shared_bytes {
            0 => program.static_shared_bytes,
            bytes => dynamic_start.saturating_add(bytes),
        };
        if total > SHARED_LIMIT {
            return Err(LaunchError::SharedTooLarge { bytes: total, limit: SHARED_LIMIT });
        }
        let known = known_values(&program, dynamic_start, address_of)?;
        let mut identity = Identity {
            grid,
            block,
            block_index: [0; 3],
            warp: 0,
            processor: 0,
            processors: 1,
            dynamic_shared_bytes,
            total_shared_bytes: total,
            workspace: 0,
            local_bytes: local_bytes(&program, STACK_BYTES),
        };
        let residency = residency(&program, &identity);
        identity.processors = residency as u32;
        Ok(Self {
            program,
            parameters: parameters.to_vec(),
            known,
            identity,
            residency,
            resident: Vec::new(),
            next_block: 0,
            block_count: grid.iter().fold(1, |count: u64, extent| count.saturating_mul(u64::from(*extent))),
            turn: (0, 0),
            quantum_left: QUANTUM,
            executed: 0,
            trap: None,
            system: None,
        })
    }

    /// What `vprintf`, `malloc`, `free` and `__assertfail` reach; without it they fail like `trap`.
    pub fn set_system(&mut self, system: Arc<dyn System>) {
        self.system = Some(system);
    }

    /// Device memory of at least eight bytes, zero at first, in which the blocks of a cooperative launch meet (the
    /// grid of cooperative groups). To be called before the first `run`.
    pub fn set_workspace(&mut self, address: u64) {
        self.identity.workspace = address;
    }

    /// Bytes of a thread's stack (`CU_LIMIT_STACK_SIZE`) instead of `STACK_BYTES`, for kernels that call functions
    /// through pointers or recursively, or use `alloca`. To be called before the first `run`.
    pub fn set_stack_bytes(&mut self, bytes: u64) {
        if self.program.uses_stack {
            self.identity.local_bytes = local_bytes(&self.program, bytes);
            self.residency = residency(&self.program, &self.identity);
            self.identity.processors = self.residency as u32;
        }
    }

    /// Keeps `count` blocks resident (at least one) instead of up to `RESIDENT_BLOCKS`: for cooperative launches,
    /// in which every block waits for every other. To be called before the first `run`.
    pub fn set_resident_blocks(&mut self, count: usize) {
        self.residency = count.max(1);
        self.identity.processors = u32::try_from(self.residency).unwrap_or(u32::MAX);
    }

    /// Instructions executed so far; one counts once for all lanes of a warp.
    pub fn executed_instructions(&self) -> u64 {
        self.executed
    }

    /// Executes up to `budget` instructions of warps. `clock` answers nanoseconds of device time: what `%clock`,
    /// `%clock64` and `%globaltimer` read, as on a device that runs at 1 GHz.
    ///
    /// # Errors
    /// `Trap` when a thread failed; later calls answer the same.
    pub fn run(
        &mut self,
        memory: &mut dyn DeviceMemory,
        budget: u64,
        clock: &dyn Fn() -> u64,
    ) -> Result<Progress, Trap> {
        if let Some(trap) = &self.trap {
            return Err(trap.clone());
        }
        let program = Arc::clone(&self.program);
        let parameters = std::mem::take(&mut self.parameters);
        let system = self.system.clone();
        let system = system.as_deref();
        let mut surroundings =
            Surroundings { program: &program, parameters: &parameters, memory, clock, system };
        let outcome = self.run_blocks(&mut surroundings, budget);
        self.parameters = parameters;
        if let Err(trap) = &outcome {
            self.trap = Some(trap.clone());
            self.resident.clear();
        }
        outcome
    }

    fn run_blocks(&mut self, surroundings: &mut Surroundings<'_>, budget: u64) -> Result<Progress, Trap> {
        self.fill_residents();
        let mut left = budget;
        let mut idle_warps = 0;
        while !self.resident.is_empty() {
            let all_wait = idle_warps > self.resident.len() * self.resident[0].warp_count();
            if left == 0 || all_wait {
                return Ok(Progress::Yielded);
            }
            let (place, number) = self.turn;
            let allowed = self.quantum_left.min(left);
            let mut unused = allowed;
            let pause = self.resident[place].run(number, surroundings, &mut unused)?;
            let used = allowed - unused;
            left -= used;
            self.executed += used;
            self.quantum_left -= used;
            idle_warps = if used == 0 { idle_warps + 1 } else { 0 };
            if self.resident[place].is_finished() {
                self.replace(place);
            } else if self.quantum_left == 0 || !matches!(pause, Pause::Spent) {
                self.next_turn();
            }
        }
        Ok(Progress::Finished)
    }

    fn fill_residents(&mut self) {
        while self.resident.len() < self.residency && self.next_block < self.block_count {
            let identity = Identity { processor: self.resident.len() as u32, ..self.identity.clone() };
            let mut block = Block::new(&self.program, &self.known, identity);
            let index = self.take_index();
            block.begin(&self.program, index);
            self.resident.push(block);
        }
    }

    fn take_index(&mut self) -> [u32; 3] {
        let [x, y, _] = self.identity.grid.map(u64::from);
        let linear = self.next_block;
        self.next_block += 1;
        [linear % x, linear / x % y, linear / x / y].map(|extent| extent as u32)
    }

    /// The finished block at `place` makes room for the next one.
    fn replace(&mut self, place: usize) {
        if self.next_block < self.block_count {
            let index = self.take_index();
            self.resident[place].begin(&self.program, index);
            self.next_turn();
        } else {
            self.resident.remove(place);
            self.quantum_left = QUANTUM;
            self.turn = (if place < self.resident.len() { place } else { 0 }, 0);
        }
    }

    fn next_turn(&mut self) {
        self.quantum_left = QUANTUM;
        let (place, number) = self.turn;
        self.turn = if number + 1 < self.resident[place].warp_count() {
            (place, number + 1)
        } else {
            ((place + 1) % self.resident.len(), 0)
        };
    }
}

/// Local memory of a thread: the kernel's variables and, where there are calls, a stack.
fn local_bytes(program: &Program, stack_bytes: u64) -> u64 {
    let own = program.local_bytes.next_multiple_of(16);
    let stack = if program.uses_stack { stack_bytes.min(LOCAL_LIMIT).next_multiple_of(16) } else { 0 };
    own + stack
}

/// Blocks that are resident at once.
fn residency(program: &Program, identity: &Identity) -> usize {
    let warps = u64::from(identity.block.iter().product::<u32>().div_ceil(LANE_COUNT as u32));
    let lane_bytes = program.slots.len() as u64 * 8 + identity.local_bytes;
    let block_bytes = warps * lane_bytes * LANE_COUNT as u64 + identity.total_shared_bytes + 1;
    (RESIDENT_BYTES / block_bytes).clamp(1, RESIDENT_BLOCKS as u64) as usize
}

fn check_shape(entry: &Entry, grid: [u32; 3], block: [u32; 3]) -> Result<(), LaunchError> {
    if grid.contains(&0) || block.contains(&0) {
        return Err(LaunchError::EmptyShape { grid, block });
    }
    let threads = |extents: [u32; 3]| extents.iter().map(|extent| u128::from(*extent)).product::<u128>();
    let refuse = |rule| Err(LaunchError::BlockShape { block, rule });
    if threads(block) > u128::from(BLOCK_THREADS_LIMIT) {
        return refuse("the device's limit of 1024 threads");
    }
    if entry.most_threads.is_some_and(|most| threads(block) > threads(most)) {
        return refuse(".maxntid");
    }
    if entry.required_threads.is_some_and(|required| required != block) {
        return refuse(".reqntid");
    }
    Ok(())
}

/// Values of all slots; those of registers and special registers are zero.
fn known_values(
    program: &Program,
    dynamic_start: u64,
    address_of: &dyn Fn(&str) -> Option<u64>,
) -> Result<Vec<u64>, LaunchError> {
    let value = |source: &SlotSource| match source {
        SlotSource::Register | SlotSource::Special(_) => Ok(0),
        SlotSource::Constant(value) => Ok(*value),
        SlotSource::DynamicShared(addend) => Ok(dynamic_start.wrapping_add(*addend)),
        SlotSource::Symbol(name, addend) => match address_of(name) {
            Some(address) => Ok(address.wrapping_add(*addend)),
            None => Err(LaunchError::SymbolMissing { name: name.clone() }),
        },
    };
    program.slots.iter().map(value).collect()
}
