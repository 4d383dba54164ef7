//! The files of a folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// All files below a folder, in a stable order; hidden folders are left out.
pub fn all_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot list `{}`", folder.display()))? {
            let path = entry?.path();
            if !path.is_dir() {
                found.push(path);
            } else if !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.') {
                todo.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
