//! Saving the cache and taking it back: checked snapshots, Genie's own cache file, and a store of prompt beginnings on disk.
//!
//! A [`Snapshot`] is one checked file and restores into another AR, CL or mode of the same model; it also holds the tokens
//! of every sequence. Genie's file holds one dialog from position 0 without gaps, nothing else, and no checksum.
//! *Invariant*: whatever is refused, the live cache is as it was.
//!
//! The sequences are the first part of a snapshot's extra bytes, little-endian: `GNBK`, u32 how many; for each u32
//! sequence, u32 how many tokens, and for each of these u32 token, u64 position. What follows is the caller's.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use genie_types::TokenId;
use kvmanager::{GenieSlot, ModelHash, Overflow, PrefixStore, SeqId, Snapshot, SnapshotError};
use xxhash_rust::xxh3::Xxh3;

use crate::run::{LogitsRequest, SeqTokens};
use crate::transcript::Transcript;
use crate::{Engine, EngineConfig, EngineError, Executor, TokenModel};

const BOOKS: &[u8; 4] = b"GNBK";
/// Bytes of a context binary that go into its mark: so many blocks, evenly spread, of so many bytes.
const MARK_BLOCKS: u64 = 64;
const MARK_BYTES: u64 = 16 << 10;

/// What saving needs to know beside the cache.
#[derive(Debug)]
pub(crate) struct Keeper {
    model: Option<ModelHash>,
    ctx_bins: Vec<PathBuf>,
    store: Option<(PrefixStore, usize)>,
}

impl Keeper {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self { model: config.model_hash, ctx_bins: config.ctx_bins.clone(), store: None }
    }
}

/// The bytes that the caller gave with a snapshot of an engine, without touching a live one.
///
/// # Errors
///
/// [`EngineError::Saved`] if the snapshot contradicts itself.
pub fn callers_bytes(snapshot: &Snapshot) -> Result<Vec<u8>, EngineError> {
    read_books(snapshot).map(|(_, extra)| extra).map_err(|why| SnapshotError::Corrupt { why }.into())
}

impl<X: Executor> Engine<X> {
    /// What saved caches of this model are marked with: the configuration's, else lengths and samples of the binaries.
    ///
    /// # Errors
    ///
    /// [`EngineError::ReadFile`].
    pub fn model_hash(&mut self) -> Result<ModelHash, EngineError> {
        if let Some(model) = self.keeper.model {
            return Ok(model);
        }
        let model = binaries_mark(&self.keeper.ctx_bins)?;
        Ok(*self.keeper.model.insert(model))
    }

    /// The cache with all sequences and their tokens, and some bytes of the caller.
    ///
    /// # Errors
    ///
    /// [`EngineError::Saved`] for a cache without rows (AR == CL).
    pub fn snapshot(&mut self, extra: &[u8]) -> Result<Snapshot, EngineError> {
        let model = self.model_hash()?;
        let mut snapshot = Snapshot::take(&mut self.kv, model, self.sequences.of(SeqId(0)).tokens())?;
        snapshot.extra = write_books(self.sequences.all());
        snapshot.extra.extend_from_slice(extra);
        Ok(snapshot)
    }

    /// Replaces cache and sequences by a snapshot's; answers the bytes that the caller gave with it.
    ///
    /// # Errors
    ///
    /// [`EngineError::Saved`] for another model's, or one that is too long or contradicts itself.
    pub fn restore_snapshot(&mut self, snapshot: &Snapshot) -> Result<Vec<u8>, EngineError> {
        let corrupt = |why: String| EngineError::Saved(SnapshotError::Corrupt { why });
        let (books, extra) = read_books(snapshot).map_err(corrupt)?;
        for book in &books {
            self.check_tokens(book.tokens())?;
        }
        let (n_past, limit) = (snapshot.image.n_past(), self.kv.variants().limit());
        if n_past > limit {
            return Err(Overflow::ContextExceeded { n_past: 0, n_new: n_past, limit }.into());
        }
        let model = self.model_hash()?;
        snapshot.restore(&mut self.kv, model)?;
        self.sequences.replace(books);
        Ok(extra)
    }

    /// Writes the dialog's cache as Genie does. `tokens` are all of the dialog, the last perhaps not processed.
    ///
    /// # Errors
    ///
    /// [`EngineError::Saved`], also when this cache has no form in that file: several sequences, gaps, cache groups.
    pub fn save_genie_slot(&mut self, dir: &Path, tokens: &[TokenId]) -> Result<(), EngineError> {
        if self.sequences.only() != Some(SeqId(0)) {
            let why = "several sequences are in the cache; that file knows one".to_owned();
            return Err(SnapshotError::NotASnapshot { why }.into());
        }
        Ok(GenieSlot::new(dir).write(&mut self.kv, tokens)?)
    }

    /// Replaces the cache by what Genie has saved. `tokens` are those of its token history.
    ///
    /// # Errors
    ///
    /// [`EngineError::Restore`] when rows and tokens contradict each other; [`EngineError::Saved`].
    pub fn restore_genie_slot(&mut self, dir: &Path, tokens: &[TokenId]) -> Result<(), EngineError> {
        self.check_tokens(tokens)?;
        let slot = GenieSlot::new(dir);
        let n_rows = slot.n_rows()?;
        if n_rows != tokens.len() && n_rows + 1 != tokens.len() {
            let why = format!("the cache file has {n_rows} rows, but the token history {} tokens", tokens.len());
            return Err(EngineError::Restore { dir: dir.to_owned(), why });
        }
        let limit = self.kv.variants().limit();
        if n_rows > limit {
            return Err(Overflow::ContextExceeded { n_past: 0, n_new: n_rows, limit }.into());
        }
        slot.read(&mut self.kv)?;
        self.sequences.clear();
        self.sequences.of_mut(SeqId(0)).extend(&tokens[..n_rows], 0);
        Ok(())
    }

    /// From now on a dialog that begins looks for a beginning of its prompt in that store, and puts its own there: at `min`
    /// tokens, at twice as many and so on, and at the prompt's end. The store must have been opened with
    /// [`model_hash`](Self::model_hash).
    pub fn set_prefix_store(&mut self, store: PrefixStore, min: usize) {
        self.keeper.store = Some((store, min.max(1)));
    }

    fn run_dialog(&mut self, tokens: &[TokenId], want: LogitsRequest) -> Result<(), EngineError> {
        self.run(&[SeqTokens { seq: SeqId(0), tokens }], want, &mut |_, _, _| ())
    }

    /// Processes the tokens, with what the store knows of them if the dialog begins here.
    pub(crate) fn run_known(&mut self, tokens: &[TokenId], want: LogitsRequest) -> Result<(), EngineError> {
        let begins = self.kv.next_pos(SeqId(0)) == 0 && self.sequences.only() == Some(SeqId(0));
        match self.keeper.store.take() {
            Some((store, min)) if begins && tokens.len() >= min => {
                let done = self.run_stored(&store, min, tokens, want);
                self.keeper.store = Some((store, min));
                match done {
                    // Nothing had been there before.
                    Err(e) if self.n_past() > 0 => Err(self.reset().err().unwrap_or(e)),
                    done => done,
                }
            }
            store => {
                self.keeper.store = store;
                self.run_dialog(tokens, want)
            }
        }
    }

    fn run_stored(
        &mut self,
        store: &PrefixStore,
        min: usize,
        tokens: &[TokenId],
        want: LogitsRequest,
    ) -> Result<(), EngineError> {
        self.check_tokens(tokens)?;
        self.kv.plan(&[(SeqId(0), tokens.len())], &self.policy)?;
        let mut at = self.known_prefix(store, min, tokens);
        let found = at;
        // The last token is run in any case: its logits are wanted.
        if at == tokens.len() {
            at -= 1;
            self.rewind(at)?;
        }
        let stops = std::iter::successors(Some(min), |n| n.checked_mul(2)).take_while(|&n| n < tokens.len());
        for stop in stops.filter(|&stop| stop > found) {
            self.run_dialog(&tokens[at..stop], LogitsRequest::Nothing)?;
            at = stop;
            self.put_in(store);
        }
        self.run_dialog(&tokens[at..], want)?;
        if found < tokens.len() {
            self.put_in(store);
        }
        Ok(())
    }

    /// Restores the longest stored beginning; a store that fails is only slower.
    fn known_prefix(&mut self, store: &PrefixStore, min: usize, tokens: &[TokenId]) -> usize {
        match store.find(tokens, min) {
            Ok(None) => 0,
            Ok(Some(snapshot)) => match self.restore_snapshot(&snapshot) {
                Ok(_) => snapshot.tokens.len(),
                Err(error) => {
                    tracing::warn!(%error, "a stored prefix does not fit");
                    0
                }
            },
            Err(error) => {
                tracing::warn!(%error, "the prefix store cannot be read");
                0
            }
        }
    }

    fn put_in(&mut self, store: &PrefixStore) {
        let stored = self.snapshot(&[]).and_then(|snapshot| Ok(store.insert(&snapshot)?));
        match stored {
            Ok(true) => {}
            Ok(false) => tracing::warn!("the prefix is larger than the whole store"),
            Err(error) => tracing::warn!(%error, "the prefix was not stored"),
        }
    }
}

/// A mark of some files: their lengths, and samples of their bytes, in order.
///
/// # Errors
///
/// [`EngineError::ReadFile`].
pub fn binaries_mark(paths: &[PathBuf]) -> Result<ModelHash, EngineError> {
    let mut halves = [Xxh3::with_seed(0), Xxh3::with_seed(1)];
    let mut block = vec![0; MARK_BYTES as usize];
    for path in paths {
        let failed = |source| EngineError::ReadFile { what: "context binary", path: path.clone(), source };
        let mut file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        halves.iter_mut().for_each(|half| half.update(&len.to_le_bytes()));
        for i in 0..MARK_BLOCKS {
            let at = len.saturating_sub(MARK_BYTES) * i / (MARK_BLOCKS - 1);
            file.seek(SeekFrom::Start(at)).map_err(failed)?;
            let block = &mut block[..len.min(MARK_BYTES) as usize];
            file.read_exact(block).map_err(failed)?;
            halves.iter_mut().for_each(|half| half.update(block));
        }
    }
    let mut mark = [0; 32];
    for (part, half) in mark.chunks_exact_mut(16).zip(&halves) {
        part.copy_from_slice(&half.digest128().to_le_bytes());
    }
    Ok(ModelHash(mark))
}

fn write_books(books: &[Transcript]) -> Vec<u8> {
    let used = || books.iter().enumerate().filter(|(_, book)| !book.is_empty());
    let mut out = BOOKS.to_vec();
    out.extend((used().count() as u32).to_le_bytes());
    for (seq, book) in used() {
        out.extend((seq as u32).to_le_bytes());
        out.extend((book.len() as u32).to_le_bytes());
        for (token, pos) in book.entries() {
            out.extend(token.0.to_le_bytes());
            out.extend((pos as u64).to_le_bytes());
        }
    }
    out
}

/// The sequences of a snapshot, and the caller's bytes.
fn read_books(snapshot: &Snapshot) -> Result<(Vec<Transcript>, Vec<u8>), String> {
    let mut books = vec![Transcript::default(); SeqId::COUNT];
    let Some(mut rest) = snapshot.extra.strip_prefix(BOOKS) else {
        // Taken by another user of the cache: one dialog from the beginning.
        if snapshot.tokens.len() != snapshot.image.n_past() {
            let (n, n_past) = (snapshot.tokens.len(), snapshot.image.n_past());
            return Err(format!("{n} tokens for {n_past} positions, and no list of sequences"));
        }
        books[0].extend(&snapshot.tokens, 0);
        return Ok((books, snapshot.extra.clone()));
    };
    let short = || "the list of sequences is cut short".to_owned();
    for _ in 0..word(&mut rest).ok_or_else(short)? {
        let (seq, n) = (word(&mut rest).ok_or_else(short)?, word(&mut rest).ok_or_else(short)?);
        let book = books.get_mut(seq as usize).ok_or_else(|| format!("sequence {seq} of {}", SeqId::COUNT))?;
        for _ in 0..n {
            let token = word(&mut rest).ok_or_else(short)?;
            let (low, high) = (word(&mut rest).ok_or_else(short)?, word(&mut rest).ok_or_else(short)?);
            let pos = u64::from(low) | u64::from(high) << 32;
            book.push(TokenId(token), usize::try_from(pos).map_err(|_| format!("position {pos}"))?);
        }
    }
    if books[0].tokens() != snapshot.tokens {
        return Err("the tokens are not those of sequence 0".to_owned());
    }
    Ok((books, rest.to_vec()))
}

fn word(bytes: &mut &[u8]) -> Option<u32> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_survive_and_nonsense_is_named() {
        let mut books = vec![Transcript::default(); SeqId::COUNT];
        books[0].extend(&[5, 6].map(TokenId), 0);
        books[3].push(TokenId(9), 70_000_000_000);
        let mut snapshot = Snapshot { tokens: vec![TokenId(5), TokenId(6)], ..Snapshot::default() };
        snapshot.extra = write_books(&books);
        snapshot.extra.extend(b"mine");
        assert_eq!(read_books(&snapshot).unwrap(), (books, b"mine".to_vec()));
        let whole = snapshot.extra.clone();
        for n in 4..whole.len() - 4 {
            snapshot.extra = whole[..n].to_vec();
            assert_eq!(read_books(&snapshot).unwrap_err(), "the list of sequences is cut short", "{n} bytes");
        }
        snapshot.extra = whole;
        snapshot.tokens.pop();
        assert_eq!(read_books(&snapshot).unwrap_err(), "the tokens are not those of sequence 0");
        snapshot.extra = b"another's".to_vec();
        assert_eq!(read_books(&snapshot).unwrap_err(), "1 tokens for 0 positions, and no list of sequences");
    }

    #[test]
    fn marks_tell_files_apart() {
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
        let marks: Vec<_> = paths.iter().map(|p| binaries_mark(std::slice::from_ref(p)).unwrap()).collect();
        for (i, mark) in marks.iter().enumerate() {
            assert!(marks[..i].iter().all(|other| other != mark), "file {i}");
        }
        assert_eq!(binaries_mark(&paths[2..3]).unwrap(), marks[2]);
        let gone = binaries_mark(&[folder.path().join("gone")]).unwrap_err().to_string();
        assert!(gone.starts_with("cannot read context binary"), "{gone}");
    }
}
