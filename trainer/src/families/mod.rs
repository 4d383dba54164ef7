//! The forward passes: tokens `[n, context]` to logits `[n * context, vocabulary]`, and the loss.

mod gpt2;
mod llama;

use candle_core::{D, Device, Tensor};
use serde_json::Value;

use crate::error::Result;
use crate::options::{Family, TrainOptions};
use crate::parameters::{Parameters, Weight};

/// Deviation of first weights.
const DEVIATION: f32 = 0.02;
/// What masked scores get.
const MASKED: f32 = -1e9;

/// A model's extents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    family: Family,
    layers: usize,
    width: usize,
    heads: usize,
    kv_heads: usize,
    context: usize,
    vocab: usize,
}

impl Extents {
    pub(crate) fn new(options: &TrainOptions, vocab: usize) -> Self {
        let &TrainOptions { family, layers, width, heads, kv_heads, context, .. } = options;
        Self { family, layers, width, heads, kv_heads, context, vocab }
    }

    fn head_dim(&self) -> usize {
        self.width / self.heads
    }

    /// Deviation of the matrices that add to the hidden row: there are two in each layer.
    fn residual_deviation(&self) -> f32 {
        DEVIATION / (2.0 * self.layers as f32).sqrt()
    }

    /// All weights, as Hugging Face names them.
    pub(crate) fn weights(&self) -> Vec<Weight> {
        match self.family {
            Family::Gpt2 => gpt2::weights(self),
            Family::Llama => llama::weights(self),
        }
    }

    /// `config.json`.
    pub(crate) fn config(&self) -> Value {
        match self.family {
            Family::Gpt2 => gpt2::config(self),
            Family::Llama => llama::config(self),
        }
    }

    fn logits(&self, parameters: &Parameters, ids: &Tensor) -> Result<Tensor> {
        match self.family {
            Family::Gpt2 => gpt2::logits(self, parameters, ids),
            Family::Llama => llama::logits(self, parameters, ids),
        }
    }

    /// Mean of the negative log probabilities of `targets`.
    pub(crate) fn loss(&self, parameters: &Parameters, inputs: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let logits = self.logits(parameters, inputs)?;
        let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?;
        let log_sum = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
        let targets = targets.flatten_all()?.unsqueeze(1)?;
        Ok((log_sum - shifted.gather(&targets, 1)?)?.mean_all()?)
    }

    /// Softmax of masked scores, times the values: `q`, `k`, `v` are `[n, heads, context, head_dim]`.
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (_, _, rows, head_dim) = q.dims4()?;
        let scores = (q.contiguous()?.matmul(&k.t()?.contiguous()?)? / (head_dim as f64).sqrt())?;
        let mask: Vec<f32> = (0..rows * rows).map(|i| if i % rows > i / rows { MASKED } else { 0.0 }).collect();
        let scores = scores.broadcast_add(&Tensor::from_vec(mask, (rows, rows), &Device::Cpu)?)?;
        let exps = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?.exp()?;
        let weights = exps.broadcast_div(&exps.sum_keepdim(D::Minus1)?)?;
        Ok(weights.matmul(&v.contiguous()?)?)
    }

    /// Rows `[n * context, heads * head_dim]` as `[n, heads, context, head_dim]`.
    fn split_heads(&self, rows: &Tensor, n: usize, heads: usize) -> Result<Tensor> {
        Ok(rows.reshape((n, rows.dim(0)? / n, heads, self.head_dim()))?.transpose(1, 2)?.contiguous()?)
    }

    /// The other way.
    fn join_heads(&self, heads: &Tensor) -> Result<Tensor> {
        let (n, _, rows, _) = heads.dims4()?;
        Ok(heads.transpose(1, 2)?.contiguous()?.reshape((n * rows, self.width))?)
    }
}

/// Rows of a table.
fn look_up(table: &Tensor, ids: &Tensor) -> Result<Tensor> {
    Ok(table.index_select(&ids.flatten_all()?, 0)?)
}
