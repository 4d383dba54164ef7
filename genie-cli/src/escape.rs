//! Text from files, names and flags as a terminal may see it: control characters are written out, not obeyed.
//!
//! A file's name or a model's architecture may hold escape codes that colour, move or clear what is on the screen, and
//! marks that turn the direction of writing. Line ends and tabs stay.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with control characters written as `\x1b` or `\u{202e}`.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        let written = match c {
            c if !is_hidden(c) => write!(out, "{c}"),
            c if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
            c => write!(out, "\\u{{{:x}}}", u32::from(c)),
        };
        written.expect("a string takes all");
    }
    out.into()
}

/// Control characters except line end and tab, and marks of writing direction.
fn is_hidden(c: char) -> bool {
    let direction = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    direction || (c.is_control() && !matches!(c, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        for (text, want) in [
            ("plain, gr\u{fc}n, \u{65e5}\u{672c}\n\tnext", "plain, gr\u{fc}n, \u{65e5}\u{672c}\n\tnext"),
            ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
            ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
            ("back\x08\rover", "back\\x08\\x0dover"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("\x7f\0", "\\x7f\\x00"),
        ] {
            assert_eq!(escape(text), want);
        }
    }
}
