//! Prefixes on disk: the longest stored beginning of a list of tokens, so that it need not be processed again.
//!
//! One snapshot a file, named `MODEL-LENGTH-HASH.kvs` after its model, the number of its tokens and their hash; a hit is
//! checked against the tokens themselves. The folder is bounded; the least recently used goes first. Several
//! processes may share it: files appear by renaming, a file that another process has just removed is a miss, and one
//! lock file makes inserting and evicting take turns.

use super::file::TEMPORARY;
use super::{ModelHash, Snapshot, SnapshotError};
use genie_types::TokenId;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use xxhash_rust::xxh3::Xxh3;

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
    /// Opens a folder, making it if need be. It never holds more than `max_bytes` for long.
    ///
    /// # Errors
    /// [`SnapshotError::Io`].
    pub fn open(dir: &Path, model: ModelHash, max_bytes: u64) -> Result<Self, SnapshotError> {
        fs::create_dir_all(dir).map_err(|e| io("make folder", dir, e))?;
        Ok(Self { dir: dir.to_owned(), model, max_bytes })
    }

    /// The longest stored beginning of `tokens`, of at least `min` tokens. Files that fail their checks are removed.
    ///
    /// # Errors
    /// [`SnapshotError::Io`] when the folder cannot be read; a bad file is a miss.
    pub fn find(&self, tokens: &[TokenId], min: usize) -> Result<Option<Snapshot>, SnapshotError> {
        let mut entries = self.entries()?;
        entries.retain(|e| e.own && e.n_tokens >= min && e.n_tokens <= tokens.len());
        entries.sort_by_key(|e| std::cmp::Reverse(e.n_tokens));
        for entry in entries {
            let prefix = &tokens[..entry.n_tokens];
            if hash(prefix) != entry.hash {
                continue;
            }
            match Snapshot::read(&entry.path) {
                Ok(snapshot) if snapshot.model == self.model && snapshot.tokens == prefix => {
                    // A failed touch only makes it look older than it is.
                    let _ =
                        File::options().append(true).open(&entry.path).and_then(|f| f.set_modified(SystemTime::now()));
                    return Ok(Some(snapshot));
                }
                Ok(_) => {}                         // another list with the same hash
                Err(SnapshotError::Io { .. }) => {} // gone, or not ours to read
                Err(_) => drop(fs::remove_file(&entry.path)),
            }
        }
        Ok(None)
    }

    /// Stores a snapshot, replacing one of the same tokens, and makes room for it. A snapshot larger than the whole
    /// store is not kept; `false` says so.
    ///
    /// # Errors
    /// [`SnapshotError::Io`], [`SnapshotError::OtherModel`].
    pub fn insert(&self, snapshot: &Snapshot) -> Result<bool, SnapshotError> {
        if snapshot.model != self.model {
            return Err(SnapshotError::OtherModel { expected: self.model, found: snapshot.model });
        }
        let (n, hash) = (snapshot.tokens.len(), hash(&snapshot.tokens));
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
    /// [`SnapshotError::Io`].
    pub fn usage(&self) -> Result<(usize, u64), SnapshotError> {
        let entries = self.entries()?;
        Ok((entries.iter().filter(|e| e.own).count(), entries.iter().map(|e| e.bytes).sum()))
    }

    /// Removes the least recently used until the rest fits, the newest last; says whether it is still there.
    fn evict(&self, newest: &Path) -> Result<bool, SnapshotError> {
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
                Err(e) => return Err(io("remove", &entry.path, e)),
            }
            total -= entry.bytes;
            kept = entry.path != newest;
        }
        Ok(kept)
    }

    fn lock(&self) -> Result<File, SnapshotError> {
        let path = self.dir.join(".lock");
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(|e| io("open", &path, e))?;
        file.lock().map_err(|e| io("lock", &path, e))?;
        Ok(file)
    }

    fn entries(&self) -> Result<Vec<Entry>, SnapshotError> {
        let own = self.model.to_string();
        let mut entries = Vec::new();
        for item in fs::read_dir(&self.dir).map_err(|e| io("list", &self.dir, e))? {
            let item = item.map_err(|e| io("list", &self.dir, e))?;
            let (path, name) = (item.path(), item.file_name().to_string_lossy().into_owned());
            // A file may go between listing and asking.
            let Ok(meta) = item.metadata() else { continue };
            let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if name.ends_with(TEMPORARY) && used.elapsed().is_ok_and(|age| age > Duration::from_secs(600)) {
                // Left behind by a process that died while writing.
                let _ = fs::remove_file(&path);
                continue;
            }
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

fn hash(tokens: &[TokenId]) -> u64 {
    let mut hash = Xxh3::new();
    tokens.iter().for_each(|t| hash.update(&t.0.to_le_bytes()));
    hash.digest()
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> SnapshotError {
    SnapshotError::Io { action, path: path.to_owned(), source }
}
