//! What can be wrong with a bundle's files. Configs have an error of their own, [`crate::ConfigError`].

use std::path::{Path, PathBuf};

use file_io::{FileKind, FolderKind};

/// A file of a bundle that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum BundleError {
    #[error("`{}` does not exist", path.display())]
    NoConfig { path: PathBuf },
    #[error("`{}` is {found}{}, expected a bundle's folder or its `genie_config.json`", path.display(), lack_of(found))]
    NotABundle { path: PathBuf, found: FileKind },
    #[error("cannot {action} `{}`", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("`{}` is not the JSON that is expected", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("`{}` has format `{found}`, expected `{expected}`", path.display())]
    ManifestFormat { path: PathBuf, found: String, expected: &'static str },
    #[error("`{}` has version {found}, this build reads versions up to {newest}", path.display())]
    ManifestVersion { path: PathBuf, found: u32, newest: u32 },
    #[error("`{}` lists `{file}`, expected the path of a file within the bundle", path.display())]
    FileOutside { path: PathBuf, file: String },
    #[error("`{}` differs from its manifest: found {found}, expected {expected}", path.display())]
    FileChanged { path: PathBuf, expected: String, found: String },
}

/// What a folder of no known kind would need to be a bundle's.
fn lack_of(found: &FileKind) -> &'static str {
    if matches!(found, FileKind::Folder(FolderKind::Other)) { " without `genie_config.json`" } else { "" }
}

impl BundleError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
