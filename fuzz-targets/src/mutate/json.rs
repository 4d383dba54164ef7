//! Changes of JSON values: of another type, out of range, gone, doubled, under another key.

use serde_json::{Map, Value, json};

use crate::Rng;

/// The text with one to three of its values changed; as it was where it is not JSON.
pub(super) fn mutate(text: &[u8], rng: &mut Rng) -> Vec<u8> {
    let Ok(mut document) = serde_json::from_slice::<Value>(text) else { return text.to_vec() };
    let mut deep = false;
    for _ in 0..1 + rng.below(3) {
        let count = nodes(&document);
        let at = rng.below(count);
        deep |= change(&mut document, at, rng);
    }
    let text = document.to_string();
    if deep { text.replace(DEEP, &format!("{}{}", "[".repeat(5000), "]".repeat(5000))) } else { text }.into_bytes()
}

/// Ends that a text may get.
const TAILS: [&str; 7] = ["\u{1b}[31m", "\0", "é", "\u{fffd}\u{202e}", "/../..", " ", "{\"a\":1}"];

/// Stands for lists in lists, which a [`Value`] cannot hold safely.
const DEEP: &str = "\"\u{1}deep\u{1}\"";

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum::<usize>(),
        _ => 0,
    }
}

/// Changes node `at`, counted in order; whether it asks for nesting.
fn change(value: &mut Value, mut at: usize, rng: &mut Rng) -> bool {
    if at == 0 {
        return change_here(value, rng);
    }
    at -= 1;
    let children: Vec<&mut Value> = match value {
        Value::Array(list) => list.iter_mut().collect(),
        Value::Object(map) => map.values_mut().collect(),
        _ => Vec::new(),
    };
    for child in children {
        let count = nodes(child);
        if at < count {
            return change(child, at, rng);
        }
        at -= count;
    }
    false
}

fn change_here(value: &mut Value, rng: &mut Rng) -> bool {
    match value {
        Value::Object(map) if rng.one_in(2) => change_map(map, rng),
        Value::Array(list) if rng.one_in(2) => {
            let at = rng.below(list.len() + 1);
            match rng.below(3) {
                0 => list.truncate(at),
                1 => {
                    let new = replacement(rng);
                    list.insert(at, new);
                }
                _ => {
                    let copies = list.clone();
                    list.extend(copies);
                }
            }
        }
        Value::Number(number) if rng.one_in(2) => {
            let x = number.as_f64().unwrap_or(0.0);
            *value = match rng.below(6) {
                0 => json!(-x),
                1 => json!(x + 1.0),
                2 => json!((x as i64).wrapping_add(1)),
                3 => json!((x as i64).wrapping_sub(1)),
                4 => json!((x as i64).wrapping_mul(1_000_003)),
                _ => json!(x * 0.5),
            };
        }
        Value::String(text) if rng.one_in(2) => match rng.below(4) {
            0 => text.clear(),
            1 => *text = text.chars().rev().collect(),
            2 => text.push_str(TAILS[rng.below(TAILS.len())]),
            _ => *text = text.repeat(3),
        },
        _ => {
            if rng.one_in(40) {
                *value = json!("\u{1}deep\u{1}");
                return true;
            }
            *value = replacement(rng);
        }
    }
    false
}

fn change_map(map: &mut Map<String, Value>, rng: &mut Rng) {
    let keys: Vec<String> = map.keys().cloned().collect();
    if keys.is_empty() {
        map.insert("key".into(), replacement(rng));
        return;
    }
    let key = rng.pick(&keys).clone();
    match rng.below(4) {
        0 => drop(map.remove(&key)),
        1 => {
            let held = map.remove(&key).unwrap_or(Value::Null);
            map.insert(format!("{key}x"), held);
        }
        2 => {
            let other = rng.pick(&keys).clone();
            let (a, b) = (map[&key].clone(), map[&other].clone());
            map.insert(key, b);
            map.insert(other, a);
        }
        _ => {
            let new = replacement(rng);
            map.insert(format!("{key}_"), new);
        }
    }
}

fn replacement(rng: &mut Rng) -> Value {
    match rng.below(16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(1),
        5 => json!(2_147_483_647),
        6 => json!(4_294_967_296u64),
        7 => json!(u64::MAX),
        8 => json!(1e308),
        9 => json!(0.5),
        10 => json!(""),
        11 => json!("1"),
        12 => json!([]),
        13 => json!({}),
        14 => json!(["a", 1, null]),
        _ => json!("x".repeat(rng.below(5000))),
    }
}
