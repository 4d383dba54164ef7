//! Checks a JSON value against a table, collecting every problem.
//!
//! A table is a `const`: [`Block`]s of [`Key`]s with [`Type`]s, one file per area under `tables/`. What spans several
//! keys is not expressible here and lives under `rules/`.

use serde_json::{Map, Value};

use super::hints;
use super::problem::Problem;

/// What a value may be.
pub(super) enum Type {
    /// Anything: Genie does not look inside.
    Any,
    /// Any object.
    AnyBlock,
    /// The schema version, always 1.
    Version,
    Bool,
    Text,
    /// A string of at least one character.
    NonEmpty,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A whole number in this range, both ends included.
    Int(i128, i128),
    /// A number in this range, both ends included.
    Num(f64, f64),
    /// A number strictly between the two.
    Between(f64, f64),
    /// An array of at least this many items of a type.
    List(&'static Type, usize),
    Block(&'static Block),
    /// The type, of these, whose JSON kind fits the value.
    Either(&'static [Type]),
    /// A block chosen by the value of its `type` key.
    Tagged(&'static [(&'static str, &'static Block)], &'static Block),
}

/// An object and the keys it may have.
pub(super) struct Block {
    pub(super) keys: &'static [Key],
    /// True where Genie accepts keys that it does not list.
    pub(super) open: bool,
}

/// One key of a block.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) ty: Type,
    pub(super) required: bool,
}

/// A closed block: unknown keys are errors.
pub(super) const fn block(keys: &'static [Key]) -> Block {
    Block { keys, open: false }
}

/// A key that may be absent.
pub(super) const fn opt(name: &'static str, ty: Type) -> Key {
    Key { name, ty, required: false }
}

/// A key that must be there.
pub(super) const fn req(name: &'static str, ty: Type) -> Key {
    Key { name, ty, required: true }
}

const I32_MAX: i128 = i32::MAX as i128;
/// Most threads that a config may ask for, as many as `--threads` takes.
pub const MAX_THREADS: usize = 1024;
/// Most items of any list: stop sequences, context binaries, end tokens. The longest known list has 64.
const MAX_ITEMS: usize = 4096;
/// Problems after which the rest is not looked at.
const MAX_PROBLEMS: usize = 64;
/// 32-bit signed.
pub(super) const I32: Type = Type::Int(i32::MIN as i128, I32_MAX);
/// 32-bit unsigned.
pub(super) const U32: Type = Type::Int(0, u32::MAX as i128);
/// 64-bit signed.
pub(super) const I64: Type = Type::Int(i64::MIN as i128, i64::MAX as i128);
/// 64-bit signed, not negative.
pub(super) const COUNT: Type = Type::Int(0, i64::MAX as i128);
/// A number of tokens, of elements or of layers: 31 bits, not negative.
pub(super) const SIZE: Type = Type::Int(0, I32_MAX);
/// A number of threads.
pub(super) const THREADS: Type = Type::Int(0, MAX_THREADS as i128);
/// Above zero.
pub(super) const POSITIVE: Type = Type::Int(1, i64::MAX as i128);
/// Any number.
pub(super) const NUM: Type = Type::Num(f64::NEG_INFINITY, f64::INFINITY);
/// A list of strings.
pub(super) const TEXTS: Type = Type::List(&Type::Text, 0);

/// Checks `value` and adds what is wrong to `problems`. `pointer` is the value's place.
pub(super) fn check(ty: &Type, value: &Value, pointer: &str, root: &Block, problems: &mut Vec<Problem>) {
    if problems.len() >= MAX_PROBLEMS {
        return;
    }
    if !accepts_kind(ty, value) {
        problems.push(Problem::new(pointer, format!("expected {}, found {}", kind_wanted(ty), kind_found(value))));
        return;
    }
    match ty {
        Type::Any | Type::AnyBlock | Type::Bool | Type::Text => {}
        Type::Version => {
            if value.as_i64() != Some(1) {
                problems.push(Problem::new(pointer, format!("expected version 1, found {value}")));
            }
        }
        Type::NonEmpty => {
            if value.as_str() == Some("") {
                problems.push(Problem::new(pointer, "expected a non-empty string"));
            }
        }
        Type::Choice(choices) => check_choice(choices, value, pointer, problems),
        Type::Int(min, max) => {
            if let Some(n) = integer(value)
                && !(*min..=*max).contains(&n)
            {
                problems.push(Problem::new(pointer, format!("expected {}, found {n}", int_range(*min, *max))));
            }
        }
        Type::Num(min, max) => {
            if let Some(n) = value.as_f64()
                && !(*min..=*max).contains(&n)
            {
                problems.push(Problem::new(pointer, format!("expected {}, found {value}", num_range(*min, *max))));
            }
        }
        Type::Between(min, max) => {
            if let Some(n) = value.as_f64()
                && !(*min < n && n < *max)
            {
                let wanted = if max.is_finite() {
                    format!("a number above {min} and below {max}")
                } else {
                    format!("a number above {min}")
                };
                problems.push(Problem::new(pointer, format!("expected {wanted}, found {value}")));
            }
        }
        Type::List(item, at_least) => {
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            if items.len() < *at_least {
                let message = format!("expected at least {at_least} item(s), found {}", items.len());
                problems.push(Problem::new(pointer, message));
            }
            if items.len() > MAX_ITEMS {
                let message = format!("expected at most {MAX_ITEMS} items, found {}", items.len());
                problems.push(Problem::new(pointer, message));
                return;
            }
            for (i, v) in items.iter().enumerate() {
                check(item, v, &format!("{pointer}/{i}"), root, problems);
            }
        }
        Type::Either(types) => {
            if let Some(ty) = types.iter().find(|t| accepts_kind(t, value)) {
                check(ty, value, pointer, root, problems);
            }
        }
        Type::Block(b) => check_block(b, value, pointer, root, problems),
        Type::Tagged(cases, otherwise) => {
            let name = value.get("type").and_then(Value::as_str);
            let case = cases.iter().find(|(n, _)| Some(*n) == name).map_or(*otherwise, |(_, b)| b);
            check_block(case, value, pointer, root, problems);
        }
    }
}

/// Checks the keys of an object.
pub(super) fn check_block(b: &Block, value: &Value, pointer: &str, root: &Block, problems: &mut Vec<Problem>) {
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    for (name, v) in object {
        if problems.len() >= MAX_PROBLEMS {
            return;
        }
        let at = join(pointer, name);
        match b.keys.iter().find(|k| k.name == name) {
            Some(key) => check(&key.ty, v, &at, root, problems),
            None if b.open => {}
            None => {
                let mut problem = Problem::new(at, "unknown key");
                problem.hint = hints::for_unknown_key(name, b, root);
                problems.push(problem);
            }
        }
    }
    for key in b.keys.iter().filter(|k| k.required && !object.contains_key(k.name)) {
        problems.push(Problem::new(join(pointer, key.name), "required key is missing"));
    }
}

fn check_choice(choices: &[&str], value: &Value, pointer: &str, problems: &mut Vec<Problem>) {
    let found = value.as_str().unwrap_or_default();
    if choices.contains(&found) {
        return;
    }
    let quoted: Vec<String> = choices.iter().map(|c| format!("`{c}`")).collect();
    let mut problem = Problem::new(pointer, format!("expected one of {}, found `{found}`", quoted.join(", ")));
    problem.hint = hints::nearest(found, choices.iter().copied()).map(|c| format!("did you mean `{c}`?"));
    problems.push(problem);
}

/// `pointer` with one more step, escaped as JSON pointers want it.
pub(super) fn join(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn integer(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}

pub(super) fn accepts_kind(ty: &Type, value: &Value) -> bool {
    match ty {
        Type::Any => true,
        Type::Version | Type::Int(..) => integer(value).is_some(),
        Type::Bool => value.is_boolean(),
        Type::Text | Type::NonEmpty | Type::Choice(_) => value.is_string(),
        Type::Num(..) | Type::Between(..) => value.is_number(),
        Type::List(..) => value.is_array(),
        Type::Block(_) | Type::Tagged(..) | Type::AnyBlock => value.is_object(),
        Type::Either(types) => types.iter().any(|t| accepts_kind(t, value)),
    }
}

fn kind_wanted(ty: &Type) -> String {
    match ty {
        Type::Any => "anything".into(),
        Type::Version | Type::Int(..) => "integer".into(),
        Type::Bool => "boolean".into(),
        Type::Text | Type::NonEmpty | Type::Choice(_) => "string".into(),
        Type::Num(..) | Type::Between(..) => "number".into(),
        Type::List(..) => "array".into(),
        Type::Block(_) | Type::Tagged(..) | Type::AnyBlock => "object".into(),
        Type::Either(types) => types.iter().map(kind_wanted).collect::<Vec<_>>().join(" or "),
    }
}

/// What a value may be, in a few words.
pub(super) fn values_of(ty: &Type) -> String {
    match ty {
        Type::Version => "1".into(),
        Type::NonEmpty => "string, not empty".into(),
        Type::Choice(choices) => choices.iter().map(|c| format!("`\"{c}\"`")).collect::<Vec<_>>().join(", "),
        Type::Int(min, max) if *min < -1 || *max >= I32_MAX => match min {
            0 | 1 => format!("integer, at least {min}"),
            _ => "integer".into(),
        },
        Type::Int(min, max) => format!("integer, {min} to {max}"),
        Type::Num(min, max) if *max >= f64::from(f32::MAX) => match min.is_finite() {
            true => format!("number, at least {min}"),
            false => "number".into(),
        },
        Type::Num(min, max) => format!("number, {min} to {max}"),
        Type::Between(min, max) if max.is_finite() => format!("number, above {min}, below {max}"),
        Type::Between(min, _) => format!("number, above {min}"),
        Type::List(item, _) => format!("list of {}", values_of(item)),
        Type::Either(types) => types.iter().map(values_of).collect::<Vec<_>>().join(" or "),
        Type::Any | Type::Bool | Type::Text | Type::Block(_) | Type::Tagged(..) | Type::AnyBlock => kind_wanted(ty),
    }
}

fn kind_found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn int_range(min: i128, max: i128) -> String {
    if max >= i128::from(i64::MAX) {
        format!("an integer of at least {min}")
    } else {
        format!("an integer from {min} to {max}")
    }
}

fn num_range(min: f64, max: f64) -> String {
    // The largest f32 is no limit in practice; its digits are left out.
    if max >= f64::from(f32::MAX) {
        format!("a number of at least {min}")
    } else {
        format!("a number from {min} to {max}")
    }
}
