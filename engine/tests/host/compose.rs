//! The tiny Llama as graphs of the contract, composed through the function table and saved as context binaries.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use genie_types::{Dtype, TensorInfo};
use half::f16;
use qnn_api::{Backend, BackendOptions, Context, GraphBuilder, Library, Param, TensorKind, TensorRef};

use super::tiny::*;

/// One graph of one part.
struct Draft {
    b: GraphBuilder,
    dtype: Dtype,
    n: usize,
    m: usize,
}

/// A tensor and its extents.
#[derive(Clone)]
struct Val(TensorRef, Vec<usize>);

impl Draft {
    fn input(&mut self, name: &str, dims: &[usize], dtype: Dtype) -> Val {
        Val(self.b.tensor(&TensorInfo::new(name, dims, dtype), TensorKind::Input).unwrap(), dims.to_vec())
    }

    fn weight(&mut self, name: &str, m: &Matrix) -> Val {
        let dims = if m.dims[0] == 1 { vec![m.dims[1]] } else { m.dims.to_vec() };
        let bytes: Vec<u8> = match self.dtype {
            Dtype::F32 => m.data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            _ => m.data.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
        };
        Val(self.b.constant(&TensorInfo::new(name, dims.clone(), self.dtype), &bytes).unwrap(), dims)
    }

    fn op(&mut self, name: &str, op: &str, params: &[(&str, Param)], inputs: &[&Val], dims: &[usize]) -> Val {
        // Names of the contract are graph outputs, all others are inner.
        let out = name.starts_with("past_") || name.starts_with("hidden") || name == "logits";
        let kind = if out { TensorKind::Output } else { TensorKind::Native };
        let tensor = self.b.tensor(&TensorInfo::new(name, dims, self.dtype), kind).unwrap();
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

    fn heads(&mut self, name: &str, x: &Val, weight: &Matrix, n_heads: usize) -> Val {
        let y = self.linear(&format!("{name}_proj"), x, weight);
        let y = self.reshape(&format!("{name}_split"), &y, &[1, self.n, n_heads, HEAD_DIM]);
        self.transpose(name, &y, [0, 2, 1, 3])
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
        let mut k = self.reshape(&format!("past_key_{l}_out"), &k, &[KV_HEADS, 1, HEAD_DIM, n]);
        let v = self.heads(&at("v"), &h, &weights.v, KV_HEADS);
        let mut v = self.reshape(&format!("past_value_{l}_out"), &v, &[KV_HEADS, 1, n, HEAD_DIM]);
        if n < m {
            let past_k = self.input(&format!("past_key_{l}_in"), &[KV_HEADS, 1, HEAD_DIM, m - n], self.dtype);
            let past_v = self.input(&format!("past_value_{l}_in"), &[KV_HEADS, 1, m - n, HEAD_DIM], self.dtype);
            let axis = |axis| [("axis", Param::U32(axis))];
            k = self.op(&at("k_all"), "Concat", &axis(3), &[&past_k, &k], &[KV_HEADS, 1, HEAD_DIM, m]);
            v = self.op(&at("v_all"), "Concat", &axis(2), &[&past_v, &v], &[KV_HEADS, 1, m, HEAD_DIM]);
        }
        let q = self.reshape(&at("q_groups"), &q, &[KV_HEADS, group, n, HEAD_DIM]);
        let scores = self.op(&at("scores"), "MatMul", &[], &[&q, &k], &[KV_HEADS, group, n, m]);
        let scores = self.op(&at("masked"), "ElementWiseAdd", &[], &[&scores, mask], &[KV_HEADS, group, n, m]);
        let shares =
            self.op(&at("shares"), "Softmax", &[("axis", Param::U32(3))], &[&scores], &[KV_HEADS, group, n, m]);
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
        let last = format!("hidden_{l}");
        let name = if self.b.name().ends_with("1_of_1") || l + 1 < LAYERS { at("x2") } else { last };
        self.op(&name, "ElementWiseAdd", &[], &[&x, &down], &[1, n, HIDDEN])
    }
}

/// What a split holds: tokens, layers, logits.
#[derive(Clone, Copy, Debug)]
pub struct Part(pub bool, pub bool, pub bool);

/// The whole model in one binary.
pub const MONO: &[Part] = &[Part(true, true, true)];
/// Decoder, LM head.
pub const TWO: &[Part] = &[Part(true, true, false), Part(false, false, true)];
/// LUT, decoder, LM head.
pub const THREE: &[Part] = &[Part(true, false, false), Part(false, true, false), Part(false, false, true)];

/// The backend linked into the test.
pub fn backend() -> Arc<Backend> {
    let library = Library::linked(qnn_host::providers());
    Backend::new(&library.unwrap(), &BackendOptions::default()).unwrap()
}

/// Composes and saves one context binary for each part.
pub fn save(
    backend: &Arc<Backend>,
    folder: &Path,
    tiny: &Tiny,
    parts: &[Part],
    variants: &[(usize, usize)],
    dtype: Dtype,
) -> Vec<PathBuf> {
    parts
        .iter()
        .enumerate()
        .map(|(i, part)| {
            let context = Context::create(backend, &Default::default()).unwrap();
            for &(n, m) in variants {
                let name = format!("ar{n}_cl{m}_{}_of_{}", i + 1, parts.len());
                let b = context.compose(&name, &Default::default()).unwrap();
                let mut draft = Draft { b, dtype, n, m };
                graph(&mut draft, tiny, *part);
                draft.b.finalize().unwrap();
            }
            let path = folder.join(format!("part{}.bin", i + 1));
            context.save(&path).unwrap();
            path
        })
        .collect()
}

fn graph(d: &mut Draft, tiny: &Tiny, Part(tokens, layers, logits): Part) {
    let (n, m) = (d.n, d.m);
    let mut x = if tokens {
        let ids = d.input("input_ids", &[1, n], Dtype::I32);
        let table = d.weight("embed", &tiny.embed);
        let name = if layers { "embedded" } else { "hidden_embed" };
        d.op(name, "Gather", &[("axis", Param::I32(0))], &[&table, &ids], &[1, n, HIDDEN])
    } else {
        let name = if layers { "hidden_embed".to_owned() } else { format!("hidden_{}", LAYERS - 1) };
        d.input(&name, &[1, n, HIDDEN], d.dtype)
    };
    if layers {
        let mask = d.input("attention_mask", &[1, 1, n, m], d.dtype);
        let cos = d.input("position_ids_cos", &[1, 1, n, HEAD_DIM / 2], d.dtype);
        let sin = d.input("position_ids_sin", &[1, 1, n, HEAD_DIM / 2], d.dtype);
        let cos = d.reshape("rope_cos", &cos, &[1, n, HEAD_DIM / 2]);
        let sin = d.reshape("rope_sin", &sin, &[1, n, HEAD_DIM / 2]);
        for (l, weights) in tiny.layers.iter().enumerate() {
            x = d.layer(l, weights, &x, &mask, &cos, &sin);
        }
    }
    if logits {
        let h = d.norm("norm", &x, &tiny.norm);
        let y = d.linear("head", &h, &tiny.head);
        d.reshape("logits", &y, &[1, n, VOCAB]);
    }
}
