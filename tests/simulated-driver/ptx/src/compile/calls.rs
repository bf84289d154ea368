//! Calls of device functions: inlined where they stand, or made, where that cannot be.
//!
//! Parameters of a call are the caller's `.param` variables, in local memory; the callee's parameter names are
//! bound to them. A function that calls itself, or is called through a pointer, has code of its own (a `Callee`)
//! and is passed the addresses of these variables. Read next: `names.rs`, `execute/stack.rs`.

use super::functions::Functions;
use super::modifiers::Modifiers;
use super::names::{Origin, Register, Scope, Variable};
use super::{CODE_LIMIT, Compiler, Frame};
use crate::error::Error;
use crate::program::{CallTarget, Callee, Guard, Op, Place, Slot, SlotSource};
use crate::syntax::{FunctionSyntax, InstructionSyntax, Operand, ParameterSyntax, Statement, VariableSyntax};
use crate::types::{ScalarType, Space};

/// How deep calls may be inlined; deeper ones are made.
const CALL_LIMIT: usize = 32;
/// Instructions of a kernel beyond which nothing more is inlined.
const INLINE_LIMIT: usize = 1 << 14;

/// The operands of one call.
pub(super) struct CallOperands<'i, 'a> {
    pub(super) results: &'i [Operand<'a>],
    pub(super) target: &'a str,
    pub(super) arguments: &'i [Operand<'a>],
}

impl<'i, 'a> CallOperands<'i, 'a> {
    fn of(instruction: &'i InstructionSyntax<'a>, modifiers: &Modifiers<'_, 'a>) -> Result<Self, Error> {
        let (results, rest): (&[Operand<'a>], _) = match &instruction.operands[..] {
            [Operand::List(results), rest @ ..] => (results, rest),
            rest => (&[], rest),
        };
        let name = |operand: &Operand<'a>| match operand {
            Operand::Name { name, component: None } => Ok(*name),
            _ => Err(modifiers.unsupported()),
        };
        // Behind the arguments a call through a pointer names a prototype or a list of targets.
        let (target, arguments): (_, &[Operand<'a>]) = match rest {
            [target] => (name(target)?, &[]),
            [target, Operand::List(arguments)] | [target, Operand::List(arguments), Operand::Name { .. }] => {
                (name(target)?, arguments)
            }
            [target, Operand::Name { .. }] => (name(target)?, &[]),
            _ => return Err(modifiers.unsupported()),
        };
        Ok(Self { results, target, arguments })
    }
}

impl<'a> Compiler<'_, 'a> {
    pub(super) fn call(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        modifiers.take("uni");
        modifiers.finish(1..=4)?;
        let line = instruction.line;
        let call = CallOperands::of(instruction, modifiers)?;
        if let Some(Register::Value { slot, bits: 64 }) = self.register(call.target, line)? {
            return self.guarded_call(instruction, |compiler| {
                compiler.calls_pointers = true;
                compiler.make_call(instruction, &call, CallTarget::Pointer(slot), None)
            });
        }
        let functions: &Functions<'_, 'a> = self.functions;
        let Some(function) = functions.by_name.get(call.target) else {
            return Err(Error::Undefined { name: call.target.to_owned(), line });
        };
        let Some(body) = &function.body else {
            return self.guarded_call(instruction, |compiler| compiler.system_call(instruction, &call));
        };
        if function.results.len() != call.results.len() || function.parameters.len() != call.arguments.len() {
            return Err(Error::syntax(line, format!("{} takes other parameters", call.target)));
        }
        let large = self.program.code.len().max(self.labels.len()) > INLINE_LIMIT;
        let made = large || self.calls.contains(&call.target) || self.calls.len() >= CALL_LIMIT;
        self.guarded_call(instruction, |compiler| {
            if made {
                let number = compiler.callee_number(call.target);
                compiler.make_call(instruction, &call, CallTarget::Known(number), Some(function))
            } else {
                compiler.inline(instruction, function, body, &call)
            }
        })
    }

    /// What `act` emits is executed by the lanes of the instruction's guard.
    fn guarded_call(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        act: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = instruction.line;
        // Calls of functions without instructions count too.
        if self.labels.len() > CODE_LIMIT {
            return Err(Error::TooLarge { what: "number of calls", limit: CODE_LIMIT as u64, line });
        }
        let after = self.new_label();
        if let Some(guard) = self.guard(instruction)? {
            let skip = Guard { negated: !guard.negated, ..guard };
            self.emit(Some(skip), Op::Branch { target: after }, line)?;
        }
        act(self)?;
        self.set_label(after);
        Ok(())
    }

    fn inline(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        function: &FunctionSyntax<'a>,
        body: &[Statement<'a>],
        call: &CallOperands<'_, 'a>,
    ) -> Result<(), Error> {
        let line = instruction.line;
        let end = self.new_label();
        let mut inner = Scope::default();
        let mut registers = Vec::new();
        for (parameter, argument) in function.parameters.iter().zip(call.arguments) {
            if let Some(register) = self.bind(instruction, &mut inner, parameter, argument)? {
                let a = self.value(instruction, argument, parameter.variable.element)?;
                self.copy_in(register, a, line)?;
                registers.push((parameter.variable.name, register));
            }
        }
        let mut returned = Vec::new();
        for (result, target) in function.results.iter().zip(call.results) {
            if let Some(register) = self.bind(instruction, &mut inner, result, target)? {
                registers.push((result.variable.name, register));
                returned.push((
                    register,
                    self.destination(instruction, target, result.variable.element.bits())?.0,
                ));
            }
        }
        let outer = std::mem::replace(&mut self.scopes, vec![inner]);
        for (name, register) in registers {
            self.bind_register(name, register);
        }
        let outer_return = self.return_label.replace(end);
        self.calls.push(function.name);
        self.block(body)?;
        self.calls.pop();
        self.return_label = outer_return;
        self.scopes = outer;
        self.set_label(end);
        for (register, target) in returned {
            if let Register::Value { slot, .. } = register {
                self.emit(None, Op::Copy { d: target, a: slot }, line)?;
            }
        }
        Ok(())
    }

    /// Binds a parameter held in memory to the caller's variable; answers a register for one held in a register.
    fn bind(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        inner: &mut Scope<'a>,
        parameter: &ParameterSyntax<'a>,
        argument: &Operand<'a>,
    ) -> Result<Option<Register>, Error> {
        let line = instruction.line;
        if parameter.in_register {
            return match self.new_register(parameter.variable.element, line)? {
                register @ Register::Value { .. } => Ok(Some(register)),
                Register::Predicate(_) => Err(Error::syntax(line, "predicates cannot be passed")),
            };
        }
        let variable = self.passed_variable(argument);
        match variable {
            Some(variable) if Some(variable.size) >= parameter.variable.size() => {
                inner.variables.insert(parameter.variable.name, variable);
                Ok(None)
            }
            _ => Err(Error::syntax(line, "a call passes .param variables of the parameters' sizes")),
        }
    }

    /// The `.param` variable that an operand names.
    fn passed_variable(&self, argument: &Operand<'a>) -> Option<Variable> {
        let Operand::Name { name, component: None } = argument else { return None };
        self.variable(name).filter(|variable| variable.space == Space::Local)
    }

    fn copy_in(&mut self, register: Register, a: u16, line: u32) -> Result<(), Error> {
        match register {
            Register::Value { slot, .. } => self.emit(None, Op::Copy { d: slot, a }, line),
            Register::Predicate(_) => Ok(()),
        }
    }

    /// Passes the addresses of the caller's variables. What stands in registers goes through variables made here.
    fn make_call(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        call: &CallOperands<'_, 'a>,
        target: CallTarget,
        function: Option<&FunctionSyntax<'a>>,
    ) -> Result<(), Error> {
        let line = instruction.line;
        let mut passed = Vec::new();
        for (position, argument) in call.arguments.iter().enumerate() {
            if let Some(variable) = self.passed_variable(argument) {
                passed.push(self.address("", variable, 0, line)?);
                continue;
            }
            let element = match function.and_then(|function| function.parameters.get(position)) {
                Some(parameter) => parameter.variable.element,
                None => self.element_of(argument, line)?,
            };
            let a = self.value(instruction, argument, element)?;
            let (place, address) = self.temporary(element, line)?;
            self.emit(None, Op::Store { place, s: [a, 0, 0, 0] }, line)?;
            passed.push(address);
        }
        let mut returned = Vec::new();
        for target in call.results {
            if let Some(variable) = self.passed_variable(target) {
                passed.push(self.address("", variable, 0, line)?);
                continue;
            }
            let element = self.element_of(target, line)?;
            let (place, address) = self.temporary(element, line)?;
            returned.push((place, self.destination(instruction, target, element.bits())?.0));
            passed.push(address);
        }
        self.emit(None, Op::Call { target, passed: passed.into() }, line)?;
        for (place, d) in returned {
            self.emit(None, Op::Load { place, d: [d, 0, 0, 0], extend: None, polls: false }, line)?;
        }
        Ok(())
    }

    /// The type of a register that is passed to an unknown function.
    fn element_of(&mut self, operand: &Operand<'a>, line: u32) -> Result<ScalarType, Error> {
        if let Operand::Name { name, component: None } = operand
            && let Some(Register::Value { bits, .. }) = self.register(name, line)?
        {
            return Ok(unsigned(bits));
        }
        Err(Error::syntax(line, "a call passes .param variables or registers"))
    }

    /// A variable for one value: its place and the slot with its address.
    fn temporary(&mut self, element: ScalarType, line: u32) -> Result<(Place, Slot), Error> {
        let variable = self.new_local(Some(element.bytes()), element.bytes(), line)?;
        let address = self.address("", variable, 0, line)?;
        let place =
            Place { space: Space::Local, base: address, offset: 0, width: element.bytes() as u8, count: 1 };
        Ok((place, address))
    }

    /// The number of a function with code of its own, which will be compiled when the entry is.
    fn callee_number(&mut self, name: &'a str) -> u32 {
        if let Some(number) = self.callees.iter().position(|known| *known == name) {
            return number as u32;
        }
        self.callees.push(name);
        (self.callees.len() - 1) as u32
    }

    /// Compiles the functions that have code of their own.
    pub(super) fn compile_callees(&mut self) -> Result<(), Error> {
        let mut done = 0;
        loop {
            if self.calls_pointers {
                for name in self.functions.taken.clone() {
                    let defined = self.functions.by_name.get(name).is_some_and(|found| found.body.is_some());
                    if defined && !self.functions.by_name[name].is_entry {
                        self.callee_number(name);
                    }
                }
            }
            let Some(name) = self.callees.get(done).copied() else { break };
            let callee = self.compile_callee(name)?;
            self.program.callees.push(callee);
            done += 1;
        }
        for (number, name) in self.callees.iter().enumerate() {
            if let Some(address) = self.functions.address(name) {
                self.program.callee_of_address.insert(address, number as u32);
            }
        }
        self.program.uses_stack |= !self.program.callees.is_empty();
        Ok(())
    }

    fn compile_callee(&mut self, name: &'a str) -> Result<Callee, Error> {
        let functions: &Functions<'_, 'a> = self.functions;
        let function = functions.by_name[name];
        let Some(body) = &function.body else {
            return Err(Error::Undefined { name: name.to_owned(), line: function.line });
        };
        let line = function.line;
        let (first_slot, first_predicate) = (self.program.slots.len(), self.program.predicate_count);
        let position = self.program.code.len() as u32;
        let frame = self.new_slot(line)?;
        self.frame = Some(Frame { slot: frame, bytes: 0 });
        self.scopes = vec![Scope::default()];
        // Like an inlined function, it is not the entry.
        self.calls = vec!["", name];
        let end = self.new_label();
        self.return_label = Some(end);
        let mut passed = Vec::new();
        for parameter in &function.parameters {
            let place = self.declare_passed(parameter, &mut passed)?;
            if let Some((place, d)) = place {
                self.emit(None, Op::Load { place, d: [d, 0, 0, 0], extend: None, polls: false }, line)?;
            }
        }
        let mut returned = Vec::new();
        for result in &function.results {
            returned.extend(self.declare_passed(result, &mut passed)?);
        }
        self.block(body)?;
        self.set_label(end);
        for (place, a) in returned {
            self.emit(None, Op::Store { place, s: [a, 0, 0, 0] }, line)?;
        }
        self.emit(None, Op::Return, line)?;
        let own = first_slot..self.program.slots.len();
        let slots =
            own.filter(|slot| self.program.slots[*slot] == SlotSource::Register).map(|slot| slot as Slot);
        Ok(Callee {
            position,
            slots: slots.collect(),
            predicates: first_predicate..self.program.predicate_count,
            frame,
            frame_bytes: self.frame.take().map_or(0, |frame| frame.bytes),
            passed,
        })
    }

    /// Declares what the caller passes the address of; answers place and register of what stands in a register.
    fn declare_passed(
        &mut self,
        parameter: &ParameterSyntax<'a>,
        passed: &mut Vec<Slot>,
    ) -> Result<Option<(Place, Slot)>, Error> {
        let VariableSyntax { name, line, element, .. } = parameter.variable;
        let slot = self.new_slot(line)?;
        passed.push(slot);
        if parameter.in_register {
            let register = self.new_register(element, line)?;
            let Register::Value { slot: value, .. } = register else {
                return Err(Error::syntax(line, "predicates cannot be passed"));
            };
            self.bind_register(name, register);
            let width = element.bytes() as u8;
            return Ok(Some((Place { space: Space::Local, base: slot, offset: 0, width, count: 1 }, value)));
        }
        let size = parameter.variable.size().unwrap_or(0);
        let variable = Variable { space: Space::Local, origin: Origin::Relative { slot, offset: 0 }, size };
        self.bind_variable(name, variable);
        Ok(None)
    }
}

fn unsigned(bits: u32) -> ScalarType {
    match bits {
        8 => ScalarType::U8,
        16 => ScalarType::U16,
        32 => ScalarType::U32,
        _ => ScalarType::U64,
    }
}
