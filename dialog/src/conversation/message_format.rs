//! A dialog whose prompts and replies are messages in the `harmony` format.

use std::borrow::Cow;

use super::codes::SentenceCode;
use super::dialog::Dialog;
use super::error::DialogError;
use super::harmony::frame;
use super::reply_text::ReplyText;
use crate::config::HarmonySettings;
use crate::sampler::SamplerRules;

impl Dialog {
    /// The text of a query in the format of the config's `harmony`, if it has one. `open`: a part of the turn went before.
    pub(super) fn framed<'t>(&self, text: &'t str, code: SentenceCode, open: bool) -> Cow<'t, str> {
        match self.frame(code, open) {
            ("", "") => text.into(),
            (before, behind) => format!("{before}{text}{behind}").into(),
        }
    }

    /// What stands before and behind the text of a query.
    pub(super) fn frame(&self, code: SentenceCode, open: bool) -> (&'static str, &'static str) {
        let as_genie = self.sampler.settings().rules() == SamplerRules::Genie;
        // Nothing goes with these.
        let has_text = !matches!(code, SentenceCode::Resume | SentenceCode::Abort);
        match self.harmony.filter(|harmony| harmony.wraps && has_text) {
            Some(_) => frame(code, open, as_genie),
            None => ("", ""),
        }
    }

    /// The text side of a reply that begins.
    pub(super) fn new_reply_text(&self) -> Result<ReplyText, DialogError> {
        ReplyText::new(&self.tokenizer).with_harmony(self.harmony, &self.tokenizer)
    }

    /// Writes prompts and reads replies in the `harmony` format from now on; `None` as plain text.
    ///
    /// # Errors
    /// [`DialogError::Kind`]: the tokenizer lacks its control tokens. The format is as it was.
    pub fn set_harmony(&mut self, settings: Option<HarmonySettings>) -> Result<(), DialogError> {
        ReplyText::new(&self.tokenizer).with_harmony(settings, &self.tokenizer)?;
        self.harmony = settings;
        Ok(())
    }
}
