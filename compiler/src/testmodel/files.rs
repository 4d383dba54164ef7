//! Writes a test model's configuration and weights.

use super::random::Noise;
use super::{
    BOS, EMBEDDING, EOS, FileDtype, LOGITS, LOGITS_CAP, RESIDUAL, SCORES, SCORES_CAP, TestModel, WINDOW_PATTERN,
};
use crate::checkpoint::file_header;
use crate::family::{Bias, FactorKeys, Family, LocalPositions, NormKind, SlidingWindow, fused_name};
use crate::lower::{Role, all_tensors};
use crate::{Result, fs};
use genie_types::RopeScaling;
use half::{bf16, f16};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::Path;

pub(super) const RMS_EPS: f64 = 1e-5;

/// Deviation of the embedding and the LM head, times the square root of the hidden width: the spread of the logits.
const LOGIT_SPREAD: f32 = 2.0;
/// Deviation of biases, and of norm weights around 1.
const SMALL: f32 = 0.1;

pub(super) fn write_configs(model: &TestModel, dir: &Path) -> Result<()> {
    let family = model.family.info();
    if family.learned_positions {
        return write_gpt2_configs(model, dir);
    }
    let mut config = json!({
        "architectures": [family.class],
        "model_type": family.name,
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "max_position_embeddings": model.max_positions,
        "rope_theta": model.rope_theta,
        "tie_word_embeddings": model.tied,
        "bos_token_id": BOS.0,
        "eos_token_id": EOS.0,
        "torch_dtype": dtype_names(model.dtype).1,
    });
    config[family.eps_key()] = json!(RMS_EPS);
    config[family.activation_key()] = json!(model.activation.name());
    match family.factors {
        FactorKeys::None => {}
        FactorKeys::Multipliers => {
            config["embedding_multiplier"] = json!(EMBEDDING);
            config["residual_multiplier"] = json!(RESIDUAL);
            config["attention_multiplier"] = json!(SCORES);
            config["logits_scaling"] = json!(LOGITS);
        }
        FactorKeys::Gemma { .. } => {
            config["query_pre_attn_scalar"] = json!(model.scores_scalar.unwrap_or(model.head_dim as f64) as u64);
            config["attn_logit_softcapping"] = json!(model.capped().then_some(SCORES_CAP));
            config["final_logit_softcapping"] = json!(model.capped().then_some(LOGITS_CAP));
        }
    }
    if let LocalPositions::OwnBase(theta) = family.local_positions {
        config["rope_local_base_freq"] = json!(theta);
    }
    if let Some(window) = model.window().filter(|_| model.family == Family::Olmo3) {
        let kind = |local: &bool| if *local { "sliding_attention" } else { "full_attention" };
        config["layer_types"] = window.layers.iter().map(kind).collect();
    } else if matches!(family.sliding_window, SlidingWindow::AllBut { .. }) {
        config["sliding_window_pattern"] = json!(WINDOW_PATTERN);
    }
    if family.no_rope_keys {
        config["no_rope_layer_interval"] = json!(model.no_rope_interval);
    }
    if model.rotary_part != family.defaults.rotary_part {
        config["partial_rotary_factor"] = json!(model.rotary_part);
    }
    if family.defaults.head_dim.is_some() || model.head_dim * model.heads != model.hidden {
        config["head_dim"] = json!(model.head_dim);
    }
    if let Some(scaling) = &model.scaling {
        config["rope_scaling"] = rope_scaling(scaling);
    }
    for bias in [family.qkv_bias, family.o_bias] {
        if let Some(key) = bias.key() {
            config[key] = json!(model.attention_bias);
        }
    }
    if family.mlp_bias == Bias::MlpKey {
        config["mlp_bias"] = json!(model.mlp_bias);
    }
    if family.sliding_window != SlidingWindow::OffByDefault && model.window > 0 {
        config["sliding_window"] = json!(model.window);
    } else if family.sliding_window == (SlidingWindow::All { default: Some(4096) }) {
        config["sliding_window"] = json!(null);
    }
    if family.sliding_window == SlidingWindow::OffByDefault {
        config["use_sliding_window"] = json!(false);
        config["sliding_window"] = json!(model.max_positions);
        config["max_window_layers"] = json!(model.layers);
    }
    write_both(&config, dir)
}

/// The keys of GPT-2's configuration, with the ones that its published files have and nothing depends on.
fn write_gpt2_configs(model: &TestModel, dir: &Path) -> Result<()> {
    let family = model.family.info();
    let config = json!({
        "architectures": [family.class],
        "model_type": family.name,
        "vocab_size": model.vocab,
        "n_embd": model.hidden,
        "n_inner": model.ffn,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_positions": model.max_positions,
        "n_ctx": model.max_positions,
        "activation_function": model.activation.name(),
        "layer_norm_epsilon": RMS_EPS,
        "tie_word_embeddings": model.tied,
        "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1,
        "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false, "reorder_and_upcast_attn": false,
        "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
        "summary_type": "cls_index", "summary_use_proj": true,
        "initializer_range": 0.02,
        "bos_token_id": BOS.0,
        "eos_token_id": EOS.0,
        "torch_dtype": dtype_names(model.dtype).1,
    });
    write_both(&config, dir)
}

/// `config.json` and `generation_config.json`.
fn write_both(config: &Value, dir: &Path) -> Result<()> {
    fs::write(&dir.join("config.json"), format!("{config:#}\n").as_bytes())?;
    let generation = json!({ "bos_token_id": BOS.0, "eos_token_id": EOS.0 });
    fs::write(&dir.join("generation_config.json"), format!("{generation:#}\n").as_bytes())
}

/// A scaling as Hugging Face writes it. Test models have no others.
fn rope_scaling(scaling: &RopeScaling) -> Value {
    match scaling {
        RopeScaling::Llama3(llama3) => json!({
            "rope_type": "llama3",
            "factor": llama3.factor,
            "low_freq_factor": llama3.low_freq_factor,
            "high_freq_factor": llama3.high_freq_factor,
            "original_max_position_embeddings": llama3.original_max_position as u64,
        }),
        RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
        RopeScaling::LongRope(long) => json!({
            "rope_type": "longrope",
            "factor": long.factor,
            "short_factor": long.short_factor,
            "long_factor": long.long_factor,
            "original_max_position_embeddings": long.original_max_position as u64,
        }),
        RopeScaling::Yarn(yarn) => json!({
            "rope_type": "yarn",
            "factor": yarn.factor,
            "attention_factor": yarn.attn_factor * genie_types::YarnScaling::amplitude_of(yarn.factor),
            "beta_fast": yarn.beta_fast,
            "beta_slow": yarn.beta_slow,
            "original_max_position_embeddings": yarn.original_max_position as u64,
        }),
        other => json!({ "rope_type": other.rope_type() }),
    }
}

/// Names in safetensors headers and in `torch_dtype`.
const fn dtype_names(dtype: FileDtype) -> (&'static str, &'static str) {
    match dtype {
        FileDtype::F32 => ("F32", "float32"),
        FileDtype::F16 => ("F16", "float16"),
        FileDtype::Bf16 => ("BF16", "bfloat16"),
    }
}

/// A tensor of a test model.
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) dims: Vec<usize>,
    role: Role,
    /// Width of what a linear layer takes.
    inner: usize,
    /// Its name in checkpoints of the family, and whether it is written the other way round there.
    stored_as: Option<(String, bool)>,
}

impl Tensor {
    /// Its name in the file.
    fn stored_name(&self) -> &str {
        self.stored_as.as_ref().map_or(&self.name, |(name, _)| name)
    }

    fn n_elems(&self) -> usize {
        self.dims.iter().product()
    }
}

/// All tensors of the model, in the order of its layers.
pub(super) fn tensors(model: &TestModel) -> Vec<Tensor> {
    let mut tensors: Vec<Tensor> = Vec::new();
    for (name, dims, role) in all_tensors(&model.spec()) {
        let name = fused_name(&name, model.family.info().fused).unwrap_or(name);
        match tensors.iter_mut().find(|other| other.name == name) {
            Some(whole) => whole.dims[0] += dims[0],
            None => {
                let inner = *dims.last().unwrap_or(&1);
                tensors.push(Tensor { name, dims, role, inner, stored_as: None });
            }
        }
    }
    tensors
}

/// The same as checkpoints of the family have them.
fn stored(model: &TestModel) -> Vec<Tensor> {
    let mut tensors = tensors(model);
    for tensor in &mut tensors {
        let (name, turned) = model.family.stored(&tensor.name);
        if turned {
            tensor.dims.reverse();
        }
        tensor.stored_as = Some((name, turned));
    }
    tensors
}

pub(super) fn write_weights(model: &TestModel, dir: &Path) -> Result<()> {
    let tensors = stored(model);
    if model.shards == 1 {
        return write_file(model, &dir.join("model.safetensors"), &tensors);
    }
    let per_shard = tensors.len().div_ceil(model.shards);
    let shards: Vec<&[Tensor]> = tensors.chunks(per_shard).collect();
    let mut weight_map = Map::new();
    for (i, shard) in shards.iter().enumerate() {
        let file = format!("model-{:05}-of-{:05}.safetensors", i + 1, shards.len());
        write_file(model, &dir.join(&file), shard)?;
        weight_map.extend(shard.iter().map(|t| (t.stored_name().to_owned(), json!(file))));
    }
    let index = json!({ "metadata": {}, "weight_map": weight_map });
    fs::write(&dir.join("model.safetensors.index.json"), format!("{index:#}\n").as_bytes())
}

fn write_file(model: &TestModel, path: &Path, tensors: &[Tensor]) -> Result<()> {
    let width = if model.dtype == FileDtype::F32 { 4 } else { 2 };
    let listed = tensors.iter().map(|t| (t.stored_name(), t.dims.as_slice()));
    let header = file_header(dtype_names(model.dtype).0, width, listed);

    let written = file_io::write(path, |out| {
        out.write_all(&header)?;
        tensors.iter().try_for_each(|tensor| write_values(model, tensor, out))
    });
    Ok(written?)
}

/// The values of a tensor, before they are narrowed to the file's type.
pub(super) fn values(model: &TestModel, tensor: &Tensor) -> Vec<f32> {
    let inner = tensor.inner as f32;
    let is_head = tensor.name == "lm_head.weight";
    let (mean, deviation) = match tensor.role {
        Role::Embedding => (0.0, LOGIT_SPREAD / inner.sqrt()),
        Role::Linear if is_head => (0.0, LOGIT_SPREAD / inner.sqrt()),
        Role::Linear => (0.0, 1.0 / inner.sqrt()),
        Role::Bias => (0.0, SMALL),
        // As large as the embeddings are: what they change is seen.
        Role::Positions => (0.0, LOGIT_SPREAD / inner.sqrt()),
        Role::Norm if model.family.info().norm == NormKind::RmsPlusOne => (0.0, SMALL),
        Role::Norm => (1.0, SMALL),
    };
    let mut noise = Noise::new(model.seed, &tensor.name);
    (0..tensor.n_elems()).map(|_| mean + deviation * noise.draw()).collect()
}

fn write_values(model: &TestModel, tensor: &Tensor, out: &mut dyn Write) -> std::io::Result<()> {
    let values = values(model, tensor);
    let (inner, turned) = (tensor.inner, tensor.stored_as.as_ref().is_some_and(|(_, turned)| *turned));
    let rows = values.len() / inner.max(1);
    for at in 0..values.len() {
        let value = if turned { values[at % rows * inner + at / rows] } else { values[at] };
        match model.dtype {
            FileDtype::F32 => out.write_all(&value.to_le_bytes())?,
            FileDtype::F16 => out.write_all(&f16::from_f32(value).to_le_bytes())?,
            FileDtype::Bf16 => out.write_all(&bf16::from_f32(value).to_le_bytes())?,
        }
    }
    Ok(())
}
