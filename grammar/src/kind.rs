//! The languages that a grammar may be written in.

use std::fmt;
use std::str::FromStr;

use crate::GrammarError;

/// A language for grammars. Genie's names, and `lark`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrammarKind {
    /// A JSON schema; what is generated is a document that it accepts.
    JsonSchema,
    /// A regular expression that the whole text matches.
    Regex,
    /// Rules in the EBNF dialect of xgrammar, which is close to llama.cpp's GBNF.
    Ebnf,
    /// Rules in the Lark dialect of llguidance.
    Lark,
}

impl GrammarKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::JsonSchema, Self::Regex, Self::Ebnf, Self::Lark];

    /// Its name in a config.
    pub fn name(self) -> &'static str {
        match self {
            Self::JsonSchema => "json-schema",
            Self::Regex => "regex",
            Self::Ebnf => "ebnf",
            Self::Lark => "lark",
        }
    }
}

impl FromStr for GrammarKind {
    type Err = GrammarError;

    fn from_str(name: &str) -> Result<Self, GrammarError> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| GrammarError::UnknownKind { name: name.to_owned() })
    }
}

impl fmt::Display for GrammarKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
