//! Which tensors of the checkpoint a split needs: names, shapes, roles, and what is folded into them.
//!
//! The factor of the attention scores is folded here: into Wq and its bias, or into the query norm's gamma where
//! queries are normalised afterwards (a norm would undo a scale applied before it). So are the factor of the residual stream, into
//! what a layer adds to it, and that of the logits, into the last norm. Where scores or logits are bounded by a cap, they are
//! divided by it in the same way, and multiplied after the tanh. Blocks keep their float16 scales, and bfloat16 its values, so that those
//! of a file are copied bit for bit: factors are applied to the results instead ([`score_scale`], [`residual_scale`]).
//!
//! *Shapes*: linear weights are `[out, in]`, as stored and as `FullyConnected` wants them.

use super::cache_rows::RowWeights;
use super::lora::LowRank;
use super::split::Split;
use super::weight_format::{Format, LinearForm, Role, WeightSpec};
use crate::family::{ModelSpec, NormKind, NormPlace, QkNorm};
use crate::lora::Target;
use crate::{GraphKinds, Result, Weights};
use core::ops::Range;

/// A weight and its bias.
#[derive(Clone, Debug)]
pub(super) struct Linear<W> {
    pub(super) weight: W,
    pub(super) bias: Option<W>,
    /// Adapters, once they are loaded.
    pub(super) lora: Option<LowRank<W>>,
}

/// A norm over the residual stream.
#[derive(Clone, Debug)]
pub(super) struct Norm<W> {
    /// Its name in a layer, or in the model.
    pub(super) name: &'static str,
    pub(super) weight: W,
    pub(super) bias: Option<W>,
}

/// The tensors of one decoder layer; `W` is a [`WeightSpec`] before loading and graph handles after it.
#[derive(Clone, Debug)]
pub(super) struct LayerWeights<W> {
    pub(super) before_attention: Option<Norm<W>>,
    pub(super) q: Linear<W>,
    pub(super) k: Linear<W>,
    pub(super) v: Linear<W>,
    pub(super) q_norm: Option<W>,
    pub(super) k_norm: Option<W>,
    pub(super) o: Linear<W>,
    pub(super) after_attention: Option<Norm<W>>,
    pub(super) before_mlp: Option<Norm<W>>,
    /// None where the feed-forward part has no gate.
    pub(super) gate: Option<Linear<W>>,
    pub(super) up: Linear<W>,
    pub(super) down: Linear<W>,
    pub(super) after_mlp: Option<Norm<W>>,
}

impl<W> Linear<W> {
    pub(super) fn try_map<U>(&self, f: &mut impl FnMut(&W) -> Result<U>) -> Result<Linear<U>> {
        let lora = match &self.lora {
            Some(LowRank { down, up, ranks }) => Some(LowRank { down: f(down)?, up: f(up)?, ranks: ranks.clone() }),
            None => None,
        };
        Ok(Linear { weight: f(&self.weight)?, bias: self.bias.as_ref().map(f).transpose()?, lora })
    }
}

impl<W> Norm<W> {
    pub(super) fn try_map<U>(&self, f: &mut impl FnMut(&W) -> Result<U>) -> Result<Norm<U>> {
        Ok(Norm { name: self.name, weight: f(&self.weight)?, bias: self.bias.as_ref().map(f).transpose()? })
    }

    /// [`Self::try_map`] for a function that cannot fail.
    pub(super) fn map<U>(&self, mut f: impl FnMut(&W) -> U) -> Norm<U> {
        self.try_map(&mut |w| Ok(f(w))).unwrap_or_else(|_| unreachable!("the function has no error to give"))
    }

    /// Weight, and bias if there is one.
    pub(super) fn all(&self) -> impl Iterator<Item = &W> {
        std::iter::once(&self.weight).chain(&self.bias)
    }
}

impl<W> LayerWeights<W> {
    /// The linear layer of a projection; none for the gate of a feed-forward part without one.
    pub(super) fn linear(&self, target: Target) -> Option<&Linear<W>> {
        Some(match target {
            Target::Q => &self.q,
            Target::K => &self.k,
            Target::V => &self.v,
            Target::O => &self.o,
            Target::Gate => self.gate.as_ref()?,
            Target::Up => &self.up,
            Target::Down => &self.down,
        })
    }

    /// The same, to be changed.
    pub(super) fn linear_mut(&mut self, target: Target) -> Option<&mut Linear<W>> {
        Some(match target {
            Target::Q => &mut self.q,
            Target::K => &mut self.k,
            Target::V => &mut self.v,
            Target::O => &mut self.o,
            Target::Gate => self.gate.as_mut()?,
            Target::Up => &mut self.up,
            Target::Down => &mut self.down,
        })
    }

    /// Replaces every tensor, in the order of use.
    pub(super) fn try_map<U>(&self, mut f: impl FnMut(&W) -> Result<U>) -> Result<LayerWeights<U>> {
        let f = &mut f;
        let norm = |norm: &Option<Norm<W>>, f: &mut _| norm.as_ref().map(|norm| norm.try_map(f)).transpose();
        Ok(LayerWeights {
            before_attention: norm(&self.before_attention, f)?,
            q: self.q.try_map(f)?,
            k: self.k.try_map(f)?,
            v: self.v.try_map(f)?,
            q_norm: self.q_norm.as_ref().map(&mut *f).transpose()?,
            k_norm: self.k_norm.as_ref().map(&mut *f).transpose()?,
            o: self.o.try_map(f)?,
            after_attention: norm(&self.after_attention, f)?,
            before_mlp: norm(&self.before_mlp, f)?,
            gate: self.gate.as_ref().map(|gate| gate.try_map(f)).transpose()?,
            up: self.up.try_map(f)?,
            down: self.down.try_map(f)?,
            after_mlp: norm(&self.after_mlp, f)?,
        })
    }

    /// [`Self::try_map`] for a function that cannot fail.
    pub(super) fn map<U>(&self, mut f: impl FnMut(&W) -> U) -> LayerWeights<U> {
        self.try_map(|w| Ok(f(w))).unwrap_or_else(|_| unreachable!("the function has no error to give"))
    }
}

fn weight(name: String, dims: Vec<usize>, role: Role) -> WeightSpec {
    WeightSpec { stored_as: name.replace('.', "_"), name, dims, role, offset: 0.0, scale: 1.0 }
}

/// The embedding table.
pub(super) fn embedding(spec: &ModelSpec) -> WeightSpec {
    weight("model.embed_tokens.weight".into(), vec![spec.vocab, spec.hidden], Role::Embedding)
}

/// The table of learned positions, of the split that has the first layer.
pub(super) fn positions(spec: &ModelSpec, layers: &Range<usize>) -> Option<WeightSpec> {
    let rows = spec.learned_positions.filter(|_| layers.contains(&0))?;
    Some(weight("model.position_embeddings.weight".into(), vec![rows, spec.hidden], Role::Positions))
}

/// A norm, at a place in the model, with a factor on what it gives.
fn norm(spec: &ModelSpec, at: &str, name: &'static str, width: usize, scale: f64) -> Norm<WeightSpec> {
    let part = |part: &str, role| weight(format!("{at}{name}.{part}"), vec![width], role);
    let offset = if spec.norm == NormKind::RmsPlusOne { 1.0 } else { 0.0 };
    let bias = (spec.norm == NormKind::Layer).then(|| WeightSpec { scale, ..part("bias", Role::Bias) });
    Norm { name, weight: WeightSpec { offset, scale, ..part("weight", Role::Norm) }, bias }
}

/// What makes the residual stream of an EAGLE head, from the embedding and a hidden state side by side.
pub(super) fn eagle_fc(spec: &ModelSpec) -> Option<Linear<WeightSpec>> {
    let head = spec.eagle?;
    let part = |part: &str, dims, role| weight(format!("model.fc.{part}"), dims, role);
    Some(Linear {
        weight: part("weight", vec![spec.hidden, 2 * spec.hidden], Role::Linear),
        bias: head.fc_bias.then(|| part("bias", vec![spec.hidden], Role::Bias)),
        lora: None,
    })
}

/// The norm before the LM head; an EAGLE head has none.
pub(super) fn final_norm(spec: &ModelSpec) -> Option<Norm<WeightSpec>> {
    if spec.eagle.is_some() {
        return None;
    }
    let scale = spec.factors.logits / spec.factors.logits_cap.unwrap_or(1.0);
    Some(norm(spec, "model.", "norm", spec.hidden, scale))
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
    (spec.qk_norm == QkNorm::None && !folds(scale, format)).then_some(scale)
}

/// The factor of what a layer adds to the residual stream; `None` when it is folded into the weights, or 1.
pub(super) fn residual_scale(spec: &ModelSpec, format: Format) -> Option<f64> {
    let scale = spec.factors.residual;
    (!spec.norm_place.after() && !folds(scale, format)).then_some(scale)
}

/// True for factors that are folded into linear weights of that format. Blocks take none, not even a power of two: the float16 scale
/// of small weights times 1/8 is below the smallest normal number, and loses bits. Nor does bfloat16, which has 8 bits to keep.
fn folds(scale: f64, format: Format) -> bool {
    scale == 1.0 || !matches!(format.weights, Weights::Bf16 | Weights::Q8_0 | Weights::Q4_0)
}

/// What a product of query and key is multiplied by, before it is bounded if it is.
fn attention_scale(spec: &ModelSpec) -> f64 {
    spec.factors.scores / spec.factors.scores_cap.unwrap_or(1.0)
}

/// One decoder layer's tensors.
pub(super) fn of_layer(spec: &ModelSpec, layer: usize, format: Format) -> LayerWeights<WeightSpec> {
    let hidden = spec.hidden;
    let at = |part: &str| format!("model.layers.{layer}.{part}");
    let linear = |part: &str, out: usize, inner: usize, bias: bool, scale: f64| Linear {
        weight: WeightSpec { scale, ..weight(at(&format!("{part}.weight")), vec![out, inner], Role::Linear) },
        bias: bias.then(|| WeightSpec { scale, ..weight(at(&format!("{part}.bias")), vec![out], Role::Bias) }),
        lora: None,
    };
    let layer_norm =
        |on: bool, name, scale| on.then(|| norm(spec, &format!("model.layers.{layer}."), name, hidden, scale));
    let head_norm =
        |name, width, scale| norm(spec, &format!("model.layers.{layer}.self_attn."), name, width, scale).weight;

    let ModelSpec { ffn, head_dim, biases, norm_place, .. } = *spec;
    let (q_out, kv_out) = (spec.n_heads * head_dim, spec.n_kv_heads * head_dim);
    let folded = if score_scale(spec, format).is_some() { 1.0 } else { attention_scale(spec) };
    let (q_scale, q_norm_scale) = if spec.qk_norm == QkNorm::None { (folded, 1.0) } else { (1.0, folded) };
    let norm_widths = match spec.qk_norm {
        QkNorm::None => None,
        QkNorm::Heads => Some((head_dim, head_dim)),
        QkNorm::Whole => Some((q_out, kv_out)),
    };
    let residual = if residual_scale(spec, format).is_some() { 1.0 } else { spec.factors.residual };
    let (added, normed) = if norm_place.after() { (1.0, residual) } else { (residual, 1.0) };
    let before_mlp = match norm_place {
        NormPlace::Both => "pre_feedforward_layernorm",
        NormPlace::Before | NormPlace::After => "post_attention_layernorm",
    };
    let has_first = layer > 0 || spec.eagle.is_none_or(|head| head.first_norm);
    LayerWeights {
        before_attention: layer_norm(norm_place.before() && has_first, "input_layernorm", 1.0),
        q: linear("self_attn.q_proj", q_out, hidden, biases.qkv, q_scale),
        k: linear("self_attn.k_proj", kv_out, hidden, biases.qkv, 1.0),
        v: linear("self_attn.v_proj", kv_out, hidden, biases.qkv, 1.0),
        q_norm: norm_widths.map(|(width, _)| head_norm("q_norm", width, q_norm_scale)),
        k_norm: norm_widths.map(|(_, width)| head_norm("k_norm", width, 1.0)),
        o: linear("self_attn.o_proj", hidden, q_out, biases.o, added),
        after_attention: layer_norm(norm_place.after(), "post_attention_layernorm", normed),
        before_mlp: layer_norm(norm_place.before(), before_mlp, 1.0),
        gate: spec.gated.then(|| linear("mlp.gate_proj", ffn, hidden, biases.mlp, 1.0)),
        up: linear("mlp.up_proj", ffn, hidden, biases.mlp, 1.0),
        down: linear("mlp.down_proj", hidden, ffn, biases.mlp, added),
        after_mlp: layer_norm(norm_place.after(), "post_feedforward_layernorm", normed),
    }
}

/// What plain graphs of a split load, in the order of loading: of [`of_split`] what they do not have as an input, and the weights of
/// the last new rows once more where some graphs end with them.
pub(super) fn loaded(spec: &ModelSpec, split: &Split, kinds: &GraphKinds, format: Format) -> Vec<WeightSpec> {
    let mut all = read_by(spec, split, format, !kinds.rows_only.is_empty());
    // A tied head may be in the embedding's place.
    all.retain(|weight| match weight.role {
        Role::Embedding => !kinds.embeddings_input,
        _ => !(kinds.head_weight_input && *weight == lm_head(spec, format)),
    });
    all
}

/// Everything a split reads, in reading order.
pub(super) fn of_split(spec: &ModelSpec, split: &Split, format: Format) -> Vec<WeightSpec> {
    read_by(spec, split, format, false)
}

fn read_by(spec: &ModelSpec, split: &Split, format: Format, last_rows_again: bool) -> Vec<WeightSpec> {
    let mut all = Vec::new();
    if split.input.is_none() {
        all.push(embedding(spec));
    }
    if let Some(fc) = eagle_fc(spec).filter(|_| split.layers.start == 0 && !split.layers.is_empty()) {
        all.extend(std::iter::once(fc.weight).chain(fc.bias));
    }
    all.extend(positions(spec, &split.layers));
    for layer in split.layers.clone() {
        let weights = of_layer(spec, layer, format);
        weights.map(|w| all.push(w.clone()));
        if last_rows_again && layer + 1 == spec.n_layers {
            RowWeights::of(&weights).each(|w| all.push(w.clone()));
        }
    }
    if split.has_head {
        all.extend(final_norm(spec).iter().flat_map(Norm::all).cloned());
        if split.input.is_some() || !shares_table(spec, format) {
            all.push(lm_head(spec, format));
        }
    }
    all
}
