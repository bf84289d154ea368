//! Runs compiled instructions on the lanes of a warp.
//!
//! Here is the dispatch of what only computes and accesses memory; `warp.rs` moves the lanes through the code,
//! `block.rs` keeps the warps of a block together. Read next: `warp.rs`.

mod atomic;
mod bits;
pub(crate) mod block;
mod collective;
mod compare;
mod convert;
mod float;
mod format;
mod half;
mod integer;
mod matrix;
mod mbarrier;
mod memory;
pub(crate) mod registers;
mod stack;
mod system;
mod texture;
pub(crate) mod warp;

use crate::error::Fault;
use crate::memory::{DeviceMemory, System};
use crate::program::{Clock, Guard, Op, Program};
use crate::types::{LANE_COUNT, width_mask};
use registers::{Registers, map1, mask2};

/// What a warp runs on: its program and every memory but its own.
pub(crate) struct Machine<'a> {
    pub(crate) program: &'a Program,
    pub(crate) parameters: &'a [u8],
    pub(crate) memory: &'a mut dyn DeviceMemory,
    pub(crate) clock: &'a dyn Fn() -> u64,
    pub(crate) shared: &'a mut [u8],
    pub(crate) system: Option<&'a dyn System>,
    pub(crate) block_index: [u32; 3],
    pub(crate) block_extent: [u32; 3],
    /// Number, in the block, of the warp's first thread.
    pub(crate) first_thread: u32,
}

/// Why an instruction could not be executed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Failure {
    Illegal(u64),
    Misaligned(u64),
    Trapped,
    Assertion,
    StackOverflow,
    InvalidCall,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Illegal(fault.address)
    }
}

/// Executes an instruction that moves no lane, for the lanes of `active`.
#[inline]
fn execute(
    machine: &mut Machine<'_>,
    registers: &mut Registers,
    local: &mut [u8],
    op: &Op,
    active: u32,
) -> Result<(), Failure> {
    match *op {
        Op::Copy { d, a } => {
            let lanes = *registers.get(a);
            registers.set(d, active, &lanes);
        }
        Op::Integer { op, element, d, s } => integer::integer(registers, active, op, element, d, s),
        Op::Float { op, shape, d, s } => float::float(registers, active, op, shape, d, s),
        Op::Half { op, shape, d, s } => half::half(registers, active, op, shape, d, s),
        Op::Compare { ref compare, d, opposite } => compare::compare(registers, active, compare, d, opposite),
        Op::Load { ref place, d, extend, .. } => {
            memory::load(machine, registers, local, place, d, extend, active)?;
        }
        Op::Store { ref place, s } => memory::store(machine, registers, local, place, s, active)?,
        Op::LoadParameter { offset, width, d, extend } => {
            memory::load_parameter(machine, registers, offset, width, d, extend, active);
        }
        Op::Atomic { place, op, element, d, b, c } => {
            let operands = atomic::Atomic { place, op, element, d, b, c };
            atomic::atomic(machine, registers, local, operands, active)?;
        }
        Op::Convert { ref conversion, d, a } => convert::convert(registers, active, conversion, d, a),
        Op::Select { d, a, b, p } => {
            let chosen = registers.guard(Guard { predicate: p, negated: false });
            compare::select(registers, active, chosen, d, a, b);
        }
        Op::Texture { ref texel, d } => texture::fetch(machine, registers, texel, d, active)?,
        Op::Surface { .. } => texture::surface(machine, registers, op, active)?,
        Op::Fence => machine.memory.fence(),
        Op::Trap => return Err(Failure::Trapped),
        Op::LoadMatrix { ref place, ref d, transposed } => {
            matrix::load(machine, registers, local, place, d, transposed, active)?;
        }
        Op::SharedBarrier { ref place, ref act } => {
            mbarrier::act(machine, registers, local, place, act, active)?;
        }
        Op::System { call, arguments, d } => {
            system::system(machine, registers, local, call, arguments, d, active)?;
        }
        _ => execute_rare(machine, registers, op, active),
    }
    Ok(())
}

/// What is rare enough to be kept out of the loop's code.
#[inline(never)]
fn execute_rare(machine: &Machine<'_>, registers: &mut Registers, op: &Op, active: u32) {
    match *op {
        Op::ReadClock { d, part } => {
            let now = (machine.clock)();
            let value = match part {
                Clock::Low => now & width_mask(32),
                Clock::High => now >> 32,
                Clock::Full => now,
            };
            registers.set(d, active, &[value; LANE_COUNT]);
        }
        Op::Pack { d, parts, count, bits } => {
            let mut out = [0; LANE_COUNT];
            for (position, part) in parts.iter().enumerate().take(usize::from(count)) {
                let lanes = registers.get(*part);
                for lane in 0..LANE_COUNT {
                    out[lane] |=
                        (lanes[lane] & width_mask(u32::from(bits))) << (position * usize::from(bits));
                }
            }
            registers.set(d, active, &out);
        }
        Op::Unpack { parts, a, count, bits } => {
            let whole = *registers.get(a);
            for (position, part) in parts.iter().enumerate().take(usize::from(count)) {
                let shift = position * usize::from(bits);
                let out = map1(&whole, |value: u64| value >> shift & width_mask(u32::from(bits)));
                registers.set(*part, active, &out);
            }
        }
        Op::Carry { op, element, reads, writes, d, s } => {
            integer::carry(registers, active, op, element, (reads, writes), d, s);
        }
        Op::TestFloat { test, double, d, a } => compare::test_float(registers, active, test, double, d, a),
        Op::CompareValue { ref compare, d, ones } => {
            compare::compare_value(registers, active, compare, d, ones);
        }
        Op::SelectSign { element, d, a, b, c } => {
            let chosen = compare::not_negative(registers, element, c);
            compare::select(registers, active, chosen, d, a, b);
        }
        Op::PredicateConstant { d, value } => {
            registers.set_predicate(d, active, if value { u32::MAX } else { 0 });
        }
        Op::PredicateLogic { op, d, a, b } => compare::predicate_logic(registers, active, op, d, a, b),
        Op::IsSpace { d, a, space } => {
            let addresses = registers.get(a);
            let found =
                mask2(addresses, addresses, |address: u64, _: u64| memory::space_of(address) == space);
            registers.set_predicate(d, active, found);
        }
        Op::PendingCount { d, a } => {
            let counts = map1(registers.get(a), mbarrier::pending);
            registers.set(d, active, &counts);
        }
        Op::ActiveMask { d } => registers.set(d, active, &[u64::from(active); LANE_COUNT]),
        // `execute` has handled its own, `warp.rs` what moves lanes.
        _ => {}
    }
}
