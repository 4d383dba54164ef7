//! What the lowering needs of a graph under construction.
//!
//! [`qnn_api::GraphBuilder`] is one; the tests' recorder is another, so that what was lowered can be looked at.

use crate::Result;
use genie_types::TensorInfo;

pub(crate) use qnn_api::{Param, TensorKind as Kind};

/// A graph under construction.
pub(crate) trait GraphSink {
    /// Names a tensor of this graph.
    type Tensor: Copy + core::fmt::Debug;

    /// Declares a tensor that a node or the caller fills.
    fn tensor(&mut self, info: &TensorInfo, kind: Kind) -> Result<Self::Tensor>;

    /// Declares a tensor with contents.
    fn constant(&mut self, info: &TensorInfo, bytes: &[u8]) -> Result<Self::Tensor>;

    /// Adds a node of package `qti.aisw`.
    fn node(
        &mut self,
        name: &str,
        op: &str,
        params: &[(&str, Param)],
        inputs: &[Self::Tensor],
        outputs: &[Self::Tensor],
    ) -> Result<()>;
}
