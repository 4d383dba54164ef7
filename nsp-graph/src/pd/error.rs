//! Every way to break the contract of fused graphs, one variant each.

use crate::error::{GraphAt, Near};

/// Why graphs with `fusion_ctrl` are no fused pair.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // fields say what the message says
pub enum PairError {
    /// The two kinds belong together.
    #[error(
        "{at} takes a prompt's chunk and a decode row, but no graph takes a decode row alone (expected one like `model.0.s1`)"
    )]
    NoSingle { at: GraphAt },
    /// The other way round.
    #[error("{at} takes a decode row alone, but no graph has input `fusion_ctrl` (expected one like `model.0.pd.s32`)")]
    NoPair { at: GraphAt },
    /// Two graphs of one width.
    #[error("{at} takes {rows} rows, as `{other}` does")]
    Twice { at: GraphAt, rows: usize, other: Box<str> },
    /// A tensor that must be there is not.
    #[error("{at} has no {what} `{tensor}`{near}")]
    Missing { at: GraphAt, what: &'static str, tensor: Box<str>, near: Near },
    /// A slot without its other half: keys without values, one request without the other, pasts without new rows.
    #[error("{at} has `{tensor}` but not its partner `{partner}`")]
    Unpaired { at: GraphAt, tensor: Box<str>, partner: Box<str> },
    /// An input that no part of the engine fills, or an output that none reads.
    #[error("{at}: nothing is known of {what} `{tensor}`{near}")]
    Unknown { at: GraphAt, what: &'static str, tensor: Box<str>, near: Near },
    /// Another shape than N, CL and the contract ask for.
    #[error("{at}: tensor `{tensor}` has shape {found:?}, expected {expected}")]
    Shape { at: GraphAt, tensor: Box<str>, expected: Box<str>, found: Box<[usize]> },
    /// Keys with the sequence before the head's dimensions.
    #[error("{at}: keys `{tensor}` lie row by row, {found:?}, expected {expected:?} with the sequence last")]
    KeysByRow { at: GraphAt, tensor: Box<str>, expected: Box<[usize]>, found: Box<[usize]> },
    /// An element type that cannot carry the role.
    #[error("{at}: tensor `{tensor}` is {found}, expected {expected}")]
    Dtype { at: GraphAt, tensor: Box<str>, expected: &'static str, found: genie_types::Dtype },
    /// Something that all graphs must have in common.
    #[error("{at}: {what} is {found}, but {expected} in `{other}`")]
    Differs { at: GraphAt, what: Box<str>, expected: Box<str>, found: Box<str>, other: Box<str> },
    /// Only some graphs write new rows into the past.
    #[error("{at} {found}, but `{other}` does not: all graphs update the cache, or none")]
    Updates { at: GraphAt, found: &'static str, other: Box<str> },
}
