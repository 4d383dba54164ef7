//! Broken checkpoints, each with the message it gives; and exact widening.

use super::*;
use crate::Hint;
use crate::family::Family;
use crate::testing::{Case, edit, edit_tensors};
use crate::testmodel::{FileDtype, TestModel};
use serde_json::{Value, json};

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

fn sharded() -> TestModel {
    TestModel { shards: 2, ..TestModel::tiny(Family::Llama) }
}

/// Puts an f32 into a tensor's data, by element.
fn poke(dir: &Path, name: &str, element: usize, value: f32) {
    edit_tensors(&dir.join(WEIGHTS), |header, data| {
        let at = header[name]["data_offsets"][0].as_u64().unwrap() as usize + 4 * element;
        data[at..at + 4].copy_from_slice(&value.to_le_bytes());
    });
}

fn rename(header: &mut Value, from: &str, to: &str) {
    let entry = header.as_object_mut().unwrap().remove(from).unwrap();
    header[to] = entry;
}

#[test]
fn broken_checkpoints_are_refused_by_name() {
    let download_again = || Some(Hint::DownloadAgain);
    let cases = [
        Case {
            name: "no weights",
            damage: |dir| std::fs::remove_file(dir.join(WEIGHTS)).unwrap(),
            message: "no checkpoint in `{dir}`: neither model.safetensors nor model.safetensors.index.json",
            hint: Some(Hint::ModelDirectory),
            ..Case::DEFAULT
        },
        Case {
            name: "pickled weights",
            damage: |dir| std::fs::rename(dir.join(WEIGHTS), dir.join("pytorch_model.bin")).unwrap(),
            message: "no checkpoint in `{dir}`: neither model.safetensors nor model.safetensors.index.json",
            hint: Some(Hint::ConvertToSafetensors("pytorch_model.bin".into())),
            ..Case::DEFAULT
        },
        Case {
            name: "empty file",
            damage: |dir| std::fs::write(dir.join(WEIGHTS), [1, 2, 3]).unwrap(),
            message: "`{dir}/model.safetensors` is damaged: 3 bytes, too short for a header length",
            hint: download_again(),
            ..Case::DEFAULT
        },
        Case {
            name: "a page saved in place of the file",
            damage: |dir| std::fs::write(dir.join(WEIGHTS), "<!DOCTYPE html><html>").unwrap(),
            message: "`{dir}/model.safetensors` is not a safetensors file: \
                it is a web page (the error page of a download?)",
            ..Case::DEFAULT
        },
        Case {
            name: "truncated within the header",
            damage: |dir| {
                let bytes = std::fs::read(dir.join(WEIGHTS)).unwrap();
                std::fs::write(dir.join(WEIGHTS), [&1000_u64.to_le_bytes(), &bytes[8..108]].concat()).unwrap();
            },
            message: "`{dir}/model.safetensors` is damaged: its header ends at byte 1008, the file at 108",
            hint: download_again(),
            ..Case::DEFAULT
        },
        Case {
            name: "header is no JSON",
            damage: |dir| {
                std::fs::write(dir.join(WEIGHTS), [&4_u64.to_le_bytes()[..], b"oops"].concat()).unwrap();
            },
            message: "`{dir}/model.safetensors` is not a safetensors file: \
                its header is not a JSON object: expected value at line 1 column 1",
            ..Case::DEFAULT
        },
        Case {
            name: "truncated within the data",
            damage: |dir| edit_tensors(&dir.join(WEIGHTS), |_, data| data.truncate(data.len() - 10)),
            message: "`{dir}/model.safetensors` is damaged: its tensors end at byte 331013, the file at 331003",
            hint: download_again(),
            ..Case::DEFAULT
        },
        Case {
            name: "more data than the header names",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| {
                    header.as_object_mut().unwrap().remove("model.norm.weight");
                });
            },
            message: "`{dir}/model.safetensors` is damaged: the 256 bytes after its last tensor, \
                `model.layers.1.mlp.down_proj.weight`, are of no tensor",
            hint: download_again(),
            ..Case::DEFAULT
        },
        Case {
            name: "offsets do not fit the shape",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| header["model.norm.weight"]["shape"] = json!([63]))
            },
            message: "bad entry for tensor `model.norm.weight` in `{dir}/model.safetensors`: \
                F32 [63] does not fill 256 bytes",
            ..Case::DEFAULT
        },
        Case {
            name: "shape overflows",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| {
                    header["model.norm.weight"]["shape"] = json!([1_u64 << 40, 1_u64 << 40]);
                });
            },
            message: "bad entry for tensor `model.norm.weight` in `{dir}/model.safetensors`: \
                shape [1099511627776, 1099511627776] overflows",
            ..Case::DEFAULT
        },
        Case {
            name: "data ends before it begins",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| {
                    header["model.norm.weight"]["data_offsets"] = json!([8, 4])
                });
            },
            message: "bad entry for tensor `model.norm.weight` in `{dir}/model.safetensors`: \
                its data ends at 4, before it begins at 8",
            ..Case::DEFAULT
        },
        Case {
            name: "two tensors share bytes",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| {
                    header["model.norm.weight"]["data_offsets"] = json!([0, 256]);
                });
            },
            message: "bad entry for tensor `model.embed_tokens.weight` in `{dir}/model.safetensors`: \
                overlaps the tensor before it",
            ..Case::DEFAULT
        },
        Case {
            name: "an entry without a shape",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| {
                    header["model.norm.weight"] = json!({ "dtype": "F32", "data_offsets": [0, 256] });
                });
            },
            message: "bad entry for tensor `model.norm.weight` in `{dir}/model.safetensors`: it has no `shape`",
            ..Case::DEFAULT
        },
        Case {
            name: "a tensor under another name",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| {
                    rename(header, "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_projection.weight");
                });
            },
            message: "tensor `model.layers.1.mlp.up_proj.weight` is missing: the checkpoint has 20 others",
            hint: Some(Hint::MissingTensor {
                near: ["0.mlp.up_proj", "1.mlp.down_proj", "1.mlp.gate_proj"]
                    .map(|part| format!("model.layers.{part}.weight"))
                    .into(),
                maybe_tied: false,
            }),
            ..Case::DEFAULT
        },
        Case {
            name: "an untied model without a head",
            damage: |dir| crate::testing::set(dir, "tie_word_embeddings", json!(false)),
            message: "tensor `lm_head.weight` is missing: the checkpoint has 20 others",
            hint: Some(Hint::MissingTensor { near: Vec::new(), maybe_tied: true }),
            ..Case::DEFAULT
        },
        Case {
            name: "another shape",
            damage: |dir| crate::testing::set(dir, "intermediate_size", json!(97)),
            message: "tensor `model.layers.0.mlp.gate_proj.weight` has shape [96, 64], expected [97, 64]",
            hint: Some(Hint::OtherConfig),
            ..Case::DEFAULT
        },
        Case {
            name: "an integer tensor",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| header["model.norm.weight"]["dtype"] = json!("I32"));
            },
            message: "tensor `model.norm.weight` has element type I32, expected F32, F16 or BF16",
            hint: Some(Hint::UnquantisedCheckpoint),
            ..Case::DEFAULT
        },
        Case {
            name: "a tensor twice in the header (section 3)",
            damage: |dir| {
                let path = dir.join(WEIGHTS);
                let bytes = std::fs::read(&path).unwrap();
                let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
                let again = br#""model.norm.weight":{"dtype":"F32","shape":[64],"data_offsets":[0,256]},"#;
                let header = [b"{", &again[..], &bytes[9..8 + n]].concat();
                std::fs::write(path, [&(header.len() as u64).to_le_bytes(), &*header, &bytes[8 + n..]].concat())
                    .unwrap();
            },
            message: "`{dir}/model.safetensors` is not a safetensors file: its header is not a JSON object: \
                key `model.norm.weight` comes twice at line 1 column 2117",
            ..Case::DEFAULT
        },
        Case {
            name: "a type that is no string",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| header["model.norm.weight"]["dtype"] = json!(32));
            },
            message: "bad entry for tensor `model.norm.weight` in `{dir}/model.safetensors`: \
                its `dtype` is 32, expected a string",
            ..Case::DEFAULT
        },
        Case {
            name: "a negative extent",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| header["model.norm.weight"]["shape"] = json!([-64]));
            },
            message: "bad entry for tensor `model.norm.weight` in `{dir}/model.safetensors`: \
                its `shape` is [-64], expected a list of whole numbers",
            ..Case::DEFAULT
        },
        Case {
            name: "three offsets",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |h, _| h["model.norm.weight"]["data_offsets"] = json!([0, 256, 1]));
            },
            message: "bad entry for tensor `model.norm.weight` in `{dir}/model.safetensors`: \
                its `data_offsets` is [0,256,1], expected two whole numbers",
            ..Case::DEFAULT
        },
        Case {
            name: "a key that no entry has",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| header["model.norm.weight"]["scale"] = json!(2));
            },
            message: "bad entry for tensor `model.norm.weight` in `{dir}/model.safetensors`: unknown key `scale`",
            ..Case::DEFAULT
        },
        Case {
            name: "an entry that is no object",
            damage: |dir| edit_tensors(&dir.join(WEIGHTS), |header, _| header["model.norm.weight"] = json!([64])),
            message: "bad entry for tensor `model.norm.weight` in `{dir}/model.safetensors`: \
                found [64], expected an object",
            ..Case::DEFAULT
        },
        Case {
            name: "eight-bit floats",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| {
                    header["model.norm.weight"]["dtype"] = json!("F8_E4M3");
                    header["model.norm.weight"]["shape"] = json!([256]);
                });
            },
            message: "tensor `model.norm.weight` has element type F8_E4M3, expected F32, F16 or BF16",
            hint: Some(Hint::UnquantisedCheckpoint),
            ..Case::DEFAULT
        },
        Case {
            name: "double floats",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| {
                    header["model.norm.weight"]["dtype"] = json!("F64");
                    header["model.norm.weight"]["shape"] = json!([32]);
                });
            },
            message: "tensor `model.norm.weight` has element type F64, expected F32, F16 or BF16",
            hint: Some(Hint::SaveAsFloat),
            ..Case::DEFAULT
        },
        Case {
            name: "eight-bit floats that do not fill their bytes",
            damage: |dir| {
                edit_tensors(&dir.join(WEIGHTS), |header, _| header["model.norm.weight"]["dtype"] = json!("F8_E4M3"));
            },
            message: "bad entry for tensor `model.norm.weight` in `{dir}/model.safetensors`: \
                F8_E4M3 [64] does not fill 256 bytes",
            ..Case::DEFAULT
        },
        Case {
            name: "a pointer of git-lfs in place of the file",
            damage: |dir| {
                let text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123456789\n";
                std::fs::write(dir.join(WEIGHTS), text).unwrap();
            },
            message: "`{dir}/model.safetensors` is not a safetensors file: \
                it is a Git LFS pointer (the file itself was not downloaded)",
            ..Case::DEFAULT
        },
        Case {
            name: "a folder in place of the file",
            damage: |dir| {
                std::fs::remove_file(dir.join(WEIGHTS)).unwrap();
                std::fs::create_dir(dir.join(WEIGHTS)).unwrap();
            },
            message: "`{dir}/model.safetensors` is an empty folder, expected a file",
            ..Case::DEFAULT
        },
        Case {
            name: "NaN in the embedding",
            damage: |dir| poke(dir, "model.embed_tokens.weight", 319 * 64 + 63, f32::NAN),
            message: "tensor `model.embed_tokens.weight` has NaN at index [319, 63]: weights must be finite",
            ..Case::DEFAULT
        },
        Case {
            name: "not a number",
            damage: |dir| poke(dir, "model.layers.1.self_attn.k_proj.weight", 2 * 64 + 5, f32::NAN),
            message: "tensor `model.layers.1.self_attn.k_proj.weight` has NaN at index [2, 5]: weights must be finite",
            ..Case::DEFAULT
        },
        Case {
            name: "infinite",
            damage: |dir| poke(dir, "model.norm.weight", 63, f32::NEG_INFINITY),
            message: "tensor `model.norm.weight` has -inf at index [63]: weights must be finite",
            ..Case::DEFAULT
        },
        Case {
            name: "too large for a half",
            damage: |dir| poke(dir, "model.embed_tokens.weight", 64 * 319 + 1, -65505.0),
            message: "tensor `model.embed_tokens.weight` has -65505 at index [319, 1], \
                which float16 cannot hold (largest 65504)",
            hint: Some(Hint::PrecisionF32),
            ..Case::DEFAULT
        },
        Case {
            name: "index is no JSON",
            model: sharded,
            damage: |dir| std::fs::write(dir.join(INDEX), "{").unwrap(),
            message: "`{dir}/model.safetensors.index.json` cannot be read as JSON: it ends in the middle, at line 1",
            ..Case::DEFAULT
        },
        Case {
            name: "index names nothing",
            model: sharded,
            damage: |dir| std::fs::write(dir.join(INDEX), r#"{"weight_map":{}}"#).unwrap(),
            message: "`{dir}/model.safetensors.index.json` names no tensors",
            ..Case::DEFAULT
        },
        Case {
            name: "a shard is missing",
            model: sharded,
            damage: |dir| std::fs::remove_file(dir.join("model-00002-of-00002.safetensors")).unwrap(),
            message: "`{dir}/model.safetensors.index.json` names 2 shards, \
                missing: `model-00002-of-00002.safetensors`",
            hint: download_again(),
        },
        Case {
            name: "no shard",
            model: sharded,
            damage: |dir| edit(dir, INDEX, |index| index["weight_map"]["model.norm.weight"] = json!("")),
            message: "bad `weight_map.model.norm.weight` in `{dir}/model.safetensors.index.json`: found \"\", expected the name of a file",
            ..Case::DEFAULT
        },
        Case {
            name: "a folder as a shard",
            model: sharded,
            damage: |dir| edit(dir, INDEX, |index| index["weight_map"]["model.norm.weight"] = json!("..")),
            message: "bad `weight_map.model.norm.weight` in `{dir}/model.safetensors.index.json`: found \"..\", expected the name of a file",
            ..Case::DEFAULT
        },
        Case {
            name: "a shard elsewhere",
            model: sharded,
            damage: |dir| {
                edit(dir, INDEX, |index| index["weight_map"]["model.norm.weight"] = json!("../x.safetensors"))
            },
            message: "`{dir}/model.safetensors.index.json` points outside its directory: shard `../x.safetensors`",
            ..Case::DEFAULT
        },
        Case {
            name: "the shard does not have it",
            model: sharded,
            damage: |dir| {
                edit(dir, INDEX, |index| {
                    index["weight_map"]["model.norm.weight"] = json!("model-00001-of-00002.safetensors");
                });
            },
            message: "`{dir}/model.safetensors.index.json` puts tensor `model.norm.weight` in shard \
                `model-00001-of-00002.safetensors`, which does not have it",
            ..Case::DEFAULT
        },
        Case {
            name: "a tensor of a shard that the index does not name",
            model: sharded,
            damage: |dir| {
                edit(dir, INDEX, |index| {
                    index["weight_map"].as_object_mut().unwrap().remove("model.norm.weight");
                });
            },
            message: "shard `model-00002-of-00002.safetensors` has tensor `model.norm.weight`, \
                which `{dir}/model.safetensors.index.json` does not place there",
            hint: download_again(),
        },
        Case {
            name: "an index without a map",
            model: sharded,
            damage: |dir| std::fs::write(dir.join(INDEX), r#"{"weight_maps":{}}"#).unwrap(),
            message: "`{dir}/model.safetensors.index.json` has no `weight_map`: expected an object",
            hint: Some(Hint::SimilarKeys { near: vec!["weight_maps".into()] }),
        },
        Case {
            name: "a shard that is a number",
            model: sharded,
            damage: |dir| edit(dir, INDEX, |index| index["weight_map"]["model.norm.weight"] = json!(1)),
            message: "bad `weight_map.model.norm.weight` in `{dir}/model.safetensors.index.json`: found 1, \
                expected the name of a file",
            ..Case::DEFAULT
        },
        Case {
            name: "a truncated shard",
            model: sharded,
            damage: |dir| std::fs::write(dir.join("model-00001-of-00002.safetensors"), "").unwrap(),
            message: "`{dir}/model-00001-of-00002.safetensors` is damaged: 0 bytes, too short for a header length",
            hint: download_again(),
        },
    ];
    Case::check_all(&cases);
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_named_and_never_waited_for() {
    let cases = [
        Case {
            name: "a link to nothing",
            damage: |dir| {
                std::fs::remove_file(dir.join(WEIGHTS)).unwrap();
                std::os::unix::fs::symlink("gone", dir.join(WEIGHTS)).unwrap();
            },
            message: "`{dir}/model.safetensors` is a link to `gone`, which does not exist, expected a file",
            ..Case::DEFAULT
        },
        Case {
            name: "a pipe",
            damage: |dir| {
                std::fs::remove_file(dir.join(WEIGHTS)).unwrap();
                pipe(&dir.join(WEIGHTS));
            },
            message: "`{dir}/model.safetensors` is a named pipe (fifo), expected a file",
            ..Case::DEFAULT
        },
        Case {
            name: "config.json a pipe (section 3)",
            damage: |dir| {
                std::fs::remove_file(dir.join("config.json")).unwrap();
                pipe(&dir.join("config.json"));
            },
            message: "`{dir}/config.json` is a named pipe (fifo), expected a file",
            ..Case::DEFAULT
        },
        Case {
            name: "config.json a link to /dev/zero (section 3)",
            damage: |dir| {
                std::fs::remove_file(dir.join("config.json")).unwrap();
                std::os::unix::fs::symlink("/dev/zero", dir.join("config.json")).unwrap();
            },
            message: "`{dir}/config.json` is a device, expected a file",
            ..Case::DEFAULT
        },
        Case {
            name: "generation_config.json a pipe",
            damage: |dir| {
                std::fs::remove_file(dir.join("generation_config.json")).unwrap();
                pipe(&dir.join("generation_config.json"));
            },
            message: "`{dir}/generation_config.json` is a named pipe (fifo), expected a file",
            ..Case::DEFAULT
        },
        Case {
            name: "a shard a pipe",
            model: sharded,
            damage: |dir| {
                std::fs::remove_file(dir.join("model-00001-of-00002.safetensors")).unwrap();
                pipe(&dir.join("model-00001-of-00002.safetensors"));
            },
            message: "`{dir}/model-00001-of-00002.safetensors` is a named pipe (fifo), expected a file",
            ..Case::DEFAULT
        },
        Case {
            name: "config.json of a gigabyte",
            damage: |dir| {
                let file = std::fs::OpenOptions::new().write(true).open(dir.join("config.json")).unwrap();
                file.set_len(1 << 30).unwrap();
            },
            message: "`{dir}/config.json` is longer than 16777216 bytes, expected a small file",
            ..Case::DEFAULT
        },
    ];
    Case::check_all(&cases);
}

#[cfg(unix)]
fn pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn files_that_are_not_read_are_noted() {
    let place = tempfile::tempdir().unwrap();
    sharded().write(place.path()).unwrap();
    assert!(Checkpoint::open(place.path()).unwrap().notes().is_empty());
    std::fs::write(place.path().join("model-00003-of-00003.safetensors"), "").unwrap();
    std::fs::write(place.path().join("adapter_config.json"), "{}").unwrap();
    assert_eq!(
        Checkpoint::open(place.path()).unwrap().notes(),
        [
            "not read, as they are no part of the checkpoint: model-00003-of-00003.safetensors",
            "the adapter of adapter_config.json is not applied"
        ]
    );
    TestModel::tiny(Family::Llama).write(place.path()).unwrap();
    let notes = Checkpoint::open(place.path()).unwrap().notes().join("; ");
    assert!(
        notes.starts_with("model.safetensors.index.json is not read: model.safetensors holds the weights"),
        "{notes}"
    );
}

#[test]
fn a_weight_of_the_largest_half_is_kept() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("model");
    TestModel::tiny(Family::Llama).write(&dir).unwrap();
    poke(&dir, "model.norm.weight", 0, 65504.0);
    crate::testing::compile(&dir, &place.path().join("bundle"), |_| {}).unwrap();
}

#[test]
fn a_file_that_shrinks_after_opening_is_damaged() {
    let place = tempfile::tempdir().unwrap();
    TestModel::tiny(Family::Llama).write(place.path()).unwrap();
    let checkpoint = Checkpoint::open(place.path()).unwrap();
    std::fs::OpenOptions::new().write(true).open(place.path().join(WEIGHTS)).unwrap().set_len(4000).unwrap();
    let entry = checkpoint.expect("model.norm.weight", &[64]).unwrap();
    let error = for_each_chunk(&checkpoint, "model.norm.weight", entry, &mut |_| Ok(()), |_| Ok(())).unwrap_err();
    assert!(error.to_string().ends_with("is damaged: tensor `model.norm.weight` ends before element 64"), "{error}");
}

#[test]
fn all_types_widen_exactly() {
    for dtype in [FileDtype::F32, FileDtype::F16, FileDtype::Bf16] {
        let place = tempfile::tempdir().unwrap();
        // More elements than one chunk, and not a multiple of it.
        let model = TestModel { vocab: 1111, dtype, ..TestModel::tiny(Family::Llama) };
        model.write(place.path()).unwrap();
        let checkpoint = Checkpoint::open(place.path()).unwrap();
        let name = "model.embed_tokens.weight";
        let mut found = Vec::new();
        let entry = checkpoint.expect(name, &[1111, 64]).unwrap();
        for_each_chunk(&checkpoint, name, entry, &mut |_| Ok(()), |values| {
            found.extend_from_slice(values);
            Ok(())
        })
        .unwrap();

        let bytes = std::fs::read(place.path().join(WEIGHTS)).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let data = file.tensor(name).unwrap().data().to_vec();
        let expected: Vec<f32> = match dtype {
            FileDtype::F32 => data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            FileDtype::F16 => data.as_chunks().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect(),
            FileDtype::Bf16 => data.as_chunks().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect(),
        };
        assert_eq!(found, expected, "{dtype:?}");
    }
}
