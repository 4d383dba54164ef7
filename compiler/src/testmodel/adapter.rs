//! Small random LoRA adapters for test models, as PEFT writes them.

use super::TestModel;
use super::random::Noise;
use crate::Result;
use crate::checkpoint::file_header;
use crate::family::gpt2;
use crate::lora::MODULES;
use serde_json::json;
use std::path::Path;

/// Deviation of what an adapter of scaling 1 adds, relative to the weights.
const STRENGTH: f32 = 0.5;

/// A random adapter. Start from [`TestAdapter::tiny`] and change what matters.
#[derive(Clone, Debug, PartialEq)]
pub struct TestAdapter {
    /// Inner width of its matrices.
    pub rank: usize,
    /// `lora_alpha`.
    pub alpha: f64,
    /// `use_rslora`.
    pub by_root: bool,
    /// The modules that it changes, by the last part of their names; in families with fused projections `qkv_proj`, `gate_up_proj`;
    /// in GPT-2 `c_attn`, `c_proj`, `c_fc`.
    pub targets: Vec<&'static str>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl TestAdapter {
    /// Rank 4, scaling 2, every projection of the model.
    pub fn tiny(model: &TestModel) -> Self {
        let info = model.family.info();
        let targets: &[&str] = match info.fused {
            _ if info.learned_positions => &["c_attn", "c_proj", "c_fc"],
            [] => &["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            _ => &["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
        };
        Self { rank: 4, alpha: 8.0, by_root: false, targets: targets.to_vec(), seed: 1 }
    }

    /// What its matrices are multiplied by.
    pub fn scaling(&self) -> f64 {
        let rank = self.rank as f64;
        if self.by_root { self.alpha / rank.sqrt() } else { self.alpha / rank }
    }

    /// Writes `adapter_config.json` and `adapter_model.safetensors` into `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn write(&self, model: &TestModel, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(crate::fs::io_err("create", dir))?;
        let config = json!({
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": null, "r": self.rank,
            "lora_alpha": self.alpha, "use_rslora": self.by_root, "target_modules": self.targets, "bias": "none",
            "lora_dropout": 0.05, "fan_in_fan_out": model.family.info().learned_positions, "inference_mode": true, "init_lora_weights": true,
            "modules_to_save": null, "rank_pattern": {}, "alpha_pattern": {}, "use_dora": false,
        });
        crate::fs::write(&dir.join("adapter_config.json"), format!("{config:#}\n").as_bytes())?;

        let spec = model.spec();
        let mut tensors: Vec<(String, Vec<usize>, f32)> = Vec::new();
        for layer in 0..model.layers {
            for (part, targets) in MODULES {
                let module = match model.family.info().learned_positions {
                    true => gpt2::stored_name(&format!("model.layers.{layer}.{part}"), gpt2::PREFIX),
                    false => Some(format!("model.layers.{layer}.{part}")),
                };
                let is_target = |module: &String| self.targets.iter().any(|t| module.ends_with(&format!(".{t}")));
                let Some(module) = module.filter(is_target) else { continue };
                let inner = targets[0].dims(&spec).1;
                let out = targets.iter().map(|target| target.dims(&spec).0).sum();
                let at = format!("base_model.model.{module}");
                let (a, b) = (1.0 / (inner as f32).sqrt(), STRENGTH / (self.rank as f32).sqrt());
                tensors.push((format!("{at}.lora_A.weight"), vec![self.rank, inner], a));
                tensors.push((format!("{at}.lora_B.weight"), vec![out, self.rank], b));
            }
        }
        let header = file_header("F32", 4, tensors.iter().map(|(name, dims, _)| (name.as_str(), dims.as_slice())));
        let written = file_io::write(&dir.join("adapter_model.safetensors"), |out| {
            out.write_all(&header)?;
            for (name, dims, deviation) in &tensors {
                let mut noise = Noise::new(self.seed, name);
                for _ in 0..dims.iter().product() {
                    out.write_all(&(deviation * noise.draw()).to_le_bytes())?;
                }
            }
            Ok(())
        });
        Ok(written?)
    }
}
