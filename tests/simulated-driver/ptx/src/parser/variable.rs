//! Declarations of variables: space, alignment, type, extents, initial values (PTX ISA sections 5.3 and 5.4).
//!
//! Lays nothing out; `compile/layout.rs` does.

use super::Parser;
use crate::error::Error;
use crate::lexer::TokenKind;
use crate::syntax::{Initial, Linkage, VariableSyntax};
use crate::types::{ScalarType, Space};

/// Largest alignment that is accepted, in bytes.
const ALIGN_LIMIT: u64 = 1 << 12;

/// What stands between a space and a name: `.align 8 .v2 .f32`.
pub(super) struct Shape {
    pub(super) element: ScalarType,
    pub(super) vector: u64,
    pub(super) align: Option<u64>,
}

impl<'a> Parser<'a> {
    pub(super) fn shape(&mut self) -> Result<Shape, Error> {
        let mut shape = Shape { element: ScalarType::B8, vector: 1, align: None };
        let mut has_type = false;
        while let TokenKind::Dotted(word) = self.peek() {
            match word {
                "align" => {
                    self.advance();
                    let value = self.expect_integer()?;
                    if !value.is_power_of_two() || value > ALIGN_LIMIT {
                        return Err(self
                            .error(format!("alignment {value} is not a power of two up to {ALIGN_LIMIT}")));
                    }
                    // The alignment behind `.ptr` is that of the pointee, not of the parameter.
                    if !has_type {
                        shape.align = Some(value);
                    }
                    continue;
                }
                "attribute" => {
                    self.advance();
                    self.skip_attribute()?;
                    continue;
                }
                "ptr" => {}
                "global" | "shared" | "local" | "const" if has_type => {}
                "v2" => shape.vector = 2,
                "v4" => shape.vector = 4,
                _ => {
                    let known = ScalarType::parse(word).filter(|_| !has_type);
                    shape.element = known.ok_or_else(|| self.expected("a type of the executed subset"))?;
                    has_type = true;
                }
            }
            self.advance();
        }
        if has_type { Ok(shape) } else { Err(self.expected("a type")) }
    }

    fn skip_attribute(&mut self) -> Result<(), Error> {
        self.expect_mark(b'(')?;
        while !self.accept_mark(b')') {
            match self.peek() {
                TokenKind::Dotted("managed") | TokenKind::Mark(b',') => self.advance(),
                _ => return Err(self.expected("an attribute of the executed subset")),
            };
        }
        Ok(())
    }

    pub(super) fn array_extents(&mut self) -> Result<Vec<u64>, Error> {
        let mut extents = Vec::new();
        while self.accept_mark(b'[') {
            extents.push(if self.peek() == TokenKind::Mark(b']') { 0 } else { self.expect_integer()? });
            self.expect_mark(b']')?;
        }
        Ok(extents)
    }

    /// One declaration with one or several names, from its space to its `;`.
    pub(super) fn variables(&mut self) -> Result<Vec<VariableSyntax<'a>>, Error> {
        let (space, is_constant) = match self.advance().kind {
            TokenKind::Dotted("global") => (Space::Global, false),
            TokenKind::Dotted("const") => (Space::Global, true),
            TokenKind::Dotted("shared") => (Space::Shared, false),
            // Parameters of a call are bytes private to the thread, as local variables are.
            TokenKind::Dotted("local" | "param") => (Space::Local, false),
            _ => return Err(self.expected("a state space")),
        };
        let shape = self.shape()?;
        let mut found = Vec::new();
        loop {
            let line = self.line();
            let name = self.expect_word("a variable name")?;
            let extents = self.array_extents()?;
            let initial = if self.accept_mark(b'=') { Some(self.initial()?) } else { None };
            let align = shape.align.unwrap_or(shape.element.bytes() * shape.vector);
            found.push(VariableSyntax {
                name,
                line,
                space,
                is_constant,
                linkage: Linkage::Local,
                element: shape.element,
                vector: shape.vector,
                extents,
                align,
                initial,
            });
            if !self.accept_mark(b',') {
                break;
            }
        }
        self.expect_mark(b';')?;
        Ok(found)
    }

    fn initial(&mut self) -> Result<Initial<'a>, Error> {
        if !self.accept_mark(b'{') {
            return Ok(Initial::Value(self.operand()?));
        }
        self.nested(|parser| {
            let mut list = Vec::new();
            while !parser.accept_mark(b'}') {
                if !list.is_empty() {
                    parser.expect_mark(b',')?;
                }
                list.push(parser.initial()?);
            }
            Ok(Initial::List(list))
        })
    }
}
