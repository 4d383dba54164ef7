//! What a compilation tells its caller while it works.

/// A stretch of work with a known amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Hashing the source files.
    Hash,
    /// Reading, converting and composing one split's weights.
    Weights {
        /// The split, counted from 1.
        split: usize,
        /// How many splits there are.
        n_splits: usize,
    },
    /// The backend prepares one split's graphs; items are graphs.
    Finalize {
        /// The split, counted from 1.
        split: usize,
        /// How many splits there are.
        n_splits: usize,
    },
    /// Hashing what was written.
    Seal,
}

impl core::fmt::Display for Stage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Hash => f.write_str("hash source"),
            Self::Weights { split, n_splits } => write!(f, "convert weights {split}/{n_splits}"),
            Self::Finalize { split, n_splits } => write!(f, "finalize graphs {split}/{n_splits}"),
            Self::Seal => f.write_str("hash bundle"),
        }
    }
}

/// Amount of work: `items` are files, tensors or graphs, by stage; `bytes` is 0 where bytes say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Files, tensors or graphs.
    pub items: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// Receives progress. Calls come in the order `begin`, any number of `item`, `end`, for each stage; `note` at any time.
pub trait Progress {
    /// A stage starts; `total` is what its `item` calls will add up to.
    fn begin(&mut self, stage: &Stage, total: Amount);
    /// One item of the current stage is done.
    fn item(&mut self, name: &str, bytes: u64);
    /// The current stage is over.
    fn end(&mut self, stage: &Stage);
    /// Something the user should know that is not an error.
    fn note(&mut self, text: &str);
}

/// Tells nobody; notes go to `tracing`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _stage: &Stage, _total: Amount) {}
    fn item(&mut self, _name: &str, _bytes: u64) {}
    fn end(&mut self, _stage: &Stage) {}
    fn note(&mut self, text: &str) {
        tracing::warn!("{text}");
    }
}
