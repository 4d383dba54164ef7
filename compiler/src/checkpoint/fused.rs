//! Projections that lie in one tensor, as views of their rows under the names that they have in other checkpoints.
//!
//! *Layout*: rows of `qkv_proj` are those of Q, K and V; rows of `gate_up_proj` are those of the gate, then the others. Biases lie
//! likewise. Where rows are columns of a stored matrix ([`super::Columns`]), so are those of its parts.

use super::{Checkpoint, Columns, TensorEntry};
use crate::family::ModelSpec;
use crate::{CompileError, Result};

impl Checkpoint {
    /// Puts views of its rows in the place of each tensor that holds several projections.
    ///
    /// # Errors
    /// A tensor of another number of rows.
    pub(crate) fn split_fused(&mut self, spec: &ModelSpec) -> Result<()> {
        let (q, kv) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
        self.fused = spec.family.info().fused;
        for layer in 0..spec.n_layers {
            for (whole, parts) in self.fused {
                let rows = if parts.len() == 3 { vec![q, kv, kv] } else { vec![spec.ffn; parts.len()] };
                for (end, inner) in [("weight", vec![spec.hidden]), ("bias", vec![])] {
                    let name = format!("model.layers.{layer}.{whole}.{end}");
                    if end == "bias" && !spec.biases.qkv {
                        continue; // It is left over, and named by the error about that.
                    }
                    let Some(entry) = self.tensors.remove(&name) else { continue };
                    let expected = [vec![rows.iter().sum()], inner.clone()].concat();
                    if entry.dims != expected {
                        let error = CompileError::WrongShape { name, expected, found: entry.dims };
                        return Err(self.in_stored_words(error));
                    }
                    entry.check_is_no_list_of_blocks(&name).map_err(|error| self.in_stored_words(error))?;
                    let row_bytes = entry.bytes / entry.dims[0] as u64;
                    let mut first = 0;
                    for (part, &n) in parts.iter().zip(&rows) {
                        let offset = if entry.columns.is_some() { 0 } else { first as u64 * row_bytes };
                        let view = TensorEntry {
                            dims: [vec![n], inner.clone()].concat(),
                            offset: entry.offset + offset,
                            bytes: n as u64 * row_bytes,
                            columns: entry.columns.map(|columns| Columns { first: columns.first + first, ..columns }),
                            ..entry.clone()
                        };
                        first += n;
                        self.put(&name, format!("model.layers.{layer}.{part}.{end}"), view)?;
                    }
                }
            }
        }
        Ok(())
    }
}
