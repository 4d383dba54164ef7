//! No key is silent: every key of the schema acts, is ignored with a warning, or is refused, as the list of effects says.

use super::*;
use crate::config::key_effects::{KEY_EFFECTS, effect_of};
use crate::config::key_table::{KeyRow, key_table, key_table_markdown};
use crate::config::schema::{Block, Type};

fn all_paths() -> Vec<String> {
    fn add(ty: &Type, path: &str, paths: &mut Vec<String>) {
        let mut block = |block: &Block| {
            for key in block.keys {
                let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}/{}", key.name) };
                paths.push(path.clone());
                add(&key.ty, &path, paths);
            }
        };
        match ty {
            Type::Block(inner) => block(inner),
            Type::Tagged(cases, otherwise) => cases.iter().map(|(_, b)| *b).chain([*otherwise]).for_each(block),
            Type::List(item, _) => add(item, path, paths),
            Type::Either(types) => types.iter().for_each(|ty| add(ty, path, paths)),
            _ => {}
        }
    }
    let mut paths = Vec::new();
    tables::ROOT.keys.iter().for_each(|key| add(&key.ty, "", &mut paths));
    paths
}

#[test]
fn every_key_has_a_row_and_every_row_a_key() {
    let paths = all_paths();
    assert!(paths.len() > 200, "{}", paths.len());
    let without: Vec<_> = paths.iter().filter(|path| effect_of(path).is_none()).collect();
    assert!(without.is_empty(), "key_effects.rs says nothing of {without:?}");
    let stale: Vec<_> = KEY_EFFECTS.iter().filter(|(path, _)| !paths.iter().any(|p| p == path)).collect();
    assert!(stale.is_empty(), "no such keys: {stale:?}");
    for (i, (path, _)) in KEY_EFFECTS.iter().enumerate() {
        assert!(KEY_EFFECTS[..i].iter().all(|(other, _)| other != path), "`{path}` stands twice");
    }
}

#[test]
fn the_document_has_the_table() {
    let document = include_str!("../../../../docs/config-keys.md");
    let table = key_table_markdown();
    if !document.contains(&table) {
        let place = std::env::temp_dir().join("config-keys-table.md");
        std::fs::write(&place, &table).unwrap();
        panic!(
            "docs/config-keys.md lacks the table of keys as key_effects.rs has it now; it is in `{}`",
            place.display()
        );
    }
    for (key, effect, why) in crate::config::extensions::EXTENSION_KEYS {
        let row = format!("| `{key}` | {effect} | {why} |\n");
        assert!(document.contains(&row), "docs/config-keys.md lacks {row}");
    }
}

/// Blocks that a key needs around it, and keys that it cannot stand with or without.
fn base_of(path: &str) -> Value {
    let mut document = base();
    set(&mut document, "/dialog/sampler/token-penalty", json!({"penalize-last-n": 4}));
    let rope = "/dialog/engine/model/positional-encoding";
    let htp = "/dialog/engine/backend/QnnHtp";
    if path.contains("/rope-scaling/") {
        let scaling = json!({"rope-type": "llama3", "factor": 8, "low-freq-factor": 1, "high-freq-factor": 4,
            "original-max-position-embeddings": 8192});
        set(&mut document, &format!("{rope}/rope-scaling"), scaling);
    }
    if path.starts_with("context/grammar/") {
        let grammar = json!({"version": 1, "backend": "xgrammar", "type": "regex", "file": "g.txt"});
        set(&mut document, "/dialog/context/grammar", grammar);
    }
    if path.starts_with("debug/") {
        set(&mut document, "/dialog/debug", json!({"version": 1, "dump-tensors": true}));
    }
    if path.starts_with("embedding/") {
        let table = json!({"version": 1, "size": 8, "lut-path": "t.raw", "datatype": "ufixed8",
            "quant-param": {"scale": 0.5, "offset": 0}});
        set(&mut document, "/dialog/embedding", table);
    }
    if path.starts_with("engine/cache-groups") {
        set(&mut document, "/dialog/engine/cache-groups", json!([{"version": 1, "prefix": "g_"}]));
    }
    if let Some((owner, inside)) = path.split_once("longcontext/") {
        let block = if inside.starts_with("keydiff") {
            json!({"version": 1, "type": "keydiff", "keydiff": {"scoring-network": "s.bin", "update-frequency": 9}})
        } else {
            json!({"version": 1, "type": "sliding-window", "sliding-window": {"window-size": 64}})
        };
        let owner = owner.replace("cache-groups/", "cache-groups/0/");
        set(&mut document, &format!("/dialog/{owner}longcontext"), block);
    }
    match path.rsplit('/').next() {
        Some("pos-id-dim") => set(&mut document, rope, Value::Null),
        Some("rope-theta") if path.contains("QnnHtp") => {
            set(&mut document, rope, Value::Null);
            set(&mut document, &format!("{htp}/pos-id-dim"), json!(16));
        }
        Some("fcb") => set(&mut document, "/dialog/engine/model/binary/ctx-bins", Value::Null),
        Some("shared-engine") => set(&mut document, &format!("{htp}/allow-async-init"), json!(true)),
        Some("graph-retention-order" | "graph-switching-lora-policy") => {
            set(&mut document, &format!("{htp}/enable-graph-switching"), json!(true));
        }
        _ => {}
    }
    document
}

/// Values that the type accepts, of which some differ from any other one.
fn values_of(ty: &Type) -> Vec<Value> {
    match ty {
        Type::Any => vec![json!(3)],
        Type::AnyBlock => vec![json!({"x": 1})],
        Type::Version => vec![],
        Type::Bool => vec![json!(true), json!(false)],
        Type::Text | Type::NonEmpty => vec![json!("x"), json!("0x3")],
        Type::Choice(choices) => choices.iter().map(|c| json!(c)).collect(),
        Type::Int(min, max) => [3, 7].iter().filter(|n| (*min..=*max).contains(n)).map(|n| json!(*n as i64)).collect(),
        Type::Num(min, max) => [0.25, 3.0].iter().filter(|n| (*min..=*max).contains(n)).map(|n| json!(n)).collect(),
        Type::Between(min, max) => [0.25, 3.0].iter().filter(|n| *min < **n && **n < *max).map(|n| json!(n)).collect(),
        Type::List(item, _) => values_of(item).into_iter().map(|item| json!([item])).collect(),
        Type::Either(types) => types.iter().flat_map(values_of).collect(),
        Type::Block(block) | Type::Tagged(_, block) => vec![block_of(block)],
    }
}

fn block_of(block: &Block) -> Value {
    let one = |key: &crate::config::schema::Key| match key.ty {
        Type::Version => Some((key.name.to_owned(), json!(1))),
        _ => Some((key.name.to_owned(), values_of(&key.ty).into_iter().next()?)),
    };
    let required: serde_json::Map<_, _> = block.keys.iter().filter(|key| key.required).filter_map(one).collect();
    // A block of nothing asks for nothing.
    let first = || block.keys.iter().filter(|key| key.name != "version").find_map(one).into_iter().collect();
    Value::Object(if required.keys().all(|key| key == "version") { first() } else { required })
}

fn type_at(path: &str) -> &'static Type {
    fn inside(ty: &'static Type, name: &str) -> Option<&'static Type> {
        match ty {
            Type::Block(block) | Type::Tagged(_, block) => block.keys.iter().find(|k| k.name == name).map(|k| &k.ty),
            Type::List(item, _) => inside(item, name),
            Type::Either(types) => types.iter().find_map(|ty| inside(ty, name)),
            _ => None,
        }
    }
    let mut ty = &tables::ROOT.keys[0].ty;
    for step in path.split('/') {
        ty = inside(ty, step).unwrap_or_else(|| panic!("no key {path}"));
    }
    ty
}

/// What came of a config: values and warnings by place, or problems by place.
struct Outcome {
    values: Result<String, ()>,
    places: Vec<String>,
    on_embedded: Vec<String>,
    problems: Vec<(String, String)>,
}

impl Outcome {
    fn of(document: &Value) -> Self {
        let places = |problems: &[Problem]| problems.iter().map(|p| p.pointer.clone()).collect::<Vec<_>>();
        match parse(document) {
            Ok(config) => Self {
                values: Ok(format!("{:?}", config.values)),
                places: places(config.warnings()),
                on_embedded: places(config.warnings_on(Target::Embedded)),
                problems: Vec::new(),
            },
            Err(error) => {
                let problems = error.problems().iter().map(|p| (p.pointer.clone(), p.to_string())).collect();
                Self { values: Err(()), places: Vec::new(), on_embedded: Vec::new(), problems }
            }
        }
    }
}

/// Whether a problem is about the key, or names it or its value as the reason.
fn names(said: &[(String, String)], pointer: &str, value: &Value) -> bool {
    let key = pointer.rsplit('/').next().unwrap_or_default();
    let words = [key.to_owned(), format!("`{}`", value.as_str().unwrap_or(key))];
    let about = |place: &str| place.starts_with(pointer) || pointer.starts_with(place);
    said.iter().any(|(place, text)| about(place) || words.iter().any(|word| text.contains(word)))
}

/// What is wrong with a row.
fn faults(row: &KeyRow) -> Vec<String> {
    let mut faults = Vec::new();
    let pointer = format!("/dialog/{}", row.path).replace("cache-groups/", "cache-groups/0/");
    let before = base_of(&row.path);
    let parent = pointer.rsplit_once('/').unwrap().0;
    if before.pointer(parent).is_none_or(|parent| !parent.is_object() && !parent.is_array()) {
        // Below a block that is refused or ignored as a whole.
        return faults;
    }
    let is_block = matches!(type_at(&row.path), Type::Block(_) | Type::Tagged(..) | Type::Either(_));
    let plain = Outcome::of(&before);
    let (mut acted, mut warned, mut refused) = (false, false, false);
    for value in values_of(type_at(&row.path)) {
        if before.pointer(&pointer) == Some(&value) {
            continue;
        }
        let mut document = before.clone();
        set(&mut document, &pointer, value.clone());
        let outcome = Outcome::of(&document);
        match &outcome.values {
            Err(()) => {
                let said = &outcome.problems;
                if !names(said, &pointer, &value) {
                    faults.push(format!("{pointer} = {value} is refused, but not by name: {said:?}"));
                }
                refused = true;
            }
            Ok(values) => {
                let changed = plain.values.as_ref() != Ok(values);
                let by_name = outcome.places.contains(&pointer);
                let on_embedded = outcome.on_embedded.contains(&pointer);
                let empty = value.as_object().is_some_and(|keys| keys.keys().all(|key| key == "version"));
                let nothing = empty || value == json!(false) || matches!(row.effect, KeyEffect::InPart(_));
                if !(changed || by_name || on_embedded || nothing) {
                    faults.push(format!("{pointer} = {value} is silent"));
                }
                acted |= changed && !by_name;
                warned |= by_name || on_embedded;
            }
        }
    }
    let holds = match row.effect {
        _ if is_block || row.path.ends_with("version") => true,
        KeyEffect::Acts(_) => acted && !warned,
        KeyEffect::HtpOnly(_) => warned,
        KeyEffect::Ignored(_) => warned && !acted,
        KeyEffect::Refused(_) => refused && !acted && !warned,
        // Which numbers a scaling reads is its kind's.
        KeyEffect::InPart(_) => !warned || row.path.contains("/rope-scaling/"),
    };
    if !holds {
        let found = format!("acted {acted}, warned {warned}, refused {refused}");
        faults.push(format!("{pointer}: `{}`, says key_effects.rs, but {found}", row.effect.word()));
    }
    faults
}

#[test]
fn no_key_is_silent() {
    let table = key_table();
    assert!(table.len() > 120, "{}", table.len());
    let faults: Vec<String> = table.iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_default_that_is_written_changes_nothing() {
    use crate::config::key_defaults::{VALUES, WORDS};
    let table = key_table();
    for (path, value) in VALUES {
        let row = table.iter().find(|row| row.path == *path).unwrap_or_else(|| panic!("no key {path}"));
        assert!(!row.required, "{path} is required");
        let pointer = format!("/dialog/{path}").replace("cache-groups/", "cache-groups/0/");
        let mut document = base_of(path);
        // Some blocks only exist with their other keys.
        if path.starts_with("multistream/") {
            set(&mut document, "/dialog/type", json!("multistream"));
            set(&mut document, "/dialog/multistream", json!({"version": 1, "n-streams": 2}));
        }
        if path.ends_with("pd_fusion/in_place") {
            set(&mut document, "/dialog/engine/pd_fusion", json!({"enable": true}));
        }
        if path.starts_with("debug/dump-tensors") {
            set(&mut document, "/dialog/debug", json!({"version": 1, "dump-specs": true}));
        }
        if document.pointer(&pointer).is_some() {
            set(&mut document, &pointer, Value::Null);
        }
        let absent = parse(&document).unwrap_or_else(|error| panic!("{path}: {error}"));
        set(&mut document, &pointer, serde_json::from_str(value).unwrap());
        let written = parse(&document).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(format!("{:?}", absent.values), format!("{:?}", written.values), "{path} = {value}");
    }
    for (path, _) in WORDS {
        assert!(table.iter().any(|row| row.path == *path && !row.required), "no optional key {path}");
    }
}

#[test]
fn warnings_name_the_key_once_and_say_why() {
    let warned = |changes: &[(&str, Value)]| -> Vec<String> {
        parse(&with(changes)).unwrap().warnings().iter().map(Problem::to_string).collect()
    };
    let htp = |key: &str| format!("/dialog/engine/backend/QnnHtp/{key}");
    assert_eq!(warned(&[]), [""; 0]);
    assert_eq!(
        warned(&[
            (&htp("allow-async-enqueue"), json!(true)),
            (&htp("batch-multiplier"), json!(4)),
            (&htp("direct-io"), json!(false))
        ]),
        [
            "/dialog/engine/backend/QnnHtp/allow-async-enqueue: ignored: a step waits for its graph",
            "/dialog/engine/backend/QnnHtp/batch-multiplier: ignored: a step has one batch",
        ]
    );
    // Which numbers a scaling reads depends on its kind.
    let scaling = json!({"rope-type": "default", "factor": 2.0});
    assert_eq!(
        warned(&[("/dialog/engine/model/positional-encoding/rope-scaling", scaling)]),
        ["/dialog/engine/model/positional-encoding/rope-scaling/factor: ignored: `default` does not read it"]
    );
    let polling = parse(&with(&[(&htp("poll"), json!(true))])).unwrap();
    assert_eq!(polling.warnings(), []);
    assert_eq!(polling.warnings_on(Target::Htp), []);
    let said: Vec<String> = polling.warnings_on(Target::Embedded).iter().map(Problem::to_string).collect();
    assert_eq!(said, ["/dialog/engine/backend/QnnHtp/poll: ignored: it has no effect on the embedded backend"]);
}
