//! Proves that a tokenizer fits a model and works, before anybody's prompt depends on it.
//!
//! What loading does not tell: ids without a row, a vocabulary of another model, text that does not come back, patterns that
//! go over a line again and again. Cheap (a few milliseconds), but not done for each run.

use fancy_regex::RegexBuilder;

use crate::error::Fault;
use crate::parts::Found;
use crate::{Tokenizer, TokenizerError, limits};

/// A line with letters, digits, punctuation, spaces and characters of two to four bytes.
const LINE: &str = "Hello world, the year is 2024: caf\u{e9} \u{65e5}\u{672c} \u{1f642}\n\tend.";
/// Padding that is not worth a word: rows are rounded up to some hundreds, added tokens are reserved.
const USUAL_PADDING: usize = 1024;

/// What is odd about a tokenizer that works.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oddity {
    /// Rows of the embedding that no text leads to.
    UnusedRows {
        /// Entries of the tokenizer.
        entries: usize,
        /// Rows of the model.
        rows: usize,
    },
    /// Characters of texts without an entry are left out, since no entry stands for unknown ones.
    LeavesOut {
        /// How many of the bytes that occur in UTF-8 have no entry.
        bytes: usize,
    },
}

impl std::fmt::Display for Oddity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnusedRows { entries, rows } => {
                let unused = rows.saturating_sub(*entries);
                write!(f, "the tokenizer has {entries} entries, the model {rows} rows: {unused} are padding")
            }
            Self::LeavesOut { bytes } => {
                write!(
                    f,
                    "the tokenizer has no entry for {bytes} of the bytes of UTF-8: characters with them are left out of prompts"
                )
            }
        }
    }
}

impl Tokenizer {
    /// Checks the tokenizer against a model of that many rows: ids, number of entries, a line there and back, patterns on
    /// lines that make bad ones slow.
    ///
    /// # Errors
    /// [`TokenizerError::Parse`] with the fault, or what encoding and decoding refuse.
    pub fn prove(&self, rows: usize) -> Result<Vec<Oddity>, TokenizerError> {
        let fault = |fault: Fault| fault.of(self.origin());
        let vocabulary = self.vocabulary();
        let (token, id) = &vocabulary.last;
        if *id as usize >= rows {
            return Err(fault(Fault::OutsideRows { token: token.clone(), id: genie_types::TokenId(*id), rows }));
        }
        let entries = vocabulary.n_entries;
        if entries * 2 < rows {
            return Err(fault(Fault::TooFewEntries { entries, rows }));
        }
        self.patterns().iter().try_for_each(probe).map_err(fault)?;
        self.round_trip()?;
        let mut odd = Vec::new();
        // An eighth is what small models round up to.
        if rows - entries > USUAL_PADDING.max(rows / 8) {
            odd.push(Oddity::UnusedRows { entries, rows });
        }
        odd.extend(self.missing_bytes().map(|bytes| Oddity::LeavesOut { bytes }));
        Ok(odd)
    }

    /// A line becomes tokens and text again; the same text where bytes go in and out.
    fn round_trip(&self) -> Result<(), TokenizerError> {
        let ids = self.encode(LINE)?;
        let back = self.decode(&ids)?;
        let same = !self.is_lossless() || self.missing_bytes().is_some() || back.trim_start() == LINE;
        if ids.is_empty() || !same {
            return Err(Fault::RoundTrip { line: LINE, n_tokens: ids.len(), back }.of(self.origin()));
        }
        Ok(())
    }

    /// How many bytes of UTF-8 a byte-level vocabulary lacks, if it has nothing else for them.
    fn missing_bytes(&self) -> Option<usize> {
        if !self.is_lossless() || !self.vocabulary().leaves_out {
            return None;
        }
        // 0xc0, 0xc1 and 0xf5 up are in no text.
        let occurs = |byte: &u8| !matches!(byte, 0xc0 | 0xc1 | 0xf5..);
        let lacks = |byte: &u8| self.token_to_id(&crate::byte_level::char_of(*byte).to_string()).is_none();
        Some((0..=u8::MAX).filter(occurs).filter(lacks).count()).filter(|n| *n > 0)
    }
}

/// Runs a pattern over lines of few different characters, which patterns with a choice in a repetition go over many times.
fn probe(pattern: &Found) -> Result<(), Fault> {
    let at = || pattern.at.clone();
    let built = RegexBuilder::new(&pattern.regex).backtrack_limit(limits::PROBE_STEPS).build();
    let regex = built.map_err(|e| Fault::Library { at: at(), reason: e.to_string() })?;
    for unit in ["a", " ", "1", "\n", "ab ", "a1", "-", "A", "\u{e9}", "\u{65e5}", "aA"] {
        let line = format!("{}\u{1}", unit.repeat(200));
        for found in regex.find_iter(&line) {
            if found.is_err() {
                let start = line.chars().take(8).collect::<String>().escape_debug().to_string();
                return Err(Fault::SlowPattern { at: at(), steps: limits::PROBE_STEPS, n_bytes: line.len(), start });
            }
        }
    }
    Ok(())
}
