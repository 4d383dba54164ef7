//! Compares a file with its hash in the manifest, step by step, so that it can be done beside other work.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::hash::{FileHash, hex};
use crate::manifest::FileEntry;
use crate::stamps::{FileIdentity, Known, Stamps};
use crate::{BundleError, Manifest};

/// A file that is being compared with what the manifest says.
///
/// The file is opened once: one that takes its name meanwhile is not looked at.
#[derive(Debug)]
pub struct FileCheck {
    path: PathBuf,
    file: File,
    expected: FileEntry,
    stamps: Option<Stamps>,
    identity: Option<FileIdentity>,
    began: SystemTime,
    hasher: Sha256,
    n_read: u64,
    buffer: Vec<u8>,
    found: Option<FileHash>,
    /// Its content was read here and no stamp tells of it yet.
    is_news: bool,
}

impl FileCheck {
    /// Opens a file. What `stamps` know of it is not read again; without stamps all is read, and nothing is remembered.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn open(path: &Path, expected: FileEntry, stamps: Option<Stamps>) -> Result<Self, BundleError> {
        let file = file_io::open_file(path).map_err(BundleError::io("open", path))?;
        let identity = FileIdentity::of(&file);
        Ok(Self {
            path: path.to_owned(),
            file,
            expected,
            stamps,
            identity,
            began: SystemTime::now(),
            hasher: Sha256::new(),
            n_read: 0,
            buffer: Vec::new(),
            found: None,
            is_news: false,
        })
    }

    /// The manifest's entry for a file of the bundle in `base`, if it has one.
    pub fn entry(manifest: &Manifest, base: &Path, path: &Path) -> Option<FileEntry> {
        let full = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let wanted = full(path);
        manifest.files.iter().find(|entry| full(&base.join(&entry.path)) == wanted).cloned()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, open.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its length by the manifest.
    pub fn expected_bytes(&self) -> u64 {
        self.expected.bytes
    }

    /// Compares the lengths, which costs nothing.
    ///
    /// # Errors
    /// [`BundleError::FileChanged`] if they differ; [`BundleError::Io`].
    pub fn compare_length(&self) -> Result<(), BundleError> {
        let bytes = self.file.metadata().map_err(BundleError::io("read", &self.path))?.len();
        if bytes == self.expected.bytes { Ok(()) } else { Err(self.changed(format!("{bytes} bytes"))) }
    }

    /// Takes what a stamp knows; returns whether nothing has to be read.
    pub fn recall(&mut self) -> bool {
        if self.found.is_none() && self.n_read == 0 {
            self.found = self.known();
        }
        self.found.is_some()
    }

    /// Reads up to `n_bytes` more; returns whether all is compared.
    ///
    /// # Errors
    /// [`BundleError::FileChanged`] if it differs; [`BundleError::Io`].
    pub fn step(&mut self, n_bytes: usize) -> Result<bool, BundleError> {
        if self.n_read == 0 {
            self.recall();
        }
        if let Some(found) = &self.found {
            return self.compare(found).map(|()| true);
        }
        let io = |e| BundleError::io("read", &self.path)(e);
        if self.n_read == 0 {
            self.file.seek(SeekFrom::Start(0)).map_err(io)?;
            self.began = SystemTime::now();
        }
        self.buffer.resize(n_bytes.max(1), 0);
        let n = loop {
            match self.file.read(&mut self.buffer) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                done => break done.map_err(io)?,
            }
        };
        self.hasher.update(&self.buffer[..n]);
        self.n_read += n as u64;
        if n > 0 {
            return Ok(false);
        }
        let found = FileHash { bytes: self.n_read, sha256: hex(&std::mem::take(&mut self.hasher).finalize()) };
        let outcome = self.compare(&found).map(|()| true);
        (self.found, self.is_news) = (Some(found), true);
        outcome
    }

    /// Reads all that is left, and leaves a stamp.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn finish(mut self) -> Result<(), BundleError> {
        let outcome = loop {
            match self.step(1 << 20) {
                Ok(false) => {}
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.leave_stamp();
        outcome
    }

    /// Remembers what was read, if all was and the file stood still meanwhile. Apart from [`step`](Self::step), since writing
    /// takes longer than reading a small file.
    pub fn leave_stamp(&mut self) {
        let (Some(stamps), Some(identity), Some(found)) = (&self.stamps, &self.identity, &self.found) else { return };
        if !std::mem::take(&mut self.is_news) {
            return;
        }
        if identity.is_settled(self.began) && FileIdentity::of(&self.file).as_ref() == Some(identity) {
            stamps.learn(identity, Known { sha256: Some(found.sha256.clone()), checksums: false });
        }
    }

    fn known(&self) -> Option<FileHash> {
        let (stamps, identity) = (self.stamps.as_ref()?, self.identity.as_ref()?);
        let sha256 = stamps.known(identity).sha256?;
        Some(FileHash { bytes: self.file.metadata().ok()?.len(), sha256 })
    }

    fn compare(&self, found: &FileHash) -> Result<(), BundleError> {
        let expected = &self.expected;
        if (found.bytes, &found.sha256) == (expected.bytes, &expected.sha256) {
            return Ok(());
        }
        Err(self.changed(format!("{} bytes, sha256 {}", found.bytes, found.sha256)))
    }

    fn changed(&self, found: String) -> BundleError {
        let expected = format!("{} bytes, sha256 {}", self.expected.bytes, self.expected.sha256);
        BundleError::FileChanged { path: self.path.clone(), expected, found }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::hash::hash_file;

    #[test]
    fn a_changed_file_is_found_and_a_known_one_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, stamps) = (dir.path().join("f"), Stamps::in_folder(&dir.path().join("cache")));
        std::fs::write(&path, [7; 5000]).unwrap();
        let FileHash { bytes, sha256 } = hash_file(&path).unwrap();
        let entry = FileEntry { path: "f".into(), bytes, sha256 };
        let open = || FileCheck::open(&path, entry.clone(), Some(stamps.clone())).unwrap();
        std::thread::sleep(Duration::from_millis(120));
        let mut steps = 0;
        let mut check = open();
        while !check.step(1000).unwrap() {
            steps += 1;
        }
        assert_eq!(steps, 5);
        assert!(!open().recall(), "a stamp is left on request only");
        check.leave_stamp();
        assert!(open().recall());
        assert!(open().step(1000).unwrap(), "known by its stamp");
        for at in [0, 2500, 4999] {
            let mut bad = vec![7; 5000];
            bad[at] ^= 0x10;
            std::fs::write(&path, bad).unwrap();
            assert!(matches!(open().finish(), Err(BundleError::FileChanged { .. })), "byte {at}");
        }
        // A damaged file is known as such, too.
        std::thread::sleep(Duration::from_millis(120));
        assert!(open().finish().is_err());
        assert!(matches!(open().step(1), Err(BundleError::FileChanged { .. })));
        std::fs::write(&path, [7; 5000]).unwrap();
        open().finish().unwrap();
    }

    #[test]
    fn lengths_are_compared_without_reading() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, [7; 50]).unwrap();
        let FileHash { bytes, sha256 } = hash_file(&path).unwrap();
        let entry = FileEntry { path: "f".into(), bytes, sha256 };
        let check = || FileCheck::open(&path, entry.clone(), None).unwrap();
        check().compare_length().unwrap();
        std::fs::write(&path, [7; 51]).unwrap();
        let error = check().compare_length().unwrap_err().to_string();
        assert!(error.contains("found 51 bytes, expected 50 bytes, sha256 "), "{error}");
    }
}
