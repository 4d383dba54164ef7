//! The attention half of a decoder layer: `x + o_proj(attend(norm(x)))`, and its two cache tensors.
//!
//! *Shapes* for AR = n, CL = m, H heads over Hkv key heads in groups of G, head width d:
//!
//! ```text
//! q [n, H*d] -> [1, n, H, d] (-> norm) -> [1, H, n, d] -> rotate -> [Hkv, G, n, d]     head = kv*G + g
//! k [n, Hkv*d] -> .. -> [1, Hkv, n, d] -> rotate -> [1, Hkv, d, n] -> [Hkv, 1, d, n] = past_key_out
//! v [n, Hkv*d] -> .. -> [1, Hkv, n, d]                            -> [Hkv, 1, n, d] = past_value_out
//! K = past_key_in | past_key_out      [Hkv, 1, d, m]
//! V = past_value_in | past_value_out  [Hkv, 1, m, d]
//! softmax(q K (* c) + mask) V  [Hkv, G, n, d] -> [1, H, n, d] -> [1, n, H, d] -> [1, n, H*d]
//! ```
//!
//! When n == m there is no past: K and V are the new columns alone. `1 / sqrt(d)` is in the weights already, or where it
//! would cost them bits, it is `c`.

use super::Flow;
use super::composer::{Composer, Val};
use super::sink::GraphSink;
use super::weights::{LayerWeights, Linear};
use crate::Result;
use crate::family::ModelSpec;
use genie_types::Variant;

/// What every layer of a graph attends by.
pub(super) struct Steps<T> {
    /// `[1, 1, n, m]`, added to the scores.
    mask: Val<T>,
    /// `[1, n, d/2]`.
    cos: Val<T>,
    /// `[1, n, d/2]`.
    sin: Val<T>,
    /// `[1]`, times the scores; none where the weights hold it.
    scale: Option<Val<T>>,
}

impl<T: Copy + core::fmt::Debug> Steps<T> {
    /// Declares mask and positions as inputs, and what scores are multiplied by, if anything.
    pub(super) fn declare<S: GraphSink<Tensor = T>>(
        spec: &ModelSpec,
        variant: Variant,
        scale: Option<f64>,
        graph: &mut Composer<S>,
    ) -> Result<Self> {
        let (n, m, width) = (variant.ar().get(), variant.cl().get(), spec.rope_dim());
        let dtype = graph.dtype();
        let mask = graph.input("attention_mask", vec![1, 1, n, m], dtype)?;
        let cos = graph.input("position_ids_cos", vec![1, 1, n, width], dtype)?;
        let sin = graph.input("position_ids_sin", vec![1, 1, n, width], dtype)?;
        let cos = graph.reshape("rope_cos", &cos, vec![1, n, width], None)?;
        let sin = graph.reshape("rope_sin", &sin, vec![1, n, width], None)?;
        let scale = scale.map(|scale| graph.scalar("attention_scale", scale as f32)).transpose()?;
        Ok(Self { mask, cos, sin, scale })
    }
}

/// Adds the attention of layer `layer` and gives the new residual stream.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    flow: &mut Flow<S>,
    weights: &LayerWeights<Val<S::Tensor>>,
) -> Result<Val<S::Tensor>> {
    let Flow { variant, graph, x, steps } = flow;
    let steps = steps.as_ref().expect("a piece with layers declares mask and positions");
    let (n, past) = (variant.ar().get(), variant.past_capacity());
    let ModelSpec { n_heads, n_kv_heads, head_dim, .. } = *spec;
    let at = |part: &str| format!("model_layers_{layer}_self_attn_{part}");

    let h = graph.rms_norm(&format!("model_layers_{layer}_input_layernorm"), x, &weights.input_norm, spec.rms_eps)?;
    let h = graph.rows(&at("rows_in"), &h)?;
    let q = project(graph, &at("q"), &h, &weights.q, weights.q_norm.as_ref(), n_heads, spec)?;
    let k = project(graph, &at("k"), &h, &weights.k, weights.k_norm.as_ref(), n_kv_heads, spec)?;
    let v = project(graph, &at("v"), &h, &weights.v, None, n_kv_heads, spec)?;
    let q = graph.rotary(&at("q_rope"), &q, &steps.cos, &steps.sin)?;
    let k = graph.rotary(&at("k_rope"), &k, &steps.cos, &steps.sin)?;

    let k = graph.transpose(&at("k_columns"), &k, [0, 1, 3, 2])?;
    let key_out = format!("past_key_{layer}_out");
    let k = graph.reshape(&at("k_new"), &k, vec![n_kv_heads, 1, head_dim, n], Some(&key_out))?;
    let value_out = format!("past_value_{layer}_out");
    let v = graph.reshape(&at("v_new"), &v, vec![n_kv_heads, 1, n, head_dim], Some(&value_out))?;
    let (k, v) = if past == 0 {
        (k, v)
    } else {
        let dtype = graph.dtype();
        let dims = vec![n_kv_heads, 1, head_dim, past];
        let past_key = graph.input(&format!("past_key_{layer}_in"), dims, dtype)?;
        let dims = vec![n_kv_heads, 1, past, head_dim];
        let past_value = graph.input(&format!("past_value_{layer}_in"), dims, dtype)?;
        (graph.concat(&at("k_all"), &past_key, &k, 3)?, graph.concat(&at("v_all"), &past_value, &v, 2)?)
    };

    let q = graph.reshape(&at("q_groups"), &q, vec![n_kv_heads, spec.group_size(), n, head_dim], None)?;
    let mut scores = graph.matmul(&at("scores"), &q, &k)?;
    if let Some(scale) = &steps.scale {
        scores = graph.mul(&at("scaled"), &scores, scale)?;
    }
    let scores = graph.add(&at("mask"), &scores, &steps.mask, None)?;
    let shares = graph.softmax(&at("softmax"), &scores)?;
    let mixed = graph.matmul(&at("mix"), &shares, &v)?;
    let mixed = graph.reshape(&at("heads"), &mixed, vec![1, n_heads, n, head_dim], None)?;
    let mixed = graph.transpose(&at("rows"), &mixed, [0, 2, 1, 3])?;
    let mixed = graph.reshape(&at("merge"), &mixed, vec![1, n, n_heads * head_dim], None)?;
    let mixed = graph.rows(&at("rows_out"), &mixed)?;
    let o = graph.linear(&at("o_proj"), &mixed, &weights.o.weight, weights.o.bias.as_ref())?;
    let o = graph.reshape(&at("o_rows"), &o, vec![1, n, spec.hidden], None)?;
    graph.add(&at("residual"), x, &o, None)
}

/// Rows `h` to heads `[1, heads, n, d]`, normalised per head where there is a gamma.
fn project<S: GraphSink>(
    graph: &mut Composer<S>,
    node: &str,
    h: &Val<S::Tensor>,
    linear: &Linear<Val<S::Tensor>>,
    gamma: Option<&Val<S::Tensor>>,
    heads: usize,
    spec: &ModelSpec,
) -> Result<Val<S::Tensor>> {
    let n = h.dims[h.dims.len() - 2];
    let mut y = graph.linear(&format!("{node}_proj"), h, &linear.weight, linear.bias.as_ref())?;
    if let Some(gamma) = gamma {
        // A row a head: libQnnHtp 2.51 gives garbage for rank 4, rows narrower than 64 and more than one of them.
        y = graph.reshape(&format!("{node}_norm_rows"), &y, vec![n * heads, spec.head_dim], None)?;
        y = graph.rms_norm(&format!("{node}_norm"), &y, gamma, spec.rms_eps)?;
    }
    let y = graph.reshape(&format!("{node}_split"), &y, vec![1, n, heads, spec.head_dim], None)?;
    graph.transpose(&format!("{node}_heads"), &y, [0, 2, 1, 3])
}
