//! What can go wrong while a graph is prepared or run.

use thiserror::Error;

/// A failure that names the thing, what was expected and what was found.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ExecError {
    /// The host has no such operation, or not with these operands.
    #[error("node `{node}`: `{op}` is not supported here: {why}")]
    Unsupported {
        /// The node.
        node: String,
        /// Its op type.
        op: String,
        /// What is missing.
        why: String,
    },
    /// A node contradicts its operands or parameters.
    #[error("node `{node}` (`{op}`): {what}: expected {expected}, found {found}")]
    Node {
        /// The node.
        node: String,
        /// Its op type.
        op: String,
        /// The operand or parameter.
        what: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The graph as a whole does not hang together.
    #[error("graph `{graph}`: {what}")]
    Graph {
        /// The graph.
        graph: String,
        /// What is wrong.
        what: String,
    },
    /// An index read at run time lies outside of the tensor it indexes.
    #[error("node `{node}`: index {index} is out of range 0..{limit}")]
    Index {
        /// The node.
        node: String,
        /// The index found.
        index: i64,
        /// The extent of the indexed axis.
        limit: usize,
    },
    /// The client gave too few or too many buffers.
    #[error("{direction} buffers: expected {expected}, found {found}")]
    BufferCount {
        /// `input` or `output`.
        direction: &'static str,
        /// As many as the graph has.
        expected: usize,
        /// As many as were given.
        found: usize,
    },
    /// A client buffer has the wrong size.
    #[error("buffer of tensor `{tensor}`: expected {expected} bytes, found {found}")]
    BufferSize {
        /// The tensor.
        tensor: String,
        /// Bytes it needs.
        expected: usize,
        /// Bytes it got.
        found: usize,
    },
}
