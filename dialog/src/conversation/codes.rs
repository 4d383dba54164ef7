//! Genie's words for the parts of a sentence and the ends of a turn, with its numbers.

use std::fmt;

/// What a query is to its sentence, and what a chunk is to its reply. The numbers are Genie's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SentenceCode {
    /// Query: a whole turn. Chunks never carry it.
    Complete = 0,
    /// Query: first part of a turn, to be processed only. Chunk: the first one.
    Begin = 1,
    /// Query: a further part, to be processed only. Chunk: not the first one.
    Continue = 2,
    /// Query: the last part; generation follows. Chunk: the reply is over; it carries nothing.
    End = 3,
    /// libGenie's callbacks may carry it; no query or chunk here does.
    Abort = 4,
    /// Query: the whole conversation stated again; what is unchanged from the start stays in the cache.
    Rewind = 5,
    /// Query: go on after a pause.
    Resume = 6,
}

impl SentenceCode {
    /// The code of a number.
    pub fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            0 => Self::Complete,
            1 => Self::Begin,
            2 => Self::Continue,
            3 => Self::End,
            4 => Self::Abort,
            5 => Self::Rewind,
            6 => Self::Resume,
            _ => return None,
        })
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for SentenceCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Complete => "COMPLETE",
            Self::Begin => "BEGIN",
            Self::Continue => "CONTINUE",
            Self::End => "END",
            Self::Abort => "ABORT",
            Self::Rewind => "REWIND",
            Self::Resume => "RESUME",
        })
    }
}

/// Why a reply is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model generated one of the EOS tokens.
    Eos,
    /// The model generated the end-of-turn token.
    Eot,
    /// The text came to this stop sequence, which is not part of it.
    StopSequence(String),
    /// The program's own rule, see [`StopCallback`](super::StopCallback). The token that it was asked after is part of the reply.
    StopCallback,
    /// As many tokens as were allowed.
    MaxTokens,
    /// The context is full. What was generated has been delivered.
    ContextLimit,
    /// [`Signal::Abort`](super::Signal::Abort). What was processed by then stays in the dialog.
    Aborted,
    /// [`Signal::Pause`](super::Signal::Pause); a query with [`SentenceCode::Resume`] goes on.
    Paused,
    /// The grammar's text is complete, and the model has no token that says so.
    GrammarEnd,
    /// Nothing was to be generated: a `BEGIN` or `CONTINUE` part, or a limit of 0 tokens.
    Prefilled,
}

impl StopReason {
    /// The status that Genie's C functions return in this case.
    pub fn genie_status(&self) -> i32 {
        match self {
            Self::Aborted => 1,
            Self::Paused => 3,
            Self::ContextLimit => 4,
            _ => 0,
        }
    }

    /// One word for logs and JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Eos => "eos",
            Self::Eot => "eot",
            Self::StopSequence(_) => "stop-sequence",
            Self::StopCallback => "stop-callback",
            Self::MaxTokens => "max-num-tokens",
            Self::ContextLimit => "context-limit",
            Self::Aborted => "aborted",
            Self::Paused => "paused",
            Self::GrammarEnd => "grammar-end",
            Self::Prefilled => "prefilled",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StopSequence(s) => write!(f, "stop-sequence {s:?}"),
            other => f.pad(other.name()),
        }
    }
}
