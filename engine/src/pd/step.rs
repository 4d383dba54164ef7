//! One execution: small inputs written, two caches bound, new rows kept.
//!
//! Where the graph writes new rows itself, an updated past is bound to the buffer of the past it comes from, or to one of its own whose new
//! rows are copied over afterwards. A step that fails has kept nothing: rows count only once they are taken.

use kvmanager::{KvTensor, RowStore};
use nsp_graph::pd::{Input, Output, PairGraph, PairLayout, Slot};

use super::feeds::{Feeds, Half};
use crate::buffer::Buffer;
use crate::quant::{self, QuantParams};
use crate::{Binding, EngineError, Executor};

/// Buffers and roles of all graphs.
#[derive(Debug)]
pub(super) struct Graphs {
    pub(super) layout: PairLayout,
    graphs: Vec<GraphIo>,
    logits: Buffer,
    /// New rows, by tensor.
    present: Vec<Buffer>,
    /// Updated pasts by slot and tensor, where they are not written in place.
    updated: [Vec<Buffer>; 2],
    in_place: bool,
    /// Rows of logits of the last step.
    pub(super) rows: [Vec<f32>; 2],
}

/// An output's number in its graph, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    output: usize,
    bytes: usize,
}

/// One graph's inputs, and where its outputs and cache tensors are.
#[derive(Debug)]
struct GraphIo {
    feeds: Feeds,
    logits: Place,
    /// New rows, by tensor.
    presents: Vec<Place>,
    /// By slot and tensor: the input, and the output where the graph updates.
    pasts: [Vec<(usize, Option<usize>)>; 2],
    /// Of the logits.
    encoding: QuantParams,
}

const fn number(slot: Slot) -> usize {
    match slot {
        Slot::Prefill => 0,
        Slot::Decode => 1,
    }
}

/// The caches of a step. In a graph for a decode row the first is not looked at.
pub(super) struct Stores<'a> {
    pub(super) prefill: &'a mut RowStore,
    pub(super) decode: &'a mut RowStore,
}

impl Graphs {
    /// Bytes of updated pasts that are not those of the sequences.
    pub(super) fn bytes_aside(&self) -> usize {
        self.updated.iter().flatten().map(|buffer| buffer.bytes().len()).sum()
    }

    pub(super) fn new(layout: PairLayout, in_place: bool) -> Result<Self, EngineError> {
        let widest = layout.graphs().map(|g| g.rows).max().unwrap_or(1);
        let tensors: Vec<KvTensor> = layout.tensors.iter().map(|t| t.tensor).collect();
        let graphs = layout.graphs().map(|g| GraphIo::new(g, &layout)).collect::<Result<Vec<_>, _>>()?;
        let own = layout.updates && !in_place;
        let full = |t: &KvTensor| Buffer::zeroed(t.rows_bytes(layout.context - 1));
        let updated = || tensors.iter().filter(|_| own).map(full).collect::<Vec<_>>();
        Ok(Self {
            logits: Buffer::zeroed(graphs.iter().map(|g| g.logits.bytes).max().unwrap_or(0)),
            present: tensors.iter().map(|t| Buffer::zeroed(t.rows_bytes(widest))).collect(),
            updated: [updated(), updated()],
            in_place,
            rows: [vec![0.0; layout.vocab_size], vec![0.0; layout.vocab_size]],
            graphs,
            layout,
        })
    }

    pub(super) fn graph(&self, index: usize) -> &PairGraph {
        self.layout.graphs().nth(index).expect("an index of the layout")
    }

    /// The index of the graph for a decode row.
    pub(super) fn single(&self) -> usize {
        self.layout.pairs.len()
    }

    /// Runs graph `index` and keeps the new rows of both halves. Logits are in `rows` then: of the chunk's last token, and of the
    /// decode row.
    pub(super) fn run<X: Executor>(
        &mut self,
        executor: &mut X,
        index: usize,
        (prompt, decode): (Option<Half<'_>>, Option<Half<'_>>),
        stores: &mut Stores<'_>,
    ) -> Result<(), EngineError> {
        let rows = self.graph(index).rows;
        let past_len = self.layout.past_of(rows);
        let is_pair = rows > 1;
        if is_pair {
            stores.prefill.set_past(past_len)?;
        }
        stores.decode.set_past(past_len)?;
        self.graphs[index].feeds.write(prompt, decode);
        self.execute(executor, index, stores)?;
        let chunk = prompt.map_or(0, |half| half.tokens.len());
        let Stores { prefill, decode: decoding } = stores;
        if chunk > 0 {
            self.keep(prefill, Slot::Prefill, rows, rows - 1 - chunk..rows - 1)?;
        }
        if decode.is_some() {
            self.keep(decoding, Slot::Decode, rows, rows - 1..rows)?;
        }
        self.read_logits(index, (prompt, decode))?;
        if chunk > 0 {
            prefill.advance(chunk)?;
        }
        if decode.is_some() {
            decoding.advance(1)?;
        }
        Ok(())
    }

    fn execute<X: Executor>(
        &mut self,
        executor: &mut X,
        index: usize,
        stores: &mut Stores<'_>,
    ) -> Result<(), EngineError> {
        let graph = self.layout.graphs().nth(index).expect("an index of the layout");
        let io = &self.graphs[index];
        let Feeds { ids, positions, ctrl, mask, overrides, .. } = &io.feeds;
        let small = graph.inputs.iter().enumerate().filter_map(|(i, role)| {
            let buffer = match role {
                Input::Ids => ids,
                Input::Positions => positions,
                Input::Mask => mask,
                Input::Ctrl => ctrl,
                Input::Override => overrides,
                Input::Past(..) => return None,
            };
            Some(Binding::Input(i, buffer.bytes()))
        });
        let logits = std::iter::once(output(io.logits, &mut self.logits));
        let presents = io.presents.iter().zip(&mut self.present).map(|(place, buffer)| output(*place, buffer));
        let [of_prefill, of_decode] = &io.pasts;
        let [updated_prefill, updated_decode] = &mut self.updated;
        let aliased = self.in_place && self.layout.updates;
        let prefill = bind(aliased, of_prefill, stores.prefill, updated_prefill);
        let decode = bind(aliased, of_decode, stores.decode, updated_decode);
        let mut all = small.chain(logits).chain(presents).chain(prefill).chain(decode);
        let failed = |source| EngineError::Execute { graph: graph.info.name.clone(), source };
        executor.execute(0, index, &mut all).map_err(failed)
    }

    /// Writes new rows behind those of a store, unless the graph has done it in place.
    fn keep(
        &self,
        store: &mut RowStore,
        slot: Slot,
        rows: usize,
        range: std::ops::Range<usize>,
    ) -> Result<(), EngineError> {
        if !self.layout.updates {
            for (t, new) in self.present.iter().enumerate() {
                store.write(t, new.bytes(), rows, range.start, range.len())?;
            }
        } else if !self.in_place {
            let (past_len, first) = (self.layout.past_of(rows), store.n_rows());
            for (t, updated) in self.updated[number(slot)].iter().enumerate() {
                store.write(t, updated.bytes(), past_len, first, range.len())?;
            }
        }
        Ok(())
    }

    /// Decodes the rows of logits that the step has computed.
    fn read_logits(
        &mut self,
        index: usize,
        (prompt, decode): (Option<Half<'_>>, Option<Half<'_>>),
    ) -> Result<(), EngineError> {
        let GraphIo { encoding, .. } = self.graphs[index];
        let n_logits = self.graph(index).n_logits;
        let row_bytes = self.layout.vocab_size * encoding.size_bytes();
        for (i, half) in [prompt, decode].into_iter().enumerate() {
            let Some(half) = half.filter(|half| !half.tokens.is_empty()) else { continue };
            // A graph for a decode row has no other.
            let row = i + n_logits - 2;
            let bytes = &self.logits.bytes()[row * row_bytes..(row + 1) * row_bytes];
            encoding.decode(bytes, &mut self.rows[i]);
            if let Some((place, what)) = quant::not_finite(&self.rows[i]) {
                let graph = self.graph(index).info.name.clone();
                let position = half.n_past + half.tokens.len() - 1;
                return Err(EngineError::NotFinite { graph, what, index: place, position });
            }
        }
        Ok(())
    }
}

/// An output, written to the first bytes of a buffer.
fn output(place: Place, buffer: &mut Buffer) -> Binding<'_> {
    Binding::Output(place.output, &mut buffer.bytes_mut()[..place.bytes])
}

/// The bindings of one request's pasts: in place, or each updated one to a buffer of its own.
fn bind<'a>(
    in_place: bool,
    places: &'a [(usize, Option<usize>)],
    store: &'a mut RowStore,
    updated: &'a mut [Buffer],
) -> impl Iterator<Item = Binding<'a>> {
    let mut updated = updated.iter_mut();
    places.iter().zip(store.pasts_mut()).flat_map(move |(&(input, output), past)| {
        let len = past.len();
        match (output, in_place) {
            (Some(output), true) => [Some(Binding::InPlace(input, output, past)), None],
            (None, _) => [Some(Binding::Input(input, past)), None],
            (Some(output), false) => {
                let own = updated.next().map(|buffer| Binding::Output(output, &mut buffer.bytes_mut()[..len]));
                [Some(Binding::Input(input, past)), own]
            }
        }
        .into_iter()
        .flatten()
    })
}

impl GraphIo {
    fn new(graph: &PairGraph, layout: &PairLayout) -> Result<Self, EngineError> {
        let output = |role: Output| graph.outputs.iter().position(|found| *found == role);
        let place = |role: Output| {
            let output = output(role).expect("the layout has checked it");
            Place { output, bytes: graph.info.outputs[output].size_bytes() }
        };
        let logits = place(Output::Logits);
        let info = &graph.info.outputs[logits.output];
        let encoding = QuantParams::of(info.dtype, &info.quant).ok_or_else(|| EngineError::Unsupported {
            what: format!("a model with {} logits", info.dtype),
            hint: "",
        })?;
        let past = |slot, t| {
            let input = graph.inputs.iter().position(|role| *role == Input::Past(slot, t))?;
            Some((input, output(Output::Updated(slot, t))))
        };
        let presents = (0..layout.tensors.len()).map(|t| place(Output::Present(t))).collect();
        let pasts =
            [Slot::Prefill, Slot::Decode].map(|slot| (0..layout.tensors.len()).filter_map(|t| past(slot, t)).collect());
        Ok(Self { feeds: Feeds::new(graph, layout.context)?, logits, presents, pasts, encoding })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use genie_types::{Dtype, GraphIdx, GraphInfo, KvDtype, KvKind, Quant, TensorInfo};
    use nsp_graph::pd::PairTensor;

    #[test]
    fn outputs_are_found_wherever_they_stand() {
        let t = |name: &str, dims: [usize; 4]| TensorInfo::new(name, dims, Dtype::F32);
        let info = GraphInfo {
            name: "g".into(),
            inputs: vec![t("attention_mask", [1, 1, 2, 8])],
            outputs: vec![
                t("present_value_0", [1, 1, 2, 4]),
                t("logits", [1, 1, 2, 10]),
                t("past_value_0_out", [1, 1, 6, 4]),
                t("present_key_0", [1, 1, 4, 2]),
            ],
        };
        let updated = Output::Updated(Slot::Decode, 1);
        let outputs = vec![Output::Present(1), Output::Logits, updated, Output::Present(0)];
        let inputs = vec![Input::Mask];
        let graph = PairGraph { binary: 0, graph: GraphIdx(0), info, rows: 2, n_logits: 2, inputs, outputs };
        let tensor = |kind| {
            let tensor = KvTensor::new(kind, 0, 1, 4, KvDtype::F32);
            PairTensor { tensor, dtype: Dtype::F32, quant: Quant::None }
        };
        let layout = PairLayout {
            context: 8,
            pairs: vec![graph.clone()],
            single: graph.clone(),
            tensors: vec![tensor(KvKind::Key), tensor(KvKind::Value)],
            vocab_size: 10,
            updates: true,
        };
        let io = GraphIo::new(&graph, &layout).unwrap();
        assert_eq!(io.logits, Place { output: 1, bytes: 80 });
        assert_eq!(io.presents, [Place { output: 3, bytes: 32 }, Place { output: 0, bytes: 32 }]);
    }
}
