//! The decoder as graphs of the contract, composed through the function table and saved as context binaries.
//!
//! *Shapes*: `docs/graph-contract.md`. *Units and dtype*: inside, the form's float type; cache, mask, rotary inputs and logits
//! in the form's types, converted at the edge. Keys and values of a step are rounded to the cache's type before they are
//! attended to, so that they count the same as later, from the cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use genie_types::{DataFormat, Dtype, Quant, TensorInfo};
use half::f16;
use qnn_api::{Backend, Context, GraphBuilder, GraphOptions, HtpGraphOptions, Param, TensorKind, TensorRef};

use super::decoder::{Decoder, EPSILON, Layer, Matrix, Size};
use super::form::{CacheType, Form, Part};

/// 16-bit quantisation of rotary inputs and of logits.
const ROPE: Quant = Quant::PerTensor { scale: 2.0 / 65535.0, offset: -32768 };
const LOGITS: Quant = Quant::PerTensor { scale: 32.0 / 65535.0, offset: -32768 };
/// Of the mask: the largest value is 0, the smallest masks.
const MASK: Quant = Quant::PerTensor { scale: 1000.0 / 65535.0, offset: -65535 };

/// The LM head's weight where it is an input.
const HEAD_WEIGHT: &str = "lm_head_weight";

/// A tensor and its extents.
#[derive(Clone)]
struct Val(TensorRef, Vec<usize>);

/// Inputs of a cache group.
struct GroupInputs {
    mask: Val,
    /// The columns that new rows take, for a scatter graph.
    columns: Option<Val>,
    ctx: usize,
}

/// One graph of one part.
struct Draft<'a> {
    b: GraphBuilder,
    form: &'a Form,
    size: Size,
    n: usize,
    m: usize,
}

impl Form {
    /// Composes and saves one context binary for each part.
    ///
    /// # Panics
    /// The backend refuses a graph.
    pub fn save(&self, decoder: &Decoder, backend: &Arc<Backend>, folder: &Path) -> Vec<PathBuf> {
        let part = |(i, part): (usize, &Part)| {
            let context = Context::create(backend, &Default::default()).expect("a context");
            for &(n, m) in self.variants.iter().filter(|&&(n, _)| self.has_graph(part, n)) {
                let name = format!("ar{n}_cl{m}_{}_of_{}", i + 1, self.parts.len());
                let htp = HtpGraphOptions {
                    float16: self.dtype == Dtype::F16,
                    vtcm_mb: Some(8),
                    optimization: Some(3),
                    hvx_threads: None,
                };
                let options = GraphOptions { htp: self.htp.then_some(htp), ..Default::default() };
                let b = context.compose(&name, &options).expect("a graph");
                let mut draft = Draft { b, form: self, size: decoder.size, n, m };
                draft.graph(decoder, i, part);
                draft.b.finalize().unwrap_or_else(|e| panic!("{name} of {self:?}: {e}"));
            }
            let path = self.files.map_or_else(|| format!("part{}.bin", i + 1), |files| files[i].to_owned());
            let path = folder.join(path);
            context.save(&path).expect("the context is saved");
            path
        };
        let bins = self.parts.iter().enumerate().map(part).collect();
        if self.head_weight_input {
            let path = folder.join(format!("{HEAD_WEIGHT}.raw"));
            file_io::write_bytes(&path, &self.bytes(&decoder.head.data)).expect("the weight is saved");
        }
        bins
    }

    /// Composes and saves a network that scores the keys of all layers: the sum of a key's elements, or with anchors its dot
    /// product with the layer's anchor.
    ///
    /// # Panics
    /// The backend refuses the graph.
    pub fn save_scorer(&self, decoder: &Decoder, backend: &Arc<Backend>, path: &Path) {
        let context = Context::create(backend, &Default::default()).expect("a context");
        let htp = HtpGraphOptions {
            float16: self.dtype == Dtype::F16,
            vtcm_mb: Some(8),
            optimization: Some(3),
            hvx_threads: None,
        };
        let options = GraphOptions { htp: self.htp.then_some(htp), ..Default::default() };
        let b = context.compose("scorer", &options).expect("a graph");
        let m = self.variants.iter().map(|&(_, m)| m).max().expect("a variant");
        let mut draft = Draft { b, form: self, size: decoder.size, n: 1, m };
        for l in 0..decoder.size.layers {
            draft.scores(l);
        }
        draft.b.finalize().unwrap_or_else(|e| panic!("scorer of {self:?}: {e}"));
        context.save(path).expect("the context is saved");
    }

    /// Numbers in the form's float type.
    pub fn bytes(&self, numbers: &[f32]) -> Vec<u8> {
        match self.dtype {
            Dtype::F32 => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
            _ => numbers.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
        }
    }
}

impl Draft<'_> {
    fn graph(&mut self, decoder: &Decoder, split: usize, part: &Part) {
        let (n, hidden) = (self.n, self.size.hidden);
        let mut x = if part.tokens && self.form.embeds {
            self.input("inputs_embeds", &[1, n, hidden], self.form.dtype)
        } else if part.tokens {
            let ids = self.input("input_ids", &[1, n], Dtype::I32);
            let table = self.weight("embed", &decoder.embed);
            let name = if part.layers.is_empty() { format!("hidden_{split}") } else { "embedded".to_owned() };
            self.op(&name, "Gather", &[("axis", Param::I32(0))], &[&table, &ids], &[1, n, hidden])
        } else {
            self.input(&format!("hidden_{}", split - 1), &[1, n, hidden], self.form.dtype)
        };
        if !part.layers.is_empty() {
            let rope_dim = self.size.rope_dim();
            let groups: Vec<GroupInputs> = (0..self.form.groups.len())
                .filter(|&g| part.layers.clone().any(|l| self.form.groups[g].layers.contains(&l)))
                .map(|g| self.group_inputs(g))
                .collect();
            let prefixes: Vec<&str> = self
                .form
                .groups
                .iter()
                .filter(|g| part.layers.clone().any(|l| g.layers.contains(&l)))
                .map(|g| g.prefix)
                .collect();
            let cos = self.edge_input("position_ids_cos", &[n, rope_dim], ROPE);
            let sin = self.edge_input("position_ids_sin", &[n, rope_dim], ROPE);
            let cos = self.reshape("rope_cos", &cos, &[1, n, rope_dim]);
            let sin = self.reshape("rope_sin", &sin, &[1, n, rope_dim]);
            for l in part.layers.clone() {
                let prefix = self.form.group_of(l).prefix;
                let group = prefixes.iter().position(|p| *p == prefix).expect("gathered above");
                if l + 1 == part.layers.end && self.form.gives_rows_only(part, n) {
                    self.new_rows(l, &decoder.layers[l], &x, &cos, &sin);
                    return;
                }
                let last = l + 1 == part.layers.end && !part.logits;
                let out = if last { format!("hidden_{split}") } else { format!("l{l}_out") };
                x = self.layer(l, &decoder.layers[l], &x, &groups[group], &cos, &sin, &out);
            }
        }
        if part.logits {
            let h = self.norm("norm", &x, &decoder.norm);
            let (dims, vocab) = ([1, n, self.size.vocab], self.size.vocab);
            let y = if self.form.head_weight_input {
                let w = self.input(HEAD_WEIGHT, &[1, 1, vocab, hidden], self.form.dtype);
                let h = self.reshape("head_in", &h, &[1, 1, n, hidden]);
                self.op("head", "MatMul", &[("transpose_in1", Param::Bool(true))], &[&h, &w], &[1, 1, n, vocab])
            } else {
                self.linear("head", &h, &decoder.head)
            };
            if self.form.quantised_edge {
                let rows = self.reshape("head_rows", &y, &dims);
                let info = TensorInfo::new("logits", dims, Dtype::UFixed16).with_quant(LOGITS);
                self.node(&info, TensorKind::Output, "Convert", &[], &[&rows]);
            } else {
                self.reshape("logits", &y, &dims);
            }
        }
    }

    fn group_inputs(&mut self, group: usize) -> GroupInputs {
        let form = self.form;
        let (n, ctx) = (self.n, form.groups[group].ctx.unwrap_or(self.m));
        let before = if group == 0 { String::new() } else { format!("{}_", form.groups[group].prefix) };
        let mask = self.edge_input(&format!("{before}attention_mask"), &[n, ctx], MASK);
        let mask = if form.rank3 { self.reshape(&format!("{before}mask"), &mask, &[1, 1, n, ctx]) } else { mask };
        let columns = (form.scatter && n < ctx).then(|| {
            if form.slot_per_row {
                return self.input(&format!("{before}cache_index"), &[n], Dtype::I32);
            }
            let index = self.input(&format!("{before}cache_index"), &[1], Dtype::I32);
            let count: Vec<u8> = (0..n as i32).flat_map(i32::to_le_bytes).collect();
            let info = TensorInfo::new(format!("{before}count"), vec![n], Dtype::I32);
            let count = Val(self.b.constant(&info, &count).expect("a constant"), vec![n]);
            let name = format!("{before}columns");
            self.typed(&name, "ElementWiseAdd", &[], &[&index, &count], &[n], Dtype::I32)
        });
        GroupInputs { mask, columns, ctx }
    }

    #[allow(clippy::too_many_arguments)] // all of them are a layer's inputs
    fn layer(&mut self, l: usize, w: &Layer, x: &Val, group: &GroupInputs, cos: &Val, sin: &Val, out: &str) -> Val {
        let (n, m, Size { heads, kv_heads, head_dim, hidden, ffn, .. }) = (self.n, group.ctx, self.size);
        let at = |name: &str| format!("l{l}_{name}");
        let per_kv = heads / kv_heads;
        let h = self.norm(&at("norm1"), x, &w.norm1);
        let q = self.heads(&at("q"), &h, &w.q, heads);
        let q = self.op(&at("q_rope"), "RotaryEmbedding", &[], &[&q, cos, sin], &q.1.clone());
        let (k, v) = self.keys_and_values(l, w, &h, cos, sin);
        let (k_dims, v_dims) = ([kv_heads, 1, head_dim, n], [kv_heads, 1, n, head_dim]);
        if self.form.anchors {
            self.anchor(l, &k);
        }
        let k = self.cached(l, "key", &k, &k_dims, Some(group), 3);
        let v = self.cached(l, "value", &v, &v_dims, Some(group), 2);
        let q = self.reshape(&at("q_groups"), &q, &[kv_heads, per_kv, n, head_dim]);
        let scores_dims = [kv_heads, per_kv, n, m];
        let scores = self.op(&at("scores"), "MatMul", &[], &[&q, &k], &scores_dims);
        let scores = self.op(&at("masked"), "ElementWiseAdd", &[], &[&scores, &group.mask], &scores_dims);
        let shares = self.op(&at("shares"), "Softmax", &[("axis", Param::U32(3))], &[&scores], &scores_dims);
        let mixed = self.op(&at("mixed"), "MatMul", &[], &[&shares, &v], &[kv_heads, per_kv, n, head_dim]);
        let mixed = self.reshape(&at("mixed_heads"), &mixed, &[1, heads, n, head_dim]);
        let mixed = self.transpose(&at("mixed_rows"), &mixed, [0, 2, 1, 3]);
        let mixed = self.reshape(&at("merged"), &mixed, &[1, n, heads * head_dim]);
        let o = self.linear(&at("o"), &mixed, &w.o);
        let o = self.reshape(&at("o_rows"), &o, &[1, n, hidden]);
        let x = self.op(&at("x1"), "ElementWiseAdd", &[], &[x, &o], &[1, n, hidden]);
        let h = self.norm(&at("norm2"), &x, &w.norm2);
        let gate = self.linear(&at("gate"), &h, &w.gate);
        let up = self.linear(&at("up"), &h, &w.up);
        let sigmoid = self.op(&at("sigmoid"), "Sigmoid", &[], &[&gate], &[n, ffn]);
        let silu = self.op(&at("silu"), "ElementWiseMultiply", &[], &[&gate, &sigmoid], &[n, ffn]);
        let act = self.op(&at("act"), "ElementWiseMultiply", &[], &[&silu, &up], &[n, ffn]);
        let down = self.linear(&at("down"), &act, &w.down);
        let down = self.reshape(&at("down_rows"), &down, &[1, n, hidden]);
        self.op(out, "ElementWiseAdd", &[], &[&x, &down], &[1, n, hidden])
    }

    /// Keys with the sequence last, and values.
    fn keys_and_values(&mut self, l: usize, w: &Layer, h: &Val, cos: &Val, sin: &Val) -> (Val, Val) {
        let at = |name: &str| format!("l{l}_{name}");
        let kv_heads = self.size.kv_heads;
        let k = self.heads(&at("k"), h, &w.k, kv_heads);
        let k = self.op(&at("k_rope"), "RotaryEmbedding", &[], &[&k, cos, sin], &k.1.clone());
        let k = self.transpose(&at("k_columns"), &k, [0, 1, 3, 2]);
        (k, self.heads(&at("v"), h, &w.v, kv_heads))
    }

    /// A layer's part of a network that scores keys.
    fn scores(&mut self, l: usize) {
        let Size { kv_heads, head_dim, .. } = self.size;
        let m = self.m;
        let dims = [kv_heads, 1, head_dim, m];
        let (dtype, quant) = self.form.cache_type();
        let info = TensorInfo::new(format!("past_key_{l}_in"), dims, dtype).with_quant(quant);
        let mut keys = Val(self.b.tensor(&info, TensorKind::Input).expect("an input"), dims.to_vec());
        if self.form.cache != CacheType::Float {
            let op = if self.form.dtype == Dtype::F16 { "Convert" } else { "Dequantize" };
            keys = self.op(&format!("l{l}_keys"), op, &[], &[&keys], &dims);
        }
        if self.form.anchors {
            let anchor = self.input(&format!("anchor_buffer_{l}_in"), &[kv_heads, 1, head_dim, 1], self.form.dtype);
            keys = self.op(&format!("l{l}_products"), "ElementWiseMultiply", &[], &[&keys, &anchor], &dims);
        }
        let axes = Param::U32Tensor { dims: vec![1], data: vec![2] };
        let params = [("axes", axes), ("keep_dims", Param::Bool(true))];
        let sums = self.op(&format!("l{l}_sums"), "ReduceSum", &params, &[&keys], &[kv_heads, 1, 1, m]);
        let info = TensorInfo::new(format!("score_{l}"), [kv_heads, 1, m], self.form.dtype);
        self.node(&info, TensorKind::Output, "Reshape", &[], &[&sums]);
    }

    /// The running anchor of a layer's keys, an input and an output of the graph.
    fn anchor(&mut self, l: usize, k: &Val) {
        let Size { kv_heads, head_dim, .. } = self.size;
        let dims = [kv_heads, 1, head_dim, 1];
        let k = self.reshape(&format!("l{l}_anchor_keys"), k, &[kv_heads, 1, head_dim, self.n]);
        let axes = Param::U32Tensor { dims: vec![1], data: vec![3] };
        let params = [("axes", axes), ("keep_dims", Param::Bool(true))];
        let mean = self.op(&format!("l{l}_anchor_mean"), "ReduceMean", &params, &[&k], &dims);
        let anchor = self.input(&format!("anchor_buffer_{l}_in"), &dims, self.form.dtype);
        self.op(&format!("anchor_buffer_{l}_out"), "ElementWiseAdd", &[], &[&anchor, &mean], &dims);
    }

    /// A last layer of which only its new rows are wanted: it attends to nothing.
    fn new_rows(&mut self, l: usize, w: &Layer, x: &Val, cos: &Val, sin: &Val) {
        let (n, Size { kv_heads, head_dim, .. }) = (self.n, self.size);
        let h = self.norm(&format!("l{l}_norm1"), x, &w.norm1);
        let (k, v) = self.keys_and_values(l, w, &h, cos, sin);
        self.cached(l, "key", &k, &[kv_heads, 1, head_dim, n], None, 3);
        self.cached(l, "value", &v, &[kv_heads, 1, n, head_dim], None, 2);
    }

    /// The new rows as an output of the graph, and the rows that attention sees: past and new, or without a group the new
    /// ones alone. `dims`: `[kv_heads, 1, ..]`.
    fn cached(
        &mut self,
        l: usize,
        kind: &str,
        new: &Val,
        dims: &[usize],
        group: Option<&GroupInputs>,
        axis: u32,
    ) -> Val {
        let name = format!("{}_{kind}_{l}", self.form.group_of(l).prefix);
        if !self.form.per_head {
            return self.cached_tensor(&name, "Reshape", &[], new, dims, group, axis);
        }
        let all_heads = self.reshape(&format!("l{l}_{kind}_heads"), new, dims);
        let one_head = [&[1], &dims[1..]].concat();
        let head = |draft: &mut Self, h: usize| {
            let ranges = dims.iter().enumerate().flat_map(|(axis, &len)| {
                let (first, end) = if axis == 0 { (h, h + 1) } else { (0, len) };
                [first as i32, end as i32, 1]
            });
            let ranges = Param::I32Tensor { dims: vec![4, 3], data: ranges.collect() };
            let name = format!("{name}_h{h}");
            draft.cached_tensor(&name, "StridedSlice", &[("ranges", ranges)], &all_heads, &one_head, group, axis)
        };
        let heads: Vec<Val> = (0..dims[0]).map(|h| head(self, h)).collect();
        let mut joined = heads[0].1.clone();
        joined[0] = dims[0];
        let heads: Vec<&Val> = heads.iter().collect();
        self.op(&format!("l{l}_{kind}_joined"), "Concat", &[("axis", Param::U32(0))], &heads, &joined)
    }

    /// One cache tensor, its new rows made from `x` by that op.
    #[allow(clippy::too_many_arguments)] // an op and a place in the cache
    fn cached_tensor(
        &mut self,
        tensor: &str,
        op: &str,
        params: &[(&str, Param)],
        x: &Val,
        dims: &[usize],
        group: Option<&GroupInputs>,
        axis: u32,
    ) -> Val {
        let (n, m) = (self.n, group.map_or(self.n, |group| group.ctx));
        let at = |name: &str| format!("l_{tensor}_{name}");
        let (dtype, quant) = self.form.cache_type();
        // libQnnHtp converts float16, the host quantises float32.
        let (quantise, dequantise) =
            if self.form.dtype == Dtype::F16 { ("Convert", "Convert") } else { ("Quantize", "Dequantize") };
        let float = self.form.cache == CacheType::Float;
        let format = if self.form.native_kv { DataFormat::HmxWeight } else { DataFormat::Flat };
        let out = format!("{tensor}_out");
        let new = if float {
            let info = TensorInfo { format, ..TensorInfo::new(out, dims, dtype) };
            self.node(&info, TensorKind::Output, op, params, &[x])
        } else {
            let rows = self.op(&at("rows"), op, params, &[x], dims);
            let info = TensorInfo { format, ..TensorInfo::new(out, dims, dtype).with_quant(quant.clone()) };
            let quantised = self.node(&info, TensorKind::Output, quantise, &[], &[&rows]);
            self.op(&at("rounded"), dequantise, &[], &[&quantised], dims)
        };
        let Some(group) = group.filter(|_| n < m) else { return new };
        let with = |len: usize| {
            let mut all = dims.to_vec();
            all[axis as usize] = len;
            all
        };
        let past_dims = with(if group.columns.is_some() { m } else { m - n });
        let info = TensorInfo::new(format!("{tensor}_in"), past_dims.clone(), dtype).with_quant(quant);
        let info = TensorInfo { format, ..info };
        let past = Val(self.b.tensor(&info, TensorKind::Input).expect("an input"), past_dims.clone());
        let past = if float { past } else { self.op(&at("past"), dequantise, &[], &[&past], &past_dims) };
        let Some(columns) = &group.columns else {
            return self.op(&at("all"), "Concat", &[("axis", Param::U32(axis))], &[&past, &new], &with(m));
        };
        let mut line = vec![1; 4];
        line[axis as usize] = n;
        let index = self.typed(&at("line"), "Reshape", &[], &[columns], &line, Dtype::I32);
        let multiples = dims.iter().zip(&line).map(|(d, l)| (d / l) as u32).collect();
        let multiples = Param::U32Tensor { dims: vec![4], data: multiples };
        let index = self.typed(&at("index"), "Tile", &[("multiples", multiples)], &[&index], dims, Dtype::I32);
        let axis_param = [("axis", Param::U32(axis))];
        self.op(&at("all"), "ScatterElements", &axis_param, &[&past, &index, &new], &past_dims)
    }

    /// Mask or rotary rows `[1, (1,) dims]` as floats, whatever the form's type for them.
    fn edge_input(&mut self, name: &str, dims: &[usize], quant: Quant) -> Val {
        let lead: &[usize] = if self.form.rank3 { &[1] } else { &[1, 1] };
        let dims = [lead, dims].concat();
        if !self.form.quantised_edge {
            return self.input(name, &dims, self.form.dtype);
        }
        let info = TensorInfo::new(name, dims.clone(), Dtype::UFixed16).with_quant(quant);
        let x = Val(self.b.tensor(&info, TensorKind::Input).expect("an input"), dims.clone());
        self.op(&format!("{name}_float"), "Convert", &[], &[&x], &dims)
    }

    fn input(&mut self, name: &str, dims: &[usize], dtype: Dtype) -> Val {
        Val(self.b.tensor(&TensorInfo::new(name, dims, dtype), TensorKind::Input).expect("an input"), dims.to_vec())
    }

    fn weight(&mut self, name: &str, m: &Matrix) -> Val {
        let dims = if m.dims[0] == 1 { vec![m.dims[1]] } else { m.dims.to_vec() };
        let bytes = self.form.bytes(&m.data);
        let info = TensorInfo::new(name, dims.clone(), self.form.dtype);
        Val(self.b.constant(&info, &bytes).expect("a constant"), dims)
    }

    fn op(&mut self, name: &str, op: &str, params: &[(&str, Param)], inputs: &[&Val], dims: &[usize]) -> Val {
        self.typed(name, op, params, inputs, dims, self.form.dtype)
    }

    fn typed(
        &mut self,
        name: &str,
        op: &str,
        params: &[(&str, Param)],
        inputs: &[&Val],
        dims: &[usize],
        dtype: Dtype,
    ) -> Val {
        // Names of the contract are graph outputs, all others are native tensors.
        let out = name.ends_with("_out") && !name.starts_with('l') || name.starts_with("hidden") || name == "logits";
        let kind = if out { TensorKind::Output } else { TensorKind::Native };
        self.node(&TensorInfo::new(name, dims, dtype), kind, op, params, inputs)
    }

    fn node(&mut self, out: &TensorInfo, kind: TensorKind, op: &str, params: &[(&str, Param)], inputs: &[&Val]) -> Val {
        let tensor = self.b.tensor(out, kind).expect("a tensor");
        let inputs: Vec<TensorRef> = inputs.iter().map(|v| v.0).collect();
        let added = self.b.node(&format!("node_{}", out.name), op, params, &inputs, &[tensor]);
        added.unwrap_or_else(|e| panic!("{op} `{}`: {e}", out.name));
        Val(tensor, out.dims.clone())
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

    fn heads(&mut self, name: &str, x: &Val, weight: &Matrix, n_heads: usize) -> Val {
        let y = self.linear(&format!("{name}_proj"), x, weight);
        let y = self.reshape(&format!("{name}_split"), &y, &[1, self.n, n_heads, self.size.head_dim]);
        self.transpose(name, &y, [0, 2, 1, 3])
    }
}
