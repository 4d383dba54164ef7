//! Tokens that do not fit the context: one type for the cache, the engine and the dialogs above it.

/// Why tokens do not fit. Nothing is kept of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overflow {
    /// Positions end at the context size.
    #[error("context limit exceeded: {n_past} past + {n_new} new tokens > {limit}")]
    ContextExceeded {
        /// Tokens seen before.
        n_past: usize,
        /// Tokens asked for.
        n_new: usize,
        /// The limit: `min(size, largest CL)`.
        limit: usize,
    },
    /// Policy `genie` only: libGenie runs this chunk and then returns status 4.
    #[error("libGenie gives up at {n_past} past tokens with a chunk of {n_piece}; policy `lenient` goes on")]
    GenieGivesUp {
        /// Tokens processed before the chunk.
        n_past: usize,
        /// Tokens of the chunk.
        n_piece: usize,
    },
}
