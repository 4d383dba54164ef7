//! Configurations: the spec they give, and the messages of those that are refused.

mod other_keys;
mod rope_scaling;
mod wrong_values;

use super::*;
use crate::Hint;
use crate::testing::{Case, edit, set};
use crate::testmodel::TestModel;
use genie_types::TokenId;
use serde_json::{Value, json};

fn qwen2() -> TestModel {
    TestModel::tiny(Family::Qwen2)
}

#[test]
fn unfit_configurations_are_refused_by_name() {
    let cases = [
        Case {
            name: "no config",
            damage: |dir| std::fs::remove_file(dir.join("config.json")).unwrap(),
            message: "`{dir}` has no config.json, expected the folder of a model",
            hint: Some(Hint::PassModel),
            ..Case::DEFAULT
        },
        Case {
            name: "a GGUF file in a folder",
            damage: |dir| {
                std::fs::remove_file(dir.join("config.json")).unwrap();
                std::fs::write(dir.join("x.gguf"), "").unwrap();
            },
            message: "`{dir}` has no config.json, expected the folder of a model",
            hint: Some(Hint::CompileFile("{dir}/x.gguf".into())),
            ..Case::DEFAULT
        },
        Case {
            name: "SentencePiece's file alone (section 4)",
            damage: |dir| std::fs::rename(dir.join("tokenizer.json"), dir.join("tokenizer.model")).unwrap(),
            message: "`{dir}` has no tokenizer.json",
            hint: Some(Hint::ConvertTokenizer { from: Some("tokenizer.model") }),
            ..Case::DEFAULT
        },
        Case {
            name: "no tokenizer at all",
            damage: |dir| std::fs::remove_file(dir.join("tokenizer.json")).unwrap(),
            message: "`{dir}` has no tokenizer.json",
            hint: Some(Hint::ConvertTokenizer { from: None }),
            ..Case::DEFAULT
        },
        Case {
            name: "config is no JSON",
            damage: |dir| std::fs::write(dir.join("config.json"), "hidden_size: 64").unwrap(),
            message: "`{dir}/config.json` cannot be read as JSON: expected value at line 1 column 1",
            ..Case::DEFAULT
        },
        Case {
            name: "another type",
            damage: |dir| set(dir, "hidden_size", json!("64")),
            message: "bad `hidden_size` in `{dir}/config.json`: found \"64\", \
                expected a whole number from 1 to 16777216",
            ..Case::DEFAULT
        },
        Case {
            name: "unknown architecture",
            damage: |dir| set(dir, "architectures", json!(["MambaForCausalLM"])),
            message: "unsupported architecture `MambaForCausalLM`: this compiler supports {families}",
            ..Case::DEFAULT
        },
        Case {
            name: "unknown model type",
            damage: |dir| {
                set(dir, "architectures", Value::Null);
                set(dir, "model_type", json!("qwen3_moe"));
            },
            message: "unsupported architecture `model_type qwen3_moe`: this compiler supports {families}",
            ..Case::DEFAULT
        },
        Case {
            name: "no architecture at all",
            damage: |dir| {
                set(dir, "architectures", Value::Null);
                set(dir, "model_type", Value::Null);
            },
            message: "`{dir}/config.json` has no `architectures`: expected a list with the class of the model",
            ..Case::DEFAULT
        },
        Case {
            name: "missing extent",
            damage: |dir| set(dir, "hidden_size", Value::Null),
            message: "`{dir}/config.json` has no `hidden_size`: expected a whole number from 1 to 16777216",
            ..Case::DEFAULT
        },
        Case {
            name: "zero extent",
            damage: |dir| set(dir, "num_hidden_layers", json!(0)),
            message: "bad `num_hidden_layers` in `{dir}/config.json`: found 0, expected a whole number from 1 to 65536",
            ..Case::DEFAULT
        },
        Case {
            name: "key heads do not divide",
            damage: |dir| set(dir, "num_key_value_heads", json!(3)),
            message: "bad `num_key_value_heads` in `{dir}/config.json`: found 3 with 4 attention heads, \
                expected a divisor of num_attention_heads",
            ..Case::DEFAULT
        },
        Case {
            name: "odd head width",
            damage: |dir| set(dir, "head_dim", json!(15)),
            message: "bad `head_dim` in `{dir}/config.json`: found 15, expected an even number",
            ..Case::DEFAULT
        },
        Case {
            name: "head width not derivable",
            damage: |dir| set(dir, "num_attention_heads", json!(5)),
            message: "`config.json` has no `head_dim`, and hidden size 64 is no multiple of 5 heads",
            ..Case::DEFAULT
        },
        Case {
            name: "squared relu",
            damage: |dir| set(dir, "hidden_act", json!("relu2")),
            message: "unsupported `hidden_act` in `{dir}/config.json`: found relu2, this compiler needs one of \
                silu, swish, swiglu, gelu_pytorch_tanh, gelu_new, gelu_fast, gelu, relu",
            ..Case::DEFAULT
        },
        Case {
            name: "experts",
            damage: |dir| set(dir, "num_local_experts", json!(8)),
            message: "unsupported `num_local_experts` in `{dir}/config.json`: found 8, this compiler needs no mixture of experts",
            ..Case::DEFAULT
        },
        Case {
            name: "a null for a number",
            damage: |dir| edit(dir, "config.json", |config| config["hidden_size"] = Value::Null),
            message: "`{dir}/config.json` has no `hidden_size`: expected a whole number from 1 to 16777216, found null",
            ..Case::DEFAULT
        },
        Case {
            name: "a window without a size",
            model: qwen2,
            damage: |dir| {
                set(dir, "use_sliding_window", json!(true));
                set(dir, "sliding_window", Value::Null);
                set(dir, "max_window_layers", json!(1));
            },
            message: "`{dir}/config.json` has no `sliding_window`: expected the tokens that windowed layers see",
            hint: Some(Hint::SimilarKeys { near: vec!["use_sliding_window".into()] }),
        },
        Case {
            name: "layers of another kind",
            model: || TestModel::tiny(Family::Qwen3),
            damage: |dir| set(dir, "layer_types", json!(["full_attention", "chunked_attention"])),
            message: "unsupported `layer_types` in `{dir}/config.json`: found chunked_attention, \
                this compiler needs full_attention or sliding_attention",
            ..Case::DEFAULT
        },
        Case {
            name: "yarn",
            damage: |dir| set(dir, "rope_scaling", json!({ "type": "ntk", "factor": 4.0 })),
            message: "unsupported `rope_scaling.rope_type` in `{dir}/config.json`: found ntk, this compiler needs default, linear, llama3, yarn or longrope",
            ..Case::DEFAULT
        },
        Case {
            name: "incomplete llama3 scaling",
            damage: |dir| set(dir, "rope_scaling", json!({ "rope_type": "llama3", "factor": 8.0 })),
            message: "`{dir}/config.json` has no `rope_scaling.low_freq_factor`: expected a number above 0",
            ..Case::DEFAULT
        },
        Case {
            name: "upside-down llama3 scaling",
            damage: |dir| {
                let scaling = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
                    "high_freq_factor": 1.0, "original_max_position_embeddings": 8192 });
                set(dir, "rope_scaling", scaling);
            },
            message: "bad `rope_scaling.high_freq_factor` in `{dir}/config.json`: found 1, \
                expected more than `low_freq_factor`, 4",
            ..Case::DEFAULT
        },
        Case {
            name: "three elements of each head rotated",
            damage: |dir| set(dir, "partial_rotary_factor", json!(0.2)),
            message: "bad `partial_rotary_factor` in `{dir}/config.json`: found 0.2, 3 elements, \
                expected an even number of the 16 elements of a head, at least 2",
            ..Case::DEFAULT
        },
        Case {
            name: "theta of zero",
            damage: |dir| set(dir, "rope_theta", json!(0)),
            message: "bad `rope_theta` in `{dir}/config.json`: found 0, expected a number of at least 1",
            ..Case::DEFAULT
        },
        Case {
            name: "quantised weights",
            damage: |dir| set(dir, "quantization_config", json!({ "quant_method": "awq" })),
            message: "unsupported `quantization_config` in `{dir}/config.json`: found awq, \
                this compiler needs float weights (f32, f16, bf16)",
            hint: Some(Hint::UnquantisedCheckpoint),
            ..Case::DEFAULT
        },
        Case {
            name: "an end token past the vocabulary",
            damage: |dir| edit(dir, "generation_config.json", |g| g["eos_token_id"] = json!([257, 320])),
            message: "`eos_token_id` is 320, but the vocabulary has 320 entries",
            ..Case::DEFAULT
        },
        Case {
            name: "top-p of two",
            damage: |dir| edit(dir, "generation_config.json", |g| g["top_p"] = json!(2)),
            message: "bad `top_p` in `{dir}/generation_config.json`: found 2, expected a number from 0 to 1",
            ..Case::DEFAULT
        },
    ];
    Case::check_all(&cases);
}

fn loaded(model: &TestModel, change: impl FnOnce(&Path)) -> ModelSpec {
    let dir = tempfile::tempdir().unwrap();
    model.write(dir.path()).unwrap();
    change(dir.path());
    ModelSpec::load(dir.path()).unwrap()
}

#[test]
fn written_configurations_read_back() {
    for &family in Family::ALL {
        let plain = TestModel::tiny(family);
        let scaling = Some(TestModel::short_llama3_scaling());
        let odd =
            TestModel { tied: false, attention_bias: true, mlp_bias: true, head_dim: 24, scaling, ..plain.clone() };
        // Positions of layers with windows and a scaling beside them are refused.
        let scaling =
            odd.scaling.clone().filter(|_| !matches!(family.info().local_positions, LocalPositions::OwnBase(_)));
        let odd = TestModel { scaling, ..odd };
        // GPT-2 has no keys for the width of a head, and no rotation.
        let odd = match family.info().learned_positions {
            true => TestModel { tied: false, activation: Activation::Relu, max_positions: 100, ..plain.clone() },
            false => odd,
        };
        for model in [plain, odd] {
            assert_eq!(loaded(&model, |_| {}), model.spec());
        }
    }
}

#[test]
fn families_differ_in_biases_and_norms() {
    let (none, qkv) = (Biases::default(), Biases { qkv: true, ..Biases::default() });
    let attention = Biases { qkv: true, o: true, mlp: false };
    let all = Biases { mlp: true, ..attention };
    use NormPlace::{After, Before, Both};
    let cases = [
        // Without the keys, with all keys true, with norms on queries and keys; norms of layers.
        (Family::Llama, none, all, QkNorm::None, Before),
        (Family::Qwen2, qkv, qkv, QkNorm::None, Before),
        (Family::Qwen3, none, attention, QkNorm::Heads, Before),
        (Family::Mistral, none, none, QkNorm::None, Before),
        (Family::Phi3, none, none, QkNorm::None, Before),
        (Family::Granite, none, all, QkNorm::None, Before),
        (Family::SmolLm3, none, all, QkNorm::None, Before),
        (Family::Olmo2, none, attention, QkNorm::Whole, After),
        (Family::Olmo3, none, attention, QkNorm::Whole, After),
        (Family::Gemma2, none, attention, QkNorm::None, Both),
        (Family::Gemma3, none, attention, QkNorm::Heads, Both),
        (Family::StableLm, none, qkv, QkNorm::None, Before),
        (Family::Gpt2, all, all, QkNorm::None, Before),
    ];
    assert_eq!(cases.map(|(family, ..)| family), Family::ALL);
    for (family, plain, configured, qk_norm, place) in cases {
        let spec = loaded(&TestModel::tiny(family), |_| {});
        assert_eq!((spec.biases, spec.qk_norm, spec.norm_place), (plain, qk_norm, place), "{family}");
        if family == Family::Gpt2 {
            continue; // It has no keys for biases.
        }
        let spec = loaded(&TestModel::tiny(family), |dir| {
            set(dir, "attention_bias", json!(true));
            set(dir, "mlp_bias", json!(true));
            if family.info().qkv_bias == Bias::QkvKey {
                set(dir, "use_qkv_bias", json!(true));
            }
        });
        assert_eq!(spec.biases, configured, "{family}");
    }
}

#[test]
fn defaults_are_those_of_transformers() {
    let spec = loaded(&TestModel::tiny(Family::Qwen3), |dir| {
        for key in ["head_dim", "rope_theta", "rms_norm_eps", "num_key_value_heads", "tie_word_embeddings"] {
            set(dir, key, Value::Null);
        }
    });
    assert_eq!((spec.head_dim, spec.rope.theta, spec.norm_eps), (128, 10_000.0, 1e-6));
    assert_eq!((spec.n_kv_heads, spec.tied), (4, false));
}

#[test]
fn the_newer_rope_key_is_read_too() {
    let spec = loaded(&TestModel::tiny(Family::Llama), |dir| {
        set(dir, "rope_theta", Value::Null);
        let parameters = json!({ "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192 });
        set(dir, "rope_parameters", parameters);
    });
    assert_eq!(spec.rope.theta, 500_000.0);
    let Some(RopeScaling::Llama3(llama3)) = spec.rope.scaling else { panic!("{:?}", spec.rope) };
    assert_eq!(llama3.original_max_position, 8192.0);
}

#[test]
fn special_tokens_come_from_the_right_file() {
    struct Token {
        name: &'static str,
        family: Family,
        tokenizer_config: Option<Value>,
        bos: Option<TokenId>,
    }
    let bos = Some(crate::testmodel::BOS);
    let cases = [
        Token { name: "a Llama has one", family: Family::Llama, tokenizer_config: None, bos },
        Token { name: "a Qwen has none", family: Family::Qwen2, tokenizer_config: None, bos: None },
        Token {
            name: "switched on",
            family: Family::Qwen2,
            tokenizer_config: Some(json!({ "add_bos_token": true })),
            bos,
        },
        Token {
            name: "switched off",
            family: Family::Llama,
            tokenizer_config: Some(json!({ "add_bos_token": false })),
            bos: None,
        },
        Token {
            name: "a Llama with GPT-2's tokenizer",
            family: Family::Llama,
            tokenizer_config: Some(json!({ "bos_token": "<s>", "tokenizer_class": "GPT2TokenizerFast" })),
            bos: None,
        },
        Token {
            name: "that has it switched on",
            family: Family::Llama,
            tokenizer_config: Some(json!({ "add_bos_token": true, "tokenizer_class": "GPT2Tokenizer" })),
            bos,
        },
        Token { name: "null", family: Family::Llama, tokenizer_config: Some(json!({ "bos_token": null })), bos: None },
        Token { name: "named", family: Family::Llama, tokenizer_config: Some(json!({ "bos_token": "<s>" })), bos },
        Token {
            name: "of no class, and without a template",
            family: Family::Llama,
            tokenizer_config: Some(json!({ "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>" })),
            bos: None,
        },
    ];
    for case in cases {
        let spec = loaded(&TestModel::tiny(case.family), |dir| {
            if let Some(config) = &case.tokenizer_config {
                std::fs::write(dir.join("tokenizer_config.json"), config.to_string()).unwrap();
            }
        });
        assert_eq!(spec.tokens.bos, case.bos, "{}", case.name);
    }
    let template = |id: u32| {
        json!({ "type": "TemplateProcessing", "pair": [],
            "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [id], "tokens": ["<s>"] } } })
    };
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false });
    let sequence = |parts: Value| json!({ "type": "Sequence", "processors": parts });
    let this = crate::testmodel::BOS.0;
    for (name, family, processor, expected) in [
        ("a template", Family::Llama, template(this), bos),
        ("as Llama 3's", Family::Llama, sequence(json!([bytes, template(this)])), bos),
        ("of a family without BOS", Family::Qwen2, template(this), bos),
        ("another token", Family::Llama, template(this + 5), None),
        ("none in the sequence", Family::Llama, sequence(json!([bytes])), None),
    ] {
        let spec = loaded(&TestModel::tiny(family), |dir| {
            let config = json!({ "tokenizer_class": "PreTrainedTokenizerFast" });
            std::fs::write(dir.join("tokenizer_config.json"), config.to_string()).unwrap();
            edit(dir, "tokenizer.json", |tokenizer| tokenizer["post_processor"] = processor);
        });
        assert_eq!(spec.tokens.bos, expected, "{name}");
    }
    let spec = loaded(&TestModel::tiny(Family::Llama), |dir| {
        edit(dir, "generation_config.json", |g| {
            *g = json!({ "eos_token_id": [7, 9], "pad_token_id": 3, "temperature": 0.6, "top_k": 20, "do_sample": true });
        });
    });
    assert_eq!(spec.tokens.eos, [TokenId(7), TokenId(9)]);
    assert_eq!((spec.tokens.pad, spec.sampler.temperature, spec.sampler.top_k), (Some(TokenId(3)), 0.6, 20));
}
