//! Compares the weights of a file with their checksums piece by piece, beside a run that maps the same file.
//!
//! *Traps*: only weights are compared here; header and metadata are checked by everyone who loads the file. Zeros between
//! blobs mean nothing and are not looked at.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;

use super::decode::{Blob, is_ours, read_header, read_tables};
use super::{EAGER_BYTES, FormatError, HEADER_BYTES};

/// Why the weights of a file were not found right.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum SumsError {
    /// The file cannot be read.
    #[error("cannot read the weights")]
    Io(#[source] Arc<std::io::Error>),
    /// The file is damaged.
    #[error(transparent)]
    Format(#[from] Arc<FormatError>),
}

impl From<std::io::Error> for SumsError {
    fn from(source: std::io::Error) -> Self {
        Self::Io(Arc::new(source))
    }
}

impl From<FormatError> for SumsError {
    fn from(source: FormatError) -> Self {
        Self::Format(Arc::new(source))
    }
}

/// The blobs of a file with their checksums, and how far they were compared.
pub struct WeightSums {
    file: File,
    blobs: Vec<Blob>,
    next: usize,
    /// Of the blob `next`, up to `at` within it.
    hasher: Xxh3,
    at: usize,
    weights_bytes: u64,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for WeightSums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeightSums").field("blobs", &self.blobs.len()).field("next", &self.next).finish_non_exhaustive()
    }
}

impl WeightSums {
    /// Reads header and tables; `None` for a file of another backend.
    ///
    /// # Errors
    /// A file that cannot be read, or whose header or metadata is damaged.
    pub fn open(mut file: File) -> Result<Option<Self>, SumsError> {
        let file_bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(0))?;
        let mut head = Vec::with_capacity(HEADER_BYTES);
        (&mut file).take(HEADER_BYTES as u64).read_to_end(&mut head)?;
        if !is_ours(&head) {
            return Ok(None);
        }
        let header = read_header(&head, file_bytes)?;
        file.seek(SeekFrom::Start(header.meta.start as u64))?;
        let mut meta = Vec::new();
        (&mut file).take(header.meta.len() as u64).read_to_end(&mut meta)?;
        let (_, mut blobs, _) = read_tables(&meta, &header)?;
        // In the file's order, so that a disk reads forward.
        blobs.sort_by_key(|blob| blob.range.start);
        let weights_bytes = header.weights.len() as u64;
        Ok(Some(Self { file, blobs, next: 0, hasher: Xxh3::new(), at: 0, weights_bytes, buffer: Vec::new() }))
    }

    /// Whether [`decode`](super::decode()) has compared these weights already when it loaded the file.
    pub fn are_compared_on_load(&self) -> bool {
        self.weights_bytes <= EAGER_BYTES
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Compares up to about `n_bytes` more; returns whether all is compared.
    ///
    /// # Errors
    /// The file cannot be read or is damaged.
    pub fn step(&mut self, n_bytes: usize) -> Result<bool, SumsError> {
        let Some(blob) = self.blobs.get(self.next) else { return Ok(true) };
        if self.at == 0 {
            self.file.seek(SeekFrom::Start(blob.range.start as u64))?;
        }
        let n = n_bytes.max(1).min(blob.range.len() - self.at);
        self.buffer.resize(n, 0);
        self.file.read_exact(&mut self.buffer)?;
        self.hasher.update(&self.buffer);
        self.at += n;
        if self.at == blob.range.len() {
            let (expected, found) = (blob.hash, self.hasher.digest());
            if found != expected {
                let what = format!("weights at byte {}", blob.range.start);
                return Err(FormatError::Checksum { what, expected, found }.into());
            }
            (self.next, self.at) = (self.next + 1, 0);
            self.hasher.reset();
        }
        Ok(self.next == self.blobs.len())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::tests::sample_file;
    use super::*;

    fn open(bytes: &[u8]) -> Result<Option<WeightSums>, SumsError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        WeightSums::open(file)
    }

    fn compare(bytes: &[u8], step: usize) -> Result<(), SumsError> {
        let mut sums = open(bytes)?.expect("ours");
        while !sums.step(step)? {}
        Ok(())
    }

    #[test]
    fn every_flipped_bit_of_a_blob_is_found_in_steps_of_any_size() {
        let good = sample_file();
        let blobs = open(&good).unwrap().unwrap().blobs;
        assert!(blobs.len() > 1, "several blobs");
        for step in [1, 7, 64, 1 << 20] {
            compare(&good, step).unwrap();
            for blob in &blobs {
                for at in [blob.range.start, blob.range.start + blob.range.len() / 2, blob.range.end - 1] {
                    let mut bad = good.clone();
                    bad[at] ^= 4;
                    let error = compare(&bad, step).unwrap_err().to_string();
                    assert!(error.contains(&format!("weights at byte {}", blob.range.start)), "{error}");
                }
            }
        }
    }

    #[test]
    fn other_files_have_no_sums_and_torn_ones_are_refused() {
        assert!(open(b"").unwrap().is_none());
        assert!(open(&[7; 300]).unwrap().is_none());
        let good = sample_file();
        assert!(open(&good[..good.len() - 1]).is_err());
        let mut bad = good;
        bad[130] ^= 1;
        assert!(open(&bad).is_err(), "a damaged table");
    }
}
