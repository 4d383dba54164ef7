//! The interface of a graph under construction.
//!
//! Implemented by [`qnn_api::GraphBuilder`], and in tests by a recorder.

use crate::{Progress, Result};
use genie_types::TensorInfo;

pub(crate) use qnn_api::{Param, TensorKind as Kind};

/// A graph under construction.
pub(crate) trait GraphSink {
    /// Handle of a tensor of this graph.
    type Tensor: Copy + core::fmt::Debug;

    /// Declares a tensor that a node or the caller fills.
    fn tensor(&mut self, info: &TensorInfo, kind: Kind) -> Result<Self::Tensor>;

    /// Declares a tensor with contents.
    fn constant(&mut self, info: &TensorInfo, bytes: &[u8]) -> Result<Self::Tensor>;

    /// The same with contents that may be large; `progress` is asked in the middle where the target can be stopped there.
    fn weight(&mut self, info: &TensorInfo, bytes: &[u8], progress: &dyn Progress) -> Result<Self::Tensor> {
        let _ = progress;
        self.constant(info, bytes)
    }

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
