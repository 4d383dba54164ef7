//! Lowers a [`ModelSpec`] to QNN ops: one context per split of the model, one graph per AR/CL variant in it.
//!
//! All variants of a split are composed side by side. A weight is read and converted once, passed to every open graph, and
//! dropped: one tensor is in memory at any time, and the next, which is read meanwhile.
//!
//! Graph names are `ar{n}_cl{m}_{i}_of_{k}`. Splits are wired by tensor name: `model_embed_tokens_out` and
//! `model_layers_{last}_out`, both `[1, n, hidden]`. The final norm belongs to the LM head's split.

mod attention;
pub(crate) mod block_cache;
mod blocks;
mod cache_rows;
mod cache_types;
mod composer;
mod eagle;
mod encode;
mod head;
mod layer;
mod lora;
mod mlp;
mod norm;
pub(crate) mod pd;
mod per_row;
mod read_ahead;
mod rounded;
mod rounding_loss;
mod sink;
mod split;
#[cfg(test)]
pub(crate) mod tests;
mod weight_format;
mod weights;
mod window;

pub(crate) use rounded::rounded_weights;
pub(crate) use rounding_loss::RoundingLoss;
pub(crate) use sink::{GraphSink, Kind, Param};
pub(crate) use split::{Split, SplitKind, cut, file_names};
pub(crate) use weight_format::{Format, LinearForm, Role, is_copied, is_matrix};
pub(crate) use window::{WINDOW_GROUP, Windows};

use crate::checkpoint::Checkpoint;
use crate::family::ModelSpec;
use crate::fs::OnBytes;
use crate::kv_peaks::KvPeaks;
use crate::lora::Adapter;
use crate::progress::advance;
use crate::unread::{self, Taken};
use crate::{GraphKinds, Precision, Progress, Result, Weights};
use composer::{Composer, TensorValue};
use encode::EncodedWeight;
use genie_types::{Dtype, Variant};
use nsp_graph::names;
use read_ahead::ReadAhead;
use std::thread;
use weight_format::WeightSpec;

/// Checks, before any work is done, that every tensor of the model is present, with its shape and a supported type, and that the
/// checkpoint has no others. `on_read` is given the bytes of a tied head and its table, where they have to be compared.
pub(crate) fn check_weights(spec: &ModelSpec, checkpoint: &Checkpoint, on_read: &mut OnBytes<'_>) -> Result<()> {
    let mut check = || {
        unread::check_layers(spec, checkpoint)?;
        let mut taken = Taken::none_of(checkpoint);
        for weight in weights::of_split(spec, &Split::whole(spec), Format::PLAIN) {
            taken.take(&weight.name, &weight.dims)?;
        }
        taken.check_rest(spec, on_read)
    };
    check().map_err(|error| checkpoint.in_stored_words(error))
}

/// Weights that [`lower`] loads: how many, and their bytes in the checkpoint.
pub(crate) fn amount(spec: &ModelSpec, split: &Split, source: &Source<'_>) -> crate::Amount {
    amount_of(&weights::loaded(spec, split, source.kinds, source.format), source.checkpoint)
}

fn amount_of(weights: &[WeightSpec], checkpoint: &Checkpoint) -> crate::Amount {
    let bytes = weights.iter().filter_map(|w| checkpoint.tensors().get(&w.name)).map(|t| t.bytes).sum();
    crate::Amount { items: weights.len() as u64, bytes }
}

/// Bytes of a split's weights in one of its graphs.
pub(crate) fn weight_bytes(spec: &ModelSpec, split: &Split, format: Format) -> u64 {
    weights::of_split(spec, split, format).iter().map(|w| format.size_bytes(w)).sum()
}

/// All tensors of a model: name, extents, role.
pub(crate) fn all_tensors(spec: &ModelSpec) -> Vec<(String, Vec<usize>, Role)> {
    weights::of_split(spec, &Split::whole(spec), Format::PLAIN).into_iter().map(|w| (w.name, w.dims, w.role)).collect()
}

/// Where weights come from, and who receives progress.
pub(crate) struct Source<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) format: Format,
    pub(crate) kinds: &'a GraphKinds,
    /// Of a cache of 8 bits.
    pub(crate) kv_peaks: Option<&'a KvPeaks>,
    /// Those that switch at run time.
    pub(crate) adapters: &'a [Adapter],
    /// Error of rounding to blocks so far.
    pub(crate) loss: &'a mut RoundingLoss,
    pub(crate) progress: &'a mut dyn Progress,
    /// The weights to come; `None` for who makes it.
    pub(crate) ahead: Option<ReadAhead>,
}

/// Ends what reads ahead, also where composing panics: the scope of its thread would wait for it without end.
struct EndAhead<'s, 'a>(&'s mut Source<'a>);

impl Drop for EndAhead<'_, '_> {
    fn drop(&mut self) {
        self.0.ahead = None;
    }
}

/// One open graph with its residual stream.
struct LayerBuilder<S: GraphSink> {
    variant: Variant,
    graph: Composer<S>,
    /// The residual stream, `[1, n, hidden]`.
    x: TensorValue<S::Tensor>,
    /// Only in graphs with layers.
    shared: Option<attention::SharedInputs<S::Tensor>>,
    /// Only in graphs with adapters.
    strengths: Option<lora::Strengths<S::Tensor>>,
}

/// Composes one split into the open graphs, one per variant, and returns them in the same order.
pub(crate) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    split: &Split,
    graphs: Vec<(Variant, S)>,
    source: &mut Source<'_>,
) -> Result<Vec<S>> {
    let weights = weights::loaded(spec, split, source.kinds, source.format);
    source.reading_ahead(weights, |source| compose(spec, split, graphs, source))
}

fn compose<S: GraphSink>(
    spec: &ModelSpec,
    split: &Split,
    graphs: Vec<(Variant, S)>,
    source: &mut Source<'_>,
) -> Result<Vec<S>> {
    let (Format { precision, form, .. }, source_kinds) = (source.format, source.kinds);
    let windows = Windows::of(spec, graphs.iter().map(|(variant, _)| *variant));
    let dtype = precision.dtype();
    let mut graphs: Vec<(Variant, Composer<S>)> =
        graphs.into_iter().map(|(variant, sink)| (variant, Composer::new(sink, dtype, form, source.kinds))).collect();

    // The first input: ids, or the residual stream of the previous split.
    let mut inputs = Vec::with_capacity(graphs.len());
    for (variant, graph) in &mut graphs {
        let n = variant.ar().get();
        inputs.push(match &split.input {
            None if source.kinds.embeddings_input => {
                graph.input(names::INPUTS_EMBEDS, vec![1, n, spec.hidden], dtype)?
            }
            None => graph.input(names::INPUT_IDS, vec![1, n], Dtype::I32)?,
            Some(name) => graph.input(name, vec![1, n, spec.hidden], dtype)?,
        });
    }
    let table = match split.input {
        None if source.kinds.embeddings_input => None,
        None => Some(source.load(&weights::embedding(spec), graphs.iter_mut().map(|(_, graph)| graph))?),
        Some(_) => None,
    };

    let positions = match weights::positions(spec, &split.layers) {
        Some(table) => Some(source.load(&table, graphs.iter_mut().map(|(_, graph)| graph))?),
        None => None,
    };

    let mut builders = Vec::with_capacity(graphs.len());
    for (i, ((variant, mut graph), input)) in graphs.into_iter().zip(inputs).enumerate() {
        let x = match &table {
            Some(table) => {
                let out = split.ends_with_embedding().then_some(split.output.as_deref()).flatten();
                embed(spec, &mut graph, &table[i], &input, out)?
            }
            None => input,
        };
        let x = match &positions {
            Some(table) => {
                let ids = graph.input(names::POSITION_IDS, vec![1, variant.ar().get()], Dtype::I32)?;
                add_positions(&mut graph, &x, &table[i], &ids)?
            }
            None => x,
        };
        let shared = match split.layers.is_empty() {
            true => None,
            false => Some(attention::SharedInputs::declare(spec, split, (variant, windows), source, &mut graph)?),
        };
        let strengths = match source.adapters {
            [] => None,
            adapters => Some(lora::Strengths::declare(adapters, split.layers.clone(), form, &mut graph)?),
        };
        builders.push(LayerBuilder { variant, graph, x, shared, strengths });
    }

    if split.layers.start == 0 && !split.layers.is_empty() {
        eagle::lower(spec, &mut builders, source)?;
    }

    let rows_only =
        |builder: &LayerBuilder<S>| source_kinds.rows_only.iter().any(|&ar| builder.variant.ar().get() == ar as usize);
    for layer in split.layers.clone() {
        let ends = |builder: &LayerBuilder<S>| layer + 1 == spec.n_layers && rows_only(builder);
        let specs = weights::of_layer(spec, layer, source.format);
        let mut held = specs.try_map(|w| {
            let whole = builders.iter_mut().filter(|f| !ends(f));
            source.load(w, whole.map(|f| &mut f.graph))
        })?;
        if !builders.iter().any(ends) {
            // With adapters no graph ends in cache rows: `CompileOptions::check` has refused it.
            source.load_adapters(layer, &specs, &mut held, &mut builders)?;
        }
        let out = (layer + 1 == split.layers.end).then_some(split.output.as_deref()).flatten();
        for (i, builder) in builders.iter_mut().filter(|f| !ends(f)).enumerate() {
            let weights = held.map(|per_graph| per_graph[i].clone());
            layer::lower(spec, layer, builder, &weights, out)?;
        }
        if builders.iter().any(ends) {
            let held = cache_rows::RowWeights::of(&specs).try_map(&mut |w| {
                let ending = builders.iter_mut().filter(|f| ends(f));
                source.load(w, ending.map(|f| &mut f.graph))
            })?;
            for (i, builder) in builders.iter_mut().filter(|f| ends(f)).enumerate() {
                let weights = held.try_map(&mut |per_graph| Ok(per_graph[i].clone()))?;
                cache_rows::lower_alone(spec, layer, builder, &weights)?;
            }
        }
    }

    if split.has_head {
        let of_ending = |table: Vec<TensorValue<S::Tensor>>| {
            let kept = table.into_iter().zip(&builders).filter(|(_, f)| !rows_only(f));
            kept.map(|(handle, _)| handle).collect::<Vec<_>>()
        };
        let table = table.map(of_ending);
        let mut ending: Vec<_> = builders.iter_mut().filter(|f| !rows_only(f)).collect();
        let norm = weights::final_norm(spec);
        let norm = norm
            .map(|norm| norm.try_map(&mut |w| source.load(w, ending.iter_mut().map(|f| &mut f.graph))))
            .transpose()?;
        let norm_of = |i: usize| norm.as_ref().map(|norm| norm.map(|per_graph| per_graph[i].clone()));
        if source.kinds.head_weight_input {
            for (i, builder) in ending.into_iter().enumerate() {
                head::lower_with_input(spec, builder, norm_of(i).as_ref())?;
            }
        } else {
            // A tied head in the embedding's split is the same tensor; in another split it has the same bytes.
            let head = match table.filter(|_| weights::shares_table(spec, source.format)) {
                Some(table) => table,
                None => source.load(&weights::lm_head(spec, source.format), ending.iter_mut().map(|f| &mut f.graph))?,
            };
            for (i, builder) in ending.into_iter().enumerate() {
                head::lower(spec, builder, norm_of(i).as_ref(), (&head[i], source_kinds.hidden_states))?;
            }
        }
    }
    Ok(builders.into_iter().map(|builder| builder.graph.into_sink()).collect())
}

/// Rows of the embedding, times its factor.
fn embed<S: GraphSink>(
    spec: &ModelSpec,
    graph: &mut Composer<S>,
    table: &TensorValue<S::Tensor>,
    ids: &TensorValue<S::Tensor>,
    out: Option<&str>,
) -> Result<TensorValue<S::Tensor>> {
    if spec.factors.embedding == 1.0 {
        return graph.gather("model_embed_tokens", table, ids, out);
    }
    let rows = graph.gather("model_embed_rows", table, ids, None)?;
    let scale = graph.scalar("embedding_scale", spec.factors.embedding as f32)?;
    graph.mul("model_embed_tokens", &rows, &scale, out)
}

/// The embeddings `[1, n, hidden]` with the rows of the learned positions added.
fn add_positions<S: GraphSink>(
    graph: &mut Composer<S>,
    x: &TensorValue<S::Tensor>,
    table: &TensorValue<S::Tensor>,
    positions: &TensorValue<S::Tensor>,
) -> Result<TensorValue<S::Tensor>> {
    let rows = graph.gather("model_position_rows", table, positions, None)?;
    let rows = graph.reshape("model_position_embeddings", &rows, x.dims.clone(), None)?;
    graph.add("model_positions", x, &rows, None)
}

/// A weight that graphs take as an input, as a file holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InputFile {
    /// The LM head's `[vocab, hidden]`, in the graphs' float type.
    Head(Precision),
    /// The embedding table `[vocab, hidden]` in float32, times its factor.
    Embeddings,
}

impl InputFile {
    fn weight(self, spec: &ModelSpec) -> (WeightSpec, Format) {
        match self {
            Self::Head(precision) => {
                let format = Format::rounded(precision, Weights::Float);
                (weights::lm_head(spec, format), format)
            }
            Self::Embeddings => (weights::embedding(spec), Format::PLAIN),
        }
    }

    /// Its bytes in the checkpoint and in the file.
    pub(crate) fn amount(self, spec: &ModelSpec, checkpoint: &Checkpoint) -> u64 {
        let (weight, format) = self.weight(spec);
        checkpoint.tensors().get(&weight.name).map_or(0, |entry| entry.bytes) + format.size_bytes(&weight)
    }

    /// What the file holds. `on_read` is given the checkpoint's bytes.
    ///
    /// # Errors
    /// Those of reading, and of `on_read`.
    pub(crate) fn read(self, spec: &ModelSpec, checkpoint: &Checkpoint, on_read: &mut OnBytes<'_>) -> Result<Vec<u8>> {
        let (weight, format) = self.weight(spec);
        let stored = EncodedWeight::read(checkpoint, &weight, format, on_read);
        let mut bytes = stored.map_err(|error| checkpoint.in_stored_words(error))?.bytes;
        if matches!(self, Self::Embeddings) && spec.factors.embedding != 1.0 {
            let factor = spec.factors.embedding as f32;
            for number in bytes.as_chunks_mut::<4>().0 {
                *number = (f32::from_le_bytes(*number) * factor).to_le_bytes();
            }
        }
        Ok(bytes)
    }
}

/// Reads and converts the LM head alone.
#[cfg(test)]
pub(crate) fn read_head(
    spec: &ModelSpec,
    checkpoint: &Checkpoint,
    format: Format,
    on_read: &mut OnBytes<'_>,
) -> Result<Vec<u8>> {
    EncodedWeight::read(checkpoint, &weights::lm_head(spec, format), format, on_read).map(|stored| stored.bytes)
}

impl<'a> Source<'a> {
    /// Runs work that loads these weights, in about this order, while a thread reads the next.
    fn reading_ahead<T>(&mut self, weights: Vec<WeightSpec>, work: impl FnOnce(&mut Self) -> T) -> T {
        let (checkpoint, format): (&'a Checkpoint, _) = (self.checkpoint, self.format);
        thread::scope(|scope| {
            let source = EndAhead(self);
            source.0.ahead = ReadAhead::start(scope, checkpoint, weights, format);
            work(source.0)
        })
    }

    /// Reads and converts one weight, passes it to every graph, drops it; returns its handle in each graph.
    fn load<'g, S: GraphSink + 'g>(
        &mut self,
        weight: &WeightSpec,
        graphs: impl Iterator<Item = &'g mut Composer<S>>,
    ) -> Result<Vec<TensorValue<S::Tensor>>> {
        crate::progress::go_on(self.progress)?;
        let progress = &mut *self.progress;
        let read = self.ahead.as_mut().and_then(|ahead| ahead.take(weight, progress));
        let stored = read.unwrap_or_else(|| {
            EncodedWeight::read(self.checkpoint, weight, self.format, &mut |n| advance(progress, n))
        });
        let stored = stored.map_err(|error| self.checkpoint.in_stored_words(error))?;
        let handles = graphs.map(|graph| graph.constant(&stored, self.progress)).collect::<Result<Vec<_>>>()?;
        self.loss.join(stored.loss);
        if let Some(note) = &stored.note {
            self.progress.note(&format!("`{}`: {note}", self.checkpoint.stored_name(&weight.name)));
        }
        self.progress.item(&weight.name, stored.source_bytes);
        Ok(handles)
    }
}
