//! What a query knows and has produced, between its steps.

use std::collections::VecDeque;
use std::time::Instant;

use genie_tokenizer::TokenizerError;
use genie_types::TokenId;

use super::codes::{SentenceCode, StopReason};
use super::query_plan::QueryPlan;
use super::reply::{Chunk, StreamReply};
use super::reply_text::{ReplyText, StopRules};
use super::stop_callback::StopCallback;
use crate::kpi::QueryKpis;
use crate::sampler::Logprobs;

/// A piece of one of several replies that was not given out yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) stream: usize,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) text: String,
}

/// What a query knows and has produced so far.
#[derive(Debug)]
pub(crate) struct QueryState {
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
    /// How likely each of them was, if that is asked for.
    pub(super) logprobs: Vec<Logprobs>,
    pub(super) text: String,
    /// Where the chunk in the making begins, in `tokens` and in `text`.
    pub(super) chunk: (usize, usize),
    /// From which place of the history on everything is forgotten once the kind is done with the reply.
    pub(super) late_cut: Option<usize>,
    /// Chunks without a token that count for the limit.
    pub(super) n_empty: usize,
    /// Tokens that do not count for the limit.
    pub(super) n_uncounted: usize,
    /// A stop token that is delivered with the end, as libGenie does at the end of a grammar.
    pub(super) last_delivered: Option<TokenId>,
    /// Most tokens of this reply, beside the dialog's limit.
    pub(super) max_tokens: usize,
    /// Where the chunks of the tokens that were not given out yet end: each token has one of its own.
    pub(super) ends: VecDeque<(usize, usize)>,
    /// Chunks given out so far.
    pub(super) n_chunks: usize,
    /// The prompts are several.
    pub(super) batch: bool,
    /// What the `END` chunk carries.
    pub(super) end_text: &'static str,
    /// Pieces of several replies to be given out, and the one that was last.
    pub(crate) pending: VecDeque<Pending>,
    current: Pending,
    pub(super) streams: Vec<StreamReply>,
    /// The code of the first.
    pub(super) first_code: SentenceCode,
    /// The program's own rule for the end of the reply.
    pub(super) stop_callback: Option<StopCallback>,
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
            logprobs: Vec::new(),
            text: String::new(),
            chunk: (0, 0),
            late_cut: None,
            n_empty: 0,
            n_uncounted: 0,
            last_delivered: None,
            max_tokens: usize::MAX,
            ends: VecDeque::with_capacity(16),
            n_chunks: 0,
            batch: false,
            end_text: "",
            pending: VecDeque::new(),
            current: Pending::default(),
            streams: Vec::new(),
            first_code: SentenceCode::Begin,
            stop_callback: None,
        }
    }

    /// Several replies come; libGenie ends those of one prompt with a line end.
    pub(crate) fn in_streams(&mut self, with_line_end: bool) {
        self.end_text = if with_line_end { "\n" } else { "" };
    }

    /// The replies are these.
    pub(crate) fn set_streams(&mut self, streams: Vec<StreamReply>) {
        self.logprobs.clear();
        if let Some(first) = streams.first() {
            (self.tokens, self.text) = (first.tokens.clone(), first.text.clone());
        }
        self.chunk = (self.tokens.len(), self.text.len());
        self.streams = streams;
    }

    /// Only the first `n` tokens of the input were processed.
    pub(super) fn keep_input(&mut self, n: usize) {
        self.input.truncate(n);
        self.kpis.n_prompt = self.input.len();
    }

    /// Appends the text that was held back. A match ends the text where it begins, be there half a character before it.
    pub(super) fn end_text(&mut self, stop: &StopReason) -> Result<(), TokenizerError> {
        if matches!(stop, StopReason::StopSequence(_)) {
            self.reply_text.drop_pending()?;
        }
        self.reply_text.finish(&mut self.text)
    }

    /// The next token that was not given out, or text that was held back.
    pub(super) fn chunk(&mut self) -> Chunk<'_> {
        if let Some(next) = self.pending.pop_front() {
            self.current = next;
            let Pending { stream, tokens, text } = &self.current;
            return Chunk { code: SentenceCode::Continue, tokens, text, stream: *stream };
        }
        let code = if self.n_chunks == 0 { self.first_code } else { SentenceCode::Continue };
        self.n_chunks += 1;
        let (tokens, texts) = self.ends.pop_front().unwrap_or((self.tokens.len(), self.text.len()));
        let (token, text) = std::mem::replace(&mut self.chunk, (tokens, texts));
        Chunk { code, tokens: &self.tokens[token..tokens], text: &self.text[text..texts], stream: 0 }
    }

    /// The last chunk: what `last_delivered` has added, or what the kind of dialog has at its end.
    pub(super) fn last_chunk(&mut self) -> Chunk<'_> {
        let (token, text) = std::mem::replace(&mut self.chunk, (self.tokens.len(), self.text.len()));
        let (tokens, text) = (&self.tokens[token..], &self.text[text..]);
        Chunk { code: SentenceCode::End, tokens, text: if text.is_empty() { self.end_text } else { text }, stream: 0 }
    }

    /// The tokens whose chunks come behind the first `n` are one chunk.
    pub(super) fn join_chunks(&mut self, n: usize) {
        if let Some(last) = self.ends.back().copied().filter(|_| self.ends.len() > n) {
            self.ends.truncate(n);
            self.ends.push_back(last);
        }
    }

    /// Tokens delivered, as the limit counts them.
    pub(super) fn n_counted(&self) -> usize {
        (self.n_empty + self.tokens.len()).saturating_sub(self.n_uncounted)
    }

    /// The reply begins with an empty chunk, which counts as a token.
    pub(super) fn begin_empty(&mut self) {
        self.n_empty = 1;
        self.end_chunk();
    }

    /// A token was taken with its text: a chunk of its own.
    pub(super) fn end_chunk(&mut self) {
        self.ends.push_back((self.tokens.len(), self.text.len()));
    }

    pub(super) fn has_chunk(&self) -> bool {
        !self.pending.is_empty() || self.chunk != (self.tokens.len(), self.text.len())
    }
}
