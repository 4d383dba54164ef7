//! What is wrong with a config, where, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// One finding, at one place of the JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// JSON pointer to the key, for example `/dialog/context/size`; empty for the whole document.
    pub pointer: String,
    /// What was expected and what was found.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

impl Problem {
    /// A finding without a hint.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() { "/" } else { &self.pointer };
        write!(f, "{place}: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// Why a config cannot be used. Lists all problems of its stage, not the first only.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the dialog config `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Not JSON.
    #[error("{origin} is not valid JSON")]
    Syntax {
        /// The file, or that it was a string.
        origin: Origin,
        /// Line, column and reason.
        source: serde_json::Error,
    },
    /// JSON, but not a dialog config by Genie's schema.
    #[error("{origin} is not a valid dialog config: {}", listed(.problems))]
    Invalid {
        /// The file, or that it was a string.
        origin: Origin,
        /// All of them, in the order of the file, cross-key rules last.
        problems: Vec<Problem>,
    },
    /// JSON, but not a backend extension config.
    #[error("{origin} is not a valid backend extension config: {}", listed(.problems))]
    Extensions {
        /// The file, or that it was a string.
        origin: Origin,
        /// All of them, in the order of the file.
        problems: Vec<Problem>,
    },
    /// Valid, but asks for a feature that this build does not have.
    #[error("{origin} asks for more than this build can do: {}", listed(.problems))]
    Unsupported {
        /// The file, or that it was a string.
        origin: Origin,
        /// Each feature by name.
        problems: Vec<Problem>,
    },
    /// Valid, but files that it names are not there.
    #[error("{origin} names files that cannot be used: {}", listed(.problems))]
    Files {
        /// The file, or that it was a string.
        origin: Origin,
        /// Each file with the absolute path that was tried.
        problems: Vec<Problem>,
    },
}

impl ConfigError {
    /// The findings, for callers that print them one by one. Empty when the text was not readable as JSON.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Read { .. } | Self::Syntax { .. } => &[],
            Self::Invalid { problems, .. }
            | Self::Extensions { problems, .. }
            | Self::Unsupported { problems, .. }
            | Self::Files { problems, .. } => problems,
        }
    }
}

/// Where a config came from, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// A string in memory.
    Text,
}

impl Origin {
    /// A file by its name as it is shown, or a text without one.
    pub fn named(file: Option<&str>) -> Self {
        file.map_or(Self::Text, |name| Self::File(name.into()))
    }

    pub(super) fn file(path: &Path) -> Self {
        Self::File(path.to_path_buf())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "`{}`", path.display()),
            Self::Text => f.write_str("the config"),
        }
    }
}

/// One problem on the same line, several on lines of their own.
fn listed(problems: &[Problem]) -> String {
    match problems {
        [only] => only.to_string(),
        many => {
            let mut text = format!("{} problems", many.len());
            for p in many {
                text.push_str("\n  ");
                text.push_str(&p.to_string());
            }
            text
        }
    }
}
