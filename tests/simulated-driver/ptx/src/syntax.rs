//! The parsed form of a PTX text: declarations and instructions as written, names not yet resolved.
//!
//! Borrows all words from the text. Says nothing about what an instruction means. Read next: `parser.rs`, which
//! makes it, and `compile.rs`, which consumes it.

use crate::types::{ScalarType, Space};

#[derive(Debug, Default)]
pub(crate) struct ModuleSyntax<'a> {
    /// Variables outside of functions.
    pub(crate) variables: Vec<VariableSyntax<'a>>,
    pub(crate) functions: Vec<FunctionSyntax<'a>>,
}

/// Who else may mean a name at module level (PTX ISA section "Linking Directives").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Linkage {
    /// Nobody outside this text.
    #[default]
    Local,
    Visible,
    /// Another text defines it.
    Extern,
    /// Any other definition goes before.
    Weak,
    /// A variable that any number of texts declare; the largest counts.
    Common,
}

#[derive(Debug)]
pub(crate) struct FunctionSyntax<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: u32,
    pub(crate) linkage: Linkage,
    pub(crate) is_entry: bool,
    pub(crate) results: Vec<ParameterSyntax<'a>>,
    pub(crate) parameters: Vec<ParameterSyntax<'a>>,
    pub(crate) most_threads: Option<[u32; 3]>,
    pub(crate) required_threads: Option<[u32; 3]>,
    /// `None` for a declaration.
    pub(crate) body: Option<Vec<Statement<'a>>>,
}

#[derive(Debug)]
pub(crate) struct ParameterSyntax<'a> {
    pub(crate) variable: VariableSyntax<'a>,
    /// `.reg` instead of `.param`: allowed for device functions only.
    pub(crate) in_register: bool,
}

#[derive(Debug)]
pub(crate) struct VariableSyntax<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: u32,
    pub(crate) space: Space,
    /// Declared `.const`: read-only for kernels.
    pub(crate) is_constant: bool,
    pub(crate) linkage: Linkage,
    pub(crate) element: ScalarType,
    /// Elements per vector (`.v2`, `.v4`), otherwise 1.
    pub(crate) vector: u64,
    /// Array extents; a leading 0 stands for `[]`.
    pub(crate) extents: Vec<u64>,
    pub(crate) align: u64,
    pub(crate) initial: Option<Initial<'a>>,
}

impl VariableSyntax<'_> {
    /// Size in bytes; `None` when it does not fit 64 bits.
    pub(crate) fn size(&self) -> Option<u64> {
        let element = self.element.bytes().checked_mul(self.vector)?;
        self.extents.iter().try_fold(element, |size, extent| size.checked_mul(*extent))
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Initial<'a> {
    Value(Operand<'a>),
    List(Vec<Initial<'a>>),
}

#[derive(Debug)]
pub(crate) enum Statement<'a> {
    Block(Vec<Statement<'a>>),
    Label { name: &'a str, line: u32 },
    BranchTargets { name: &'a str, targets: Vec<&'a str>, line: u32 },
    Registers { element: ScalarType, names: Vec<RegisterSyntax<'a>> },
    Variable(VariableSyntax<'a>),
    Instruction(InstructionSyntax<'a>),
}

#[derive(Debug)]
pub(crate) struct RegisterSyntax<'a> {
    pub(crate) name: &'a str,
    /// `%r<5>` declares `%r0` to `%r4`.
    pub(crate) count: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct InstructionSyntax<'a> {
    /// Predicate register and whether it is negated.
    pub(crate) guard: Option<(&'a str, bool)>,
    pub(crate) opcode: &'a str,
    pub(crate) modifiers: Vec<&'a str>,
    pub(crate) operands: Vec<Operand<'a>>,
    pub(crate) line: u32,
    /// The instruction as written.
    pub(crate) text: &'a str,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand<'a> {
    /// A register, variable, label, function or special register (`%tid` with component `x`).
    Name {
        name: &'a str,
        component: Option<&'a str>,
    },
    /// `variable+4`, or `generic(variable)+4`.
    Offset {
        name: &'a str,
        offset: i64,
    },
    Integer(i128),
    Single(u32),
    Double(u64),
    Decimal(f64),
    /// `[base+offset]`; the base is a `Name` or an `Integer`.
    Address {
        base: Box<Operand<'a>>,
        offset: i64,
    },
    /// `[object, {coordinates}]` of textures and surfaces.
    Texel {
        object: Box<Operand<'a>>,
        coordinates: Vec<Operand<'a>>,
    },
    Vector(Vec<Operand<'a>>),
    /// `d|p`.
    Pair(Box<Operand<'a>>, Box<Operand<'a>>),
    /// `!p`.
    Not(Box<Operand<'a>>),
    /// `(a, b)` of a call.
    List(Vec<Operand<'a>>),
}
