//! `printf` of kernels: turns a format and its arguments into text (CUDA C++ Programming Guide, "Format
//! Specifiers").
//!
//! `%[flags][width][.precision][size]type` as in C, without `%n`; sizes `h`, `l`, `ll`. Formats as the host's
//! `printf` does, to which devices leave it. Read next: `system.rs`.

use crate::error::Fault;

/// Most arguments beside the format; what asks for more is printed as it stands.
const ARGUMENT_LIMIT: u64 = 32;
/// Widest field and most digits; a device's host would obey any number, to the end of its memory.
const FIELD_LIMIT: usize = 1 << 16;

/// Where arguments come from.
pub(super) trait Arguments {
    /// The next argument, of 4 or 8 bytes, aligned to its size.
    fn number(&mut self, bytes: u64) -> Result<u64, Fault>;
    /// The text at a generic address.
    fn text(&mut self, address: u64) -> Result<Vec<u8>, Fault>;
}

#[derive(Debug, Default)]
struct Specifier {
    left: bool,
    plus: bool,
    space: bool,
    alternative: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    /// `h` counts down, `l` counts up.
    size: i32,
}

/// The text, and how many arguments were read.
pub(super) fn format(text: &[u8], arguments: &mut dyn Arguments) -> Result<(Vec<u8>, u64), Fault> {
    let mut out = Vec::new();
    let (mut at, mut count) = (0, 0);
    while let Some(&byte) = text.get(at) {
        if byte != b'%' {
            out.push(byte);
            at += 1;
            continue;
        }
        let begun = at;
        let mut specifier = Specifier::default();
        at = specifier.read_flags(text, at + 1);
        let stars = text[at.min(text.len())..].iter().take_while(|byte| !byte.is_ascii_alphabetic());
        let needed = 1 + stars.filter(|byte| **byte == b'*').count() as u64;
        if text.get(at) == Some(&b'%') {
            out.push(b'%');
            at += 1;
            continue;
        }
        let beyond = count + needed > ARGUMENT_LIMIT;
        let before = count;
        if !beyond {
            at = specifier.read_fields(text, at, arguments, &mut count)?;
        }
        let kind = text.get(at).copied().filter(|_| !beyond);
        match kind.map(|kind| specifier.convert(kind, arguments)).transpose()?.flatten() {
            Some(converted) => {
                out.extend(converted);
                count += 1;
                at += 1;
            }
            None => {
                // As it stands: no such type, or one argument too many.
                count = before;
                out.push(b'%');
                at = begun + 1;
            }
        }
    }
    Ok((out, count))
}

impl Specifier {
    fn read_flags(&mut self, text: &[u8], mut at: usize) -> usize {
        while let Some(flag) = text.get(at) {
            match flag {
                b'-' => self.left = true,
                b'+' => self.plus = true,
                b' ' => self.space = true,
                b'#' => self.alternative = true,
                b'0' => self.zeros = true,
                _ => break,
            }
            at += 1;
        }
        at
    }

    /// Width, precision and size.
    fn read_fields(
        &mut self,
        text: &[u8],
        mut at: usize,
        arguments: &mut dyn Arguments,
        count: &mut u64,
    ) -> Result<usize, Fault> {
        let mut number = |at: &mut usize| -> Result<Option<i64>, Fault> {
            if text.get(*at) == Some(&b'*') {
                *at += 1;
                *count += 1;
                return Ok(Some(i64::from(arguments.number(4)? as u32 as i32)));
            }
            let digits = text[*at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let value = std::str::from_utf8(&text[*at..*at + digits]).ok().and_then(|word| word.parse().ok());
            *at += digits;
            Ok(value)
        };
        let width = number(&mut at)?.unwrap_or(0);
        self.left |= width < 0;
        self.width = (width.unsigned_abs() as usize).min(FIELD_LIMIT);
        if text.get(at) == Some(&b'.') {
            at += 1;
            let precision = number(&mut at)?.unwrap_or(0);
            // A negative precision counts as none.
            self.precision = usize::try_from(precision).ok().map(|precision| precision.min(FIELD_LIMIT));
        }
        while let Some(size) = text.get(at) {
            match size {
                b'h' => self.size -= 1,
                b'l' => self.size += 1,
                _ => break,
            }
            at += 1;
        }
        Ok(at)
    }

    /// The text of one argument, or nothing for an unknown type.
    fn convert(&self, kind: u8, arguments: &mut dyn Arguments) -> Result<Option<Vec<u8>>, Fault> {
        let bytes = if self.size > 0 { 8 } else { 4 };
        Ok(Some(match kind {
            b'd' | b'i' => {
                let raw = arguments.number(bytes)?;
                let value = match (bytes, self.size) {
                    (8, _) => raw as i64,
                    (_, -1) => i64::from(raw as i16),
                    (_, ..=-2) => i64::from(raw as i8),
                    _ => i64::from(raw as i32),
                };
                self.integer(self.sign(value < 0), value.unsigned_abs().to_string())
            }
            b'u' | b'o' | b'x' | b'X' => {
                let raw = arguments.number(bytes)?;
                let value = match (bytes, self.size) {
                    (8, _) => raw,
                    (_, -1) => raw & 0xffff,
                    (_, ..=-2) => raw & 0xff,
                    _ => raw & 0xffff_ffff,
                };
                let (prefix, digits) = match kind {
                    b'u' => ("", value.to_string()),
                    b'o' => ("", format!("{}{value:o}", if self.alternative { "0" } else { "" })),
                    b'x' => ("0x", format!("{value:x}")),
                    _ => ("0X", format!("{value:X}")),
                };
                self.integer(if self.alternative && value != 0 { prefix } else { "" }, digits)
            }
            b'p' => match arguments.number(8)? {
                0 => self.pad("", "(nil)".into(), false),
                address => self.pad("", format!("{address:#x}"), false),
            },
            b'c' => self.pad_bytes(vec![arguments.number(4)? as u8]),
            b's' => {
                let address = arguments.number(8)?;
                let mut text = if address == 0 { b"(null)".to_vec() } else { arguments.text(address)? };
                text.truncate(self.precision.unwrap_or(usize::MAX));
                self.pad_bytes(text)
            }
            b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'a' | b'A' => {
                let value = f64::from_bits(arguments.number(8)?);
                let text = self.float(value.abs(), kind.to_ascii_lowercase());
                let text = if kind.is_ascii_uppercase() { text.to_uppercase() } else { text };
                self.pad(self.sign(value.is_sign_negative()), text, value.is_finite())
            }
            _ => return Ok(None),
        }))
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    fn integer(&self, prefix: &str, digits: String) -> Vec<u8> {
        match self.precision {
            // Zero with a precision of zero is nothing.
            Some(0) if digits == "0" => self.pad(prefix, String::new(), false),
            Some(precision) => self.pad(prefix, format!("{digits:0>precision$}"), false),
            None => self.pad(prefix, digits, true),
        }
    }

    /// Fills up to the width, behind the prefix with zeros where these are wanted and allowed.
    fn pad(&self, prefix: &str, text: String, zeros: bool) -> Vec<u8> {
        let missing = self.width.saturating_sub(prefix.len() + text.len());
        match (self.left, self.zeros && zeros) {
            (true, _) => format!("{prefix}{text}{:missing$}", ""),
            (false, true) => format!("{prefix}{:0>missing$}{text}", ""),
            (false, false) => format!("{:missing$}{prefix}{text}", ""),
        }
        .into_bytes()
    }

    fn pad_bytes(&self, text: Vec<u8>) -> Vec<u8> {
        let fill = vec![b' '; self.width.saturating_sub(text.len())];
        if self.left { [text, fill].concat() } else { [fill, text].concat() }
    }

    /// A float without its sign.
    fn float(&self, value: f64, kind: u8) -> String {
        if value.is_nan() {
            return "nan".into();
        }
        if value.is_infinite() {
            return "inf".into();
        }
        let precision = self.precision.unwrap_or(6);
        let mut text = match kind {
            b'f' => format!("{value:.precision$}"),
            b'e' => exponential(value, precision),
            b'a' => return self.hexadecimal(value),
            _ => return self.shortest(value, precision.max(1)),
        };
        if self.alternative && precision == 0 {
            let place = text.find('e').unwrap_or(text.len());
            text.insert(place, '.');
        }
        text
    }

    /// `%g`: as `%e` or `%f`, whichever suits the exponent, without trailing zeros.
    fn shortest(&self, value: f64, precision: usize) -> String {
        let rounded = exponential(value, precision - 1);
        let exponent: i32 = rounded.split_once('e').and_then(|(_, text)| text.parse().ok()).unwrap_or(0);
        let (text, tail) = if exponent < -4 || exponent >= precision as i32 {
            let (digits, tail) = rounded.split_at(rounded.find('e').unwrap_or(rounded.len()));
            (digits.to_owned(), tail.to_owned())
        } else {
            (format!("{value:.*}", (precision as i32 - 1 - exponent).max(0) as usize), String::new())
        };
        if self.alternative {
            let point = if text.contains('.') { "" } else { "." };
            return format!("{text}{point}{tail}");
        }
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        format!("{text}{tail}")
    }

    /// `%a`: a hexadecimal fraction and a power of two.
    fn hexadecimal(&self, value: f64) -> String {
        const FRACTION_DIGITS: usize = 13;
        let bits = value.to_bits();
        let (mut lead, mut fraction) = (u64::from(bits >> 52 != 0), bits & ((1 << 52) - 1));
        let exponent = if value == 0.0 { 0 } else { ((bits >> 52) as i64).max(1) - 1023 };
        let mut digits = FRACTION_DIGITS;
        if let Some(precision) = self.precision.filter(|precision| *precision < FRACTION_DIGITS) {
            let dropped = 4 * (FRACTION_DIGITS - precision) as u32;
            let whole = lead << 52 | fraction;
            let (half, rest) = (1u64 << (dropped - 1), whole & ((1 << dropped) - 1));
            let kept = whole >> dropped;
            let up = rest > half || (rest == half && kept & 1 == 1);
            let kept = kept + u64::from(up);
            digits = precision;
            lead = kept >> (4 * digits);
            fraction = kept & ((1u64 << (4 * digits)) - 1);
        }
        let mut text = if digits == 0 { String::new() } else { format!("{fraction:0digits$x}") };
        match self.precision {
            None => text.truncate(text.trim_end_matches('0').len()),
            Some(precision) => text.extend(std::iter::repeat_n('0', precision.saturating_sub(text.len()))),
        }
        let point = if text.is_empty() && !self.alternative { "" } else { "." };
        format!("0x{lead}{point}{text}p{exponent:+}")
    }
}

/// `%e`: one digit, a point, digits, and an exponent of at least two digits.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}
