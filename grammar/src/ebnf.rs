//! EBNF in the dialect that libGenie reads (xgrammar's), which is nearly llama.cpp's GBNF: read, checked, and written as
//! llguidance's Lark.
//!
//! ```text
//! # a comment
//! root  ::= "yes" | "no " why [.!]
//! why   ::= [^\x00-\x1f]{1,40}
//! ```
//!
//! The start is the rule `root`. A rule ends where the next one begins, so it may be written over several lines. There are
//! literals, classes of characters, `.` for any character, groups, `* + ? {n} {n,} {n,m}`, and `|`; an alternative without
//! elements is refused, `""` is the empty text.

mod lark;
mod parser;
mod reader;
mod rules;

use crate::{GrammarError, GrammarKind};

/// What a rule consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    /// These characters.
    Text(String),
    /// One character of these ranges, ascending and apart.
    Class(Vec<(char, char)>),
    /// Another rule.
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat {
        of: Box<Node>,
        min: u32,
        max: Option<u32>,
    },
}

/// The rules of a grammar; all that they name are there.
#[derive(Debug)]
struct Rules {
    names: Vec<String>,
    bodies: Vec<Node>,
    root: usize,
}

/// Line and column, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    column: usize,
}

impl Place {
    fn malformed(self, message: impl Into<String>) -> GrammarError {
        let Self { line, column } = self;
        GrammarError::Malformed { kind: GrammarKind::Ebnf, line, column, message: message.into() }
    }
}

/// The same grammar in Lark.
pub(crate) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let rules = parser::parse(text)?;
    rules::check_ends(&rules)?;
    Ok(lark::write(&rules))
}

#[cfg(test)]
mod tests;
