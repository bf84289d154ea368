//! The words every part of this crate shares: lanes of a warp, scalar types of PTX, state spaces, rounding.
//!
//! Nothing here executes or parses more than one word. Read next: `syntax.rs` for the parsed text,
//! `program.rs` for the compiled one.

/// Threads in a warp.
pub const LANE_COUNT: usize = 32;

/// One value per lane. A value narrower than 64 bits is zero-extended; floats are their bit patterns.
pub type Lanes = [u64; LANE_COUNT];

/// The mask in which every lane is active; bit `i` stands for lane `i`.
pub const ALL_LANES: u32 = u32::MAX;

/// Where the shared window of a block lies in the generic address space.
pub const SHARED_WINDOW: u64 = 1 << 60;
/// Where a thread's local memory lies in the generic address space.
pub const LOCAL_WINDOW: u64 = 2 << 60;
/// Where the kernel's parameters lie in the generic address space.
pub const PARAMETER_WINDOW: u64 = 3 << 60;

/// A fundamental type of PTX ISA section 5.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ScalarType {
    Predicate,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    BF16,
    F32,
    F64,
}

impl ScalarType {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "pred" => Self::Predicate,
            "b8" => Self::B8,
            "b16" => Self::B16,
            "b32" => Self::B32,
            "b64" => Self::B64,
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "s8" => Self::S8,
            "s16" => Self::S16,
            "s32" => Self::S32,
            "s64" => Self::S64,
            "f16" => Self::F16,
            "bf16" => Self::BF16,
            "f32" => Self::F32,
            "f64" => Self::F64,
            _ => return None,
        })
    }

    /// Width in bits; a predicate counts as one.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Predicate => 1,
            Self::B8 | Self::U8 | Self::S8 => 8,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::BF16 => 16,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 => 32,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 64,
        }
    }

    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.bits().div_ceil(8))
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }

    pub(crate) fn is_integer(self) -> bool {
        !self.is_float() && self != Self::Predicate
    }

    /// The unsigned integer of the same width: what operations use that do not look at the sign.
    pub(crate) fn unsigned(self) -> Self {
        match self.bits() {
            8 => Self::U8,
            16 => Self::U16,
            32 => Self::U32,
            _ => Self::U64,
        }
    }
}

/// A state space of PTX ISA section 5.1. Constant memory lies in device memory here, so it is `Global`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Global,
    Shared,
    Local,
    Parameter,
    Generic,
}

/// Rounding of a floating-point result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    NearestEven,
    Zero,
    Down,
    Up,
}

/// All bits of a value of that width.
pub(crate) fn width_mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Reads the low `bits` of `value` as a signed number and widens it to 64 bits.
pub(crate) fn sign_extend(value: u64, bits: u32) -> u64 {
    let unused = 64 - bits.clamp(1, 64);
    (((value << unused) as i64) >> unused) as u64
}
