//! Keys: of the wrong type, missing, contradicting, unknown, or asking for what is not computed.

use super::*;
use crate::family::{LocalRope, RopeScaling};
use GgufValue::{Bool, Bytes, F32, F32s, I32, Raw, Texts, U32, U32s, U64};

/// A value of each type, with the name that a message gives it.
fn one_of_each() -> [(GgufValue, &'static str); 9] {
    [
        (text("500000"), "the string `500000`"),
        (U32(3), "3"),
        (I32(-3), "-3"),
        (F32(2.5), "2.5"),
        (F32(f32::NAN), "NaN"),
        (Bool(true), "true"),
        (U32s(vec![1, 2]), "a list of 2 numbers"),
        (Texts(vec!["a".into()]), "a list of 1 strings"),
        (Raw(9, [&7u32.to_le_bytes()[..], &1u64.to_le_bytes(), &[1]].concat()), "a list of 1 truth values"),
    ]
}

/// Row 8: some 60 files with a known key of another type took the default without a word.
#[test]
fn a_key_of_another_type_is_an_error_that_names_type_and_key() {
    // Key, what is expected, and which of the values above are of the right type.
    let count = "expected a whole number from 0 to 4294967295";
    let keys: [(&str, &str, &[usize]); 26] = [
        ("general.architecture", "expected a string", &[0]),
        ("general.alignment", count, &[1]),
        ("general.type", "expected a string", &[0]),
        ("split.count", count, &[1]),
        ("llama.block_count", count, &[1]),
        ("llama.context_length", count, &[1]),
        ("llama.embedding_length", count, &[1]),
        ("llama.feed_forward_length", "expected a whole number, or a list of 2 equal ones", &[1]),
        ("llama.attention.head_count", "expected a whole number, or a list of 2 equal ones", &[1]),
        ("llama.attention.head_count_kv", "expected a whole number, or a list of 2 equal ones", &[1]),
        ("llama.attention.key_length", count, &[1]),
        ("llama.attention.value_length", count, &[1]),
        ("llama.vocab_size", count, &[1]),
        ("llama.rope.dimension_count", count, &[1]),
        ("llama.rope.freq_base", "expected a number", &[1, 2, 3]),
        ("llama.rope.scaling.factor", "expected a number", &[1, 2, 3]),
        ("llama.rope.scaling.type", "expected a string", &[0]),
        ("llama.attention.layer_norm_rms_epsilon", "expected a number", &[1, 2, 3]),
        ("llama.expert_count", "expected a number", &[1, 2, 3]),
        ("llama.attention.causal", "expected true or false", &[5]),
        ("tokenizer.ggml.model", "expected a string", &[0]),
        ("tokenizer.ggml.pre", "expected a string", &[0]),
        ("tokenizer.ggml.add_bos_token", "expected true or false", &[5]),
        ("tokenizer.ggml.bos_token_id", count, &[1]),
        ("tokenizer.ggml.eos_token_id", count, &[1]),
        ("tokenizer.chat_template", "expected a string", &[0]),
    ];
    for (key, expected, right) in keys {
        for (i, (value, shown)) in one_of_each().into_iter().enumerate() {
            if right.contains(&i) {
                continue;
            }
            let found = message(&with(key, value));
            assert!(found.starts_with(&format!("`{key}` in `FILE` is {shown}, {expected}")), "{key}: {found}");
        }
    }
}

#[test]
fn lists_of_another_type_are_errors() {
    for (key, expected, value) in [
        ("tokenizer.ggml.tokens", "a list of strings", U32s(vec![1; 320])),
        ("tokenizer.ggml.tokens", "a list of strings", text("a")),
        ("tokenizer.ggml.merges", "a list of strings", U32(1)),
        ("tokenizer.ggml.token_type", "a list of whole numbers", F32s(vec![1.0; 320])),
        ("tokenizer.ggml.token_type", "a list of whole numbers", text("1")),
    ] {
        let found = message(&with(key, value));
        assert!(
            found.contains(&format!("`{key}` in `FILE` is ")) && found.ends_with(&format!("expected {expected}")),
            "{found}"
        );
    }
}

/// Row 7: keys that change the mathematics were not looked at. None may pass with another value than the one that is computed.
#[test]
fn keys_that_change_the_model_are_refused_by_name() {
    let cases = [
        ("rope.dimension_count", U32(8), "8, expected 16, the width of a head"),
        ("attention.value_length", U32(64), "64, expected 16, the width of a head"),
        ("attention.causal", Bool(false), "false, expected true"),
        ("attention.sliding_window", U32(128), "128, expected 0"),
        ("logit_scale", F32(0.5), "0.5, expected 1"),
        ("embedding_scale", F32(12.0), "12, expected 1"),
        ("residual_scale", F32(0.25), "0.25, expected 1"),
        ("attn_logit_softcapping", F32(50.0), "50, expected 0"),
        ("final_logit_softcapping", F32(30.0), "30, expected 0"),
        ("attention.clamp_kqv", F32(8.0), "8, expected 0"),
        ("attention.max_alibi_bias", F32(8.0), "8, expected 0"),
        ("attention.scale", F32(0.5), "0.5, expected 0.25, which is 1 / sqrt(16)"),
        ("vocab_size", U32(32000), "32000, expected 320, the rows of `token_embd.weight`"),
        ("expert_count", U32(8), "8, expected 0"),
        ("expert_used_count", U32(2), "2, expected 0"),
        ("use_parallel_residual", Bool(true), "true, expected false"),
        ("pooling_type", U32(3), "3, expected 0"),
        ("tensor_data_layout", text("other"), "the string `other`, expected `Meta AI original pth` or no such key"),
        (
            "rope.scaling.type",
            text("ntk"),
            "the string `ntk`, expected none, linear, yarn, longrope, or llama3 as a tensor of divisors",
        ),
        ("rope.scaling.attn_factor", F32(2.0), "2, expected 1"),
        ("rope.freq_base_swa", F32(5e5), "500000, expected 10000, as that of all layers"),
        ("rope.scaling.alpha", F32(1000.0), "1000, expected 1"),
        ("rope.scaling.yarn_ext_factor", F32(1.0), "1, expected 0, or `llama.rope.scaling.type` of yarn"),
        ("rope.scaling.yarn_attn_factor", F32(1.5), "1.5, expected 1, or `llama.rope.scaling.type` of yarn"),
        ("rope.scaling.factor", F32(-4.0), "-4, expected a positive number"),
        ("rope.scale_linear", F32(-4.0), "-4, expected a positive number"),
        ("rope.freq_base", F32(0.0), "0, expected a positive number"),
        ("attention.layer_norm_rms_epsilon", F32(-1.0), "-1, expected a number from 0 to 1"),
        ("attention.head_count", U32(0), "0, expected a whole number from 1 to "),
        ("attention.head_count", U32(7), "7 attention heads"),
        (
            "attention.head_count_kv",
            U32(3),
            "3 with 4 attention heads, expected a divisor of `llama.attention.head_count`",
        ),
        ("embedding_length", U32(0), "0, expected a whole number from 1 to "),
        ("feed_forward_length", U32(u32::MAX), "4294967295, expected a whole number from 1 to 16777216"),
        ("attention.key_length", U32(15), "expected 15, the width of a head"),
    ];
    for (key, value, expected) in cases {
        let (found, _) = refused(&with(&format!("llama.{key}"), value));
        // A number of key heads is named with the key of key heads.
        let named = key == "attention.head_count" || found.contains(&format!("`llama.{key}` in `FILE` is "));
        assert!(named || key == "attention.key_length", "{key}: {found}");
        assert!(found.contains(expected), "{key}: {found}");
    }
}

/// The same keys with the value that is computed anyway.
#[test]
fn keys_that_change_nothing_are_read() {
    let neutral = [
        ("rope.dimension_count", U32(16)),
        ("attention.causal", Bool(true)),
        ("attention.sliding_window", U32(0)),
        ("logit_scale", F32(1.0)),
        ("attn_logit_softcapping", F32(0.0)),
        ("attention.scale", F32(0.25)),
        ("vocab_size", U32(320)),
        ("expert_count", U32(0)),
        ("tensor_data_layout", text("Meta AI original pth")),
        ("rope.scaling.type", text("none")),
        ("rope.scaling.type", text("linear")),
        ("rope.scaling.factor", F32(1.0)),
        ("rope.scaling.original_context_length", U32(4096)),
        ("rope.scaling.finetuned", Bool(true)),
        ("rope.freq_base_swa", F32(1e4)),
        ("rope.scaling.alpha", F32(1.0)),
        ("rope.scaling.yarn_ext_factor", F32(-1.0)),
        ("rope.scaling.yarn_attn_factor", F32(1.0)),
        ("rope.scaling.yarn_beta_fast", F32(16.0)),
        ("attention.head_count", U32s(vec![4, 4])),
        ("feed_forward_length", U32s(vec![96, 96])),
        ("context_length", U64(4096)),
        ("rope.freq_base", U32(10_000)),
    ];
    for (key, value) in neutral {
        let found = refusal_of(&with(&format!("llama.{key}"), value.clone()).bytes());
        assert_eq!(found, Ok(()), "{key} {value:?}");
    }
    for (key, value) in [
        ("general.name", U32(5)),
        ("general.type", text("model")),
        ("quantize.imatrix.file", text("f")),
        ("split.count", U32(1)),
    ] {
        assert_eq!(refusal_of(&with(key, value).bytes()), Ok(()), "{key}");
    }
}

/// A file of another family, with one value of its own set or left out.
fn of_family(family: Family, key: &str, value: Option<GgufValue>) -> GgufDraft {
    let model = TestModel { layers: 4, no_rope_interval: 4, ..TestModel::tiny(family) };
    let mut draft = model.gguf(Matrices::F32).unwrap();
    let key = format!("{}.{key}", family.gguf_name());
    match value {
        Some(value) => draft.set(&key, value),
        None => draft.remove(&key),
    };
    draft
}

#[test]
fn keys_of_one_family_are_used_or_refused_by_name() {
    let cases = [
        (Family::Granite, "logit_scale", None, "`FILE` has no key `granite.logit_scale`"),
        (
            Family::Granite,
            "residual_scale",
            Some(F32(-1.0)),
            "`granite.residual_scale` in `FILE` is -1.0, expected a number above 0",
        ),
        (Family::Granite, "rope.scaling.finetuned", Some(Bool(false)), "is false, expected true"),
        (Family::Granite, "attention.sliding_window", Some(U32(8)), "is 8, expected 0"),
        (Family::Gemma3, "attention.sliding_window", None, "`FILE` has no key `gemma3.attention.sliding_window`"),
        (Family::Gemma3, "attention.sliding_window", Some(U32(0)), "is 0, expected a number above 0"),
        (
            Family::Gemma3,
            "attention.sliding_window_pattern",
            Some(F32(2.0)),
            "is 2, expected a number above 0, or a truth value for each of the 4 layers",
        ),
        (
            Family::Phi3,
            "rope.dimension_count",
            Some(U32(7)),
            "is 7, expected an even number of at most 16, the width of a head",
        ),
        (
            Family::StableLm,
            "attention.layer_norm_epsilon",
            None,
            "`FILE` has no key `stablelm.attention.layer_norm_epsilon`",
        ),
        (Family::Granite, "attention.sliding_window", Some(U32(8)), "is 8, expected 0"),
        (Family::Olmo3, "rope.freq_base_swa", Some(F32(5e5)), "is 500000, expected 10000, as that of all layers"),
        (Family::Gemma2, "rope.freq_base_swa", Some(F32(5e5)), "is 500000, expected 10000, as that of all layers"),
        (Family::SmolLm3, "attn_logit_softcapping", Some(F32(8.0)), "is 8, expected 0"),
    ];
    for (family, key, value, expected) in cases {
        let found = message(&of_family(family, key, value));
        assert!(found.ends_with(expected), "{family} {key}: {found}");
    }
}

#[test]
fn absent_keys_of_a_family_have_the_values_of_its_files() {
    let spec = |family, key: &str, value| model(&of_family(family, key, value)).unwrap().spec;
    assert_eq!(spec(Family::Granite, "attention.scale", None).factors.scores, 0.25, "1 / sqrt(16)");
    assert_eq!(spec(Family::Granite, "embedding_scale", Some(F32(0.0))).factors.embedding, 1.0, "0 is unset");
    assert_eq!(spec(Family::Gemma2, "attn_logit_softcapping", None).factors.scores_cap, Some(50.0));
    assert_eq!(spec(Family::Gemma2, "attn_logit_softcapping", Some(F32(0.0))).factors.scores_cap, None);
    assert_eq!(spec(Family::Gemma2, "attention.sliding_window", None).window.unwrap().tokens, 4096);
    assert_eq!(spec(Family::Gemma2, "attention.sliding_window", Some(U32(0))).window, None);
    let pattern = |value| spec(Family::Gemma3, "attention.sliding_window_pattern", value).window.unwrap().layers;
    assert_eq!(pattern(None), [true; 4], "one layer in six has none");
    assert_eq!(pattern(Some(U32(3))), [true, true, false, true]);
    let bools = [&7u32.to_le_bytes()[..], &4u64.to_le_bytes(), &[0, 1, 1, 0]].concat();
    assert_eq!(pattern(Some(Raw(9, bools))), [false, true, true, false]);
    let local = spec(Family::Gemma3, "rope.freq_base_swa", Some(F32(1e6))).local_rope;
    assert_eq!(local, Some(LocalRope::Columns { global_step: 1, local_step: 1 }));
    // Layers of SmolLM3 that do not rotate have no key.
    assert_eq!(spec(Family::SmolLm3, "vocab_size", None).rotated_layers, [true, true, true, false]);
    for (family, layers, scalar) in
        [(Family::Gemma2, 46, 16.0_f64), (Family::Gemma3, 62, 16.0), (Family::Gemma2, 4, 32.0)]
    {
        let draft = TestModel { layers, ..TestModel::tiny(family) }.gguf(Matrices::F32).unwrap();
        let found = model(&draft).unwrap().spec.factors.scores;
        assert_eq!(found, scalar.sqrt().recip(), "{family} of {layers} layers");
    }
}

/// OLMo 3 is an `olmo2` with a window.
#[test]
fn the_window_tells_olmo_3_from_olmo_2() {
    let spec = |family, value| model(&of_family(family, "attention.sliding_window", value)).unwrap().spec;
    assert_eq!(spec(Family::Olmo2, None).family, Family::Olmo2);
    let error = model(&of_family(Family::Olmo3, "attention.sliding_window", Some(U32(0)))).unwrap_err().to_string();
    assert!(error.contains("sliding_window_pattern"), "a pattern of no window: {error}");
    let three = spec(Family::Olmo2, Some(U32(8)));
    assert_eq!((three.family, three.window.unwrap().layers), (Family::Olmo3, vec![true, true, true, false]));
}

/// YaRN's amplitude is llama.cpp's: the usual one by `attn_factor`. `yarn_attn_factor` is computed there, whatever the file says.
#[test]
fn yarn_and_longrope_are_read_from_their_keys() {
    let yarn = |extra: &[(&str, GgufValue)]| {
        changed(|d| {
            d.set("llama.rope.scaling.type", text("yarn")).set("llama.rope.scaling.factor", F32(4.0));
            for (key, value) in extra {
                d.set(&format!("llama.rope.scaling.{key}"), value.clone());
            }
        })
    };
    let read = |draft: &GgufDraft| match model(draft).unwrap().spec.rope.scaling {
        Some(RopeScaling::Yarn(yarn)) => yarn,
        other => panic!("{other:?}"),
    };
    let plain = read(&yarn(&[]));
    assert_eq!((plain.factor, plain.original_max_position, plain.dim), (4.0, 4096.0, 16), "the length of the context");
    assert_eq!((plain.attn_factor, plain.beta_fast, plain.beta_slow), (1.0, 32.0, 1.0));
    let other = read(&yarn(&[
        ("original_context_length", U32(1024)),
        ("attn_factor", F32(0.5)),
        ("yarn_attn_factor", F32(3.0)),
        ("yarn_beta_fast", F32(16.0)),
        ("yarn_beta_slow", F32(2.0)),
        ("yarn_ext_factor", F32(-1.0)),
    ]));
    assert_eq!((other.original_max_position, other.beta_fast, other.beta_slow), (1024.0, 16.0, 2.0));
    assert!((other.attn_factor - 0.5).abs() < 1e-12, "{}", other.attn_factor);
    for (key, value, expected) in [
        ("yarn_ext_factor", F32(0.5), "0.5, expected 1"),
        ("yarn_log_multiplier", F32(0.1), "expected 0"),
        ("factor", F32(0.5), "0.5, expected a number of at least 1"),
        ("yarn_beta_fast", F32(0.0), "0, expected a positive number"),
    ] {
        let found = message(&yarn(&[(key, value)]));
        assert!(found.contains(&format!("`llama.rope.scaling.{key}`")) && found.contains(expected), "{found}");
    }
    let without = changed(|d| drop(d.set("llama.rope.scaling.type", text("yarn")).clone()));
    assert_eq!(message(&without), "`FILE` has no key `llama.rope.scaling.factor`");
    let half = changed(|d| drop(d.add("rope_factors_long.weight", &[8], 2.0).clone()));
    assert_eq!(message(&half), "`FILE` has no tensor `rope_factors_short.weight`");
    let none = with("llama.rope.scaling.type", text("longrope"));
    assert_eq!(message(&none), "`FILE` has no tensor `rope_factors_long.weight`");
}

#[test]
fn layers_that_differ_are_refused() {
    let found = message(&with("llama.attention.head_count", U32s(vec![4, 2])));
    assert!(found.contains("is a list of 2 numbers, expected a whole number, or a list of 2 equal ones"), "{found}");
}

/// An unknown key of the model's own is refused, whatever it means; one of somebody else's is named in a note.
#[test]
fn unknown_keys_are_named() {
    for key in ["llama.attention.new_idea", "llama.x", "tokenizer.ggml.normalizer.lowercase"] {
        let found = message(&with(key, U32(1)));
        assert_eq!(
            found,
            format!("`FILE` has the key `{key}`, which this compiler does not know and would leave out of the model")
        );
    }
    let notes = model(&with("vendor.key", U32(1))).unwrap().notes;
    assert_eq!(notes, ["keys of the GGUF file that have no effect here: `vendor.key`"]);
    assert!(model(&llama()).unwrap().notes.is_empty());
    let notes = model(&with("tokenizer.ggml.add_eos_token", Bool(true))).unwrap().notes;
    assert!(notes[0].contains("`tokenizer.ggml.add_eos_token` is true"), "{notes:?}");
}

/// Section 4: a missing key was named by its name in another format.
#[test]
fn missing_keys_are_named_as_the_file_would_spell_them() {
    for key in [
        "general.architecture",
        "llama.block_count",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.bos_token_id",
    ] {
        let (found, hint) = refused(&changed(|d| {
            d.remove(key);
        }));
        assert_eq!((found, hint), (format!("`FILE` has no key `{key}`"), Some(Hint::ConvertAgain)));
    }
}

#[test]
fn files_that_are_no_whole_model_are_named() {
    for (kind, found) in [
        ("adapter", "`FILE` holds an adapter (LoRA), expected a whole model"),
        ("mmproj", "`FILE` holds the projector of a multimodal model, expected a whole model"),
        ("imatrix", "`FILE` holds the importance matrix of a quantisation, expected a whole model"),
        ("\u{1b}[31m", "`FILE` holds `general.type` `\\u{1b}[31m`, expected a whole model"),
    ] {
        assert_eq!(refused(&with("general.type", text(kind))), (found.into(), Some(Hint::ModelNotPart)));
    }
    let shard = changed(|d| {
        d.set("split.count", U32(3)).set("split.no", U32(0)).remove_tensor("output_norm.weight");
    });
    assert_eq!(refused(&shard), ("`FILE` is file 1 of 3 of a split model".into(), Some(Hint::MergeShards)));
    for other in ["gemma", "clip", "mamba", "\u{1b}[2J"] {
        let found = message(&with("general.architecture", text(other)));
        let shown = other.escape_debug();
        assert_eq!(
            found,
            format!(
                "unsupported architecture `{shown}`: this compiler supports `llama`, `qwen2`, `qwen3`, `phi3`, `granite`, \
                 `smollm3`, `olmo2`, `gemma2`, `gemma3`, `stablelm`, `gpt2`"
            )
        );
    }
}

/// Accepted without effect and without a word.
#[test]
fn keys_of_other_tokenizers_are_noted_and_other_quantisations_refused() {
    let draft = changed(|d| {
        d.set("tokenizer.ggml.remove_extra_whitespaces", Bool(true));
        d.set("tokenizer.ggml.precompiled_charsmap", Bytes(vec![1, 2]));
        d.set("general.quantization_version", U32(2));
    });
    let expected = "keys of the GGUF file that have no effect here: `tokenizer.ggml.precompiled_charsmap`, \
                    `tokenizer.ggml.remove_extra_whitespaces`";
    assert_eq!(model(&draft).unwrap().notes, [expected]);
    let quiet = with("tokenizer.ggml.remove_extra_whitespaces", Bool(false));
    assert!(model(&quiet).unwrap().notes.is_empty());
    let found = message(&with("general.quantization_version", U32(3)));
    assert!(found.contains("`general.quantization_version`") && found.contains("3, expected 2"), "{found}");
}

/// Row 7: a factor without a type means linear in llama.cpp; so does the older key. Each position is divided by it.
#[test]
fn linear_scaling_is_used() {
    for draft in [
        with("llama.rope.scaling.factor", F32(4.0)),
        with("llama.rope.scale_linear", F32(4.0)),
        changed(|d| {
            d.set("llama.rope.scaling.type", text("linear")).set("llama.rope.scaling.factor", F32(4.0));
        }),
    ] {
        let rope = model(&draft).unwrap().spec.rope;
        assert_eq!(rope.scaling, Some(RopeScaling::Linear { factor: 4.0 }));
    }
    let none = changed(|d| {
        d.set("llama.rope.scaling.type", text("none")).set("llama.rope.scaling.factor", F32(4.0));
    });
    assert_eq!(model(&none).unwrap().spec.rope.scaling, None);
}

/// Row 7: NaN in the divisors passed, and so did a tensor of half the length.
#[test]
fn divisors_of_frequencies_are_checked() {
    let divisors = |values: &[f32]| {
        changed(|d| {
            d.add("rope_freqs.weight", &[values.len() as u64], 0.0).tensor("rope_freqs.weight").bytes =
                values.iter().flat_map(|v| v.to_le_bytes()).collect();
        })
    };
    assert_eq!(model(&divisors(&[1.0; 8])).unwrap().spec.rope.scaling, None, "all ones divide by nothing");
    let found = message(&divisors(&[1.0; 4]));
    assert_eq!(found, "tensor `rope_freqs.weight` in `FILE` has shape [4], expected [8]");
    for (bad, name) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        for at in [0, 7] {
            let mut values = [1.0; 8];
            values[at] = bad;
            let found = message(&divisors(&values));
            assert!(found.starts_with(&format!("tensor `rope_freqs.weight` has {name} at index [{at}]")), "{found}");
        }
    }
    for bad in [0.0, -1.0, 3.0] {
        let found = message(&divisors(&[1.0, bad, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]));
        assert!(found.contains("`rope_freqs.weight`, whose entry") && found.contains("the llama3 rule"), "{found}");
    }
    let both = divisors(&[1.0; 8]);
    let mut both = both.clone();
    both.set("llama.rope.scaling.factor", F32(2.0));
    assert!(message(&both).contains("expected no factor beside the tensor `rope_freqs.weight`"));
    let halves = changed(|d| {
        d.add("rope_freqs.weight", &[8], 1.0).tensor("rope_freqs.weight").ty = 1;
    });
    assert_eq!(message(&halves), "tensor `rope_freqs.weight` in `FILE` is F16, expected F32");
}

/// The sampling that a file recommends is used, as that of `generation_config.json` is.
#[test]
fn recommended_sampling_is_used() {
    let draft = changed(|d| {
        d.set("general.sampling.temp", F32(0.5))
            .set("general.sampling.top_k", U32(7))
            .set("general.sampling.top_p", F32(0.25));
    });
    let sampler = model(&draft).unwrap().spec.sampler;
    assert_eq!((sampler.temperature, sampler.top_k, sampler.top_p), (0.5, 7, 0.25));
    assert!(refusal_of(&with("general.sampling.temp", Bytes(vec![1])).bytes()).is_err());
}

/// A Gemma of 46 layers divides by its heads before they are looked at.
#[test]
fn no_heads_are_refused_in_a_large_gemma() {
    let mut draft = TestModel::tiny(Family::Gemma2).gguf(Matrices::F32).unwrap();
    draft.set("gemma2.block_count", U32(46));
    draft.set("gemma2.attention.head_count", U32(0));
    assert!(message(&draft).contains("attention.head_count"), "{}", message(&draft));
}
