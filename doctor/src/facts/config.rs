//! A `genie_config.json`, valid or not, with access to its values.

use std::path::PathBuf;

use genie_types::PositionKind;
use serde_json::Value;

/// One item of `positional-encoding`, as far as it can be read.
#[derive(Clone, Debug)]
pub struct PositionItem<'a> {
    /// Its JSON pointer.
    pub pointer: String,
    /// The item; `None` for the older keys.
    pub value: Option<&'a Value>,
    /// Its type; `None` for a word that is none.
    pub kind: Option<PositionKind>,
    /// What its tensors' names begin with; empty for the usual ones.
    pub prefix: &'a str,
    /// Angles per position.
    pub rope_dim: Option<i64>,
    /// The key of that number.
    pub dim_key: &'static str,
}

/// A dialog config.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// The file.
    pub path: PathBuf,
    /// Its folder, where relative paths start.
    pub base: PathBuf,
    /// Its content, or why it cannot be read.
    pub document: Result<Value, String>,
}

impl ConfigFile {
    /// Its name in findings, with a key.
    pub fn at(&self, pointer: &str) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy();
        if pointer.is_empty() { name.into_owned() } else { format!("{name} {pointer}") }
    }

    /// The value at a JSON pointer below `/dialog`.
    pub fn dialog(&self, pointer: &str) -> Option<&Value> {
        self.document.as_ref().ok()?.pointer("/dialog")?.pointer(pointer)
    }

    /// The value at a JSON pointer below the engine; of several engines, the first.
    pub fn engine(&self, pointer: &str) -> Option<&Value> {
        let engine = self.dialog("/engine")?;
        engine.as_array().map_or(Some(engine), |engines| engines.first())?.pointer(pointer)
    }

    /// A key of the `QnnHtp` block.
    pub fn htp(&self, key: &str) -> Option<&Value> {
        self.engine("/backend/QnnHtp")?.get(key)
    }

    /// True if the config is JSON with a dialog on `QnnHtp`.
    pub fn is_htp(&self) -> bool {
        self.engine("/backend/type").and_then(Value::as_str) == Some("QnnHtp")
    }

    /// The whole number at a pointer below `/dialog`.
    pub fn number(&self, pointer: &str) -> Option<i64> {
        self.dialog(pointer)?.as_i64()
    }

    /// The items of `positional-encoding`, or the older keys of `QnnHtp` as one of type `rope`. Empty where neither is there.
    pub fn position_items(&self) -> Vec<PositionItem<'_>> {
        const AT: &str = "/dialog/engine/model/positional-encoding";
        let one = |pointer: String, value| {
            let text = |key: &str| Value::get(value, key).and_then(Value::as_str);
            PositionItem {
                pointer,
                value: Some(value),
                kind: text("type").map_or(Some(PositionKind::Rope), PositionKind::by_name),
                prefix: text("prefix").filter(|prefix| *prefix != "default_").unwrap_or(""),
                rope_dim: value.get("rope-dim").and_then(Value::as_i64),
                dim_key: "rope-dim",
            }
        };
        match self.engine("/model/positional-encoding") {
            Some(Value::Array(list)) => {
                list.iter().enumerate().map(|(i, value)| one(format!("{AT}/{i}"), value)).collect()
            }
            Some(value) => vec![one(AT.into(), value)],
            None => self.htp("pos-id-dim").and_then(Value::as_i64).map_or(Vec::new(), |dim| {
                let pointer = "/dialog/engine/backend/QnnHtp".into();
                let (kind, rope_dim) = (Some(PositionKind::Rope), Some(dim));
                vec![PositionItem { pointer, value: None, kind, prefix: "", rope_dim, dim_key: "pos-id-dim" }]
            }),
        }
    }

    /// The ids of special tokens with their keys, without unset ones.
    pub fn special_tokens(&self) -> Vec<(&'static str, u32)> {
        let mut found = Vec::new();
        for key in ["bos-token", "eos-token", "eot-token", "pad-token"] {
            let Some(value) = self.dialog("/context").and_then(|context| context.get(key)) else { continue };
            let ids = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            found.extend(ids.iter().filter_map(|id| u32::try_from(id.as_i64()?).ok()).map(|id| (key, id)));
        }
        found
    }
}
