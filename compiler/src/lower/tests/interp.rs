//! Runs recorded graphs, op by op, with no thought for speed; and drives them as an engine would.

use super::recorder::{Graph, Held, Node};
use crate::lower::Param;
use crate::testmodel::TestModel;
use genie_types::{Dtype, Quant, TensorInfo};
use half::{bf16, f16};
use std::collections::HashMap;

type Values = HashMap<String, Vec<f32>>;

/// Positions' cosines and sines, a column for each rotated pair.
type Tables = (Vec<f32>, Vec<f32>);

fn rope_tables(model: &TestModel, n: usize) -> Tables {
    let width = model.spec().rope_dim();
    let angle = |i: usize| (i / width) as f64 * model.rope_theta.powf(-((i % width) as f64) / width as f64);
    let column = |f: fn(f64) -> f64| (0..n * width).map(|i| f(angle(i)) as f32).collect();
    (column(f64::cos), column(f64::sin))
}

/// The graphs of one variant, with the cache between them.
pub(crate) struct RecordedModel<'a> {
    graphs: Vec<&'a Graph>,
    ar: usize,
    past: usize,
    n_past: usize,
    tables: Tables,
    width: usize,
    head_dim: usize,
    cache: Values,
}

impl<'a> RecordedModel<'a> {
    pub(crate) fn new(model: &TestModel, contexts: &'a [Vec<Graph>], ar: usize, cl: usize) -> Self {
        let named = |graphs: &'a Vec<Graph>| graphs.iter().find(|g| g.name.starts_with(&format!("ar{ar}_cl{cl}_")));
        let graphs: Vec<&Graph> = contexts.iter().map(|c| named(c).unwrap()).collect();
        let inputs = graphs.iter().flat_map(|g| &g.tensors).filter(|t| t.info.name.starts_with("past_"));
        // Rows that were never written hold garbage: the mask has to hide them.
        let cache =
            inputs.filter(|t| t.held == Held::Input).map(|t| (t.info.name.clone(), vec![9.0; t.info.n_elems()]));
        let cache = cache.collect();
        let tables = rope_tables(model, cl);
        Self {
            graphs,
            ar,
            past: cl - ar,
            n_past: 0,
            tables,
            width: model.spec().rope_dim(),
            head_dim: model.head_dim,
            cache,
        }
    }

    /// Feeds up to AR tokens, padded on the right; gives the logits of the real rows.
    pub(crate) fn step(&mut self, tokens: &[u32]) -> Vec<Vec<f32>> {
        let (ar, past, n) = (self.ar, self.past, tokens.len());
        let mut fed = self.cache.clone();
        let ids = (0..ar).map(|i| tokens.get(i).map_or(0.0, |&t| t as f32)).collect();
        fed.insert("input_ids".into(), ids);
        let attends =
            |row: usize, col: usize| row < n && (col < self.n_past.min(past) || (past..=past + row).contains(&col));
        let mask = (0..ar * (past + ar)).map(|i| if attends(i / (past + ar), i % (past + ar)) { 0.0 } else { -1000.0 });
        fed.insert("attention_mask".into(), mask.collect());
        let positions = (0..ar).map(|i| if i < n { (self.n_past + i) as f32 } else { 0.0 });
        fed.insert("position_ids".into(), positions.collect());
        for (name, table, pad) in [("cos", &self.tables.0, 1.0), ("sin", &self.tables.1, 0.0)] {
            let mut rows = vec![pad; ar * self.width];
            let first = self.n_past * self.width;
            rows[..n * self.width].copy_from_slice(&table[first..first + n * self.width]);
            fed.insert(format!("position_ids_{name}"), rows);
        }
        for graph in &self.graphs {
            let made = execute(graph, &fed);
            fed.extend(made);
        }
        self.commit(&fed, n);
        let logits = &fed["logits"];
        logits.chunks(logits.len() / ar).take(n).map(<[f32]>::to_vec).collect()
    }

    /// Copies the new columns behind the old ones.
    fn commit(&mut self, made: &Values, n: usize) {
        let (ar, past, first) = (self.ar, self.past, self.n_past);
        for (name, cache) in &mut self.cache {
            let new = &made[&name.replace("_in", "_out")];
            let head_dim = self.head_dim;
            let heads = new.len() / (ar * head_dim);
            for (head, dim, row) in (0..heads * head_dim * n).map(|i| (i / (head_dim * n), i / n % head_dim, i % n)) {
                if first + row >= past {
                    continue; // the context is full: the last step's rows have no place, and no later step
                }
                if name.contains("key") {
                    cache[(head * head_dim + dim) * past + first + row] = new[(head * head_dim + dim) * ar + row];
                } else {
                    cache[(head * past + first + row) * head_dim + dim] = new[(head * ar + row) * head_dim + dim];
                }
            }
        }
        self.n_past += n;
    }
}

pub(crate) fn decode(info: &TensorInfo, bytes: &[u8]) -> Vec<f32> {
    match info.dtype {
        Dtype::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        Dtype::Bf16 => bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
        Dtype::F16 => bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        Dtype::I32 => bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b) as f32).collect(),
        Dtype::SFixed8 | Dtype::SFixed4 => {
            let q: Vec<i8> = match info.dtype {
                Dtype::SFixed8 => bytes.iter().map(|b| b.cast_signed()).collect(),
                _ => bytes.iter().flat_map(|b| [(b << 4).cast_signed() >> 4, b.cast_signed() >> 4]).collect(),
            };
            let (n_scales, below, scales) = match &info.quant {
                Quant::PerAxis { axis, scale_offsets, .. } => {
                    let (channels, below) = info.dims[*axis as usize..].split_first().unwrap();
                    (*channels, below.iter().product::<usize>(), scale_offsets)
                }
                Quant::Block { block_dims, scale_offsets } if *block_dims == [1, 32] => {
                    (info.dims[0] * info.dims[1] / 32, 32, scale_offsets)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(scales.len(), n_scales);
            q.iter().enumerate().map(|(i, q)| f32::from(*q) * scales[i / below % n_scales].0).collect()
        }
        other => panic!("no constant should be {other}"),
    }
}

pub(crate) fn execute(graph: &Graph, fed: &Values) -> Values {
    let mut values: Vec<Vec<f32>> = graph
        .tensors
        .iter()
        .map(|t| match &t.held {
            Held::Input => {
                let given = fed[&t.info.name].clone();
                assert_eq!(given.len(), t.info.n_elems(), "{}", t.info.name);
                given
            }
            Held::Constant(bytes) => decode(&t.info, bytes),
            Held::Output | Held::Native => Vec::new(),
        })
        .collect();
    for node in &graph.nodes {
        let result = compute(graph, node, &values);
        assert_eq!(result.len(), graph.tensors[node.output].info.n_elems());
        values[node.output] = result;
    }
    let outputs = graph.tensors.iter().zip(values).filter(|(t, _)| t.held == Held::Output);
    outputs.map(|(t, v)| (t.info.name.clone(), v)).collect()
}

fn compute(graph: &Graph, node: &Node, values: &[Vec<f32>]) -> Vec<f32> {
    let input = |i: usize| values[node.inputs[i]].as_slice();
    let dims = |i: usize| graph.tensors[node.inputs[i]].info.dims.as_slice();
    let param = |name: &str| node.params.iter().find(|(n, _)| n == name).map(|(_, p)| p.clone());
    let last = *dims(0).last().unwrap();
    match node.op.as_str() {
        "Gather" if param("axis") == Some(Param::I32(2)) => input(0)
            .chunks(last)
            .flat_map(|row| input(1).iter().map(|&i| row[i as usize]).collect::<Vec<_>>())
            .collect(),
        "Gather" => {
            let width = dims(0)[1];
            input(1).iter().flat_map(|&id| input(0)[id as usize * width..][..width].to_vec()).collect()
        }
        "RmsNorm" => {
            let Some(Param::F32(eps)) = param("epsilon") else { panic!("epsilon") };
            let norm = |row: &[f32]| {
                let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / last as f64;
                let scale = 1.0 / (mean + f64::from(eps)).sqrt();
                row.iter().zip(input(1)).map(|(v, g)| (f64::from(*v) * scale) as f32 * g).collect::<Vec<_>>()
            };
            input(0).chunks(last).flat_map(norm).collect()
        }
        "LayerNorm" => {
            let Some(Param::F32(eps)) = param("epsilon") else { panic!("epsilon") };
            let norm = |row: &[f32]| {
                let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / last as f64;
                let variance = row.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / last as f64;
                let scale = 1.0 / (variance + f64::from(eps)).sqrt();
                let one = |i: usize| ((f64::from(row[i]) - mean) * scale) as f32 * input(1)[i] + input(2)[i];
                (0..last).map(one).collect::<Vec<_>>()
            };
            input(0).chunks(last).flat_map(norm).collect()
        }
        "FullyConnected" => {
            let project = |row: &[f32]| {
                let one = |(out, w): (usize, &[f32])| {
                    let sum: f64 = row.iter().zip(w).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    let bias = if node.inputs.len() == 3 { f64::from(input(2)[out]) } else { 0.0 };
                    (sum + bias) as f32
                };
                input(1).chunks(last).enumerate().map(one).collect::<Vec<_>>()
            };
            input(0).chunks(last).flat_map(project).collect()
        }
        "Conv2d" => {
            let n = dims(1)[3];
            let project = |row: &[f32]| {
                let one = |out: usize| {
                    let sum: f64 =
                        row.iter().enumerate().map(|(i, a)| f64::from(*a) * f64::from(input(1)[i * n + out])).sum();
                    let bias = if node.inputs.len() == 3 { f64::from(input(2)[out]) } else { 0.0 };
                    (sum + bias) as f32
                };
                (0..n).map(one).collect::<Vec<_>>()
            };
            input(0).chunks(last).flat_map(project).collect()
        }
        "Reshape" => input(0).to_vec(),
        "Transpose" => {
            let Some(Param::U32Tensor { data: perm, .. }) = param("perm") else { panic!("perm") };
            let (from, to) = (dims(0), &graph.tensors[node.output].info.dims);
            let stride = |axis: usize| from[axis + 1..].iter().product::<usize>();
            let place = |i: usize| {
                let mut rest = i;
                (0..4).rev().fold(0, |at, axis| {
                    let step = rest % to[axis];
                    rest /= to[axis];
                    at + step * stride(perm[axis] as usize)
                })
            };
            (0..input(0).len()).map(|i| input(0)[place(i)]).collect()
        }
        "RotaryEmbedding" => {
            assert_eq!(param("interleaved"), Some(Param::Bool(false)));
            let Some(Param::U32(rotated)) = param("rotary_embedding_dim") else { panic!("rotary_embedding_dim") };
            let (n, half) = (dims(0)[2], rotated as usize / 2);
            let mut out = input(0).to_vec();
            for (i, row) in out.chunks_mut(last).enumerate() {
                for j in 0..half {
                    let (cos, sin) = (input(1)[i % n * half + j], input(2)[i % n * half + j]);
                    let (a, b) = (row[j], row[half + j]);
                    (row[j], row[half + j]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
            out
        }
        "Concat" => {
            let Some(Param::U32(axis)) = param("axis") else { panic!("axis") };
            let run = |i: usize| dims(i)[axis as usize..].iter().product::<usize>();
            let pairs = input(0).chunks(run(0)).zip(input(1).chunks(run(1)));
            pairs.flat_map(|(a, b)| [a, b].concat()).collect()
        }
        "MatMul" => {
            let [_, g, m, k] = *dims(0) else { panic!("rank") };
            let n = dims(1)[3];
            let cell = |i: usize| {
                let (row, col) = (i / n, i % n);
                let b = &input(1)[row / (g * m) * k * n..];
                (0..k).map(|j| f64::from(input(0)[row * k + j]) * f64::from(b[j * n + col])).sum::<f64>() as f32
            };
            (0..dims(0)[0] * g * m * n).map(cell).collect()
        }
        "ElementWiseAdd" | "ElementWiseMultiply" => {
            let (a, b) = (input(0), input(1));
            let apply = |(i, x): (usize, &f32)| match node.op.as_str() {
                "ElementWiseAdd" => x + b[i % b.len()],
                _ => x * b[i % b.len()],
            };
            a.iter().enumerate().map(apply).collect()
        }
        "Tanh" => input(0).iter().map(|v| v.tanh()).collect(),
        "Sigmoid" => input(0).iter().map(|v| 1.0 / (1.0 + (-v).exp())).collect(),
        "Softmax" => {
            let soft = |row: &[f32]| {
                let top = row.iter().fold(f32::MIN, |m, v| m.max(*v));
                let weights: Vec<f64> = row.iter().map(|v| f64::from(v - top).exp()).collect();
                let sum: f64 = weights.iter().sum();
                weights.into_iter().map(|w| (w / sum) as f32).collect::<Vec<_>>()
            };
            input(0).chunks(last).flat_map(soft).collect()
        }
        other => panic!("op {other}"),
    }
}
