//! shfl, vote, match, redux, activemask: what the lanes of a warp do together.
//!
//! Read next: `execute/collective.rs`.

use super::Compiler;
use super::modifiers::Modifiers;
use super::slots::operand;
use crate::error::Error;
use crate::program::{AtomicOp, Collective, Op, PredicateSlot, ShuffleMode, Slot, VoteResult};
use crate::syntax::{InstructionSyntax, Operand};
use crate::types::ScalarType;

#[derive(Clone, Copy)]
enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

impl<'a> Compiler<'_, 'a> {
    pub(super) fn collective(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        if instruction.opcode == "activemask" {
            modifiers.element_if(|element| element == ScalarType::B32)?;
            modifiers.finish(1..=1)?;
            let d = self.result(instruction, 32)?;
            return self.emit_guarded(instruction, Op::ActiveMask { d });
        }
        let synchronised = modifiers.take("sync");
        let (kind, operands) = match instruction.opcode {
            "shfl" => self.shuffle(instruction, modifiers)?,
            "vote" => self.vote(instruction, modifiers)?,
            "match" if synchronised => self.match_lanes(instruction, modifiers)?,
            "redux" if synchronised => self.reduce(instruction, modifiers)?,
            _ => return Err(modifiers.unsupported()),
        };
        let expected = operands + usize::from(synchronised);
        modifiers.finish(expected..=expected)?;
        let members = if synchronised {
            Some(self.values::<1>(instruction, operands, ScalarType::B32)?[0])
        } else {
            None
        };
        self.emit_guarded(instruction, Op::Collective { kind: Box::new(kind), members })
    }

    /// `d` or `d|p`.
    fn value_and_predicate(
        &mut self,
        instruction: &InstructionSyntax<'a>,
    ) -> Result<(Slot, Option<PredicateSlot>), Error> {
        match operand(instruction, 0)? {
            Operand::Pair(first, second) => {
                let d = self.destination(instruction, first, 32)?.0;
                Ok((d, self.predicate_destination(instruction, second)?))
            }
            target => Ok((self.destination(instruction, target, 32)?.0, None)),
        }
    }

    fn shuffle(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(Collective, usize), Error> {
        let mode = modifiers.require(&[
            ("up", ShuffleMode::Up),
            ("down", ShuffleMode::Down),
            ("bfly", ShuffleMode::Butterfly),
            ("idx", ShuffleMode::Index),
        ])?;
        modifiers.element_if(|element| element == ScalarType::B32)?;
        let [a, b, c] = self.values(instruction, 1, ScalarType::B32)?;
        let (d, in_range) = self.value_and_predicate(instruction)?;
        Ok((Collective::Shuffle { mode, d, in_range, a, b, c }, 4))
    }

    fn vote(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(Collective, usize), Error> {
        let mode = modifiers.require(&[
            ("all", VoteMode::All),
            ("any", VoteMode::Any),
            ("uni", VoteMode::Uniform),
            ("ballot", VoteMode::Ballot),
        ])?;
        let element = modifiers.element()?;
        let target = operand(instruction, 0)?;
        let predicate = self.predicate(instruction, operand(instruction, 1)?)?;
        let result = match (mode, element) {
            (VoteMode::Ballot, ScalarType::B32) => {
                VoteResult::Ballot(self.destination(instruction, target, 32)?.0)
            }
            (VoteMode::Ballot, _) => return Err(modifiers.unsupported()),
            (_, ScalarType::Predicate) => {
                let d = match self.predicate_destination(instruction, target)? {
                    Some(d) => d,
                    None => self.new_predicate(instruction.line)?,
                };
                match mode {
                    VoteMode::All => VoteResult::All(d),
                    VoteMode::Any => VoteResult::Any(d),
                    VoteMode::Uniform | VoteMode::Ballot => VoteResult::Uniform(d),
                }
            }
            _ => return Err(modifiers.unsupported()),
        };
        Ok((Collective::Vote { result, predicate }, 2))
    }

    fn match_lanes(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(Collective, usize), Error> {
        let wants_all = modifiers.require(&[("any", false), ("all", true)])?;
        let element = modifiers.element_if(|element| matches!(element, ScalarType::B32 | ScalarType::B64))?;
        let [a] = self.values(instruction, 1, element)?;
        let bits = element.bits();
        let (d, all) = self.value_and_predicate(instruction)?;
        let kind = if wants_all {
            Collective::MatchAll { d, all, a, bits }
        } else {
            Collective::MatchAny { d, a, bits }
        };
        Ok((kind, 2))
    }

    fn reduce(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(Collective, usize), Error> {
        let op = modifiers.require(&[
            ("add", AtomicOp::Add),
            ("min", AtomicOp::Min),
            ("max", AtomicOp::Max),
            ("and", AtomicOp::And),
            ("or", AtomicOp::Or),
            ("xor", AtomicOp::Xor),
        ])?;
        let bitwise = matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor);
        let element = modifiers.element_if(|element| match element {
            ScalarType::B32 => bitwise,
            ScalarType::U32 | ScalarType::S32 => !bitwise,
            _ => false,
        })?;
        let [a] = self.values(instruction, 1, element)?;
        let d = self.result(instruction, 32)?;
        Ok((Collective::Reduce { op, element, d, a }, 2))
    }
}
