//! Decoder layers as a compiler lowers them, fused against unfused.

use crate::exec::Executable;
use crate::ir::{Dtype, Param, Role, SourceGraph, TensorId};
use crate::prepare::PrepareOptions;
use crate::testing::{Build, Noise, bytes_of, compare, ints, labels, run};

/// Extents and variants of a decoder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) ar: usize,
    pub(super) cl: usize,
    pub(super) kv_heads: usize,
    pub(super) group: usize,
    pub(super) head_dim: usize,
    pub(super) hidden: usize,
    pub(super) ffn: usize,
    pub(super) vocab: usize,
    pub(super) layers: usize,
    pub(super) dtype: Dtype,
    pub(super) qkv_bias: bool,
    pub(super) qk_norm: bool,
}

impl Shape {
    pub(super) fn small(ar: usize, cl: usize) -> Self {
        Self {
            ar,
            cl,
            kv_heads: 2,
            group: 2,
            head_dim: 16,
            hidden: 48,
            ffn: 80,
            vocab: 96,
            layers: 2,
            dtype: Dtype::F32,
            qkv_bias: false,
            qk_norm: false,
        }
    }
}

struct Decoder {
    b: Build,
    s: Shape,
    noise: Noise,
}

impl Decoder {
    fn weights(&mut self, dims: &[u32]) -> TensorId {
        let n = dims.iter().product::<u32>() as usize;
        let scale = 1.0 / (dims[dims.len() - 1] as f32).sqrt();
        let values: Vec<f32> = self.noise.floats(n).iter().map(|x| x * 1.5 * scale).collect();
        self.b.constant(dims, self.s.dtype, &values)
    }

    fn gamma(&mut self, n: u32) -> TensorId {
        let values: Vec<f32> = self.noise.floats(n as usize).iter().map(|x| 1.0 + 0.2 * x).collect();
        self.b.constant(&[n], self.s.dtype, &values)
    }

    fn op(&mut self, op: &str, params: &[(&str, Param)], inputs: &[TensorId], dims: &[u32]) -> TensorId {
        let dtype = self.s.dtype;
        self.b.op(op, params, inputs, dims, dtype)
    }

    fn norm(&mut self, x: TensorId, dims: &[u32]) -> TensorId {
        let gamma = self.gamma(dims[dims.len() - 1]);
        let axes = ints(&[dims.len() as i64 - 1]);
        self.op("RmsNorm", &[("epsilon", Param::F32(1e-5)), ("axes", axes)], &[x, gamma], dims)
    }

    fn linear(&mut self, x: TensorId, out: u32, width: u32, bias: bool) -> TensorId {
        let mut inputs = vec![x, self.weights(&[out, width])];
        if bias {
            inputs.push(self.weights(&[out]));
        }
        let n = self.s.ar as u32;
        self.op("FullyConnected", &[], &inputs, &[n, out])
    }

    /// `[n, heads * hd]` to `[1, heads, n, hd]`, rotated.
    fn heads(&mut self, x: TensorId, heads: u32, tables: Option<[TensorId; 2]>) -> TensorId {
        let (n, hd) = (self.s.ar as u32, self.s.head_dim as u32);
        let mut x = self.op("Reshape", &[], &[x], &[1, n, heads, hd]);
        if self.s.qk_norm && tables.is_some() {
            x = self.norm(x, &[1, n, heads, hd]);
        }
        let x = self.op("Transpose", &[("perm", ints(&[0, 2, 1, 3]))], &[x], &[1, heads, n, hd]);
        match tables {
            Some([cos, sin]) => self.op("RotaryEmbedding", &[], &[x, cos, sin], &[1, heads, n, hd]),
            None => x,
        }
    }

    fn layer(&mut self, x: TensorId, layer: usize, tables: [TensorId; 2], mask: TensorId) -> TensorId {
        let s = self.s;
        let [n, m, kv, g, hd, d, f] = [s.ar, s.cl, s.kv_heads, s.group, s.head_dim, s.hidden, s.ffn].map(|x| x as u32);
        let h = self.norm(x, &[1, n, d]);
        let q = self.linear(h, kv * g * hd, d, s.qkv_bias);
        let k = self.linear(h, kv * hd, d, s.qkv_bias);
        let v = self.linear(h, kv * hd, d, s.qkv_bias);
        let q = self.heads(q, kv * g, Some(tables));
        let k = self.heads(k, kv, Some(tables));
        let v = self.heads(v, kv, None);
        let k = self.op("Transpose", &[("perm", ints(&[0, 1, 3, 2]))], &[k], &[1, kv, hd, n]);
        let (key, value) = (format!("past_key_{layer}"), format!("past_value_{layer}"));
        let new_k = self.b.output(&format!("{key}_out"), &[kv, 1, hd, n], s.dtype);
        let new_v = self.b.output(&format!("{value}_out"), &[kv, 1, n, hd], s.dtype);
        self.b.node("Reshape", &[], &[k], &[new_k]);
        self.b.node("Reshape", &[], &[v], &[new_v]);
        let (mut all_k, mut all_v) = (new_k, new_v);
        if m > n {
            let past_k = self.b.input(&format!("{key}_in"), &[kv, 1, hd, m - n], s.dtype);
            let past_v = self.b.input(&format!("{value}_in"), &[kv, 1, m - n, hd], s.dtype);
            all_k = self.op("Concat", &[("axis", Param::UInt(3))], &[past_k, new_k], &[kv, 1, hd, m]);
            all_v = self.op("Concat", &[("axis", Param::UInt(2))], &[past_v, new_v], &[kv, 1, m, hd]);
        }
        let q = self.op("Reshape", &[], &[q], &[kv, g, n, hd]);
        let scores = self.op("MatMul", &[], &[q, all_k], &[kv, g, n, m]);
        let scores = self.op("ElementWiseAdd", &[], &[scores, mask], &[kv, g, n, m]);
        let p = self.op("Softmax", &[("axis", Param::UInt(3))], &[scores], &[kv, g, n, m]);
        let o = self.op("MatMul", &[], &[p, all_v], &[kv, g, n, hd]);
        let o = self.op("Reshape", &[], &[o], &[1, kv * g, n, hd]);
        let o = self.op("Transpose", &[("perm", ints(&[0, 2, 1, 3]))], &[o], &[1, n, kv * g, hd]);
        let o = self.op("Reshape", &[], &[o], &[n, kv * g * hd]);
        let o = self.linear(o, d, kv * g * hd, false);
        let o = self.op("Reshape", &[], &[o], &[1, n, d]);
        let x = self.op("ElementWiseAdd", &[], &[x, o], &[1, n, d]);
        let h = self.norm(x, &[1, n, d]);
        let gate = self.linear(h, f, d, false);
        let up = self.linear(h, f, d, false);
        let sigmoid = self.op("Sigmoid", &[], &[gate], &[n, f]);
        let silu = self.op("ElementWiseMultiply", &[], &[gate, sigmoid], &[n, f]);
        let both = self.op("ElementWiseMultiply", &[], &[silu, up], &[n, f]);
        let down = self.linear(both, d, f, false);
        let down = self.op("Reshape", &[], &[down], &[1, n, d]);
        self.op("ElementWiseAdd", &[], &[x, down], &[1, n, d])
    }
}

/// A whole model, ids to logits, with weights of that seed.
pub(super) fn decoder(s: Shape, seed: u64) -> SourceGraph {
    let mut dec = Decoder { b: Build::new(), s, noise: Noise(seed) };
    let [n, m, hd, d, v] = [s.ar, s.cl, s.head_dim, s.hidden, s.vocab].map(|x| x as u32);
    let ids = dec.b.input("input_ids", &[1, n], Dtype::I32);
    let mask = dec.b.input("attention_mask", &[1, 1, n, m], s.dtype);
    let cos = dec.b.input("position_ids_cos", &[1, 1, n, hd / 2], s.dtype);
    let sin = dec.b.input("position_ids_sin", &[1, 1, n, hd / 2], s.dtype);
    let table = dec.weights(&[v, d]);
    let mut x = dec.op("Gather", &[("axis", Param::Int(0))], &[table, ids], &[1, n, d]);
    let tables = [cos, sin].map(|t| dec.op("Reshape", &[], &[t], &[1, n, hd / 2]));
    for layer in 0..s.layers {
        x = dec.layer(x, layer, tables, mask);
    }
    let x = dec.norm(x, &[1, n, d]);
    let logits = dec.b.output("logits", &[1, n, v], s.dtype);
    let weights = dec.weights(&[v, d]);
    dec.b.node("FullyConnected", &[("keep_dims", Param::Bool(true))], &[x, weights], &[logits]);
    dec.b.graph
}

/// Inputs for `n_past` rows of past and `n_new` real tokens; the rest is padding, as an engine pads.
pub(super) fn inputs(graph: &SourceGraph, s: Shape, n_past: usize, n_new: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut noise = Noise(seed);
    graph
        .inputs()
        .map(|id| {
            let tensor = graph.tensor(id);
            let n = tensor.n_elems();
            let values = match tensor.name.as_str() {
                "input_ids" => (0..n).map(|_| (noise.bits() % s.vocab as u64) as f32).collect(),
                "attention_mask" => {
                    let visible = |i: usize| {
                        let (row, column) = (i / s.cl, i % s.cl);
                        let new = column.checked_sub(s.cl - s.ar);
                        row < n_new && new.map_or(column < n_past, |new| new <= row)
                    };
                    (0..n).map(|i| if visible(i) { 0.0 } else { -1000.0 }).collect()
                }
                "position_ids_cos" => (0..n).map(|i| angle(i, s, n_past, n_new).cos()).collect(),
                "position_ids_sin" => (0..n).map(|i| angle(i, s, n_past, n_new).sin()).collect(),
                _ => noise.floats(n),
            };
            bytes_of(tensor.dtype, &values)
        })
        .collect()
}

fn angle(i: usize, s: Shape, n_past: usize, n_new: usize) -> f32 {
    let half = s.head_dim / 2;
    let (row, j) = (i / half, i % half);
    let position = if row < n_new { n_past + row } else { 0 };
    position as f32 * 10_000f32.powf(-(j as f32) / half as f32)
}

fn check(s: Shape, n_past: usize, n_new: usize) {
    let graph = decoder(s, 7);
    let tolerance = match s.dtype {
        Dtype::F32 if n_new == s.ar => 1e-5,
        // In rows that see nothing the plain way adds -1000 to each score, which costs it digits; the fused way does not.
        Dtype::F32 => 1e-4,
        _ => 2e-3,
    };
    let outputs = compare(&graph, &inputs(&graph, s, n_past, n_new, 11), tolerance);
    assert!(outputs.iter().flatten().all(|x| x.is_finite()), "{s:?}: finite, padded rows as well");
    let logits = outputs.last().expect("logits");
    assert!(logits.iter().any(|x| x.abs() > 0.1), "{s:?}: logits say something");
}

#[test]
fn a_decode_step() {
    check(Shape::small(1, 24), 9, 1);
    check(Shape::small(1, 24), 0, 1);
    check(Shape::small(1, 24), 23, 1);
}

#[test]
fn a_prefill_with_padded_rows() {
    check(Shape::small(8, 40), 13, 5);
    check(Shape::small(20, 70), 0, 20);
    check(Shape::small(20, 70), 50, 17);
    check(Shape::small(20, 70), 50, 20);
}

#[test]
fn the_full_context_form() {
    check(Shape::small(16, 16), 0, 16);
    check(Shape::small(16, 16), 0, 11);
}

#[test]
fn half_precision_reads_weights_and_past_in_place() {
    check(Shape { dtype: Dtype::F16, ..Shape::small(1, 24) }, 9, 1);
    check(Shape { dtype: Dtype::F16, ..Shape::small(12, 50) }, 30, 10);
}

#[test]
fn biases_and_head_norms() {
    check(Shape { qkv_bias: true, ..Shape::small(4, 20) }, 7, 4);
    check(Shape { qk_norm: true, ..Shape::small(4, 20) }, 7, 4);
    check(Shape { qk_norm: true, qkv_bias: true, kv_heads: 3, group: 1, ..Shape::small(1, 20) }, 7, 1);
}

#[test]
fn everything_that_should_fuse_does() {
    let graph = decoder(Shape::small(1, 24), 3);
    let labels = labels(&graph);
    let count = |label: &str| labels.iter().filter(|l| **l == label).count();
    assert_eq!(count("Attention"), 2, "{labels:?}");
    assert_eq!(count("GatedLinear"), 2, "{labels:?}");
    assert_eq!(count("Linear+Add"), 4, "{labels:?}");
    assert_eq!(count("Linear"), 2 + 1, "query, key and value in one step; logits: {labels:?}");
    for gone in ["Concat", "Softmax", "MatMul", "Add", "Multiply", "Sigmoid", "Transpose"] {
        assert_eq!(count(gone), 0, "{gone} is fused: {labels:?}");
    }
}

#[test]
fn a_prefill_moves_no_queries_or_results() {
    let graph = decoder(Shape::small(8, 24), 3);
    let labels = labels(&graph);
    let transposes = labels.iter().filter(|l| **l == "Transpose").count();
    assert_eq!(transposes, 2 * 2, "new keys and new values of two layers: {labels:?}");
}

#[test]
fn a_decode_step_has_few_phases() {
    let phases = Executable::prepare(&decoder(Shape::small(1, 24), 3), &PrepareOptions::default()).expect("prepares");
    assert_eq!(phases.phases(), 1 + 1 + 2 * 8 + 2, "{phases:?}");
}

#[test]
fn an_id_out_of_range_is_an_error() {
    let s = Shape::small(4, 20);
    let graph = decoder(s, 3);
    for bad in [96, -1] {
        for (fuse, threads) in [(true, 1), (true, 3), (false, 2)] {
            let mut inputs = inputs(&graph, s, 3, 4, 5);
            inputs[0][4..8].copy_from_slice(&i32::to_ne_bytes(bad));
            let error = run(&graph, fuse, threads, &inputs).expect_err("must fail");
            assert_eq!(error.to_string(), format!("node `Gather_0`: index {bad} is out of range 0..96"));
        }
    }
}

#[test]
fn outputs_come_in_the_order_they_were_made() {
    let graph = decoder(Shape::small(1, 8), 3);
    let names: Vec<&str> = graph.outputs().map(|id| graph.tensor(id).name.as_str()).collect();
    assert_eq!(names[0], "past_key_0_out");
    assert!(matches!(graph.tensor(graph.outputs().last().expect("outputs")).role, Role::Output));
}
