//! The compiled form of one kernel: a flat vector of instructions over numbered slots.
//!
//! Every operand is a slot of the warp's register file. Constants, addresses of variables and special registers
//! have slots of their own that are filled before the first instruction, so that no operand needs a case
//! distinction while running. Read next: `compile.rs` (makes it), `execute.rs` (runs it).

use crate::types::{Rounding, ScalarType, Space};

/// Index into a warp's values.
pub(crate) type Slot = u16;
/// Index into a warp's predicates.
pub(crate) type PredicateSlot = u16;

#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) code: Vec<Instruction>,
    /// How each slot is filled before the first instruction.
    pub(crate) slots: Vec<SlotSource>,
    pub(crate) predicate_count: u16,
    pub(crate) tables: Vec<Vec<u32>>,
    pub(crate) static_shared_bytes: u64,
    /// Bytes of local memory per thread.
    pub(crate) local_bytes: u64,
    pub(crate) parameter_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SlotSource {
    /// Written by instructions.
    Register,
    Constant(u64),
    /// Device address of a module variable plus a number.
    Symbol(String, u64),
    /// Start of the dynamic shared memory plus a number.
    DynamicShared(u64),
    Special(Special),
}

/// Special registers that do not change while a block runs (PTX ISA section 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Thread(u8),
    BlockExtent(u8),
    Block(u8),
    GridExtent(u8),
    Lane,
    Warp,
    WarpCount,
    Processor,
    ProcessorCount,
    Grid,
    MaskEqual,
    MaskLess,
    MaskLessEqual,
    MaskGreater,
    MaskGreaterEqual,
    DynamicSharedBytes,
    TotalSharedBytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) predicate: PredicateSlot,
    pub(crate) negated: bool,
}

#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) line: u32,
    pub(crate) guard: Option<Guard>,
    pub(crate) op: Op,
}

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
}

#[derive(Debug)]
pub(crate) enum Op {
    Copy {
        d: Slot,
        a: Slot,
    },
    ReadClock {
        d: Slot,
        part: Clock,
    },
    Pack {
        d: Slot,
        parts: [Slot; 4],
        count: u8,
        bits: u8,
    },
    Unpack {
        parts: [Slot; 4],
        a: Slot,
        count: u8,
        bits: u8,
    },
    Integer {
        op: IntegerOp,
        element: ScalarType,
        d: Slot,
        s: [Slot; 4],
    },
    Carry {
        op: CarryOp,
        element: ScalarType,
        reads: bool,
        writes: bool,
        d: Slot,
        s: [Slot; 3],
    },
    Float {
        op: FloatOp,
        shape: FloatShape,
        d: Slot,
        s: [Slot; 3],
    },
    Half {
        op: FloatOp,
        shape: HalfShape,
        d: Slot,
        s: [Slot; 3],
    },
    TestFloat {
        test: FloatTest,
        double: bool,
        d: PredicateSlot,
        a: Slot,
    },
    Convert {
        conversion: Box<Conversion>,
        d: Slot,
        a: Slot,
    },
    Compare {
        compare: Box<Compare>,
        d: PredicateSlot,
        opposite: Option<PredicateSlot>,
    },
    /// Writes `ones` where the comparison holds, zero elsewhere.
    CompareValue {
        compare: Box<Compare>,
        d: Slot,
        ones: u64,
    },
    Select {
        d: Slot,
        a: Slot,
        b: Slot,
        p: PredicateSlot,
    },
    /// `d = a where c >= 0, else b`.
    SelectSign {
        element: ScalarType,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    PredicateConstant {
        d: PredicateSlot,
        value: bool,
    },
    PredicateLogic {
        op: Logic,
        d: PredicateSlot,
        a: Guard,
        b: Guard,
    },
    IsSpace {
        d: PredicateSlot,
        a: Slot,
        space: Space,
    },
    Load {
        place: Place,
        d: [Slot; 4],
        extend: Option<(u8, u8)>,
        polls: bool,
    },
    /// A load from a place in the parameters that is known beforehand.
    LoadParameter {
        offset: u32,
        width: u8,
        d: Slot,
        extend: Option<(u8, u8)>,
    },
    Store {
        place: Place,
        s: [Slot; 4],
    },
    Atomic {
        place: Place,
        op: AtomicOp,
        element: ScalarType,
        d: Option<Slot>,
        b: Slot,
        c: Slot,
    },
    Fence,
    /// Lets other warps run: `nanosleep`.
    Pause,
    Barrier(Box<Barrier>),
    Collective {
        kind: Box<Collective>,
        members: Option<Slot>,
    },
    ActiveMask {
        d: Slot,
    },
    Branch {
        target: u32,
    },
    BranchTable {
        index: Slot,
        table: u32,
    },
    Exit,
    Trap {
        assertion: bool,
    },
}
