//! A grammar as its text, checked, before a vocabulary is known.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use xxhash_rust::xxh3::xxh3_64;

use crate::{GrammarError, GrammarKind, WhiteSpace, ebnf, json_schema, lark, regex};

/// Most bytes of a grammar's file.
const LIMIT: u64 = 4 << 20;

/// A grammar that was read and checked. Clones share it.
#[derive(Clone)]
pub struct Grammar(Arc<Inner>);

struct Inner {
    kind: GrammarKind,
    text: String,
    white_space: WhiteSpace,
    /// The white space was asked for, not taken by default.
    chosen: bool,
    lowered: TopLevelGrammar,
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammar").field("kind", &self.kind()).field("text", &self.text()).finish()
    }
}

impl PartialEq for Grammar {
    fn eq(&self, other: &Self) -> bool {
        let what = |it: &Self| (it.kind(), it.0.white_space, it.0.chosen);
        what(self) == what(other) && self.text() == other.text()
    }
}

impl Eq for Grammar {}

impl Grammar {
    /// Reads a grammar from its text.
    ///
    /// # Errors
    /// [`GrammarError::Malformed`] with line and column; [`GrammarError::Unusable`] for what is well written but cannot be
    /// followed.
    pub fn new(kind: GrammarKind, text: &str) -> Result<Self, GrammarError> {
        Self::of_parts(kind, text, WhiteSpace::default(), false)
    }

    /// The same with that white space between the parts of a JSON document; of no effect for other languages, and for a schema
    /// that has `x-guidance`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_white_space(&self, white_space: WhiteSpace) -> Result<Self, GrammarError> {
        Self::of_parts(self.kind(), self.text(), white_space, true)
    }

    /// As [`with_white_space`](Self::with_white_space), unless it was asked for already.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_default_white_space(&self, white_space: WhiteSpace) -> Result<Self, GrammarError> {
        match self.0.chosen || self.0.white_space == white_space {
            true => Ok(self.clone()),
            false => Self::of_parts(self.kind(), self.text(), white_space, false),
        }
    }

    fn of_parts(kind: GrammarKind, text: &str, white_space: WhiteSpace, chosen: bool) -> Result<Self, GrammarError> {
        let lowered = match kind {
            GrammarKind::JsonSchema => json_schema::lower(text, white_space)?,
            GrammarKind::Regex => TopLevelGrammar::from_lark(regex::to_lark(text)?),
            GrammarKind::Ebnf => TopLevelGrammar::from_lark(ebnf::to_lark(text)?),
            GrammarKind::Lark => TopLevelGrammar::from_lark(text.to_owned()),
        };
        lark::check(kind, &lowered)?;
        Ok(Self(Arc::new(Inner { kind, text: text.to_owned(), white_space, chosen, lowered })))
    }

    /// Reads a grammar from a file.
    ///
    /// # Errors
    /// As [`new`](Self::new); the file cannot be read, is no text, or is longer than 4 MiB.
    pub fn from_file(kind: GrammarKind, path: impl AsRef<Path>) -> Result<Self, GrammarError> {
        let path = path.as_ref();
        let failed = |source| GrammarError::Read { path: path.into(), source };
        // A fifo or a device might never end.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "expected a regular file");
            return Err(failed(source));
        }
        let mut text = String::new();
        File::open(path).and_then(|file| file.take(LIMIT + 1).read_to_string(&mut text)).map_err(failed)?;
        if text.len() as u64 > LIMIT {
            return Err(GrammarError::TooLong { path: path.into(), limit: LIMIT });
        }
        Self::new(kind, &text)
    }

    /// The language.
    pub fn kind(&self) -> GrammarKind {
        self.0.kind
    }

    /// The text, as it was given.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// A number that tells grammars apart, also from run to run.
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(format!("{}\0{}", self.kind(), self.text()).as_bytes())
    }

    pub(crate) fn lowered(&self) -> TopLevelGrammar {
        self.0.lowered.clone()
    }
}
