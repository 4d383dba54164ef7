//! The characters of an EBNF with their places; literals and classes.

use super::syntax::{Node, Place};
use crate::GrammarError;

/// A place in the text.
#[derive(Clone)]
pub(super) struct Reader<'t> {
    rest: std::str::Chars<'t>,
    place: Place,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { rest: text.chars(), place: Place { line: 1, column: 1 } }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        self.place = match c {
            '\n' => Place { line: self.place.line + 1, column: 1 },
            _ => Place { line: self.place.line, column: self.place.column + 1 },
        };
        Some(c)
    }

    /// Takes a text if it comes next.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let comes = self.rest.as_str().starts_with(text);
        if comes {
            for _ in text.chars() {
                self.next();
            }
        }
        comes
    }

    /// Takes white space and comments.
    pub(super) fn skip_space(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                '#' => while self.next().is_some_and(|c| c != '\n') {},
                c if c.is_whitespace() => {
                    self.next();
                }
                _ => return,
            }
        }
    }

    /// Takes the name of a rule.
    pub(super) fn name(&mut self) -> Option<String> {
        let begins = |c: char| c.is_alphanumeric() || c == '_';
        let goes_on = |c: char| begins(c) || c == '-' || c == '.';
        let mut name = String::from(self.peek().filter(|c| begins(*c))?);
        self.next();
        while let Some(c) = self.peek().filter(|c| goes_on(*c)) {
            name.push(c);
            self.next();
        }
        Some(name)
    }

    /// A number in decimal digits.
    pub(super) fn number(&mut self) -> Result<u32, GrammarError> {
        let place = self.place;
        let mut digits = String::new();
        while let Some(c) = self.peek().filter(char::is_ascii_digit) {
            digits.push(c);
            self.next();
        }
        if digits.is_empty() {
            return Err(place.malformed(format!("expected a number, found {}", self.found())));
        }
        // The bound of llguidance's own parser.
        digits
            .parse()
            .ok()
            .filter(|n| *n < i32::MAX as u32)
            .ok_or_else(|| place.malformed(format!("expected a number below {}, found {digits}", i32::MAX)))
    }

    /// A literal, whose quotation mark comes next.
    pub(super) fn literal(&mut self) -> Result<Node, GrammarError> {
        let began = self.place;
        self.next();
        let mut text = String::new();
        loop {
            match self.peek() {
                Some('"') => {
                    self.next();
                    return Ok(Node::Text(text));
                }
                None | Some('\n' | '\r') => return Err(began.malformed("expected `\"` at the end of this literal")),
                Some('\\') => text.push(self.escape()?),
                Some(c) => {
                    text.push(c);
                    self.next();
                }
            }
        }
    }

    /// A class of characters, whose bracket comes next.
    pub(super) fn class(&mut self) -> Result<Node, GrammarError> {
        let began = self.place;
        self.next();
        let negated = self.take("^");
        let mut ranges: Vec<(char, char)> = Vec::new();
        loop {
            let place = self.place;
            let first = match self.peek() {
                Some(']') => break,
                None | Some('\n' | '\r') => return Err(began.malformed("expected `]` at the end of this class")),
                Some(_) => self.character()?,
            };
            let mut ahead = self.clone();
            // A hyphen before the bracket is a character.
            let is_range = ahead.take("-") && ahead.peek().is_some_and(|c| c != ']');
            let last = if is_range {
                self.next();
                self.character()?
            } else {
                first
            };
            if last < first {
                let found = format!("`{}-{}`", first.escape_debug(), last.escape_debug());
                return Err(place.malformed(format!("expected a range that ascends, found {found}")));
            }
            ranges.push((first, last));
        }
        self.next();
        if ranges.is_empty() && !negated {
            return Err(began.malformed("expected a character in this class, found none"));
        }
        Ok(Node::Class(normalized(ranges, negated)))
    }

    fn character(&mut self) -> Result<char, GrammarError> {
        if self.peek() == Some('\\') {
            return self.escape();
        }
        let place = self.place;
        self.next().ok_or_else(|| place.malformed("expected a character, found the end"))
    }

    /// What stands behind a backslash, which comes next.
    fn escape(&mut self) -> Result<char, GrammarError> {
        let place = self.place;
        self.next();
        let Some(c) = self.next() else { return Err(place.malformed("expected a character behind `\\`")) };
        let n_digits = match c {
            'n' => return Ok('\n'),
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            '0' => return Ok('\0'),
            'a' => return Ok('\x07'),
            'b' => return Ok('\x08'),
            'f' => return Ok('\x0c'),
            'v' => return Ok('\x0b'),
            'e' => return Ok('\x1b'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            c if c.is_ascii_punctuation() => return Ok(c),
            c => return Err(place.malformed(format!("unknown escape `\\{}`", c.escape_debug()))),
        };
        let mut value = 0;
        for _ in 0..n_digits {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) else {
                return Err(place.malformed(format!("expected {n_digits} hexadecimal digits behind `\\{c}`")));
            };
            value = value * 16 + digit;
            self.next();
        }
        char::from_u32(value).ok_or_else(|| place.malformed(format!("expected a character, found U+{value:X}")))
    }

    /// What comes next, for messages.
    pub(super) fn found(&self) -> String {
        self.peek().map_or("the end".into(), |c| format!("`{}`", c.escape_debug()))
    }
}

/// Ranges in order and apart, or those of all other characters.
fn normalized(mut ranges: Vec<(char, char)>, negated: bool) -> Vec<(char, char)> {
    ranges.sort_unstable();
    let mut out: Vec<(char, char)> = Vec::new();
    for (first, last) in ranges {
        match out.last_mut().filter(|(_, end)| first <= *end || follows(*end) == Some(first)) {
            Some((_, end)) => *end = last.max(*end),
            None => out.push((first, last)),
        }
    }
    if !negated {
        return out;
    }
    let mut others = Vec::new();
    let mut next = Some('\0');
    for (first, last) in out {
        if let Some(from) = next.filter(|from| *from < first) {
            others.push((from, precedes(first)));
        }
        next = follows(last);
    }
    others.extend(next.map(|from| (from, char::MAX)));
    others
}

/// The next character; surrogates are none.
fn follows(c: char) -> Option<char> {
    (c..=char::MAX).nth(1)
}

/// The character before one that is not the first.
fn precedes(c: char) -> char {
    ('\0'..c).next_back().unwrap_or_default()
}

/// Any character.
pub(super) fn any() -> Node {
    Node::Class(vec![('\0', char::MAX)])
}
