//! bra, brx, ret, exit, trap, bar: what moves a thread or makes it wait for its block.
//!
//! Read next: `execute/warp.rs`.

use super::Compiler;
use super::modifiers::Modifiers;
use super::slots::operand;
use crate::error::Error;
use crate::program::{Barrier, BarrierResult, Collective, Op};
use crate::syntax::{InstructionSyntax, Operand};
use crate::types::ScalarType;

/// What `bar.red` computes.
#[derive(Clone, Copy)]
enum Reduction {
    Count,
    All,
    Any,
}

impl<'a> Compiler<'_, 'a> {
    pub(super) fn control(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let line = instruction.line;
        let is_indexed = instruction.opcode == "brx" && modifiers.take("idx");
        if matches!(instruction.opcode, "bra" | "brx" | "ret") {
            modifiers.take("uni");
        }
        match instruction.opcode {
            "bra" => {
                modifiers.finish(1..=1)?;
                let Operand::Name { name, component: None } = operand(instruction, 0)? else {
                    return Err(Error::syntax(line, "expected a label"));
                };
                let target = self.label(name, line)?;
                self.emit_guarded(instruction, Op::Branch { target })
            }
            "brx" if is_indexed => {
                modifiers.finish(2..=2)?;
                let [index] = self.values(instruction, 0, ScalarType::U32)?;
                let Operand::Name { name, component: None } = operand(instruction, 1)? else {
                    return Err(Error::syntax(line, "expected a list of branch targets"));
                };
                let table = self.table(name, line)?;
                self.emit_guarded(instruction, Op::BranchTable { index, table })
            }
            "ret" => {
                modifiers.finish(0..=0)?;
                let op = self.return_label.map_or(Op::Exit, |target| Op::Branch { target });
                self.emit_guarded(instruction, op)
            }
            "exit" => {
                modifiers.finish(0..=0)?;
                self.emit_guarded(instruction, Op::Exit)
            }
            "trap" | "brkpt" => {
                modifiers.finish(0..=0)?;
                self.emit_guarded(instruction, Op::Trap)
            }
            _ => Err(modifiers.unsupported()),
        }
    }

    pub(super) fn barrier(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        if instruction.opcode == "bar" && modifiers.take("warp") {
            modifiers.require(&[("sync", ())])?;
            modifiers.finish(1..=1)?;
            let [members] = self.values(instruction, 0, ScalarType::B32)?;
            let kind = Box::new(Collective::WarpBarrier);
            return self.emit_guarded(instruction, Op::Collective { kind, members: Some(members) });
        }
        modifiers.take("cta");
        if instruction.opcode == "barrier" {
            modifiers.take("aligned");
        }
        let operands = instruction.operands.len();
        if modifiers.take("red") {
            return self.barrier_reduction(instruction, modifiers);
        }
        let arrive_only = modifiers.require(&[("sync", false), ("arrive", true)])?;
        modifiers.finish(if arrive_only { 2..=2 } else { 1..=2 })?;
        let [id] = self.values(instruction, 0, ScalarType::U32)?;
        let threads =
            if operands == 2 { Some(self.values::<1>(instruction, 1, ScalarType::U32)?[0]) } else { None };
        let barrier = Barrier { id, threads, arrive_only, reduction: None };
        self.emit_guarded(instruction, Op::Barrier(Box::new(barrier)))
    }

    fn barrier_reduction(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let reduction = modifiers.require(&[
            ("popc", Reduction::Count),
            ("and", Reduction::All),
            ("or", Reduction::Any),
        ])?;
        let element = modifiers.element_if(|element| match reduction {
            Reduction::Count => element == ScalarType::U32,
            Reduction::All | Reduction::Any => element == ScalarType::Predicate,
        })?;
        modifiers.finish(3..=4)?;
        let operands = instruction.operands.len();
        let [id] = self.values(instruction, 1, ScalarType::U32)?;
        let threads =
            if operands == 4 { Some(self.values::<1>(instruction, 2, ScalarType::U32)?[0]) } else { None };
        let predicate = self.predicate(instruction, operand(instruction, operands - 1)?)?;
        let target = operand(instruction, 0)?;
        let result = if element == ScalarType::U32 {
            BarrierResult::Count(self.destination(instruction, target, 32)?.0)
        } else {
            let d = match self.predicate_destination(instruction, target)? {
                Some(d) => d,
                None => self.new_predicate(instruction.line)?,
            };
            if matches!(reduction, Reduction::All) { BarrierResult::All(d) } else { BarrierResult::Any(d) }
        };
        let barrier = Barrier { id, threads, arrive_only: false, reduction: Some((predicate, result)) };
        self.emit_guarded(instruction, Op::Barrier(Box::new(barrier)))
    }
}
