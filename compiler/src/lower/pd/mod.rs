//! Graphs that carry a chunk of one prompt and one decode row of another request: `model.0.pd.s{N}`, and `model.0.s1` for a decode
//! row alone. Each is the whole model in one graph.
//!
//! *Rows*: the last of the N rows decodes, the rows before it prefill. *Shapes* for a context of CL columns, P = CL - N:
//!
//! ```text
//! input_ids [1, N]  position_ids [N]  attention_mask [1, 1, N, CL]  fusion_ctrl [6]
//! past_{key,value}_{prefill,decode}_{l}   keys [1, kv, d, P], values [1, kv, P, d]
//! logits [1, 1, 2, vocab]: rows N - 2 and N - 1      present_{key,value}_{l}: the N new rows
//! ```
//!
//! Attention has two branches: rows 0..N-1 over the prefill request's past and all new rows, row N-1 over the decode request's past
//! and all new rows; the mask says what each sees. Everything else runs once over N rows. Angles are gathered from static tables.

mod attention;
mod inputs;
mod ops;
mod update;

use super::cache_types::{CacheType, CacheTypes};
use super::composer::{Composer, TensorValue};
use super::sink::GraphSink;
use super::weight_format::WeightSpec;
use super::{LayerBuilder, Source, Split, add_positions, embed, head, mlp, weights};
use crate::Result;
use crate::family::ModelSpec;
use genie_bundle::manifest::PdUpdate;
use genie_types::{Dtype, Variant};
use inputs::PdInputs;
use nsp_graph::names;

/// The form of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PdForm {
    /// Both requests, in this number of rows.
    Pair(u32),
    /// A decode row alone.
    Single,
}

impl PdForm {
    /// The graph's name.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Pair(total) => format!("model.0.pd.s{total}"),
            Self::Single => "model.0.s1".into(),
        }
    }

    /// Its rows.
    pub(crate) const fn rows(self) -> u32 {
        match self {
            Self::Pair(total) => total,
            Self::Single => 1,
        }
    }
}

/// One open graph.
struct PdBuilder<S: GraphSink> {
    form: PdForm,
    layers: LayerBuilder<S>,
    inputs: PdInputs<S::Tensor>,
}

/// Weights that [`lower`] loads: how many, and their bytes in the checkpoint.
pub(crate) fn amount(spec: &ModelSpec, source: &Source<'_>) -> crate::Amount {
    super::amount_of(&loaded(spec, source), source.checkpoint)
}

fn loaded(spec: &ModelSpec, source: &Source<'_>) -> Vec<WeightSpec> {
    weights::of_split(spec, &Split::whole(spec), source.format)
}

/// Composes the open graphs, for one context length, and returns them in the same order. Weights have the names and bytes that plain
/// graphs have, so that a context holds them once.
pub(crate) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    graphs: Vec<(PdForm, Variant, S)>,
    update: PdUpdate,
    source: &mut Source<'_>,
) -> Result<Vec<S>> {
    source.reading_ahead(loaded(spec, source), |source| compose(spec, graphs, update, source))
}

fn compose<S: GraphSink>(
    spec: &ModelSpec,
    graphs: Vec<(PdForm, Variant, S)>,
    update: PdUpdate,
    source: &mut Source<'_>,
) -> Result<Vec<S>> {
    let format = source.format;
    let cache = CacheTypes::of(format.precision.dtype(), source.kv_peaks);
    let mut open = Vec::with_capacity(graphs.len());
    for (form, variant, sink) in graphs {
        let mut graph = Composer::new(sink, format.precision.dtype(), format.form, source.kinds);
        let ids = graph.input(names::INPUT_IDS, vec![1, variant.ar().get()], Dtype::I32)?;
        open.push((form, variant, graph, ids));
    }
    let table = source.load(&weights::embedding(spec), open.iter_mut().map(|(_, _, graph, _)| graph))?;
    let learned = match weights::positions(spec, &(0..spec.n_layers)) {
        Some(table) => Some(source.load(&table, open.iter_mut().map(|(_, _, graph, _)| graph))?),
        None => None,
    };
    let mut builders = Vec::with_capacity(open.len());
    for (i, ((form, variant, mut graph, ids), table)) in open.into_iter().zip(&table).enumerate() {
        let mut x = embed(spec, &mut graph, table, &ids, None)?;
        let (inputs, shared) = PdInputs::declare(spec, form, variant, (update, format, cache.clone()), &mut graph)?;
        if let Some(learned) = &learned {
            x = add_positions(&mut graph, &x, &learned[i], &inputs.positions)?;
        }
        builders.push(PdBuilder {
            form,
            layers: LayerBuilder { variant, graph, x, shared: Some(shared), strengths: None },
            inputs,
        });
    }
    for layer in 0..spec.n_layers {
        let specs = weights::of_layer(spec, layer, format);
        let held = specs.try_map(|w| source.load(w, builders.iter_mut().map(|b| &mut b.layers.graph)))?;
        for (i, builder) in builders.iter_mut().enumerate() {
            let weights = held.map(|per_graph| per_graph[i].clone());
            let PdBuilder { layers, inputs, .. } = builder;
            let cache = attention::lower(spec, layer, layers, &weights, inputs)?;
            layers.x = mlp::lower(spec, layer, layers, &weights, None)?;
            let LayerBuilder { graph, x, .. } = layers;
            update::lower(layer, graph, inputs, &cache, x)?;
        }
    }
    let norm = weights::final_norm(spec);
    let norm = norm.map(|norm| norm.try_map(&mut |w| source.load(w, builders.iter_mut().map(|b| &mut b.layers.graph))));
    let norm = norm.transpose()?;
    let head = match weights::shares_table(spec, format) {
        true => table,
        false => source.load(&weights::lm_head(spec, format), builders.iter_mut().map(|b| &mut b.layers.graph))?,
    };
    for (i, builder) in builders.iter_mut().enumerate() {
        let n_logits = wanted_rows(spec, builder)?;
        let norm = norm.as_ref().map(|norm| norm.map(|per_graph| per_graph[i].clone()));
        head::lower_shaped(spec, &mut builder.layers, norm.as_ref(), &head[i], vec![1, 1, n_logits, spec.vocab])?;
    }
    Ok(builders.into_iter().map(|builder| builder.layers.graph.into_sink()).collect())
}

/// Keeps the rows of the residual stream whose logits are wanted: the last of each request; returns how many.
fn wanted_rows<S: GraphSink>(spec: &ModelSpec, builder: &mut PdBuilder<S>) -> Result<usize> {
    let LayerBuilder { graph, x, .. } = &mut builder.layers;
    match builder.form {
        PdForm::Single => Ok(1),
        PdForm::Pair(_) => {
            let n = x.dims[1];
            if n > 2 {
                *x = graph.slice("model_last_rows", x, &[(0, 1), (n - 2, n), (0, spec.hidden)])?;
            }
            Ok(2)
        }
    }
}

/// Past and new rows of one layer, as inputs and outputs of the graph.
struct LayerCache<T> {
    /// Keys and values of the prefill request; none in a graph for a decode row alone.
    prefill: Option<[TensorValue<T>; 2]>,
    /// Those of the decode request.
    decode: [TensorValue<T>; 2],
    /// `[1, kv, d, n]` and `[1, kv, n, d]`.
    present: [TensorValue<T>; 2],
    /// Of keys and of values, past and new.
    types: [CacheType; 2],
}
