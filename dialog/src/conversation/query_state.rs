//! What a query knows and has produced, between its steps.

use std::time::Instant;

use genie_types::TokenId;

use super::codes::SentenceCode;
use super::query_plan::QueryPlan;
use super::reply::Chunk;
use super::reply_text::{ReplyText, StopRules};
use crate::kpi::QueryKpis;

/// What a query knows and has produced so far.
#[derive(Debug)]
pub(super) struct QueryState {
    pub(super) rules: StopRules,
    pub(super) reply_text: ReplyText,
    /// The text side as it was before the last token, to repeat that token after a pause.
    pub(super) before_last: Option<ReplyText>,
    pub(super) plan: QueryPlan,
    /// What the model processes before it generates.
    pub(super) input: Vec<TokenId>,
    pub(super) began: Instant,
    pub(super) first_token: Option<Instant>,
    pub(super) kpis: QueryKpis,
    pub(super) tokens: Vec<TokenId>,
    pub(super) text: String,
    /// Where the chunk in the making begins, in `tokens` and in `text`.
    pub(super) chunk: (usize, usize),
    /// Most tokens of this reply, beside the dialog's limit.
    pub(super) max_tokens: usize,
    /// Chunks given out so far: the first is `BEGIN`.
    pub(super) n_chunks: usize,
}

impl QueryState {
    pub(super) fn new(plan: QueryPlan, rules: StopRules, reply_text: ReplyText, began: Instant) -> Self {
        let input = plan.input.clone();
        Self {
            rules,
            reply_text,
            before_last: None,
            kpis: QueryKpis { n_prompt: input.len(), ..QueryKpis::default() },
            plan,
            input,
            began,
            first_token: None,
            tokens: Vec::new(),
            text: String::new(),
            chunk: (0, 0),
            max_tokens: usize::MAX,
            n_chunks: 0,
        }
    }

    /// Only the first `n` tokens of the input were processed.
    pub(super) fn keep_input(&mut self, n: usize) {
        self.input.truncate(n);
        self.kpis.n_prompt = self.input.len();
    }

    /// What was added since the last chunk.
    pub(super) fn chunk(&mut self) -> Chunk<'_> {
        let code = if self.n_chunks == 0 { SentenceCode::Begin } else { SentenceCode::Continue };
        self.n_chunks += 1;
        let (token, text) = std::mem::replace(&mut self.chunk, (self.tokens.len(), self.text.len()));
        Chunk { code, tokens: &self.tokens[token..], text: &self.text[text..] }
    }

    pub(super) fn has_chunk(&self) -> bool {
        self.chunk != (self.tokens.len(), self.text.len())
    }
}
