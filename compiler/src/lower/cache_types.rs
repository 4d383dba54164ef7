//! Types of cache tensors: the graph's floats, or 8-bit codes with one scale for each tensor.
//!
//! ```text
//! new rows (floats) ─ Reshape ─ Convert ─► output, codes ─ Dequantize ─► floats that attention sees
//! past, codes ─ Dequantize ─► floats that attention sees
//! ```
//!
//! *Invariant*: attention sees what the codes stand for, of new rows as of past ones, so that a row is the same while it is new and
//! when it is past, whatever the width of the step that made it.

use super::composer::{Composer, TensorValue};
use super::sink::{GraphSink, Kind};
use crate::Result;
use crate::kv_peaks::KvPeaks;
use genie_types::{Dtype, KvKind, Quant, TensorInfo};

/// Types of all cache tensors of a graph.
#[derive(Clone)]
pub(super) enum CacheTypes {
    /// The graph's floats.
    Floats(Dtype),
    /// Codes.
    Codes(KvPeaks),
}

impl CacheTypes {
    /// Codes where there are peaks.
    pub(super) fn of(dtype: Dtype, peaks: Option<&KvPeaks>) -> Self {
        peaks.map_or(Self::Floats(dtype), |peaks| Self::Codes(peaks.clone()))
    }

    /// Of keys or values of a layer.
    pub(super) fn get(&self, kind: KvKind, layer: usize) -> CacheType {
        match self {
            Self::Floats(dtype) => CacheType { dtype: *dtype, quant: Quant::None },
            Self::Codes(peaks) => CacheType { dtype: Dtype::UFixed8, quant: peaks.encoding(kind, layer) },
        }
    }
}

/// Of one cache tensor.
#[derive(Clone)]
pub(super) struct CacheType {
    dtype: Dtype,
    quant: Quant,
}

impl CacheType {
    /// A tensor of this type.
    pub(super) fn info(&self, name: &str, dims: &[usize]) -> TensorInfo {
        TensorInfo::new(name, dims.to_vec(), self.dtype).with_quant(self.quant.clone())
    }

    /// True for the graph's floats.
    pub(super) fn is_float(&self) -> bool {
        self.dtype.is_float()
    }

    /// New rows under other extents, as an output of the graph; `node` makes it.
    pub(super) fn output<S: GraphSink>(
        &self,
        graph: &mut Composer<S>,
        node: &str,
        rows: &TensorValue<S::Tensor>,
        dims: Vec<usize>,
        name: &str,
    ) -> Result<TensorValue<S::Tensor>> {
        if self.is_float() {
            return graph.reshape(node, rows, dims, Some(name));
        }
        let info = self.info(name, &dims);
        let rows = graph.reshape(node, rows, dims, None)?;
        graph.described_op((&format!("{node}_codes"), "Convert"), &[], &[&rows], &info, Kind::Output)
    }

    /// What rows stand for, as floats of the graph; `node` makes them from codes.
    pub(super) fn floats<S: GraphSink>(
        &self,
        graph: &mut Composer<S>,
        node: &str,
        rows: &TensorValue<S::Tensor>,
    ) -> Result<TensorValue<S::Tensor>> {
        if self.is_float() { Ok(rows.clone()) } else { graph.dequantise(node, rows) }
    }
}
