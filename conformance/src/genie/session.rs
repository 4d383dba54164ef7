//! What is asked of a dialog and what comes back, as data that crosses a process boundary.

use std::path::{Path, PathBuf};
use std::time::Instant;

use qnn_api::{Backend, BackendOptions, Library};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::codes::Sentence;
use super::error::GenieError;
use super::ffi::{Dialog, Genie, LogLevel};

/// One dialog from opening to closing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// The `libGenie.so`.
    pub library: PathBuf,
    /// The bundle's config. Its folder becomes the current one, since libGenie takes paths relative to that.
    pub config: PathBuf,
    /// Merged into the config: objects by key, null removes, all else replaces.
    pub changes: Value,
    /// How much is logged. [`Run::executed`](super::Run::executed) needs `Verbose`.
    pub log: LogLevel,
    /// What is asked, in order.
    pub acts: Vec<Act>,
    /// Who answers.
    pub player: Player,
}

/// Who answers a session that is played in a process of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Player {
    /// The library.
    #[default]
    Real,
    /// Our dialog over a QNN library.
    Ours {
        /// The backend's file.
        backend: PathBuf,
    },
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Act {
    /// A query of token ids.
    Tokens(Vec<u32>, Sentence),
    /// A query of text.
    Text(String, Sentence),
    /// Most tokens of replies from now on.
    MaxTokens(u32),
    /// Apply a LoRA adapter.
    Lora(String),
    /// Set the strength that an input of the graphs has.
    LoraStrength(String, f32),
    /// Forget the conversation.
    Reset,
    /// Write the conversation to a folder.
    Save(PathBuf),
    /// Take a conversation up from a folder.
    Restore(PathBuf),
}

/// What came of one [`Act`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The call's status.
    pub code: i32,
    /// All tokens (token queries).
    pub tokens: Vec<u32>,
    /// All text (text queries).
    pub text: String,
    /// Each call of the callback: tokens or bytes, and its code.
    pub calls: Vec<(usize, i32)>,
    /// When each call of the callback came, in nanoseconds since the query began.
    pub at_ns: Vec<u64>,
}

/// What came of a [`Session`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Version of the C interface; zeros where our dialog answered.
    pub version: [u32; 3],
    /// In the order of the acts.
    pub replies: Vec<Reply>,
    /// The library's own profile; null where our dialog answered.
    pub profile: Value,
}

impl Session {
    /// A session of the real library on a bundle's config, changed so that the most likely token is taken.
    pub fn greedy(library: impl Into<PathBuf>, config: impl Into<PathBuf>, acts: Vec<Act>) -> Self {
        // `greedy` has no effect in libGenie; `top-k` of 1 has.
        let changes = serde_json::json!({ "dialog": { "sampler": { "top-k": 1 } } });
        Self { library: library.into(), config: config.into(), changes, log: LogLevel::Off, acts, player: Player::Real }
    }

    /// The same, but no token ends a reply.
    #[must_use]
    pub fn endless(mut self) -> Self {
        // Padding takes the end token where it has none of its own.
        merge(&mut self.changes, &serde_json::json!({ "dialog": { "context": { "eos-token": -1, "pad-token": 0 } } }));
        self
    }

    /// Plays the session in this process, by whom it names.
    ///
    /// # Errors
    /// A library cannot be loaded, the dialog is not made, an act is refused.
    pub fn play(&self) -> Result<Outcome, Box<dyn std::error::Error>> {
        match &self.player {
            Player::Real => Ok(self.play_real()?),
            Player::Ours { backend } => {
                let backend = Backend::new(&Library::open(backend)?, &BackendOptions::default())?;
                let replies = self.play_ours(&backend)?.replies;
                Ok(Outcome { version: [0; 3], replies, profile: Value::Null })
            }
        }
    }

    fn play_real(&self) -> Result<Outcome, GenieError> {
        let text = self.config_text()?;
        let library = absolute(&self.library)?;
        let acts: Vec<Act> = self.acts.iter().map(Act::absolute).collect::<Result<_, _>>()?;
        if let Some(folder) = self.config.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::env::set_current_dir(folder).map_err(|source| GenieError::File { path: folder.to_owned(), source })?;
        }
        let genie = Genie::open(&library)?;
        let mut dialog = genie.dialog(&text, self.log)?;
        let replies = acts.iter().map(|act| act.play(&mut dialog)).collect::<Result<_, _>>()?;
        let profile = dialog.profile()?;
        let profile =
            serde_json::from_str(&profile).map_err(|source| GenieError::Json { what: "the profile".into(), source })?;
        Ok(Outcome { version: genie.version(), replies, profile })
    }

    /// The config with its changes.
    pub(super) fn config_text(&self) -> Result<String, GenieError> {
        let text = std::fs::read_to_string(&self.config)
            .map_err(|source| GenieError::File { path: self.config.clone(), source })?;
        let json = serde_json::from_str(&text);
        let mut json: Value =
            json.map_err(|source| GenieError::Json { what: format!("`{}`", self.config.display()), source })?;
        merge(&mut json, &self.changes);
        Ok(json.to_string())
    }
}

impl Act {
    fn absolute(&self) -> Result<Self, GenieError> {
        Ok(match self {
            Self::Save(folder) => Self::Save(absolute(folder)?),
            Self::Restore(folder) => Self::Restore(absolute(folder)?),
            other => other.clone(),
        })
    }

    fn play(&self, dialog: &mut Dialog<'_>) -> Result<Reply, GenieError> {
        let mut reply = Reply::default();
        let began = Instant::now();
        let note = |at_ns: &mut Vec<u64>| at_ns.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        reply.code = match self {
            Self::Tokens(tokens, sentence) => dialog.token_query(tokens, *sentence, &mut |tokens, sentence| {
                note(&mut reply.at_ns);
                reply.tokens.extend_from_slice(tokens);
                reply.calls.push((tokens.len(), sentence));
            }),
            Self::Text(text, sentence) => dialog.query(text, *sentence, &mut |text, sentence| {
                note(&mut reply.at_ns);
                reply.text.push_str(text);
                reply.calls.push((text.len(), sentence));
            }),
            Self::MaxTokens(n) => dialog.set_max_num_tokens(*n),
            Self::Lora(adapter) => dialog.apply_lora(adapter)?,
            Self::LoraStrength(alpha, strength) => dialog.set_lora_strength(alpha, *strength)?,
            Self::Reset => dialog.reset(),
            Self::Save(folder) => dialog.save(folder)?,
            Self::Restore(folder) => dialog.restore(folder)?,
        };
        Ok(reply)
    }
}

/// A merge patch (RFC 7396).
fn merge(into: &mut Value, changes: &Value) {
    let (Value::Object(into), Value::Object(changes)) = (&mut *into, changes) else {
        if !changes.is_null() {
            *into = changes.clone();
        }
        return;
    };
    for (key, change) in changes {
        if change.is_null() {
            into.remove(key);
        } else {
            merge(into.entry(key).or_insert(Value::Null), change);
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, GenieError> {
    std::path::absolute(path).map_err(|source| GenieError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_reach_into_objects() {
        for (before, changes, after) in [
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 3}}), json!({"a": {"b": 3, "c": 2}})),
            (json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2})),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (json!({}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
            (json!({"a": 1}), json!(null), json!({"a": 1})),
        ] {
            let mut found = before.clone();
            merge(&mut found, &changes);
            assert_eq!(found, after, "{before} with {changes}");
        }
    }

    #[test]
    fn a_session_survives_the_way_to_another_process() {
        let acts = vec![
            Act::Tokens(vec![1, 2], Sentence::Complete),
            Act::Text("a\nb".into(), Sentence::Rewind),
            Act::MaxTokens(7),
            Act::Save("x/y".into()),
            Act::Reset,
        ];
        let session = Session::greedy("lib.so", "bundle/genie_config.json", acts.clone());
        let text = serde_json::to_string(&session).unwrap();
        let back: Session = serde_json::from_str(&text).unwrap();
        assert_eq!((back.acts, back.changes, back.log), (acts, session.changes, session.log));
    }
}
