//! One step of a decoder as a graph: ids, mask, positions and past in; logits and cache out.

use compiler::Family;
use qnn_api::Param;

use super::reference::{Whole, angle};
use super::{Cache, Decoder, Form, Numbers, Weights};
use crate::suite::Problem;
use crate::suite::bounds::Bound;
use crate::suite::codec::{F16, I32};
use crate::suite::values::Values;

/// As random checkpoints have it.
pub(super) const RMS_EPS: f32 = 1e-5;

/// What a mask adds to columns that are not to be seen; in codes no more than it takes, for the sums' sake.
const fn unseen(numbers: Numbers) -> f64 {
    match numbers {
        Numbers::Codes => -20.0,
        Numbers::Float16 | Numbers::Int8Weights => -1e4,
    }
}

/// New tokens and what was before them.
pub(super) struct Step<'a> {
    pub(super) tokens: &'a [usize],
    pub(super) n_past: usize,
    /// Empty before the first step.
    pub(super) cache: &'a Cache,
}

/// A graph under construction; a method adds a node and gives the name of what it makes.
struct Graph<'w> {
    problem: Problem,
    weights: &'w Weights,
    n: usize,
}

type Dims = Vec<usize>;

impl Graph<'_> {
    fn edit(&mut self, f: impl FnOnce(Problem) -> Problem) {
        let empty = Problem::graph("", "");
        self.problem = f(core::mem::replace(&mut self.problem, empty));
    }

    fn input(&mut self, ty: crate::suite::codec::Ty, values: Values) -> String {
        let name = format!("x{}", self.problem.tensors.len());
        self.edit(|p| p.input(ty, values));
        name
    }

    fn weight(&mut self, name: &str) -> String {
        let tensor = format!("x{}", self.problem.tensors.len());
        let (ty, values) = self.weights.get(name).clone();
        self.edit(|p| p.constant(ty, values));
        tensor
    }

    fn op(&mut self, op: &'static str, params: Vec<(&'static str, Param)>, inputs: &[&str], dims: Dims) -> String {
        let name = format!("n{}", self.problem.tensors.len());
        self.edit(|p| p.native(&name, &F16, dims).node(op, params, inputs, &[&name]));
        name
    }

    /// As [`Graph::op`], with an output of the graph.
    fn last(&mut self, op: &'static str, params: Vec<(&'static str, Param)>, inputs: &[&str], output: &str) -> String {
        self.edit(|p| p.node(op, params, inputs, &[output]));
        output.to_owned()
    }

    fn norm(&mut self, name: &str, x: &str, dims: &[usize]) -> String {
        let gamma = self.weight(&format!("{name}.weight"));
        let axes = Param::U32Tensor { dims: vec![1], data: vec![dims.len() as u32 - 1] };
        self.op("RmsNorm", vec![("epsilon", Param::F32(RMS_EPS)), ("axes", axes)], &[x, &gamma], dims.to_vec())
    }

    fn linear(&mut self, name: &str, x: &str) -> (String, usize) {
        let width = self.weights.get(&format!("{name}.weight")).1.dims[0];
        let weight = self.weight(&format!("{name}.weight"));
        let bias = format!("{name}.bias");
        let bias = self.weights.find(&bias).is_some().then(|| self.weight(&bias));
        let inputs: Vec<&str> = [x, &weight].into_iter().chain(bias.as_deref()).collect();
        (self.op("FullyConnected", vec![], &inputs, vec![self.n, width]), width)
    }

    fn reshape(&mut self, x: &str, dims: Dims) -> String {
        self.op("Reshape", vec![], &[x], dims)
    }

    fn transpose(&mut self, x: &str, perm: [u32; 4], dims: Dims) -> String {
        let perm = Param::U32Tensor { dims: vec![4], data: perm.to_vec() };
        self.op("Transpose", vec![("perm", perm)], &[x], dims)
    }

    fn mat_mul(&mut self, a: &str, b: &str, dims: Dims) -> String {
        let params = vec![("transpose_in0", Param::Bool(false)), ("transpose_in1", Param::Bool(false))];
        self.op("MatMul", params, &[a, b], dims)
    }
}

/// The step's graph, inputs and answers.
pub(super) fn problem(decoder: &Decoder, weights: &Weights, step: &Step<'_>, whole: &Whole) -> Problem {
    let Decoder { model, form, ctx_size: m, .. } = decoder;
    let (n, m, past) = (step.tokens.len(), *m, step.n_past);
    let (heads, kv, dim, hidden) = (model.heads, model.kv_heads, model.head_dim, model.hidden);
    let case = format!("{}, {n} after {past}", decoder.title());
    let mut g = Graph { problem: Problem::graph("Decoder", case), weights, n };

    let ids = g.input(I32, Values::new([1, n], step.tokens.iter().map(|&t| t as f64).collect()));
    // New columns stand at the end in concat form, behind the past in scatter form.
    let first = if *form == Form::Concat { m - n } else { past };
    let seen = |row: usize, column: usize| column < past || (column >= first && column - first <= row);
    let mask = Values::from_fn([1, 1, n, m], |i| if seen(i[2], i[3]) { 0.0 } else { unseen(decoder.numbers) });
    let mask = g.input(F16, mask);
    let cos = g.input(F16, Values::from_fn([1, n, dim / 2], |i| angle(model, past + i[1], i[2]).0));
    let sin = g.input(F16, Values::from_fn([1, n, dim / 2], |i| angle(model, past + i[1], i[2]).1));
    let index = (*form == Form::Scatter).then(|| indices(&mut g, past, [kv, dim, n]));

    let table = g.weight("model.embed_tokens.weight");
    let mut x = g.op("Gather", vec![("axis", Param::I32(0))], &[&table, &ids], vec![1, n, hidden]);
    for layer in 0..model.layers {
        let at = |part: &str| format!("model.layers.{layer}.{part}");
        let h = g.norm(&at("input_layernorm"), &x, &[1, n, hidden]);
        let project = |g: &mut Graph<'_>, part: &str, count: usize, turns: bool| {
            let (y, _) = g.linear(&at(&format!("self_attn.{part}_proj")), &h);
            let mut y = g.reshape(&y, vec![1, n, count, dim]);
            if turns && model.family == Family::Qwen3 {
                y = g.norm(&at(&format!("self_attn.{part}_norm")), &y, &[1, n, count, dim]);
            }
            let y = g.transpose(&y, [0, 2, 1, 3], vec![1, count, n, dim]);
            if !turns {
                return y;
            }
            let params = vec![("interleaved", Param::Bool(false)), ("rotary_embedding_dim", Param::U32(dim as u32))];
            g.op("RotaryEmbedding", params, &[&y, &cos, &sin], vec![1, count, n, dim])
        };
        let q = project(&mut g, "q", heads, true);
        let k = project(&mut g, "k", kv, true);
        let v = project(&mut g, "v", kv, false);
        let k = g.transpose(&k, [0, 1, 3, 2], vec![1, kv, dim, n]);
        let (key_out, value_out) = (format!("y{}", 1 + 2 * layer), format!("y{}", 2 + 2 * layer));
        let columns = if *form == Form::Concat { m - n } else { m };
        let kept = |cache: Option<&Values>, dims: [usize; 4], axis: usize| {
            Values::from_fn(dims, |i| if i[axis] < past { cache.map_or(0.0, |c| c.at(i)) } else { 0.0 })
        };
        let before = step.cache.get(layer);
        let past_k = g.input(F16, kept(before.map(|c| &c.0), [kv, 1, dim, columns], 3));
        let past_v = g.input(F16, kept(before.map(|c| &c.1), [kv, 1, columns, dim], 2));
        let (k, v) = match &index {
            None => {
                let k = g.last("Reshape", vec![], &[&k], &key_out);
                let v = g.last("Reshape", vec![], &[&v], &value_out);
                let k = g.op("Concat", vec![("axis", Param::U32(3))], &[&past_k, &k], vec![kv, 1, dim, m]);
                (k, g.op("Concat", vec![("axis", Param::U32(2))], &[&past_v, &v], vec![kv, 1, m, dim]))
            }
            Some((columns, rows)) => {
                let k = g.reshape(&k, vec![kv, 1, dim, n]);
                let v = g.reshape(&v, vec![kv, 1, n, dim]);
                let axis = |axis| vec![("axis", Param::U32(axis))];
                let k = g.last("ScatterElements", axis(3), &[&past_k, columns, &k], &key_out);
                (k, g.last("ScatterElements", axis(2), &[&past_v, rows, &v], &value_out))
            }
        };
        let q = g.reshape(&q, vec![kv, heads / kv, n, dim]);
        let wide = vec![kv, heads / kv, n, m];
        let scores = g.mat_mul(&q, &k, wide.clone());
        let scores = g.op("ElementWiseAdd", vec![], &[&scores, &mask], wide.clone());
        let shares = g.op("Softmax", vec![("axis", Param::U32(3))], &[&scores], wide);
        let mixed = g.mat_mul(&shares, &v, vec![kv, heads / kv, n, dim]);
        let mixed = g.reshape(&mixed, vec![1, heads, n, dim]);
        let mixed = g.transpose(&mixed, [0, 2, 1, 3], vec![1, n, heads, dim]);
        let mixed = g.reshape(&mixed, vec![1, n, heads * dim]);
        let (o, _) = g.linear(&at("self_attn.o_proj"), &mixed);
        let o = g.reshape(&o, vec![1, n, hidden]);
        x = g.op("ElementWiseAdd", vec![], &[&x, &o], vec![1, n, hidden]);

        let h = g.norm(&at("post_attention_layernorm"), &x, &[1, n, hidden]);
        let (gate, ffn) = g.linear(&at("mlp.gate_proj"), &h);
        let (up, _) = g.linear(&at("mlp.up_proj"), &h);
        let soft = g.op("Sigmoid", vec![], &[&gate], vec![n, ffn]);
        let silu = g.op("ElementWiseMultiply", vec![], &[&gate, &soft], vec![n, ffn]);
        let both = g.op("ElementWiseMultiply", vec![], &[&silu, &up], vec![n, ffn]);
        let (down, _) = g.linear(&at("mlp.down_proj"), &both);
        let down = g.reshape(&down, vec![1, n, hidden]);
        x = g.op("ElementWiseAdd", vec![], &[&x, &down], vec![1, n, hidden]);
    }
    let h = g.norm("model.norm", &x, &[1, n, hidden]);
    let head = if model.tied { "model.embed_tokens" } else { "lm_head" };
    let (logits, _) = g.linear(head, &h);
    g.last("Reshape", vec![], &[&logits], "y0");
    answered(g.problem, decoder, step, whole)
}

/// `cache_index + 0..n` for each element of the new keys and values.
fn indices(g: &mut Graph<'_>, past: usize, [kv, dim, n]: [usize; 3]) -> (String, String) {
    let start = g.input(I32, Values::new([1], vec![past as f64]));
    let mut sum = |dims: [usize; 4], axis: usize| {
        let counts = format!("x{}", g.problem.tensors.len());
        g.edit(|p| p.constant(I32, Values::from_fn(dims, |i| i[axis] as f64)));
        let name = format!("n{}", g.problem.tensors.len());
        g.edit(|p| p.native(&name, &I32, dims).node("ElementWiseAdd", vec![], &[&counts, &start], &[&name]));
        name
    };
    (sum([kv, 1, dim, n], 3), sum([kv, 1, n, dim], 2))
}

/// Declares logits and cache with what the whole model says: new columns, or in scatter form all up to them and zeros.
fn answered(mut problem: Problem, decoder: &Decoder, step: &Step<'_>, whole: &Whole) -> Problem {
    let (n, past) = (step.tokens.len(), step.n_past);
    let (kv, dim) = (decoder.model.kv_heads, decoder.model.head_dim);
    let vocab = whole.logits[0].len();
    let mut answers = vec![Values::from_fn([1, n, vocab], |i| whole.logits[past + i[1]][i[2]])];
    for layer in 0..decoder.model.layers {
        let (from, columns) = if decoder.form == Form::Concat { (past, n) } else { (0, decoder.ctx_size) };
        let at = |rows: &[Vec<f64>], head: usize, d: usize, column: usize| match from + column < past + n {
            true => rows[from + column][head * dim + d],
            false => 0.0,
        };
        let (keys, values) = (&whole.keys[layer], &whole.values[layer]);
        answers.push(Values::from_fn([kv, 1, dim, columns], |i| at(keys, i[0], i[2], i[3])));
        answers.push(Values::from_fn([kv, 1, columns, dim], |i| at(values, i[0], i[3], i[2])));
    }
    for _ in &answers {
        problem = problem.output(F16);
    }
    // The cache is float16 and every step builds on it.
    problem.answers(move |_| answers.clone()).host_within(Bound::Largest(1e-3)).htp_within(Bound::Largest(1e-2))
}
