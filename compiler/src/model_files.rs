//! The small files beside a model's weights: configuration, tokenizer, chat templates.
//!
//! They lie in a Hugging Face folder, or they are made of a GGUF file's metadata and kept in memory: nothing is written to a
//! temporary folder, so a process that is killed leaves nothing there.

use crate::{Result, fs};
use genie_bundle::TOKENIZER_FILE;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the small files are.
#[derive(Clone, Debug)]
pub(crate) enum ModelFiles {
    /// In this folder.
    Folder(PathBuf),
    /// In memory, by name.
    Made {
        /// The file that they were made of.
        of: PathBuf,
        /// Contents by name.
        contents: BTreeMap<&'static str, Vec<u8>>,
    },
}

impl ModelFiles {
    /// True where there is a file of that name.
    ///
    /// # Errors
    /// Something of that name that is no file.
    pub(crate) fn has(&self, name: &str) -> Result<bool> {
        match self {
            Self::Folder(dir) => fs::is_there(&dir.join(name)),
            Self::Made { contents, .. } => Ok(contents.contains_key(name)),
        }
    }

    /// Where messages place it: its path in the folder, or the file that it was made of.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::Folder(dir) => dir.join(name),
            Self::Made { of, .. } => of.clone(),
        }
    }

    /// Its content.
    ///
    /// # Errors
    /// A file that is missing or cannot be read.
    pub(crate) fn read(&self, name: &str) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Folder(dir) => fs::read(&dir.join(name), limit(name)).map(Cow::Owned),
            Self::Made { of, contents } => contents
                .get(name)
                .map(|bytes| Cow::Borrowed(bytes.as_slice()))
                .ok_or_else(|| fs::io_err("read", &of.join(name))(std::io::ErrorKind::NotFound.into())),
        }
    }

    /// Writes its content to another place.
    ///
    /// # Errors
    /// Those of [`Self::read`], and a place that cannot be written to.
    pub(crate) fn copy(&self, name: &str, to: &Path) -> Result<()> {
        fs::write(to, &self.read(name)?)
    }
}

/// Longest file that is read.
fn limit(name: &str) -> u64 {
    // Vocabularies of a quarter of a million entries with their merges take some 30 MB.
    if name == TOKENIZER_FILE { genie_tokenizer::MAX_FILE_BYTES } else { 16 << 20 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is longer than the tokenizer reads would fail when the bundle is tried.
    #[test]
    fn a_tokenizer_is_as_long_as_it_is_read() {
        let place = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(place.path().join(TOKENIZER_FILE)).unwrap();
        file.set_len((256 << 20) + 1).unwrap();
        let error = ModelFiles::Folder(place.path().into()).read(TOKENIZER_FILE).unwrap_err();
        assert!(matches!(error, crate::CompileError::FileTooLong { limit, .. } if limit == 256 << 20), "{error}");
    }

    #[test]
    fn files_in_memory_are_used_like_those_of_a_folder() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a.json"), b"{}").unwrap();
        let made = ModelFiles::Made { of: "m.gguf".into(), contents: [("a.json", b"{}".to_vec())].into() };
        for files in [ModelFiles::Folder(place.path().into()), made] {
            assert!(files.has("a.json").unwrap() && !files.has("b.json").unwrap());
            assert_eq!(&*files.read("a.json").unwrap(), b"{}");
            assert!(files.read("b.json").unwrap_err().to_string().contains("b.json"));
            let to = place.path().join("copied");
            files.copy("a.json", &to).unwrap();
            assert_eq!(std::fs::read(to).unwrap(), b"{}");
        }
    }
}
