//! GGUF files: keys of the metadata, tensors, the file itself.

use std::path::Path;

use anyhow::Result;
use compiler::testmodel::{GgufDraft, GgufValue};
use fuzz_targets::Rng;

use crate::base::{Base, Model, compile, likelihood};
use crate::change::replace_file;
use crate::situation::{Expect, Situation, Step};

fn steps(base: &Base) -> Vec<Step> {
    vec![compile("model.gguf", "bundle"), likelihood("bundle", &base.text())]
}

fn architecture(model: &Model) -> String {
    let value = model.gguf.values.iter().find(|(key, _)| key == "general.architecture").map(|(_, value)| value);
    if let Some(GgufValue::Text(name)) = value { name.clone() } else { String::new() }
}

/// The metadata with a change.
pub(super) fn keys(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    let model = rng.pick(&base.models);
    let mut draft = model.gguf.clone();
    let (at, says) = (rng.below(draft.values.len()), model.gguf_says.clone());
    let (key, old) = draft.values[at].clone();
    let short = key.rsplit('.').next().unwrap_or_default().to_string();
    let mut names = vec![key.clone(), short.clone()];
    // Lengths, ids and names that do not touch the text's likelihood, or only by another key that says the same.
    let without = ["context_length", "bos_token_id", "eos_token_id", "add_bos_token", "pre", "token_type", "merges"]
        .contains(&short.as_str());
    let (what, expect) = match rng.below(5) {
        0 => {
            draft.remove(&key);
            (format!("`{key}` removed"), Expect::Open)
        }
        1 => {
            let new = typed(&old, rng);
            let what = format!("`{key}` is {}", shown(&new));
            // -1 stands for no such token.
            let expect = if new == GgufValue::I32(-1) && without { Expect::Open } else { Expect::Refuse };
            draft.set(&key, new);
            (what, expect)
        }
        2 | 3 if !matches!(old, GgufValue::Texts(_) | GgufValue::I32s(_)) => {
            let new = ranged(&old, rng);
            let same = new == old;
            let what = format!("`{key}` {} -> {}", shown(&old), shown(&new));
            draft.set(&key, new);
            (what, if without || same { Expect::Open } else { Expect::Used(says) })
        }
        2 | 3 => {
            list(&mut draft, &key, rng);
            names.extend(["tokens", "merges", "token_type", "token", "rows"].map(str::to_owned));
            (format!("list `{key}` changed"), Expect::Open)
        }
        _ => {
            let (key, value) = more(&architecture(model), rng);
            let what = format!("`{key}` set to {}", shown(&value));
            names = vec![key.clone()];
            if let GgufValue::Text(text) = &value {
                names.push(text.clone());
            }
            draft.set(&key, value);
            (what, Expect::Used(says))
        }
    };
    // A width that contradicts a tensor is reported with the tensor.
    names.extend(
        ["the width of a head", "token_embd", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_", "blk."]
            .map(String::from),
    );
    std::fs::write(room.join("model.gguf"), draft.bytes())?;
    Ok(Situation::new(what, expect, steps(base)).named(names).early())
}

/// A value of a type that the key cannot have.
fn typed(old: &GgufValue, rng: &mut Rng) -> GgufValue {
    use GgufValue::{Bool, F32, F32s, I32s, Raw, Text, Texts, U32, U32s};
    let choices = match old {
        U32(n) => vec![
            Text(n.to_string()),
            F32(*n as f32 + 0.25),
            Bool(true),
            Texts(vec![n.to_string()]),
            GgufValue::I32(-1),
            U32s(vec![]),
            F32s(vec![1.0]),
        ],
        F32(x) => vec![Text(x.to_string()), Bool(true), F32s(vec![*x]), F32(f32::NAN), F32(-1.0), F32(f32::INFINITY)],
        Text(_) => vec![U32(1), Bool(false), Texts(vec![]), Raw(8, [&2u64.to_le_bytes()[..], &[0xff, 0xfe]].concat())],
        Bool(_) => vec![U32(1), Text("true".into()), F32(1.0), U32s(vec![1])],
        _ => vec![U32(3), Text("a".into()), Bool(true), F32(1.5), I32s(vec![]), F32s(vec![0.5; 3])],
    };
    rng.pick(&choices).clone()
}

fn ranged(old: &GgufValue, rng: &mut Rng) -> GgufValue {
    match old {
        GgufValue::U32(n) => {
            GgufValue::U32(*rng.pick(&[0, n + 1, n * 2, n / 2, n.wrapping_sub(1), 1, 12345, u32::MAX, 1 << 24]))
        }
        GgufValue::F32(x) => GgufValue::F32(*rng.pick(&[0.0, x * 2.0, x * 100.0, 1e38, f32::MIN_POSITIVE])),
        GgufValue::Text(t) => GgufValue::Text(
            rng.pick(&[String::new(), format!("{t}2"), t.to_uppercase(), "\u{1b}[31m".into(), "mamba".into()]).clone(),
        ),
        GgufValue::Bool(b) => GgufValue::Bool(!b),
        other => other.clone(),
    }
}

fn list(draft: &mut GgufDraft, key: &str, rng: &mut Rng) {
    for (k, value) in &mut draft.values {
        if k != key {
            continue;
        }
        match value {
            GgufValue::Texts(all) => match rng.below(6) {
                0 => all.clear(),
                1 => all.truncate(all.len() / 2),
                2 => all.push("one more".into()),
                3 => all[1] = all[0].clone(),
                4 => all[0] = String::new(),
                _ => all[3] = "\u{1b}[2J and more".into(),
            },
            GgufValue::I32s(all) => match rng.below(4) {
                0 => all.clear(),
                1 => all.truncate(all.len() / 2),
                2 => all[0] = -5,
                _ => all[1] = 99,
            },
            _ => {}
        }
    }
}

/// A key that changes what is computed, or what the file is.
fn more(architecture: &str, rng: &mut Rng) -> (String, GgufValue) {
    use GgufValue::{Bool, F32, Text, U32, U32s};
    let all = [
        ("@.rope.scaling.type", Text("yarn".into())),
        ("@.rope.scaling.factor", F32(4.0)),
        ("@.rope.scale_linear", F32(4.0)),
        ("@.rope.dimension_count", U32(8)),
        ("@.attention.causal", Bool(false)),
        ("@.attention.sliding_window", U32(4)),
        ("@.logit_scale", F32(0.25)),
        ("@.final_logit_softcapping", F32(30.0)),
        ("@.attn_logit_softcapping", F32(50.0)),
        ("@.attention.clamp_kqv", F32(8.0)),
        ("@.attention.scale", F32(0.9)),
        ("@.attention.value_length", U32(64)),
        ("@.expert_count", U32(8)),
        ("@.expert_used_count", U32(2)),
        ("@.residual_scale", F32(0.3)),
        ("@.embedding_scale", F32(12.0)),
        ("@.vocab_size", U32(32_000)),
        ("@.pooling_type", U32(1)),
        ("@.attention.layer_norm_epsilon", F32(0.1)),
        ("@.rope.dimension_sections", U32s(vec![8, 8, 8, 0])),
        ("@.nextn_predict_layers", U32(1)),
        ("@.attention.temperature_scale", F32(0.1)),
        ("@.use_parallel_residual", Bool(true)),
        ("@.tensor_data_layout", Text("reversed".into())),
        ("general.type", Text("adapter".into())),
        ("general.alignment", U32(7)),
        ("split.count", U32(3)),
        ("adapter.type", Text("lora".into())),
        ("clip.has_vision_encoder", Bool(true)),
        ("tokenizer.ggml.add_eos_token", Bool(true)),
        // Of a wrong type, whether the kind of tokenizer looks at it or not.
        ("tokenizer.ggml.add_space_prefix", Text("yes".into())),
        ("tokenizer.ggml.add_sep_token", U32(1)),
        ("tokenizer.ggml.scores", Text("none".into())),
    ];
    let (key, value) = rng.pick(&all).clone();
    (key.replace('@', architecture), value)
}

/// The tensors with a change, or the file as a whole.
pub(super) fn tensors(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    let model = rng.pick(&base.models);
    let path = room.join("model.gguf");
    let mut draft = model.gguf.clone();
    if rng.one_in(8) {
        std::fs::write(&path, draft.bytes())?;
        let how = replace_file(&path, rng)?;
        return Ok(Situation::new(format!("the file {how}"), Expect::Refuse, steps(base))
            .named(["model.gguf"])
            .early());
    }
    let at = rng.below(draft.tensors.len());
    let count = draft.tensors.len();
    let tensor = &mut draft.tensors[at];
    let mut names = vec![tensor.name.clone()];
    let mut expect = Expect::Refuse;
    let what = match rng.below(11) {
        0 => {
            tensor.name += "x";
            names.push(tensor.name.clone());
            format!("renamed to `{}`", tensor.name)
        }
        1 => {
            // An absent LM head is the embedding.
            if tensor.name == "output.weight" {
                expect = Expect::Used(model.gguf_says.clone());
            }
            let name = draft.tensors.remove(at).name;
            format!("`{name}` removed")
        }
        2 => {
            let square = tensor.dims.iter().rev().eq(tensor.dims.iter());
            tensor.dims.reverse();
            if square {
                expect = Expect::Same(model.gguf_says.clone());
            }
            format!("dims of `{}` reversed", tensor.name)
        }
        3 => {
            tensor.dims[0] = *rng.pick(&[0, 1, tensor.dims[0] * 2, tensor.dims[0] + 1, 1 << 60]);
            format!("dims of `{}` are {:?}", tensor.name, tensor.dims)
        }
        4 => {
            tensor.ty =
                *rng.pick(&[4, 5, 9, 10, 11, 16, 17, 19, 20, 21, 22, 23, 24, 27, 28, 29, 34, 35, 39, 40, 99, 1 << 31]);
            format!("type of `{}` is {}", tensor.name, tensor.ty)
        }
        5 => {
            let offset = [1, 7, 1 << 40, u64::MAX - 31][rng.below(4)];
            tensor.offset = Some(offset);
            let what = format!("offset of `{}` is {offset}", tensor.name);
            // It may lie on another one: either is named.
            names.extend(draft.tensors.iter().map(|tensor| tensor.name.clone()));
            what
        }
        6 => {
            let bytes = match tensor.ty {
                0 => f32::NAN.to_le_bytes().to_vec(),
                _ => vec![0xff, 0x7f],
            };
            tensor.bytes[..bytes.len()].copy_from_slice(&bytes);
            format!("NaN in `{}`", tensor.name)
        }
        7 => {
            let more = [
                "blk.0.attn_q.bias2",
                "blk.0.attn_sinks.weight",
                "blk.0.ffn_gate_exps.weight",
                "blk.9.ffn_up.weight",
                "output.bias",
                "blk.1.post_attention_norm.weight",
                "token_embd_norm.weight",
                "rope_freqs.weight",
                "v.patch_embd.weight",
                "position_embd.weight",
            ];
            let name = *rng.pick(&more);
            names.push(name.into());
            draft.add(name, &[5], f32::NAN);
            format!("one more tensor, `{name}`")
        }
        8 => {
            let twin = draft.tensors[rng.below(count)].clone();
            names.push(twin.name.clone());
            let name = twin.name.clone();
            draft.tensors.push(twin);
            format!("`{name}` comes twice")
        }
        9 => {
            tensor.dims.push(1);
            tensor.dims.extend(vec![1; rng.below(5)]);
            format!("`{}` has dims {:?}", tensor.name, tensor.dims)
        }
        _ => {
            let bytes = draft.bytes();
            let cut = 1 + rng.below(bytes.len() - 40);
            std::fs::write(&path, &bytes[..cut])?;
            let all = draft.tensors.iter().map(|tensor| tensor.name.clone()).chain(["model.gguf".into()]);
            let what = format!("cut at {cut} of {}", bytes.len());
            return Ok(Situation::new(what, Expect::Refuse, steps(base)).named(all).early());
        }
    };
    std::fs::write(&path, draft.bytes())?;
    Ok(Situation::new(what, expect, steps(base)).named(names).early())
}

fn shown(value: &GgufValue) -> String {
    format!("{value:?}").chars().take(60).collect()
}
