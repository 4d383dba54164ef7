//! What can go wrong in the cache. The planner has its own: [`PlanError`](crate::PlanError).

use crate::seq_id::SeqId;
use genie_types::{SplitIdx, Variant};

/// A refusal of the cache. Unless documented otherwise, nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The geometry and the variants contradict each other.
    #[error("cache geometry: {0}")]
    Geometry(String),
    /// A variant that the bundle lacks.
    #[error("no graph of variant {variant}: the cache can take {known}")]
    UnknownVariant {
        /// The variant asked for.
        variant: Variant,
        /// The variants there are.
        known: String,
    },
    /// A split that the model lacks.
    #[error("no split {split}: the cache has {n_splits}")]
    UnknownSplit {
        /// The split asked for.
        split: SplitIdx,
        /// The splits there are.
        n_splits: usize,
    },
    /// More rows than the variant's past can hold.
    #[error("{variant} holds {past_len} rows of past, the cache has {n_rows}")]
    PastTooLong {
        /// The variant asked for.
        variant: Variant,
        /// Rows of its past.
        past_len: usize,
        /// Rows in the cache.
        n_rows: usize,
    },
    /// Lines of fewer rows than a sequence has.
    #[error("a past of {past_len} rows would lose some of {n_rows}")]
    RowsCut {
        /// Rows of the past.
        past_len: usize,
        /// Rows in use, or that would be.
        n_rows: usize,
    },
    /// A split was committed: it cannot be lent or committed again in this step, and the step's masks are past.
    #[error(
        "split {split} is committed: lend splits and fill masks before the commits, and commit each split once per step"
    )]
    Committed {
        /// The split.
        split: SplitIdx,
    },
    /// A step that was to end before all splits with cache tensors were committed.
    #[error("split {split} is not committed: a step ends when every split with cache tensors is")]
    NotCommitted {
        /// The first such split.
        split: SplitIdx,
    },
    /// A step that does not belong to the cache's state.
    #[error("step does not fit the cache: {what} is {found}, expected {expected}")]
    StepMismatch {
        /// The number that differs.
        what: &'static str,
        /// What the cache has.
        expected: String,
        /// What the step has.
        found: String,
    },
    /// Rewinding forward, or into rows that are gone.
    #[error("cannot rewind to {to}: the cache stands at {n_past} tokens with {n_valid_kv} rows{why}")]
    Rewind {
        /// Where to.
        to: usize,
        /// Tokens seen.
        n_past: usize,
        /// Rows held.
        n_valid_kv: usize,
        /// An explanation, or nothing.
        why: &'static str,
    },
    /// An operation that this cache cannot do.
    #[error("{mode} refuses {op}: {why}")]
    Refused {
        /// The mode's name.
        mode: &'static str,
        /// The operation.
        op: &'static str,
        /// The reason.
        why: Reason,
    },
    /// A tensor that the mode cannot keep.
    #[error("{mode} cannot keep `{tensor}`: {why}")]
    UnfitTensor {
        /// The mode's name.
        mode: &'static str,
        /// The tensor.
        tensor: String,
        /// The reason.
        why: Reason,
    },
    /// Saved rows that contradict themselves.
    #[error("bad cache image: {why}")]
    BadImage {
        /// What is wrong.
        why: String,
    },
    /// Saved rows of another model, or too many of them.
    #[error("saved rows do not fit this cache: {why}")]
    Foreign {
        /// What differs.
        why: String,
    },
    /// The rows of one cache cannot become those of another.
    #[error("caches differ: {what}: expected {expected}, found {found}")]
    OtherShape {
        /// What differs.
        what: String,
        /// What the other cache has.
        expected: String,
        /// What this one has.
        found: String,
    },
    /// The buffers do not fit into memory. A smaller CL needs less; [`KvCache::required_bytes`](crate::KvCache::required_bytes)
    /// tells how much beforehand.
    #[error("no memory for {bytes} bytes of KV cache: {why}")]
    Memory {
        /// Bytes asked for in one block.
        bytes: usize,
        /// The system's message.
        why: String,
    },
    /// The scorer of `KeyDiff` could not score. The step has failed.
    #[error("cannot score the cache's keys: {why}")]
    Scorer {
        /// Its reason.
        why: String,
    },
    /// A worker thread could not be started, or a job on it panicked; the split's rows are lost until `clear`.
    #[error("cache worker: {0}")]
    Worker(String),
}

/// Why a cache cannot do an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A sequence number beyond the last.
    #[error("sequence {} of {}", .0.0, SeqId::COUNT)]
    UnknownSequence(SeqId),
    /// Nothing is cached.
    #[error("every graph has AR == CL, so there are no rows")]
    NoRows,
    /// Rows of different heads belong to different tokens.
    #[error("KeyDiff has evicted, so each head holds other tokens")]
    PerHeadRows,
    /// Rows of several sequences where only a count of rows is left.
    #[error("KeyDiff evicts in it, which needs the cache to hold one sequence, and others have rows or columns")]
    SeveralSequences,
    /// Keys would have to be rotated, and how they were is not known.
    #[error("keys must be rotated, but how positions are embedded in them (RoPE) is not known")]
    NoRope,
    /// The rotation is wider than a key.
    #[error("the rope turns {dims} dimensions, keys have {head_dim}")]
    RopeTooWide {
        /// Dimensions that are rotated.
        dims: usize,
        /// The narrowest head.
        head_dim: usize,
    },
    /// Keys whose numbers are not what their bytes say alone.
    #[error("keys are kept in blocks with scales, and only whole rows of them are moved")]
    KeysInBlocks,
    /// Too few free rows for copies.
    #[error("{needed} rows to copy in group {group}, {free} free")]
    TooFewRows {
        /// Rows needed.
        needed: usize,
        /// The cache group.
        group: usize,
        /// Rows free there.
        free: usize,
    },
    /// Fewer tokens than are to be dropped.
    #[error("{sinks} sinks and {n} to drop, but {n_past} tokens")]
    TooFewTokens {
        /// Tokens to keep at the beginning.
        sinks: usize,
        /// Tokens to drop.
        n: usize,
        /// Tokens there are.
        n_past: usize,
    },
    /// A division by 0.
    #[error("by 0")]
    DivideByZero,
    /// Scatter graphs write behind the rows.
    #[error("a scatter graph writes behind its rows, so these must lie at the left")]
    ScatterForm,
    /// A tile without extent.
    #[error("a tile needs rows, columns and bytes in a word")]
    EmptyTile,
    /// A tile that is not square.
    #[error("tiles must be square, found {rows} by {cols}")]
    TileShape {
        /// Its rows.
        rows: usize,
        /// Its columns.
        cols: usize,
    },
    /// A tensor that tiles do not divide.
    #[error("head_dim {head_dim} does not divide into tiles of {rows} by {cols}")]
    TileDivision {
        /// The tensor's.
        head_dim: usize,
        /// Rows of a tile.
        rows: usize,
        /// Columns of a tile.
        cols: usize,
    },
}

/// Refuses two numbers that should be the same.
pub(crate) fn same(what: &'static str, expected: usize, found: usize) -> Result<(), KvError> {
    if expected == found {
        return Ok(());
    }
    Err(KvError::StepMismatch { what, expected: expected.to_string(), found: found.to_string() })
}
