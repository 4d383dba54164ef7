//! QNN's error numbers, by QNN's names without the prefix, and the number of each [`Error`](enum@super::Error).
#![expect(missing_docs, reason = "the names are QNN's")]

use super::{Component, Error};
use crate::container::FormatError;
use crate::graph::ExecError;

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
pub const CONTEXT_ABORTED: u64 = qnn_sys::QNN_CONTEXT_ERROR_ABORTED as u64;
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

impl Error {
    /// The number a C client gets.
    pub fn code(&self) -> u64 {
        use Component as C;
        match self {
            Self::InvalidHandle { component, .. } => match component {
                C::Backend => BACKEND_INVALID_HANDLE,
                C::Context => CONTEXT_INVALID_HANDLE,
                C::Graph => GRAPH_INVALID_HANDLE,
                C::Tensor => TENSOR_INVALID_HANDLE,
                C::Mem => MEM_INVALID_HANDLE,
                C::Log => LOG_INVALID_HANDLE,
                C::Profile => PROFILE_INVALID_HANDLE,
                C::Device => DEVICE_INVALID_HANDLE,
                C::Power => POWER_INVALID_INPUT,
                C::Signal => SIGNAL_INVALID_HANDLE,
                C::Message => ERROR_INVALID_ERROR_HANDLE,
                C::System => SYSTEM_INVALID_HANDLE,
            },
            Self::Null { component, .. } | Self::Argument { component, .. } => match component {
                C::Backend => BACKEND_INVALID_ARGUMENT,
                C::Context => CONTEXT_INVALID_ARGUMENT,
                C::Graph => GRAPH_INVALID_ARGUMENT,
                C::Tensor => TENSOR_INVALID_PARAM,
                C::Mem => MEM_INVALID_ARGUMENT,
                C::Log => LOG_INVALID_ARGUMENT,
                C::Signal => SIGNAL_INVALID_ARGUMENT,
                C::Message => ERROR_INVALID_ARGUMENT,
                C::System => SYSTEM_INVALID_ARGUMENT,
                C::Power => POWER_INVALID_INPUT,
                C::Profile | C::Device => COMMON_INVALID_ARGUMENT,
            },
            Self::Config { component, .. } => match component {
                C::Backend => BACKEND_INVALID_CONFIG,
                C::Context => CONTEXT_INVALID_CONFIG,
                C::Graph => GRAPH_INVALID_ARGUMENT,
                C::Device => DEVICE_INVALID_CONFIG,
                C::Power => POWER_UNSUPPORTED_CONFIG,
                C::Tensor | C::Mem | C::Log | C::Profile | C::Signal | C::Message | C::System => {
                    COMMON_INVALID_ARGUMENT
                }
            },
            Self::Unsupported { component, .. } => match component {
                C::Backend => BACKEND_NOT_SUPPORTED,
                C::Tensor => TENSOR_UNSUPPORTED_PARAM,
                C::Mem => MEM_UNSUPPORTED_MEMTYPE,
                C::Power => POWER_UNSUPPORTED,
                C::Context | C::Graph | C::Log | C::Profile | C::Device | C::Signal | C::Message | C::System => {
                    COMMON_NOT_SUPPORTED
                }
            },
            Self::MemType { .. } => MEM_UNSUPPORTED_MEMTYPE,
            Self::MemMap { .. } => MEM_MAPPING,
            Self::TensorExists { .. } => TENSOR_ALREADY_EXISTS,
            Self::NoSuchTensor { .. } => GRAPH_INVALID_TENSOR,
            Self::TensorParam(_) => TENSOR_INVALID_PARAM,
            Self::TensorUpdate { .. } => TENSOR_INCOMPATIBLE_UPDATE,
            Self::GraphName { .. } => GRAPH_INVALID_NAME,
            Self::NoSuchGraph { .. } => GRAPH_DOES_NOT_EXIST,
            Self::Node(_) => GRAPH_INVALID_OP_CONFIG,
            Self::OpConfig(_) => OP_PACKAGE_VALIDATION_FAILURE,
            Self::Unconnected(_) => GRAPH_UNCONNECTED_NODE,
            Self::InvalidTensor { .. } => GRAPH_INVALID_TENSOR,
            Self::Finalized { .. } => GRAPH_FINALIZED,
            Self::NotFinalized { .. } => GRAPH_NOT_FINALIZED,
            Self::ContextNotFinalized { .. } => CONTEXT_NOT_FINALIZED,
            Self::QueueFull { .. } => GRAPH_QUEUE_FULL,
            Self::Aborted { .. } => GRAPH_ABORTED,
            Self::Finalize { .. } => GRAPH_FINALIZE_FAILED,
            Self::OpPackage(error) => error.code(),
            Self::Execute { source, .. } => match **source {
                // The package's own number, where it is one of QNN's.
                ExecError::Package { code: code @ 1000..=3999, .. } => code,
                _ => COMMON_GENERAL,
            },
            Self::Panic { .. } => COMMON_GENERAL,
            Self::Stopped { .. } | Self::Binary(FormatError::Stopped) => CONTEXT_ABORTED,
            Self::Binary(FormatError::Newer { .. }) => CONTEXT_BINARY_VERSION,
            Self::Binary(_) => CONTEXT_CREATE_FROM_BINARY,
            Self::SystemBinary(_) => SYSTEM_MALFORMED_BINARY,
            Self::Thread(_) => COMMON_SYSTEM,
        }
    }
}
