//! Calls of device functions, inlined where they stand.
//!
//! Parameters of a call are the caller's `.param` variables, in local memory; the callee's parameter names are
//! bound to them. Recursion and calls through pointers are outside the subset. Read next: `names.rs`.

use super::modifiers::Modifiers;
use super::names::{Register, Scope};
use super::{CODE_LIMIT, Compiler};
use crate::error::Error;
use crate::program::{Guard, Op};
use crate::syntax::{FunctionSyntax, InstructionSyntax, Operand, ParameterSyntax, Statement};
use crate::types::Space;

/// How deep calls may nest.
const CALL_LIMIT: usize = 32;

impl<'a> Compiler<'_, 'a> {
    pub(super) fn call(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        modifiers.take("uni");
        modifiers.finish(1..=4)?;
        let (results, rest): (&[Operand<'a>], _) = match &instruction.operands[..] {
            [Operand::List(results), rest @ ..] => (results, rest),
            rest => (&[], rest),
        };
        let (name, arguments): (&'a str, &[Operand<'a>]) = match rest {
            [Operand::Name { name, component: None }] => (name, &[]),
            [Operand::Name { name, component: None }, Operand::List(arguments)] => (name, arguments),
            _ => return Err(modifiers.unsupported()),
        };
        if name == "__assertfail" {
            return self.emit_guarded(instruction, Op::Trap { assertion: true });
        }
        let function = self.functions.get(name).copied();
        let recursive = self.calls.contains(&name) || self.calls.len() >= CALL_LIMIT;
        match function {
            Some(FunctionSyntax { body: Some(body), .. }) if !recursive => {
                let function = self.functions[name];
                if function.results.len() != results.len() || function.parameters.len() != arguments.len() {
                    return Err(Error::syntax(instruction.line, format!("{name} takes other parameters")));
                }
                self.inline(instruction, function, body, results, arguments)
            }
            None => Err(Error::Undefined { name: name.to_owned(), line: instruction.line }),
            Some(_) => Err(modifiers.unsupported()),
        }
    }

    fn inline(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        function: &FunctionSyntax<'a>,
        body: &[Statement<'a>],
        results: &[Operand<'a>],
        arguments: &[Operand<'a>],
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
        let end = self.new_label();
        let mut inner = Scope::default();
        let mut registers = Vec::new();
        for (parameter, argument) in function.parameters.iter().zip(arguments) {
            if let Some(register) = self.bind(instruction, &mut inner, parameter, argument)? {
                let a = self.value(instruction, argument, parameter.variable.element)?;
                self.copy_in(register, a, line)?;
                registers.push((parameter.variable.name, register));
            }
        }
        let mut returned = Vec::new();
        for (result, target) in function.results.iter().zip(results) {
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
        self.set_label(after);
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
        let variable = match argument {
            Operand::Name { name, component: None } => self.variable(name),
            _ => None,
        };
        match variable.filter(|variable| variable.space == Space::Local) {
            Some(variable) if Some(variable.size) >= parameter.variable.size() => {
                inner.variables.insert(parameter.variable.name, variable);
                Ok(None)
            }
            _ => Err(Error::syntax(line, "a call passes .param variables of the parameters' sizes")),
        }
    }

    fn copy_in(&mut self, register: Register, a: u16, line: u32) -> Result<(), Error> {
        match register {
            Register::Value { slot, .. } => self.emit(None, Op::Copy { d: slot, a }, line),
            Register::Predicate(_) => Ok(()),
        }
    }
}
