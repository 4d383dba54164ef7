//! Logits by `candle-transformers`, an implementation that shares no code with ours: same folder, same weights, f32.

use std::path::Path;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::smol::smollm3;
use candle_transformers::models::{gemma2, gemma3, llama, mistral, olmo2, phi3, qwen2, qwen3, stable_lm};
use serde_json::json;

/// Logits after each token of `tokens`: `[tokens.len()][vocab]`.
///
/// Tokens go in one by one over candle's own cache, so every position is seen.
pub fn logits(model_dir: &Path, tokens: &[u32]) -> Vec<Vec<f32>> {
    let config = std::fs::read_to_string(model_dir.join("config.json")).expect("the checkpoint has a config");
    let weights = std::fs::read(model_dir.join("model.safetensors")).expect("the checkpoint has weights");
    let mut json = serde_json::from_str::<serde_json::Value>(&config).expect("valid JSON");
    let model_type = json["model_type"].clone();
    // Keys that candle needs: one that says nothing about the model, and a default of transformers.
    json["use_cache"] = json!(true);
    if model_type == "stablelm" && json["partial_rotary_factor"].is_null() {
        json["partial_rotary_factor"] = json!(0.25);
    }
    let config = json.to_string();
    let vb = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu).expect("valid safetensors");
    let rows = match model_type.as_str() {
        Some("llama") => run_llama(&config, vb, tokens),
        Some("qwen2") => run_qwen2(&config, vb, tokens),
        Some("qwen3") => run_qwen3(&config, vb, tokens),
        Some("mistral") => run_mistral(&config, vb, tokens),
        Some("phi3") => run_phi3(&config, vb, tokens),
        Some("smollm3") => run_smollm3(&config, vb, tokens),
        Some("olmo2") => run_olmo2(&config, vb, tokens),
        Some("gemma2") => run_gemma2(&config, vb, tokens),
        Some("gemma3_text") => run_gemma3(&config, vb, tokens),
        Some("stablelm") => run_stablelm(&config, vb, tokens),
        other => panic!("no candle model for {other:?}"),
    };
    rows.expect("candle runs the model")
}

fn each(tokens: &[u32], mut forward: impl FnMut(&Tensor, usize) -> Result<Tensor>) -> Result<Vec<Vec<f32>>> {
    let step = |(position, &token): (usize, &u32)| {
        let input = Tensor::new(&[[token]], &Device::Cpu)?;
        forward(&input, position)?.flatten_all()?.to_vec1()
    };
    tokens.iter().enumerate().map(step).collect()
}

fn run_llama(config: &str, vb: VarBuilder<'_>, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let config = serde_json::from_str::<llama::LlamaConfig>(config).expect("a Llama config").into_config(false);
    let model = llama::Llama::load(vb, &config)?;
    let mut cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu)?;
    each(tokens, |input, position| model.forward(input, position, &mut cache))
}

fn run_qwen2(config: &str, vb: VarBuilder<'_>, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut model = qwen2::ModelForCausalLM::new(&serde_json::from_str(config).expect("a Qwen2 config"), vb)?;
    each(tokens, |input, position| model.forward(input, position))
}

fn run_qwen3(config: &str, vb: VarBuilder<'_>, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut model = qwen3::ModelForCausalLM::new(&serde_json::from_str(config).expect("a Qwen3 config"), vb)?;
    each(tokens, |input, position| model.forward(input, position))
}

fn run_mistral(config: &str, vb: VarBuilder<'_>, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut model = mistral::Model::new(&serde_json::from_str(config).expect("a Mistral config"), vb)?;
    each(tokens, |input, position| model.forward(input, position))
}

fn run_phi3(config: &str, vb: VarBuilder<'_>, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut model = phi3::Model::new(&serde_json::from_str(config).expect("a Phi-3 config"), vb)?;
    each(tokens, |input, position| model.forward(input, position))
}

fn run_smollm3(config: &str, vb: VarBuilder<'_>, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut model = smollm3::ModelForCausalLM::new(&serde_json::from_str(config).expect("a SmolLM3 config"), vb)?;
    each(tokens, |input, position| model.forward(input, position))
}

fn run_olmo2(config: &str, vb: VarBuilder<'_>, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut model = olmo2::Model::new(&serde_json::from_str(config).expect("a OLMo 2 config"), vb)?;
    each(tokens, |input, position| model.forward(input, position))
}

fn run_gemma2(config: &str, vb: VarBuilder<'_>, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut model = gemma2::Model::new(false, &serde_json::from_str(config).expect("a Gemma 2 config"), vb)?;
    each(tokens, |input, position| model.forward(input, position))
}

fn run_stablelm(config: &str, vb: VarBuilder<'_>, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut model = stable_lm::Model::new(&serde_json::from_str(config).expect("a StableLM config"), vb)?;
    each(tokens, |input, position| model.forward(input, position))
}

fn run_gemma3(config: &str, vb: VarBuilder<'_>, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut model = gemma3::Model::new(false, &serde_json::from_str(config).expect("a Gemma 3 config"), vb)?;
    each(tokens, |input, position| model.forward(input, position))
}
