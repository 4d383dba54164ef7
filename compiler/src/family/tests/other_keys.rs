//! Keys that no family reads: refused, noted or harmless; and keys that contradict each other.

use super::*;
use crate::family::LocalRope;

/// Loads a Llama with keys added to `config.json`: its notes, or the error.
fn with(family: Family, keys: &Value) -> Result<Vec<String>, CompileError> {
    let dir = tempfile::tempdir().unwrap();
    TestModel::tiny(family).write(dir.path()).unwrap();
    for (key, value) in keys.as_object().unwrap() {
        edit(dir.path(), "config.json", |config| config[key] = value.clone());
    }
    Configuration::read(&ModelFiles::Folder(dir.path().into())).map(|configuration| configuration.notes)
}

#[test]
fn mathematics_that_this_compiler_does_not_do_is_refused_by_key() {
    let cases = [
        // Section 3: not looked at.
        json!({ "final_logit_softcapping": 30.0 }),
        json!({ "attn_logit_softcapping": 50.0 }),
        json!({ "embedding_multiplier": 12.0 }),
        json!({ "residual_multiplier": 0.22 }),
        json!({ "attention_multiplier": 0.015625 }),
        json!({ "logits_scaling": 8.0 }),
        json!({ "logit_scale": 0.0625 }),
        json!({ "logit_scale": 0 }),
        json!({ "mlp_scaling": 0 }),
        json!({ "scale_emb": 12 }),
        json!({ "scale_depth": 1.4 }),
        json!({ "dim_model_base": 256, "scale_width": 2 }),
        json!({ "clip_qkv": 8.0 }),
        json!({ "query_pre_attn_scalar": 256 }),
        json!({ "rotary_pct": 0.25 }),
        json!({ "rotary_dim": 8 }),
        json!({ "rope_local_base_freq": 10000.0 }),
        json!({ "rope_interleaved": true }),
        json!({ "no_rope_layers": [1, 0] }),
        json!({ "sliding_window_pattern": 6 }),
        json!({ "attention_chunk_size": 8192 }),
        json!({ "use_qk_norm": true }),
        json!({ "qkv_bias": true }),
        json!({ "lm_head_bias": true }),
        json!({ "bias": true }),
        json!({ "layer_norm_eps": 1e-3 }),
        json!({ "norm_type": "layernorm" }),
        json!({ "activation_function": "gelu" }),
        json!({ "is_causal": false }),
        json!({ "alibi": true }),
        json!({ "parallel_attn": true }),
        json!({ "kv_lora_rank": 512 }),
        json!({ "num_experts_per_tok": 2 }),
        json!({ "moe_intermediate_size": 32 }),
        json!({ "num_nextn_predict_layers": 1 }),
        json!({ "original_max_position_embeddings": 2048 }),
        json!({ "n_layer": 3 }),
        json!({ "num_heads": 8 }),
        json!({ "d_model": 65 }),
        json!({ "padded_vocab_size": 384 }),
        json!({ "text_config": { "hidden_size": 64 } }),
        json!({ "vision_config": { "depth": 2 } }),
        json!({ "quantization": { "bits": 4 } }),
        json!({ "compression_config": { "format": "int-quantized" } }),
        json!({ "pruned_heads": { "0": [1] } }),
        json!({ "tie_word_embedding": true }),
        json!({ "rope_thetta": 5e5 }),
    ];
    for keys in cases {
        let last = keys.as_object().unwrap().keys().next_back().unwrap();
        match with(Family::Llama, &keys) {
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(&format!("`{last}`")) && message.contains("found "), "{keys}: {message}");
            }
            Ok(notes) => panic!("{keys}: accepted with {notes:?}"),
        }
    }
}

#[test]
fn keys_without_effect_are_accepted_without_a_word() {
    let cases = [
        // Of published models.
        json!({ "_name_or_path": "x", "transformers_version": "4.51.0", "use_cache": true, "pretraining_tp": 1,
            "attention_dropout": 0.0, "initializer_range": 0.02, "torch_dtype": "bfloat16" }),
        json!({ "is_llama_config": true, "rope_interleaved": false, "transformers.js_config": { "dtype": "q4" } }),
        json!({ "use_mrope": false, "max_window_layers": 21, "rope_scaling": null, "use_sliding_window": false,
            "sliding_window": 32768 }),
        json!({ "_attn_implementation_autoset": true, "unsloth_fixed": true, "hidden_dropout_prob": 0.1,
            "resid_pdrop": 0.1, "num_logits_to_keep": 0, "output_attentions": true }),
        json!({ "id2label": { "0": "LABEL_0" }, "label2id": { "LABEL_0": 0 }, "temperature": 1.0, "top_k": 50 }),
        // Turned off, or at the value that is computed with.
        json!({ "final_logit_softcapping": null, "clip_qkv": null, "alibi": false, "pruned_heads": {}, "qkv_bias": false }),
        json!({ "embedding_multiplier": 1.0, "residual_multiplier": 1, "logit_scale": 1.0, "attention_multiplier": 0.25 }),
        json!({ "n_layer": 2, "num_heads": 4, "d_model": 64, "n_kv_heads": 2, "kv_channels": 16, "n_inner": 96 }),
        json!({ "norm_type": "RMS_Norm", "activation_function": "silu", "is_causal": true, "rotary_pct": 1.0 }),
        json!({ "query_pre_attn_scalar": 16, "layer_norm_eps": 1e-5, "original_max_position_embeddings": 4096 }),
        json!({ "layer_types": ["full_attention", "full_attention"] }),
        json!({ "attn_logit_softcapping": 0.0, "num_nextn_predict_layers": 0, "kv_lora_rank": 0, "clip_qkv": 0 }),
    ];
    for keys in cases {
        assert_eq!(with(Family::Llama, &keys).map_err(|e| e.to_string()), Ok(vec![]), "{keys}");
    }
    assert!(with(Family::Qwen2, &json!({ "qkv_bias": true })).unwrap().is_empty());
    assert!(with(Family::Qwen3, &json!({ "use_qk_norm": true })).unwrap().is_empty());
}

#[test]
fn other_unknown_keys_are_noted_by_name() {
    let keys = json!({ "favourite_colour": "blue", "x\u{1b}[0m": 1, "nothing": null });
    let noted = "config.json has keys that are not known and were not read: `favourite_colour`, `x\\u{1b}[0m`";
    assert_eq!(with(Family::Llama, &keys).unwrap(), [noted]);
    let notes = with(Family::Llama, &json!({ "auto_map": { "AutoModelForCausalLM": "m.M" } })).unwrap();
    assert_eq!(
        notes,
        [r#"the model's own code is not run: config.json has `auto_map`: {"AutoModelForCausalLM":"m.M"}"#]
    );

    let dir = tempfile::tempdir().unwrap();
    TestModel::tiny(Family::Llama).write(dir.path()).unwrap();
    edit(dir.path(), "generation_config.json", |g| {
        *g = json!({ "eos_token_id": 7, "repetition_penalty": 1.1, "typical_p": 1.0, "num_beams": 1, "min_p": 0.05,
            "transformers_version": "4.51.0", "max_new_tokens": 2048 });
    });
    let notes = Configuration::read(&ModelFiles::Folder(dir.path().into())).unwrap().notes;
    let noted =
        "generation_config.json recommends what a bundle does not carry: `repetition_penalty` 1.1, `min_p` 0.05";
    assert_eq!(notes, [noted]);
}

#[test]
fn contradictions_are_refused() {
    let llama3 = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192 });
    let plus = |key: &str, value: Value| {
        let mut scaling = llama3.clone();
        scaling[key] = value;
        json!({ "rope_scaling": scaling })
    };
    let mut scaled = json!({ "rope_scaling": llama3 });
    assert!(with(Family::Llama, &scaled).unwrap().is_empty());
    scaled["rope_parameters"] = scaled["rope_scaling"].clone();
    assert!(with(Family::Llama, &scaled).unwrap().is_empty(), "both spellings, the same");
    let cases = [
        // Section 3: `model_type` was not looked at.
        (
            json!({ "model_type": "gemma3" }),
            "bad `model_type` in `config.json`: found \"gemma3\", expected \"llama\", the type of `LlamaForCausalLM`",
        ),
        (
            json!({ "model_type": "phi3" }),
            "bad `model_type` in `config.json`: found \"phi3\", expected \"llama\", the type of `LlamaForCausalLM`",
        ),
        (
            json!({ "architectures": ["LlamaForCausalLM", "GemmaForCausalLM"] }),
            "unsupported architecture `LlamaForCausalLM, GemmaForCausalLM`: this compiler supports {families}",
        ),
        // Section 3: `rope_scaling` of these forms was taken as none.
        (json!({ "rope_scaling": [] }), "bad `rope_scaling` in `config.json`: found [], expected an object"),
        (
            json!({ "rope_scaling": { "factor": 2.0 } }),
            "`config.json` has no `rope_scaling.rope_type`: expected default, linear, llama3, yarn or longrope",
        ),
        (
            json!({ "rope_scaling": { "mrope_section": [16, 24, 24] } }),
            "`config.json` has no `rope_scaling.rope_type`: expected default, linear, llama3, yarn or longrope",
        ),
        (
            json!({ "rope_scaling": { "type": "default", "mrope_section": [16, 24, 24] } }),
            "unknown key `rope_scaling.mrope_section` in `config.json`, found [16,24,24]: it may change what the model computes",
        ),
        (
            json!({ "rope_scaling": { "type": "mrope", "mrope_section": [1] } }),
            "unsupported `rope_scaling.rope_type` in `config.json`: found mrope, this compiler needs default, linear, llama3, yarn or longrope",
        ),
        (
            json!({ "rope_scaling": { "type": "linear" } }),
            "`config.json` has no `rope_scaling.factor`: expected a number above 0",
        ),
        (
            json!({ "rope_scaling": { "type": "dynamic", "factor": 2.0 } }),
            "unsupported `rope_scaling.rope_type` in `config.json`: found dynamic, this compiler needs default, linear, llama3, yarn or longrope",
        ),
        (
            json!({ "rope_parameters": { "full_attention": { "rope_type": "default" } } }),
            "`config.json` has no `rope_parameters.rope_type`: expected default, linear, llama3, yarn or longrope",
        ),
        (
            json!({ "rope_scaling": { "type": "default", "factor": 2.0 } }),
            "unknown key `rope_scaling.factor` in `config.json`, found 2.0: it may change what the model computes",
        ),
        (
            plus("beta_fast", json!(32)),
            "unknown key `rope_scaling.beta_fast` in `config.json`, found 32: it may change what the model computes",
        ),
        (
            plus("type", json!("yarn")),
            "bad `rope_scaling.type` in `config.json`: found yarn, expected llama3, as `rope_type`",
        ),
        (
            plus("rope_theta", json!(5e5)),
            "bad `rope_scaling.rope_theta` in `config.json`: found 500000, expected 10000, as `rope_theta` outside of it",
        ),
        (
            plus("factor", json!(-0.5)),
            "bad `rope_scaling.factor` in `config.json`: found -0.5, expected a number above 0",
        ),
        (
            json!({ "rope_scaling": llama3, "rope_parameters": { "rope_type": "default" } }),
            "the same as `rope_parameters`, or no such key",
        ),
        (
            json!({ "layer_types": ["full_attention"] }),
            "bad `layer_types` in `config.json`: found 1 entries, expected one for each of the 2 layers",
        ),
        (json!({ "bos_token_id": [1, 2] }), "bad `bos_token_id` in `config.json`: found 1, 2, expected one token"),
    ];
    for (keys, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        TestModel::tiny(Family::Llama).write(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join("generation_config.json")).unwrap();
        for (key, value) in keys.as_object().unwrap() {
            edit(dir.path(), "config.json", |config| config[key] = value.clone());
        }
        let error = ModelSpec::load(dir.path()).expect_err(&keys.to_string());
        let message = error.to_string().replace(&format!("{}/", dir.path().display()), "");
        let classes = Family::ALL.iter().map(|family| format!("`{}`", family.class())).collect::<Vec<_>>().join(", ");
        let expected = expected.replace("{families}", &classes);
        assert!(message.ends_with(&expected), "{keys}:\n{message}\n{expected}");
    }
    for none in
        [json!(null), json!({}), json!({ "rope_type": "default" }), json!({ "rope_type": "default", "factor": null })]
    {
        assert!(with(Family::Llama, &json!({ "rope_scaling": none })).unwrap().is_empty(), "{none}");
    }
}

#[test]
fn biases_that_the_configuration_does_not_mention_are_used_where_all_layers_have_them() {
    let model = TestModel { attention_bias: true, mlp_bias: true, ..TestModel::tiny(Family::Llama) };
    let place = tempfile::tempdir().unwrap();
    model.write(place.path()).unwrap();
    let opened = || crate::model::Model::open(place.path()).unwrap();
    assert_eq!(opened().spec, model.spec());
    assert!(opened().notes.is_empty());
    set(place.path(), "attention_bias", Value::Null);
    set(place.path(), "mlp_bias", Value::Null);
    assert_eq!(opened().spec, model.spec());
    assert_eq!(opened().notes.len(), 3, "{:?}", opened().notes);
    assert!(opened().notes[0].ends_with("config.json has no `attention_bias`, but all layers have them"));
    // What the configuration says counts, and the tensors are then left over.
    set(place.path(), "attention_bias", json!(false));
    assert_eq!(opened().spec.biases, Biases { mlp: true, ..Biases::default() });
}

#[test]
fn linear_scaling_divides_every_frequency() {
    let dir = tempfile::tempdir().unwrap();
    TestModel::tiny(Family::Llama).write(dir.path()).unwrap();
    set(dir.path(), "rope_scaling", json!({ "type": "linear", "factor": 2.5 }));
    let scaling = ModelSpec::load(dir.path()).unwrap().rope.scaling;
    assert_eq!(scaling, Some(RopeScaling::Linear { factor: 2.5 }));
}

#[test]
fn factors_are_read_by_the_families_that_have_them() {
    let read = |family, keys: &Value| {
        let dir = tempfile::tempdir().unwrap();
        TestModel::tiny(family).write(dir.path()).unwrap();
        for (key, value) in keys.as_object().unwrap() {
            edit(dir.path(), "config.json", |config| config[key] = value.clone());
        }
        ModelSpec::load(dir.path()).map(|spec| spec.factors).map_err(|error| error.to_string())
    };
    let granite = json!({ "embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.015625,
        "logits_scaling": 8.0 });
    let factors = read(Family::Granite, &granite).unwrap();
    assert_eq!((factors.embedding, factors.residual, factors.scores, factors.logits), (12.0, 0.22, 0.015625, 0.125));
    let none = json!({ "embedding_multiplier": null, "residual_multiplier": null, "attention_multiplier": null });
    let factors = read(Family::Granite, &none).unwrap();
    assert_eq!(
        (factors.embedding, factors.residual, factors.scores),
        (1.0, 1.0, 1.0),
        "scores are not scaled by themselves"
    );
    assert!(
        read(Family::Granite, &json!({ "logits_scaling": 0 }))
            .unwrap_err()
            .contains("found 0, expected a number above 0")
    );

    let gemma =
        json!({ "query_pre_attn_scalar": 144, "attn_logit_softcapping": null, "final_logit_softcapping": 30.0 });
    let factors = read(Family::Gemma2, &gemma).unwrap();
    assert_eq!((factors.embedding, factors.scores), (8.0, 1.0 / 12.0));
    assert_eq!((factors.scores_cap, factors.logits_cap), (None, Some(30.0)));
}

#[test]
fn layers_without_rotation_are_listed_or_counted() {
    let rotated = |keys: &Value| {
        let dir = tempfile::tempdir().unwrap();
        TestModel { layers: 5, ..TestModel::tiny(Family::SmolLm3) }.write(dir.path()).unwrap();
        for (key, value) in keys.as_object().unwrap() {
            edit(dir.path(), "config.json", |config| config[key] = value.clone());
        }
        ModelSpec::load(dir.path()).map(|spec| spec.rotated_layers).map_err(|error| error.to_string())
    };
    let every_fourth = Ok(vec![true, true, true, false, true]);
    assert_eq!(rotated(&json!({ "no_rope_layer_interval": null })), every_fourth);
    assert_eq!(rotated(&json!({ "no_rope_layer_interval": 4 })), every_fourth);
    let listed = json!({ "no_rope_layers": [1, 0, 1, 1, 0], "no_rope_layer_interval": 4 });
    assert_eq!(rotated(&listed), Ok(vec![true, false, true, true, false]));
    assert!(
        rotated(&json!({ "no_rope_layers": [1, 0] })).unwrap_err().ends_with("expected one for each of the 5 layers")
    );
    assert!(rotated(&json!({ "no_rope_layers": [1, 0, 1, 1, 2] })).is_err());
}

#[test]
fn windows_are_in_the_layers_that_transformers_gives_them() {
    let window = |family, keys: &Value| {
        let dir = tempfile::tempdir().unwrap();
        TestModel { layers: 4, ..TestModel::tiny(family) }.write(dir.path()).unwrap();
        for (key, value) in keys.as_object().unwrap() {
            edit(dir.path(), "config.json", |config| match value {
                Value::String(absent) if absent == "absent" => drop(config.as_object_mut().unwrap().remove(key)),
                value => config[key] = value.clone(),
            });
        }
        let window = ModelSpec::load(dir.path()).unwrap().window;
        window.map(|window| (window.tokens, window.layers))
    };
    let all = vec![true; 4];
    assert_eq!(window(Family::Mistral, &json!({ "sliding_window": null })), None);
    assert_eq!(window(Family::Mistral, &json!({ "sliding_window": "absent" })), Some((4096, all.clone())));
    assert_eq!(window(Family::Phi3, &json!({ "sliding_window": 2047 })), Some((2047, all)));
    assert_eq!(window(Family::Phi3, &json!({ "sliding_window": "absent" })), None);
    assert_eq!(
        window(Family::Gemma2, &json!({ "sliding_window": "absent" })),
        Some((4096, vec![true, false, true, false]))
    );
    let qwen = json!({ "use_sliding_window": true, "sliding_window": 100, "max_window_layers": 3 });
    assert_eq!(window(Family::Qwen2, &qwen), Some((100, vec![false, false, false, true])));
    let smol = json!({ "use_sliding_window": true, "sliding_window": 100, "no_rope_layers": [1, 1, 0, 1] });
    assert_eq!(window(Family::SmolLm3, &smol), Some((100, vec![false, false, true, false])));
    let third = json!({ "sliding_window": 512, "sliding_window_pattern": "absent", "_sliding_window_pattern": 3 });
    assert_eq!(window(Family::Gemma3, &third), Some((512, vec![true, true, false, true])));
    let listed = json!({ "sliding_window": 9, "layer_types":
        ["sliding_attention", "full_attention", "full_attention", "sliding_attention"] });
    assert_eq!(window(Family::Gemma2, &listed), Some((9, vec![true, false, false, true])));
}

/// Transformers has no window where the flag says so, whatever the layers are called: the two contradict each other.
#[test]
fn windowed_layers_of_a_window_that_is_off_are_refused() {
    let refused = |family, keys: &Value| {
        let dir = tempfile::tempdir().unwrap();
        TestModel::tiny(family).write(dir.path()).unwrap();
        edit(dir.path(), "config.json", |config| {
            config["layer_types"] = json!(["sliding_attention", "full_attention"]);
            config["sliding_window"] = json!(4096);
            for (key, value) in keys.as_object().unwrap() {
                config[key] = value.clone();
            }
        });
        ModelSpec::load(dir.path()).err().map(|error| error.to_string())
    };
    for (family, keys) in [
        (Family::Qwen2, json!({})),
        (Family::Qwen2, json!({ "use_sliding_window": false })),
        (Family::Mistral, json!({ "use_sliding_window": false })),
    ] {
        let error = refused(family, &keys).unwrap_or_else(|| panic!("{family:?} {keys}"));
        assert!(error.contains("`layer_types`") && error.contains("`use_sliding_window`"), "{error}");
    }
    assert_eq!(refused(Family::Qwen2, &json!({ "use_sliding_window": true })), None);
}

#[test]
fn one_table_holds_the_positions_of_both_bases() {
    let steps = |theta: f64, local: f64, more: &Value| {
        let dir = tempfile::tempdir().unwrap();
        TestModel::tiny(Family::Gemma3).write(dir.path()).unwrap();
        edit(dir.path(), "config.json", |config| {
            config["rope_theta"] = json!(theta);
            config["rope_local_base_freq"] = json!(local);
            for (key, value) in more.as_object().unwrap() {
                config[key] = value.clone();
            }
        });
        ModelSpec::load(dir.path()).unwrap().local_rope
    };
    let columns = |global_step, local_step| Some(LocalRope::Columns { global_step, local_step });
    assert_eq!(steps(1e6, 1e4, &json!({})), columns(3, 2));
    assert_eq!(steps(1e4, 1e4, &json!({})), columns(1, 1));
    assert_eq!(steps(1e8, 1e4, &json!({})), columns(4, 2));
    // Others have tables of their own.
    assert_eq!(steps(500_000.0, 1e4, &json!({})), Some(LocalRope::Table { theta: 1e4, scaling: None }));
    let scaled = json!({ "rope_scaling": { "rope_type": "linear", "factor": 8.0 } });
    assert_eq!(steps(1e6, 1e4, &scaled), Some(LocalRope::Table { theta: 1e4, scaling: None }));
}

/// Blocks for layers without a window and with one, as later versions of transformers write them.
#[test]
fn positions_by_layer_type_are_read_and_contradictions_refused() {
    let plain = |theta: f64| json!({ "rope_type": "default", "rope_theta": theta });
    let load = |family, parameters: Value, more: Value| {
        let dir = tempfile::tempdir().unwrap();
        TestModel::tiny(family).write(dir.path()).unwrap();
        edit(dir.path(), "config.json", |config| {
            for old in ["rope_theta", "rope_local_base_freq"] {
                config.as_object_mut().unwrap().remove(old);
            }
            config["rope_parameters"] = parameters;
            for (key, value) in more.as_object().unwrap() {
                config[key] = value.clone();
            }
        });
        ModelSpec::load(dir.path())
            .map_err(|error| error.to_string().replace(&format!("{}/", dir.path().display()), ""))
    };
    let both = |full: Value, sliding: Value| json!({ "full_attention": full, "sliding_attention": sliding });
    let gemma = load(Family::Gemma3, both(plain(1e6), plain(1e4)), json!({})).unwrap();
    assert_eq!(gemma.local_rope, Some(LocalRope::Columns { global_step: 3, local_step: 2 }));
    let linear = json!({ "rope_type": "linear", "factor": 8.0, "rope_theta": 1e4 });
    let scaling = Some(RopeScaling::Linear { factor: 8.0 });
    let olmo = load(Family::Olmo3, both(plain(1e4), linear.clone()), json!({})).unwrap();
    assert_eq!(olmo.local_rope, Some(LocalRope::Table { theta: 1e4, scaling: scaling.clone() }));
    let olmo = load(Family::Olmo3, both(linear.clone(), linear.clone()), json!({})).unwrap();
    assert_eq!((olmo.local_rope, olmo.rope.scaling), (None, scaling.clone()), "all layers alike");
    // In the flat form layers with a window are not scaled.
    let olmo = load(Family::Olmo3, linear, json!({})).unwrap();
    assert_eq!(olmo.local_rope, Some(LocalRope::Table { theta: 1e4, scaling: None }));

    for (family, parameters, more, expected) in [
        (
            Family::Gemma3,
            json!({ "full_attention": plain(1e6) }),
            json!({}),
            "`config.json` has no `rope_parameters.sliding_attention`: expected an object with the positions of these layers",
        ),
        (
            Family::Gemma3,
            both(plain(1e6), plain(1e4)),
            json!({ "rope_local_base_freq": 2e4 }),
            "bad `rope_local_base_freq` in `config.json`: found 20000, expected 10000, as in `rope_parameters`",
        ),
        (
            Family::Olmo3,
            both(plain(1e6), plain(1e4)),
            json!({ "rope_theta": 5e5 }),
            "bad `rope_parameters.full_attention.rope_theta` in `config.json`: found 1000000, expected 500000",
        ),
        (
            Family::Olmo3,
            both(plain(1e4), json!({ "rope_type": "default", "partial_rotary_factor": 0.5 })),
            json!({}),
            "found 0.5, expected 1, as in `full_attention`: all layers rotate as much of a head",
        ),
        (
            Family::Olmo3,
            json!({ "full_attention": plain(1e4), "sliding_attention": plain(1e4), "chunked_attention": plain(1e4) }),
            json!({}),
            "unknown key `rope_parameters.chunked_attention`",
        ),
        (
            Family::Olmo3,
            both(plain(1e4), plain(1e4)),
            json!({ "sliding_window": null, "layer_types": null }),
            "`config.json` has no `sliding_window`: expected the tokens that windowed layers see, since positions differ",
        ),
    ] {
        let error = load(family, parameters, more).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
