//! Model families as GGUF files: each is written here from its Hugging Face folder as llama.cpp's converter writes it (names, keys, order of rows, norms with
//! the one added), and the bundles of both give the same logits, within 1e-4 of the largest one, which are those of the model in
//! double precision.

use std::path::Path;

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, CompileOptions, Family, Precision, Silent, Weights, compile};
use conformance::backends;
use dialog::DialogConfig;
use engine::{Engine, RopeScaling, TokenModel};
use genie_types::{LongRopeScaling, TokenId, YarnScaling};
use safetensors::SafeTensors;
use serde_json::Value;

use crate::reference::Reference;

const TOLERANCE: f64 = 1e-4;
const CL: u32 = 64;

/// A file in the making: keys with type and value, tensors with extents, outermost first.
#[derive(Default)]
struct File {
    pairs: Vec<Vec<u8>>,
    tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
}

impl File {
    fn pair(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.pairs.push([&text(key), &kind.to_le_bytes()[..], value].concat());
    }

    fn count(&mut self, key: &str, n: u64) {
        self.pair(key, 4, &(n as u32).to_le_bytes());
    }

    fn float(&mut self, key: &str, x: f64) {
        self.pair(key, 6, &(x as f32).to_le_bytes());
    }

    fn list(&mut self, key: &str, kind: u32, items: &[Vec<u8>]) {
        let head = [&kind.to_le_bytes()[..], &(items.len() as u64).to_le_bytes()].concat();
        self.pair(key, 9, &[head, items.concat()].concat());
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        out.extend(self.pairs.concat());
        let mut data = Vec::new();
        for (name, dims, values) in &self.tensors {
            out.extend(text(name));
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().rev().for_each(|d| out.extend((*d as u64).to_le_bytes()));
            out.extend(0u32.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
            data.resize(data.len().next_multiple_of(32), 0u8);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        [out, data].concat()
    }
}

/// The name of a tensor there.
fn their_name(kind: &str, name: &str) -> String {
    let whole = [("model.embed_tokens.", "token_embd."), ("model.norm.", "output_norm."), ("lm_head.", "output.")];
    if let Some((ours, theirs)) = whole.iter().find(|(ours, _)| name.starts_with(ours)) {
        return name.replace(ours, theirs);
    }
    let gemma = kind.starts_with("gemma");
    let post_attention = if gemma || kind.starts_with("olmo") { "post_attention_norm" } else { "ffn_norm" };
    let parts = [
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", post_attention),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
        ("self_attn.qkv_proj", "attn_qkv"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    let (ours, theirs) = parts.iter().find(|(ours, _)| name.contains(ours)).unwrap_or_else(|| panic!("{name}"));
    name.replace("model.layers.", "blk.").replace(ours, theirs)
}

/// Rows of each head as 0, d/2, 1, d/2 + 1, ...
fn in_pairs(values: &[f32], width: usize, head_dim: usize) -> Vec<f32> {
    let from = |row: usize| row / head_dim * head_dim + row % 2 * (head_dim / 2) + row % head_dim / 2;
    (0..values.len() / width).flat_map(|row| values[from(row) * width..][..width].iter().copied()).collect()
}

/// The file that the converter makes of a folder.
fn converted(dir: &Path) -> Vec<u8> {
    let json = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(dir.join(name)).unwrap()).unwrap() };
    let (config, tokenizer) = (json("config.json"), json("tokenizer.json"));
    let kind = config["model_type"].as_str().unwrap();
    if kind == "gpt2" {
        return converted_gpt2(dir, &config, &tokenizer);
    }
    // A Mistral is a `llama` there.
    let arch = match kind {
        "mistral" => "llama",
        "gemma3_text" => "gemma3",
        // It has a window.
        "olmo3" => "olmo2",
        other => other,
    };
    let count = |key: &str| config[key].as_u64().unwrap_or_else(|| panic!("{key}"));
    let number = |key: &str| config[key].as_f64();
    let heads = count("num_attention_heads");
    let head_dim = config["head_dim"].as_u64().unwrap_or(count("hidden_size") / heads);
    let mut file = File::default();
    file.pair("general.architecture", 8, &text(arch));
    let at = |key: &str| format!("{arch}.{key}");
    for (theirs, ours) in [
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("vocab_size", "vocab_size"),
    ] {
        file.count(&at(theirs), count(ours));
    }
    if config["head_dim"].is_u64() {
        file.count(&at("attention.key_length"), head_dim);
        file.count(&at("attention.value_length"), head_dim);
    }
    let part = number("partial_rotary_factor").unwrap_or(if kind == "stablelm" { 0.25 } else { 1.0 });
    file.count(&at("rope.dimension_count"), (part * head_dim as f64) as u64);
    file.float(&at("rope.freq_base"), number("rope_theta").unwrap());
    match kind {
        "stablelm" => {
            // Absent from the configuration, it is written as true.
            file.pair(&at("use_parallel_residual"), 7, &[1]);
            file.float(&at("attention.layer_norm_epsilon"), number("layer_norm_eps").unwrap());
        }
        _ => file.float(&at("attention.layer_norm_rms_epsilon"), number("rms_norm_eps").unwrap()),
    }
    for (theirs, ours) in [
        ("attention.scale", "attention_multiplier"),
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
    ] {
        if let Some(x) = number(ours) {
            file.float(&at(theirs), x);
        }
    }
    if ["phi3", "gemma2", "gemma3", "olmo3"].contains(&if kind == "olmo3" { kind } else { arch }) {
        file.count(&at("attention.sliding_window"), config["sliding_window"].as_u64().unwrap_or(0));
    }
    if arch == "gemma3" {
        file.count(&at("attention.sliding_window_pattern"), count("sliding_window_pattern"));
    }
    if kind == "olmo3" {
        let local = |kind: &Value| vec![u8::from(kind == "sliding_attention")];
        let list: Vec<Vec<u8>> = config["layer_types"].as_array().unwrap().iter().map(local).collect();
        file.list(&at("attention.sliding_window_pattern"), 7, &list);
    }
    scaling(&mut file, arch, &config);

    vocabulary(&mut file, &config, &tokenizer);

    let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
    for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
        let dims = view.shape().to_vec();
        let mut values: Vec<f32> = view.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let turns = ["q_proj", "k_proj"].iter().any(|part| name.contains(part));
        if turns && ["llama", "granite", "smollm3"].contains(&arch) {
            values = in_pairs(&values, values.len() / dims[0], head_dim as usize);
        }
        if arch.starts_with("gemma") && name.ends_with("norm.weight") {
            values.iter_mut().for_each(|w| *w += 1.0);
        }
        file.tensors.push((their_name(kind, &name), dims, values));
    }
    file.bytes()
}

/// A GPT-2: its converter turns `Conv1D` weights over, and leaves out the constants of the mask.
fn converted_gpt2(dir: &Path, config: &Value, tokenizer: &Value) -> Vec<u8> {
    let mut file = File::default();
    file.pair("general.architecture", 8, &text("gpt2"));
    for (theirs, ours) in [
        ("block_count", "n_layer"),
        ("context_length", "n_ctx"),
        ("embedding_length", "n_embd"),
        ("feed_forward_length", "n_inner"),
        ("attention.head_count", "n_head"),
    ] {
        file.count(&format!("gpt2.{theirs}"), config[ours].as_u64().unwrap());
    }
    file.float("gpt2.attention.layer_norm_epsilon", config["layer_norm_epsilon"].as_f64().unwrap());
    vocabulary(&mut file, config, tokenizer);
    let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
    for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
        let mut dims = view.shape().to_vec();
        let mut values: Vec<f32> = view.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        if [".c_attn.weight", ".c_proj.weight", ".c_fc.weight"].iter().any(|end| name.ends_with(end)) {
            let (inner, out) = (dims[0], dims[1]);
            values = (0..out).flat_map(|o| (0..inner).map(move |i| i * out + o)).map(|at| values[at]).collect();
            dims.reverse();
        }
        let mut theirs = name.trim_start_matches("transformer.").replace("h.", "blk.");
        for (ours, new) in [
            ("attn.c_attn", "attn_qkv"),
            ("attn.c_proj", "attn_output"),
            ("mlp.c_fc", "ffn_up"),
            ("mlp.c_proj", "ffn_down"),
            ("ln_1", "attn_norm"),
            ("ln_2", "ffn_norm"),
            ("ln_f", "output_norm"),
            ("wte", "token_embd"),
            ("wpe", "position_embd"),
            ("lm_head", "output"),
        ] {
            theirs = theirs.replace(ours, new);
        }
        file.tensors.push((theirs, dims, values));
    }
    file.bytes()
}

/// The tokenizer.
fn vocabulary(file: &mut File, config: &Value, tokenizer: &Value) {
    let count = |key: &str| config[key].as_u64().unwrap_or_else(|| panic!("{key}"));
    let (mut tokens, mut kinds) = (vec![String::new(); count("vocab_size") as usize], Vec::new());
    for (token, id) in tokenizer["model"]["vocab"].as_object().unwrap() {
        tokens[id.as_u64().unwrap() as usize] = token.clone();
    }
    let special: Vec<usize> =
        tokenizer["added_tokens"].as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap() as usize).collect();
    for id in 0..tokens.len() {
        kinds.push(if special.contains(&id) { 3i32 } else { 1 }.to_le_bytes().to_vec());
    }
    let merge = |merge: &Value| match merge {
        Value::String(merge) => text(merge),
        pair => text(&[0, 1].map(|i| pair[i].as_str().unwrap()).join(" ")),
    };
    let merges: Vec<Vec<u8>> = tokenizer["model"]["merges"].as_array().unwrap().iter().map(merge).collect();
    file.pair("tokenizer.ggml.model", 8, &text("gpt2"));
    file.pair("tokenizer.ggml.pre", 8, &text("gpt-2"));
    file.list("tokenizer.ggml.tokens", 8, &tokens.iter().map(|t| text(t)).collect::<Vec<_>>());
    file.list("tokenizer.ggml.token_type", 5, &kinds);
    file.list("tokenizer.ggml.merges", 8, &merges);
    file.count("tokenizer.ggml.bos_token_id", count("bos_token_id"));
    file.count("tokenizer.ggml.eos_token_id", count("eos_token_id"));
}

fn scaling(file: &mut File, arch: &str, config: &Value) {
    let block = &config["rope_scaling"];
    let number = |key: &str| block[key].as_f64().unwrap_or_else(|| panic!("{key}"));
    let at = |key: &str| format!("{arch}.rope.scaling.{key}");
    let original = |file: &mut File| {
        file.count(&at("original_context_length"), block["original_max_position_embeddings"].as_u64().unwrap());
    };
    match block["rope_type"].as_str() {
        None => {}
        Some("linear") => {
            file.pair(&at("type"), 8, &text("linear"));
            file.float(&at("factor"), number("factor"));
        }
        Some("yarn") => {
            file.pair(&at("type"), 8, &text("yarn"));
            file.float(&at("factor"), number("factor"));
            file.float(&at("yarn_beta_fast"), number("beta_fast"));
            file.float(&at("yarn_beta_slow"), number("beta_slow"));
            original(file);
        }
        Some("longrope") => {
            original(file);
            let length = number("original_max_position_embeddings");
            let ratio = config["max_position_embeddings"].as_f64().unwrap() / length;
            file.float(&at("attn_factor"), (1.0 + ratio.ln() / length.ln()).sqrt());
            for (name, key) in [("long", "long_factor"), ("short", "short_factor")] {
                let list: Vec<f32> =
                    block[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
                file.tensors.push((format!("rope_factors_{name}.weight"), vec![list.len()], list));
            }
        }
        Some(other) => panic!("{other}"),
    }
}

fn bundle(from: &Path, to: &Path) -> Engine {
    let mut options = CompileOptions::new(from, to);
    (options.ars, options.cls, options.precision) = (vec![1, 16], vec![CL], Precision::F32);
    options.weights = Some(Weights::Float);
    compile(&options, &backends::linked(), &mut Silent).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    let config = DialogConfig::from_file(to.join(CONFIG_FILE)).unwrap();
    Engine::open(config.engine(), &backends::linked()).unwrap()
}

/// Logits of the GGUF file's bundle at every position, against the folder's and the reference's.
fn check(model: &TestModel) {
    let family = model.family;
    let place = tempfile::tempdir().unwrap();
    let (dir, file) = (place.path().join("model"), place.path().join("model.gguf"));
    model.write(&dir).unwrap();
    std::fs::write(&file, converted(&dir)).unwrap();
    let mut ours = bundle(&dir, &place.path().join("of_folder"));
    let mut theirs = bundle(&file, &place.path().join("of_file"));
    let tokens: Vec<u32> = (0..48).map(|i| (i * 37 + 11) % 250).collect();
    let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
    let reference = Reference::open(&dir).in_context(CL as usize).logits(&tokens);
    let mut starts = (0..16).step_by(16).chain(16..48).collect::<Vec<_>>();
    starts.push(48);
    for range in starts.windows(2).map(|w| w[0]..w[1]) {
        let at = range.end - 1;
        let expected: Vec<f64> = ours.process(&ids[range.clone()]).unwrap().iter().map(|x| f64::from(*x)).collect();
        let found = theirs.process(&ids[range]).unwrap();
        let largest = reference[at].iter().fold(0.0f64, |m, x| m.max(x.abs()));
        for (whose, expected) in [("the folder", &expected), ("the reference", &reference[at])] {
            let off = found.iter().zip(expected).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs())) / largest;
            assert!(
                off <= TOLERANCE,
                "{family} at {at}, against {whose}: off by {off:e} of the largest logit {largest}"
            );
        }
    }
}

#[test]
fn every_family_computes_the_same_from_a_gguf_file() {
    for family in Family::ALL.iter().copied() {
        for tied in [true, false] {
            // Every fourth layer of SmolLM3 does not rotate.
            let layers = if family == Family::SmolLm3 { 4 } else { 3 };
            check(&TestModel { tied, layers, no_rope_interval: 4, seed: 5, ..TestModel::tiny(family) });
        }
    }
}

#[test]
fn parts_and_biases_of_a_family_come_along() {
    check(&TestModel { rotary_part: 0.75, head_dim: 16, kv_heads: 1, ..TestModel::tiny(Family::Phi3) });
    check(&TestModel { attention_bias: true, rotary_part: 0.25, tied: false, ..TestModel::tiny(Family::StableLm) });
    check(&TestModel { attention_bias: true, mlp_bias: true, ..TestModel::tiny(Family::Granite) });
    check(&TestModel { attention_bias: true, kv_heads: 1, ..TestModel::tiny(Family::Olmo2) });
}

#[test]
fn scaled_positions_come_along() {
    let list = |first: f64, step: f64| (0..8).map(|j| first + step * f64::from(j)).collect();
    for original in [32.0, 128.0] {
        let scaling = RopeScaling::LongRope(LongRopeScaling {
            factor: 4.0,
            original_max_position: original,
            short_factor: list(1.0, 0.05),
            long_factor: list(1.5, 0.75),
        });
        let max_positions = 4 * original as usize;
        check(&TestModel { scaling: Some(scaling), max_positions, ..TestModel::tiny(Family::Phi3) });
    }
    // Only the layers without a window are scaled.
    check(&TestModel {
        scaling: Some(RopeScaling::Linear { factor: 8.0 }),
        layers: 4,
        ..TestModel::tiny(Family::Gemma3)
    });
    for family in [Family::Llama, Family::Qwen2, Family::SmolLm3, Family::Olmo3] {
        let scaling = RopeScaling::Yarn(YarnScaling {
            factor: 4.0,
            original_max_position: 24.0,
            dim: 16,
            extrapolation_factor: 1.0,
            attn_factor: 1.0,
            beta_fast: 8.0,
            beta_slow: 0.5,
        });
        let model = TestModel { layers: 4, no_rope_interval: 4, ..TestModel::tiny(family) };
        check(&TestModel { scaling: Some(scaling), max_positions: 96, ..model.clone() });
        check(&TestModel { scaling: Some(RopeScaling::Linear { factor: 2.5 }), ..model });
    }
}
