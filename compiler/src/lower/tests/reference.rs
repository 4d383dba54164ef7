//! The model itself, written down from its definition: no cache, no graphs, everything in double.
//!
//! It reads the files through the `safetensors` crate, so it shares no code with what it is compared to.

use super::interp::Tables;
use crate::testmodel::{FileDtype, TestModel};
use half::bf16;
use safetensors::SafeTensors;
use std::collections::HashMap;
use std::path::Path;

pub(crate) struct Reference<'a> {
    model: &'a TestModel,
    weights: HashMap<String, Vec<f64>>,
}

impl<'a> Reference<'a> {
    pub(crate) fn open(dir: &Path, model: &'a TestModel) -> Self {
        let mut weights = HashMap::new();
        let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        for file in files.filter(|f| f.extension().is_some_and(|e| e == "safetensors")) {
            let bytes = std::fs::read(file).unwrap();
            for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
                let values = match model.dtype {
                    FileDtype::Bf16 => {
                        view.data().as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f64()).collect()
                    }
                    FileDtype::F32 => view.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect(),
                    FileDtype::F16 => panic!("not needed here"),
                };
                weights.insert(name, values);
            }
        }
        Self { model, weights }
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = &self.weights[&format!("{name}.weight")];
        let bias = self.weights.get(&format!("{name}.bias"));
        let dot = |w: &[f64]| x.iter().zip(w).map(|(a, b)| a * b).sum::<f64>();
        weight.chunks(x.len()).enumerate().map(|(i, w)| dot(w) + bias.map_or(0.0, |b| b[i])).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        x.iter().zip(&self.weights[name]).map(|(v, g)| v / (mean + 1e-5_f32 as f64).sqrt() * g).collect()
    }

    /// Heads of one token, normalised where the family does, rotated to its position.
    fn heads(&self, name: &str, x: &[f64], position: usize, tables: &Tables) -> Vec<Vec<f64>> {
        let width = self.model.head_dim;
        let half = width / 2;
        let all = self.linear(&format!("{name}_proj"), x);
        let mut heads: Vec<Vec<f64>> = all.chunks(width).map(<[f64]>::to_vec).collect();
        for head in &mut heads {
            if self.model.family.info().qk_norm {
                *head = self.norm(&format!("{name}_norm.weight"), head);
            }
            let (cos, sin) = (&tables.0[position * half..], &tables.1[position * half..]);
            let rotated = |j: usize| {
                let (c, s) = (f64::from(cos[j % half]), f64::from(sin[j % half]));
                if j < half { head[j] * c - head[j + half] * s } else { head[j] * c + head[j - half] * s }
            };
            *head = (0..width).map(rotated).collect();
        }
        heads
    }

    /// Logits of every position.
    pub(crate) fn logits(&self, tokens: &[u32], tables: &Tables) -> Vec<Vec<f64>> {
        let TestModel { hidden, heads, kv_heads, head_dim, .. } = *self.model;
        let table = &self.weights["model.embed_tokens.weight"];
        let mut xs: Vec<Vec<f64>> = tokens.iter().map(|&t| table[t as usize * hidden..][..hidden].to_vec()).collect();
        for layer in 0..self.model.layers {
            let at = |part: &str| format!("model.layers.{layer}.{part}");
            let hs: Vec<Vec<f64>> = xs.iter().map(|x| self.norm(&at("input_layernorm.weight"), x)).collect();
            let rotated = |part: &str| -> Vec<Vec<Vec<f64>>> {
                hs.iter().enumerate().map(|(p, h)| self.heads(&at(part), h, p, tables)).collect()
            };
            let (q, k) = (rotated("self_attn.q"), rotated("self_attn.k"));
            let v: Vec<Vec<f64>> = hs.iter().map(|h| self.linear(&at("self_attn.v_proj"), h)).collect();
            for (p, x) in xs.iter_mut().enumerate() {
                let mut mixed = Vec::new();
                for (head, query) in q[p].iter().enumerate() {
                    let kv = head / (heads / kv_heads);
                    let dot = |key: &[f64]| query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>();
                    let scores: Vec<f64> =
                        k[..=p].iter().map(|k| (dot(&k[kv]) / (head_dim as f64).sqrt()).exp()).collect();
                    let sum: f64 = scores.iter().sum();
                    let value =
                        |d: usize| scores.iter().zip(&v).map(|(s, v)| s / sum * v[kv * head_dim + d]).sum::<f64>();
                    mixed.extend((0..head_dim).map(value));
                }
                let add = |x: &mut Vec<f64>, y: Vec<f64>| x.iter_mut().zip(y).for_each(|(a, b)| *a += b);
                add(x, self.linear(&at("self_attn.o_proj"), &mixed));
                let h = self.norm(&at("post_attention_layernorm.weight"), x);
                let (gate, up) = (self.linear(&at("mlp.gate_proj"), &h), self.linear(&at("mlp.up_proj"), &h));
                let inner: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                add(x, self.linear(&at("mlp.down_proj"), &inner));
            }
        }
        let head = if self.model.tied { "model.embed_tokens" } else { "lm_head" };
        xs.iter().map(|x| self.linear(head, &self.norm("model.norm.weight", x))).collect()
    }
}
