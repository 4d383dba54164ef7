//! The files that a config names: there, regular, and of the kind that the key is for.

use std::path::Path;

use file_io::{FileKind, JsonKind};

use super::problem::Problem;

/// What a key's file must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Compiled graphs. Qualcomm does not publish its formats, so bytes of no known kind pass.
    ContextBinary,
    /// A `tokenizer.json`.
    Tokenizer,
    /// A backend extension config.
    Extensions,
    /// A grammar, in any of its languages.
    Grammar,
    /// Rows of numbers, which may begin with any bytes.
    Table,
    /// Parts of a context binary, in a format that Qualcomm does not publish.
    Section,
}

impl Wanted {
    fn words(self) -> &'static str {
        match self {
            Self::ContextBinary => "a context binary",
            Self::Tokenizer => "a `tokenizer.json`",
            Self::Extensions => "a backend extension config",
            Self::Grammar => "the text of a grammar",
            Self::Table => "a table of embeddings",
            Self::Section => "a section of a context binary",
        }
    }

    /// False for what is surely something else.
    fn may_be(self, kind: &FileKind) -> bool {
        match self {
            Self::ContextBinary => !kind.is_no_context_binary(),
            Self::Tokenizer => is_json(kind, &[JsonKind::Tokenizer, JsonKind::Other]),
            Self::Extensions => is_json(kind, &[JsonKind::Other]),
            // Its own reader knows better than the first bytes do.
            Self::Grammar => true,
            Self::Table | Self::Section => !matches!(
                kind,
                FileKind::HostBinary { .. }
                    | FileKind::HtpBinary
                    | FileKind::Gguf { .. }
                    | FileKind::Safetensors
                    | FileKind::Elf { .. }
                    | FileKind::LfsPointer
                    | FileKind::Snapshot
                    | FileKind::Empty
            ),
        }
    }
}

/// Text passes as well: a torn document is for its parser, which knows the line.
fn is_json(kind: &FileKind, kinds: &[JsonKind]) -> bool {
    match kind {
        FileKind::Json(kind) => kinds.contains(kind),
        FileKind::Text | FileKind::Unknown { .. } => true,
        _ => false,
    }
}

/// What is wrong with a file; `base` is the config's folder.
pub(super) fn problem(pointer: String, path: &Path, wanted: Wanted, base: &Path) -> Option<Problem> {
    let kind = FileKind::of(path);
    let shown = path.display();
    let message = match &kind {
        FileKind::Missing => format!("file not found: `{shown}`"),
        FileKind::Unreadable(why) => format!("cannot access `{shown}`: {why}"),
        kind if !kind.is_file() => format!("expected a file, found {kind} at `{shown}`"),
        kind if !wanted.may_be(kind) => format!("expected {}, found {kind} at `{shown}`", wanted.words()),
        _ => return None,
    };
    let problem = Problem::new(pointer, message);
    let relative = kind.is_missing() && path.starts_with(base);
    Some(if relative { problem.hint("relative paths start at the config's folder") } else { problem })
}
