//! Prefixes on disk: the longest stored prefix of a list of tokens, so that it need not be processed again.
//!
//! One snapshot per file, named `MODEL-LENGTH-HASH.kvs` after its model, the number of its tokens and their hash; a hit is
//! checked against the tokens themselves. The folder is bounded; the least recently used entry is removed first. Several
//! processes may share it: files appear by renaming, a file that another process has just removed is a miss, and one
//! lock file serialises insertion and eviction.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use genie_types::TokenId;
use kvmanager::SeqId;
use xxhash_rust::xxh3::Xxh3;

use crate::{ModelHash, Snapshot, StoreError};

/// A folder of snapshots of one model, or of several side by side.
#[derive(Clone, Debug)]
pub struct PrefixStore {
    dir: PathBuf,
    model: ModelHash,
    max_bytes: u64,
}

struct Entry {
    path: PathBuf,
    n_tokens: usize,
    hash: u64,
    own: bool,
    bytes: u64,
    used: SystemTime,
}

impl PrefixStore {
    /// Opens a folder, which is made if need be, and removes what killed writers left in it. Every insertion brings it down to `max_bytes`.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn open(dir: &Path, model: ModelHash, max_bytes: u64) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(StoreError::io("make folder", dir))?;
        file_io::sweep_names(dir, &|name| parse(name).is_some());
        Ok(Self { dir: dir.to_owned(), model, max_bytes })
    }

    /// The longest stored prefix of `tokens`, of at least `min` tokens. Files that fail their checks are removed.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the folder cannot be read; a bad file is a miss.
    pub fn find(&self, tokens: &[TokenId], min: usize) -> Result<Option<Snapshot>, StoreError> {
        let mut entries = self.entries()?;
        entries.retain(|e| e.own && e.n_tokens >= min && e.n_tokens <= tokens.len());
        entries.sort_by_key(|e| std::cmp::Reverse(e.n_tokens));
        for entry in entries {
            let prefix = &tokens[..entry.n_tokens];
            if hash(prefix.iter().copied()) != entry.hash {
                continue;
            }
            match Snapshot::read(&entry.path) {
                Ok(snapshot) if snapshot.model == self.model && is_of(&snapshot, prefix) => {
                    // A failed touch only makes it look older than it is.
                    let _ =
                        File::options().append(true).open(&entry.path).and_then(|f| f.set_modified(SystemTime::now()));
                    return Ok(Some(snapshot));
                }
                Ok(_) => {}                      // another list with the same hash
                Err(StoreError::Io { .. }) => {} // gone, or not ours to read
                Err(_) => drop(fs::remove_file(&entry.path)),
            }
        }
        Ok(None)
    }

    /// Stores a snapshot of sequence 0, replacing one of the same tokens, and evicts others until it fits. Returns `false`
    /// for a snapshot larger than the whole store, which is not kept.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::File`], [`StoreError::OtherModel`].
    pub fn insert(&self, snapshot: &Snapshot) -> Result<bool, StoreError> {
        snapshot.check_model(self.model)?;
        let (n, hash) = (snapshot.tokens().len(), hash(snapshot.tokens()));
        let path = self.dir.join(format!("{}-{n}-{hash:016x}.kvs", self.model));
        let lock = self.lock()?;
        snapshot.write(&path)?;
        let kept = self.evict(&path)?;
        drop(lock);
        Ok(kept)
    }

    /// Stored snapshots of this model, and the bytes of all files.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn usage(&self) -> Result<(usize, u64), StoreError> {
        let entries = self.entries()?;
        Ok((entries.iter().filter(|e| e.own).count(), entries.iter().map(|e| e.bytes).sum()))
    }

    /// Removes the least recently used until the rest fits, the newest last; returns whether it is still there.
    fn evict(&self, newest: &Path) -> Result<bool, StoreError> {
        let mut entries = self.entries()?;
        entries.sort_by_key(|e| (e.path == newest, e.used));
        let mut total: u64 = entries.iter().map(|e| e.bytes).sum();
        let mut kept = true;
        for entry in entries {
            if total <= self.max_bytes {
                break;
            }
            match fs::remove_file(&entry.path) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(StoreError::io("remove", &entry.path)(e)),
            }
            total -= entry.bytes;
            kept = entry.path != newest;
        }
        Ok(kept)
    }

    fn lock(&self) -> Result<File, StoreError> {
        let path = self.dir.join(".lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        file.lock().map_err(StoreError::io("lock", &path))?;
        Ok(file)
    }

    fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        let own = self.model.to_string();
        let mut entries = Vec::new();
        for item in fs::read_dir(&self.dir).map_err(StoreError::io("list", &self.dir))? {
            let item = item.map_err(StoreError::io("list", &self.dir))?;
            let (path, name) = (item.path(), item.file_name().to_string_lossy().into_owned());
            // A file may vanish between the listing and this call.
            let Ok(meta) = item.metadata() else { continue };
            let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let Some((model, n_tokens, hash)) = parse(&name) else { continue };
            entries.push(Entry { path, n_tokens, hash, own: model == own, bytes: meta.len(), used });
        }
        Ok(entries)
    }
}

fn parse(name: &str) -> Option<(&str, usize, u64)> {
    let mut parts = name.strip_suffix(".kvs")?.split('-');
    let (model, n, hash) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(())?;
    Some((model, n.parse().ok()?, u64::from_str_radix(hash, 16).ok()?))
}

fn hash(tokens: impl Iterator<Item = TokenId>) -> u64 {
    let mut hash = Xxh3::new();
    tokens.for_each(|t| hash.update(&t.0.to_le_bytes()));
    hash.digest()
}

/// Whether a snapshot holds these tokens at the positions from 0 on, and nothing else.
fn is_of(snapshot: &Snapshot, prefix: &[TokenId]) -> bool {
    let tokens = snapshot.sequence(SeqId(0));
    snapshot.sequences.len() == 1
        && tokens.len() == prefix.len()
        && tokens.iter().zip(prefix).enumerate().all(|(i, (t, &wanted))| (t.position, t.token) == (i, wanted))
}
