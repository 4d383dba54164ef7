//! `genie compile` of Hugging Face folders that are not what they say: exit code, message, hint, and nothing left behind.

use std::path::Path;
use std::process::{Command, Output};

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::{Value, json};

use crate::program::{genie, stderr};

fn compile(place: &Path, model: &Path) -> Output {
    genie(place, &["compile", model.to_str().unwrap(), "-o", "bundle", "--ar", "1", "--cl", "32"])
}

fn small() -> TestModel {
    TestModel { hidden: 32, heads: 2, kv_heads: 1, ffn: 32, ..TestModel::tiny(Family::Llama) }
}

fn set(dir: &Path, file: &str, key: &str, value: Value) {
    let path = dir.join(file);
    let mut document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    document[key] = value;
    std::fs::write(path, document.to_string()).unwrap();
}

/// Adds an f32 tensor of zeros.
fn add_tensor(dir: &Path, name: &str, width: usize) {
    let path = dir.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let end = bytes.len() - 8 - length;
    header[name] = json!({ "dtype": "F32", "shape": [width], "data_offsets": [end, end + 4 * width] });
    let header = header.to_string();
    let all =
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &bytes[8 + length..], &vec![0; 4 * width]].concat();
    std::fs::write(path, all).unwrap();
}

struct Case {
    /// Row or section of the list of failures.
    name: &'static str,
    change: fn(&Path),
    error: &'static str,
    hint: &'static str,
}

const SOMETHING_UNKNOWN: &str = "hint: text generated without it would be wrong: ";

#[test]
fn what_a_folder_says_is_used_or_refused_by_name() {
    let cases = [
        Case {
            name: "row 6: fewer layers said than there are",
            change: |d| set(d, "config.json", "num_hidden_layers", json!(1)),
            error: "error: `num_hidden_layers` is 1, but the checkpoint has the tensors of 2 layers\n",
            hint: "hint: config.json may belong to another model\n",
        },
        Case {
            name: "row 6: an extra bias",
            change: |d| add_tensor(d, "model.layers.1.self_attn.q_proj.bias", 32),
            error: "error: tensor `model.layers.1.self_attn.q_proj.bias` is not part of a llama model with this configuration\n",
            hint: "hint: if the model has it, set `attention_bias` to true in config.json; else remove the tensor\n",
        },
        Case {
            name: "row 6: an extra norm",
            change: |d| add_tensor(d, "model.layers.0.post_feedforward_layernorm.weight", 32),
            error: "error: tensor `model.layers.0.post_feedforward_layernorm.weight` is not part of a llama model",
            hint: SOMETHING_UNKNOWN,
        },
        Case {
            name: "section 4: a wrong type",
            change: |d| set(d, "config.json", "hidden_size", json!("192")),
            error: "error: bad `hidden_size` in `model/config.json`: found \"192\", expected a whole number from 1 to 16777216\n",
            hint: "",
        },
        Case {
            name: "section 3: rope_scaling as a list",
            change: |d| set(d, "config.json", "rope_scaling", json!([])),
            error: "error: bad `rope_scaling` in `model/config.json`: found [], expected an object\n",
            hint: "",
        },
        Case {
            name: "section 3: final_logit_softcapping",
            change: |d| set(d, "config.json", "final_logit_softcapping", json!(30.0)),
            error: "error: unknown key `final_logit_softcapping` in `model/config.json`, found 30.0: it may change what the model computes\n",
            hint: "hint: this compiler does not know it; if the model computes the same without it, remove `final_logit_softcapping` from the file\n",
        },
        Case {
            name: "section 3: a model_type of another family",
            change: |d| set(d, "config.json", "model_type", json!("gemma3")),
            error: "error: bad `model_type` in `model/config.json`: found \"gemma3\", expected \"llama\", the type of `LlamaForCausalLM`\n",
            hint: "",
        },
        Case {
            name: "section 3: a temperature that `run` refuses",
            change: |d| set(d, "generation_config.json", "temperature", json!(1e300)),
            error: "error: bad `temperature` in `model/generation_config.json`: found 1e+300, expected a number from 0 to 3.4e38\n",
            hint: "",
        },
        Case {
            name: "section 4: a folder in place of the weights",
            change: |d| {
                std::fs::remove_file(d.join("model.safetensors")).unwrap();
                std::fs::create_dir(d.join("model.safetensors")).unwrap();
            },
            error: "error: `model/model.safetensors` is an empty folder, expected a file\n",
            hint: "",
        },
        Case {
            name: "section 4: tokenizer.model only",
            change: |d| std::fs::rename(d.join("tokenizer.json"), d.join("tokenizer.model")).unwrap(),
            error: "error: `model` has no tokenizer.json\n",
            hint: "hint: only `tokenizer.model` is there: write tokenizer.json with transformers",
        },
        Case {
            name: "a torn config",
            change: |d| std::fs::write(d.join("config.json"), "{\n \"hidden_size\": 3").unwrap(),
            error: "error: `model/config.json` cannot be read as JSON: it ends in the middle, at line 2\n",
            hint: "",
        },
        Case {
            name: "a key twice",
            change: |d| std::fs::write(d.join("config.json"), "{\"rope_theta\": 1e4, \"rope_theta\": 5e5}").unwrap(),
            error: "error: `model/config.json` cannot be read as JSON: key `rope_theta` comes twice at line 1 column ",
            hint: "",
        },
    ];
    for case in cases {
        let place = tempfile::tempdir().unwrap();
        let model = place.path().join("model");
        small().write(&model).unwrap();
        (case.change)(&model);
        let output = compile(place.path(), Path::new("model"));
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{}: {text}", case.name);
        assert!(text.starts_with(case.error), "{}: {text}", case.name);
        assert!(
            text.contains(case.hint) && (!case.hint.is_empty() || !text.contains("hint:")),
            "{}: {text}",
            case.name
        );
        assert!(output.stdout.is_empty() && !place.path().join("bundle").exists(), "{}", case.name);
        let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "model" || name == "cache"), "{}: {left:?}", case.name);
    }
}

#[test]
fn what_is_no_model_is_named() {
    let place = tempfile::tempdir().unwrap();
    small().write(&place.path().join("model")).unwrap();
    std::fs::create_dir(place.path().join("empty")).unwrap();
    std::fs::create_dir(place.path().join("made")).unwrap();
    std::fs::write(place.path().join("made/genie_config.json"), "{}").unwrap();
    let pass = "hint: pass a folder with config.json, safetensors and tokenizer.json, or a GGUF file\n";
    let cases = [
        // Row 20: "cannot read `/no/such/model/config.json`".
        (
            "/no/such/model",
            "error: `/no/such/model` does not exist, expected the folder of a model or a GGUF file\n",
            pass,
        ),
        ("empty", "error: `empty` has no config.json, expected the folder of a model\n", pass),
        (
            "model/model.safetensors",
            "error: `model/model.safetensors` is a safetensors file, expected the folder of a model",
            pass,
        ),
        ("model/config.json", "error: `model/config.json` is ", pass),
        ("made", "error: `made` is a bundle's folder, expected the folder of a model", "hint: it is compiled already"),
        ("/dev/null", "error: `/dev/null` is a device, expected the folder of a model", pass),
    ];
    for (path, error, hint) in cases {
        let output = compile(place.path(), Path::new(path));
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{path}: {text}");
        assert!(text.starts_with(error) && text.contains(hint), "{path}: {text}");
    }
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_refused_at_once() {
    // Section 3: a fifo hung, a link to /dev/zero was read until the memory ended.
    for file in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        for (kind, found) in
            [("fifo", "a named pipe (fifo)"), ("zero", "a device"), ("gone", "a link to `gone`, which does not exist")]
        {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("model").join(file);
            small().write(&place.path().join("model")).unwrap();
            std::fs::remove_file(&path).unwrap();
            match kind {
                "fifo" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
                "zero" => std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
                _ => std::os::unix::fs::symlink("gone", &path).unwrap(),
            }
            let output = compile(place.path(), Path::new("model"));
            let begin = format!("error: `model/{file}` is {found}, expected a file\n");
            assert!(stderr(&output).starts_with(&begin), "{}", stderr(&output));
            assert_eq!(output.status.code(), Some(1));
        }
    }
}

#[test]
fn what_is_left_unread_is_noted() {
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    small().write(&model).unwrap();
    set(&model, "config.json", "favourite_colour", json!("blue"));
    set(&model, "generation_config.json", "repetition_penalty", json!(1.1));
    std::fs::write(model.join("adapter_config.json"), "{}").unwrap();
    let output = compile(place.path(), &model);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for note in [
        "note: config.json has keys that are not known and were not read: `favourite_colour`\n",
        "note: generation_config.json recommends what a bundle does not carry: `repetition_penalty` 1.1\n",
        "note: the adapter of adapter_config.json is not applied\n",
    ] {
        assert!(text.contains(note), "{note}: {text}");
    }
}
