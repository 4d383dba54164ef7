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
    /// Where the chunk in the making ends, if that is not where the reply ends so far.
    pub(super) chunk_end: Option<(usize, usize)>,
    /// Tokens that do not count for the limit.
    pub(super) n_uncounted: usize,
    /// A stop token that is delivered with the end, as libGenie does at the end of a grammar.
    pub(super) last_delivered: Option<TokenId>,
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
            chunk_end: None,
            n_uncounted: 0,
            last_delivered: None,
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
        self.next_chunk(code)
    }

    /// The last chunk, which carries nothing but what `last_delivered` has added.
    pub(super) fn last_chunk(&mut self) -> Chunk<'_> {
        self.next_chunk(SentenceCode::End)
    }

    fn next_chunk(&mut self, code: SentenceCode) -> Chunk<'_> {
        let (to_token, to_text) = self.chunk_end.take().unwrap_or((self.tokens.len(), self.text.len()));
        let (token, text) = std::mem::replace(&mut self.chunk, (to_token, to_text));
        Chunk { code, tokens: &self.tokens[token..to_token], text: &self.text[text..to_text] }
    }

    /// What has been delivered so far is a chunk of its own.
    pub(super) fn end_chunk(&mut self) {
        let end = (self.tokens.len(), self.text.len());
        self.chunk_end = Some(end).filter(|end| *end != self.chunk);
    }

    /// Tokens delivered, as the limit counts them.
    pub(super) fn n_counted(&self) -> usize {
        self.tokens.len().saturating_sub(self.n_uncounted)
    }

    pub(super) fn has_chunk(&self) -> bool {
        self.chunk != (self.tokens.len(), self.text.len())
    }
}
