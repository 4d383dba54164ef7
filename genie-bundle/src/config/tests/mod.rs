//! Configs that are fine, and many that are not, by subject; here what the subjects share.

mod any_input;
mod api;
mod files;
mod keys;
mod problems;
mod unsupported;
mod values;

use serde_json::{Value, json};

use super::*;

fn base() -> Value {
    json!({"dialog": {
        "version": 1,
        "type": "basic",
        "context": {"version": 1, "size": 128, "n-vocab": 512, "bos-token": 256, "eos-token": 257},
        "sampler": {"version": 1, "seed": 42, "temp": 0.8, "top-k": 40, "top-p": 0.95, "greedy": false},
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {
            "version": 1,
            "n-threads": 0,
            "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {
                "version": 1, "use-mmap": true, "spill-fill-bufsize": 0, "mmap-budget": 0, "poll": false,
                "cpu-mask": "0xe0", "kv-dim": 32, "allow-async-init": false
            }},
            "model": {
                "version": 1,
                "type": "binary",
                "binary": {"version": 1, "ctx-bins": ["model.bin"]},
                "positional-encoding": {"type": "rope", "rope-dim": 16, "rope-theta": 10000}
            }
        }
    }})
}

/// The value at `pointer`, made if its parent is there; `null` removes it.
fn set(document: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap_or_else(|| panic!("no parent for {pointer}"));
    match (parent, value) {
        (Value::Object(o), Value::Null) => {
            o.remove(key).unwrap_or_else(|| panic!("nothing to remove at {pointer}"));
        }
        (Value::Object(o), value) => {
            o.insert(key.into(), value);
        }
        (Value::Array(a), value) => a[key.parse::<usize>().unwrap()] = value,
        _ => panic!("no container at {pointer}"),
    }
}

fn with(changes: &[(&str, Value)]) -> Value {
    let mut document = base();
    for (pointer, value) in changes {
        set(&mut document, pointer, value.clone());
    }
    document
}

fn parse(document: &Value) -> Result<GenieConfig, ConfigError> {
    GenieConfig::from_json(&document.to_string(), "/bundle")
}
