//! Bodies of functions: blocks, labels, declarations, instructions.
//!
//! An instruction is kept as its words; whether it exists is decided in `compile.rs`.

use super::Parser;
use crate::error::Error;
use crate::lexer::TokenKind;
use crate::syntax::{InstructionSyntax, RegisterSyntax, Statement};

impl<'a> Parser<'a> {
    /// The statements up to and including the closing brace.
    pub(super) fn block(&mut self) -> Result<Vec<Statement<'a>>, Error> {
        let mut found = Vec::new();
        loop {
            match self.peek() {
                TokenKind::Mark(b'}') => {
                    self.advance();
                    return Ok(found);
                }
                TokenKind::Mark(b'{') => {
                    self.advance();
                    found.push(Statement::Block(self.nested(Self::block)?));
                }
                TokenKind::Mark(b';') => self.at += 1,
                TokenKind::Dotted(word) => self.directive(word, &mut found)?,
                TokenKind::Mark(b'@') => found.push(self.guarded()?),
                TokenKind::Word(_) => {
                    let is_label =
                        self.tokens.get(self.at + 1).is_some_and(|next| next.kind == TokenKind::Mark(b':'));
                    found.push(if is_label { self.label()? } else { self.instruction(None)? });
                }
                _ => return Err(self.expected("a statement")),
            }
        }
    }

    fn directive(&mut self, word: &str, found: &mut Vec<Statement<'a>>) -> Result<(), Error> {
        match word {
            "loc" | "file" => self.skip_line(),
            "pragma" => self.skip_statement()?,
            "reg" => found.push(self.registers()?),
            "local" | "shared" | "param" | "global" | "const" => {
                found.extend(self.variables()?.into_iter().map(Statement::Variable));
            }
            _ => return Err(self.expected("a directive of the executed subset")),
        }
        Ok(())
    }

    fn registers(&mut self) -> Result<Statement<'a>, Error> {
        self.advance();
        let shape = self.shape()?;
        if shape.vector != 1 {
            return Err(self.error("vector registers are outside the executed subset"));
        }
        let mut names = Vec::new();
        loop {
            let name = self.expect_word("a register name")?;
            let count = if self.accept_mark(b'<') {
                let count = self.expect_integer()?;
                self.expect_mark(b'>')?;
                Some(count)
            } else {
                None
            };
            names.push(RegisterSyntax { name, count });
            if !self.accept_mark(b',') {
                break;
            }
        }
        self.expect_mark(b';')?;
        Ok(Statement::Registers { element: shape.element, names })
    }

    fn label(&mut self) -> Result<Statement<'a>, Error> {
        let line = self.line();
        let name = self.expect_word("a label")?;
        self.expect_mark(b':')?;
        // What a call through a pointer may reach and passes; the call itself says what has to be known.
        if matches!(self.peek(), TokenKind::Dotted("callprototype" | "calltargets")) {
            self.skip_statement()?;
            return Ok(Statement::Label { name, line });
        }
        if !self.accept(TokenKind::Dotted("branchtargets")) {
            return Ok(Statement::Label { name, line });
        }
        let mut targets = vec![self.expect_word("a label")?];
        while self.accept_mark(b',') {
            targets.push(self.expect_word("a label")?);
        }
        self.expect_mark(b';')?;
        Ok(Statement::BranchTargets { name, targets, line })
    }

    fn guarded(&mut self) -> Result<Statement<'a>, Error> {
        self.advance();
        let negated = self.accept_mark(b'!');
        let predicate = self.expect_word("a predicate")?;
        self.instruction(Some((predicate, negated)))
    }

    fn instruction(&mut self, guard: Option<(&'a str, bool)>) -> Result<Statement<'a>, Error> {
        let first = self.token();
        let opcode = self.expect_word("an instruction")?;
        let mut modifiers = Vec::new();
        while let TokenKind::Dotted(word) = self.peek() {
            modifiers.push(word);
            self.advance();
        }
        let mut operands = Vec::new();
        while self.peek() != TokenKind::Mark(b';') {
            if !operands.is_empty() {
                self.expect_mark(b',')?;
            }
            operands.push(self.operand()?);
        }
        let text = self.text.get(first.start..self.token().start).unwrap_or_default().trim_end();
        self.advance();
        Ok(Statement::Instruction(InstructionSyntax {
            guard,
            opcode,
            modifiers,
            operands,
            line: first.line,
            text,
        }))
    }
}
