//! Prefixes on disk: the longest stored prefix of a list of tokens, so that it need not be processed again.
//!
//! One snapshot per file, named `MODEL-LENGTH-HASH.kvs` after its model (`MODEL+ADAPTERS` with LoRA adapters), the number of its tokens and their hash; a hit is
//! checked against the tokens themselves. The folder is bounded; the least recently used entry is removed first. Several
//! processes may share it: files appear by renaming, a file that another process has just removed is a miss, and one
//! lock file serialises insertion and eviction. A lock that is held longer than a second is not waited for.
//!
//! *Versions*: programs of several versions may share a folder. An entry of a newer format is a miss and stays, until it is
//! the least recently used; where it has the name that ours would have, ours is `MODEL-LENGTH-HASH.FORMAT.kvs`.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use genie_types::TokenId;
use kvmanager::SeqId;
use xxhash_rust::xxh3::Xxh3;

use crate::names::VERSION;
use crate::{ModelHash, Snapshot, StoreError};

/// How long another process may hold the lock before the store is given up for this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// A folder of snapshots of one model, or of several side by side.
#[derive(Clone, Debug)]
pub struct PrefixStore {
    dir: PathBuf,
    model: ModelHash,
    /// LoRA adapters with their strengths; empty for none.
    adapters: String,
    /// Of the cache, where others leave other rows; empty for a cache that keeps all rows.
    settings: String,
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
        Ok(Self { dir: dir.to_owned(), model, adapters: String::new(), settings: String::new(), max_bytes })
    }

    /// The same folder for the model with these LoRA adapters, whose rows are others than the model's own.
    #[must_use]
    pub fn with_adapters(&self, adapters: &str) -> Self {
        Self { adapters: adapters.into(), ..self.clone() }
    }

    /// The same folder for caches with these settings, which leave other rows of the same tokens.
    #[must_use]
    pub fn with_settings(&self, settings: &str) -> Self {
        Self { settings: settings.into(), ..self.clone() }
    }

    /// What names the model, its adapters and the cache's settings in file names.
    fn owner(&self) -> String {
        let mut owner = self.model.to_string();
        for part in [&self.adapters, &self.settings].into_iter().filter(|part| !part.is_empty()) {
            owner.push_str(&format!("+{:016x}", xxhash_rust::xxh3::xxh3_64(part.as_bytes())));
        }
        owner
    }

    /// The bytes that an insertion brings the folder down to.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
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
                Ok(snapshot)
                    if snapshot.model == self.model
                        && snapshot.check_adapters(&self.adapters).is_ok()
                        && is_of(&snapshot, prefix) =>
                {
                    // A failed touch only makes it look older than it is.
                    let _ =
                        File::options().append(true).open(&entry.path).and_then(|f| f.set_modified(SystemTime::now()));
                    return Ok(Some(snapshot));
                }
                Ok(_) => {}                         // another list with the same hash
                Err(StoreError::Io { .. }) => {}    // gone, or not ours to read
                Err(StoreError::Newer { .. }) => {} // of a later version of this program, which reads it
                Err(why) => {
                    let path = entry.path.display();
                    match fs::remove_file(&entry.path) {
                        Ok(()) => tracing::warn!("`{path}` of the prefix cache was damaged, and is removed: {why}"),
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(error) => {
                            tracing::warn!("`{path}` of the prefix cache is damaged ({why}), and stays: {error}")
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// Whether just these tokens are stored; they are of use then, and others are removed first.
    pub fn touch(&self, tokens: &[TokenId]) -> bool {
        let stored = self.path_of(tokens.len(), hash(tokens.iter().copied()));
        File::options().append(true).open(stored).and_then(|file| file.set_modified(SystemTime::now())).is_ok()
    }

    /// The file of these tokens: another one where a program of a newer version has written one of that name.
    fn path_of(&self, n: usize, hash: u64) -> PathBuf {
        let name = format!("{}-{n}-{hash:016x}", self.owner());
        let path = self.dir.join(format!("{name}.kvs"));
        match Snapshot::version_of(&path) {
            Ok(found) if found > VERSION => self.dir.join(format!("{name}.{VERSION}.kvs")),
            _ => path,
        }
    }

    /// Stores a snapshot of sequence 0, replacing one of the same tokens, and evicts others until it fits. Returns `false`
    /// for a snapshot larger than the whole store, which is not kept.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::File`], [`StoreError::OtherModel`], [`StoreError::OtherAdapters`]; [`StoreError::Locked`] after a second.
    pub fn insert(&self, snapshot: &Snapshot) -> Result<bool, StoreError> {
        self.insert_within(snapshot, PATIENCE)
    }

    /// The same where nothing is to be waited for.
    ///
    /// # Errors
    /// As [`insert`](Self::insert), [`StoreError::Locked`] at once.
    pub fn try_insert(&self, snapshot: &Snapshot) -> Result<bool, StoreError> {
        self.insert_within(snapshot, Duration::ZERO)
    }

    fn insert_within(&self, snapshot: &Snapshot, patience: Duration) -> Result<bool, StoreError> {
        snapshot.check_model(self.model)?;
        snapshot.check_adapters(&self.adapters)?;
        let (n, hash) = (snapshot.tokens().len(), hash(snapshot.tokens()));
        let lock = self.lock(patience)?;
        let path = self.path_of(n, hash);
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

    /// Removes the least recently used until the rest fits, the newest last, unless it is larger than the whole store; returns whether it is
    /// still there.
    fn evict(&self, newest: &Path) -> Result<bool, StoreError> {
        let mut entries = self.entries()?;
        let turn = |e: &Entry| match e.path == newest {
            true if e.bytes > self.max_bytes => 0,
            false => 1,
            true => 2,
        };
        entries.sort_by_key(|e| (turn(e), e.used));
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
            kept &= entry.path != newest;
        }
        Ok(kept)
    }

    fn lock(&self, patience: Duration) -> Result<File, StoreError> {
        let path = self.dir.join(".lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) if patience.is_zero() => Err(StoreError::Locked { path, waited: patience }),
            Err(TryLockError::WouldBlock) => match wait_for(file, patience) {
                Some(locked) => locked.map_err(StoreError::io("lock", &path)),
                None => Err(StoreError::Locked { path, waited: patience }),
            },
            Err(TryLockError::Error(e)) => Err(StoreError::io("lock", &path)(e)),
        }
    }

    fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        let own = self.owner();
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

/// Waits for a lock in the system's queue, which is fair where trying again and again is not; `None` when the time is over.
/// The thread that waits is left behind then; a lock that it still gets is given back at once.
fn wait_for(file: File, patience: Duration) -> Option<std::io::Result<File>> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(0);
    let wait = move || drop(sender.send(file.lock().map(|()| file)));
    match std::thread::Builder::new().name("prefix-store-lock".into()).spawn(wait) {
        Ok(_) => receiver.recv_timeout(patience).ok(),
        Err(error) => Some(Err(error)),
    }
}

fn parse(name: &str) -> Option<(&str, usize, u64)> {
    let mut parts = name.strip_suffix(".kvs")?.split('-');
    let (model, n, hash) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(())?;
    // The format's number behind the hash, where there is one, says who wrote it; the file itself says so too.
    let hash = hash.split_once('.').map_or(hash, |(hash, _format)| hash);
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
