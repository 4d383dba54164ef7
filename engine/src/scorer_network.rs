//! A bundle's own network for `keydiff`: it takes the keys of all layers and scores them; the highest scores go first.
//!
//! *Shapes*: inputs `past_key_{layer}_in` `[heads, 1, head_dim, CL]`, the cache's columns with zeros behind its rows, and
//! `anchor_buffer_{layer}_in` `[heads, 1, head_dim, 1]`; outputs `score_{layer}` `[heads, 1, CL]`. CL is the longest one.
//! Of a name its beginning (`past` or `key`, `anchor`, `score`) and its first number count.
//! *Trap*: scores are ranked by their bits as unsigned numbers. Of fixed point that is the order of the numbers; of floats the
//! negative ones go before all others, the most negative first.
//! *Source*: libGenie 1.21, each graph execution recorded (`docs/long-context.md`).

use std::path::Path;
use std::sync::Arc;

use genie_types::{KvKind, LayerIdx, TensorInfo};
use kvmanager::{Eviction, HeadKeys, KeyScorer};
use nsp_graph::ModelLayout;
use qnn_api::{Backend, Graph};

use crate::anchors::SharedAnchors;
use crate::buffer::Buffer;
use crate::quant::{QuantParams, Rounding};
use crate::{EngineError, Reading};

/// Begins what is saved of a network; the first number is no layer of [`kvmanager::KeyDiff`].
const MARK: [u8; 12] = *b"\xff\xff\xff\xff\xff\xff\xff\xffanch";

/// The network, loaded.
pub(crate) struct ScorerNetwork {
    graph: Graph,
    keys: Vec<Part>,
    anchors: Vec<Part>,
    scores: Vec<Part>,
    shared: SharedAnchors,
}

/// A tensor of the network.
struct Part {
    layer: LayerIdx,
    /// Its place among the inputs or outputs.
    index: usize,
    heads: usize,
    /// Elements of a key; 1 for scores.
    dim: usize,
    /// Rows that it has room for; 1 for anchors.
    columns: usize,
    encoding: QuantParams,
    buffer: Buffer,
}

/// The heads of a layer as the model has them.
struct LayerHeads {
    layer: LayerIdx,
    n: usize,
    dim: usize,
}

impl ScorerNetwork {
    /// Loads the binary and holds its only graph against the model's layers.
    pub(crate) fn open(
        backend: &Arc<Backend>,
        path: &Path,
        reading: &Reading,
        (layout, rules): (&ModelLayout, &[(String, Eviction)]),
        shared: SharedAnchors,
    ) -> Result<Self, EngineError> {
        crate::load::must_exist("scoring network", path)?;
        let group = scored_group(layout, rules)?;
        let (context, _) = reading.context(backend, path, None)?;
        let names: Vec<String> = context.graphs().map(|graph| graph.name.clone()).collect();
        let [name] = names.as_slice() else {
            let (expected, found) = ("a binary with one graph", format!("{} in `{}`", names.len(), path.display()));
            return Err(EngineError::Config { what: "scoring network", expected, found });
        };
        let found = context.graph(name);
        let graph = found.map_err(|source| EngineError::FindGraph { graph: name.clone(), source })?;
        let heads = heads_of(layout, group);
        let columns = layout.splits.iter().flat_map(|split| &split.graphs).flat_map(|graph| {
            let masks = graph.inputs.iter().zip(&graph.info.inputs);
            masks
                .filter_map(|(role, t)| (*role == nsp_graph::InputRole::Mask(group)).then(|| t.dims.last().copied())?)
        });
        let columns = columns.max().unwrap_or(layout.max_cl());
        Self::of_graph(graph, &heads, columns, shared)
    }

    fn of_graph(
        graph: Graph,
        heads: &[LayerHeads],
        columns: usize,
        shared: SharedAnchors,
    ) -> Result<Self, EngineError> {
        let info = graph.info().clone();
        let wrong = |tensor: &str, expected: String, found: String| EngineError::ScorerTensor {
            graph: info.name.clone(),
            tensor: tensor.into(),
            expected,
            found,
        };
        let part = |index: usize, t: &TensorInfo, of_keys: bool, per_row: bool| {
            let layer = t.name.split('_').find_map(|word| word.parse().ok()).map(LayerIdx);
            let Some(own) = heads.iter().find(|own| Some(own.layer) == layer) else {
                let layers = heads.iter().map(|own| own.layer.0.to_string()).collect::<Vec<_>>().join(", ");
                return Err(wrong(
                    &t.name,
                    format!("a name with the number of a scored layer ({layers})"),
                    "another".into(),
                ));
            };
            let (dim, columns) = (if of_keys { own.dim } else { 1 }, if per_row { columns } else { 1 });
            let n = own.n * dim * columns;
            let last = t.dims.last().copied();
            if t.n_elems() != n || (per_row && last != Some(columns)) || t.dims.first() != Some(&own.n) {
                let middle = if of_keys { format!("1, {dim}, ") } else { "1, ".into() };
                return Err(wrong(&t.name, format!("[{}, {middle}{columns}]", own.n), format!("{:?}", t.dims)));
            }
            let Some(encoding) = QuantParams::of(t.dtype, &t.quant) else {
                return Err(wrong(&t.name, "floats, or fixed point with one scale".into(), t.dtype.to_string()));
            };
            let buffer = Buffer::zeroed(t.size_bytes());
            Ok(Part { layer: own.layer, index, heads: own.n, dim, columns, encoding, buffer })
        };
        let (mut keys, mut anchors, mut scores) = (Vec::new(), Vec::new(), Vec::new());
        for (index, t) in info.inputs.iter().enumerate() {
            if t.name.starts_with("past") || t.name.starts_with("key") {
                keys.push(part(index, t, true, true)?);
            } else if t.name.starts_with("anchor") {
                anchors.push(part(index, t, true, false)?);
            } else {
                return Err(wrong(
                    &t.name,
                    "inputs named `past_key_..` and `anchor_buffer_..` alone".into(),
                    "another".into(),
                ));
            }
        }
        for (index, t) in info.outputs.iter().enumerate() {
            if !t.name.starts_with("score") {
                return Err(wrong(&t.name, "outputs named `score_..` alone".into(), "another".into()));
            }
            scores.push(part(index, t, false, true)?);
        }
        for own in heads {
            for (list, name) in [(&keys, "past_key_{}_in"), (&scores, "score_{}")] {
                let n = list.iter().filter(|part| part.layer == own.layer).count();
                if n != 1 {
                    let name = name.replace("{}", &own.layer.0.to_string());
                    return Err(wrong(&name, "one for each scored layer".into(), n.to_string()));
                }
            }
        }
        let known = shared.lock();
        for anchor in &anchors {
            if !known.iter().any(|own| own.layer == anchor.layer && own.numbers.len() == anchor.heads * anchor.dim) {
                let (name, layer) = (&info.inputs[anchor.index].name, anchor.layer.0);
                let expected = format!(
                    "graphs of the model with `anchor_buffer_{layer}_in` of {} numbers",
                    anchor.heads * anchor.dim
                );
                return Err(wrong(name, expected, "none".into()));
            }
        }
        drop(known);
        Ok(Self { graph, keys, anchors, scores, shared })
    }

    fn run(&mut self) -> Result<(), String> {
        let failed = |error: qnn_api::Error| error.to_string();
        let mut session = self.graph.session();
        for part in self.keys.iter().chain(&self.anchors) {
            session.input(part.index, part.buffer.bytes()).map_err(failed)?;
        }
        for part in &mut self.scores {
            session.output(part.index, part.buffer.bytes_mut()).map_err(failed)?;
        }
        session.run().map_err(failed)
    }
}

impl KeyScorer for ScorerNetwork {
    fn takes_group(&self) -> bool {
        true
    }

    /// Of one head alone there are no scores.
    fn score(&mut self, _: LayerIdx, _: usize, _: &[f32], scores: &mut [f32]) {
        scores.fill(0.0);
    }

    fn score_group(&mut self, heads: &mut [HeadKeys]) -> Result<(), String> {
        for part in &mut self.keys {
            let Part { layer, heads: n_heads, dim, columns, .. } = *part;
            let of = |head: usize| heads.iter().find(|h| h.layer == layer && h.head == head).map(|h| h.keys.as_slice());
            let own: Vec<&[f32]> = (0..n_heads).map(|head| of(head).unwrap_or(&[])).collect();
            if let Some(longest) = own.iter().map(|keys| keys.len() / dim).find(|&n| n > columns) {
                return Err(format!("the scoring network takes {columns} keys of a head, the cache has {longest}"));
            }
            let key = |head: usize, d: usize, row: usize| own[head].get(row * dim + d).map_or(0.0, |&x| f64::from(x));
            let numbers =
                (0..n_heads * dim * columns).map(|i| key(i / (dim * columns), i / columns % dim, i % columns));
            part.encoding.encode(numbers, Rounding::Nearest, part.buffer.bytes_mut());
        }
        let shared = self.shared.lock();
        for part in &mut self.anchors {
            let anchor = shared.iter().find(|anchor| anchor.layer == part.layer);
            let numbers = anchor.into_iter().flat_map(|anchor| &anchor.numbers).map(|&x| f64::from(x));
            part.encoding.encode(numbers, Rounding::Nearest, part.buffer.bytes_mut());
        }
        drop(shared);
        self.run()?;
        for part in &self.scores {
            let mut numbers = vec![0.0; part.heads * part.columns];
            part.encoding.decode(part.buffer.bytes(), &mut numbers);
            let codes = codes(part.buffer.bytes(), part.encoding.size_bytes());
            for head in heads.iter_mut().filter(|head| head.layer == part.layer) {
                let first = head.head * part.columns;
                let own = first..first + head.scores.len();
                if let Some(row) = numbers[own.clone()].iter().position(|score| score.is_nan()) {
                    let (layer, head) = (part.layer.0, head.head);
                    return Err(format!(
                        "the scoring network gives no number for layer {layer}, head {head}, row {row}"
                    ));
                }
                rank(&codes[own], &mut head.scores);
            }
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.shared.lock().iter_mut().for_each(|anchor| anchor.numbers.fill(0.0));
    }

    fn save(&self) -> Vec<u8> {
        let mut out = MARK.to_vec();
        for anchor in self.shared.lock().iter() {
            [anchor.layer.0, anchor.numbers.len()].iter().for_each(|&n| out.extend((n as u32).to_le_bytes()));
            anchor.numbers.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        out
    }

    fn restore(&mut self, saved: &[u8]) -> bool {
        let Some((words, [])) = saved.strip_prefix(&MARK).map(<[u8]>::as_chunks::<4>) else { return false };
        let mut anchors = self.shared.lock();
        let mut words = words.iter();
        let mut read = anchors.clone();
        for anchor in &mut read {
            let mut number = || words.next().map(|&n| u32::from_le_bytes(n) as usize);
            if (number(), number()) != (Some(anchor.layer.0), Some(anchor.numbers.len())) {
                return false;
            }
            for x in &mut anchor.numbers {
                let Some(&bytes) = words.next() else { return false };
                *x = f32::from_le_bytes(bytes);
            }
        }
        let good = words.next().is_none() && read.iter().flat_map(|anchor| &anchor.numbers).all(|x| x.is_finite());
        if good {
            *anchors = read;
        }
        good
    }
}

/// The elements of a tensor as unsigned numbers.
fn codes(bytes: &[u8], size: usize) -> Vec<u32> {
    let code = |element: &[u8]| element.iter().rev().fold(0, |code, &byte| code << 8 | u32::from(byte));
    bytes.chunks_exact(size).map(code).collect()
}

/// Ranks of codes: the highest is 0, equal ones have the same.
fn rank(codes: &[u32], ranks: &mut [f32]) {
    let mut sorted = codes.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    for (rank, code) in ranks.iter_mut().zip(codes) {
        // Columns are few enough for f32 to count them.
        *rank = sorted.partition_point(|other| other > code) as f32;
    }
}

/// The group that drops rows by score.
fn scored_group(layout: &ModelLayout, rules: &[(String, Eviction)]) -> Result<usize, EngineError> {
    let scored = |prefix: &str| rules.iter().any(|(p, rule)| p == prefix && matches!(rule, Eviction::KeyDiff { .. }));
    let groups: Vec<usize> = (0..layout.groups.len()).filter(|&g| scored(&layout.groups[g].prefix)).collect();
    let [group] = groups.as_slice() else {
        let (expected, found) = ("one cache group of type `keydiff`", groups.len().to_string());
        return Err(EngineError::Config { what: "scoring network", expected, found });
    };
    Ok(*group)
}

/// The heads of each layer of a group.
fn heads_of(layout: &ModelLayout, group: usize) -> Vec<LayerHeads> {
    let mut heads: Vec<LayerHeads> = Vec::new();
    let keys = layout.splits.iter().flat_map(|split| &split.kv).map(|kv| kv.tensor);
    for tensor in keys.filter(|tensor| tensor.group == group && tensor.kind == KvKind::Key) {
        match heads.iter_mut().find(|own| own.layer == tensor.layer) {
            Some(own) => own.n += tensor.n_heads,
            None => heads.push(LayerHeads { layer: tensor.layer, n: tensor.n_heads, dim: tensor.head_dim }),
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn the_highest_bits_go_first() {
        let bytes: Vec<u8> =
            [0.5, -0.25, 3.0, -7.0, 0.0, 3.0].iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect();
        let mut ranks = [0.0; 6];
        rank(&codes(&bytes, 2), &mut ranks);
        assert_eq!(ranks, [4.0, 1.0, 2.0, 0.0, 5.0, 2.0]);
        rank(&codes(&[7, 255, 0], 1), &mut ranks[..3]);
        assert_eq!(ranks[..3], [1.0, 0.0, 2.0]);
        assert_eq!(codes(&[1, 2, 3, 4], 4), [0x0403_0201]);
    }
}
