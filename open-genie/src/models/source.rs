//! A checkpoint or GGUF file by its path, and a stamp that changes with its files.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::error::{ModelsError, Result};

/// A checkpoint or GGUF file on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSource {
    path: PathBuf,
    stamp: String,
}

impl ModelSource {
    /// Looks at names, lengths and times of its files; their content is not read.
    ///
    /// # Errors
    /// It is not there, or cannot be listed.
    pub fn of(path: &Path) -> Result<Self> {
        let io = |source| ModelsError::Io { path: path.to_owned(), source };
        let path = path.canonicalize().map_err(io)?;
        let mut files = vec![path.clone()];
        if path.is_dir() {
            files = fs::read_dir(&path).map_err(io)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
            // A note beside the weights changes no model, and an editor's backup neither.
            files.retain(|file| {
                file.extension().is_some_and(|e| ["json", "safetensors", "jinja"].iter().any(|x| e == *x))
            });
            files.sort();
        }
        let mut hasher = DefaultHasher::new();
        let mut bytes = 0;
        for file in &files {
            let meta = file.metadata().map_err(io)?;
            let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            (file.file_name(), meta.len(), modified).hash(&mut hasher);
            bytes += meta.len();
        }
        Ok(Self { path, stamp: format!("{bytes}-{:016x}", hasher.finish()) })
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Equal as long as no file has changed.
    pub fn stamp(&self) -> &str {
        &self.stamp
    }

    /// The name of the file without `.gguf`, or of the folder.
    pub fn name(&self) -> String {
        name_of(&self.path)
    }
}

/// The word for a path: the name of the file without `.gguf`, or of the folder.
pub(super) fn name_of(path: &Path) -> String {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    name.strip_suffix(".gguf").map_or(name.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_changes_with_the_files_that_make_the_model() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("config.json", "{}");
        write("model.safetensors", "12345678");
        let stamp = || ModelSource::of(dir.path()).unwrap().stamp().to_owned();
        let before = stamp();
        write("README.md", "a note");
        assert_eq!(stamp(), before);
        write("model.safetensors", "123456789");
        assert_ne!(stamp(), before);
        assert!(matches!(ModelSource::of(&dir.path().join("none")), Err(ModelsError::Io { .. })));
    }
}
