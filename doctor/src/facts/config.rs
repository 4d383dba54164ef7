//! A `genie_config.json`, valid or not, with access to its values.

use std::path::PathBuf;

use serde_json::Value;

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

    /// Width of the position tables in the config, with the pointer of its key.
    pub fn rope_dim(&self) -> Option<(i64, &'static str)> {
        let encoding = self.engine("/model/positional-encoding");
        let encoding = encoding.and_then(|e| e.as_array().map_or(Some(e), |list| list.first()));
        if let Some(encoding) = encoding {
            let dim = encoding.get("rope-dim")?.as_i64()?;
            return Some((dim, "/dialog/engine/model/positional-encoding/rope-dim"));
        }
        Some((self.htp("pos-id-dim")?.as_i64()?, "/dialog/engine/backend/QnnHtp/pos-id-dim"))
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
