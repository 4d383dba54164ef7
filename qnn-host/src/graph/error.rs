//! What can go wrong while a graph is checked, prepared or run.

use std::fmt;

use thiserror::Error;

use crate::ir;

/// A failure that names the thing, what was expected and what was found.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ExecError {
    /// A node breaks a rule of its op.
    #[error(transparent)]
    Node(#[from] Violation),
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
    /// A function of an op package failed.
    #[error("node `{node}`: `{call}` of `{op}` failed with {code} ({})", qnn_sys::error::name(*code))]
    Package {
        /// The node.
        node: String,
        /// Its op, with the package; empty when the node's name must do.
        op: String,
        /// The function.
        call: &'static str,
        /// What it returned.
        code: u64,
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

/// A rule that a node or tensor breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct Violation {
    /// Name of the node; empty when a tensor on its own is at fault.
    pub node: Box<str>,
    /// The node's op type.
    pub op: Box<str>,
    /// The operand, parameter or tensor at fault.
    pub subject: Box<str>,
    /// What the rule requires.
    pub expected: Box<str>,
    /// What is there.
    pub found: Box<str>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.node.is_empty() || !self.op.is_empty() {
            write!(f, "node `{}` ({}), ", self.node, self.op)?;
        }
        write!(f, "{}: expected {}, found {}", self.subject, self.expected, self.found)
    }
}

impl Violation {
    /// Of a node.
    pub(crate) fn of_node(
        node: &ir::Node,
        subject: &str,
        expected: impl Into<Box<str>>,
        found: impl Into<Box<str>>,
    ) -> Self {
        Self {
            node: node.name.as_str().into(),
            op: node.op.as_str().into(),
            subject: subject.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// Of a tensor or a graph.
    pub(crate) fn of(subject: String, expected: impl Into<Box<str>>, found: impl Into<Box<str>>) -> Self {
        let subject = subject.into();
        Self { node: "".into(), op: "".into(), subject, expected: expected.into(), found: found.into() }
    }
}
