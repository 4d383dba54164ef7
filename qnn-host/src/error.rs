//! Everything that can go wrong behind the table, and the QNN number each answers with.
//!
//! The mapping in [`Error::code`] is one exhaustive match, so a new error cannot be forgotten there.

use thiserror::Error;

use crate::container::FormatError;
use crate::exec::ExecError;
use crate::validate::Violation;

/// The part of the API a call belongs to; QNN numbers the same mistake differently in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of QNN's components say it")]
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
        /// What was asked for.
        what: String,
    },
    /// A memory type that cannot be registered.
    #[error("memory type {found} is not supported, expected DMA_BUF (3) with a data pointer, or ION (1) with a file")]
    MemType {
        /// The type's number.
        found: u32,
    },
    /// Memory could not be mapped.
    #[error("cannot map {bytes} bytes of file descriptor {fd}")]
    MemMap {
        /// The client's file descriptor.
        fd: i32,
        /// Size asked for.
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
    /// A tensor id that the graph does not know.
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
        /// The name asked for.
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
    /// Bytes are not a context binary.
    #[error("{}", chain(.0))]
    Binary(FormatError),
    /// Bytes are not a context binary, found by the system interface.
    #[error("{}", chain(.0))]
    SystemBinary(FormatError),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// A bug of this backend, caught at the edge.
    #[error("the host backend panicked: {message}")]
    Panic {
        /// What it said.
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

/// Numbers of QNN, by QNN's names without the prefix.
pub mod code {
    #![expect(missing_docs, reason = "the names are QNN's")]
    pub const COMMON_NOT_SUPPORTED: u64 = qnn_sys::QNN_COMMON_ERROR_NOT_SUPPORTED as u64;
    pub const COMMON_MEM_ALLOC: u64 = qnn_sys::QNN_COMMON_ERROR_MEM_ALLOC as u64;
    pub const COMMON_SYSTEM: u64 = qnn_sys::QNN_COMMON_ERROR_SYSTEM as u64;
    pub const COMMON_INVALID_ARGUMENT: u64 = qnn_sys::QNN_COMMON_ERROR_INVALID_ARGUMENT as u64;
    pub const COMMON_GENERAL: u64 = qnn_sys::QNN_COMMON_ERROR_GENERAL as u64;
    pub const PROPERTY_UNKNOWN_KEY: u64 = qnn_sys::QNN_PROPERTY_ERROR_UNKNOWN_KEY as u64;
    pub const OP_PACKAGE_VALIDATION_FAILURE: u64 = qnn_sys::QNN_OP_PACKAGE_ERROR_VALIDATION_FAILURE as u64;
    pub const BACKEND_NOT_SUPPORTED: u64 = qnn_sys::QNN_BACKEND_ERROR_NOT_SUPPORTED as u64;
    pub const BACKEND_INVALID_ARGUMENT: u64 = qnn_sys::QNN_BACKEND_ERROR_INVALID_ARGUMENT as u64;
    pub const BACKEND_INVALID_HANDLE: u64 = qnn_sys::QNN_BACKEND_ERROR_INVALID_HANDLE as u64;
    pub const BACKEND_INVALID_CONFIG: u64 = qnn_sys::QNN_BACKEND_ERROR_INVALID_CONFIG as u64;
    pub const CONTEXT_INVALID_ARGUMENT: u64 = qnn_sys::QNN_CONTEXT_ERROR_INVALID_ARGUMENT as u64;
    pub const CONTEXT_INVALID_HANDLE: u64 = qnn_sys::QNN_CONTEXT_ERROR_INVALID_HANDLE as u64;
    pub const CONTEXT_NOT_FINALIZED: u64 = qnn_sys::QNN_CONTEXT_ERROR_NOT_FINALIZED as u64;
    pub const CONTEXT_BINARY_VERSION: u64 = qnn_sys::QNN_CONTEXT_ERROR_BINARY_VERSION as u64;
    pub const CONTEXT_CREATE_FROM_BINARY: u64 = qnn_sys::QNN_CONTEXT_ERROR_CREATE_FROM_BINARY as u64;
    pub const CONTEXT_INVALID_CONFIG: u64 = qnn_sys::QNN_CONTEXT_ERROR_INVALID_CONFIG as u64;
    pub const GRAPH_INVALID_ARGUMENT: u64 = qnn_sys::QNN_GRAPH_ERROR_INVALID_ARGUMENT as u64;
    pub const GRAPH_INVALID_HANDLE: u64 = qnn_sys::QNN_GRAPH_ERROR_INVALID_HANDLE as u64;
    pub const GRAPH_DOES_NOT_EXIST: u64 = qnn_sys::QNN_GRAPH_ERROR_GRAPH_DOES_NOT_EXIST as u64;
    pub const GRAPH_INVALID_NAME: u64 = qnn_sys::QNN_GRAPH_ERROR_INVALID_NAME as u64;
    pub const GRAPH_INVALID_TENSOR: u64 = qnn_sys::QNN_GRAPH_ERROR_INVALID_TENSOR as u64;
    pub const GRAPH_INVALID_OP_CONFIG: u64 = qnn_sys::QNN_GRAPH_ERROR_INVALID_OP_CONFIG as u64;
    pub const GRAPH_UNCONNECTED_NODE: u64 = qnn_sys::QNN_GRAPH_ERROR_UNCONNECTED_NODE as u64;
    pub const GRAPH_FINALIZE_FAILED: u64 = qnn_sys::QNN_GRAPH_ERROR_FINALIZE_FAILED as u64;
    pub const GRAPH_NOT_FINALIZED: u64 = qnn_sys::QNN_GRAPH_ERROR_GRAPH_NOT_FINALIZED as u64;
    pub const GRAPH_FINALIZED: u64 = qnn_sys::QNN_GRAPH_ERROR_GRAPH_FINALIZED as u64;
    pub const GRAPH_QUEUE_FULL: u64 = qnn_sys::QNN_GRAPH_ERROR_EXECUTION_ASYNC_FIFO_FULL as u64;
    pub const GRAPH_ABORTED: u64 = qnn_sys::QNN_GRAPH_ERROR_ABORTED as u64;
    pub const TENSOR_INVALID_HANDLE: u64 = qnn_sys::QNN_TENSOR_ERROR_INVALID_HANDLE as u64;
    pub const TENSOR_DOES_NOT_EXIST: u64 = qnn_sys::QNN_TENSOR_ERROR_DOES_NOT_EXIST as u64;
    pub const TENSOR_ALREADY_EXISTS: u64 = qnn_sys::QNN_TENSOR_ERROR_ALREADY_EXISTS as u64;
    pub const TENSOR_INVALID_PARAM: u64 = qnn_sys::QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM as u64;
    pub const TENSOR_UNSUPPORTED_PARAM: u64 = qnn_sys::QNN_TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM as u64;
    pub const TENSOR_INCOMPATIBLE_UPDATE: u64 = qnn_sys::QNN_TENSOR_ERROR_INCOMPATIBLE_TENSOR_UPDATE as u64;
    pub const MEM_INVALID_ARGUMENT: u64 = qnn_sys::QNN_MEM_ERROR_INVALID_ARGUMENT as u64;
    pub const MEM_INVALID_HANDLE: u64 = qnn_sys::QNN_MEM_ERROR_INVALID_HANDLE as u64;
    pub const MEM_MAPPING: u64 = qnn_sys::QNN_MEM_ERROR_MAPPING as u64;
    pub const MEM_UNSUPPORTED_MEMTYPE: u64 = qnn_sys::QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE as u64;
    pub const SIGNAL_INVALID_ARGUMENT: u64 = qnn_sys::QNN_SIGNAL_ERROR_INVALID_ARGUMENT as u64;
    pub const SIGNAL_INVALID_HANDLE: u64 = qnn_sys::QNN_SIGNAL_ERROR_INVALID_HANDLE as u64;
    pub const ERROR_INVALID_ARGUMENT: u64 = qnn_sys::QNN_ERROR_INVALID_ARGUMENT as u64;
    pub const ERROR_INVALID_ERROR_HANDLE: u64 = qnn_sys::QNN_ERROR_INVALID_ERROR_HANDLE as u64;
    pub const LOG_INVALID_ARGUMENT: u64 = qnn_sys::QNN_LOG_ERROR_INVALID_ARGUMENT as u64;
    pub const LOG_INVALID_HANDLE: u64 = qnn_sys::QNN_LOG_ERROR_INVALID_HANDLE as u64;
    pub const PROFILE_INVALID_HANDLE: u64 = qnn_sys::QNN_PROFILE_ERROR_INVALID_HANDLE as u64;
    pub const DEVICE_INVALID_HANDLE: u64 = qnn_sys::QNN_DEVICE_ERROR_INVALID_HANDLE as u64;
    pub const DEVICE_INVALID_CONFIG: u64 = qnn_sys::QNN_DEVICE_ERROR_INVALID_CONFIG as u64;
    pub const POWER_INVALID_INPUT: u64 = qnn_sys::QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT as u64;
    pub const POWER_UNSUPPORTED_CONFIG: u64 = qnn_sys::QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNSUPPORTED_CONFIG as u64;
    pub const POWER_UNSUPPORTED: u64 = qnn_sys::QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNSUPPORTED as u64;
    pub const SYSTEM_INVALID_HANDLE: u64 = qnn_sys::QNN_SYSTEM_CONTEXT_ERROR_INVALID_HANDLE as u64;
    pub const SYSTEM_INVALID_ARGUMENT: u64 = qnn_sys::QNN_SYSTEM_CONTEXT_ERROR_INVALID_ARGUMENT as u64;
    pub const SYSTEM_MALFORMED_BINARY: u64 = qnn_sys::QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY as u64;
}

impl Error {
    /// The number a C client gets.
    pub fn code(&self) -> u64 {
        use Component as C;
        match self {
            Self::InvalidHandle { component, .. } => match component {
                C::Backend => code::BACKEND_INVALID_HANDLE,
                C::Context => code::CONTEXT_INVALID_HANDLE,
                C::Graph => code::GRAPH_INVALID_HANDLE,
                C::Tensor => code::TENSOR_INVALID_HANDLE,
                C::Mem => code::MEM_INVALID_HANDLE,
                C::Log => code::LOG_INVALID_HANDLE,
                C::Profile => code::PROFILE_INVALID_HANDLE,
                C::Device => code::DEVICE_INVALID_HANDLE,
                C::Power => code::POWER_INVALID_INPUT,
                C::Signal => code::SIGNAL_INVALID_HANDLE,
                C::Message => code::ERROR_INVALID_ERROR_HANDLE,
                C::System => code::SYSTEM_INVALID_HANDLE,
            },
            Self::Null { component, .. } | Self::Argument { component, .. } => match component {
                C::Backend => code::BACKEND_INVALID_ARGUMENT,
                C::Context => code::CONTEXT_INVALID_ARGUMENT,
                C::Graph => code::GRAPH_INVALID_ARGUMENT,
                C::Tensor => code::TENSOR_INVALID_PARAM,
                C::Mem => code::MEM_INVALID_ARGUMENT,
                C::Log => code::LOG_INVALID_ARGUMENT,
                C::Signal => code::SIGNAL_INVALID_ARGUMENT,
                C::Message => code::ERROR_INVALID_ARGUMENT,
                C::System => code::SYSTEM_INVALID_ARGUMENT,
                C::Power => code::POWER_INVALID_INPUT,
                C::Profile | C::Device => code::COMMON_INVALID_ARGUMENT,
            },
            Self::Config { component, .. } => match component {
                C::Backend => code::BACKEND_INVALID_CONFIG,
                C::Context => code::CONTEXT_INVALID_CONFIG,
                C::Graph => code::GRAPH_INVALID_ARGUMENT,
                C::Device => code::DEVICE_INVALID_CONFIG,
                C::Power => code::POWER_UNSUPPORTED_CONFIG,
                C::Tensor | C::Mem | C::Log | C::Profile | C::Signal | C::Message | C::System => {
                    code::COMMON_INVALID_ARGUMENT
                }
            },
            Self::Unsupported { component, .. } => match component {
                C::Backend => code::BACKEND_NOT_SUPPORTED,
                C::Tensor => code::TENSOR_UNSUPPORTED_PARAM,
                C::Mem => code::MEM_UNSUPPORTED_MEMTYPE,
                C::Power => code::POWER_UNSUPPORTED,
                C::Context | C::Graph | C::Log | C::Profile | C::Device | C::Signal | C::Message | C::System => {
                    code::COMMON_NOT_SUPPORTED
                }
            },
            Self::MemType { .. } => code::MEM_UNSUPPORTED_MEMTYPE,
            Self::MemMap { .. } => code::MEM_MAPPING,
            Self::TensorExists { .. } => code::TENSOR_ALREADY_EXISTS,
            Self::NoSuchTensor { .. } => code::GRAPH_INVALID_TENSOR,
            Self::TensorParam(_) => code::TENSOR_INVALID_PARAM,
            Self::TensorUpdate { .. } => code::TENSOR_INCOMPATIBLE_UPDATE,
            Self::GraphName { .. } => code::GRAPH_INVALID_NAME,
            Self::NoSuchGraph { .. } => code::GRAPH_DOES_NOT_EXIST,
            Self::Node(_) => code::GRAPH_INVALID_OP_CONFIG,
            Self::OpConfig(_) => code::OP_PACKAGE_VALIDATION_FAILURE,
            Self::Unconnected(_) => code::GRAPH_UNCONNECTED_NODE,
            Self::InvalidTensor { .. } => code::GRAPH_INVALID_TENSOR,
            Self::Finalized { .. } => code::GRAPH_FINALIZED,
            Self::NotFinalized { .. } => code::GRAPH_NOT_FINALIZED,
            Self::ContextNotFinalized { .. } => code::CONTEXT_NOT_FINALIZED,
            Self::QueueFull { .. } => code::GRAPH_QUEUE_FULL,
            Self::Aborted { .. } => code::GRAPH_ABORTED,
            Self::Finalize { .. } => code::GRAPH_FINALIZE_FAILED,
            Self::Execute { .. } | Self::Panic { .. } => code::COMMON_GENERAL,
            Self::Binary(FormatError::Newer { .. }) => code::CONTEXT_BINARY_VERSION,
            Self::Binary(_) => code::CONTEXT_CREATE_FROM_BINARY,
            Self::SystemBinary(_) => code::SYSTEM_MALFORMED_BINARY,
            Self::Thread(_) => code::COMMON_SYSTEM,
        }
    }
}
