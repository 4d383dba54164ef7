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
}

impl FileCheck {
    /// Opens a file. What `stamps` know of it is not read again; without stamps all is read, and nothing is remembered.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn open(path: &Path, expected: FileEntry, stamps: Option<Stamps>) -> Result<Self, BundleError> {
        let file = File::open(path).map_err(BundleError::io("open", path))?;
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

    /// Reads up to `n_bytes` more; returns whether all is compared.
    ///
    /// # Errors
    /// [`BundleError::FileChanged`] if it differs; [`BundleError::Io`].
    pub fn step(&mut self, n_bytes: usize) -> Result<bool, BundleError> {
        let io = |e| BundleError::io("read", &self.path)(e);
        if self.n_read == 0 {
            if let Some(found) = self.known() {
                return self.compare(&found).map(|()| true);
            }
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
        self.remember(&found);
        self.compare(&found).map(|()| true)
    }

    /// Reads all that is left.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn finish(mut self) -> Result<(), BundleError> {
        while !self.step(1 << 20)? {}
        Ok(())
    }

    fn known(&self) -> Option<FileHash> {
        let (stamps, identity) = (self.stamps.as_ref()?, self.identity.as_ref()?);
        let sha256 = stamps.known(identity).sha256?;
        Some(FileHash { bytes: self.file.metadata().ok()?.len(), sha256 })
    }

    /// Leaves a stamp, if the file stood still while it was read.
    fn remember(&self, found: &FileHash) {
        let (Some(stamps), Some(identity)) = (&self.stamps, &self.identity) else { return };
        if identity.is_settled(self.began) && FileIdentity::of(&self.file).as_ref() == Some(identity) {
            stamps.learn(identity, Known { sha256: Some(found.sha256.clone()), checksums: false });
        }
    }

    fn compare(&self, found: &FileHash) -> Result<(), BundleError> {
        let expected = &self.expected;
        if (found.bytes, &found.sha256) == (expected.bytes, &expected.sha256) {
            return Ok(());
        }
        Err(BundleError::FileChanged {
            path: self.path.clone(),
            expected: format!("{} bytes, sha256 {}", expected.bytes, expected.sha256),
            found: format!("{} bytes, sha256 {}", found.bytes, found.sha256),
        })
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
}
