//! From tokens to the text of a reply: detokenised, stop sequences found, nothing half.

use genie_types::TokenId;

use super::error::DialogError;
use super::harmony::{HarmonyMessage, HarmonyParser};
use super::stop::{Match, StopMatcher};
use crate::config::HarmonySettings;
use genie_tokenizer::{Detokenizer, Tokenizer, TokenizerError};

/// Stop sequences, and the tokens that are one by themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct StopRules {
    pub(super) sequences: Vec<String>,
    /// Special tokens have no text; a sequence that names one is found by its id.
    special: Vec<(TokenId, usize)>,
}

impl StopRules {
    pub(super) fn new(sequences: Vec<String>, tokenizer: &Tokenizer) -> Self {
        let ids = sequences.iter().enumerate().filter_map(|(i, s)| Some((tokenizer.token_to_id(s)?, i)));
        let special = ids.filter(|(id, _)| tokenizer.is_special(*id)).collect();
        Self { sequences, special }
    }
}

/// The text side of a reply.
#[derive(Clone, Debug)]
pub(super) struct ReplyText {
    detokenizer: Detokenizer,
    matcher: StopMatcher,
    /// The token where text that has not come out of the detokeniser yet begins.
    pending_since: Option<usize>,
    /// Gives out what is meant to be seen of a reply of messages.
    harmony: Option<Box<HarmonyParser>>,
}

impl ReplyText {
    pub(super) fn new(tokenizer: &Tokenizer) -> Self {
        Self {
            detokenizer: tokenizer.detokenizer(),
            matcher: StopMatcher::default(),
            pending_since: None,
            harmony: None,
        }
    }

    /// The same for replies of messages, if the settings say so.
    pub(super) fn with_harmony(
        mut self,
        settings: Option<HarmonySettings>,
        tokenizer: &Tokenizer,
    ) -> Result<Self, DialogError> {
        if let Some(settings) = settings.filter(|settings| settings.parses) {
            self.harmony = Some(Box::new(HarmonyParser::new(settings, tokenizer)?));
        }
        Ok(self)
    }

    /// The messages so far, of a reply of messages.
    pub(super) fn messages(&self) -> &[HarmonyMessage] {
        self.harmony.as_deref().map_or(&[], HarmonyParser::messages)
    }

    /// What the model thought, of a reply of messages, except the first `given` bytes.
    pub(super) fn thought_since(&self, given: usize) -> String {
        self.harmony.as_deref().map_or_else(String::new, |harmony| harmony.thought_since(given))
    }

    /// Appends the text that is certain once `token`, at `place` in the history, is there.
    pub(super) fn push(
        &mut self,
        rules: &StopRules,
        token: TokenId,
        place: usize,
        out: &mut String,
    ) -> Result<Option<Match>, TokenizerError> {
        if let Some((_, sequence)) = rules.special.iter().find(|(id, _)| *id == token) {
            self.finish(out)?;
            return Ok(Some(Match { sequence: *sequence, token: place }));
        }
        let mut text = String::new();
        self.detokenizer.push(token, &mut text)?;
        let first = self.pending_since.unwrap_or(place);
        if self.detokenizer.has_pending() {
            // If text came out, what is pending now began in this token.
            let began = if text.is_empty() { first } else { place };
            self.pending_since = Some(began);
        } else {
            self.pending_since = None;
        }
        if let Some(harmony) = &mut self.harmony {
            let raw = std::mem::take(&mut text);
            harmony.push(token, &raw, &mut text);
        }
        Ok(self.matcher.push(&rules.sequences, &text, first, place, out))
    }

    /// Leaves what was held back before a stop sequence: half a character, whose rest will not come.
    pub(super) fn drop_pending(&mut self) -> Result<(), TokenizerError> {
        self.pending_since = None;
        self.detokenizer.finish(&mut String::new())
    }

    /// Appends all that was held back.
    pub(super) fn finish(&mut self, out: &mut String) -> Result<(), TokenizerError> {
        self.matcher.flush(out);
        match &mut self.harmony {
            None => self.detokenizer.finish(out)?,
            Some(harmony) => {
                let mut rest = String::new();
                self.detokenizer.finish(&mut rest)?;
                harmony.text(&rest, out);
                harmony.finish(out);
            }
        }
        self.pending_since = None;
        Ok(())
    }
}
