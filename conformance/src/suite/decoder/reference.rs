//! The model by its definition, in double precision: every position at once, no cache.

use compiler::Family;
use compiler::testmodel::TestModel;

use genie_types::Quant;

use super::Weights;
use crate::suite::codec::{Fit, U8};
use crate::suite::values::Values;

/// What the model says about all tokens.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    /// `[token][vocab]`.
    pub(super) logits: Vec<Vec<f64>>,
    /// Rotated keys, `[layer][token][kv * d]`.
    pub(super) keys: Vec<Vec<Vec<f64>>>,
    /// Values, `[layer][token][kv * d]`.
    pub(super) values: Vec<Vec<Vec<f64>>>,
}

impl Whole {
    /// 8-bit encodings that hold keys and values of each layer, layer by layer.
    pub(super) fn cache_encodings(&self) -> Vec<Quant> {
        let fit = |rows: &Vec<Vec<f64>>| {
            let all = rows.concat();
            U8.with(Fit::Centred).encoding(&Values::new([all.len()], all), &[])
        };
        self.keys.iter().zip(&self.values).flat_map(|(k, v)| [fit(k), fit(v)]).collect()
    }
}

/// Cosine and sine of a pair's angle at a position, rounded to float16 as the client gives them.
pub(super) fn angle(model: &TestModel, position: usize, pair: usize) -> (f64, f64) {
    let half = model.head_dim / 2;
    let angle = position as f64 * model.rope_theta.powf(-(pair as f64) / half as f64);
    let rounded = |x: f64| half::f16::from_f64(x).to_f64();
    (rounded(angle.cos()), rounded(angle.sin()))
}

fn linear(weights: &Weights, name: &str, x: &[f64]) -> Vec<f64> {
    let bias = weights.find(&format!("{name}.bias"));
    let dot = |w: &[f64]| w.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
    let rows = weights.get(&format!("{name}.weight")).1.data.chunks(x.len());
    rows.enumerate().map(|(i, w)| dot(w) + bias.map_or(0.0, |b| b.1.data[i])).collect()
}

fn norm(weights: &Weights, name: &str, x: &[f64]) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let scale = (mean + f64::from(super::compose::RMS_EPS)).sqrt().recip();
    x.iter().zip(&weights.get(&format!("{name}.weight")).1.data).map(|(v, g)| v * scale * g).collect()
}

/// Heads side by side, normalised where the family does, turned to their position.
fn turned(model: &TestModel, weights: &Weights, part: &str, x: &[f64], position: usize) -> Vec<f64> {
    let (dim, half) = (model.head_dim, model.head_dim / 2);
    let all = linear(weights, &format!("{part}_proj"), x);
    let mut out = Vec::with_capacity(all.len());
    for head in all.chunks(dim) {
        let head = match model.family {
            Family::Qwen3 => norm(weights, &format!("{part}_norm"), head),
            _ => head.to_vec(),
        };
        out.extend((0..dim).map(|j| {
            let (cos, sin) = angle(model, position, j % half);
            if j < half { head[j] * cos - head[j + half] * sin } else { head[j] * cos + head[j - half] * sin }
        }));
    }
    out
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(a, b)| *a += b);
}

/// All tokens through all layers.
pub(super) fn run(model: &TestModel, weights: &Weights, tokens: &[usize]) -> Whole {
    let dim = model.head_dim;
    let table = &weights.get("model.embed_tokens.weight").1;
    let mut xs: Vec<Vec<f64>> =
        tokens.iter().map(|&t| table.data[t * model.hidden..][..model.hidden].to_vec()).collect();
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for layer in 0..model.layers {
        let at = |part: &str| format!("model.layers.{layer}.{part}");
        let hs: Vec<Vec<f64>> = xs.iter().map(|x| norm(weights, &at("input_layernorm"), x)).collect();
        let all = |part: &str| -> Vec<Vec<f64>> {
            hs.iter().enumerate().map(|(p, h)| turned(model, weights, &at(part), h, p)).collect()
        };
        let (q, k) = (all("self_attn.q"), all("self_attn.k"));
        let v: Vec<Vec<f64>> = hs.iter().map(|h| linear(weights, &at("self_attn.v_proj"), h)).collect();
        for (p, x) in xs.iter_mut().enumerate() {
            let mut mixed = Vec::new();
            for (head, query) in q[p].chunks(dim).enumerate() {
                let kv = head / (model.heads / model.kv_heads) * dim;
                let dot = |key: &[f64]| query.iter().zip(&key[kv..]).map(|(a, b)| a * b).sum::<f64>();
                let powers: Vec<f64> = k[..=p].iter().map(|key| dot(key).exp()).collect();
                let sum: f64 = powers.iter().sum();
                mixed.extend((0..dim).map(|d| powers.iter().zip(&v).map(|(s, v)| s / sum * v[kv + d]).sum::<f64>()));
            }
            add(x, &linear(weights, &at("self_attn.o_proj"), &mixed));
            let h = norm(weights, &at("post_attention_layernorm"), x);
            let (gate, up) = (linear(weights, &at("mlp.gate_proj"), &h), linear(weights, &at("mlp.up_proj"), &h));
            let inner: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(x, &linear(weights, &at("mlp.down_proj"), &inner));
        }
        keys.push(k);
        values.push(v);
    }
    let head = if model.tied { "model.embed_tokens" } else { "lm_head" };
    let logits = xs.iter().map(|x| linear(weights, head, &norm(weights, "model.norm", x))).collect();
    Whole { logits, keys, values }
}
