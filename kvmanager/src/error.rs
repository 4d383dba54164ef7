//! What can go wrong in the cache. The planner has its own: [`PlanError`](crate::PlanError).

use genie_types::{SplitIdx, Variant};

/// A refusal of the cache. Unless a variant says otherwise, nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The geometry and the variants contradict each other.
    #[error("cache geometry: {0}")]
    Geometry(String),
    /// A shape that the bundle lacks.
    #[error("no graph of shape {spec}: the cache can take {known}")]
    UnknownVariant {
        /// The shape asked for.
        spec: Variant,
        /// The shapes there are.
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
    /// The tensors cannot be lent: no shape chosen yet, or more rows than its past holds.
    #[error(
        "split {split} has no shape to run in: {n_rows} rows, {detail}; call `set_variant` with the step's shape first"
    )]
    NotPrepared {
        /// The split.
        split: SplitIdx,
        /// Rows it holds.
        n_rows: usize,
        /// What is missing.
        detail: String,
    },
    /// More rows than the shape's past can hold.
    #[error("{spec} holds {past_len} rows of past, the cache has {n_rows}")]
    PastTooLong {
        /// The shape asked for.
        spec: Variant,
        /// Rows of its past.
        past_len: usize,
        /// Rows in the cache.
        n_rows: usize,
    },
    /// A step that does not belong to the cache's state.
    #[error("step does not fit the cache: {what} is {found}, expected {expected}")]
    StepMismatch {
        /// The number that differs.
        what: &'static str,
        /// What the cache has.
        expected: String,
        /// What the step says.
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
    /// An operation that the mode cannot do.
    #[error("{mode} refuses {op}: {why}")]
    Refused {
        /// The mode's name.
        mode: &'static str,
        /// The operation.
        op: &'static str,
        /// The reason.
        why: String,
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
    /// The buffers do not fit into memory.
    #[error(
        "no memory for {bytes} bytes of cache: {why}; ask `KvCache::required_bytes` beforehand, or take a smaller CL"
    )]
    Memory {
        /// Bytes asked for in one block.
        bytes: usize,
        /// What the system said.
        why: String,
    },
    /// A worker thread could not be started, or a job on it panicked; the split's rows are lost until `clear`.
    #[error("cache worker: {0}")]
    Worker(String),
}
