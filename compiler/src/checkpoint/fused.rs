//! Projections that lie in one tensor, as views of their rows under the names that they have in other checkpoints.
//!
//! *Layout*: rows of `qkv_proj` are those of Q, K and V; rows of `gate_up_proj` are those of the gate, then the others.

use super::{Checkpoint, TensorEntry};
use crate::family::{FUSED, ModelSpec};
use crate::{CompileError, Result};

impl Checkpoint {
    /// Puts views of its rows in the place of each tensor that holds several projections.
    ///
    /// # Errors
    /// A tensor of another number of rows.
    pub(crate) fn split_fused(&mut self, spec: &ModelSpec) -> Result<()> {
        let (q, kv) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
        let rows: [&[usize]; 2] = [&[q, kv, kv], &[spec.ffn, spec.ffn]];
        for layer in 0..spec.n_layers {
            for ((whole, parts), rows) in FUSED.iter().zip(rows) {
                let name = format!("model.layers.{layer}.{whole}.weight");
                let Some(entry) = self.tensors.remove(&name) else { continue };
                let expected = [rows.iter().sum(), spec.hidden];
                if entry.dims != expected {
                    return Err(CompileError::WrongShape { name, expected: expected.into(), found: entry.dims });
                }
                let row_bytes = entry.bytes / entry.dims[0] as u64;
                let mut offset = entry.offset;
                for (part, &n) in parts.iter().zip(rows) {
                    let view = TensorEntry {
                        dims: vec![n, spec.hidden],
                        offset,
                        bytes: n as u64 * row_bytes,
                        ..entry.clone()
                    };
                    offset += view.bytes;
                    self.tensors.insert(format!("model.layers.{layer}.{part}.weight"), view);
                }
            }
        }
        self.fused = true;
        Ok(())
    }
}
