//! Changes of JSON by meaning, and of files as a whole; each says what it did and by which words an answer may name it.

use std::path::Path;

use anyhow::Result;
use fuzz_targets::Rng;
use serde_json::{Value, json};

/// What was done, and the words for it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) what: String,
    pub(crate) names: Vec<String>,
    /// Pointer of the changed value: `/a/0/b`.
    pub(crate) pointer: String,
    /// What stands there now; nothing if it was removed.
    pub(crate) now: Option<Value>,
}

/// Pointers of all values below the root.
pub(crate) fn pointers(value: &Value) -> Vec<String> {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, child)| (escaped(key), child)).collect(),
        Value::Array(list) => list.iter().take(40).enumerate().map(|(i, child)| (i.to_string(), child)).collect(),
        _ => Vec::new(),
    };
    let below = children.iter().take(60).flat_map(|(key, child)| {
        std::iter::once(format!("/{key}")).chain(pointers(child).into_iter().map(move |p| format!("/{key}{p}")))
    });
    below.collect()
}

/// The name of the nearest key: indices of lists are no names.
fn key_of(pointer: &str) -> String {
    let last = pointer.rsplit('/').find(|part| part.parse::<usize>().is_err()).unwrap_or_default();
    last.replace("~1", "/").replace("~0", "~")
}

/// Changes one value below the root.
pub(crate) fn json(document: &mut Value, rng: &mut Rng) -> Change {
    let all = pointers(document);
    // An earlier change may have removed everything.
    let pointer = if all.is_empty() { String::new() } else { rng.pick(&all).clone() };
    json_at(document, &pointer, rng)
}

/// Changes the value at a pointer.
pub(crate) fn json_at(document: &mut Value, pointer: &str, rng: &mut Rng) -> Change {
    let key = key_of(pointer);
    let mut names = vec![key.clone()];
    if rng.one_in(6) {
        remove(document, pointer);
        return Change { what: format!("`{pointer}` removed"), names, pointer: pointer.into(), now: None };
    }
    let Some(value) = document.pointer_mut(pointer) else {
        return Change { what: "nothing".into(), names, pointer: pointer.into(), now: None };
    };
    let old = value.clone();
    for _ in 0..20 {
        let new = if rng.one_in(2) { other_type(&old, rng) } else { out_of_range(&old, rng) };
        if new != old {
            *value = new;
            break;
        }
    }
    let shown = |value: &Value| value.to_string().chars().take(60).collect::<String>();
    let what = format!("`{pointer}` {} -> {}", shown(&old), shown(value));
    if let Some(text) = old.as_str().filter(|text| text.len() > 2) {
        names.push(text.into());
    }
    if let Some(text) = value.as_str().filter(|text| text.len() > 2) {
        names.push(text.into());
    }
    Change { what, names, pointer: pointer.into(), now: Some(value.clone()) }
}

fn remove(document: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    match document.pointer_mut(parent) {
        Some(Value::Object(map)) => drop(map.remove(&last.replace("~1", "/").replace("~0", "~"))),
        Some(Value::Array(list)) => {
            if let Ok(i) = last.parse::<usize>() {
                list.remove(i);
            }
        }
        _ => {}
    }
}

fn other_type(old: &Value, rng: &mut Rng) -> Value {
    let texts = match old {
        Value::String(text) => json!([text]),
        other => json!(other.to_string()),
    };
    let choices = [
        json!(null),
        json!([]),
        json!({}),
        json!(true),
        json!(7),
        json!(0.5),
        json!("text"),
        texts,
        json!([old]),
        json!({"a": old}),
    ];
    rng.pick(&choices).clone()
}

fn out_of_range(old: &Value, rng: &mut Rng) -> Value {
    match old {
        Value::Number(n) => {
            let x = n.as_f64().unwrap_or_default();
            let near = if n.is_f64() { json!(x * 2.0) } else { json!(x as i64 + 1) };
            let choices = [
                json!(-1),
                json!(0),
                near,
                json!(x * 1000.0 + 1.0),
                json!(x + 0.5),
                json!(-x - 1.0),
                json!(1e300),
                json!(2_147_483_648u64),
                json!(9_007_199_254_740_993u64),
                json!(u64::MAX),
                json!((x / 2.0).floor() as i64),
            ];
            rng.pick(&choices).clone()
        }
        Value::String(text) => {
            let choices = [
                String::new(),
                format!("{text}x"),
                text.to_uppercase(),
                format!(" {text}"),
                format!("../{text}"),
                "\u{1b}[31mred".into(),
                "gpt_neox".into(),
                "a\nb".into(),
                "x".repeat(5000),
            ];
            json!(rng.pick(&choices))
        }
        Value::Bool(b) => json!(!b),
        Value::Null => json!(1),
        Value::Array(list) => {
            let mut list = list.clone();
            match rng.below(3) {
                0 => list.clear(),
                1 => list.extend(list.clone()),
                _ => list.push(json!("one more")),
            }
            Value::Array(list)
        }
        Value::Object(map) => {
            let mut map = map.clone();
            map.insert("unheard_of".into(), json!(1));
            Value::Object(map)
        }
    }
}

/// Puts something else where a file is: the words that may name what is there now.
pub(crate) fn replace_file(path: &Path, rng: &mut Rng) -> Result<String> {
    let bytes = std::fs::read(path).unwrap_or_default();
    std::fs::remove_file(path)?;
    let write = |bytes: &[u8]| std::fs::write(path, bytes);
    Ok(match rng.below(12) {
        0 => "is gone".into(),
        1 => {
            std::fs::create_dir(path)?;
            "is an empty folder".into()
        }
        2 => {
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)?;
            "is a fifo".into()
        }
        3 => {
            std::os::unix::fs::symlink("/no/such/target", path)?;
            "is a broken link".into()
        }
        4 => {
            std::os::unix::fs::symlink("/dev/zero", path)?;
            "is a link to /dev/zero".into()
        }
        5 => {
            std::os::unix::fs::symlink(path, path)?;
            "is a link to itself".into()
        }
        6 => {
            write(b"")?;
            "is empty".into()
        }
        7 => {
            write(b"GGUF\x03\0\0\0 and then nothing")?;
            "is a torn GGUF file".into()
        }
        8 => {
            write(b"\x7fELF\x02\x01\x01\0 library")?;
            "is an ELF file".into()
        }
        9 => {
            // A text without the blanks at its end is the same text.
            write(&bytes[..rng.below(bytes.trim_ascii_end().len().max(1))])?;
            "is cut".into()
        }
        10 => {
            write(&vec![0; bytes.len()])?;
            "is all zeros".into()
        }
        _ => {
            write(b"<!DOCTYPE html><html>404 not found</html>")?;
            "is a web page".into()
        }
    })
}
