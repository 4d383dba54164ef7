//! The rules of a grammar as data, and places in its text.

use crate::{GrammarError, GrammarKind};

/// What a rule consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
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
pub(super) struct Rules {
    pub(super) names: Vec<String>,
    pub(super) bodies: Vec<Node>,
    pub(super) root: usize,
}

/// Line and column, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Place {
    pub(super) fn malformed(self, message: impl Into<String>) -> GrammarError {
        let Self { line, column } = self;
        GrammarError::Malformed { kind: GrammarKind::Ebnf, line, column, message: message.into() }
    }
}
