//! Logits by `candle-transformers`, an implementation that shares no code with ours: same folder, same weights, f32.

use std::path::Path;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{llama, qwen2, qwen3};

/// Logits after each token of `tokens`: `[tokens.len()][vocab]`.
///
/// Tokens go in one by one over candle's own cache, so every position is seen.
pub fn logits(model_dir: &Path, tokens: &[u32]) -> Vec<Vec<f32>> {
    let config = std::fs::read_to_string(model_dir.join("config.json")).expect("the checkpoint has a config");
    let weights = std::fs::read(model_dir.join("model.safetensors")).expect("the checkpoint has weights");
    let model_type = serde_json::from_str::<serde_json::Value>(&config).expect("valid JSON")["model_type"].clone();
    let vb = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu).expect("valid safetensors");
    let rows = match model_type.as_str() {
        Some("llama") => run_llama(&config, vb, tokens),
        Some("qwen2") => run_qwen2(&config, vb, tokens),
        Some("qwen3") => run_qwen3(&config, vb, tokens),
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
