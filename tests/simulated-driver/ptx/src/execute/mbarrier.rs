//! mbarrier over the lanes of a warp: lanes act one after another, lowest first.
//!
//! The object's 64 bits are opaque to programs. Here: arrivals that each phase expects (20 bits), arrivals that the
//! current one still waits for (20 bits), and the parity of the current phase on top.

use super::memory::{access, addresses};
use super::registers::{Registers, lanes_of};
use super::{Failure, Machine};
use crate::program::{PhaseTest, Place, SharedBarrier};
use crate::types::LANE_COUNT;

const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const PARITY: u64 = 1 << 63;

fn state(expected: u64, pending: u64, parity: u64) -> u64 {
    (expected & COUNT_MASK) | (pending & COUNT_MASK) << COUNT_BITS | parity & PARITY
}

/// Arrivals that the phase of a state still waited for.
pub(super) fn pending(state: u64) -> u64 {
    state >> COUNT_BITS & COUNT_MASK
}

/// The state after `count` arrivals.
fn arrived(old: u64, count: u64, drop: bool) -> u64 {
    let expected = (old & COUNT_MASK).saturating_sub(if drop { count } else { 0 });
    match pending(old).saturating_sub(count) {
        0 => state(expected, expected, !old),
        left => state(expected, left, old),
    }
}

pub(super) fn act(
    machine: &mut Machine<'_>,
    registers: &mut Registers,
    local: &mut [u8],
    place: &Place,
    act: &SharedBarrier,
    active: u32,
) -> Result<(), Failure> {
    let addresses = addresses(registers, place, active)?;
    let counts = match act {
        SharedBarrier::Initialise(slot) | SharedBarrier::Arrive { count: slot, .. } => *registers.get(*slot),
        _ => [0; LANE_COUNT],
    };
    let mut old = [0; LANE_COUNT];
    access(machine, local, place, &addresses, active, &mut |memory, addresses, mask| {
        for lane in lanes_of(mask) {
            let count = counts[lane] & COUNT_MASK;
            old[lane] = memory.atomic(addresses[lane], 8, &mut |found| match act {
                SharedBarrier::Initialise(_) => state(count, count, 0),
                SharedBarrier::Invalidate => 0,
                SharedBarrier::Arrive { drop, .. } => arrived(found, count, *drop),
                SharedBarrier::Test { .. } => found,
            })?;
        }
        Ok(())
    })?;
    match *act {
        SharedBarrier::Arrive { d, .. } => registers.set(d, active, &old),
        SharedBarrier::Test { d, test } => {
            let mut over = 0;
            for lane in lanes_of(active) {
                let current = old[lane] & PARITY != 0;
                let asked = match test {
                    PhaseTest::State(slot) => registers.get(slot)[lane] & PARITY != 0,
                    PhaseTest::Parity(slot) => registers.get(slot)[lane] & 1 != 0,
                };
                over |= u32::from(current != asked) << lane;
            }
            registers.set_predicate(d, active, over);
        }
        SharedBarrier::Initialise(_) | SharedBarrier::Invalidate => {}
    }
    Ok(())
}
