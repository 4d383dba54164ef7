//! The model itself, written down from its definition in Hugging Face transformers: no cache, no graphs, everything in double.
//!
//! It reads the folder by itself, `config.json` as plain JSON and the weights through the `safetensors` crate, so it shares no code
//! with what it is compared to; `conformance` includes this file. Only what random test models use is here.

use half::bf16;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

pub(crate) struct Reference {
    config: Value,
    kind: String,
    weights: HashMap<String, Vec<f64>>,
    /// Tokens of the context, for scalings that depend on it.
    context: usize,
}

type Rows = Vec<Vec<f64>>;

impl Reference {
    pub(crate) fn open(dir: &Path) -> Self {
        let config: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
        let mut weights = HashMap::new();
        let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        for file in files.filter(|f| f.extension().is_some_and(|e| e == "safetensors")) {
            let bytes = std::fs::read(file).unwrap();
            for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
                let values = match view.dtype() {
                    Dtype::BF16 => view.data().as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f64()).collect(),
                    Dtype::F32 => view.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect(),
                    other => panic!("{other:?} is not needed here"),
                };
                weights.insert(name, values);
            }
        }
        let kind = config["model_type"].as_str().unwrap().to_string();
        Self { config, kind, weights, context: 0 }
    }

    /// The model in a context of that many tokens.
    #[allow(dead_code, reason = "only some of those that include this file have scalings that depend on it")]
    pub(crate) fn in_context(self, context: usize) -> Self {
        Self { context, ..self }
    }

    /// The model in which every token sees all earlier ones.
    #[allow(dead_code, reason = "only some of those that include this file have models with windows")]
    pub(crate) fn without_windows(mut self) -> Self {
        self.config["sliding_window"] = Value::Null;
        self
    }

    fn number(&self, key: &str) -> Option<f64> {
        self.config[key].as_f64()
    }

    fn count(&self, key: &str) -> usize {
        self.config[key].as_u64().unwrap_or_else(|| panic!("{key}")) as usize
    }

    fn is_gemma(&self) -> bool {
        self.kind.starts_with("gemma")
    }

    fn head_dim(&self) -> usize {
        let whole = || self.count("hidden_size") / self.count("num_attention_heads");
        self.config["head_dim"].as_u64().map_or_else(whole, |d| d as usize)
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let bias = self.weights.get(&format!("{name}.bias"));
        let all = self.weights.get(&format!("{name}.weight")).unwrap_or_else(|| panic!("{name}"));
        let dot = |w: &[f64]| x.iter().zip(w).map(|(a, b)| a * b).sum::<f64>();
        all.chunks(x.len()).enumerate().map(|(i, w)| dot(w) + bias.map_or(0.0, |b| b[i])).collect()
    }

    /// Some outputs of a projection that may be a part of a larger one.
    fn part(&self, own: &str, fused: (&str, usize, usize), x: &[f64]) -> Vec<f64> {
        if self.weights.contains_key(&format!("{own}.weight")) {
            return self.linear(own, x);
        }
        let (whole, first, n) = fused;
        self.linear(whole, x)[first..first + n].to_vec()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let eps = self.number("rms_norm_eps").or(self.number("layer_norm_eps")).unwrap();
        let gamma = &self.weights[&format!("{name}.weight")];
        let n = x.len() as f64;
        if let Some(beta) = self.weights.get(&format!("{name}.bias")) {
            let mean = x.iter().sum::<f64>() / n;
            let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
            let one = |i: usize| (x[i] - mean) / (variance + eps).sqrt() * gamma[i] + beta[i];
            return (0..x.len()).map(one).collect();
        }
        let scale = (x.iter().map(|v| v * v).sum::<f64>() / n + eps).sqrt().recip();
        let more = if self.is_gemma() { 1.0 } else { 0.0 };
        x.iter().zip(gamma).map(|(v, g)| v * scale * (g + more)).collect()
    }

    /// Heads of one token, normalised where the model does.
    fn heads(&self, at: &str, all: Vec<f64>) -> Rows {
        let name = format!("{at}_norm");
        let has_norm = self.weights.contains_key(&format!("{name}.weight"));
        let olmo = self.kind.starts_with("olmo");
        let whole = if has_norm && olmo { self.norm(&name, &all) } else { all };
        let head = |head: &[f64]| if has_norm && !olmo { self.norm(&name, head) } else { head.to_vec() };
        whole.chunks(self.head_dim()).map(head).collect()
    }

    /// Turns the first elements of a head to its position.
    fn turn(&self, head: &mut [f64], position: usize, (theta, block): &(f64, Value)) {
        let default = if self.kind == "stablelm" { 0.25 } else { 1.0 };
        let rotated = (head.len() as f64 * self.number("partial_rotary_factor").unwrap_or(default)) as usize;
        let half = rotated / 2;
        let amplitude = self.amplitude(block);
        for j in 0..half {
            let frequency = self.frequency(j, half, *theta, block);
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            let (sin, cos) = (sin * amplitude, cos * amplitude);
            let (a, b) = (head[j], head[half + j]);
            (head[j], head[half + j]) = (a * cos - b * sin, b * cos + a * sin);
        }
    }

    /// The type of a block of positions, and a number of it.
    fn scaling(block: &Value) -> (&str, impl Fn(&str) -> f64) {
        let number = |key: &str| block[key].as_f64().unwrap_or_else(|| panic!("{key}"));
        (block["rope_type"].as_str().unwrap_or("default"), number)
    }

    /// Radians per position of angle `j` of `half`, as transformers computes it.
    fn frequency(&self, j: usize, half: usize, theta: f64, block: &Value) -> f64 {
        let dim = 2.0 * half as f64;
        let extrapolated = 1.0 / theta.powf(2.0 * j as f64 / dim);
        let (kind, number) = Self::scaling(block);
        match kind {
            "linear" => extrapolated / number("factor"),
            "longrope" => {
                let long = self.context as f64 > number("original_max_position_embeddings");
                let list = if long { "long_factor" } else { "short_factor" };
                let divisor = block[list][j].as_f64().unwrap();
                1.0 / (divisor * theta.powf(2.0 * j as f64 / dim))
            }
            "yarn" => {
                let original = number("original_max_position_embeddings");
                let dimension_of = |rotations: f64| {
                    dim * (original / (rotations * 2.0 * std::f64::consts::PI)).ln() / (2.0 * theta.ln())
                };
                let low = dimension_of(number("beta_fast")).floor().max(0.0);
                let high = dimension_of(number("beta_slow")).ceil().min(dim - 1.0);
                let ramp = ((j as f64 - low) / (high - low)).clamp(0.0, 1.0);
                let interpolated = extrapolated / number("factor");
                interpolated * ramp + extrapolated * (1.0 - ramp)
            }
            _ => extrapolated,
        }
    }

    /// What transformers calls the attention factor.
    fn amplitude(&self, block: &Value) -> f64 {
        let (kind, number) = Self::scaling(block);
        match (kind, block["attention_factor"].as_f64()) {
            ("yarn" | "longrope", Some(stated)) => stated,
            ("longrope", None) => {
                let original = number("original_max_position_embeddings");
                let factor = self.number("max_position_embeddings").unwrap() / original;
                (1.0 + factor.ln() / original.ln()).sqrt()
            }
            ("yarn", None) => 0.1 * number("factor").ln() + 1.0,
            _ => 1.0,
        }
    }

    /// The base of a layer's angles, and what scales them; `None` for a layer that does not rotate.
    fn positions(&self, layer: usize) -> Option<(f64, Value)> {
        let interval = self.config["no_rope_layer_interval"].as_u64();
        if interval.is_some_and(|n| (layer as u64 + 1).is_multiple_of(n)) {
            return None;
        }
        let kinds = &self.config["layer_types"];
        let of_kind = &self.config["rope_parameters"][kinds[layer].as_str().unwrap_or_default()];
        if of_kind.is_object() {
            return Some((of_kind["rope_theta"].as_f64()?, of_kind.clone()));
        }
        if self.kind == "olmo3" && kinds[layer] == "sliding_attention" {
            return Some((self.number("rope_theta")?, Value::Null));
        }
        // The layers of Gemma 3 that have a window.
        let pattern = self.config["sliding_window_pattern"].as_u64();
        if self.kind == "gemma3_text" && !(layer as u64 + 1).is_multiple_of(pattern.unwrap_or(6)) {
            return Some((self.number("rope_local_base_freq").unwrap_or(10_000.0), Value::Null));
        }
        Some((self.number("rope_theta")?, self.config["rope_scaling"].clone()))
    }

    /// What scores are multiplied by.
    fn score_factor(&self) -> f64 {
        match self.number("query_pre_attn_scalar") {
            Some(scalar) => scalar.powf(-0.5),
            None if self.kind == "granite" => self.number("attention_multiplier").unwrap(),
            None => (self.head_dim() as f64).powf(-0.5),
        }
    }

    fn active(&self, x: f64) -> f64 {
        let name = self.config["hidden_act"].as_str().or(self.config["hidden_activation"].as_str());
        if name == Some("gelu") {
            return 0.5 * x * (1.0 + error_function(x / std::f64::consts::SQRT_2));
        }
        if name == Some("gelu_pytorch_tanh") || (name.is_none() && self.is_gemma()) {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            return 0.5 * x * (1.0 + inner.tanh());
        }
        x / (1.0 + (-x).exp())
    }

    /// `cap * tanh(x / cap)`, where there is a cap.
    fn capped(&self, key: &str, x: f64) -> f64 {
        self.number(key).map_or(x, |cap| cap * (x / cap).tanh())
    }

    /// Tokens that a layer sees, the token itself included; `None` for all.
    fn window(&self, layer: usize) -> Option<usize> {
        let size = self.config["sliding_window"].as_u64()? as usize;
        if let Some(kinds) = self.config["layer_types"].as_array() {
            return (kinds[layer] == "sliding_attention").then_some(size);
        }
        let every = match self.kind.as_str() {
            "gemma2" => 2,
            "gemma3_text" => self.config["sliding_window_pattern"].as_u64().unwrap_or(6) as usize,
            "mistral" | "phi3" => usize::MAX,
            _ => return None,
        };
        // The tests' models of Gemma 2 have the pattern as a key, too.
        let every = self.config["sliding_window_pattern"].as_u64().map_or(every, |n| n as usize);
        (!(layer + 1).is_multiple_of(every)).then_some(size)
    }

    /// What the attention of a layer adds for each of the rows.
    fn attention(&self, layer: usize, hs: &Rows) -> Rows {
        let at = format!("model.layers.{layer}.self_attn.");
        let (n_heads, kv_heads, width) =
            (self.count("num_attention_heads"), self.count("num_key_value_heads"), self.head_dim());
        let (q_len, kv_len) = (n_heads * width, kv_heads * width);
        let project = |name: &str, first: usize, n: usize, h: &[f64]| {
            self.part(&format!("{at}{name}_proj"), (&format!("{at}qkv_proj"), first, n), h)
        };
        let turned = |name: &str, first: usize, n: usize| -> Vec<Rows> {
            let one = |(position, h): (usize, &Vec<f64>)| {
                let mut heads = self.heads(&format!("{at}{name}"), project(name, first, n, h));
                if let Some(positions) = self.positions(layer) {
                    heads.iter_mut().for_each(|head| self.turn(head, position, &positions));
                }
                heads
            };
            hs.iter().enumerate().map(one).collect()
        };
        let (q, k) = (turned("q", 0, q_len), turned("k", q_len, kv_len));
        let v: Rows = hs.iter().map(|h| project("v", q_len + kv_len, kv_len, h)).collect();
        let row = |p: usize| {
            let first = self.window(layer).map_or(0, |n| (p + 1).saturating_sub(n));
            let mut mixed = Vec::new();
            for (head, query) in q[p].iter().enumerate() {
                let kv = head / (n_heads / kv_heads);
                let dot = |key: &[f64]| query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() * self.score_factor();
                let shares: Vec<f64> =
                    k[first..=p].iter().map(|k| self.capped("attn_logit_softcapping", dot(&k[kv])).exp()).collect();
                let sum: f64 = shares.iter().sum();
                let value =
                    |d: usize| shares.iter().zip(&v[first..]).map(|(s, v)| s / sum * v[kv * width + d]).sum::<f64>();
                mixed.extend((0..width).map(value));
            }
            self.linear(&format!("{at}o_proj"), &mixed)
        };
        (0..hs.len()).map(row).collect()
    }

    fn feed_forward(&self, layer: usize, h: &[f64]) -> Vec<f64> {
        let at = format!("model.layers.{layer}.mlp.");
        let ffn = self.count("intermediate_size");
        let part =
            |name: &str, first| self.part(&format!("{at}{name}_proj"), (&format!("{at}gate_up_proj"), first, ffn), h);
        let (gate, up) = (part("gate", 0), part("up", ffn));
        let inner: Vec<f64> = gate.iter().zip(up).map(|(g, u)| self.active(*g) * u).collect();
        self.linear(&format!("{at}down_proj"), &inner)
    }

    /// Logits of every position.
    pub(crate) fn logits(&self, tokens: &[u32]) -> Rows {
        if self.kind == "gpt2" {
            return self.gpt2(tokens);
        }
        let hidden = self.count("hidden_size");
        let table = &self.weights["model.embed_tokens.weight"];
        let embedding =
            if self.is_gemma() { (hidden as f64).sqrt() } else { self.number("embedding_multiplier").unwrap_or(1.0) };
        let row = |t: u32| table[t as usize * hidden..][..hidden].iter().map(|v| v * embedding).collect();
        let mut xs: Rows = tokens.iter().map(|&t| row(t)).collect();
        let residual = self.number("residual_multiplier").unwrap_or(1.0);
        let add = |x: &mut Vec<f64>, y: Vec<f64>| x.iter_mut().zip(y).for_each(|(a, b)| *a += b * residual);
        // Names of the norms: before and after attention, before and after the feed-forward part.
        let names = match self.kind.as_str() {
            "olmo2" | "olmo3" => [None, Some("post_attention"), None, Some("post_feedforward")],
            kind if kind.starts_with("gemma") => {
                [Some("input"), Some("post_attention"), Some("pre_feedforward"), Some("post_feedforward")]
            }
            _ => [Some("input"), None, Some("post_attention"), None],
        };
        for layer in 0..self.count("num_hidden_layers") {
            let norm = |i: usize, x: Vec<f64>| match names[i] {
                Some(name) => self.norm(&format!("model.layers.{layer}.{name}_layernorm"), &x),
                None => x,
            };
            let hs: Rows = xs.iter().map(|x| norm(0, x.clone())).collect();
            for (x, y) in xs.iter_mut().zip(self.attention(layer, &hs)) {
                add(x, norm(1, y));
                let y = self.feed_forward(layer, &norm(2, x.clone()));
                add(x, norm(3, y));
            }
        }
        let tied = !self.weights.contains_key("lm_head.weight");
        let head = if tied { "model.embed_tokens" } else { "lm_head" };
        let divisor = self.number("logits_scaling").unwrap_or(1.0);
        let logit = |l: f64| self.capped("final_logit_softcapping", l / divisor);
        xs.iter().map(|x| self.linear(head, &self.norm("model.norm", x)).into_iter().map(logit).collect()).collect()
    }
}

/// GPT-2, from its definition in transformers: `Conv1D` multiplies by `[in, out]`.
impl Reference {
    fn conv1d(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let (w, b) = (&self.weights[&format!("{name}.weight")], &self.weights[&format!("{name}.bias")]);
        let n = b.len();
        (0..n).map(|o| b[o] + x.iter().enumerate().map(|(i, v)| v * w[i * n + o]).sum::<f64>()).collect()
    }

    fn layer_norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let (gamma, beta) = (&self.weights[&format!("{name}.weight")], &self.weights[&format!("{name}.bias")]);
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let scale = (variance + self.number("layer_norm_epsilon").unwrap_or(1e-5)).sqrt().recip();
        x.iter().zip(gamma.iter().zip(beta)).map(|(v, (g, b))| (v - mean) * scale * g + b).collect()
    }

    fn gpt2_active(&self, x: f64) -> f64 {
        match self.config["activation_function"].as_str().unwrap_or("gelu_new") {
            "relu" => x.max(0.0),
            "gelu" => 0.5 * x * (1.0 + error_function(x / std::f64::consts::SQRT_2)),
            "gelu_new" | "gelu_pytorch_tanh" => {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }
            other => panic!("{other} is not needed here"),
        }
    }

    fn gpt2(&self, tokens: &[u32]) -> Rows {
        let (hidden, heads) = (self.count("n_embd"), self.count("n_head"));
        let width = hidden / heads;
        let scaled = self.config["scale_attn_weights"].as_bool().unwrap_or(true);
        let factor = if scaled { (width as f64).sqrt().recip() } else { 1.0 };
        let row = |table: &str, i: usize| &self.weights[&format!("transformer.{table}.weight")][i * hidden..][..hidden];
        let embed = |(p, t): (usize, &u32)| {
            let places = row("wpe", p).iter();
            row("wte", *t as usize).iter().zip(places).map(|(a, b)| a + b).collect::<Vec<f64>>()
        };
        let mut xs: Rows = tokens.iter().enumerate().map(embed).collect();
        let add = |x: &mut Vec<f64>, y: Vec<f64>| x.iter_mut().zip(y).for_each(|(a, b)| *a += b);
        for layer in 0..self.count("n_layer") {
            let at = |part: &str| format!("transformer.h.{layer}.{part}");
            let qkv: Rows =
                xs.iter().map(|x| self.conv1d(&at("attn.c_attn"), &self.layer_norm(&at("ln_1"), x))).collect();
            for (p, x) in xs.iter_mut().enumerate() {
                let mut mixed = Vec::new();
                for head in 0..heads {
                    let part = |which: usize, p: usize| &qkv[p][which * hidden + head * width..][..width];
                    let dot = |j: usize| part(0, p).iter().zip(part(1, j)).map(|(a, b)| a * b).sum::<f64>() * factor;
                    let shares: Vec<f64> = (0..=p).map(|j| dot(j).exp()).collect();
                    let sum: f64 = shares.iter().sum();
                    mixed.extend((0..width).map(|d| (0..=p).map(|j| shares[j] / sum * part(2, j)[d]).sum::<f64>()));
                }
                let y = self.conv1d(&at("attn.c_proj"), &mixed);
                add(x, y);
                let inner = self.conv1d(&at("mlp.c_fc"), &self.layer_norm(&at("ln_2"), x));
                let inner: Vec<f64> = inner.into_iter().map(|v| self.gpt2_active(v)).collect();
                let y = self.conv1d(&at("mlp.c_proj"), &inner);
                add(x, y);
            }
        }
        let tied = !self.weights.contains_key("lm_head.weight");
        let head = if tied { "transformer.wte" } else { "lm_head" };
        xs.iter().map(|x| self.linear(head, &self.layer_norm("transformer.ln_f", x))).collect()
    }
}

/// The error function, by its power series.
fn error_function(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}
