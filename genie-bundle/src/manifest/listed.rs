//! Which files of a folder belong to a bundle, by its manifest: read from manifests of any version.
//!
//! *Trap*: of a newer version only `format` and, where it is as we know it, `files` is understood. What is not listed
//! counts as someone else's.

use std::path::{Component, Path};

use serde::Deserialize;
use serde_json::Value;

use super::BUNDLE_FORMAT;
use crate::hash::hash_file;
use crate::{BundleError, MANIFEST_FILE};

/// Whether a path does not lead out of the folder that it starts from.
pub(super) fn is_within(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// A file that belongs to a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Path within the bundle; it does not lead out of it.
    pub path: String,
    /// Content hash, lower-case hex. The manifest has none for itself.
    pub sha256: Option<String>,
}

impl ListedFile {
    /// Whether it is a context binary, by its name.
    pub fn is_binary(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "bin")
    }

    /// Whether the file has another content than when the bundle was made. One that is not there has not.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_changed(&self, bundle: &Path) -> Result<bool, BundleError> {
        let path = bundle.join(&self.path);
        match &self.sha256 {
            Some(sha256) if path.is_file() => Ok(hash_file(&path)?.sha256 != *sha256),
            _ => Ok(false),
        }
    }
}

/// The files of the bundle in that folder, the manifest among them.
///
/// # Errors
/// There is no manifest, or it is none of ours.
pub fn listed_files(bundle: &Path) -> Result<Vec<ListedFile>, BundleError> {
    #[derive(Deserialize)]
    struct Head {
        format: String,
        #[serde(default)]
        files: Value,
    }
    let path = bundle.join(MANIFEST_FILE);
    let bytes = super::bytes_of(&path)?;
    let head: Head =
        serde_json::from_slice(&bytes).map_err(|source| BundleError::Json { path: path.clone(), source })?;
    if head.format != BUNDLE_FORMAT {
        return Err(BundleError::ManifestFormat { path, found: head.format, expected: BUNDLE_FORMAT });
    }
    let listed = head.files.as_array().into_iter().flatten().filter_map(|file| {
        let path = file["path"].as_str()?;
        is_within(path).then(|| ListedFile { path: path.into(), sha256: file["sha256"].as_str().map(Into::into) })
    });
    let manifest = ListedFile { path: MANIFEST_FILE.into(), sha256: None };
    Ok(listed.filter(|file| file.path != MANIFEST_FILE).chain([manifest]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(manifest: &str) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(MANIFEST_FILE), manifest).unwrap();
        let files = listed_files(folder.path()).map_err(|error| error.to_string())?;
        Ok(files.into_iter().map(|file| file.path).collect())
    }

    #[test]
    fn manifests_of_any_version_list_their_files_and_no_others() {
        let ours = |rest: &str| listed(&format!(r#"{{"format":"open-genie-bundle"{rest}}}"#)).unwrap();
        assert_eq!(ours(""), [MANIFEST_FILE]);
        assert_eq!(ours(r#","version":99,"files":{"a":1}"#), [MANIFEST_FILE]);
        let files = r#","version":0,"files":[{"path":"a.bin","sha256":"00"},{"path":"sub/b"},{"file":"c"},3,
            {"path":"/etc/passwd"},{"path":"../x"},{"path":""},{"path":"manifest.json"}]"#;
        assert_eq!(ours(files), ["a.bin", "sub/b", MANIFEST_FILE]);
        assert!(listed(r#"{"format":"zip","files":[]}"#).unwrap_err().contains("has format `zip`"));
        assert!(listed("{").unwrap_err().contains("not the JSON"));
        let empty = tempfile::tempdir().unwrap();
        assert!(listed_files(empty.path()).unwrap_err().to_string().contains("cannot read"));
    }

    /// A sparse file of 3 GB took as much memory.
    #[test]
    fn a_file_that_is_too_long_for_a_manifest_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join(MANIFEST_FILE)).unwrap();
        file.set_len(3 << 40).unwrap();
        for error in [listed_files(folder.path()).unwrap_err(), crate::Manifest::read(folder.path()).unwrap_err()] {
            let BundleError::Io { source, .. } = error else { panic!("{error}") };
            assert_eq!(source.to_string(), "expected at most 67108864 bytes, found 3298534883328");
        }
    }

    #[test]
    fn a_changed_file_is_known_by_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), "abc").unwrap();
        let file = |sha256: Option<&str>| ListedFile { path: "f".into(), sha256: sha256.map(Into::into) };
        let hash = hash_file(&folder.path().join("f")).unwrap().sha256;
        assert!(!file(Some(&hash)).is_changed(folder.path()).unwrap());
        assert!(file(Some("00")).is_changed(folder.path()).unwrap());
        assert!(!file(None).is_changed(folder.path()).unwrap());
        std::fs::remove_file(folder.path().join("f")).unwrap();
        assert!(!file(Some("00")).is_changed(folder.path()).unwrap());
    }
}
