//! A `tokenizer.json` as it stands: its parts by name, keys that nothing reads and keys that come twice refused.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::Fault;
use crate::json_fault;
use crate::limits;

/// The whole file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    #[serde(default)]
    pub(crate) version: Option<String>,
    // What a training program cuts and pads batches with: of no use here, so it is only known, not read.
    #[serde(default, rename = "truncation")]
    _truncation: Option<Part>,
    #[serde(default, rename = "padding")]
    _padding: Option<Part>,
    #[serde(default)]
    pub(crate) added_tokens: Vec<AddedEntry>,
    #[serde(default)]
    pub(crate) normalizer: Option<Part>,
    #[serde(default)]
    pub(crate) pre_tokenizer: Option<Part>,
    #[serde(default)]
    pub(crate) post_processor: Option<Part>,
    #[serde(default)]
    pub(crate) decoder: Option<Part>,
    pub(crate) model: ModelPart,
}

/// An added token.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddedEntry {
    pub(crate) id: Id,
    pub(crate) content: String,
    pub(crate) single_word: bool,
    pub(crate) lstrip: bool,
    pub(crate) rstrip: bool,
    pub(crate) normalized: bool,
    pub(crate) special: bool,
}

/// The keys of every kind of model.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelPart {
    #[serde(default, rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) vocab: Entries,
    #[serde(default)]
    pub(crate) merges: Option<Vec<Merge>>,
    #[serde(default)]
    pub(crate) dropout: Option<f64>,
    #[serde(default)]
    pub(crate) unk_token: Option<String>,
    #[serde(default)]
    pub(crate) unk_id: Option<u64>,
    #[serde(default)]
    pub(crate) continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub(crate) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(crate) fuse_unk: Option<bool>,
    #[serde(default)]
    pub(crate) byte_fallback: Option<bool>,
    #[serde(default)]
    pub(crate) ignore_merges: Option<bool>,
    #[serde(default)]
    pub(crate) max_input_chars_per_word: Option<u64>,
}

/// Reads the file's bytes.
pub(crate) fn read(bytes: &[u8]) -> Result<Document, Fault> {
    if let Some(found) = other_format(bytes) {
        return Err(Fault::OtherFormat { found });
    }
    serde_json::from_slice(bytes).map_err(|e| Fault::Json(json_fault::explain::<Document>(bytes, &e)))
}

/// Files that are often in a tokenizer's place.
fn other_format(bytes: &[u8]) -> Option<&'static str> {
    if bytes.is_empty() {
        return Some("an empty file");
    }
    if bytes.starts_with(b"\xef\xbb\xbf") || bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Some("a text with a byte order mark");
    }
    if bytes.starts_with(b"version https://git-lfs") {
        return Some("a pointer of Git LFS, not the file itself");
    }
    if bytes.starts_with(b"GGUF") {
        return Some("a GGUF file");
    }
    // A SentencePiece model is a protocol buffer: field 1 (pieces) first, each a message.
    if bytes[0] == 0x0a && !bytes.iter().take(64).all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) {
        return Some("SentencePiece's tokenizer.model");
    }
    None
}

/// An id: a whole number below the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(pub(crate) u32);

impl Id {
    fn of(value: &Value, entry: &str) -> Result<Self, String> {
        let id = value.as_u64().filter(|&id| id < limits::IDS).and_then(|id| u32::try_from(id).ok());
        id.map(Self).ok_or_else(|| {
            let (found, below) = (shown(value), limits::IDS);
            format!("the id of `{entry}`: found {found}, expected a whole number below {below}")
        })
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::of(&value, "an added token").map_err(D::Error::custom)
    }
}

/// A value in an error: its beginning.
pub(crate) fn shown(value: &Value) -> String {
    cut(&value.to_string())
}

/// The beginning of a long text.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", text[..end].escape_debug()),
        None => text.escape_debug().to_string().replace("\\\"", "\""),
    }
}

/// A vocabulary.
pub(crate) enum Entries {
    /// Texts and their ids.
    Ids(Vec<(String, u32)>),
    /// Unigram: texts and scores, the id is the place.
    Scores(Vec<(String, f64)>),
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a vocabulary, texts with ids or a list of texts with scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some((text, id)) = map.next_entry::<String, Value>()? {
                    let id = Id::of(&id, &cut(&text)).map_err(A::Error::custom)?;
                    entries.push((text, id.0));
                }
                Ok(Entries::Ids(entries))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = list.next_element::<(String, f64)>()? {
                    entries.push(entry);
                }
                Ok(Entries::Scores(entries))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Two entries that become one, as a pair or as one text with a space between.
pub(crate) struct Merge(pub(crate) String, pub(crate) String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge, two texts or one with a space between")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Merge, E> {
                let mut parts = text.split(' ');
                match (parts.next(), parts.next(), parts.next()) {
                    (Some(a), Some(b), None) => Ok(Merge(a.to_owned(), b.to_owned())),
                    _ => Err(E::custom(format!("merge `{}`: expected two parts with a space between", cut(text)))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merge, A::Error> {
                let parts = (list.next_element()?, list.next_element()?, list.next_element::<String>()?);
                match parts {
                    (Some(a), Some(b), None) => Ok(Merge(a, b)),
                    _ => Err(A::Error::custom("a merge: expected two texts")),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Any JSON in which no key comes twice.
pub(crate) struct Part(pub(crate) Value);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Part;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Part, E> {
                Ok(Part(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Part, E> {
                Ok(Part(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Part, E> {
                Ok(Part(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Part, E> {
                Ok(Part(Number::from_f64(value).map_or(Value::Null, Value::Number)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Part, E> {
                Ok(Part(value.into()))
            }

            fn visit_unit<E>(self) -> Result<Part, E> {
                Ok(Part(Value::Null))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Part, A::Error> {
                let mut values = Vec::new();
                while let Some(Part(value)) = list.next_element()? {
                    values.push(value);
                }
                Ok(Part(Value::Array(values)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
                let mut values = Map::new();
                while let Some((key, Part(value))) = map.next_entry::<String, Part>()? {
                    if values.contains_key(&key) {
                        return Err(A::Error::custom(format!("key `{}` comes twice", cut(&key))));
                    }
                    values.insert(key, value);
                }
                Ok(Part(Value::Object(values)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
