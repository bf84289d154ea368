//! mbarrier: barriers that are objects in shared memory (PTX ISA, "mbarrier"). `cuda::barrier` is made of them.
//!
//! Bytes under way (`expect_tx`) belong to copies in bulk and are outside the subset. Read next:
//! `execute/mbarrier.rs`.

use super::Compiler;
use super::modifiers::Modifiers;
use super::slots::operand;
use crate::error::Error;
use crate::program::{Op, PhaseTest, SharedBarrier, Slot};
use crate::syntax::{InstructionSyntax, Operand};
use crate::types::{ScalarType, Space};

#[derive(Clone, Copy)]
enum Kind {
    Initialise,
    Invalidate,
    Arrive,
    Drop,
    Test,
    PendingCount,
}

impl<'a> Compiler<'_, 'a> {
    pub(super) fn shared_barrier(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let kind = modifiers.require(&[
            ("init", Kind::Initialise),
            ("inval", Kind::Invalidate),
            ("arrive", Kind::Arrive),
            ("arrive_drop", Kind::Drop),
            ("test_wait", Kind::Test),
            ("try_wait", Kind::Test),
            ("pending_count", Kind::PendingCount),
        ])?;
        modifiers.discard(|word| {
            matches!(word, "noComplete" | "release" | "acquire" | "relaxed" | "cta" | "cluster")
        });
        let by_parity = modifiers.take("parity");
        let shared = modifiers.take("shared") || modifiers.take("shared::cta");
        let space = if shared { Space::Shared } else { Space::Generic };
        modifiers.element_if(|element| element == ScalarType::B64)?;
        let count = instruction.operands.len();
        match kind {
            Kind::PendingCount => {
                modifiers.finish(2..=2)?;
                let [a] = self.values(instruction, 1, ScalarType::B64)?;
                let d = self.result(instruction, 32)?;
                self.emit_guarded(instruction, Op::PendingCount { d, a })
            }
            Kind::Initialise | Kind::Invalidate => {
                let operands = if matches!(kind, Kind::Initialise) { 2 } else { 1 };
                modifiers.finish(operands..=operands)?;
                let act = match kind {
                    Kind::Initialise => {
                        SharedBarrier::Initialise(self.values::<1>(instruction, 1, ScalarType::U32)?[0])
                    }
                    _ => SharedBarrier::Invalidate,
                };
                self.emit_barrier(instruction, 0, space, act)
            }
            Kind::Arrive | Kind::Drop => {
                modifiers.finish(2..=3)?;
                let arriving = match count {
                    3 => self.values::<1>(instruction, 2, ScalarType::U32)?[0],
                    _ => self.constant(1, instruction.line)?,
                };
                let d: Slot = self.result(instruction, 64)?;
                let drop = matches!(kind, Kind::Drop);
                self.emit_barrier(instruction, 1, space, SharedBarrier::Arrive { d, count: arriving, drop })
            }
            Kind::Test => {
                // The last operand may say how long to wait.
                modifiers.finish(3..=4)?;
                let d = match operand(instruction, 0)? {
                    Operand::Name { name: "_", .. } => self.new_predicate(instruction.line)?,
                    target => match self.predicate_destination(instruction, target)? {
                        Some(d) => d,
                        None => self.new_predicate(instruction.line)?,
                    },
                };
                let read = if by_parity { ScalarType::U32 } else { ScalarType::B64 };
                let [a] = self.values(instruction, 2, read)?;
                let test = if by_parity { PhaseTest::Parity(a) } else { PhaseTest::State(a) };
                self.emit_barrier(instruction, 1, space, SharedBarrier::Test { d, test })
            }
        }
    }

    fn emit_barrier(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        position: usize,
        space: Space,
        act: SharedBarrier,
    ) -> Result<(), Error> {
        let target = operand(instruction, position)?;
        let place = self.place(instruction, target, Some(space), ScalarType::B64, 1)?;
        self.emit_guarded(instruction, Op::SharedBarrier { place, act: Box::new(act) })
    }
}
