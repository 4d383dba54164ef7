//! What goes in and what comes out.

use std::time::Duration;

use dialog::{Reply, ReplyPiece, RequestSettings};
use genie_types::TokenId;

use crate::ServeError;

/// The number of a request; no two of a scheduler have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The whole conversation, with BOS.
    pub prompt: Vec<TokenId>,
    /// How it is answered.
    pub settings: RequestSettings,
    /// Higher starts first.
    pub priority: i32,
}

/// What happens to a request, in order.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// It has a sequence; the first `n_shared` tokens of its prompt need not be processed.
    Started {
        /// The request.
        id: RequestId,
        /// Tokens whose rows were there.
        n_shared: usize,
    },
    /// A piece of its reply.
    Piece {
        /// The request.
        id: RequestId,
        /// Tokens, their text, and how likely each was.
        piece: ReplyPiece,
    },
    /// Its rows were given to others; it goes on later.
    Parked {
        /// The request.
        id: RequestId,
    },
    /// It is over.
    Done(Box<Finished>),
    /// It is over without a reply.
    Failed {
        /// The request.
        id: RequestId,
        /// Why.
        error: ServeError,
    },
}

impl Event {
    /// The request.
    pub fn id(&self) -> RequestId {
        match self {
            Self::Started { id, .. } | Self::Piece { id, .. } | Self::Parked { id } | Self::Failed { id, .. } => *id,
            Self::Done(finished) => finished.id,
        }
    }

    /// Whether nothing comes after it.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed { .. })
    }
}

/// A request that is over.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The request.
    pub id: RequestId,
    /// Its reply.
    pub reply: Reply,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Tokens of the prompt whose rows were there when it began.
    pub n_shared: usize,
    /// How often it was parked.
    pub n_parked: usize,
    /// Where its time went.
    pub times: RequestTimes,
}

/// Where a request's time went; time in which it was parked is part of what it was parked in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// Until it had a sequence.
    pub waited: Duration,
    /// From there to its first token; to its end if it had none.
    pub prefill: Duration,
    /// From its first token to its end.
    pub decode: Duration,
}
