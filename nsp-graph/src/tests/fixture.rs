//! Bundles of the contract's shapes, to be bent by the tests.

use genie_types::{Dtype, GraphInfo, Quant, TensorInfo};

use crate::{BinaryGraphs, LayoutError, ModelLayout, Options, analyze};

/// A model and how it was exported.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) head_dim: usize,
    pub(super) hidden: usize,
    pub(super) vocab: usize,
    pub(super) rank3: bool,
    pub(super) scatter: bool,
    pub(super) per_head: bool,
    pub(super) embeds: bool,
    /// uint8 cache, uint16 for the rest.
    pub(super) quantised: bool,
    /// Parts: `l` LUT, a number of layers, `h` LM head; one part with layers and without `l`/`h` beside it is whole.
    pub(super) parts: &'static [Part],
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Part {
    Whole,
    Lut,
    /// Tokens and that many layers.
    First(usize),
    /// That many layers.
    Layers(usize),
    /// That many layers and the logits.
    Last(usize),
    Head,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            layers: 2,
            heads: 2,
            head_dim: 32,
            hidden: 128,
            vocab: 512,
            rank3: false,
            scatter: false,
            per_head: false,
            embeds: false,
            quantised: false,
            parts: &[Part::Whole],
        }
    }
}

impl Model {
    fn kv_type(&self, name: String, dims: Vec<usize>) -> TensorInfo {
        if self.quantised {
            TensorInfo::new(name, dims, Dtype::UFixed8).with_quant(Quant::PerTensor { scale: 0.1, offset: -128 })
        } else {
            TensorInfo::new(name, dims, Dtype::F16)
        }
    }

    fn act(&self, name: &str, dims: Vec<usize>) -> TensorInfo {
        if self.quantised {
            TensorInfo::new(name, dims, Dtype::UFixed16).with_quant(Quant::PerTensor { scale: 1e-3, offset: -32768 })
        } else {
            TensorInfo::new(name, dims, Dtype::F16)
        }
    }

    fn rows(&self, ar: usize, width: usize) -> Vec<usize> {
        if self.rank3 { vec![1, ar, width] } else { vec![1, 1, ar, width] }
    }

    fn add_layer(&self, g: &mut GraphInfo, layer: usize, ar: usize, cl: usize) {
        let past = if self.scatter { cl } else { cl - ar };
        let heads: Vec<(String, usize)> = if self.per_head {
            (0..self.heads).map(|h| (format!("_h{h}"), 1)).collect()
        } else {
            vec![(String::new(), self.heads)]
        };
        for (suffix, n) in heads {
            let key = |seq| vec![n, 1, self.head_dim, seq];
            let value = |seq| vec![n, 1, seq, self.head_dim];
            if past > 0 {
                g.inputs.push(self.kv_type(format!("past_key_{layer}{suffix}_in"), key(past)));
                g.inputs.push(self.kv_type(format!("past_value_{layer}{suffix}_in"), value(past)));
            }
            g.outputs.push(self.kv_type(format!("past_key_{layer}{suffix}_out"), key(ar)));
            g.outputs.push(self.kv_type(format!("past_value_{layer}{suffix}_out"), value(ar)));
        }
    }

    /// One graph of one part.
    fn graph(&self, ar: usize, cl: usize, split: usize) -> GraphInfo {
        use Part::*;
        let part = self.parts[split];
        let total = self.parts.len();
        let mut g = GraphInfo { name: format!("ar{ar}_cl{cl}_{}_of_{total}", split + 1), ..GraphInfo::default() };
        let layers_of = |p: &Part| match p {
            Whole => self.layers,
            First(n) | Layers(n) | Last(n) => *n,
            Lut | Head => 0,
        };
        let before: usize = self.parts[..split].iter().map(layers_of).sum();
        let (tokens, logits) = (matches!(part, Whole | Lut | First(_)), matches!(part, Whole | Last(_) | Head));
        if tokens && self.embeds {
            g.inputs.push(self.act("inputs_embeds", vec![1, ar, self.hidden]));
        } else if tokens {
            g.inputs.push(TensorInfo::new("input_ids", [1, ar], Dtype::I32));
        } else {
            g.inputs.push(self.act(&format!("hidden_{}", split - 1), vec![1, ar, self.hidden]));
        }
        if layers_of(&part) > 0 {
            g.inputs.push(self.act("attention_mask", self.rows(ar, cl)));
            g.inputs.push(self.act("position_ids_cos", self.rows(ar, self.head_dim / 2)));
            g.inputs.push(self.act("position_ids_sin", self.rows(ar, self.head_dim / 2)));
            if self.scatter {
                g.inputs.push(TensorInfo::new("cache_index", [1], Dtype::I32));
            }
        }
        for layer in before..before + layers_of(&part) {
            self.add_layer(&mut g, layer, ar, cl);
        }
        if logits {
            g.outputs.push(self.act("logits", vec![1, ar, self.vocab]));
        } else {
            g.outputs.push(self.act(&format!("hidden_{split}"), vec![1, ar, self.hidden]));
        }
        g
    }

    /// One binary per part, holding all variants of it.
    pub(super) fn bundle(&self, variants: &[(usize, usize)]) -> Vec<BinaryGraphs> {
        let graphs = |split| variants.iter().map(|&(ar, cl)| self.graph(ar, cl, split)).collect();
        (0..self.parts.len())
            .map(|split| BinaryGraphs { source: format!("part{}.bin", split + 1), graphs: graphs(split) })
            .collect()
    }

    pub(super) fn layout(&self, variants: &[(usize, usize)]) -> Result<ModelLayout, LayoutError> {
        analyze(&self.bundle(variants), &Options::default())
    }
}

/// The tensor of that name in that graph, wherever it is.
pub(super) fn tensor<'a>(bundle: &'a mut [BinaryGraphs], graph: &str, name: &str) -> &'a mut TensorInfo {
    let graph = graph_mut(bundle, graph);
    graph.inputs.iter_mut().chain(&mut graph.outputs).find(|t| t.name == name).expect("fixture has the tensor")
}

pub(super) fn graph_mut<'a>(bundle: &'a mut [BinaryGraphs], name: &str) -> &'a mut GraphInfo {
    bundle.iter_mut().flat_map(|b| &mut b.graphs).find(|g| g.name == name).expect("fixture has the graph")
}

/// The keys of all graphs by row.
pub(super) fn keys_by_row(bundle: &mut [BinaryGraphs]) {
    let graphs = bundle.iter_mut().flat_map(|b| &mut b.graphs);
    let tensors = graphs.flat_map(|graph| graph.inputs.iter_mut().chain(&mut graph.outputs));
    tensors.filter(|t| t.name.starts_with("past_key")).for_each(|t| t.dims.swap(2, 3));
}

/// The cache of all graphs in blocks of 32 numbers: keys by row, and scales.
pub(super) fn in_blocks(bundle: &mut [BinaryGraphs]) {
    for graph in bundle.iter_mut().flat_map(|b| &mut b.graphs) {
        for list in [&mut graph.inputs, &mut graph.outputs] {
            let mut scales = Vec::new();
            for t in list.iter_mut().filter(|t| t.name.starts_with("past_")) {
                if t.name.starts_with("past_key") {
                    t.dims.swap(2, 3);
                }
                (t.dtype, t.quant) = (Dtype::UFixed8, Quant::PerTensor { scale: 1.0, offset: -128 });
                let name = t.name.replacen("key_", "key_scale_", 1).replacen("value_", "value_scale_", 1);
                scales.push(TensorInfo::new(name, [t.dims[0], 1, t.dims[2], t.dims[3] / 32], Dtype::F16));
            }
            list.append(&mut scales);
        }
    }
}

/// Drops a tensor from a graph.
pub(super) fn drop_tensor(bundle: &mut [BinaryGraphs], graph: &str, name: &str) {
    let graph = graph_mut(bundle, graph);
    let before = graph.inputs.len() + graph.outputs.len();
    graph.inputs.retain(|t| t.name != name);
    graph.outputs.retain(|t| t.name != name);
    assert_eq!(graph.inputs.len() + graph.outputs.len() + 1, before, "fixture has the tensor");
}
