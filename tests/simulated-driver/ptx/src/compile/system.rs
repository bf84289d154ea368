//! Calls of functions that every device has: `vprintf`, `malloc`, `free`, `__assertfail`; and `alloca` with its
//! kin, which take memory of the stack.
//!
//! They are declared in the text and defined nowhere. Read next: `execute/system.rs`.

use super::Compiler;
use super::calls::CallOperands;
use super::functions::Undefined;
use super::modifiers::Modifiers;
use super::slots::operand;
use crate::error::Error;
use crate::program::{Op, Place, Slot, SystemCall};
use crate::syntax::{InstructionSyntax, Operand};
use crate::types::{ScalarType, Space};

use ScalarType::{B32, B64};

/// Name, call, types of the arguments, type of the result.
type Known = (&'static str, SystemCall, &'static [ScalarType], Option<ScalarType>);
const KNOWN: [Known; 4] = [
    ("vprintf", SystemCall::Print, &[B64, B64], Some(B32)),
    ("malloc", SystemCall::Allocate, &[B64], Some(B64)),
    ("free", SystemCall::Free, &[B64], None),
    ("__assertfail", SystemCall::AssertionFailed, &[B64, B64, B32, B64, B64], None),
];

/// Whether every device has a function of that name.
pub(crate) fn is_known(name: &str) -> bool {
    KNOWN.iter().any(|(known, ..)| *known == name)
}

impl<'a> Compiler<'_, 'a> {
    pub(super) fn system_call(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        operands: &CallOperands<'_, 'a>,
    ) -> Result<(), Error> {
        let line = instruction.line;
        let Some((name, call, types, result)) = KNOWN.iter().find(|(name, ..)| *name == operands.target)
        else {
            return match self.functions.undefined {
                Undefined::Refused => Err(Error::Undefined { name: operands.target.to_owned(), line }),
                Undefined::Allowed => self.emit(None, Op::Trap, line),
            };
        };
        if operands.arguments.len() != types.len() || operands.results.len() != usize::from(result.is_some())
        {
            return Err(Error::syntax(line, format!("{name} takes other parameters")));
        }
        let mut arguments: [Slot; 5] = [0; 5];
        for ((slot, element), argument) in arguments.iter_mut().zip(*types).zip(operands.arguments) {
            *slot = match self.variable_place(argument, *element, line)? {
                Some(place) => {
                    let d = self.new_slot(line)?;
                    self.emit(None, Op::Load { place, d: [d, 0, 0, 0], extend: None, polls: false }, line)?;
                    d
                }
                None => self.value(instruction, argument, *element)?,
            };
        }
        self.program.uses_heap |= matches!(call, SystemCall::Allocate | SystemCall::Free);
        let d = self.new_slot(line)?;
        self.emit(None, Op::System { call: *call, arguments, d }, line)?;
        let (Some(element), Some(target)) = (result, operands.results.first()) else { return Ok(()) };
        match self.variable_place(target, *element, line)? {
            Some(place) => self.emit(None, Op::Store { place, s: [d, 0, 0, 0] }, line),
            None => {
                let target = self.destination(instruction, target, element.bits())?.0;
                self.emit(None, Op::Copy { d: target, a: d }, line)
            }
        }
    }

    /// The place of a `.param` variable that a call names; none for a register.
    fn variable_place(
        &mut self,
        argument: &Operand<'a>,
        element: ScalarType,
        line: u32,
    ) -> Result<Option<Place>, Error> {
        let Operand::Name { name, component: None } = argument else { return Ok(None) };
        let Some(variable) = self.variable(name).filter(|variable| variable.space == Space::Local) else {
            return Ok(None);
        };
        if variable.size < element.bytes() {
            return Err(Error::syntax(line, "a call passes .param variables of the parameters' sizes"));
        }
        let base = self.address(name, variable, 0, line)?;
        Ok(Some(Place { space: Space::Local, base, offset: 0, width: element.bytes() as u8, count: 1 }))
    }

    /// `alloca`, `stacksave`, `stackrestore` (PTX ISA section "Stack Manipulation Instructions").
    pub(super) fn stack(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let element = modifiers.element_if(|element| matches!(element, ScalarType::U32 | ScalarType::U64))?;
        self.program.uses_stack = true;
        let op = match instruction.opcode {
            "stacksave" => {
                modifiers.finish(1..=1)?;
                Op::StackSave { d: self.result(instruction, element.bits())? }
            }
            "stackrestore" => {
                modifiers.finish(1..=1)?;
                Op::StackRestore { a: self.values::<1>(instruction, 0, element)?[0] }
            }
            _ => {
                modifiers.finish(2..=3)?;
                let align = match instruction.operands.get(2) {
                    None => 8,
                    Some(Operand::Integer(align)) => u64::try_from(*align).unwrap_or(0),
                    Some(_) => 0,
                };
                if !align.is_power_of_two() || align > 1 << 23 {
                    return Err(Error::syntax(instruction.line, "an alignment is a power of two up to 2^23"));
                }
                let bytes = self.value(instruction, operand(instruction, 1)?, element)?;
                Op::StackAllocate { d: self.result(instruction, element.bits())?, bytes, align }
            }
        };
        self.emit_guarded(instruction, op)
    }
}
