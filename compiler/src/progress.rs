//! Progress reports of a running compilation.

use std::time::Duration;

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
    /// The backend reads the weights that it has packed and decides where they go in a context binary; backends that do not tell
    /// how far they are have no such stage.
    LayOut {
        /// The context binary, by its name in the bundle.
        file: String,
    },
    /// The backend writes a context binary.
    Write {
        /// The context binary, by its name in the bundle.
        file: String,
    },
    /// A context binary is brought onto the disk.
    Flush {
        /// The context binary, by its name in the bundle.
        file: String,
    },
    /// Weights that graphs take as inputs are read, and written to files of their own; bytes are those read and those written.
    WeightFiles,
    /// Hashing what was written.
    Seal,
    /// Comparing what was written with its hashes, once the bundle is complete.
    Compare,
    /// Running the bundle before it is put in its place; items are steps.
    Try,
}

impl core::fmt::Display for Stage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Hash => f.write_str("hash source"),
            Self::Weights { split, n_splits } => write!(f, "convert weights {split}/{n_splits}"),
            Self::Finalize { split, n_splits } => write!(f, "finalize graphs {split}/{n_splits}"),
            Self::LayOut { file } => write!(f, "lay out {file}"),
            Self::Write { file } => write!(f, "write {file}"),
            Self::Flush { file } => write!(f, "flush {file}"),
            Self::WeightFiles => f.write_str("write weight files"),
            Self::Seal => f.write_str("hash bundle"),
            Self::Compare => f.write_str("compare bundle"),
            Self::Try => f.write_str("try bundle"),
        }
    }
}

/// Amount of work: `items` are files, tensors, graphs or steps, by stage; `bytes` is 0 where bytes do not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Files, tensors, graphs or steps.
    pub items: u64,
    /// Bytes read, or written where that is what the stage does.
    pub bytes: u64,
}

/// Receives progress. Calls come in the order `begin`, any number of `advanced` and `item`, `end`, for each stage; `note` at any time.
pub trait Progress {
    /// A stage starts; `total` is the sum of its `item` calls.
    fn begin(&mut self, stage: &Stage, total: Amount);
    /// More bytes of the item that comes next are done: about a megabyte, at most a few. Its [`Progress::item`] counts
    /// them once more, as part of all its bytes, so that who looks at items alone misses none.
    fn advanced(&mut self, _bytes: u64) {}
    /// One item of the current stage is done, with all its bytes.
    fn item(&mut self, name: &str, bytes: u64);
    /// Work on an item of the current stage starts that may take minutes; its [`Progress::item`] follows.
    fn working(&mut self, _name: &str) {}
    /// How long the backend took to prepare a graph.
    fn timed(&mut self, _graph: &str, _took: Duration) {}
    /// The current stage is over.
    fn end(&mut self, stage: &Stage);
    /// A message to the user that is not an error.
    fn note(&mut self, text: &str);
    /// Whether the compilation is to end: asked after every megabyte or so that is read, converted, hashed or written, and between
    /// two calls of the backend; within those, only the embedded backend asks, while it packs and keeps a weight, and while it lays out
    /// and writes a context binary. The compilation then fails with [`CompileError::Cancelled`](crate::CompileError::Cancelled), and
    /// nothing that it has written is left.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Fails if the compilation was cancelled.
pub(crate) fn go_on(progress: &dyn Progress) -> crate::Result<()> {
    if progress.cancelled() { Err(crate::CompileError::Cancelled) } else { Ok(()) }
}

/// Tells of bytes of the current item, and fails if the compilation was cancelled.
pub(crate) fn advance(progress: &mut dyn Progress, bytes: u64) -> crate::Result<()> {
    if bytes > 0 {
        progress.advanced(bytes);
    }
    go_on(progress)
}

/// Discards progress; notes go to `tracing`.
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

#[cfg(test)]
mod tests;
