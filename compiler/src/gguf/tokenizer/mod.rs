//! The file's tokenizer as `tokenizer.json`, and its chat template as `tokenizer_config.json`.
//!
//! Three kinds are supported: byte-level BPE (`gpt2`; `tokenizer.ggml.pre` names the pre-tokenizer), SentencePiece BPE
//! (`llama`; its merges follow from the pieces' scores, since the file has none), and BPE over the text (`gemma4`).
//! *Invariant*: each entry has a row in the embedding and a text of its own, as in llama.cpp.
//! *Source*: the tokenizers crate's file format; the patterns are those of the models' published `tokenizer.json`.

mod byte_level;
mod letters;
mod raw_merges;
mod sentence_piece;

use super::value::{Texts, shown};
use super::{Gguf, GgufError};
use crate::{CompileError, Result};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// What an entry is, as `tokenizer.ggml.token_type` numbers it.
mod kind {
    pub(super) const NORMAL: i128 = 1;
    pub(super) const UNKNOWN: i128 = 2;
    pub(super) const CONTROL: i128 = 3;
    pub(super) const USER_DEFINED: i128 = 4;
    pub(super) const LAST: i128 = 6;
}

/// What a key without effect holds: a value of another type is refused all the same.
#[derive(Clone, Copy)]
enum Holds {
    Id,
    Count,
    Bool,
    Text,
    Texts,
    Numbers,
}

/// Keys of the tokenizer that change nothing here: ids that no text is made with, and other forms of the same tokenizer.
const HARMLESS: [(&str, Holds); 22] = [
    ("unknown_token_id", Holds::Id),
    ("seperator_token_id", Holds::Id),
    ("separator_token_id", Holds::Id),
    ("mask_token_id", Holds::Id),
    ("cls_token_id", Holds::Id),
    ("prefix_token_id", Holds::Id),
    ("suffix_token_id", Holds::Id),
    ("middle_token_id", Holds::Id),
    ("eot_token_id", Holds::Id),
    ("eom_token_id", Holds::Id),
    ("fim_pre_token_id", Holds::Id),
    ("fim_suf_token_id", Holds::Id),
    ("fim_mid_token_id", Holds::Id),
    ("fim_pad_token_id", Holds::Id),
    ("fim_rep_token_id", Holds::Id),
    ("fim_sep_token_id", Holds::Id),
    ("token_type_count", Holds::Count),
    ("add_sep_token", Holds::Bool),
    ("add_space_prefix", Holds::Bool),
    ("scores", Holds::Numbers),
    ("merges", Holds::Texts),
    ("pre", Holds::Text),
];

/// The vocabulary: entries by id, and ids by text.
pub(super) struct Vocabulary<'g> {
    /// Texts in the order of ids; empty ones are given a name.
    pub(super) tokens: Vec<std::borrow::Cow<'g, str>>,
    pub(super) ids: HashMap<&'g str, usize>,
    /// What each entry is, where the file says it.
    kinds: Option<Vec<i128>>,
}

impl Vocabulary<'_> {
    pub(super) fn kind(&self, id: usize) -> i128 {
        self.kinds.as_ref().map_or(kind::NORMAL, |kinds| kinds[id])
    }

    /// `vocab` of a BPE model.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        self.tokens.iter().enumerate().map(|(id, token)| (token.to_string(), json!(id))).collect()
    }
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

impl Gguf {
    fn bad_tokenizer(&self, detail: impl Into<String>) -> CompileError {
        GgufError::Tokenizer { path: self.path.clone(), detail: detail.into() }.into()
    }

    /// The kind of tokenizer: `gpt2` or `llama`.
    fn tokenizer_kind(&self) -> Result<&str> {
        match self.meta.text(&key("model"))? {
            None | Some("none" | "no_vocab") => Err(GgufError::NoTokenizer { path: self.path.clone() }.into()),
            Some(kind @ ("gpt2" | "llama" | "gemma4")) => Ok(kind),
            Some(_) => Err(self.meta.refused(&key("model"), "`gpt2`, `llama` or `gemma4`")),
        }
    }

    /// An id; all ones and -1 stand for none.
    pub(super) fn token_id(&self, name: &str) -> Result<Option<u64>> {
        let key = key(name);
        if self.meta.get(&key) == Some(&super::value::Value::Int(-1)) {
            return Ok(None);
        }
        Ok(self.meta.count(&key)?.filter(|&id| id != u64::from(u32::MAX)))
    }

    /// Ids that end a reply; the first one closes turns.
    pub(super) fn end_tokens(&self) -> Result<Vec<u64>> {
        let mut ends = Vec::new();
        for name in ["eos_token_id", "eot_token_id", "eom_token_id"] {
            ends.extend(self.token_id(name)?.filter(|id| !ends.contains(id)));
        }
        Ok(ends)
    }

    /// `tokenizer.json` for a model of that many rows.
    ///
    /// # Errors
    /// No tokenizer, one of an unsupported kind, or one whose lists contradict each other or the model.
    pub(crate) fn tokenizer(&self, rows: usize) -> Result<Value> {
        let kind = self.tokenizer_kind()?;
        let vocabulary = self.vocabulary(rows)?;
        let mut file = match kind {
            "gpt2" => self.byte_level(&vocabulary)?,
            "gemma4" => self.raw_merges(&vocabulary)?,
            _ => self.sentence_piece(&vocabulary)?,
        };
        let added = vocabulary.tokens.iter().enumerate().filter_map(|(id, token)| {
            let kind = vocabulary.kind(id);
            let special = kind == kind::CONTROL || kind == kind::UNKNOWN;
            (special || kind == kind::USER_DEFINED).then(|| {
                json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": false, "special": special})
            })
        });
        file["added_tokens"] = added.collect();
        self.check_other_keys()?;
        Ok(file)
    }

    /// `tokenizer_config.json`: whether a BOS is prepended, and the chat template.
    ///
    /// # Errors
    /// Values of another type; a BOS that is to be prepended and has no id.
    pub(crate) fn tokenizer_config(&self) -> Result<Value> {
        let none = Texts::default();
        let tokens = self.meta.texts(&key("tokens"))?.unwrap_or(&none);
        // Without the key, SentencePiece models and Llama 3 begin with one, as in llama.cpp.
        let pre = self.meta.text(&key("pre"))?;
        let default = match self.tokenizer_kind()? {
            "gpt2" => pre.is_some_and(byte_level::is_llama3),
            kind => kind == "llama",
        };
        let add_bos = self.meta.bool(&key("add_bos_token"))?.unwrap_or(default);
        if add_bos {
            self.meta.required(&key("bos_token_id"), self.token_id("bos_token_id")?)?;
        }
        let token = |name: &str| -> Result<Option<&str>> {
            Ok(self.token_id(name)?.and_then(|id| tokens.get(usize::try_from(id).ok()?)))
        };
        let mut config = Map::new();
        config.insert("add_bos_token".into(), json!(add_bos));
        config.insert("bos_token".into(), json!(token("bos_token_id")?));
        config.insert("eos_token".into(), json!(token("eos_token_id")?));
        if let Some(template) = self.meta.text("tokenizer.chat_template")? {
            config.insert("chat_template".into(), json!(template));
        }
        Ok(config.into())
    }

    /// What to say of a tokenizer that this compiler does not follow in everything, or that the file does not say everything of.
    pub(crate) fn tokenizer_notes(&self) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        if self.meta.bool(&key("add_eos_token"))? == Some(true) {
            notes.push(
                "`tokenizer.ggml.add_eos_token` is true, but prompts are not ended with the end token here".into(),
            );
        }
        if self.tokenizer_kind()? == "gpt2" && self.meta.text(&key("pre"))?.is_none() {
            notes.push(format!(
                "the file has no key `tokenizer.ggml.pre`: texts are cut as by `{}`, which may not be how the model's are",
                byte_level::UNNAMED
            ));
        }
        Ok(notes)
    }

    /// Entries of the vocabulary, whatever the model has.
    pub(super) fn n_tokens(&self) -> Result<usize> {
        Ok(self.meta.required(&key("tokens"), self.meta.texts(&key("tokens"))?)?.len())
    }

    /// The piece that stands for what the vocabulary cannot write.
    fn unknown_piece<'v>(&self, vocabulary: &'v Vocabulary<'_>) -> Result<&'v str> {
        let unknown = self.token_id("unknown_token_id")?.unwrap_or(0);
        let found = usize::try_from(unknown).ok().and_then(|id| vocabulary.tokens.get(id));
        found.map(AsRef::as_ref).ok_or_else(|| {
            let expected = format!("an id below {}, the number of tokens", vocabulary.tokens.len());
            self.meta.refused(&key("unknown_token_id"), expected)
        })
    }

    fn vocabulary(&self, rows: usize) -> Result<Vocabulary<'_>> {
        let texts = self.meta.required(&key("tokens"), self.meta.texts(&key("tokens"))?)?;
        if texts.len() != rows {
            let expected = format!("one for each of the {rows} rows of `token_embd.weight`");
            return Err(self.meta.refused(&key("tokens"), expected));
        }
        let kinds = self.meta.ints(&key("token_type"))?;
        if let Some(kinds) = &kinds {
            if kinds.len() != rows {
                return Err(self.meta.refused(&key("token_type"), format!("one for each of the {rows} tokens")));
            }
            if let Some(id) = kinds.iter().position(|kind| !(0..=kind::LAST).contains(kind)) {
                let found = kinds[id];
                return Err(self.bad_tokenizer(format!("token {id} is of type {found}, expected 0 to {}", kind::LAST)));
            }
        }
        let mut tokens: Vec<std::borrow::Cow<'_, str>> = Vec::with_capacity(rows);
        let mut ids = HashMap::with_capacity(rows);
        for (id, token) in texts.iter().enumerate() {
            if token.is_empty() {
                tokens.push(format!("<empty {id}>").into());
                continue;
            }
            if let Some(first) = ids.insert(token, id) {
                return Err(self.bad_tokenizer(format!("tokens {first} and {id} are both `{}`", shown(token))));
            }
            tokens.push(token.into());
        }
        if let Some((id, name)) =
            tokens.iter().enumerate().find(|(id, name)| ids.get(name.as_ref()).is_some_and(|own| own != id))
        {
            let other = ids[name.as_ref()];
            return Err(self.bad_tokenizer(format!(
                "token {id} is empty, and token {other} is `{name}`, the name that it is given"
            )));
        }
        Ok(Vocabulary { tokens, ids, kinds })
    }

    /// Keys of the tokenizer that were not read must be known to be harmless.
    fn check_other_keys(&self) -> Result<()> {
        for (name, holds) in HARMLESS {
            match holds {
                Holds::Id => drop(self.token_id(name)?),
                Holds::Count => drop(self.meta.count(&key(name))?),
                Holds::Bool => drop(self.meta.bool(&key(name))?),
                Holds::Text => drop(self.meta.text(&key(name))?),
                Holds::Texts => drop(self.meta.texts(&key(name))?),
                Holds::Numbers => drop(self.meta.numbers(&key(name))?),
            }
        }
        // Both are for kinds of tokenizers that are not supported; llama.cpp does not read them for these either.
        let asks_for_fewer_spaces = self.meta.bool(&key("remove_extra_whitespaces"))? == Some(true);
        self.meta.bool(&key("add_eos_token"))?;
        let has_charsmap = self.meta.get(&key("precompiled_charsmap")).is_some();
        self.token_id("padding_token_id")?;
        self.end_tokens()?;
        self.tokenizer_config()?;
        match self.meta.unread().into_iter().find(|name| name.starts_with("tokenizer.ggml.")) {
            Some(name) => Err(GgufError::UnknownKey { path: self.path.clone(), key: shown(name) }.into()),
            None => {
                // Other templates, and the same tokenizer in other forms.
                self.meta.leave_out("tokenizer.");
                // Without effect, which is said.
                let asked =
                    [("remove_extra_whitespaces", asks_for_fewer_spaces), ("precompiled_charsmap", has_charsmap)];
                for (name, _) in asked.iter().filter(|(_, is_asked)| *is_asked) {
                    self.meta.unread_again(&key(name));
                }
                Ok(())
            }
        }
    }
}
