//! Folders and backends that runs of a target share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use qnn_api::{Backend, BackendOptions, Library};
use tempfile::TempDir;

/// The host backend on one thread.
pub(super) fn backend() -> &'static Arc<Backend> {
    static BACKEND: OnceLock<Arc<Backend>> = OnceLock::new();
    BACKEND.get_or_init(|| {
        let library = Library::linked(qnn_host::providers()).expect("the linked host has a table");
        let platform = Some(c"host_threads:1".to_owned());
        let options = BackendOptions { platform, ..BackendOptions::default() };
        Backend::new(&library, &options).expect("the backend starts")
    })
}

/// A folder of this process's own; an input replaces the one before it.
pub(super) fn folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder")).path()
}

/// A file of that folder with these bytes.
pub(super) fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("a file in the temporary folder");
    path
}

/// An error must say something, in the words of a user.
pub(super) fn check_message(error: &dyn std::error::Error) {
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        assert!(!text.trim().is_empty(), "an error without a message: {error:?}");
        next = error.source();
    }
}
