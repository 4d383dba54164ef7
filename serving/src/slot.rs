//! A sequence of the cache, as it is listed.

use engine::SeqId;

use crate::RequestId;

/// What a slot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// Its request is over; the rows are kept while they are not needed.
    Idle,
    /// Its prompt is being processed.
    Prefill,
    /// Its reply is being made.
    Decode,
}

impl SlotState {
    /// One word for logs and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// A sequence with tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub seq: SeqId,
    /// What it does.
    pub state: SlotState,
    /// Whose it is; `None` when idle.
    pub request: Option<RequestId>,
    /// Tokens in the cache.
    pub n_past: usize,
    /// Tokens of the request's prompt.
    pub n_prompt: usize,
    /// Tokens of the reply so far.
    pub n_generated: usize,
}
