//! mov, cvta, selp, slct, setp, set, testp: what moves and compares values.
//!
//! Read next: `execute/compare.rs`.

use super::Compiler;
use super::half::PACKED;
use super::modifiers::Modifiers;
use super::slots::operand;
use crate::error::Error;
use crate::program::{Compare, Comparison, FloatTest, IntegerOp, Logic, Op, Slot};
use crate::syntax::{InstructionSyntax, Operand};
use crate::types::{LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, ScalarType, Space};

const SPACES: [(&str, Space); 7] = [
    ("global", Space::Global),
    ("const", Space::Global),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    ("local", Space::Local),
    ("param", Space::Parameter),
    ("param::entry", Space::Parameter),
];

impl<'a> Compiler<'_, 'a> {
    pub(super) fn mov(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let element = modifiers.element()?;
        modifiers.finish(2..=2)?;
        let (target, source) = (operand(instruction, 0)?, operand(instruction, 1)?);
        if element == ScalarType::Predicate {
            let a = self.predicate(instruction, source)?;
            return match self.predicate_destination(instruction, target)? {
                Some(d) => self.emit_guarded(instruction, Op::PredicateLogic { op: Logic::And, d, a, b: a }),
                None => Ok(()),
            };
        }
        if element.bits() < 16 {
            return Err(modifiers.unsupported());
        }
        match (target, source) {
            (Operand::Vector(parts), _) => self.unpack(instruction, modifiers, parts, source, element),
            (_, Operand::Vector(parts)) => self.pack(instruction, modifiers, parts, element),
            _ => {
                let a = self.value(instruction, source, element)?;
                let d = self.result(instruction, element.bits())?;
                self.emit_guarded(instruction, Op::Copy { d, a })
            }
        }
    }

    fn part_type(
        &self,
        modifiers: &Modifiers<'_, 'a>,
        parts: &[Operand<'a>],
        element: ScalarType,
    ) -> Result<ScalarType, Error> {
        match (element.bits(), parts.len()) {
            (64, 2) => Ok(ScalarType::B32),
            (64, 4) | (32, 2) => Ok(ScalarType::B16),
            (32, 4) | (16, 2) => Ok(ScalarType::B8),
            _ => Err(modifiers.unsupported()),
        }
    }

    fn unpack(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &Modifiers<'_, 'a>,
        targets: &[Operand<'a>],
        source: &Operand<'a>,
        element: ScalarType,
    ) -> Result<(), Error> {
        let part = self.part_type(modifiers, targets, element)?;
        let a = self.value(instruction, source, element)?;
        let mut parts: [Slot; 4] = [0; 4];
        for (slot, target) in parts.iter_mut().zip(targets) {
            *slot = self.destination(instruction, target, part.bits())?.0;
        }
        let op = Op::Unpack { parts, a, count: targets.len() as u8, bits: part.bits() as u8 };
        self.emit_guarded(instruction, op)
    }

    fn pack(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &Modifiers<'_, 'a>,
        sources: &[Operand<'a>],
        element: ScalarType,
    ) -> Result<(), Error> {
        let part = self.part_type(modifiers, sources, element)?;
        let mut parts: [Slot; 4] = [0; 4];
        for (slot, source) in parts.iter_mut().zip(sources) {
            *slot = self.value(instruction, source, part)?;
        }
        let d = self.result(instruction, element.bits())?;
        let op = Op::Pack { d, parts, count: sources.len() as u8, bits: part.bits() as u8 };
        self.emit_guarded(instruction, op)
    }

    pub(super) fn cvta(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let to_space = modifiers.take("to");
        let space = modifiers.require(&SPACES)?;
        let element = modifiers.element_if(|element| element == ScalarType::U64)?;
        modifiers.finish(2..=2)?;
        let a = self.value(instruction, operand(instruction, 1)?, element)?;
        let d = self.result(instruction, 64)?;
        let window = match space {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Parameter => PARAMETER_WINDOW,
            Space::Global | Space::Generic => return self.emit_guarded(instruction, Op::Copy { d, a }),
        };
        let window = self.constant(window, instruction.line)?;
        let op = if to_space { IntegerOp::Sub } else { IntegerOp::Add };
        self.emit_guarded(instruction, Op::Integer { op, element, d, s: [a, window, 0, 0] })
    }

    pub(super) fn is_space(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let space = modifiers.require(&SPACES)?;
        modifiers.finish(2..=2)?;
        let a = self.value(instruction, operand(instruction, 1)?, ScalarType::U64)?;
        match self.predicate_destination(instruction, operand(instruction, 0)?)? {
            Some(d) => self.emit_guarded(instruction, Op::IsSpace { d, a, space }),
            None => Ok(()),
        }
    }

    pub(super) fn select(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let element =
            modifiers.element_if(|element| element != ScalarType::Predicate && element.bits() >= 16)?;
        if instruction.opcode == "slct" {
            let tested =
                modifiers.element_if(|tested| matches!(tested, ScalarType::S32 | ScalarType::F32))?;
            modifiers.finish(4..=4)?;
            let [a, b] = self.values(instruction, 1, element)?;
            let [c] = self.values(instruction, 3, tested)?;
            let d = self.result(instruction, element.bits())?;
            return self.emit_guarded(instruction, Op::SelectSign { element: tested, d, a, b, c });
        }
        modifiers.finish(4..=4)?;
        let [a, b] = self.values(instruction, 1, element)?;
        let p = self.predicate(instruction, operand(instruction, 3)?)?;
        let (a, b) = if p.negated { (b, a) } else { (a, b) };
        let d = self.result(instruction, element.bits())?;
        self.emit_guarded(instruction, Op::Select { d, a, b, p: p.predicate })
    }

    pub(super) fn compare(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        if instruction.opcode == "testp" {
            return self.test_float(instruction, modifiers);
        }
        let (comparison, unsigned) = comparison(modifiers)?;
        let logic = modifiers.choose(&[("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)]);
        let flush = modifiers.take("ftz");
        let is_set = instruction.opcode == "set";
        let is_packed = |word: &&&str| PACKED.iter().any(|(packed, _)| *packed == **word);
        let writes_packed = is_set && instruction.modifiers.iter().filter(is_packed).count() == 2;
        let packed_ones = if writes_packed { modifiers.choose(&PACKED) } else { None };
        if let Some(target) = packed_ones {
            let Some(element) = modifiers.choose(&PACKED) else { return Err(modifiers.unsupported()) };
            let ones = if target == ScalarType::F16 { 0x3c00 } else { 0x3f80 };
            return self.compare_packed(
                instruction,
                modifiers,
                (comparison, logic, flush, element),
                Some(ones),
            );
        }
        if let Some(element) = packed_source(instruction) {
            let ones = match (is_set, modifiers.take("u32") || modifiers.take("s32")) {
                (true, true) => Some(0xffff),
                (false, false) => None,
                _ => return Err(modifiers.unsupported()),
            };
            modifiers.choose(&PACKED);
            return self.compare_packed(instruction, modifiers, (comparison, logic, flush, element), ones);
        }
        let written = if is_set {
            use ScalarType::{BF16, F16, F32, S32, U32};
            let known = |element| matches!(element, U32 | S32 | F32 | F16 | BF16);
            Some(modifiers.element_if(known)?)
        } else {
            None
        };
        let element = modifiers.element_if(|element| element.bits() >= 16)?;
        let element = compared_type(modifiers, comparison, unsigned, element)?;
        let operands = if logic.is_some() { 4 } else { 3 };
        modifiers.finish(operands..=operands)?;
        let [a, b] = self.values(instruction, 1, element)?;
        let combine = match logic {
            Some(logic) => Some((logic, self.predicate(instruction, operand(instruction, 3)?)?)),
            None => None,
        };
        let compare = Box::new(Compare { comparison, element, flush, a, b, combine });
        let target = operand(instruction, 0)?;
        if let Some(written) = written {
            let d = self.destination(instruction, target, written.bits())?.0;
            let ones = match written {
                ScalarType::F32 => u64::from(1f32.to_bits()),
                ScalarType::F16 => 0x3c00,
                ScalarType::BF16 => 0x3f80,
                _ => u64::from(u32::MAX),
            };
            return self.emit_guarded(instruction, Op::CompareValue { compare, d, ones });
        }
        let (first, second) = match target {
            Operand::Pair(first, second) => (&**first, Some(&**second)),
            _ => (target, None),
        };
        let opposite = match second {
            Some(second) => self.predicate_destination(instruction, second)?,
            None => None,
        };
        let d = match self.predicate_destination(instruction, first)? {
            Some(d) => d,
            None => self.new_predicate(instruction.line)?,
        };
        self.emit_guarded(instruction, Op::Compare { compare, d, opposite })
    }

    /// Two halves at once: `setp` writes a predicate for each, `set` a half for each.
    fn compare_packed(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &Modifiers<'_, 'a>,
        (comparison, logic, flush, element): (Comparison, Option<Logic>, bool, ScalarType),
        ones: Option<u64>,
    ) -> Result<(), Error> {
        let line = instruction.line;
        let operands = if logic.is_some() { 4 } else { 3 };
        modifiers.finish(operands..=operands)?;
        compared_type(modifiers, comparison, false, element)?;
        let mut halves = [[0; 2]; 2];
        for (word, halves) in self.values::<2>(instruction, 1, ScalarType::B32)?.into_iter().zip(&mut halves)
        {
            *halves = [self.new_slot(line)?, self.new_slot(line)?];
            let parts = [halves[0], halves[1], 0, 0];
            self.emit_guarded(instruction, Op::Unpack { parts, a: word, count: 2, bits: 16 })?;
        }
        let combine = match logic {
            Some(logic) => Some((logic, self.predicate(instruction, operand(instruction, 3)?)?)),
            None => None,
        };
        let target = operand(instruction, 0)?;
        let compare = |half: usize| {
            let (a, b) = (halves[0][half], halves[1][half]);
            Box::new(Compare { comparison, element, flush, a, b, combine })
        };
        if let Some(ones) = ones {
            let parts = [self.new_slot(line)?, self.new_slot(line)?, 0, 0];
            for (half, part) in parts.into_iter().enumerate().take(2) {
                let op = Op::CompareValue { compare: compare(half), d: part, ones };
                self.emit_guarded(instruction, op)?;
            }
            let d = self.destination(instruction, target, 32)?.0;
            return self.emit_guarded(instruction, Op::Pack { d, parts, count: 2, bits: 16 });
        }
        let Operand::Pair(low, high) = target else { return Err(modifiers.unsupported()) };
        for (half, target) in [low, high].into_iter().enumerate() {
            if let Some(d) = self.predicate_destination(instruction, target)? {
                self.emit_guarded(instruction, Op::Compare { compare: compare(half), d, opposite: None })?;
            }
        }
        Ok(())
    }

    fn test_float(
        &mut self,
        instruction: &InstructionSyntax<'a>,
        modifiers: &mut Modifiers<'_, 'a>,
    ) -> Result<(), Error> {
        let test = modifiers.require(&[
            ("finite", FloatTest::Finite),
            ("infinite", FloatTest::Infinite),
            ("number", FloatTest::Number),
            ("notanumber", FloatTest::NotANumber),
            ("normal", FloatTest::Normal),
            ("subnormal", FloatTest::Subnormal),
        ])?;
        let element = modifiers.element_if(|element| matches!(element, ScalarType::F32 | ScalarType::F64))?;
        modifiers.finish(2..=2)?;
        let [a] = self.values(instruction, 1, element)?;
        match self.predicate_destination(instruction, operand(instruction, 0)?)? {
            Some(d) => self
                .emit_guarded(instruction, Op::TestFloat { test, double: element == ScalarType::F64, d, a }),
            None => Ok(()),
        }
    }
}

/// The type of the halves that an instruction compares two by two.
fn packed_source(instruction: &InstructionSyntax<'_>) -> Option<ScalarType> {
    let last = instruction.modifiers.last()?;
    PACKED.iter().find(|(word, _)| word == last).map(|(_, element)| *element)
}

/// The comparison, and whether its word compares without sign whatever the type.
fn comparison(modifiers: &mut Modifiers<'_, '_>) -> Result<(Comparison, bool), Error> {
    modifiers.require(&[
        ("eq", (Comparison::Equal, false)),
        ("ne", (Comparison::NotEqual, false)),
        ("lt", (Comparison::Less, false)),
        ("le", (Comparison::LessEqual, false)),
        ("gt", (Comparison::Greater, false)),
        ("ge", (Comparison::GreaterEqual, false)),
        ("lo", (Comparison::Less, true)),
        ("ls", (Comparison::LessEqual, true)),
        ("hi", (Comparison::Greater, true)),
        ("hs", (Comparison::GreaterEqual, true)),
        ("equ", (Comparison::EqualUnordered, false)),
        ("neu", (Comparison::NotEqualUnordered, false)),
        ("ltu", (Comparison::LessUnordered, false)),
        ("leu", (Comparison::LessEqualUnordered, false)),
        ("gtu", (Comparison::GreaterUnordered, false)),
        ("geu", (Comparison::GreaterEqualUnordered, false)),
        ("num", (Comparison::Ordered, false)),
        ("nan", (Comparison::Unordered, false)),
    ])
}

/// The type that is compared, when the comparison exists for it.
fn compared_type(
    modifiers: &Modifiers<'_, '_>,
    comparison: Comparison,
    unsigned: bool,
    element: ScalarType,
) -> Result<ScalarType, Error> {
    use Comparison::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
    let ordinary = matches!(comparison, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual);
    match element {
        ScalarType::F16 | ScalarType::BF16 | ScalarType::F32 | ScalarType::F64 if !unsigned => Ok(element),
        ScalarType::B16 | ScalarType::B32 | ScalarType::B64
            if unsigned || matches!(comparison, Equal | NotEqual) =>
        {
            Ok(element.unsigned())
        }
        ScalarType::B16 | ScalarType::B32 | ScalarType::B64 => Err(modifiers.unsupported()),
        _ if element.is_integer() && ordinary => Ok(if unsigned { element.unsigned() } else { element }),
        _ => Err(modifiers.unsupported()),
    }
}
