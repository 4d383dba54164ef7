//! What a request would have verified together with its last token.

use dialog::conversation::DraftTree;
use genie_types::TokenId;

/// A draft of one request.
#[derive(Debug, Default)]
pub(crate) enum Draft {
    /// None.
    #[default]
    None,
    /// Tokens that follow each other; the first of them are a draft too.
    Tokens(Vec<TokenId>),
    /// Several continuations, the last token's row first: all of it or nothing.
    Tree(DraftTree),
}

impl Draft {
    pub(crate) fn of(tokens: Vec<TokenId>) -> Self {
        if tokens.is_empty() { Self::None } else { Self::Tokens(tokens) }
    }

    /// Rows beside the last token's.
    pub(crate) fn n_rows(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Tokens(tokens) => tokens.len(),
            Self::Tree(tree) => tree.n_rows() - 1,
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) fn is_tree(&self) -> bool {
        matches!(self, Self::Tree(_))
    }
}
