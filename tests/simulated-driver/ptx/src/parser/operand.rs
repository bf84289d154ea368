//! Operands: registers, literals, addresses, vectors, pairs, lists (PTX ISA section 6).
//!
//! Says only how they are written; `compile/slots.rs` says what they stand for.

use super::Parser;
use crate::error::Error;
use crate::lexer::TokenKind;
use crate::syntax::Operand;

impl<'a> Parser<'a> {
    pub(super) fn operand(&mut self) -> Result<Operand<'a>, Error> {
        let first = self.nested(Self::single_operand)?;
        if !self.accept_mark(b'|') {
            return Ok(first);
        }
        let second = self.nested(Self::single_operand)?;
        Ok(Operand::Pair(Box::new(first), Box::new(second)))
    }

    fn single_operand(&mut self) -> Result<Operand<'a>, Error> {
        match self.peek() {
            TokenKind::Word(_) => self.name(),
            TokenKind::Mark(b'[') => self.address(),
            TokenKind::Mark(b'{') => {
                self.advance();
                Ok(Operand::Vector(self.sequence(b'}')?))
            }
            TokenKind::Mark(b'(') => {
                self.advance();
                Ok(Operand::List(self.sequence(b')')?))
            }
            TokenKind::Mark(b'!') => {
                self.advance();
                let inner = self.nested(Self::single_operand)?;
                Ok(Operand::Not(Box::new(inner)))
            }
            _ => self.literal(),
        }
    }

    fn sequence(&mut self, end: u8) -> Result<Vec<Operand<'a>>, Error> {
        let mut found = Vec::new();
        while !self.accept_mark(end) {
            if !found.is_empty() {
                self.expect_mark(b',')?;
            }
            found.push(self.operand()?);
        }
        Ok(found)
    }

    fn literal(&mut self) -> Result<Operand<'a>, Error> {
        let negative = self.accept_mark(b'-');
        if !negative {
            self.accept_mark(b'+');
        }
        let kind = self.peek();
        let value = match kind {
            TokenKind::Integer(value) if negative => Operand::Integer(-i128::from(value)),
            TokenKind::Integer(value) => Operand::Integer(i128::from(value)),
            TokenKind::SingleBits(bits) => Operand::Single(bits ^ (u32::from(negative) << 31)),
            TokenKind::DoubleBits(bits) => Operand::Double(bits ^ (u64::from(negative) << 63)),
            TokenKind::Decimal(value) if negative => Operand::Decimal(-value),
            TokenKind::Decimal(value) => Operand::Decimal(value),
            _ => return Err(self.expected("an operand")),
        };
        self.advance();
        Ok(value)
    }

    fn name(&mut self) -> Result<Operand<'a>, Error> {
        let name = self.expect_word("a name")?;
        // `generic(variable)` takes a variable's generic address, which equals its address in device memory.
        if name == "generic" && self.accept_mark(b'(') {
            let inner = self.expect_word("a variable")?;
            self.expect_mark(b')')?;
            let offset = self.offset()?;
            return Ok(Operand::Offset { name: inner, offset });
        }
        if let TokenKind::Dotted(component) = self.peek() {
            self.advance();
            return Ok(Operand::Name { name, component: Some(component) });
        }
        match self.peek() {
            TokenKind::Mark(b'+' | b'-') => Ok(Operand::Offset { name, offset: self.offset()? }),
            _ => Ok(Operand::Name { name, component: None }),
        }
    }

    /// `+4`, `-4`, `+-4` or nothing.
    fn offset(&mut self) -> Result<i64, Error> {
        let mut negative = false;
        let mut any = false;
        loop {
            match self.peek() {
                TokenKind::Mark(b'+') => {}
                TokenKind::Mark(b'-') => negative = !negative,
                _ => break,
            }
            any = true;
            self.advance();
        }
        if !any {
            return Ok(0);
        }
        let value = self.expect_integer()? as i64;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    fn address(&mut self) -> Result<Operand<'a>, Error> {
        self.advance();
        let (base, offset) = match self.peek() {
            TokenKind::Word(_) => match self.name()? {
                Operand::Offset { name, offset } => (Operand::Name { name, component: None }, offset),
                base => (base, self.offset()?),
            },
            _ => (self.literal()?, self.offset()?),
        };
        if offset == 0 && self.accept_mark(b',') {
            self.expect_mark(b'{')?;
            let coordinates = self.sequence(b'}')?;
            self.expect_mark(b']')?;
            return Ok(Operand::Texel { object: Box::new(base), coordinates });
        }
        self.expect_mark(b']')?;
        Ok(Operand::Address { base: Box::new(base), offset })
    }
}
