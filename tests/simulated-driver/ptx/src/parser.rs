//! Reads tokens into `ModuleSyntax`: module level here, bodies in `parser/body.rs`, operands in
//! `parser/operand.rs`.
//!
//! Skips what does not change results (`.loc`, `.file`, `.pragma`, debug sections). Never panics and never
//! recurses deeper than `DEPTH_LIMIT`. Read next: `compile.rs`.

mod body;
mod operand;
mod variable;

use crate::error::Error;
use crate::lexer::{Token, TokenKind, tokens};
use crate::syntax::{FunctionSyntax, Linkage, ModuleSyntax, ParameterSyntax, VariableSyntax};
use crate::types::Space;

/// How deep blocks, lists and operands may nest.
const DEPTH_LIMIT: u32 = 64;

pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: u32,
}

/// Parses a whole module.
pub(crate) fn parse(text: &str) -> Result<ModuleSyntax<'_>, Error> {
    let mut parser = Parser { text, tokens: tokens(text)?, at: 0, depth: 0 };
    let mut module = ModuleSyntax::default();
    let mut has_version = false;
    while parser.peek() != TokenKind::End {
        has_version |= parser.peek() == TokenKind::Dotted("version");
        parser.module_item(&mut module)?;
    }
    if has_version { Ok(module) } else { Err(parser.error("a PTX text has a .version directive")) }
}

impl<'a> Parser<'a> {
    fn token(&self) -> Token<'a> {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> TokenKind<'a> {
        self.token().kind
    }

    fn line(&self) -> u32 {
        self.token().line
    }

    fn advance(&mut self) -> Token<'a> {
        let token = self.token();
        self.at += 1;
        token
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::syntax(self.line(), message)
    }

    /// An error that shows what was found instead of what was due.
    fn expected(&self, what: &str) -> Error {
        let token = self.token();
        let found = self.text.get(token.start..token.end).unwrap_or_default();
        self.error(format!("expected {what}, found {}", if found.is_empty() { "the end" } else { found }))
    }

    fn accept(&mut self, kind: TokenKind<'_>) -> bool {
        let found = self.peek() == kind;
        if found {
            self.at += 1;
        }
        found
    }

    fn accept_mark(&mut self, mark: u8) -> bool {
        self.accept(TokenKind::Mark(mark))
    }

    fn expect_mark(&mut self, mark: u8) -> Result<(), Error> {
        if self.accept_mark(mark) { Ok(()) } else { Err(self.expected(&format!("'{}'", char::from(mark)))) }
    }

    fn expect_word(&mut self, what: &str) -> Result<&'a str, Error> {
        match self.peek() {
            TokenKind::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.expected(what)),
        }
    }

    fn expect_integer(&mut self) -> Result<u64, Error> {
        match self.peek() {
            TokenKind::Integer(value) => {
                self.at += 1;
                Ok(value)
            }
            _ => Err(self.expected("an integer")),
        }
    }

    /// Runs `read` one level deeper, within the limit.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= DEPTH_LIMIT {
            return Err(self.error(format!("nested deeper than {DEPTH_LIMIT}")));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn skip_line(&mut self) {
        let line = self.line();
        while self.line() == line && self.peek() != TokenKind::End {
            self.at += 1;
        }
    }

    fn skip_statement(&mut self) -> Result<(), Error> {
        while self.peek() != TokenKind::Mark(b';') {
            if self.peek() == TokenKind::End {
                return Err(self.expected("';'"));
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(())
    }

    fn module_item(&mut self, module: &mut ModuleSyntax<'a>) -> Result<(), Error> {
        let TokenKind::Dotted(word) = self.peek() else {
            return if self.accept_mark(b';') { Ok(()) } else { Err(self.expected("a directive")) };
        };
        match word {
            "version" => {
                self.advance();
                let TokenKind::Decimal(_) = self.peek() else {
                    return Err(self.expected("a version number"));
                };
                self.advance();
            }
            "target" => {
                self.advance();
                let architecture = self.expect_word("a target")?;
                if !architecture.starts_with("sm_") {
                    return Err(self.error(format!("target {architecture} is no sm_NN")));
                }
                while self.accept_mark(b',') {
                    self.expect_word("a target option")?;
                }
            }
            "file" | "loc" => self.skip_line(),
            "address_size" => {
                self.advance();
                if self.expect_integer()? != 64 {
                    return Err(self.error("only .address_size 64 is executed"));
                }
            }
            "section" => self.section()?,
            "pragma" => self.skip_statement()?,
            "visible" | "extern" | "weak" | "common" | "entry" | "func" | "global" | "const" | "shared" => {
                self.declaration(module)?;
            }
            _ => return Err(self.expected("a module directive of the executed subset")),
        }
        Ok(())
    }

    /// `.section name { ... }`: debug information.
    fn section(&mut self) -> Result<(), Error> {
        while self.peek() != TokenKind::Mark(b'}') {
            if self.peek() == TokenKind::End {
                return Err(self.expected("'}'"));
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(())
    }

    fn declaration(&mut self, module: &mut ModuleSyntax<'a>) -> Result<(), Error> {
        let mut linkage = Linkage::default();
        loop {
            match self.peek() {
                TokenKind::Dotted("extern") => linkage = Linkage::Extern,
                TokenKind::Dotted("visible") => linkage = Linkage::Visible,
                TokenKind::Dotted("weak") => linkage = Linkage::Weak,
                TokenKind::Dotted("common") => linkage = Linkage::Common,
                _ => break,
            }
            self.advance();
        }
        match self.peek() {
            TokenKind::Dotted("entry") => module.functions.push(self.function(true, linkage)?),
            TokenKind::Dotted("func") => module.functions.push(self.function(false, linkage)?),
            TokenKind::Dotted("global" | "const" | "shared") => {
                let mut found = self.variables()?;
                for variable in &mut found {
                    variable.linkage = linkage;
                }
                module.variables.append(&mut found);
            }
            _ => return Err(self.expected(".entry, .func or a variable")),
        }
        Ok(())
    }

    fn function(&mut self, is_entry: bool, linkage: Linkage) -> Result<FunctionSyntax<'a>, Error> {
        self.advance();
        let line = self.line();
        while self.accept(TokenKind::Dotted("noreturn")) {}
        let results = if self.peek() == TokenKind::Mark(b'(') { self.parameters()? } else { Vec::new() };
        if is_entry && !results.is_empty() {
            return Err(self.error("an entry returns nothing"));
        }
        let name = self.expect_word("a function name")?;
        let parameters = if self.peek() == TokenKind::Mark(b'(') { self.parameters()? } else { Vec::new() };
        let mut function = FunctionSyntax {
            name,
            line,
            linkage,
            is_entry,
            results,
            parameters,
            most_threads: None,
            required_threads: None,
            body: None,
        };
        self.tuning(&mut function)?;
        if !self.accept_mark(b';') {
            self.expect_mark(b'{')?;
            function.body = Some(self.nested(Self::block)?);
        }
        Ok(function)
    }

    fn tuning(&mut self, function: &mut FunctionSyntax<'a>) -> Result<(), Error> {
        while let TokenKind::Dotted(word) = self.peek() {
            match word {
                "maxntid" => {
                    self.advance();
                    function.most_threads = Some(self.extents()?);
                }
                "reqntid" => {
                    self.advance();
                    function.required_threads = Some(self.extents()?);
                }
                "minnctapersm" | "maxnctapersm" | "maxnreg" => {
                    self.advance();
                    self.expect_integer()?;
                }
                "noreturn" => self.at += 1,
                "pragma" => self.skip_statement()?,
                "loc" => self.skip_line(),
                _ => return Err(self.expected("a function directive of the executed subset")),
            }
        }
        Ok(())
    }

    /// Up to three extents; those left out are 1.
    fn extents(&mut self) -> Result<[u32; 3], Error> {
        let mut extents = [1u32; 3];
        for (position, extent) in extents.iter_mut().enumerate() {
            if position > 0 && !self.accept_mark(b',') {
                break;
            }
            let value = self.expect_integer()?;
            *extent = u32::try_from(value).map_err(|_| self.error(format!("extent {value} is too large")))?;
        }
        Ok(extents)
    }

    fn parameters(&mut self) -> Result<Vec<ParameterSyntax<'a>>, Error> {
        self.expect_mark(b'(')?;
        let mut found = Vec::new();
        while !self.accept_mark(b')') {
            if !found.is_empty() {
                self.expect_mark(b',')?;
            }
            found.push(self.parameter()?);
        }
        Ok(found)
    }

    fn parameter(&mut self) -> Result<ParameterSyntax<'a>, Error> {
        let in_register = match self.peek() {
            TokenKind::Dotted("param") => false,
            TokenKind::Dotted("reg") => true,
            _ => return Err(self.expected(".param or .reg")),
        };
        self.advance();
        let shape = self.shape()?;
        let line = self.line();
        let name = self.expect_word("a parameter name")?;
        let extents = self.array_extents()?;
        let variable = VariableSyntax {
            name,
            line,
            space: Space::Parameter,
            is_constant: false,
            linkage: Linkage::Local,
            element: shape.element,
            vector: shape.vector,
            extents,
            align: shape.align.unwrap_or(shape.element.bytes() * shape.vector),
            initial: None,
        };
        Ok(ParameterSyntax { variable, in_register })
    }
}
