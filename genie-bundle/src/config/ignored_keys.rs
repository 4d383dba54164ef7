//! Warnings for keys that are valid and have no effect: a document is walked along the schema, each key looked up in the list.

use serde_json::Value;

use super::key_effects::{KeyEffect, SCALING_KEYS, effect_of};
use super::problem::Problem;
use super::schema::{Block, Type, join};
use super::tables;

/// What executes the graphs of a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The CPU backend inside this program.
    Embedded,
    /// An HTP backend.
    Htp,
}

/// Keys without effect on any backend.
pub(super) fn everywhere(document: &Value) -> Vec<Problem> {
    let wanted = |effect| match effect {
        KeyEffect::Ignored(why) => Some(format!("ignored: {why}")),
        _ => None,
    };
    find(document, &wanted)
}

/// Keys without effect on one backend only.
pub(super) fn on(document: &Value, target: Target) -> Vec<Problem> {
    let wanted = |effect| match effect {
        KeyEffect::HtpOnly(_) if target == Target::Embedded => {
            Some("ignored: it has no effect on the embedded backend".into())
        }
        _ => None,
    };
    find(document, &wanted)
}

fn find(document: &Value, wanted: &dyn Fn(KeyEffect) -> Option<String>) -> Vec<Problem> {
    let mut walk = Walk { wanted, out: Vec::new() };
    walk.block(&tables::ROOT, document, "", None);
    walk.out
}

struct Walk<'w> {
    wanted: &'w dyn Fn(KeyEffect) -> Option<String>,
    out: Vec<Problem>,
}

impl Walk<'_> {
    /// `path` is the block's below `/dialog`; `None` above it.
    fn block(&mut self, block: &Block, value: &Value, pointer: &str, path: Option<&str>) {
        for (name, inner) in value.as_object().into_iter().flatten() {
            let at = join(pointer, name);
            let path = match path {
                None => String::new(),
                Some("") => name.clone(),
                Some(path) => format!("{path}/{name}"),
            };
            let Some(key) = block.keys.iter().find(|key| key.name == name) else {
                // An open block: Genie accepts what it does not know.
                let unknown = KeyEffect::Ignored("Genie's schema does not know the key, but accepts it");
                self.out.extend((self.wanted)(unknown).map(|text| Problem::new(at, text)));
                continue;
            };
            let effect = effect_of(&path).filter(|_| !path.is_empty());
            match effect.and_then(self.wanted) {
                Some(_) if asks_for_nothing(inner) => {}
                Some(text) => self.out.push(Problem::new(at, text)),
                // A block that is ignored is reported once.
                None if matches!(effect, Some(KeyEffect::Ignored(_))) => {}
                None => self.value(&key.ty, inner, &at, &path),
            }
            if path.ends_with("/rope-scaling") {
                self.scaling(inner, pointer);
            }
        }
    }

    fn value(&mut self, ty: &Type, value: &Value, pointer: &str, path: &str) {
        match ty {
            Type::Block(block) => self.block(block, value, pointer, Some(path)),
            Type::Tagged(_, block) => self.block(block, value, pointer, Some(path)),
            Type::List(item, _) => {
                for (i, inner) in value.as_array().into_iter().flatten().enumerate() {
                    self.value(item, inner, &format!("{pointer}/{i}"), path);
                }
            }
            Type::Either(types) => {
                if let Some(ty) = types.iter().find(|ty| super::schema::accepts_kind(ty, value)) {
                    self.value(ty, value, pointer, path);
                }
            }
            _ => {}
        }
    }

    /// Numbers that the `rope-type` does not read. Which there are depends on a value, so no row says it.
    fn scaling(&mut self, scaling: &Value, pointer: &str) {
        let Some(kind) = scaling.get("rope-type").and_then(Value::as_str) else { return };
        let Some((_, read)) = SCALING_KEYS.iter().find(|(name, _)| *name == kind) else { return };
        for name in scaling.as_object().into_iter().flatten().map(|(name, _)| name.as_str()) {
            if !read.contains(&name) && !matches!(name, "rope-type" | "version") {
                let text = (self.wanted)(KeyEffect::Ignored("")).map(|_| format!("ignored: `{kind}` does not read it"));
                let at = join(&format!("{pointer}/rope-scaling"), name);
                self.out.extend(text.map(|text| Problem::new(at, text)));
            }
        }
    }
}

/// A value that leaves things as they are: off, none, not set.
fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(n) => n.as_f64().is_some_and(|n| n == 0.0 || n == -1.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(keys) => keys.keys().all(|key| key == "version"),
        Value::Bool(true) => false,
    }
}
