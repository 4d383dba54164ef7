//! What goes in and what comes out.

use dialog::{Reply, RequestSettings};
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
        /// Its tokens.
        tokens: Vec<TokenId>,
        /// Their text, as far as it is certain.
        text: String,
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
    /// Tokens of the prompt whose rows were there.
    pub n_shared: usize,
    /// How often it was parked.
    pub n_parked: usize,
}
