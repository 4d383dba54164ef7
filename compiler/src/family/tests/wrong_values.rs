//! Each key of the configuration with each wrong type, and with numbers out of its range: the message has the key, what was found
//! and what was expected, in words of the format and not of this program.

use super::*;
use std::fmt::Write as _;

/// What a key holds.
#[derive(Clone, Copy)]
enum Kind {
    /// A whole number in this range.
    Count(u64, u64),
    /// A number in this range.
    Number(f64, f64),
    Text,
    Texts,
    Flag,
    /// One id or several.
    Ids,
    /// One whole number, from -1 on.
    Whole,
    Object,
}

impl Kind {
    fn wrong_values(self) -> Vec<Value> {
        let mut all = vec![
            json!("64"),
            json!(""),
            json!("a\u{1b}[31mb"),
            json!(64),
            json!(0.5),
            json!(true),
            json!([]),
            json!(["64"]),
            json!([[64]]),
            json!([2.5]),
            json!({}),
            json!({ "a": 1 }),
            json!(-2),
            json!(1e300),
            json!(u64::MAX),
        ];
        let of_this_type: fn(&Value) -> bool = match self {
            Self::Count(..) | Self::Number(..) => |v| v.as_u64() == Some(64),
            Self::Text => Value::is_string,
            Self::Texts => |v| v.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
            Self::Flag => Value::is_boolean,
            Self::Ids => |v| *v == json!([]) || *v == 64,
            Self::Whole => |v| *v == 64,
            Self::Object => Value::is_object,
        };
        all.retain(|value| !of_this_type(value));
        match self {
            Self::Count(least, most) => {
                all.extend(least.checked_sub(1).map(|n| json!(n)));
                all.push(json!(most + 1));
            }
            Self::Number(least, most) => {
                all.retain(|v| !v.as_f64().is_some_and(|n| (least..=most).contains(&n)));
                all.push(json!(least - 1.0));
            }
            _ => {}
        }
        all
    }
}

struct Key {
    file: &'static str,
    /// Where it is, with full stops between names.
    name: &'static str,
    kind: Kind,
    needed: bool,
}

const CONFIG_JSON: &str = "config.json";
const GENERATION: &str = "generation_config.json";
const MANY: u64 = 1 << 16;
const WIDE: u64 = 1 << 24;

#[rustfmt::skip]
const KEYS: &[Key] = &[
    Key { file: CONFIG_JSON, name: "architectures", kind: Kind::Texts, needed: false },
    Key { file: CONFIG_JSON, name: "model_type", kind: Kind::Text, needed: false },
    Key { file: CONFIG_JSON, name: "vocab_size", kind: Kind::Count(1, i32::MAX as u64), needed: true },
    Key { file: CONFIG_JSON, name: "hidden_size", kind: Kind::Count(1, WIDE), needed: true },
    Key { file: CONFIG_JSON, name: "intermediate_size", kind: Kind::Count(1, WIDE), needed: true },
    Key { file: CONFIG_JSON, name: "num_hidden_layers", kind: Kind::Count(1, MANY), needed: true },
    Key { file: CONFIG_JSON, name: "num_attention_heads", kind: Kind::Count(1, MANY), needed: true },
    Key { file: CONFIG_JSON, name: "num_key_value_heads", kind: Kind::Count(1, MANY), needed: false },
    Key { file: CONFIG_JSON, name: "head_dim", kind: Kind::Count(2, MANY), needed: false },
    Key { file: CONFIG_JSON, name: "max_position_embeddings", kind: Kind::Count(1, u32::MAX as u64), needed: false },
    Key { file: CONFIG_JSON, name: "rms_norm_eps", kind: Kind::Number(0.0, 1.0), needed: false },
    Key { file: CONFIG_JSON, name: "hidden_act", kind: Kind::Text, needed: false },
    Key { file: CONFIG_JSON, name: "tie_word_embeddings", kind: Kind::Flag, needed: false },
    Key { file: CONFIG_JSON, name: "attention_bias", kind: Kind::Flag, needed: false },
    Key { file: CONFIG_JSON, name: "mlp_bias", kind: Kind::Flag, needed: false },
    Key { file: CONFIG_JSON, name: "rope_theta", kind: Kind::Number(1.0, f64::MAX), needed: false },
    Key { file: CONFIG_JSON, name: "rope_scaling", kind: Kind::Object, needed: false },
    Key { file: CONFIG_JSON, name: "rope_parameters", kind: Kind::Object, needed: false },
    Key { file: CONFIG_JSON, name: "rope_scaling.rope_type", kind: Kind::Text, needed: true },
    Key { file: CONFIG_JSON, name: "rope_scaling.type", kind: Kind::Text, needed: false },
    Key { file: CONFIG_JSON, name: "rope_scaling.rope_theta", kind: Kind::Number(1.0, f64::MAX), needed: false },
    Key { file: CONFIG_JSON, name: "rope_scaling.factor", kind: Kind::Number(1e-300, f64::MAX), needed: true },
    Key { file: CONFIG_JSON, name: "rope_scaling.low_freq_factor", kind: Kind::Number(1e-300, f64::MAX), needed: true },
    Key { file: CONFIG_JSON, name: "rope_scaling.high_freq_factor", kind: Kind::Number(1e-300, f64::MAX), needed: true },
    Key { file: CONFIG_JSON, name: "rope_scaling.original_max_position_embeddings", kind: Kind::Number(1.0, f64::MAX), needed: true },
    Key { file: CONFIG_JSON, name: "rope_scaling.partial_rotary_factor", kind: Kind::Number(0.0, 1.0), needed: false },
    Key { file: CONFIG_JSON, name: "partial_rotary_factor", kind: Kind::Number(0.0, 1.0), needed: false },
    Key { file: CONFIG_JSON, name: "use_sliding_window", kind: Kind::Flag, needed: false },
    Key { file: CONFIG_JSON, name: "sliding_window", kind: Kind::Count(0, u32::MAX as u64), needed: false },
    Key { file: CONFIG_JSON, name: "max_window_layers", kind: Kind::Count(0, MANY), needed: false },
    Key { file: CONFIG_JSON, name: "layer_types", kind: Kind::Texts, needed: false },
    Key { file: CONFIG_JSON, name: "num_experts", kind: Kind::Count(0, MANY), needed: false },
    Key { file: CONFIG_JSON, name: "num_local_experts", kind: Kind::Count(0, MANY), needed: false },
    Key { file: CONFIG_JSON, name: "n_routed_experts", kind: Kind::Count(0, MANY), needed: false },
    Key { file: CONFIG_JSON, name: "quantization_config", kind: Kind::Object, needed: false },
    Key { file: CONFIG_JSON, name: "bos_token_id", kind: Kind::Ids, needed: false },
    Key { file: CONFIG_JSON, name: "eos_token_id", kind: Kind::Ids, needed: false },
    Key { file: CONFIG_JSON, name: "pad_token_id", kind: Kind::Ids, needed: false },
    Key { file: GENERATION, name: "bos_token_id", kind: Kind::Ids, needed: false },
    Key { file: GENERATION, name: "eos_token_id", kind: Kind::Ids, needed: false },
    Key { file: GENERATION, name: "pad_token_id", kind: Kind::Ids, needed: false },
    Key { file: GENERATION, name: "do_sample", kind: Kind::Flag, needed: false },
    Key { file: GENERATION, name: "temperature", kind: Kind::Number(0.0, f32::MAX as f64), needed: false },
    Key { file: GENERATION, name: "top_k", kind: Kind::Whole, needed: false },
    Key { file: GENERATION, name: "top_p", kind: Kind::Number(0.0, 1.0), needed: false },
    Key { file: "tokenizer_config.json", name: "add_bos_token", kind: Kind::Flag, needed: false },
];

/// A model whose scaling is given, so that its keys can be changed.
fn base(dir: &Path) {
    let scaling = Some(TestModel::short_llama3_scaling());
    TestModel { scaling, ..TestModel::tiny(Family::Llama) }.write(dir).unwrap();
    std::fs::write(dir.join("tokenizer_config.json"), "{}").unwrap();
}

fn load_with(key: &Key, value: Option<&Value>) -> Result<ModelSpec, String> {
    let dir = tempfile::tempdir().unwrap();
    base(dir.path());
    edit(dir.path(), key.file, |document| {
        let (outer, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
        let map = if outer.is_empty() { document } else { &mut document[outer] }.as_object_mut().unwrap();
        match value {
            Some(value) => drop(map.insert(name.into(), value.clone())),
            None => drop(map.remove(name)),
        }
    });
    ModelSpec::load(dir.path()).map_err(|e| e.to_string().replace(&*dir.path().to_string_lossy(), "{dir}"))
}

#[test]
fn each_key_with_each_wrong_value_is_refused_with_key_found_and_expected() {
    let (mut wrong, mut tried) = (String::new(), 0);
    for key in KEYS {
        for value in key.kind.wrong_values() {
            tried += 1;
            let found = value.to_string();
            let begin = format!("bad `{}` in `{{dir}}/{}`: found {}, expected ", key.name, key.file, found);
            match load_with(key, Some(&value)) {
                Err(message) if message.starts_with(&begin) && message.len() > begin.len() + 3 => {}
                // Two spellings of one object must agree, which is found before its type.
                Err(message) if key.name == "rope_parameters" && message.contains("as `rope_parameters`") => {}
                Err(message) if key.name == "rope_parameters" && message.contains("the same as `rope_parameters`") => {}
                Ok(_) => writeln!(wrong, "{} = {found}: accepted", key.name).unwrap(),
                Err(message) => writeln!(wrong, "{} = {found}: {message}", key.name).unwrap(),
            }
        }
    }
    assert!(wrong.is_empty(), "of {tried}:\n{wrong}");
    assert!(tried > 500, "{tried}");
}

#[test]
fn an_absent_key_and_a_null_are_the_same() {
    for key in KEYS {
        for value in [None, Some(&Value::Null)] {
            match load_with(key, value) {
                Ok(_) => assert!(!key.needed, "{}", key.name),
                Err(message) => {
                    let begin = format!("`{{dir}}/{}` has no `{}`: expected ", key.file, key.name);
                    assert!(key.needed && message.starts_with(&begin), "{}: {message}", key.name);
                }
            }
        }
    }
}

#[test]
fn what_compile_writes_is_accepted_when_it_runs() {
    // Section 3: a temperature of 1e300 was written, and refused by `run`.
    let numbers = [
        json!(0),
        json!(5e-324),
        json!(1e-60),
        json!(0.5),
        json!(1),
        json!(1.0000001),
        json!(2),
        json!(7),
        json!(65536),
        json!(3.4e38),
        json!(3.5e38),
        json!(1e300),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(-1),
        json!(-0.0),
    ];
    let keys = KEYS.iter().filter(|key| matches!(key.kind, Kind::Number(..) | Kind::Whole | Kind::Ids));
    let mut compiled = 0;
    for key in keys {
        for value in &numbers {
            let place = tempfile::tempdir().unwrap();
            let (dir, out) = (place.path().join("model"), place.path().join("bundle"));
            std::fs::create_dir(&dir).unwrap();
            base(&dir);
            edit(&dir, key.file, |document| match key.name.split_once('.') {
                Some((outer, name)) => document[outer][name] = value.clone(),
                None => document[key.name] = value.clone(),
            });
            if crate::testing::compile(&dir, &out, |_| {}).is_ok() {
                let text = std::fs::read_to_string(out.join("genie_config.json")).unwrap();
                let config = genie_bundle::GenieConfig::from_json(&text, &out);
                assert!(config.is_ok(), "{} = {value}: {}", key.name, config.unwrap_err());
                compiled += 1;
            }
        }
    }
    assert!(compiled > 100, "{compiled}");
}
