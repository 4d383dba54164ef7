//! The entries of a directory as messages name them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

/// Names in a message; more are counted.
const SHOWN: usize = 20;

/// Entries of a directory, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Name, and whether it is a directory.
    entries: Vec<(OsString, bool)>,
}

impl Entries {
    /// All entries.
    pub(super) fn of(dir: &Path) -> std::io::Result<Self> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            entries.push((entry.file_name(), entry.file_type().is_ok_and(|kind| kind.is_dir())));
        }
        entries.sort();
        Ok(Self { entries })
    }

    /// These entries of a directory.
    pub(super) fn named(dir: &Path, names: impl Iterator<Item = OsString>) -> Self {
        let is_dir = |name: &OsString| dir.join(name).symlink_metadata().is_ok_and(|meta| meta.is_dir());
        let mut entries: Vec<_> =
            names.map(|name| (is_dir(&name), name)).map(|(is_dir, name)| (name, is_dir)).collect();
        entries.sort();
        Self { entries }
    }

    /// Those for which the condition does not hold.
    pub(super) fn without(mut self, condition: impl Fn(&OsStr) -> bool) -> Self {
        self.entries.retain(|(name, _)| !condition(name));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn has(&self, name: &OsStr) -> bool {
        self.names().any(|found| found == name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &OsString> {
        self.entries.iter().map(|(name, _)| name)
    }

    /// A name as text that a terminal cannot take for a command.
    pub(super) fn shown(name: &OsStr) -> String {
        let mut text = String::new();
        for c in name.to_string_lossy().chars() {
            if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        text
    }
}

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, is_dir)) in self.entries.iter().take(SHOWN).enumerate() {
            let (comma, slash) = (if i > 0 { ", " } else { "" }, if *is_dir { "/" } else { "" });
            write!(f, "{comma}`{}{slash}`", Self::shown(name))?;
        }
        match self.entries.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_counted_and_harmless() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("session")).unwrap();
        std::fs::write(dir.path().join("a\x1b[2J"), "").unwrap();
        let few = Entries::of(dir.path()).unwrap();
        assert_eq!(few.to_string(), r"`a\u{1b}[2J`, `session/`");
        for i in 0..30 {
            std::fs::write(dir.path().join(format!("n{i:02}")), "").unwrap();
        }
        let many = Entries::of(dir.path()).unwrap().to_string();
        assert!(many.ends_with("`n17`, `n18` and 12 more"), "{many}");
    }
}
