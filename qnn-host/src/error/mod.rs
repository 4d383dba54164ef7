//! Everything that can go wrong behind the table, and the QNN number of each.
//!
//! The mapping in [`Error::code`] is one exhaustive match, so a new error cannot be forgotten there.

pub mod code;

use thiserror::Error;

use crate::container::FormatError;
use crate::graph::ExecError;
use crate::graph::Violation;
use crate::package::PackageError;

/// The part of the API a call belongs to; QNN numbers the same mistake differently in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of QNN's components")]
pub enum Component {
    Backend,
    Context,
    Graph,
    Tensor,
    Mem,
    Log,
    Profile,
    Device,
    /// Votes for clocks and power.
    Power,
    Signal,
    Message,
    System,
}

/// A failed call.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A handle that is null, freed, of another kind, or was never given out.
    #[error("expected a live {component:?} handle, found {found:#x}")]
    InvalidHandle {
        /// Whose handle.
        component: Component,
        /// Its bits.
        found: usize,
    },
    /// A pointer that must not be null.
    #[error("expected `{what}` to point to something, found null")]
    Null {
        /// Part of the API.
        component: Component,
        /// The argument.
        what: &'static str,
    },
    /// An argument with an impossible value.
    #[error("{what}")]
    Argument {
        /// Part of the API.
        component: Component,
        /// Expected and found.
        what: String,
    },
    /// A config option that is unknown or has an impossible value.
    #[error("config option {option}: {what}")]
    Config {
        /// Part of the API.
        component: Component,
        /// Its number.
        option: u32,
        /// Expected and found.
        what: String,
    },
    /// Something of the API that this backend does not do.
    #[error("not supported by the host backend: {what}")]
    Unsupported {
        /// Part of the API.
        component: Component,
        /// The unsupported feature.
        what: String,
    },
    /// A memory type that cannot be registered.
    #[error(
        "memory type {found} is not supported, expected DMA_BUF (3) with a data pointer, ION (1) with a file, or CUSTOM (2) with a shared buffer of HTP"
    )]
    MemType {
        /// The type's number.
        found: u32,
    },
    /// Memory could not be mapped.
    #[error("cannot map {bytes} bytes of file descriptor {fd}")]
    MemMap {
        /// The client's file descriptor.
        fd: i32,
        /// Size to map.
        bytes: usize,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A tensor name is taken.
    #[error("graph `{graph}` has a tensor `{tensor}` already")]
    TensorExists {
        /// The graph.
        graph: String,
        /// The tensor.
        tensor: String,
    },
    /// A tensor id that the graph does not have.
    #[error("graph `{graph}`: expected the id of a tensor of the graph, found {id} (`{tensor}`)")]
    NoSuchTensor {
        /// The graph.
        graph: String,
        /// The name that came with the id.
        tensor: String,
        /// The id.
        id: u32,
    },
    /// A tensor description breaks a rule.
    #[error(transparent)]
    TensorParam(Violation),
    /// An update that does not fit the tensor.
    #[error("graph `{graph}`: cannot update tensor `{tensor}`: {what}")]
    TensorUpdate {
        /// The graph.
        graph: String,
        /// The tensor.
        tensor: String,
        /// Expected and found.
        what: String,
    },
    /// A graph name is empty or taken.
    #[error("expected a graph name that is new in the context, found `{name}`")]
    GraphName {
        /// The name.
        name: String,
    },
    /// A graph the context does not have.
    #[error("the context has no graph `{name}`; it has {known:?}")]
    NoSuchGraph {
        /// The requested name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A node breaks a rule.
    #[error(transparent)]
    Node(Violation),
    /// An op config handed in for validation breaks a rule.
    #[error(transparent)]
    OpConfig(Violation),
    /// A graph's tensors do not hang together.
    #[error(transparent)]
    Unconnected(Violation),
    /// A buffer of an execution does not fit the graph.
    #[error("graph `{graph}`, tensor `{tensor}`: {what}")]
    InvalidTensor {
        /// The graph.
        graph: String,
        /// The tensor.
        tensor: String,
        /// Expected and found.
        what: String,
    },
    /// A finalized graph cannot be changed.
    #[error("graph `{graph}` is finalized already")]
    Finalized {
        /// The graph.
        graph: String,
    },
    /// A graph must be finalized first.
    #[error("graph `{graph}` is not finalized")]
    NotFinalized {
        /// The graph.
        graph: String,
    },
    /// A context cannot be serialised before all of its graphs are finalized.
    #[error("the context has no binary while graph `{graph}` is not finalized")]
    ContextNotFinalized {
        /// The graph.
        graph: String,
    },
    /// The context was freed while the call waited.
    #[error("graph `{graph}`: its context was freed")]
    Aborted {
        /// The graph.
        graph: String,
    },
    /// Too many executions wait already.
    #[error("graph `{graph}`: expected fewer than {depth} waiting executions, found the queue full")]
    QueueFull {
        /// The graph.
        graph: String,
        /// How many may wait.
        depth: usize,
    },
    /// A graph could not be prepared.
    #[error("graph `{graph}` cannot be finalized: {source}")]
    Finalize {
        /// The graph.
        graph: String,
        /// Why.
        source: Box<ExecError>,
    },
    /// An execution failed.
    #[error("graph `{graph}` failed: {source}")]
    Execute {
        /// The graph.
        graph: String,
        /// Why.
        source: Box<ExecError>,
    },
    /// Who watches a tensor being taken wants an end.
    #[error("tensor `{tensor}` is not taken: stopped on request")]
    Stopped {
        /// The tensor.
        tensor: String,
    },
    /// Bytes are not a context binary.
    #[error("{}", chain(.0))]
    Binary(FormatError),
    /// Bytes are not a context binary, found by the system interface.
    #[error("{}", chain(.0))]
    SystemBinary(FormatError),
    /// An op package cannot be registered.
    #[error(transparent)]
    OpPackage(#[from] PackageError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A bug of this backend, caught at the edge.
    #[error("the host backend panicked, which is a bug of it: {message}")]
    Panic {
        /// Its message.
        message: String,
    },
}

/// A file's error with its causes in one line, since a C client gets only one.
fn chain(error: &FormatError) -> String {
    let mut line = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        line.push_str(": ");
        line.push_str(&next.to_string());
        cause = next.source();
    }
    line
}
