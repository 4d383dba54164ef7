//! Which model a saved cache belongs to.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use kvmanager::KvTensor;
use xxhash_rust::xxh3::Xxh3;

use crate::StoreError;

/// Bytes of a file that go into its hash: `SAMPLES` blocks of `SAMPLE_BYTES`, evenly spread.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 16 << 10;

/// Identifies a model: rows of one mean nothing to another. Opaque here; a bundle's manifest has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelHash(pub [u8; 32]);

impl ModelHash {
    /// The same model with keys that the long factors of `longrope` turned, or from there back: rows of the one are no use to the other.
    #[must_use]
    pub fn with_other_rope_factors(mut self) -> Self {
        self.0.iter_mut().zip(b"longrope").for_each(|(byte, mark)| *byte ^= mark);
        self
    }

    /// A hash of context binaries: their lengths and samples of their bytes, in order.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn of_binaries(paths: &[PathBuf]) -> Result<Self, StoreError> {
        let mut halves = [Xxh3::with_seed(0), Xxh3::with_seed(1)];
        let mut block = vec![0; SAMPLE_BYTES as usize];
        for path in paths {
            let failed = || StoreError::io("read context binary", path);
            let mut file = File::open(path).map_err(failed())?;
            let len = file.metadata().map_err(failed())?.len();
            halves.iter_mut().for_each(|half| half.update(&len.to_le_bytes()));
            for i in 0..SAMPLES {
                let at = len.saturating_sub(SAMPLE_BYTES) * i / (SAMPLES - 1);
                file.seek(SeekFrom::Start(at)).map_err(failed())?;
                let block = &mut block[..len.min(SAMPLE_BYTES) as usize];
                file.read_exact(block).map_err(failed())?;
                halves.iter_mut().for_each(|half| half.update(block));
            }
        }
        let mut hash = [0; 32];
        for (part, half) in hash.chunks_exact_mut(16).zip(&halves) {
            part.copy_from_slice(&half.digest128().to_le_bytes());
        }
        Ok(Self(hash))
    }
}

impl std::fmt::Display for ModelHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0[..8].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// What a saved cache must match to be restored into a live one.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSchema {
    /// The model.
    pub model: ModelHash,
    /// The cache tensors, in the order of [`KvImage::tensors`](kvmanager::KvImage::tensors).
    pub tensors: Vec<KvTensor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "reads files")]
    fn hashes_distinguish_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let long = vec![7; 3 << 20];
        let mut changed = long.clone();
        *changed.last_mut().unwrap() = 8;
        let paths = [file("a", b""), file("b", b"x"), file("c", &long), file("d", &changed)];
        let of = |path: &PathBuf| ModelHash::of_binaries(std::slice::from_ref(path)).unwrap();
        let hashes: Vec<_> = paths.iter().map(of).collect();
        for (i, hash) in hashes.iter().enumerate() {
            assert!(hashes[..i].iter().all(|other| other != hash), "file {i}");
        }
        assert_eq!(of(&paths[2]), hashes[2]);
        let gone = ModelHash::of_binaries(&[folder.path().join("gone")]).unwrap_err().to_string();
        assert!(gone.starts_with("cannot read context binary"), "{gone}");
    }
}
