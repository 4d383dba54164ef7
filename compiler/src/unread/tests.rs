//! Models with tensors too many or layers too few (row 6 of the list of failures).

use crate::compile::compile_with;
use crate::family::Family;
use crate::lower::tests::recorder::FakeTarget;
use crate::testing::{Case, add_tensor, edit_tensors, set};
use crate::testmodel::TestModel;
use crate::{CompileOptions, Hint, Silent};
use serde_json::json;
use std::path::Path;

/// Copies the embedding to the head of a tied model, plus `change` in its last element.
fn add_head(dir: &Path, change: f32) {
    edit_tensors(&dir.join("model.safetensors"), |header, data| {
        let entry = header["model.embed_tokens.weight"].clone();
        let place = |i: usize| entry["data_offsets"][i].as_u64().unwrap() as usize;
        let mut copy = data[place(0)..place(1)].to_vec();
        let last = copy.last_chunk_mut().unwrap();
        *last = (f32::from_le_bytes(*last) + change).to_le_bytes();
        let begin = data.len();
        data.extend(copy);
        header["lm_head.weight"] =
            json!({ "dtype": "F32", "shape": entry["shape"], "data_offsets": [begin, data.len()] });
    });
}

fn qwen3() -> TestModel {
    TestModel::tiny(Family::Qwen3)
}

#[test]
fn tensors_that_no_part_takes_are_refused_by_name() {
    let other = || Some(Hint::OtherFamilyOrConfig);
    let cases = [
        Case {
            name: "row 6: three layers of two said",
            damage: |dir| set(dir, "num_hidden_layers", json!(1)),
            message: "`num_hidden_layers` is 1, but the checkpoint has the tensors of 2 layers",
            hint: Some(Hint::OtherConfig),
            ..Case::DEFAULT
        },
        Case {
            name: "more layers than there are",
            damage: |dir| set(dir, "num_hidden_layers", json!(7)),
            message: "`num_hidden_layers` is 7, but the checkpoint has the tensors of 2 layers",
            hint: Some(Hint::OtherConfig),
            ..Case::DEFAULT
        },
        Case {
            name: "row 6: a bias that the configuration says is not there",
            damage: |dir| add_tensor(dir, "model.layers.1.self_attn.q_proj.bias", &[64], 0.5),
            message: "tensor `model.layers.1.self_attn.q_proj.bias` is not part of a llama model with this configuration",
            hint: Some(Hint::SetKey { key: "attention_bias" }),
            ..Case::DEFAULT
        },
        Case {
            name: "a bias of the feed-forward part",
            damage: |dir| add_tensor(dir, "model.layers.0.mlp.up_proj.bias", &[96], 0.5),
            message: "tensor `model.layers.0.mlp.up_proj.bias` is not part of a llama model with this configuration",
            hint: Some(Hint::SetKey { key: "mlp_bias" }),
            ..Case::DEFAULT
        },
        Case {
            name: "a bias that no model of the family has",
            model: qwen3,
            damage: |dir| add_tensor(dir, "model.layers.0.mlp.up_proj.bias", &[96], 0.5),
            message: "tensor `model.layers.0.mlp.up_proj.bias` is not part of a qwen3 model with this configuration",
            hint: other(),
        },
        Case {
            name: "norms of another family",
            damage: |dir| {
                for layer in 0..2 {
                    for part in ["q_norm", "k_norm"] {
                        add_tensor(dir, &format!("model.layers.{layer}.self_attn.{part}.weight"), &[16], 1.0);
                    }
                }
            },
            message: "tensors `model.layers.0.self_attn.k_norm.weight`, `model.layers.0.self_attn.q_norm.weight`, \
                `model.layers.1.self_attn.k_norm.weight` and 1 more are not part of a llama model with this configuration",
            hint: other(),
            ..Case::DEFAULT
        },
        Case {
            name: "two of them",
            damage: |dir| {
                add_tensor(dir, "model.embed_norm.weight", &[64], 1.0);
                add_tensor(dir, "lm_head.bias", &[320], 1.0);
            },
            message: "tensors `lm_head.bias`, `model.embed_norm.weight` are not part of a llama model with this configuration",
            hint: other(),
            ..Case::DEFAULT
        },
        Case {
            name: "of a layer far off",
            damage: |dir| add_tensor(dir, "model.layers.9.input_layernorm.weight", &[64], 1.0),
            message: "tensor `model.layers.9.input_layernorm.weight` is not part of a llama model with this configuration",
            hint: other(),
            ..Case::DEFAULT
        },
        Case {
            name: "of the last layer that there can be",
            damage: |dir| add_tensor(dir, &format!("model.layers.{}.input_layernorm.weight", usize::MAX), &[64], 1.0),
            message: "tensor `model.layers.18446744073709551615.input_layernorm.weight` is not part of a llama model with this \
                configuration",
            hint: other(),
            ..Case::DEFAULT
        },
        Case {
            name: "two of one name",
            model: || TestModel::tiny(Family::Gpt2),
            damage: |dir| add_tensor(dir, "wte.weight", &[320, 64], 1.0),
            message: "tensor `wte.weight` stands for `model.embed_tokens.weight`, and another tensor does too",
            hint: None,
        },
        Case {
            name: "an empty one",
            damage: |dir| add_tensor(dir, "model.nothing", &[0], 1.0),
            message: "tensor `model.nothing` is not part of a llama model with this configuration",
            hint: other(),
            ..Case::DEFAULT
        },
        Case {
            name: "a tied head that is not the embedding",
            damage: |dir| add_head(dir, 0.25),
            message: "tensor `lm_head.weight` differs from `model.embed_tokens.weight`, although `tie_word_embeddings` \
                makes them one",
            hint: Some(Hint::UntieOrDropHead),
            ..Case::DEFAULT
        },
        Case {
            name: "a tied head of another shape",
            damage: |dir| add_tensor(dir, "lm_head.weight", &[64, 320], 0.0),
            message: "tensor `lm_head.weight` differs from `model.embed_tokens.weight`, although `tie_word_embeddings` \
                makes them one",
            hint: Some(Hint::UntieOrDropHead),
            ..Case::DEFAULT
        },
    ];
    Case::check_all(&cases);
}

#[test]
fn tables_that_can_be_computed_and_the_copy_of_a_tied_head_are_harmless() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("model");
    TestModel::tiny(Family::Llama).write(&dir).unwrap();
    let compiled = |name: &str| {
        let mut target = FakeTarget::default();
        let mut options = CompileOptions::new(&dir, place.path().join(name));
        (options.ars, options.cls) = (vec![1], vec![16]);
        compile_with(&options, &mut target, &mut Silent).unwrap();
        target.saved.take()
    };
    let plain = compiled("plain");
    add_tensor(&dir, "model.layers.0.self_attn.rotary_emb.inv_freq", &[8], 1.0);
    add_tensor(&dir, "model.rotary_emb.inv_freq", &[8], 1.0);
    add_tensor(&dir, "model.layers.1.self_attn.masked_bias", &[], -1e4);
    add_head(&dir, 0.0);
    assert!(compiled("with") == plain, "the same graphs");
}
