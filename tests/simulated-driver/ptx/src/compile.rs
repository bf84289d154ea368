//! Turns a parsed function into a `Program`: names become slots, labels become positions, calls are inlined.
//!
//! Rejects every instruction outside the executed subset by its text and line. The families of instructions are
//! in the modules below; `names.rs` resolves names, `slots.rs` turns operands into slots. Read next:
//! `program.rs` and `execute.rs`.

mod arithmetic;
mod bits;
mod calls;
mod collective;
mod control;
mod convert;
pub(crate) mod functions;
mod half;
pub(crate) mod layout;
mod matrix;
mod mbarrier;
mod memory;
mod modifiers;
mod moves;
mod names;
mod slots;
pub(crate) mod system;
mod texture;

use std::collections::HashMap;

use crate::error::Error;
use crate::program::{Instruction, Op, Program, Slot, SlotSource};
use crate::syntax::{FunctionSyntax, InstructionSyntax, ModuleSyntax, Statement};
use functions::Functions;
use modifiers::Modifiers;
use names::{Scope, Variable};

/// Most instructions of one kernel with its inlined calls.
const CODE_LIMIT: usize = 1 << 20;

/// Number of a label until its position is known.
pub(crate) type LabelId = u32;

pub(crate) struct Compiler<'m, 'a> {
    module: &'m ModuleSyntax<'a>,
    functions: &'m Functions<'m, 'a>,
    program: Program,
    scopes: Vec<Scope<'a>>,
    /// Slots of constants, addresses and special registers, by what fills them.
    known_slots: HashMap<SlotSource, Slot>,
    /// Shared variables that already have a place, by function and name.
    shared_places: HashMap<(&'a str, &'a str), u64>,
    /// Module variables, by name.
    globals: HashMap<&'a str, Variable>,
    /// Position of each label, once known.
    labels: Vec<Option<u32>>,
    label_tables: Vec<Vec<LabelId>>,
    /// Functions being inlined, the entry first.
    calls: Vec<&'a str>,
    /// Where `ret` goes inside an inlined function.
    return_label: Option<LabelId>,
    /// Functions with code of their own, in the order of their numbers.
    callees: Vec<&'a str>,
    /// Whether any call goes through a pointer.
    calls_pointers: bool,
    /// Where variables go while a function with code of its own is compiled.
    frame: Option<Frame>,
}

/// The variables of one activation of a function.
#[derive(Clone, Copy)]
struct Frame {
    /// Holds their address.
    slot: Slot,
    bytes: u64,
}

/// Compiles one entry of the module.
pub(crate) fn compile<'m, 'a>(
    module: &'m ModuleSyntax<'a>,
    functions: &'m Functions<'m, 'a>,
    entry: &FunctionSyntax<'a>,
    body: &[Statement<'a>],
) -> Result<Program, Error> {
    let mut compiler = Compiler {
        module,
        functions,
        program: Program { name: entry.name.to_owned(), ..Program::default() },
        scopes: Vec::new(),
        known_slots: HashMap::new(),
        shared_places: HashMap::new(),
        globals: HashMap::new(),
        labels: Vec::new(),
        label_tables: Vec::new(),
        calls: vec![entry.name],
        return_label: None,
        callees: Vec::new(),
        calls_pointers: false,
        frame: None,
    };
    compiler.declare_globals()?;
    compiler.program.parameter_bytes = compiler.declare_entry_parameters(entry)?;
    compiler.block(body)?;
    compiler.emit(None, Op::Exit, entry.line)?;
    compiler.compile_callees()?;
    compiler.finish()
}

impl<'a> Compiler<'_, 'a> {
    /// Compiles the statements of one block in a scope of its own.
    fn block(&mut self, body: &[Statement<'a>]) -> Result<(), Error> {
        self.scopes.push(Scope::default());
        self.declare_labels(body)?;
        for statement in body {
            match statement {
                Statement::Block(inner) => self.block(inner)?,
                Statement::Label { name, line } => self.place_label(name, *line)?,
                Statement::BranchTargets { .. } => {}
                Statement::Registers { element, names } => self.declare_registers(*element, names),
                Statement::Variable(variable) => self.declare_variable(variable)?,
                Statement::Instruction(instruction) => self.instruction(instruction)?,
            }
        }
        self.scopes.pop();
        Ok(())
    }

    fn instruction(&mut self, instruction: &InstructionSyntax<'a>) -> Result<(), Error> {
        let mut modifiers = Modifiers::new(instruction);
        match instruction.opcode {
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "rem" | "abs" | "neg" | "min" | "max" | "sad"
            | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "copysign" => {
                self.arithmetic(instruction, &mut modifiers)
            }
            "dp4a" | "dp2a" => self.dot_product(instruction, &mut modifiers),
            "cp" => self.copy_async(instruction, &mut modifiers),
            "addc" | "subc" | "madc" => self.carry(instruction, &mut modifiers, true),
            "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "popc" | "clz"
            | "bfind" | "brev" | "bfe" | "bfi" | "prmt" => self.bits(instruction, &mut modifiers),
            "mov" => self.mov(instruction, &mut modifiers),
            "cvta" => self.cvta(instruction, &mut modifiers),
            "selp" | "slct" => self.select(instruction, &mut modifiers),
            "setp" | "set" | "testp" => self.compare(instruction, &mut modifiers),
            "cvt" => self.convert(instruction, &mut modifiers),
            "ld" | "ldu" => self.load(instruction, &mut modifiers),
            "st" => self.store(instruction, &mut modifiers),
            "atom" | "red" => self.atomic(instruction, &mut modifiers),
            "tex" => self.texture(instruction, &mut modifiers),
            "suld" | "sust" => self.surface(instruction, &mut modifiers),
            "isspacep" => self.is_space(instruction, &mut modifiers),
            "prefetch" | "prefetchu" | "membar" | "fence" | "nanosleep" | "pmevent" => {
                self.fence_or_hint(instruction, &mut modifiers)
            }
            "mma" => self.matrix_multiply(instruction, &mut modifiers),
            "ldmatrix" => self.load_matrix(instruction, &mut modifiers),
            "mbarrier" => self.shared_barrier(instruction, &mut modifiers),
            "mul24" | "mad24" | "fns" | "bmsk" | "szext" => self.odd_bits(instruction, &mut modifiers),
            "vadd2" | "vadd4" | "vsub2" | "vsub4" | "vavrg2" | "vavrg4" | "vabsdiff2" | "vabsdiff4"
            | "vmin2" | "vmin4" | "vmax2" | "vmax4" => self.simd(instruction, &mut modifiers),
            "bar" | "barrier" => self.barrier(instruction, &mut modifiers),
            "shfl" | "vote" | "match" | "redux" | "activemask" => {
                self.collective(instruction, &mut modifiers)
            }
            "bra" | "brx" | "ret" | "exit" | "trap" | "brkpt" => self.control(instruction, &mut modifiers),
            "call" => self.call(instruction, &mut modifiers),
            "alloca" | "stacksave" | "stackrestore" => self.stack(instruction, &mut modifiers),
            _ => Err(modifiers.unsupported()),
        }
    }

    /// Appends an instruction.
    fn emit(&mut self, guard: Option<crate::program::Guard>, op: Op, line: u32) -> Result<(), Error> {
        if self.program.code.len() >= CODE_LIMIT {
            return Err(Error::TooLarge { what: "number of instructions", limit: CODE_LIMIT as u64, line });
        }
        self.program.code.push(Instruction { line, guard, op });
        Ok(())
    }

    /// Replaces label numbers by positions.
    fn finish(mut self) -> Result<Program, Error> {
        let labels = &self.labels;
        let position = |label: LabelId, line: u32| {
            let place = labels.get(label as usize).copied().flatten();
            place.ok_or_else(|| Error::syntax(line, "branch to a label without a place"))
        };
        for instruction in &mut self.program.code {
            if let Op::Branch { target } = &mut instruction.op {
                *target = position(*target, instruction.line)?;
            }
        }
        for table in &self.label_tables {
            let places = table.iter().map(|label| position(*label, 0)).collect::<Result<_, _>>()?;
            self.program.tables.push(places);
        }
        Ok(self.program)
    }
}
