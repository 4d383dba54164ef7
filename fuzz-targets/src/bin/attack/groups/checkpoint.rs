//! Hugging Face checkpoints: keys of the configurations, tensors of the weights, the files themselves.

use std::path::Path;

use anyhow::{Context, Result};
use fuzz_targets::Rng;
use serde_json::{Value, json};

use crate::base::{Base, compile, copy, likelihood};
use crate::change::{self, replace_file};
use crate::situation::{Expect, Situation};

/// Keys of other models that change what is computed, with a value that does.
const MATHEMATICS: [(&str, &str); 18] = [
    ("final_logit_softcapping", "30.0"),
    ("attn_logit_softcapping", "50.0"),
    ("embedding_multiplier", "12.0"),
    ("residual_multiplier", "0.22"),
    ("attention_multiplier", "0.5"),
    ("logits_scaling", "8.0"),
    ("num_experts", "8"),
    ("num_local_experts", "8"),
    ("partial_rotary_factor", "0.5"),
    ("sliding_window", "4"),
    ("query_pre_attn_scalar", "256"),
    ("use_qk_norm", "\"yes\""),
    ("layer_types", "[\"sliding_attention\", \"full_attention\"]"),
    ("quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}"),
    ("rope_scaling", "{\"type\": \"yarn\", \"factor\": 4.0}"),
    ("rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 4.0}"),
    ("text_config", "{\"hidden_size\": 64}"),
    ("clip_qkv", "8.0"),
];

/// Keys whose value changes no number of the text's likelihood.
const WITHOUT_EFFECT: [&str; 8] = [
    "torch_dtype",
    "max_position_embeddings",
    "sliding_window",
    "max_window_layers",
    "use_sliding_window",
    "architectures",
    "model_type",
    "mlp_bias",
];

fn steps(base: &Base) -> Vec<crate::situation::Step> {
    vec![compile("model", "bundle"), likelihood("bundle", &base.text())]
}

/// `config.json` or `generation_config.json` with a change.
pub(super) fn config(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    let model = rng.pick(&base.models);
    copy(&model.folder, &room.join("model"))?;
    let file = if rng.one_in(5) { "generation_config.json" } else { "config.json" };
    let path = room.join("model").join(file);
    if rng.one_in(12) {
        let how = replace_file(&path, rng)?;
        let expect = if file == "config.json" { Expect::Refuse } else { Expect::Same(model.folder_says.clone()) };
        return Ok(Situation::new(format!("`{file}` {how}"), expect, steps(base)).named([file]).early());
    }
    let mut document: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    let mut text = None;
    let (what, names, expect) = if file == "config.json" && rng.one_in(4) {
        let (key, value) = rng.pick(&MATHEMATICS);
        let value: Value = serde_json::from_str(value)?;
        document[*key] = value.clone();
        // `sliding_window` stands in Qwen's files and is off there.
        let effect = *key != "sliding_window" || document.get("use_sliding_window").is_none();
        let expect = if effect { Expect::Used(model.folder_says.clone()) } else { Expect::Open };
        let inner = value.as_object().and_then(|map| map.keys().next().cloned()).unwrap_or_default();
        (format!("`{key}` set to {value}"), vec![(*key).to_string(), inner], expect)
    } else if rng.one_in(10) {
        let keys: Vec<String> = document.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
        let key = rng.pick(&keys).clone();
        let written = document.to_string();
        text = Some(format!("{{\"{key}\": 1, {}", &written[1..]));
        (format!("`{key}` comes twice"), vec![key], Expect::Refuse)
    } else {
        let change = change::json(&mut document, rng);
        let key = change.names[0].clone();
        let without = WITHOUT_EFFECT.contains(&key.as_str()) || file != "config.json";
        // Removed keys have defaults; null stands for absent.
        let absent = change.now.as_ref().is_none_or(Value::is_null);
        let expect = if key.ends_with("_token_id") || (absent && !without) {
            Expect::Open
        } else if without {
            Expect::Same(model.folder_says.clone())
        } else {
            Expect::Used(model.folder_says.clone())
        };
        let mut names = change.names;
        // A width that contradicts the weights is reported with the tensor.
        names.extend(
            ["shape", "the vocabulary", "q_proj", "k_proj", "gate_proj", "embed_tokens", "lm_head"].map(String::from),
        );
        if key == "architectures" || key == "model_type" {
            names.extend(["architecture".into(), "model_type".into()]);
        }
        (format!("{file}: {}", change.what), names, expect)
    };
    std::fs::write(&path, text.unwrap_or_else(|| document.to_string()))?;
    Ok(Situation::new(what, expect, steps(base)).named(names).early())
}

/// The weights with a change.
pub(super) fn safetensors(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    let model = rng.pick(&base.models);
    copy(&model.folder, &room.join("model"))?;
    let mut files: Vec<String> = std::fs::read_dir(room.join("model"))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains(".safetensors"))
        .collect();
    files.sort();
    let name = rng.pick(&files).clone();
    let path = room.join("model").join(&name);
    if rng.one_in(8) {
        let how = replace_file(&path, rng)?;
        let names = [name.clone(), "model.safetensors".into()];
        return Ok(Situation::new(format!("`{name}` {how}"), Expect::Refuse, steps(base)).named(names).early());
    }
    if name.ends_with("index.json") {
        return index(base, &path, model.folder_says.clone(), rng);
    }
    let bytes = std::fs::read(&path)?;
    let length = u64::from_le_bytes(bytes.get(..8).context("a short file")?.try_into()?) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + length])?;
    let mut data = bytes[8 + length..].to_vec();
    let tensors: Vec<String> =
        header.as_object().map(|m| m.keys().filter(|k| !k.starts_with("__")).cloned().collect()).unwrap_or_default();
    let tensor = rng.pick(&tensors).clone();
    let mut names = vec![tensor.clone()];
    let mut expect = Expect::Refuse;
    let mut twice = None;
    let what = match rng.below(12) {
        0 => {
            let value = header.as_object_mut().and_then(|map| map.remove(&tensor));
            names.push(format!("{tensor}x"));
            header[format!("{tensor}x")] = value.unwrap_or_default();
            format!("`{tensor}` renamed to `{tensor}x`")
        }
        1 => {
            header.as_object_mut().and_then(|map| map.remove(&tensor));
            names.extend(["leaves a gap", "are of no tensor"].map(String::from));
            format!("`{tensor}` removed")
        }
        2 => {
            let shape = header[&tensor]["shape"].as_array().cloned().unwrap_or_default();
            header[&tensor]["shape"] = json!(shape.iter().rev().collect::<Vec<_>>());
            // A square matrix or a list stays what it was.
            if shape.iter().rev().eq(shape.iter()) {
                expect = Expect::Same(model.folder_says.clone());
            }
            format!("shape of `{tensor}` reversed")
        }
        3 => {
            let n = rng.below(100);
            header[&tensor]["shape"] = json!([n, 2]);
            format!("shape of `{tensor}` is [{n}, 2]")
        }
        4 => {
            let dtype = *rng.pick(&["F64", "I8", "I32", "BOOL", "F8_E4M3", "U4", "", "float"]);
            header[&tensor]["dtype"] = json!(dtype);
            format!("dtype of `{tensor}` is {dtype:?}")
        }
        5 => {
            let of = |x: &Value| x.as_u64().unwrap_or_default();
            let offsets = &header[&tensor]["data_offsets"];
            let (from, to) = (of(&offsets[0]), of(&offsets[1]));
            let choice =
                [json!([from, to + 4]), json!([to, from]), json!([from + 1, to + 1]), json!([from]), json!("x")];
            header[&tensor]["data_offsets"] = rng.pick(&choice).clone();
            names.extend(tensors.iter().cloned());
            format!("data_offsets of `{tensor}` are {}", header[&tensor]["data_offsets"])
        }
        6 => {
            let value = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][rng.below(3)];
            let from = header[&tensor]["data_offsets"][0].as_u64().unwrap_or_default() as usize;
            let wide = header[&tensor]["dtype"] == "F32";
            let bits = value.to_bits().to_le_bytes();
            if wide {
                data[from..from + 4].copy_from_slice(&bits);
            } else if header[&tensor]["dtype"] == "BF16" {
                data[from..from + 2].copy_from_slice(&bits[2..]);
            } else {
                data[from..from + 2].copy_from_slice(&[0, 0x7e]);
            }
            format!("{value} in `{tensor}`")
        }
        7 => {
            let names_of_more = [
                "model.layers.0.self_attn.q_proj.bias2",
                "model.layers.0.self_attn.sinks",
                "model.layers.1.mlp.experts.0.up_proj.weight",
                "model.layers.7.mlp.up_proj.weight",
                "model.embed_tokens.bias",
                "model.layers.0.pre_feedforward_layernorm.weight",
                "visual.patch_embed.weight",
                "model.layers.0.self_attn.q_proj.lora_A.weight",
            ];
            let extra = *rng.pick(&names_of_more);
            header[extra] = json!({"dtype": "F32", "shape": [4], "data_offsets": [data.len(), data.len() + 16]});
            data.extend([0; 16]);
            names.push(extra.into());
            format!("one more tensor, `{extra}`")
        }
        8 => {
            header["__metadata__"] = rng.pick(&[json!(5), json!({"format": "tf"}), json!([]), json!({"a": 1})]).clone();
            names.push("__metadata__".into());
            expect = Expect::Same(model.folder_says.clone());
            format!("__metadata__ is {}", header["__metadata__"])
        }
        9 => {
            twice = Some(format!("{{\"{tensor}\":{},{}", header[&tensor], &header.to_string()[1..]));
            format!("`{tensor}` comes twice")
        }
        10 => {
            let cut = 1 + rng.below(data.len() - 1);
            data.truncate(cut);
            names.extend(tensors.iter().cloned());
            names.push(name.clone());
            "the data is cut".into()
        }
        _ => {
            data.extend([7; 9]);
            names.push(name.clone());
            "nine bytes more at the end".into()
        }
    };
    let header = twice.unwrap_or_else(|| header.to_string());
    std::fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat())?;
    Ok(Situation::new(format!("{name}: {what}"), expect, steps(base)).named(names).early())
}

fn index(base: &Base, path: &Path, says: String, rng: &mut Rng) -> Result<Situation> {
    let mut document: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let change = change::json(&mut document, rng);
    std::fs::write(path, document.to_string())?;
    let names = change.names.into_iter().chain(["weight_map".into()]);
    Ok(Situation::new(format!("index: {}", change.what), Expect::Same(says), steps(base)).named(names).early())
}
