//! JSON documents by their outermost keys.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// What a JSON document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonKind {
    /// A bundle's `genie_config.json`.
    GenieConfig,
    /// A Hugging Face model's `config.json`.
    ModelConfig,
    /// The list of a checkpoint's safetensors files.
    SafetensorsIndex,
    /// A Hugging Face `tokenizer.json`.
    Tokenizer,
    /// A `tokenizer_config.json`.
    TokenizerConfig,
    /// A bundle's `manifest.json`.
    Manifest,
    /// A bundle's `calibration.json`.
    Calibration,
    /// Any other.
    Other,
}

impl fmt::Display for JsonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GenieConfig => "a dialog config (`genie_config.json`)",
            Self::ModelConfig => "a model's `config.json`",
            Self::SafetensorsIndex => "an index of safetensors files",
            Self::Tokenizer => "a `tokenizer.json`",
            Self::TokenizerConfig => "a `tokenizer_config.json`",
            Self::Manifest => "a bundle's manifest",
            Self::Calibration => "a bundle's calibration",
            Self::Other => "a JSON file",
        })
    }
}

/// The kind by the keys of a document's beginning; what is cut off or torn is not looked at.
pub(super) fn of(head: &[u8]) -> JsonKind {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let mut keys = Vec::new();
    // A torn document is an error; the keys before the tear are known by then.
    let _ = serde_json::Deserializer::from_slice(head).deserialize_map(Keys(&mut keys));
    let has = |key: &str| keys.iter().any(|k| k == key);
    if has("dialog") {
        JsonKind::GenieConfig
    } else if has("weight_map") {
        JsonKind::SafetensorsIndex
    } else if has("format") && has("files") {
        JsonKind::Manifest
    } else if has("format") && has("steps") {
        JsonKind::Calibration
    } else if has("added_tokens") || has("pre_tokenizer") || has("normalizer") {
        JsonKind::Tokenizer
    } else if has("tokenizer_class") || has("added_tokens_decoder") || has("chat_template") {
        JsonKind::TokenizerConfig
    } else if has("model_type") || has("architectures") {
        JsonKind::ModelConfig
    } else {
        JsonKind::Other
    }
}

/// Collects the keys of the outermost object.
struct Keys<'k>(&'k mut Vec<String>);

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            self.0.push(key);
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}
