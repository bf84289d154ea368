//! Byte counts as people write and read them: `512M`, `1.5GiB`, `80%` is refused with a reason.
//!
//! All units are powers of 1024, as device memory is sold; the answer is exact in bytes.

/// Why a text is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a number followed by a unit.
    #[error("`{0}` is no size: write a number with a unit, such as 512M or 1.5GiB")]
    NotASize(String),
    /// Nothing fits in nothing.
    #[error("a size of zero makes no sense")]
    Zero,
    /// More than 64 bits can count.
    #[error("`{0}` is more than any device has")]
    TooLarge(String),
}

/// Bytes of `text`: digits, an optional fraction, and B, K, M, G, T with optional `B` or `iB`.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let not_a_size = || SizeError::NotASize(text.to_owned());
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(not_a_size()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || number.matches('.').count() > 1 {
        return Err(not_a_size());
    }
    let too_large = || SizeError::TooLarge(text.to_owned());
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let mut bytes = u128::from(whole) << shift;
    if !fraction.is_empty() {
        let parts: u128 = fraction.parse().map_err(|_| not_a_size())?;
        bytes += (parts << shift) / 10u128.pow(fraction.len() as u32);
    }
    match u64::try_from(bytes).map_err(|_| too_large())? {
        0 => Err(SizeError::Zero),
        bytes => Ok(bytes),
    }
}

/// The count with three significant digits and a unit.
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_with_any_spelling_of_the_unit() {
        for text in ["1536M", "1.5G", "1.5GiB", "1.5 gb", "1572864K", "1610612736", "1610612736B"] {
            assert_eq!(parse(text), Ok(1610612736), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in ["", "G", "-1G", "1X", "80%", "1.2.3G", "0x10", "1e9", ".5G", "NaN"] {
            assert!(matches!(parse(text), Err(SizeError::NotASize(_))), "{text}: {:?}", parse(text));
        }
        assert_eq!(parse("0"), Err(SizeError::Zero));
        assert!(matches!(parse("99999999T"), Err(SizeError::TooLarge(_))));
        assert!(matches!(parse("99999999999999999999"), Err(SizeError::TooLarge(_))));
    }

    #[test]
    fn sizes_are_shown_with_three_digits() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(1610612736), "1.50 GiB");
        assert_eq!(show(192 << 20), "192 MiB");
        assert_eq!(show(u64::MAX), "16777216 TiB");
    }
}
