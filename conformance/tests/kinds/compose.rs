//! The tiny Llama in the forms of the contract that no recorded bundle has, composed for HTP and saved.
//!
//! *Shapes*: docs/graph-contract.md. *Units and dtype*: float16 inside; cache, mask, rotary rows and logits in the form's
//! types, converted at the edge. Keys and values of a step are rounded to the cache's codes before they are attended to,
//! so that they count the same as they do later, from the cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use genie_types::{Dtype, Quant, TensorInfo};
use half::f16;
use qnn_api::{
    Backend, Context, ContextOptions, GraphBuilder, GraphOptions, HtpGraphOptions, Param, TensorKind, TensorRef,
};

use crate::tiny::*;

/// Where codes of 16 bits stand for rotary rows and for logits.
const ROPE: Quant = Quant::PerTensor { scale: 2.0 / 65535.0, offset: -32768 };
const LOGITS: Quant = Quant::PerTensor { scale: 32.0 / 65535.0, offset: -32768 };
/// The largest code is 0, the smallest hides.
const MASK: Quant = Quant::PerTensor { scale: 1000.0 / 65535.0, offset: -65535 };
/// Reach of the cache's codes: keys and values lie within -8 to 8.
const REACH: f64 = 16.0;

/// What is special about a bundle.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Mask and rotary rows of rank 3.
    pub rank3: bool,
    /// A cache tensor for each head.
    pub per_head: bool,
    /// `inputs_embeds` instead of `input_ids`.
    pub embeds: bool,
    /// Mask, rotary rows and logits in codes of 16 bits.
    pub wide: bool,
    /// Type of keys and values: float16, or codes of 16 bits.
    pub kv: Dtype,
    /// Names of the binaries with what each holds.
    pub parts: &'static [(&'static str, Part)],
    /// AR and CL of every graph.
    pub variants: &'static [(usize, usize)],
}

/// What a split holds: the embedding, the layers, the head.
#[derive(Clone, Copy, Debug)]
pub struct Part(pub bool, pub bool, pub bool);

/// The whole model in one binary.
pub const MONO: &[(&str, Part)] = &[("model.bin", Part(true, true, true))];
/// Embedding, decoder, head; the files' names and their order in a config say nothing about the splits' order.
pub const THREE: &[(&str, Part)] =
    &[("c.bin", Part(true, false, false)), ("a.bin", Part(false, true, false)), ("b.bin", Part(false, false, true))];

impl Form {
    /// float16 everywhere, rank 4, all heads in one tensor, ids, one binary.
    pub const PLAIN: Self = Self {
        rank3: false,
        per_head: false,
        embeds: false,
        wide: false,
        kv: Dtype::F16,
        parts: MONO,
        variants: &[(1, 128), (32, 128)],
    };

    fn kv_quant(&self) -> Quant {
        match self.kv {
            Dtype::UFixed16 => Quant::PerTensor { scale: (REACH / 65535.0) as f32, offset: -32768 },
            _ => Quant::None,
        }
    }

    /// A key's or value's number as the cache holds it.
    pub fn cached(&self, x: f64) -> f64 {
        match self.kv_quant() {
            Quant::PerTensor { scale, .. } => (x / f64::from(scale)).round() * f64::from(scale),
            _ => f16::from_f64(x).to_f64(),
        }
    }
}

/// A tensor and its extents.
#[derive(Clone)]
struct Val(TensorRef, Vec<usize>);

struct Draft<'f> {
    b: GraphBuilder,
    form: &'f Form,
    n: usize,
    m: usize,
}

impl Draft<'_> {
    fn edge(&mut self, name: &str, dims: &[usize], dtype: Dtype, quant: Quant, kind: TensorKind) -> Val {
        let info = TensorInfo { quant, ..TensorInfo::new(name, dims, dtype) };
        Val(self.b.tensor(&info, kind).unwrap(), dims.to_vec())
    }

    /// An input as float16, whatever its own type.
    fn input(&mut self, name: &str, dims: &[usize], dtype: Dtype, quant: Quant) -> Val {
        let x = self.edge(name, dims, dtype, quant, TensorKind::Input);
        if dtype == Dtype::F16 { x } else { self.op(&format!("{name}_f16"), "Convert", &[], &[&x], dims) }
    }

    /// The form's type for everything but the cache.
    fn numbers(&self, quant: Quant) -> (Dtype, Quant) {
        if self.form.wide { (Dtype::UFixed16, quant) } else { (Dtype::F16, Quant::None) }
    }

    fn output(&mut self, name: &str, x: &Val, dtype: Dtype, quant: Quant) -> Val {
        let y = self.edge(name, &x.1, dtype, quant, TensorKind::Output);
        let op = if dtype == Dtype::F16 { "Reshape" } else { "Convert" };
        self.b.node(&format!("node_{name}"), op, &[], &[x.0], &[y.0]).unwrap();
        y
    }

    fn weight(&mut self, name: &str, m: &Matrix) -> Val {
        let dims = if m.dims[0] == 1 { vec![m.dims[1]] } else { m.dims.to_vec() };
        let bytes: Vec<u8> = m.data.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect();
        Val(self.b.constant(&TensorInfo::new(name, dims.clone(), Dtype::F16), &bytes).unwrap(), dims)
    }

    fn op(&mut self, name: &str, op: &str, params: &[(&str, Param)], inputs: &[&Val], dims: &[usize]) -> Val {
        let kind = if name.starts_with("hidden") { TensorKind::Output } else { TensorKind::Native };
        let tensor = self.b.tensor(&TensorInfo::new(name, dims, Dtype::F16), kind).unwrap();
        let inputs: Vec<TensorRef> = inputs.iter().map(|v| v.0).collect();
        self.b.node(&format!("node_{name}"), op, params, &inputs, &[tensor]).unwrap();
        Val(tensor, dims.to_vec())
    }

    fn norm(&mut self, name: &str, x: &Val, gamma: &Matrix) -> Val {
        let gamma = self.weight(&format!("{name}_gamma"), gamma);
        let axes = Param::U32Tensor { dims: vec![1], data: vec![x.1.len() as u32 - 1] };
        self.op(name, "RmsNorm", &[("epsilon", Param::F32(EPSILON)), ("axes", axes)], &[x, &gamma], &x.1.clone())
    }

    fn linear(&mut self, name: &str, x: &Val, weight: &Matrix) -> Val {
        let w = self.weight(&format!("{name}_weight"), weight);
        let (n, out) = (self.n, weight.dims[0]);
        self.op(name, "FullyConnected", &[], &[x, &w], &[n, out])
    }

    fn reshape(&mut self, name: &str, x: &Val, dims: &[usize]) -> Val {
        self.op(name, "Reshape", &[], &[x], dims)
    }

    fn transpose(&mut self, name: &str, x: &Val, perm: [u32; 4]) -> Val {
        let dims: Vec<usize> = perm.iter().map(|&p| x.1[p as usize]).collect();
        let perm = Param::U32Tensor { dims: vec![4], data: perm.to_vec() };
        self.op(name, "Transpose", &[("perm", perm)], &[x], &dims)
    }

    fn concat(&mut self, name: &str, parts: &[&Val], axis: usize) -> Val {
        let mut dims = parts[0].1.clone();
        dims[axis] = parts.iter().map(|p| p.1[axis]).sum();
        self.op(name, "Concat", &[("axis", Param::U32(axis as u32))], parts, &dims)
    }

    fn heads(&mut self, name: &str, x: &Val, weight: &Matrix, n_heads: usize) -> Val {
        let y = self.linear(&format!("{name}_proj"), x, weight);
        let y = self.reshape(&format!("{name}_split"), &y, &[1, self.n, n_heads, HEAD_DIM]);
        self.transpose(name, &y, [0, 2, 1, 3])
    }

    /// Hands new rows out in the cache's type, and gives past and new rows together back. `x`: `[KV_HEADS, 1, ..]`.
    fn cache(&mut self, what: &str, l: usize, x: &Val, axis: usize) -> Val {
        let (kv, quant) = (self.form.kv, self.form.kv_quant());
        let heads: Vec<Option<usize>> = if self.form.per_head { (0..KV_HEADS).map(Some).collect() } else { vec![None] };
        let mut all = Vec::new();
        for (i, head) in heads.iter().enumerate() {
            let name = head.map_or(format!("past_{what}_{l}"), |h| format!("past_{what}_{l}_h{h}"));
            let rows = match head {
                None => x.clone(),
                Some(_) => {
                    let dims = [&[1], &x.1[1..]].concat();
                    let ranges: Vec<i32> = (x.1.iter().enumerate())
                        .flat_map(|(d, &len)| if d == 0 { [i as i32, i as i32 + 1, 1] } else { [0, len as i32, 1] })
                        .collect();
                    let ranges = Param::I32Tensor { dims: vec![4, 3], data: ranges };
                    self.op(&format!("{name}_rows"), "StridedSlice", &[("ranges", ranges)], &[x], &dims)
                }
            };
            let new = self.output(&format!("{name}_out"), &rows, kv, quant.clone());
            let new = match kv {
                Dtype::F16 => rows,
                _ => self.op(&format!("{name}_held"), "Convert", &[], &[&new], &rows.1),
            };
            all.push(if self.n < self.m {
                let mut dims = new.1.clone();
                dims[axis] = self.m - self.n;
                let past = self.input(&format!("{name}_in"), &dims, kv, quant.clone());
                self.concat(&format!("{name}_all"), &[&past, &new], axis)
            } else {
                new
            });
        }
        match &all[..] {
            [one] => one.clone(),
            many => self.concat(&format!("{what}_{l}_heads"), &many.iter().collect::<Vec<_>>(), 0),
        }
    }

    fn layer(&mut self, l: usize, weights: &Layer, x: &Val, mask: &Val, cos: &Val, sin: &Val) -> Val {
        let (n, m) = (self.n, self.m);
        let at = |name: &str| format!("l{l}_{name}");
        let group = HEADS / KV_HEADS;
        let h = self.norm(&at("norm1"), x, &weights.norm1);
        let q = self.heads(&at("q"), &h, &weights.q, HEADS);
        let q = self.op(&at("q_rope"), "RotaryEmbedding", &[], &[&q, cos, sin], &q.1.clone());
        let k = self.heads(&at("k"), &h, &weights.k, KV_HEADS);
        let k = self.op(&at("k_rope"), "RotaryEmbedding", &[], &[&k, cos, sin], &k.1.clone());
        let k = self.transpose(&at("k_columns"), &k, [0, 1, 3, 2]);
        let k = self.reshape(&at("k_rows"), &k, &[KV_HEADS, 1, HEAD_DIM, n]);
        let k = self.cache("key", l, &k, 3);
        let v = self.heads(&at("v"), &h, &weights.v, KV_HEADS);
        let v = self.reshape(&at("v_rows"), &v, &[KV_HEADS, 1, n, HEAD_DIM]);
        let v = self.cache("value", l, &v, 2);
        let q = self.reshape(&at("q_groups"), &q, &[KV_HEADS, group, n, HEAD_DIM]);
        let scores = self.op(&at("scores"), "MatMul", &[], &[&q, &k], &[KV_HEADS, group, n, m]);
        let scores = self.op(&at("masked"), "ElementWiseAdd", &[], &[&scores, mask], &[KV_HEADS, group, n, m]);
        let axis = [("axis", Param::U32(3))];
        let shares = self.op(&at("shares"), "Softmax", &axis, &[&scores], &[KV_HEADS, group, n, m]);
        let mixed = self.op(&at("mixed"), "MatMul", &[], &[&shares, &v], &[KV_HEADS, group, n, HEAD_DIM]);
        let mixed = self.reshape(&at("mixed_heads"), &mixed, &[1, HEADS, n, HEAD_DIM]);
        let mixed = self.transpose(&at("mixed_rows"), &mixed, [0, 2, 1, 3]);
        let mixed = self.reshape(&at("merged"), &mixed, &[1, n, HEADS * HEAD_DIM]);
        let o = self.linear(&at("o"), &mixed, &weights.o);
        let o = self.reshape(&at("o_rows"), &o, &[1, n, HIDDEN]);
        let x = self.op(&at("x1"), "ElementWiseAdd", &[], &[x, &o], &[1, n, HIDDEN]);

        let h = self.norm(&at("norm2"), &x, &weights.norm2);
        let gate = self.linear(&at("gate"), &h, &weights.gate);
        let up = self.linear(&at("up"), &h, &weights.up);
        let sigmoid = self.op(&at("sigmoid"), "Sigmoid", &[], &[&gate], &[n, FFN]);
        let silu = self.op(&at("silu"), "ElementWiseMultiply", &[], &[&gate, &sigmoid], &[n, FFN]);
        let act = self.op(&at("act"), "ElementWiseMultiply", &[], &[&silu, &up], &[n, FFN]);
        let down = self.linear(&at("down"), &act, &weights.down);
        let down = self.reshape(&at("down_rows"), &down, &[1, n, HIDDEN]);
        let is_edge = self.form.parts.len() > 1 && l + 1 == LAYERS;
        let name = if is_edge { format!("hidden_{l}") } else { at("x2") };
        self.op(&name, "ElementWiseAdd", &[], &[&x, &down], &[1, n, HIDDEN])
    }
}

/// Composes and saves one context binary for each part; the paths in the form's order.
pub fn save(backend: &Arc<Backend>, folder: &Path, tiny: &Tiny, form: &Form) -> Vec<PathBuf> {
    let options = GraphOptions {
        htp: Some(HtpGraphOptions { float16: true, optimization: Some(1), ..Default::default() }),
        ..Default::default()
    };
    let save_one = |(i, (file, part)): (usize, &(&str, Part))| {
        let context = Context::create(backend, &ContextOptions::default()).unwrap();
        for &(n, m) in form.variants {
            let name = format!("ar{n}_cl{m}_{}_of_{}", i + 1, form.parts.len());
            let mut draft = Draft { b: context.compose(&name, &options).unwrap(), form, n, m };
            graph(&mut draft, tiny, *part);
            draft.b.finalize().unwrap_or_else(|e| panic!("{form:?}, {name}: {e}: {:?}", e.qnn()));
        }
        let path = folder.join(file);
        context.save(&path).unwrap();
        path
    };
    form.parts.iter().enumerate().map(save_one).collect()
}

fn graph(d: &mut Draft<'_>, tiny: &Tiny, Part(tokens, layers, logits): Part) {
    let (n, m) = (d.n, d.m);
    let mut x = if tokens && d.form.embeds {
        d.input("inputs_embeds", &[1, n, HIDDEN], Dtype::F16, Quant::None)
    } else if tokens {
        let ids = d.edge("input_ids", &[1, n], Dtype::I32, Quant::None, TensorKind::Input);
        let table = d.weight("embed", &tiny.embed);
        let name = if layers { "embedded" } else { "hidden_embed" };
        d.op(name, "Gather", &[("axis", Param::I32(0))], &[&table, &ids], &[1, n, HIDDEN])
    } else {
        let name = if layers { "hidden_embed".to_owned() } else { format!("hidden_{}", LAYERS - 1) };
        d.edge(&name, &[1, n, HIDDEN], Dtype::F16, Quant::None, TensorKind::Input)
    };
    if layers {
        let lead: &[usize] = if d.form.rank3 { &[1] } else { &[1, 1] };
        let (dtype, quant) = d.numbers(MASK);
        let mask = d.input("attention_mask", &[lead, &[n, m]].concat(), dtype, quant);
        let mask = d.reshape("mask", &mask, &[1, 1, n, m]);
        let mut rows = |name: &str| {
            let (dtype, quant) = d.numbers(ROPE);
            let x = d.input(&format!("position_ids_{name}"), &[lead, &[n, HEAD_DIM / 2]].concat(), dtype, quant);
            d.reshape(&format!("rope_{name}"), &x, &[1, n, HEAD_DIM / 2])
        };
        let (cos, sin) = (rows("cos"), rows("sin"));
        for (l, weights) in tiny.layers.iter().enumerate() {
            x = d.layer(l, weights, &x, &mask, &cos, &sin);
        }
    }
    if logits {
        let h = d.norm("norm", &x, &tiny.norm);
        let y = d.linear("head", &h, &tiny.head);
        let y = d.reshape("head_rows", &y, &[1, n, VOCAB]);
        let (dtype, quant) = d.numbers(LOGITS);
        d.output("logits", &y, dtype, quant);
    }
}
