//! Lowers a [`ModelSpec`] to QNN ops: one context per piece of the model, one graph per AR/CL variant in it.
//!
//! All variants of a piece are composed side by side. A weight is read and converted once, handed to every open graph,
//! and dropped: no more than one tensor is held here at any time.
//!
//! Graph names are `ar{n}_cl{m}_{i}_of_{k}`. Pieces are wired by tensor name: `model_embed_tokens_out` and
//! `model_layers_{last}_out`, both `[1, n, hidden]`. The final norm belongs to the LM head's piece.

mod attention;
mod blocks;
mod composer;
mod encode;
mod head;
mod layer;
mod mlp;
mod piece;
mod quantize;
mod rounded;
mod sink;
#[cfg(test)]
pub(crate) mod tests;
mod weights;

pub(crate) use piece::{Piece, cut, file_names};
pub(crate) use rounded::rounded_weights;
pub(crate) use sink::{GraphSink, Kind, Param};
pub(crate) use weights::Role;

use crate::checkpoint::Checkpoint;
use crate::family::ModelSpec;
use crate::{Progress, Result};
use composer::{Composer, Val};
use encode::Stored;
pub(crate) use encode::{Format, LinearForm, Loss};
use genie_types::{Dtype, Variant};
use weights::WeightSpec;

/// Checks that every tensor of the model is there, with the shape and a type we read, before any work is done.
pub(crate) fn check_weights(spec: &ModelSpec, checkpoint: &Checkpoint) -> Result<()> {
    weights::of_piece(spec, &Piece::whole(spec), Format::PLAIN)
        .iter()
        .try_for_each(|w| checkpoint.expect(&w.name, &w.dims).map(drop))
}

/// Weights that a piece reads: how many, and their bytes in the checkpoint.
pub(crate) fn amount(spec: &ModelSpec, piece: &Piece, source: &Source<'_>) -> crate::Amount {
    let checkpoint = source.checkpoint;
    let weights = weights::of_piece(spec, piece, source.format);
    let bytes = weights.iter().filter_map(|w| checkpoint.tensors().get(&w.name)).map(|t| t.bytes).sum();
    crate::Amount { items: weights.len() as u64, bytes }
}

/// Bytes of a piece's weights in one of its graphs.
pub(crate) fn weight_bytes(spec: &ModelSpec, piece: &Piece, format: Format) -> u64 {
    weights::of_piece(spec, piece, format).iter().map(|w| format.size_bytes(w)).sum()
}

/// All tensors of a model: name, extents, role.
pub(crate) fn all_tensors(spec: &ModelSpec) -> Vec<(String, Vec<usize>, Role)> {
    weights::of_piece(spec, &Piece::whole(spec), Format::PLAIN).into_iter().map(|w| (w.name, w.dims, w.role)).collect()
}

/// Where weights come from, and who is told.
pub(crate) struct Source<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) format: Format,
    /// What rounding to blocks cost so far.
    pub(crate) loss: &'a mut Loss,
    pub(crate) progress: &'a mut dyn Progress,
}

/// One open graph and what flows through it so far.
struct Flow<S: GraphSink> {
    variant: Variant,
    graph: Composer<S>,
    /// The residual stream, `[1, n, hidden]`.
    x: Val<S::Tensor>,
    /// Of graphs with layers: see [`attention::Steps`].
    steps: Option<attention::Steps<S::Tensor>>,
}

/// Composes one piece into the open graphs, one per variant, and gives them back in the same order.
pub(crate) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    piece: &Piece,
    graphs: Vec<(Variant, S)>,
    source: &mut Source<'_>,
) -> Result<Vec<S>> {
    let Format { precision, form, .. } = source.format;
    let dtype = precision.dtype();
    let mut graphs: Vec<(Variant, Composer<S>)> =
        graphs.into_iter().map(|(variant, sink)| (variant, Composer::new(sink, dtype, form))).collect();

    // What enters: ids or the residual stream of the piece before.
    let mut entering = Vec::with_capacity(graphs.len());
    for (variant, graph) in &mut graphs {
        let n = variant.ar().get();
        entering.push(match &piece.input {
            None => graph.input("input_ids", vec![1, n], Dtype::I32)?,
            Some(name) => graph.input(name, vec![1, n, spec.hidden], dtype)?,
        });
    }
    let table = match piece.input {
        None => Some(source.load(&weights::embedding(spec), graphs.iter_mut().map(|(_, graph)| graph))?),
        Some(_) => None,
    };

    let mut flows = Vec::with_capacity(graphs.len());
    for (i, ((variant, mut graph), input)) in graphs.into_iter().zip(entering).enumerate() {
        let x = match &table {
            Some(table) => {
                let out = piece.ends_with_embedding().then_some(piece.output.as_deref()).flatten();
                graph.gather("model_embed_tokens", &table[i], &input, out)?
            }
            None => input,
        };
        let steps = match piece.layers.is_empty() {
            true => None,
            false => {
                Some(attention::Steps::declare(spec, variant, weights::score_scale(spec, source.format), &mut graph)?)
            }
        };
        flows.push(Flow { variant, graph, x, steps });
    }

    for layer in piece.layers.clone() {
        let held = weights::of_layer(spec, layer, source.format)
            .try_map(|w| source.load(w, flows.iter_mut().map(|f| &mut f.graph)))?;
        let out = (layer + 1 == piece.layers.end).then_some(piece.output.as_deref()).flatten();
        for (i, flow) in flows.iter_mut().enumerate() {
            let weights = held.map(|per_graph| per_graph[i].clone());
            layer::lower(spec, layer, flow, &weights, out)?;
        }
    }

    if piece.has_head {
        let norm = source.load(&weights::final_norm(spec), flows.iter_mut().map(|f| &mut f.graph))?;
        // A tied head in the embedding's own piece is the same tensor; elsewhere it has the same bytes.
        let head = match table.filter(|_| weights::shares_table(spec, source.format)) {
            Some(table) => table,
            None => source.load(&weights::lm_head(spec, source.format), flows.iter_mut().map(|f| &mut f.graph))?,
        };
        for (i, flow) in flows.iter_mut().enumerate() {
            head::lower(spec, flow, &norm[i], &head[i])?;
        }
    }
    Ok(flows.into_iter().map(|flow| flow.graph.into_sink()).collect())
}

impl Source<'_> {
    /// Reads and converts one weight, hands it to every graph, drops it; gives its handle in each graph.
    fn load<'g, S: GraphSink + 'g>(
        &mut self,
        weight: &WeightSpec,
        graphs: impl Iterator<Item = &'g mut Composer<S>>,
    ) -> Result<Vec<Val<S::Tensor>>> {
        let stored = Stored::read(self.checkpoint, weight, self.format)?;
        let handles = graphs.map(|graph| graph.constant(&stored)).collect::<Result<Vec<_>>>()?;
        self.loss.join(stored.loss);
        self.progress.item(&weight.name, stored.source_bytes);
        Ok(handles)
    }
}
