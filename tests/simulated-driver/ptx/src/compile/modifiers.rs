//! The dotted words behind an opcode, taken one after another; what nobody takes is outside the subset.
//!
//! Read next: any family, for instance `arithmetic.rs`.

use crate::error::Error;
use crate::syntax::InstructionSyntax;
use crate::types::{Rounding, ScalarType};

pub(crate) struct Modifiers<'i, 'a> {
    instruction: &'i InstructionSyntax<'a>,
    left: Vec<&'a str>,
}

impl<'i, 'a> Modifiers<'i, 'a> {
    pub(crate) fn new(instruction: &'i InstructionSyntax<'a>) -> Self {
        Self { instruction, left: instruction.modifiers.clone() }
    }

    pub(crate) fn unsupported(&self) -> Error {
        let guard = match self.instruction.guard {
            Some((name, negated)) => format!("@{}{name} ", if negated { "!" } else { "" }),
            None => String::new(),
        };
        let words: Vec<&str> = self.instruction.text.split_whitespace().collect();
        Error::Unsupported { instruction: guard + &words.join(" "), line: self.instruction.line }
    }

    /// Takes `word` wherever it stands.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        match self.left.iter().position(|left| *left == word) {
            Some(place) => {
                self.left.remove(place);
                true
            }
            None => false,
        }
    }

    /// Takes the first of `choices` that is there.
    pub(crate) fn choose<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices.iter().find(|(word, _)| self.take(word)).map(|(_, value)| *value)
    }

    /// As `choose`, where one of them must be there.
    pub(crate) fn require<T: Copy>(&mut self, choices: &[(&str, T)]) -> Result<T, Error> {
        self.choose(choices).ok_or_else(|| self.unsupported())
    }

    /// Takes every word that `accept` accepts.
    pub(crate) fn discard(&mut self, accept: impl Fn(&str) -> bool) {
        self.left.retain(|word| !accept(word));
    }

    /// Takes every word that is left.
    pub(crate) fn rest(&mut self) -> Vec<&'a str> {
        std::mem::take(&mut self.left)
    }

    pub(crate) fn rounding(&mut self) -> Option<Rounding> {
        self.choose(&[
            ("rn", Rounding::NearestEven),
            ("rz", Rounding::Zero),
            ("rm", Rounding::Down),
            ("rp", Rounding::Up),
        ])
    }

    /// Takes the first type.
    pub(crate) fn element(&mut self) -> Result<ScalarType, Error> {
        let place = self.left.iter().position(|word| ScalarType::parse(word).is_some());
        let word = place.map(|place| self.left.remove(place));
        word.and_then(ScalarType::parse).ok_or_else(|| self.unsupported())
    }

    /// Takes the first type, which must satisfy `accept`.
    pub(crate) fn element_if(&mut self, accept: impl Fn(ScalarType) -> bool) -> Result<ScalarType, Error> {
        let element = self.element()?;
        if accept(element) { Ok(element) } else { Err(self.unsupported()) }
    }

    /// Fails when a word is left or the number of operands is not within `counts`.
    pub(crate) fn finish(&self, counts: std::ops::RangeInclusive<usize>) -> Result<(), Error> {
        if self.left.is_empty() && counts.contains(&self.instruction.operands.len()) {
            Ok(())
        } else {
            Err(self.unsupported())
        }
    }
}
