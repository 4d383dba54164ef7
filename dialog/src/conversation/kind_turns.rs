//! How a kind's turns begin where they differ from those of other kinds.

use super::codes::SentenceCode;
use super::dialog::Dialog;
use super::query_state::QueryState;
use crate::sampler::SamplerRules;

impl Dialog {
    fn follows_genie(&self) -> bool {
        self.sampler.settings().rules() == SamplerRules::Genie
    }

    /// Whether the next turn begins with a BOS alone.
    pub(super) fn begins_with_bos(&self, code: SentenceCode) -> bool {
        matches!(code, SentenceCode::Complete | SentenceCode::Begin)
            && !self.open
            && !self.view().is_empty()
            && self.kind.turns_begin_with_bos(self.follows_genie())
    }

    /// The empty chunk that the kind's replies begin with, if they do.
    pub(super) fn begin_empty(&self, query: &mut QueryState, wants_reply: bool) {
        if wants_reply && self.kind.begins_empty(self.follows_genie()) {
            query.begin_empty();
        }
    }
}
