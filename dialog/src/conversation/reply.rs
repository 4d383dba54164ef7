//! What comes out of a query: chunks while it runs, a reply at its end.

use genie_types::TokenId;

use super::codes::{SentenceCode, StopReason};
use super::harmony::HarmonyMessage;
use crate::kpi::QueryKpis;
use crate::sampler::Logprobs;

/// A piece of a reply, lent to the callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// `BEGIN` for the first, then `CONTINUE`; `END` for the last, which carries nothing (as libGenie does: the stop token at
    /// the end of a grammar). Streams have no `BEGIN`.
    pub code: SentenceCode,
    /// One token, several that came from one step, or none where only held-back text is given.
    pub tokens: &'a [TokenId],
    /// Text that is certain by now. Empty while a character or a stop sequence may still be completed.
    pub text: &'a str,
    /// Which of several replies it belongs to: the stream, or the prompt of a batch.
    pub stream: usize,
}

/// One of several replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReply {
    /// Why it is over.
    pub stop: StopReason,
    /// Tokens delivered, as in [`Reply`].
    pub tokens: Vec<TokenId>,
    /// Their text.
    pub text: String,
}

/// What a query came to.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Why it is over.
    pub stop: StopReason,
    /// Tokens delivered, those of a stop sequence included, EOS and EOT not (as libGenie does: at the end of a grammar).
    pub tokens: Vec<TokenId>,
    /// Their text, without the stop sequence.
    pub text: String,
    /// What the model processed for the query before it generated.
    pub input: Vec<TokenId>,
    /// All replies, where there are several: then the fields above are those of the first.
    pub streams: Vec<StreamReply>,
    /// The messages of a reply in the `harmony` format, those of channels that are not given out included; else none.
    pub messages: Vec<HarmonyMessage>,
    /// How likely each of `tokens` was, if the sampler's settings ask for it and there is one reply; else none.
    pub logprobs: Vec<Logprobs>,
    /// Counts and times.
    pub kpis: QueryKpis,
}

impl Reply {
    /// The reply of a query that never began.
    pub fn none(stop: StopReason) -> Self {
        Self {
            stop,
            tokens: Vec::new(),
            text: String::new(),
            input: Vec::new(),
            streams: Vec::new(),
            messages: Vec::new(),
            logprobs: Vec::new(),
            kpis: QueryKpis::default(),
        }
    }
}
