//! A dialog whose prompts and replies are messages in the `harmony` format.

use super::codes::SentenceCode;
use super::dialog::Dialog;
use super::error::DialogError;
use super::harmony::wrapped;
use super::reply_text::ReplyText;
use crate::config::HarmonySettings;
use crate::sampler::SamplerRules;

impl Dialog {
    /// The text of a query in the format of the config's `harmony`, if it has one.
    pub(super) fn wrapped(&self, text: &str, code: SentenceCode) -> Option<String> {
        let as_genie = self.sampler.settings().rules() == SamplerRules::Genie;
        self.harmony.filter(|harmony| harmony.wraps)?;
        // Nothing goes with these.
        let has_text = !matches!(code, SentenceCode::Resume | SentenceCode::Abort);
        has_text.then(|| wrapped(text, code, self.open, as_genie))
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
