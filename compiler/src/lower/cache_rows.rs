//! New cache rows of a layer, and the rows that attention sees: new ones behind the past, or scattered into it.
//!
//! *Shapes* for AR = n, CL = m: keys `[kv, 1, d, n]`, values `[kv, 1, n, d]`; the past has m - n rows where rows are
//! concatenated, m where they are scattered. `cache_index` is `[1]` (the first slot) or `[n]` (the slot of each row), int32.
//! Where keys lie by row they have the shapes of values. Rows in blocks: [`block_cache`].

use super::LayerBuilder;
use super::attention::SharedInputs;
use super::composer::{Composer, TensorValue};
use super::sink::GraphSink;
use super::weights::{LayerWeights, Linear, Norm};
use super::{attention, block_cache, lora, norm};
use crate::Result;
use crate::family::ModelSpec;
use genie_bundle::manifest::CacheUpdate;
use genie_types::{KvKind, Variant};
use nsp_graph::names::{self, KvName};

/// What a layer needs for its new rows alone.
pub(super) struct RowWeights<W> {
    pub(super) before_attention: Option<Norm<W>>,
    pub(super) k: Linear<W>,
    pub(super) v: Linear<W>,
    pub(super) k_norm: Option<W>,
}

impl<W: Clone> RowWeights<W> {
    pub(super) fn of(layer: &LayerWeights<W>) -> Self {
        let LayerWeights { before_attention, k, v, k_norm, .. } = layer.clone();
        Self { before_attention, k, v, k_norm }
    }

    /// Every tensor, in the order of use.
    pub(super) fn each(&self, mut f: impl FnMut(&W)) {
        let norm = self.before_attention.iter().flat_map(Norm::all);
        let linear =
            [&self.k, &self.v].into_iter().flat_map(|linear| std::iter::once(&linear.weight).chain(&linear.bias));
        norm.chain(linear).chain(&self.k_norm).for_each(&mut f);
    }

    /// Replaces every tensor, in the order of use.
    pub(super) fn try_map<U>(&self, f: &mut impl FnMut(&W) -> Result<U>) -> Result<RowWeights<U>> {
        Ok(RowWeights {
            before_attention: self.before_attention.as_ref().map(|norm| norm.try_map(f)).transpose()?,
            k: self.k.try_map(f)?,
            v: self.v.try_map(f)?,
            k_norm: self.k_norm.as_ref().map(f).transpose()?,
        })
    }
}

/// Slots of the new rows, shaped like the rows; one list for keys and one for values.
pub(super) struct Slots<T> {
    keys: TensorValue<T>,
    values: TensorValue<T>,
}

impl<T: Copy + core::fmt::Debug> Slots<T> {
    /// Declares `cache_index`; `None` for graphs that do not scatter.
    pub(super) fn declare<S: GraphSink<Tensor = T>>(
        spec: &ModelSpec,
        variant: Variant,
        update: CacheUpdate,
        graph: &mut Composer<S>,
    ) -> Result<Option<Self>> {
        let (n, kv, d) = (variant.ar().get(), spec.n_kv_heads, spec.head_dim);
        if update == CacheUpdate::Concat || variant.past_capacity() == 0 {
            return Ok(None);
        }
        let slots = graph.slots(names::CACHE_INDEX, n, update == CacheUpdate::ScatterEach)?;
        let keys = graph.spread("key_slots", &slots, [1, 1, 1, n], [kv, 1, d, n])?;
        let values = graph.spread("value_slots", &slots, [1, 1, n, 1], [kv, 1, n, d])?;
        Ok(Some(Self { keys, values }))
    }
}

impl<T> SharedInputs<T> {
    /// Name of a cache tensor, with the prefix of its layer's group.
    pub(super) fn cache_name(&self, spec: &ModelSpec, kind: KvKind, layer: usize, is_input: bool) -> String {
        let prefix = self.windows.prefix(spec, layer);
        KvName { prefix, kind, layer, head: None, is_input }.to_string()
    }
}

/// Keys and values.
pub(super) type Rows<T> = (TensorValue<T>, TensorValue<T>);

/// The weights that make keys and values, and the norm of the keys.
type Projections<'a, T> = (&'a Linear<TensorValue<T>>, &'a Linear<TensorValue<T>>, Option<&'a TensorValue<T>>);

/// Keys and values of the rows `h`, as outputs of the graph.
pub(super) fn new_rows<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    graph: &mut Composer<S>,
    (shared, strengths): (&SharedInputs<S::Tensor>, Option<&lora::Strengths<S::Tensor>>),
    h: &TensorValue<S::Tensor>,
    (k, v, k_norm): Projections<'_, S::Tensor>,
) -> Result<Rows<S::Tensor>> {
    let ModelSpec { n_kv_heads, head_dim, .. } = *spec;
    let at = |part: &str| format!("model_layers_{layer}_self_attn_{part}");
    let k = lora::linear(graph, &at("k_proj"), h, k, strengths)?;
    let k = attention::heads(graph, &at("k"), k, k_norm, n_kv_heads, spec)?;
    let v = lora::linear(graph, &at("v_proj"), h, v, strengths)?;
    let v = attention::heads(graph, &at("v"), v, None, n_kv_heads, spec)?;
    let n = v.dims[2];
    let k = shared.rotate(spec, layer, graph, &at("k_rope"), k)?;
    if let Some(divisors) = &shared.blocks {
        return block_cache::new_rows(spec, layer, graph, (shared, divisors), (k, v));
    }
    let (k, key_dims) = match shared.keys_by_row {
        false => (graph.transpose(&at("k_columns"), &k, [0, 1, 3, 2])?, vec![n_kv_heads, 1, head_dim, n]),
        true => (k, vec![n_kv_heads, 1, n, head_dim]),
    };
    let name = shared.cache_name(spec, KvKind::Key, layer, false);
    let keys = shared.cache.get(KvKind::Key, layer);
    let k = keys.output(graph, &at("k_new"), &k, key_dims, &name)?;
    let name = shared.cache_name(spec, KvKind::Value, layer, false);
    let values = shared.cache.get(KvKind::Value, layer);
    let v = values.output(graph, &at("v_new"), &v, vec![n_kv_heads, 1, n, head_dim], &name)?;
    Ok((k, v))
}

/// All rows that attention sees.
pub(super) fn with_past<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    past: usize,
    graph: &mut Composer<S>,
    shared: &SharedInputs<S::Tensor>,
    (k, v): Rows<S::Tensor>,
) -> Result<Rows<S::Tensor>> {
    let at = |part: &str| format!("model_layers_{layer}_self_attn_{part}");
    let [keys, values] = [KvKind::Key, KvKind::Value].map(|kind| shared.cache.get(kind, layer));
    let (k, v) = match shared.blocks {
        Some(_) => (k, v),
        None => (keys.floats(graph, &at("k_new_floats"), &k)?, values.floats(graph, &at("v_new_floats"), &v)?),
    };
    if past == 0 {
        return Ok((k, v));
    }
    if shared.blocks.is_some() {
        let (past_k, past_v) = block_cache::past_rows(spec, layer, past, graph, shared)?;
        return Ok((graph.concat(&at("k_all"), &past_k, &k, 2)?, graph.concat(&at("v_all"), &past_v, &v, 2)?));
    }
    let past = if shared.slots.is_some() { past + v.dims[2] } else { past };
    let cache_name = |kind, is_input| shared.cache_name(spec, kind, layer, is_input);
    let (kv, d) = (spec.n_kv_heads, spec.head_dim);
    let (key_dims, key_axis) = if shared.keys_by_row { ([kv, 1, past, d], 2) } else { ([kv, 1, d, past], 3) };
    let past_key = graph.cache_input(&keys.info(&cache_name(KvKind::Key, true), &key_dims))?;
    let past_value = graph.cache_input(&values.info(&cache_name(KvKind::Value, true), &[kv, 1, past, d]))?;
    let past_key = keys.floats(graph, &at("k_past_floats"), &past_key)?;
    let past_value = values.floats(graph, &at("v_past_floats"), &past_value)?;
    match &shared.slots {
        None => {
            Ok((graph.concat(&at("k_all"), &past_key, &k, key_axis)?, graph.concat(&at("v_all"), &past_value, &v, 2)?))
        }
        Some(slots) => Ok((
            graph.scatter(&at("k_all"), &past_key, &slots.keys, &k, 3)?,
            graph.scatter(&at("v_all"), &past_value, &slots.values, &v, 2)?,
        )),
    }
}

/// A layer of which only the new rows are wanted: it attends to nothing.
pub(super) fn lower_alone<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    builder: &mut LayerBuilder<S>,
    weights: &RowWeights<TensorValue<S::Tensor>>,
) -> Result<()> {
    let LayerBuilder { graph, x, shared, strengths, .. } = builder;
    let shared = shared.as_ref().expect("a split with layers declares mask and positions");
    let h = norm::optional(spec, graph, &format!("model_layers_{layer}_"), x, weights.before_attention.as_ref())?;
    let h = graph.rows(&format!("model_layers_{layer}_self_attn_rows_in"), &h)?;
    new_rows(spec, layer, graph, (shared, strengths.as_ref()), &h, (&weights.k, &weights.v, weights.k_norm.as_ref()))?;
    Ok(())
}
