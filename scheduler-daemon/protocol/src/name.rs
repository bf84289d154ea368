//! Names from outside, made safe before they reach a terminal, a log or a metric.
//!
//! A name is what somebody typed or what a program calls itself. It never identifies anybody
//! (the kernel's credentials do); it is only shown.

use crate::limits::NAME_BYTES_MAX;

/// The name with control characters, escapes and bidirectional overrides replaced by `?`, cut at
/// [`NAME_BYTES_MAX`] on a character boundary. An empty name becomes `unnamed`.
pub fn clean(name: &str) -> String {
    let mut cleaned = String::with_capacity(name.len().min(NAME_BYTES_MAX));
    for character in name.chars() {
        let character = if is_printable(character) { character } else { '?' };
        if cleaned.len() + character.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        cleaned.push(character);
    }
    if cleaned.trim().is_empty() { "unnamed".to_owned() } else { cleaned }
}

fn is_printable(character: char) -> bool {
    let invisible = matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !character.is_control() && !invisible && character != '\u{fffd}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_and_overrides_do_not_survive() {
        assert_eq!(clean("a\x1b[31mb\u{202e}c\n"), "a?[31mb?c?");
    }

    #[test]
    fn long_names_are_cut_on_a_character_boundary() {
        let cut = clean(&"ä".repeat(200));
        assert!(cut.len() <= NAME_BYTES_MAX && cut.chars().all(|character| character == 'ä'));
    }

    #[test]
    fn an_empty_name_is_said_to_be_one() {
        assert_eq!(clean(" "), "unnamed");
    }
}
