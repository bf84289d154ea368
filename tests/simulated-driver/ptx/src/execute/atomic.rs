//! atom and red: lanes change memory one after another, lowest first.
//!
//! The arithmetic here serves `redux` too. Read next: `collective.rs`.

use super::float::canonical_single;
use super::memory::{access, addresses};
use super::registers::Registers;
use super::{Failure, Machine};
use crate::error::Fault;
use crate::execute::registers::lanes_of;
use crate::memory::DeviceMemory;
use crate::program::{AtomicOp, Place, Slot};
use crate::soft::Format;
use crate::types::{LANE_COUNT, Rounding, ScalarType, sign_extend, width_mask};

/// The operands of one atomic instruction.
#[derive(Clone, Copy)]
pub(super) struct Atomic {
    pub(super) place: Place,
    pub(super) op: AtomicOp,
    pub(super) element: ScalarType,
    pub(super) d: Option<Slot>,
    pub(super) b: Slot,
    pub(super) c: Slot,
}

pub(super) fn atomic(
    machine: &mut Machine<'_>,
    registers: &mut Registers,
    local: &mut [u8],
    atomic: Atomic,
    mask: u32,
) -> Result<(), Failure> {
    let Atomic { place, op, element, d, b, c } = atomic;
    let addresses = addresses(registers, &place, mask)?;
    let (b, c) = (registers.get(b), registers.get(c));
    let mut old = [0; LANE_COUNT];
    access(machine, local, &place, &addresses, mask, &mut |memory, addresses, mask| {
        for lane in lanes_of(mask) {
            if place.width == 2 {
                old[lane] = atomic_half(memory, addresses[lane], &|found| {
                    apply(op, element, found, b[lane], c[lane])
                })?;
                continue;
            }
            old[lane] = memory.atomic(addresses[lane], usize::from(place.width), &mut |found| {
                apply(op, element, found, b[lane], c[lane])
            })?;
        }
        Ok(())
    })?;
    if let Some(d) = d {
        registers.set(d, mask, &old);
    }
    Ok(())
}

/// An atomic operation on half a word, by one on the whole.
fn atomic_half(
    memory: &mut dyn DeviceMemory,
    address: u64,
    update: &dyn Fn(u64) -> u64,
) -> Result<u64, Fault> {
    let shift = 8 * (address & 2);
    let found = memory.atomic(address & !3, 4, &mut |word| {
        let new = update(word >> shift & 0xffff) & 0xffff;
        word & !(0xffff << shift) | new << shift
    })?;
    Ok(found >> shift & 0xffff)
}

/// What an atomic operation makes of the old value.
pub(super) fn apply(op: AtomicOp, element: ScalarType, old: u64, b: u64, c: u64) -> u64 {
    let bits = if op == AtomicOp::AddHalves { 32 } else { element.bits() };
    let (old, b, c) = (old & width_mask(bits), b & width_mask(bits), c & width_mask(bits));
    let order = |value: u64| {
        if element.is_signed() { i128::from(sign_extend(value, bits) as i64) } else { i128::from(value) }
    };
    match op {
        AtomicOp::Add => match element {
            ScalarType::F32 => canonical_single(f32::from_bits(old as u32) + f32::from_bits(b as u32)),
            ScalarType::F16 | ScalarType::BF16 => Format::of(element).add(old, b, Rounding::NearestEven),
            ScalarType::F64 => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
            _ => old.wrapping_add(b) & width_mask(bits),
        },
        AtomicOp::AddHalves => {
            let half = |shift: u32| apply(AtomicOp::Add, element, old >> shift, b >> shift, 0) << shift;
            half(0) | half(16)
        }
        AtomicOp::Min => {
            if order(b) < order(old) {
                b
            } else {
                old
            }
        }
        AtomicOp::Max => {
            if order(b) > order(old) {
                b
            } else {
                old
            }
        }
        AtomicOp::And => old & b,
        AtomicOp::Or => old | b,
        AtomicOp::Xor => old ^ b,
        AtomicOp::Exchange => b,
        AtomicOp::CompareAndSwap => {
            if old == b {
                c
            } else {
                old
            }
        }
        AtomicOp::Increment => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Decrement => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    }
}
