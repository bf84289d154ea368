//! The compiled form of one kernel: a flat vector of instructions over numbered slots.
//!
//! Every operand is a slot of the warp's register file. Constants, addresses of variables and special registers
//! have slots of their own that are filled before the first instruction, so that no operand needs a case
//! distinction while running. Read next: `compile.rs` (makes it), `execute.rs` (runs it).

use std::collections::HashMap;
use std::ops::Range;

mod shapes;

pub(crate) use shapes::*;

use crate::texture::{Geometry, Outside};
use crate::types::{ScalarType, Space};

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
    /// Functions with code of their own: those that call themselves or are called through pointers.
    pub(crate) callees: Vec<Callee>,
    /// Which of them an address stands for.
    pub(crate) callee_of_address: HashMap<u64, u32>,
    /// Whether threads need a stack: for `callees`, or for `alloca`.
    pub(crate) uses_stack: bool,
    /// Whether it calls `malloc` or `free`.
    pub(crate) uses_heap: bool,
}

/// A function that is called, where others are inlined. Each activation has its own registers and variables.
#[derive(Debug, Default)]
pub(crate) struct Callee {
    /// Position of its first instruction.
    pub(crate) position: u32,
    /// Its registers, which an activation further out keeps elsewhere meanwhile.
    pub(crate) slots: Vec<Slot>,
    pub(crate) predicates: Range<PredicateSlot>,
    /// Gets the address, in local memory, of the activation's variables.
    pub(crate) frame: Slot,
    /// Bytes of an activation's variables.
    pub(crate) frame_bytes: u64,
    /// Get the addresses, in local memory, of what the caller passes: parameters, then results.
    pub(crate) passed: Vec<Slot>,
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
    /// Half of the address of what a cooperative launch needs: `%envreg1` has the upper one.
    Workspace {
        upper: bool,
    },
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

/// The place that a texture or surface instruction names.
#[derive(Debug)]
pub(crate) struct Texel {
    pub(crate) object: Slot,
    pub(crate) geometry: Geometry,
    pub(crate) at: [Slot; 3],
    pub(crate) layer: Option<Slot>,
    /// Coordinates are floats.
    pub(crate) real: bool,
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
    Texture {
        texel: Box<Texel>,
        d: [Slot; 4],
    },
    Surface {
        texel: Box<Texel>,
        outside: Outside,
        stores: bool,
        slots: [Slot; 4],
        width: u8,
        count: u8,
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
    /// Calls a function that has code of its own; `passed` holds addresses in local memory.
    Call {
        target: CallTarget,
        passed: Box<[Slot]>,
    },
    /// Leaves such a function.
    Return,
    /// `alloca`: takes bytes of the stack until the function returns.
    StackAllocate {
        d: Slot,
        bytes: Slot,
        align: u64,
    },
    StackSave {
        d: Slot,
    },
    StackRestore {
        a: Slot,
    },
    /// `ldmatrix`.
    LoadMatrix {
        place: Place,
        d: Box<[Slot]>,
        transposed: bool,
    },
    SharedBarrier {
        place: Place,
        act: Box<SharedBarrier>,
    },
    PendingCount {
        d: Slot,
        a: Slot,
    },
    /// A function that every device has.
    System {
        call: SystemCall,
        arguments: [Slot; 5],
        d: Slot,
    },
    Exit,
    Trap,
}
