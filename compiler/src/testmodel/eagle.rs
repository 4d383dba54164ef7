//! Random EAGLE heads for a random model.

use super::random::Noise;
use super::{TestModel, files};
use crate::Result;
use crate::checkpoint::file_header;
use std::path::Path;

/// A head of one layer, as its authors store it: no LM head, no last norm, no norm before attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestEagle {
    /// It passes the target's hidden state through unchanged, so that its logits are the target's of the token before.
    pub passes_through: bool,
    /// The projection has a bias.
    pub fc_bias: bool,
    /// It has a copy of the embedding.
    pub with_table: bool,
    /// Seed of the random weights.
    pub seed: u64,
}

impl Default for TestEagle {
    fn default() -> Self {
        Self { passes_through: false, fc_bias: true, with_table: false, seed: 5 }
    }
}

impl TestEagle {
    /// Writes `config.json` and `model.safetensors` into `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn write(&self, model: &TestModel, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(crate::fs::io_err("create", dir))?;
        files::write_configs(&TestModel { layers: 1, ..model.clone() }, dir)?;
        let (hidden, ffn) = (model.hidden, model.ffn);
        let (q, kv) = (model.heads * model.head_dim, model.kv_heads * model.head_dim);
        let mut tensors: Vec<(&str, Vec<usize>)> = vec![
            ("fc.weight", vec![hidden, 2 * hidden]),
            ("layers.0.self_attn.q_proj.weight", vec![q, hidden]),
            ("layers.0.self_attn.k_proj.weight", vec![kv, hidden]),
            ("layers.0.self_attn.v_proj.weight", vec![kv, hidden]),
            ("layers.0.self_attn.o_proj.weight", vec![hidden, q]),
            ("layers.0.post_attention_layernorm.weight", vec![hidden]),
            ("layers.0.mlp.gate_proj.weight", vec![ffn, hidden]),
            ("layers.0.mlp.up_proj.weight", vec![ffn, hidden]),
            ("layers.0.mlp.down_proj.weight", vec![hidden, ffn]),
        ];
        if self.fc_bias {
            tensors.push(("fc.bias", vec![hidden]));
        }
        if self.with_table {
            tensors.push(("embed_tokens.weight", vec![model.vocab, hidden]));
        }
        let header = file_header("F32", 4, tensors.iter().map(|(name, dims)| (*name, dims.as_slice())));
        let written = file_io::write(&dir.join("model.safetensors"), |out| {
            out.write_all(&header)?;
            for (name, dims) in &tensors {
                for value in self.values(name, dims) {
                    out.write_all(&value.to_le_bytes())?;
                }
            }
            Ok(())
        });
        Ok(written?)
    }

    fn values(&self, name: &str, dims: &[usize]) -> Vec<f32> {
        let (n, inner) = (dims.iter().product(), dims[dims.len() - 1]);
        if self.passes_through {
            match name {
                "fc.weight" => {
                    return (0..n).map(|i| if i % inner == inner / 2 + i / inner { 1.0 } else { 0.0 }).collect();
                }
                "fc.bias" => return vec![0.0; n],
                _ if name.contains("o_proj") || name.contains("down_proj") => return vec![0.0; n],
                _ => {}
            }
        }
        let mut noise = Noise::new(self.seed, name);
        let (mean, deviation) =
            if name.contains("layernorm") { (1.0, 0.1) } else { (0.0, 1.0 / (inner as f32).sqrt()) };
        (0..n).map(|_| mean + deviation * noise.draw()).collect()
    }
}
