//! The attention half of a decoder layer: `x + o_proj(attend(norm(x)))`, and its two cache tensors.
//!
//! *Shapes* for AR = n, CL = m, H heads over Hkv key heads in groups of G, head width d:
//!
//! ```text
//! q [n, H*d] -> [1, n, H, d] (-> norm) -> [1, H, n, d] -> rotate -> [Hkv, G, n, d]     head = kv*G + g
//! k [n, Hkv*d] -> .. -> [1, Hkv, n, d] -> rotate -> [1, Hkv, d, n] -> [Hkv, 1, d, n] = past_key_out
//! v [n, Hkv*d] -> .. -> [1, Hkv, n, d]                            -> [Hkv, 1, n, d] = past_value_out
//! K = past_key_in | past_key_out      [Hkv, 1, d, m]
//! V = past_value_in | past_value_out  [Hkv, 1, m, d]       with a cache of rows, K is like V: k is not turned, q K^T is computed
//! softmax(q K (* c) + mask) V  [Hkv, G, n, d] -> [1, H, n, d] -> [1, n, H, d] -> [1, n, H*d]
//! ```
//!
//! When n == m there is no past: K and V are the new columns alone. The factor of the scores, `1 / sqrt(d)` for most families, is
//! folded into the weights, or it is `c` where they are in blocks. Bounded scores are `cap * tanh(..)` before the mask is added.
//! Layers with a window may have a mask and cache tensors of their own, with fewer columns than m ([`Windows`]).
//! Of each head the first elements are rotated, as many as the position tables have, in layers that rotate.

use super::block_cache::Divisors;
use super::cache_rows::{self, Slots};
use super::cache_types::CacheTypes;
use super::composer::{Composer, TensorValue};
use super::sink::GraphSink;
use super::weights::{self, LayerWeights};
use super::{LayerBuilder, Source, Split, WINDOW_GROUP, Windows, lora, norm};
use crate::Result;
use crate::family::{LOCAL_TABLES, LocalRope, ModelSpec};
use genie_bundle::manifest::KvCacheType;
use genie_types::Variant;
use nsp_graph::names;

/// Cosines and sines.
pub(super) type Tables<T> = (TensorValue<T>, TensorValue<T>);

/// Inputs of a graph that all its layers share.
pub(super) struct SharedInputs<T> {
    /// `[1, 1, n, m]`, added to the scores; `None` where all layers have another one.
    mask: Option<TensorValue<T>>,
    /// That of layers with a window, where they are a cache group.
    local_mask: Option<TensorValue<T>>,
    pub(super) windows: Windows,
    /// In graphs whose cache rows are in blocks.
    pub(super) blocks: Option<Divisors<T>>,
    /// Keys are `[kv, 1, n, d]`, as values are.
    pub(super) keys_by_row: bool,
    /// Types of cache tensors, where rows are in no blocks.
    pub(super) cache: CacheTypes,
    /// Where new rows go, in graphs that scatter them.
    pub(super) slots: Option<Slots<T>>,
    /// Cosines and sines, `[1, n, r/2]`; `None` where no layer rotates.
    tables: Option<Tables<T>>,
    /// Those of layers with a window, where they have their own.
    local_tables: Option<Tables<T>>,
    /// `[1]`, multiplied into the scores; `None` where it is folded into the weights.
    scale: Option<TensorValue<T>>,
    /// `[1]`, the bound of the scores.
    cap: Option<TensorValue<T>>,
    /// `[1]`, multiplied into what is added to the residual stream; `None` where it is folded into the weights.
    pub(super) residual: Option<TensorValue<T>>,
}

impl<T: Copy + core::fmt::Debug> SharedInputs<T> {
    /// Declares mask and positions as inputs, and the factors that are constants.
    pub(super) fn declare<S: GraphSink<Tensor = T>>(
        spec: &ModelSpec,
        split: &Split,
        (variant, windows): (Variant, Windows),
        Source { format, kinds, kv_peaks, .. }: &Source<'_>,
        graph: &mut Composer<S>,
    ) -> Result<Self> {
        let (format, slots) = (*format, Slots::declare(spec, variant, kinds.cache, graph)?);
        let blocks = match kinds.kv_cache {
            KvCacheType::Plain | KvCacheType::Rows | KvCacheType::U8 => None,
            KvCacheType::Q8_0 => Some(Divisors::declare(graph)?),
        };
        let (n, m, width) = (variant.ar().get(), variant.cl().get(), spec.rope_dim());
        let dtype = graph.dtype();
        let apart = |layer| windows.is_apart(spec, layer);
        let mask = match split.layers.clone().all(apart) {
            true => None,
            false => Some(graph.input(names::ATTENTION_MASK, vec![1, 1, n, m], dtype)?),
        };
        let local_mask = match split.layers.clone().any(apart) {
            true => {
                let name = format!("{WINDOW_GROUP}{}", names::ATTENTION_MASK);
                Some(graph.input(&name, vec![1, 1, n, windows.columns(variant)], dtype)?)
            }
            false => None,
        };
        // Tables that nothing reads are not made: a backend may refuse them.
        let turns = |local: Option<bool>| {
            let mut layers = split.layers.clone().filter(|&layer| spec.rotated_layers[layer]);
            layers.any(|layer| local.is_none_or(|local| spec.is_local(layer) == local))
        };
        let mut inputs = |prefix: &str| {
            let mut input = |name: &str, short: &str| {
                let table = graph.input(&format!("{prefix}{name}"), vec![1, 1, n, width], dtype)?;
                graph.reshape(&format!("{prefix}{short}"), &table, vec![1, n, width], None)
            };
            Ok::<_, crate::CompileError>((
                input(names::POSITION_COS, "rope_cos")?,
                input(names::POSITION_SIN, "rope_sin")?,
            ))
        };
        let (mut tables, mut local_tables) = (None, None);
        match &spec.local_rope {
            None => tables = turns(None).then(|| inputs("")).transpose()?,
            Some(LocalRope::Table { .. }) => {
                tables = turns(Some(false)).then(|| inputs("")).transpose()?;
                local_tables = turns(Some(true)).then(|| inputs(LOCAL_TABLES)).transpose()?;
            }
            Some(LocalRope::Columns { global_step, local_step }) => {
                if turns(None) {
                    let (cos, sin) = inputs("")?;
                    let pairs = spec.rotary_dim / 2;
                    let mut of_step = |name: &str, step: usize| {
                        let cos = graph.columns(&format!("rope_cos_{name}"), &cos, step, pairs)?;
                        let sin = graph.columns(&format!("rope_sin_{name}"), &sin, step, pairs)?;
                        Ok::<_, crate::CompileError>((cos, sin))
                    };
                    tables = turns(Some(false)).then(|| of_step("global", *global_step)).transpose()?;
                    local_tables = turns(Some(true)).then(|| of_step("local", *local_step)).transpose()?;
                }
            }
        }
        let mut constant = |name: &str, value: Option<f64>| value.map(|v| graph.scalar(name, v as f32)).transpose();
        Ok(Self {
            mask,
            blocks,
            keys_by_row: kinds.kv_cache.keys_by_row(),
            cache: CacheTypes::of(dtype, *kv_peaks),
            slots,
            local_mask,
            windows,
            tables,
            local_tables,
            scale: constant("attention_scale", weights::score_scale(spec, format))?,
            cap: constant("attention_cap", spec.factors.scores_cap)?,
            residual: constant("residual_scale", weights::residual_scale(spec, format))?,
        })
    }

    /// For graphs that have their masks and positions otherwise: the tables, and the factors that are constants.
    pub(super) fn with_tables<S: GraphSink<Tensor = T>>(
        spec: &ModelSpec,
        (format, cache): (super::Format, CacheTypes),
        (tables, local_tables): (Option<Tables<T>>, Option<Tables<T>>),
        graph: &mut Composer<S>,
    ) -> Result<Self> {
        let mut constant = |name: &str, value: Option<f64>| value.map(|v| graph.scalar(name, v as f32)).transpose();
        Ok(Self {
            mask: None,
            local_mask: None,
            windows: Windows::Unused,
            blocks: None,
            keys_by_row: false,
            cache,
            slots: None,
            tables,
            local_tables,
            scale: constant("attention_scale", weights::score_scale(spec, format))?,
            cap: constant("attention_cap", spec.factors.scores_cap)?,
            residual: constant("residual_scale", weights::residual_scale(spec, format))?,
        })
    }

    /// Rotates heads `[1, h, n, d]` of a layer if it does.
    pub(super) fn rotate<S: GraphSink<Tensor = T>>(
        &self,
        spec: &ModelSpec,
        layer: usize,
        graph: &mut Composer<S>,
        node: &str,
        heads: TensorValue<T>,
    ) -> Result<TensorValue<T>> {
        let local = spec.local_rope.is_some() && spec.is_local(layer);
        let tables = if local { &self.local_tables } else { &self.tables };
        match tables.as_ref().filter(|_| spec.rotated_layers[layer]) {
            Some((cos, sin)) => graph.rotary(node, &heads, cos, sin),
            None => Ok(heads),
        }
    }
}

/// Adds the attention of layer `layer`; returns the new residual stream.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    builder: &mut LayerBuilder<S>,
    weights: &LayerWeights<TensorValue<S::Tensor>>,
) -> Result<TensorValue<S::Tensor>> {
    let LayerBuilder { variant, graph, x, shared, strengths } = builder;
    let shared = shared.as_ref().expect("a split with layers declares mask and positions");
    let n = variant.ar().get();
    let apart = shared.windows.is_apart(spec, layer);
    let mask = if apart { &shared.local_mask } else { &shared.mask };
    let mask = mask.as_ref().expect("a split declares the masks of its layers");
    let past = mask.dims[3] - n;
    let ModelSpec { n_heads, n_kv_heads, head_dim, .. } = *spec;
    let at = |part: &str| format!("model_layers_{layer}_self_attn_{part}");

    let h = norm::optional(spec, graph, &format!("model_layers_{layer}_"), x, weights.before_attention.as_ref())?;
    let h = graph.rows(&at("rows_in"), &h)?;
    let q = lora::linear(graph, &at("q_proj"), &h, &weights.q, strengths.as_ref())?;
    let q = heads(graph, &at("q"), q, weights.q_norm.as_ref(), n_heads, spec)?;
    let q = shared.rotate(spec, layer, graph, &at("q_rope"), q)?;
    let new = (&weights.k, &weights.v, weights.k_norm.as_ref());
    let new = cache_rows::new_rows(spec, layer, graph, (shared, strengths.as_ref()), &h, new)?;
    let (k, v) = cache_rows::with_past(spec, layer, past, graph, shared, new)?;

    let q = graph.reshape(&at("q_groups"), &q, vec![n_kv_heads, spec.group_size(), n, head_dim], None)?;
    let mixed = attend(graph, shared, &at, [&q, &k, &v], mask)?;
    let mixed = graph.reshape(&at("heads"), &mixed, vec![1, n_heads, n, head_dim], None)?;
    let shared = shared.residual.clone();
    finish(spec, layer, builder, weights, (mixed, shared))
}

/// `softmax(q k (* c) + mask) v` for queries `[kv, group, n, d]`, keys `[kv, 1, d, m]` (`[kv, 1, m, d]` where they
/// lie by row) and values `[kv, 1, m, d]`.
pub(super) fn attend<S: GraphSink>(
    graph: &mut Composer<S>,
    shared: &SharedInputs<S::Tensor>,
    at: &impl Fn(&str) -> String,
    [q, k, v]: [&TensorValue<S::Tensor>; 3],
    mask: &TensorValue<S::Tensor>,
) -> Result<TensorValue<S::Tensor>> {
    let mut scores = match shared.keys_by_row {
        false => graph.matmul(&at("scores"), q, k)?,
        true => graph.matmul_transposed(&at("scores"), q, k)?,
    };
    if let Some(scale) = &shared.scale {
        scores = graph.mul(&at("scaled"), &scores, scale, None)?;
    }
    if let Some(cap) = &shared.cap {
        let bounded = graph.tanh(&at("bounded"), &scores)?;
        scores = graph.mul(&at("capped"), &bounded, cap, None)?;
    }
    let scores = graph.add(&at("mask"), &scores, mask, None)?;
    let shares = graph.softmax(&at("softmax"), &scores)?;
    graph.matmul(&at("mix"), &shares, v)
}

/// What heads have found, `[1, heads, n, d]`, through the output projection onto the residual stream.
pub(super) fn finish<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    builder: &mut LayerBuilder<S>,
    weights: &LayerWeights<TensorValue<S::Tensor>>,
    (mixed, residual): (TensorValue<S::Tensor>, Option<TensorValue<S::Tensor>>),
) -> Result<TensorValue<S::Tensor>> {
    let LayerBuilder { graph, x, strengths, .. } = builder;
    let at = |part: &str| format!("model_layers_{layer}_self_attn_{part}");
    let n = mixed.dims[2];
    let mixed = graph.transpose(&at("rows"), &mixed, [0, 2, 1, 3])?;
    let mixed = graph.reshape(&at("merge"), &mixed, vec![1, n, spec.n_heads * spec.head_dim], None)?;
    let mixed = graph.rows(&at("rows_out"), &mixed)?;
    let o = lora::linear(graph, &at("o_proj"), &mixed, &weights.o, strengths.as_ref())?;
    let mut o = graph.reshape(&at("o_rows"), &o, vec![1, n, spec.hidden], None)?;
    if let Some(scale) = &residual {
        o = graph.mul(&at("residual_scaled"), &o, scale, None)?;
    }
    let o = norm::optional(spec, graph, &format!("model_layers_{layer}_"), &o, weights.after_attention.as_ref())?;
    graph.add(&at("residual"), x, &o, None)
}

/// Projected rows as heads `[1, heads, n, d]`, normalised where there is a gamma: each head, or all of them together.
pub(super) fn heads<S: GraphSink>(
    graph: &mut Composer<S>,
    node: &str,
    mut y: TensorValue<S::Tensor>,
    gamma: Option<&TensorValue<S::Tensor>>,
    heads: usize,
    spec: &ModelSpec,
) -> Result<TensorValue<S::Tensor>> {
    let n = y.dims[y.dims.len() - 2];
    if let Some(gamma) = gamma {
        // One row per gamma: libQnnHtp 2.51 computes garbage for rank 4 with several rows narrower than 64.
        let width = gamma.dims[0];
        y = graph.reshape(&format!("{node}_norm_rows"), &y, vec![n * heads * spec.head_dim / width, width], None)?;
        y = graph.rms_norm(&format!("{node}_norm"), &y, gamma, spec.norm_eps)?;
    }
    let y = graph.reshape(&format!("{node}_split"), &y, vec![1, n, heads, spec.head_dim], None)?;
    graph.transpose(&format!("{node}_heads"), &y, [0, 2, 1, 3])
}
