//! The registers of one warp, and how an operation over all lanes is written.
//!
//! Results are computed for all 32 lanes and merged under the mask; with all lanes active that is a copy. Loops
//! here are plain so that the compiler can vectorise them. Read next: `integer.rs`.

use crate::program::{Guard, PredicateSlot, Program, Slot, SlotSource, Special};
use crate::types::{ALL_LANES, LANE_COUNT, Lanes};

#[derive(Debug, Default)]
pub(crate) struct Registers {
    pub(crate) values: Vec<Lanes>,
    /// One bit per lane.
    pub(crate) predicates: Vec<u32>,
    /// The carry of `add.cc` and its like, one bit per lane.
    pub(crate) carry: u32,
}

/// A value per lane that is read from and written to a 64-bit slot.
pub(crate) trait Lane: Copy {
    fn from_lane(bits: u64) -> Self;
    fn to_lane(self) -> u64;
}

macro_rules! integer_lane {
    ($($type:ty => $unsigned:ty),*) => {$(
        impl Lane for $type {
            #[inline(always)]
            fn from_lane(bits: u64) -> Self {
                bits as $type
            }
            #[inline(always)]
            fn to_lane(self) -> u64 {
                u64::from(self as $unsigned)
            }
        }
    )*};
}
integer_lane!(u8 => u8, u16 => u16, u32 => u32, u64 => u64, i8 => u8, i16 => u16, i32 => u32, i64 => u64);

impl Lane for f32 {
    #[inline(always)]
    fn from_lane(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
    #[inline(always)]
    fn to_lane(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Lane for f64 {
    #[inline(always)]
    fn from_lane(bits: u64) -> Self {
        f64::from_bits(bits)
    }
    #[inline(always)]
    fn to_lane(self) -> u64 {
        self.to_bits()
    }
}

/// Applies `f` to every lane.
#[inline(always)]
pub(crate) fn map1<A: Lane, R: Lane>(a: &Lanes, f: impl Fn(A) -> R) -> Lanes {
    let mut out = [0; LANE_COUNT];
    for lane in 0..LANE_COUNT {
        out[lane] = f(A::from_lane(a[lane])).to_lane();
    }
    out
}

/// Applies `f` to every lane of two operands.
#[inline(always)]
pub(crate) fn map2<A: Lane, B: Lane, R: Lane>(a: &Lanes, b: &Lanes, f: impl Fn(A, B) -> R) -> Lanes {
    let mut out = [0; LANE_COUNT];
    for lane in 0..LANE_COUNT {
        out[lane] = f(A::from_lane(a[lane]), B::from_lane(b[lane])).to_lane();
    }
    out
}

/// Applies `f` to every lane of three operands.
#[inline(always)]
pub(crate) fn map3<A: Lane, B: Lane, C: Lane, R: Lane>(
    a: &Lanes,
    b: &Lanes,
    c: &Lanes,
    f: impl Fn(A, B, C) -> R,
) -> Lanes {
    let mut out = [0; LANE_COUNT];
    for lane in 0..LANE_COUNT {
        out[lane] = f(A::from_lane(a[lane]), B::from_lane(b[lane]), C::from_lane(c[lane])).to_lane();
    }
    out
}

/// The mask of the lanes where `f` holds.
#[inline(always)]
pub(crate) fn mask2<T: Lane>(a: &Lanes, b: &Lanes, f: impl Fn(T, T) -> bool) -> u32 {
    let mut mask = 0;
    for lane in 0..LANE_COUNT {
        mask |= u32::from(f(T::from_lane(a[lane]), T::from_lane(b[lane]))) << lane;
    }
    mask
}

/// The lanes of `mask`, lowest first.
pub(crate) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let lane = left.trailing_zeros();
        left &= left - 1;
        Some(lane as usize)
    })
}

impl Registers {
    #[inline(always)]
    pub(crate) fn get(&self, slot: Slot) -> &Lanes {
        &self.values[usize::from(slot)]
    }

    /// Writes the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn set(&mut self, slot: Slot, mask: u32, from: &Lanes) {
        let target = &mut self.values[usize::from(slot)];
        if mask == ALL_LANES {
            *target = *from;
            return;
        }
        for lane in 0..LANE_COUNT {
            if mask >> lane & 1 == 1 {
                target[lane] = from[lane];
            }
        }
    }

    #[inline(always)]
    pub(crate) fn guard(&self, guard: Guard) -> u32 {
        let mask = self.predicates[usize::from(guard.predicate)];
        if guard.negated { !mask } else { mask }
    }

    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, predicate: PredicateSlot, mask: u32, value: u32) {
        let target = &mut self.predicates[usize::from(predicate)];
        *target = (*target & !mask) | (value & mask);
    }

    /// Makes room for the program's registers and writes what never changes during the launch.
    pub(crate) fn prepare(&mut self, program: &Program, known: &[u64]) {
        self.values = vec![[0; LANE_COUNT]; program.slots.len()];
        self.predicates = vec![0; usize::from(program.predicate_count)];
        for ((source, value), lanes) in program.slots.iter().zip(known).zip(&mut self.values) {
            if !matches!(source, SlotSource::Register | SlotSource::Special(_)) {
                *lanes = [*value; LANE_COUNT];
            }
        }
    }

    /// Writes the special registers of the warp that begins with thread `first` of its block.
    pub(crate) fn set_specials(&mut self, program: &Program, identity: &Identity) {
        for (source, lanes) in program.slots.iter().zip(&mut self.values) {
            if let SlotSource::Special(special) = source {
                for (lane, value) in lanes.iter_mut().enumerate() {
                    *value = identity.special(*special, lane as u32);
                }
            }
        }
    }
}

/// Who a warp is: what its special registers answer.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) block_index: [u32; 3],
    /// Number of the warp in its block.
    pub(crate) warp: u32,
    /// Which of the resident blocks this is.
    pub(crate) processor: u32,
    pub(crate) processors: u32,
    pub(crate) dynamic_shared_bytes: u64,
    pub(crate) total_shared_bytes: u64,
    /// Address of what a cooperative launch needs, or 0.
    pub(crate) workspace: u64,
    /// Local memory of a thread, with its stack.
    pub(crate) local_bytes: u64,
}

impl Identity {
    fn thread(&self, lane: u32, axis: u8) -> u32 {
        let linear = self.warp * LANE_COUNT as u32 + lane;
        let [x, y, _] = self.block;
        match axis {
            0 => linear % x,
            1 => linear / x % y,
            _ => linear / x / y,
        }
    }

    fn special(&self, special: Special, lane: u32) -> u64 {
        let below = (1u64 << lane) - 1;
        let own = 1u64 << lane;
        let all = u64::from(u32::MAX);
        match special {
            Special::Thread(axis) => u64::from(self.thread(lane, axis)),
            Special::BlockExtent(axis) => u64::from(self.block[usize::from(axis)]),
            Special::Block(axis) => u64::from(self.block_index[usize::from(axis)]),
            Special::GridExtent(axis) => u64::from(self.grid[usize::from(axis)]),
            Special::Lane => u64::from(lane),
            Special::Warp => u64::from(self.warp),
            Special::WarpCount => u64::from(self.block.iter().product::<u32>().div_ceil(LANE_COUNT as u32)),
            Special::Processor => u64::from(self.processor),
            Special::ProcessorCount => u64::from(self.processors),
            Special::Grid => 0,
            Special::MaskEqual => own,
            Special::MaskLess => below,
            Special::MaskLessEqual => below | own,
            Special::MaskGreater => all & !(below | own),
            Special::MaskGreaterEqual => all & !below,
            Special::DynamicSharedBytes => self.dynamic_shared_bytes,
            Special::TotalSharedBytes => self.total_shared_bytes,
            Special::Workspace { upper } => (self.workspace >> if upper { 32 } else { 0 }) & all,
        }
    }
}
