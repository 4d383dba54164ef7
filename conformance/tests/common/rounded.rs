//! A checkpoint with its linear weights rounded to 127 steps a row either way, as float32: what w8 stands for.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize_to_file};
use serde_json::{Value, json};

/// Rewrites `model.safetensors` in place; a tied LM head gets a rounded copy of its own.
pub fn round_weights(model_dir: &Path) {
    let (weights, config) = (model_dir.join("model.safetensors"), model_dir.join("config.json"));
    let bytes = std::fs::read(&weights).expect("the checkpoint has weights");
    let file = SafeTensors::deserialize(&bytes).expect("valid safetensors");
    let mut tensors: HashMap<String, (Vec<usize>, Vec<u8>)> = HashMap::new();
    for (name, view) in file.tensors() {
        assert_eq!(view.dtype(), Dtype::F32, "{name}");
        tensors.insert(name, (view.shape().to_vec(), view.data().to_vec()));
    }
    let text = std::fs::read_to_string(&config).expect("the checkpoint has a config");
    let mut json: Value = serde_json::from_str(&text).expect("valid JSON");
    if json["tie_word_embeddings"] == json!(true) {
        json["tie_word_embeddings"] = json!(false);
        std::fs::write(&config, json.to_string()).expect("the config is written");
        tensors.insert("lm_head.weight".into(), tensors["model.embed_tokens.weight"].clone());
    }
    for (name, (dims, data)) in &mut tensors {
        if name.ends_with("_proj.weight") || name == "lm_head.weight" {
            data.chunks_mut(4 * dims[1]).for_each(round_row);
        }
    }
    let views = tensors
        .iter()
        .map(|(name, (dims, data))| (name, TensorView::new(Dtype::F32, dims.clone(), data).expect("as it was read")));
    serialize_to_file(views, None, &weights).expect("the weights are written");
}

fn round_row(row: &mut [u8]) {
    let values = row.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b)));
    let step = values.fold(0.0, |m: f64, v| m.max(v.abs())) / 127.0;
    for bytes in row.as_chunks_mut::<4>().0 {
        let value = f64::from(f32::from_le_bytes(*bytes));
        *bytes = (((value / step).round() * step) as f32).to_le_bytes();
    }
}
