//! Attention in two branches over one set of new rows: a chunk of one request's prompt, and a decode row of another.

use super::super::attention::{self, attend, heads};
use super::super::composer::{Composer, TensorValue};
use super::super::sink::GraphSink;
use super::super::weights::LayerWeights;
use super::super::{LayerBuilder, lora, norm};
use super::inputs::PdInputs;
use super::{LayerCache, PdForm};
use crate::Result;
use crate::family::ModelSpec;
use genie_types::KvKind;
use nsp_graph::pd::{PdName, Slot};

/// Adds the attention of layer `layer` to the residual stream; returns the layer's cache tensors.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    builder: &mut LayerBuilder<S>,
    weights: &LayerWeights<TensorValue<S::Tensor>>,
    inputs: &PdInputs<S::Tensor>,
) -> Result<LayerCache<S::Tensor>> {
    let LayerBuilder { variant, graph, x, shared, .. } = builder;
    let shared = shared.as_ref().expect("made with the graph's inputs");
    let (n, past) = (variant.ar().get(), variant.past_capacity());
    let ModelSpec { n_heads, n_kv_heads: kv, head_dim: d, .. } = *spec;
    let at = |part: &str| format!("model_layers_{layer}_self_attn_{part}");

    let h = norm::optional(spec, graph, &format!("model_layers_{layer}_"), x, weights.before_attention.as_ref())?;
    let h = graph.rows(&at("rows_in"), &h)?;
    let q = lora::linear(graph, &at("q_proj"), &h, &weights.q, None)?;
    let q = heads(graph, &at("q"), q, weights.q_norm.as_ref(), n_heads, spec)?;
    let q = shared.rotate(spec, layer, graph, &at("q_rope"), q)?;
    let q = graph.reshape(&at("q_groups"), &q, vec![kv, spec.group_size(), n, d], None)?;

    let k = lora::linear(graph, &at("k_proj"), &h, &weights.k, None)?;
    let k = heads(graph, &at("k"), k, weights.k_norm.as_ref(), kv, spec)?;
    let k = shared.rotate(spec, layer, graph, &at("k_rope"), k)?;
    let k = graph.transpose(&at("k_columns"), &k, [0, 1, 3, 2])?;
    let v = lora::linear(graph, &at("v_proj"), &h, &weights.v, None)?;
    let v = heads(graph, &at("v"), v, None, kv, spec)?;
    let present = |kind| PdName::Present { kind, layer }.to_string();
    let types = [KvKind::Key, KvKind::Value].map(|kind| shared.cache.get(kind, layer));
    let [keys, values] = &types;
    let k = keys.output(graph, &at("k_present"), &k, vec![1, kv, d, n], &present(KvKind::Key))?;
    let v = values.output(graph, &at("v_present"), &v, vec![1, kv, n, d], &present(KvKind::Value))?;
    let k_floats = keys.floats(graph, &at("k_new_floats"), &k)?;
    let v_floats = values.floats(graph, &at("v_new_floats"), &v)?;
    let new = [
        graph.reshape(&at("k_new"), &k_floats, vec![kv, 1, d, n], None)?,
        graph.reshape(&at("v_new"), &v_floats, vec![kv, 1, n, d], None)?,
    ];

    let mut past_of = |slot: Option<Slot>| -> Result<[TensorValue<S::Tensor>; 2]> {
        let name = |kind| PdName::Past { kind, slot, layer }.to_string();
        let keys = graph.encoded_input(&keys.info(&name(KvKind::Key), &[1, kv, d, past]))?;
        Ok([keys, graph.encoded_input(&values.info(&name(KvKind::Value), &[1, kv, past, d]))?])
    };
    let (prefill, decode) = match inputs.form {
        PdForm::Pair(_) => (Some(past_of(Some(Slot::Prefill))?), past_of(Some(Slot::Decode))?),
        PdForm::Single => (None, past_of(None)?),
    };

    let rows = |range: (usize, usize)| [(0, kv), (0, spec.group_size()), range, (0, d)];
    let branch = |graph: &mut Composer<S>, name: &str, q, past: &[TensorValue<S::Tensor>; 2], mask| {
        let at = |part: &str| at(&format!("{name}_{part}"));
        let k = keys.floats(graph, &at("k_past_floats"), &past[0])?;
        let k = graph.reshape(&at("k_past"), &k, vec![kv, 1, d, past[0].dims[3]], None)?;
        let k = graph.concat(&at("k_all"), &k, &new[0], 3)?;
        let v = values.floats(graph, &at("v_past_floats"), &past[1])?;
        let v = graph.reshape(&at("v_past"), &v, vec![kv, 1, past[1].dims[2], d], None)?;
        let v = graph.concat(&at("v_all"), &v, &new[1], 2)?;
        let mixed = attend(graph, shared, &at, [q, &k, &v], mask)?;
        let n = mixed.dims[2];
        graph.reshape(&at("heads"), &mixed, vec![1, n_heads, n, d], None)
    };
    let mixed = match (&prefill, &inputs.prefill_mask) {
        (Some(past), Some(mask)) => {
            let before = graph.slice(&at("q_prefill"), &q, &rows((0, n - 1)))?;
            let last = graph.slice(&at("q_decode"), &q, &rows((n - 1, n)))?;
            let before = branch(graph, "prefill", &before, past, mask)?;
            let last = branch(graph, "decode", &last, &decode, &inputs.decode_mask)?;
            graph.concat(&at("both"), &before, &last, 2)?
        }
        _ => branch(graph, "decode", &q, &decode, &inputs.decode_mask)?,
    };
    let residual = shared.residual.clone();
    builder.x = attention::finish(spec, layer, builder, weights, (mixed, residual))?;
    Ok(LayerCache { prefill, decode, present: [k, v], types })
}
