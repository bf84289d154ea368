//! Cuts PTX text into tokens that remember their line and place.
//!
//! Knows spelling only (PTX ISA section 4): comments, words, directives, numbers, strings, marks. It must not
//! panic on any input. Read next: `parser.rs`.

use crate::error::Error;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TokenKind<'a> {
    /// A name, an opcode or a register, with its `%`, `$` or `_`.
    Word(&'a str),
    /// A word behind a dot: a directive, a type or a modifier, without the dot.
    Dotted(&'a str),
    /// An unsigned integer literal.
    Integer(u64),
    /// `0f` and eight digits: the bits of a single.
    SingleBits(u32),
    /// `0d` and sixteen digits: the bits of a double.
    DoubleBits(u64),
    /// A decimal number with a point or an exponent.
    Decimal(f64),
    /// A quoted string, without its quotes.
    Text,
    /// Any other character.
    Mark(u8),
    End,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind<'a>,
    pub(crate) line: u32,
    /// Byte range in the text.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
}

/// All tokens of the text, the last one being `End`. A zero byte ends the text, as in a C string.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, Error> {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0, line: 1 };
    let mut found = Vec::with_capacity(text.len() / 4);
    loop {
        lexer.skip_blank()?;
        let (start, line) = (lexer.at, lexer.line);
        let kind = lexer.next_kind()?;
        found.push(Token { kind, line, start, end: lexer.at });
        if kind == TokenKind::End {
            return Ok(found);
        }
    }
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_blank(&mut self) -> Result<(), Error> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                (b'/', b'/') => {
                    while !matches!(self.peek(0), b'\n' | 0) {
                        self.at += 1;
                    }
                }
                (b'/', b'*') => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), Error> {
        let opened = self.line;
        self.at += 2;
        while (self.peek(0), self.peek(1)) != (b'*', b'/') {
            match self.peek(0) {
                0 => return Err(Error::syntax(opened, "comment without an end")),
                b'\n' => self.line += 1,
                _ => {}
            }
            self.at += 1;
        }
        self.at += 2;
        Ok(())
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.at < self.bytes.len() && accept(self.bytes[self.at]) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn next_kind(&mut self) -> Result<TokenKind<'a>, Error> {
        let byte = self.peek(0);
        match byte {
            0 => Ok(TokenKind::End),
            b'"' => self.string(),
            // `.1d` and its like are the only words that begin with a digit.
            b'.' if is_word(self.peek(1)) && (!self.peek(1).is_ascii_digit() || self.peek(2) == b'd') => {
                self.at += 1;
                Ok(TokenKind::Dotted(self.dotted()))
            }
            _ if byte.is_ascii_digit() => self.number(),
            _ if is_word_start(byte) => {
                let start = self.at;
                self.at += 1;
                self.take_while(is_word);
                Ok(TokenKind::Word(&self.text[start..self.at]))
            }
            _ if byte.is_ascii_graphic() => {
                self.at += 1;
                Ok(TokenKind::Mark(byte))
            }
            _ => Err(Error::syntax(self.line, format!("unexpected byte {byte:#04x}"))),
        }
    }

    /// A dotted word may hold `::`, as in `.L2::128B`.
    fn dotted(&mut self) -> &'a str {
        let start = self.at;
        self.take_while(is_word);
        while (self.peek(0), self.peek(1)) == (b':', b':') {
            self.at += 2;
            self.take_while(is_word);
        }
        &self.text[start..self.at]
    }

    fn string(&mut self) -> Result<TokenKind<'a>, Error> {
        let opened = self.line;
        self.at += 1;
        loop {
            match self.peek(0) {
                b'"' => break,
                b'\\' => self.at += 1,
                b'\n' => self.line += 1,
                _ => {}
            }
            if self.peek(0) == 0 {
                return Err(Error::syntax(opened, "string without an end"));
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(TokenKind::Text)
    }

    fn number(&mut self) -> Result<TokenKind<'a>, Error> {
        let line = self.line;
        let bad = |text: &str| Error::syntax(line, format!("malformed number {text}"));
        if self.peek(0) == b'0' {
            let digits = match self.peek(1) {
                b'f' | b'F' => 8,
                b'd' | b'D' => 16,
                _ => 0,
            };
            if digits > 0 {
                self.at += 2;
                let text = self.take_while(|byte| byte.is_ascii_hexdigit());
                let bits = u64::from_str_radix(text, 16).map_err(|_| bad(text))?;
                return match (text.len(), digits) {
                    (8, 8) => Ok(TokenKind::SingleBits(bits as u32)),
                    (16, 16) => Ok(TokenKind::DoubleBits(bits)),
                    _ => Err(bad(text)),
                };
            }
        }
        let start = self.at;
        self.take_while(|byte| byte.is_ascii_alphanumeric());
        let hexadecimal =
            self.text[start..self.at].starts_with("0x") || self.text[start..self.at].starts_with("0X");
        if !hexadecimal && (self.peek(0) == b'.' || self.exponent_follows(start)) {
            return self.decimal(start).ok_or_else(|| bad(&self.text[start..self.at]));
        }
        let text = &self.text[start..self.at];
        integer(text).map(TokenKind::Integer).ok_or_else(|| bad(text))
    }

    /// Whether what was read ends in `e` and an exponent's sign comes next, as in `1e-3`.
    fn exponent_follows(&self, start: usize) -> bool {
        let text = &self.text[start..self.at];
        let digits = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
        matches!(digits, "e" | "E") || (digits.starts_with(['e', 'E']) && text.parse::<f64>().is_ok())
    }

    fn decimal(&mut self, start: usize) -> Option<TokenKind<'a>> {
        if self.peek(0) == b'.' {
            self.at += 1;
            self.take_while(|byte| byte.is_ascii_alphanumeric());
        }
        if matches!(self.bytes[self.at - 1], b'e' | b'E') && matches!(self.peek(0), b'+' | b'-') {
            self.at += 1;
            self.take_while(|byte| byte.is_ascii_digit());
        }
        self.text[start..self.at].parse().ok().map(TokenKind::Decimal)
    }
}

fn integer(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['u', 'U']).unwrap_or(text);
    let lower = text.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0x") {
        u64::from_str_radix(digits, 16).ok()
    } else if let Some(digits) = lower.strip_prefix("0b") {
        u64::from_str_radix(digits, 2).ok()
    } else if lower.len() > 1 && lower.starts_with('0') {
        u64::from_str_radix(&lower, 8).ok()
    } else {
        lower.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind<'_>> {
        tokens(text).expect("lexes").into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn reads_every_form_of_number() {
        use TokenKind::*;
        assert_eq!(
            kinds("12 0x1F 017 0b101 5U 0f3F800000 0d3FF0000000000000 1.5 2.5e-1 1e3"),
            [
                Integer(12),
                Integer(31),
                Integer(15),
                Integer(5),
                Integer(5),
                SingleBits(0x3f80_0000),
                DoubleBits(0x3ff0_0000_0000_0000),
                Decimal(1.5),
                Decimal(0.25),
                Decimal(1000.0),
                End
            ]
        );
    }

    #[test]
    fn a_zero_byte_ends_the_text() {
        assert_eq!(
            kinds("ret;\0 garbage \u{fe}"),
            [TokenKind::Word("ret"), TokenKind::Mark(b';'), TokenKind::End]
        );
    }

    #[test]
    fn lines_are_counted_through_comments() {
        let found = tokens("// one\n/* two\n three */ add").expect("lexes");
        assert_eq!(found[0].line, 3);
    }

    #[test]
    fn modifiers_keep_their_double_colons() {
        assert_eq!(
            kinds("ld.global.L2::128B.u32"),
            [
                TokenKind::Word("ld"),
                TokenKind::Dotted("global"),
                TokenKind::Dotted("L2::128B"),
                TokenKind::Dotted("u32"),
                TokenKind::End
            ]
        );
    }
}
