//! What the operations of `program.rs` are told beside their operands: which of a family, rounding, places.
//!
//! Plain data; what each means is said where it is executed. Read next: `execute.rs`.

use super::{Guard, PredicateSlot, Slot};
use crate::types::{Rounding, ScalarType, Space};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IntegerOp {
    Add,
    Sub,
    Mul,
    MulHigh,
    MulWide,
    Mad,
    MadHigh,
    MadWide,
    AddSaturate,
    SubSaturate,
    Div,
    Rem,
    Min,
    Max,
    Abs,
    Neg,
    AbsoluteDifference,
    And,
    Or,
    Xor,
    Not,
    LogicalNot,
    ShiftLeft,
    ShiftRight,
    Funnel {
        left: bool,
        wrap: bool,
    },
    Lop3,
    PopulationCount,
    LeadingZeros,
    FindBit {
        shift: bool,
    },
    Reverse,
    ExtractField,
    InsertField,
    Permute(PermuteMode),
    /// Products of four bytes, or of two halves and two bytes of the lower or upper half, added up.
    Dot(DotShape),
    /// The lower or upper word of a product of 24 bits each, plus an addend.
    Mul24 {
        high: bool,
        adds: bool,
    },
    FindSet,
    Mask {
        wrap: bool,
    },
    Extend {
        wrap: bool,
    },
    Simd(SimdShape),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DotShape {
    pub(crate) a_signed: bool,
    pub(crate) b_signed: bool,
    /// `dp2a`: which bytes of `b`.
    pub(crate) halves: Option<DotHalf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DotHalf {
    Low,
    High,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PermuteMode {
    Index,
    Forward4,
    Backward4,
    Replicate8,
    EdgeLeft,
    EdgeRight,
    Replicate16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CarryOp {
    Add,
    Sub,
    Mad,
    MadHigh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatOp {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    Min {
        nan: bool,
    },
    Max {
        nan: bool,
    },
    Neg,
    Abs,
    CopySign,
    Reciprocal,
    SquareRoot,
    ReciprocalSquareRoot,
    Exp2,
    Log2,
    Sin,
    Cos,
    Tanh,
    /// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: of the upper 32 bits, in the upper 32 bits.
    GrossReciprocal,
    GrossReciprocalSquareRoot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatTest {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct FloatShape {
    pub(crate) double: bool,
    pub(crate) rounding: Rounding,
    /// Subnormal singles are read and written as zero.
    pub(crate) flush: bool,
    /// Results are clamped to [0, 1].
    pub(crate) saturate: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct HalfShape {
    /// `F16` or `BF16`.
    pub(crate) element: ScalarType,
    /// Two values in each register.
    pub(crate) packed: bool,
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
    /// Negative results become zero.
    pub(crate) relu: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Conversion {
    pub(crate) from: ScalarType,
    pub(crate) to: ScalarType,
    pub(crate) rounding: Rounding,
    /// Round to an integral value, also when the result is a float.
    pub(crate) integral: bool,
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
    /// Width of the destination register, to which signed results are extended.
    pub(crate) register_bits: u32,
}

/// Comparisons; the unordered ones hold when an operand is not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    EqualUnordered,
    NotEqualUnordered,
    LessUnordered,
    LessEqualUnordered,
    GreaterUnordered,
    GreaterEqualUnordered,
    Ordered,
    Unordered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Compare {
    pub(crate) comparison: Comparison,
    pub(crate) element: ScalarType,
    pub(crate) flush: bool,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    /// Combines the outcome with a predicate.
    pub(crate) combine: Option<(Logic, Guard)>,
}

/// A load, store or atomic's place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) base: Slot,
    pub(crate) offset: i64,
    /// Bytes per element: 1, 2, 4 or 8.
    pub(crate) width: u8,
    /// Elements: 1, 2 or 4 (8 for narrow vectors is outside the subset).
    pub(crate) count: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    /// Two halves at once.
    AddHalves,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Increment,
    Decrement,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Barrier {
    pub(crate) id: Slot,
    pub(crate) threads: Option<Slot>,
    /// `bar.arrive`: counts, but does not wait.
    pub(crate) arrive_only: bool,
    /// The predicate that is reduced, and where the outcome goes.
    pub(crate) reduction: Option<(Guard, BarrierResult)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum BarrierResult {
    Count(Slot),
    All(PredicateSlot),
    Any(PredicateSlot),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum VoteResult {
    All(PredicateSlot),
    Any(PredicateSlot),
    Uniform(PredicateSlot),
    Ballot(Slot),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Low,
    High,
    Full,
}

/// Operations in which the lanes of a warp meet. `members` names the lanes each lane waits for; without it the
/// lanes that are active take part.
#[derive(Debug)]
pub(crate) enum Collective {
    WarpBarrier,
    Shuffle { mode: ShuffleMode, d: Slot, in_range: Option<PredicateSlot>, a: Slot, b: Slot, c: Slot },
    Vote { result: VoteResult, predicate: Guard },
    MatchAny { d: Slot, a: Slot, bits: u32 },
    MatchAll { d: Slot, all: Option<PredicateSlot>, a: Slot, bits: u32 },
    Reduce { op: AtomicOp, element: ScalarType, d: Slot, a: Slot },
    MatrixMultiply { product: MatrixProduct, d: Box<[Slot]>, a: Box<[Slot]>, b: Box<[Slot]>, c: Box<[Slot]> },
}

/// What is called.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallTarget {
    /// The callee of that number.
    Known(u32),
    /// The function whose address a register holds.
    Pointer(Slot),
}

/// Functions that the CUDA compiler expects on every device (CUDA C++ Programming Guide, "Formatted Output",
/// "Dynamic Global Memory Allocation", "Assertion").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemCall {
    Print,
    Allocate,
    Free,
    AssertionFailed,
}

/// Elements of the matrices that are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixElement {
    F16,
    BF16,
    TF32,
    F64,
    S8,
    U8,
}

/// Elements of the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixSum {
    F16,
    F32,
    F64,
    S32,
}

/// `d = a * b + c`, with eight columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatrixProduct {
    pub(crate) rows: u8,
    pub(crate) depth: u8,
    pub(crate) a: MatrixElement,
    pub(crate) b: MatrixElement,
    pub(crate) sum: MatrixSum,
    pub(crate) addend: MatrixSum,
    pub(crate) saturate: bool,
}

/// What is done to a barrier in shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SharedBarrier {
    Initialise(Slot),
    Invalidate,
    Arrive { d: Slot, count: Slot, drop: bool },
    Test { d: PredicateSlot, test: PhaseTest },
}

/// Which phase is asked for: that of a state, or the last one of a parity.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PhaseTest {
    State(Slot),
    Parity(Slot),
}

/// Two or four parts of a word at once (PTX ISA, "Video Instructions").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SimdShape {
    pub(crate) op: SimdOp,
    pub(crate) parts: u32,
    pub(crate) a_signed: bool,
    pub(crate) b_signed: bool,
    pub(crate) d_signed: bool,
    pub(crate) saturate: bool,
    /// The parts of the result are added up, and to `c`.
    pub(crate) accumulate: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SimdOp {
    Add,
    Sub,
    Average,
    AbsoluteDifference,
    Min,
    Max,
}
