//! Which tensors of the checkpoint a split needs: names, shapes, roles, and what is folded into them.
//!
//! The attention's `1 / sqrt(head_dim)` is folded here: into Wq and its bias, or into the query norm's gamma where
//! queries are normalised afterwards (a norm would undo a scale applied before it). Blocks keep their float16 scales, so that
//! those of a file are copied bit for bit: a factor that is no power of two is applied to the scores, see [`score_scale`].
//!
//! *Shapes*: linear weights are `[out, in]`, as stored and as `FullyConnected` wants them.

use super::split::Split;
use super::weight_format::{Format, LinearForm, Role, WeightSpec, is_power_of_two};
use crate::family::ModelSpec;
use crate::{Result, Weights};

/// A weight and its bias.
#[derive(Clone, Debug)]
pub(super) struct Linear<W> {
    pub(super) weight: W,
    pub(super) bias: Option<W>,
}

/// The tensors of one decoder layer; `W` is a [`WeightSpec`] before loading and graph handles after it.
#[derive(Clone, Debug)]
pub(super) struct LayerWeights<W> {
    pub(super) input_norm: W,
    pub(super) q: Linear<W>,
    pub(super) k: Linear<W>,
    pub(super) v: Linear<W>,
    pub(super) q_norm: Option<W>,
    pub(super) k_norm: Option<W>,
    pub(super) o: Linear<W>,
    pub(super) post_norm: W,
    pub(super) gate: Linear<W>,
    pub(super) up: Linear<W>,
    pub(super) down: Linear<W>,
}

impl<W> Linear<W> {
    fn try_map<U>(&self, f: &mut impl FnMut(&W) -> Result<U>) -> Result<Linear<U>> {
        Ok(Linear { weight: f(&self.weight)?, bias: self.bias.as_ref().map(f).transpose()? })
    }
}

impl<W> LayerWeights<W> {
    /// Replaces every tensor, in the order of use.
    pub(super) fn try_map<U>(&self, mut f: impl FnMut(&W) -> Result<U>) -> Result<LayerWeights<U>> {
        let f = &mut f;
        Ok(LayerWeights {
            input_norm: f(&self.input_norm)?,
            q: self.q.try_map(f)?,
            k: self.k.try_map(f)?,
            v: self.v.try_map(f)?,
            q_norm: self.q_norm.as_ref().map(&mut *f).transpose()?,
            k_norm: self.k_norm.as_ref().map(&mut *f).transpose()?,
            o: self.o.try_map(f)?,
            post_norm: f(&self.post_norm)?,
            gate: self.gate.try_map(f)?,
            up: self.up.try_map(f)?,
            down: self.down.try_map(f)?,
        })
    }

    /// [`Self::try_map`] for a function that cannot fail.
    pub(super) fn map<U>(&self, mut f: impl FnMut(&W) -> U) -> LayerWeights<U> {
        self.try_map(|w| Ok(f(w))).unwrap_or_else(|_| unreachable!("the function has no error to give"))
    }
}

fn weight(name: String, dims: Vec<usize>, role: Role) -> WeightSpec {
    WeightSpec { stored_as: name.replace('.', "_"), name, dims, role, scale: 1.0 }
}

/// The embedding table.
pub(super) fn embedding(spec: &ModelSpec) -> WeightSpec {
    weight("model.embed_tokens.weight".into(), vec![spec.vocab, spec.hidden], Role::Embedding)
}

/// Gamma of the norm before the LM head.
pub(super) fn final_norm(spec: &ModelSpec) -> WeightSpec {
    weight("model.norm.weight".into(), vec![spec.hidden], Role::Norm)
}

/// The LM head. A tied one is the embedding's tensor, but in another format it is another tensor with the same source.
pub(super) fn lm_head(spec: &ModelSpec, format: Format) -> WeightSpec {
    let head = weight("lm_head.weight".into(), vec![spec.vocab, spec.hidden], Role::Linear);
    match (spec.tied, shares_table(spec, format)) {
        (false, _) => head,
        (true, true) => embedding(spec),
        (true, false) => WeightSpec { name: embedding(spec).name, ..head },
    }
}

/// True when the LM head and the embedding are one tensor, in a split that has both.
pub(super) fn shares_table(spec: &ModelSpec, format: Format) -> bool {
    let same_format = !matches!(format.weights, Weights::W8 | Weights::W4);
    spec.tied && same_format && format.form == LinearForm::FullyConnected
}

/// The factor of the attention scores; `None` when it is folded into the weights.
pub(super) fn score_scale(spec: &ModelSpec, format: Format) -> Option<f64> {
    let scale = attention_scale(spec);
    let in_blocks = matches!(format.weights, Weights::Q8_0 | Weights::Q4_0);
    (in_blocks && !spec.qk_norm && !is_power_of_two(scale)).then_some(scale)
}

fn attention_scale(spec: &ModelSpec) -> f64 {
    1.0 / (spec.head_dim as f64).sqrt()
}

/// One decoder layer's tensors.
pub(super) fn of_layer(spec: &ModelSpec, layer: usize, format: Format) -> LayerWeights<WeightSpec> {
    let at = |part: &str| format!("model.layers.{layer}.{part}");
    let linear = |part: &str, out: usize, inner: usize, bias: bool, scale: f64| Linear {
        weight: WeightSpec { scale, ..weight(at(&format!("{part}.weight")), vec![out, inner], Role::Linear) },
        bias: bias.then(|| WeightSpec { scale, ..weight(at(&format!("{part}.bias")), vec![out], Role::Bias) }),
    };
    let norm = |part: &str, width| weight(at(&format!("{part}.weight")), vec![width], Role::Norm);

    let ModelSpec { hidden, ffn, head_dim, biases, .. } = *spec;
    let (q_out, kv_out) = (spec.n_heads * head_dim, spec.n_kv_heads * head_dim);
    let folded = if score_scale(spec, format).is_some() { 1.0 } else { attention_scale(spec) };
    let (q_scale, q_norm_scale) = if spec.qk_norm { (1.0, folded) } else { (folded, 1.0) };
    LayerWeights {
        input_norm: norm("input_layernorm", hidden),
        q: linear("self_attn.q_proj", q_out, hidden, biases.qkv, q_scale),
        k: linear("self_attn.k_proj", kv_out, hidden, biases.qkv, 1.0),
        v: linear("self_attn.v_proj", kv_out, hidden, biases.qkv, 1.0),
        q_norm: spec.qk_norm.then(|| WeightSpec { scale: q_norm_scale, ..norm("self_attn.q_norm", head_dim) }),
        k_norm: spec.qk_norm.then(|| norm("self_attn.k_norm", head_dim)),
        o: linear("self_attn.o_proj", hidden, q_out, biases.o, 1.0),
        post_norm: norm("post_attention_layernorm", hidden),
        gate: linear("mlp.gate_proj", ffn, hidden, biases.mlp, 1.0),
        up: linear("mlp.up_proj", ffn, hidden, biases.mlp, 1.0),
        down: linear("mlp.down_proj", hidden, ffn, biases.mlp, 1.0),
    }
}

/// Everything a split reads, in reading order.
pub(super) fn of_split(spec: &ModelSpec, split: &Split, format: Format) -> Vec<WeightSpec> {
    let mut all = Vec::new();
    if split.input.is_none() {
        all.push(embedding(spec));
    }
    for layer in split.layers.clone() {
        of_layer(spec, layer, format).map(|w| all.push(w.clone()));
    }
    if split.has_head {
        all.push(final_norm(spec));
        if split.input.is_some() || !shares_table(spec, format) {
            all.push(lm_head(spec, format));
        }
    }
    all
}
