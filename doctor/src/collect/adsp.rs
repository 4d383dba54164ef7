//! The search path of the DSP's loader.

use std::path::{Path, PathBuf};

use crate::facts::AdspPath;

/// Splits the variable as the DSP's loader does: at `;`.
pub(super) fn split(raw: &str) -> AdspPath {
    let folders = raw.split(';').map(str::trim).filter(|folder| !folder.is_empty());
    let folders = folders.map(|folder| (PathBuf::from(folder), files_of(Path::new(folder)))).collect();
    AdspPath { raw: raw.to_owned(), folders }
}

/// The existing folders, with their files.
pub(super) fn existing(folders: &[PathBuf]) -> Vec<(PathBuf, Vec<String>)> {
    folders.iter().filter_map(|folder| Some((folder.clone(), files_of(folder)?))).collect()
}

fn files_of(folder: &Path) -> Option<Vec<String>> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_semicolon_separates() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("libQnnHtpV75Skel.so"), "").unwrap();
        let here = dir.path().display();
        let path = split(&format!("{here}; /no/such;"));
        let files = vec!["libQnnHtpV75Skel.so".to_owned()];
        assert_eq!(path.folders, [(dir.path().to_owned(), Some(files)), ("/no/such".into(), None)]);
        assert_eq!(split(&format!("{here}:/dsp")).folders, [(format!("{here}:/dsp").into(), None)]);
    }
}
