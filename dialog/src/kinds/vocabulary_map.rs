//! A draft model with a vocabulary of its own: which of its ids is which of the target's.
//!
//! *File* (`draft-token-map`): a JSON list of the target's ids by the draft's, or an object of both as `{"DRAFT ID": TARGET ID}`.
//! *Invariant*: no two draft ids are the same token of the target.

use std::collections::HashMap;
use std::path::Path;

use genie_types::TokenId;
use serde_json::Value;

use crate::config::DialogConfig;
use crate::conversation::error::DialogError;

/// Ids of a draft model in the target's vocabulary, and back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VocabularyMap {
    /// By draft id; `None` for one that the target lacks.
    to_target: Vec<Option<TokenId>>,
    to_draft: HashMap<TokenId, TokenId>,
}

impl VocabularyMap {
    /// The target's ids by the draft's.
    ///
    /// # Errors
    /// The number of a token that stands there twice.
    pub fn new(to_target: Vec<Option<TokenId>>) -> Result<Self, TokenId> {
        let mut to_draft = HashMap::with_capacity(to_target.len());
        for (own, target) in (0..).zip(&to_target) {
            if let Some(target) = target
                && to_draft.insert(*target, TokenId(own)).is_some()
            {
                return Err(*target);
            }
        }
        Ok(Self { to_target, to_draft })
    }

    /// That of a config's draft model; `None` where its ids are the target's.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn of_config(config: &DialogConfig) -> Result<Option<Self>, DialogError> {
        config.draft_token_map().map(Self::read).transpose()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`DialogError::VocabularyMap`].
    pub fn read(path: &Path) -> Result<Self, DialogError> {
        let bad = |found: String| DialogError::VocabularyMap { path: path.to_owned(), found };
        let text = std::fs::read(path).map_err(|e| bad(e.to_string()))?;
        let json: Value = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok()).map(TokenId);
        let mut to_target = Vec::new();
        match &json {
            Value::Array(list) => {
                for (own, target) in list.iter().enumerate() {
                    to_target.push(Some(id(target).ok_or_else(|| bad(format!("{target} for the draft's id {own}")))?));
                }
            }
            Value::Object(pairs) => {
                for (own, target) in pairs {
                    // More ids than any vocabulary has would be an attack on the memory.
                    let place = own.parse::<usize>().ok().filter(|own| *own < MOST_IDS);
                    let (Some(place), Some(target)) = (place, id(target)) else {
                        return Err(bad(format!("`{own}`: {target}")));
                    };
                    to_target.resize(to_target.len().max(place + 1), None);
                    to_target[place] = Some(target);
                }
            }
            other => return Err(bad(format!("a JSON {}", if other.is_string() { "string" } else { "value" }))),
        }
        Self::new(to_target).map_err(|twice| bad(format!("token {twice} twice")))
    }

    /// Ids of the draft model.
    pub fn len(&self) -> usize {
        self.to_target.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.to_target.is_empty()
    }

    /// The largest id of the target that the draft knows.
    pub fn last(&self) -> Option<TokenId> {
        self.to_target.iter().flatten().max().copied()
    }

    /// The draft's id of a token.
    pub fn draft_id(&self, token: TokenId) -> Option<TokenId> {
        self.to_draft.get(&token).copied()
    }

    /// Tokens of the target as the draft's; those that it lacks are left out.
    pub fn draft_ids(&self, tokens: &[TokenId]) -> Vec<TokenId> {
        tokens.iter().filter_map(|token| self.draft_id(*token)).collect()
    }

    /// Refuses models with other vocabularies than those of the file. `kind`: the dialog's, for the message.
    ///
    /// # Errors
    /// [`DialogError::Kind`].
    pub fn check(&self, kind: &'static str, target: usize, draft: usize) -> Result<(), DialogError> {
        let refuse = |expected: String, found: String| Err(DialogError::Kind { kind, expected, found });
        if self.len() > draft {
            return refuse(
                format!("a draft model that gives logits for the {} ids of `draft-token-map`", self.len()),
                format!("one with a vocabulary of {draft}"),
            );
        }
        match self.last().filter(|last| last.0 as usize >= target) {
            Some(last) => refuse(
                format!("a `draft-token-map` with ids below {target}, the vocabulary of the target"),
                format!("token {last}"),
            ),
            None => Ok(()),
        }
    }

    /// The draft's logits as those of the target's vocabulary; a token that it lacks is impossible.
    pub fn row(&self, logits: &[f32], n_vocab: usize) -> Vec<f32> {
        let mut row = vec![f32::NEG_INFINITY; n_vocab];
        for (target, &logit) in self.to_target.iter().zip(logits) {
            if let Some(place) = target.and_then(|target| row.get_mut(target.0 as usize)) {
                *place = logit;
            }
        }
        row
    }
}

/// More than any vocabulary has.
const MOST_IDS: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_file_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map.json");
        for (text, n, row) in
            [("[2, 0]", 2, [5.0, f32::NEG_INFINITY, 4.0]), (r#"{"0": 1, "2": 2}"#, 3, [f32::NEG_INFINITY, 4.0, 6.0])]
        {
            std::fs::write(&path, text).unwrap();
            let map = VocabularyMap::read(&path).unwrap();
            assert_eq!((map.len(), map.row(&[4.0, 5.0, 6.0], 3)), (n, row.to_vec()));
            assert_eq!(map.last(), Some(TokenId(2)));
            assert_eq!(map.draft_id(TokenId(7)), None);
        }
        for (text, found) in [
            ("[1, 1]", "token 1 twice"),
            ("[1, -1]", "-1 for the draft's id 1"),
            (r#"{"x": 1}"#, "`x`: 1"),
            ("3", "a JSON value"),
            ("", "EOF"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = VocabularyMap::read(&path).unwrap_err().to_string();
            assert!(error.contains(found) && error.contains("map.json"), "{error}");
        }
    }
}
