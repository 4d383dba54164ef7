//! A prefix store that other processes share: one that keeps its lock, and ones of other versions.
//! Row 16 of the reliability list, and part 8 of the issue.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use genie_types::TokenId;
use kvmanager::{Cell, GroupImage, KvDtype, KvImage, KvKind, KvTensor, SeqId};
use session_store::{ModelHash, PrefixStore, SavedSequence, SavedToken, Snapshot, StoreError};

const MODEL: ModelHash = ModelHash([5; 32]);

fn prefix(n: usize) -> Snapshot {
    let tensor = KvTensor::new(KvKind::Key, 0, 1, 8, KvDtype::U8);
    let cells = (0..n).map(|pos| Cell { pos, rotated_pos: pos, seqs: 1 }).collect();
    let image = KvImage {
        groups: vec![GroupImage::of_cells(cells)],
        next: vec![(SeqId(0), n)],
        tensors: vec![tensor],
        data: vec![vec![4; tensor.rows_bytes(n)]],
        ..KvImage::default()
    };
    let sequences = vec![SavedSequence { seq: SeqId(0), tokens: SavedToken::prompt(&tokens(n)) }];
    Snapshot { model: MODEL, image, sequences, ..Snapshot::default() }
}

fn tokens(n: usize) -> Vec<TokenId> {
    (0..n as u32).map(TokenId).collect()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut all: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "kvs")).collect();
    all.sort();
    all
}

#[test]
#[cfg_attr(miri, ignore = "locks files")]
fn a_lock_that_is_not_given_back_is_an_error_and_not_a_hang() {
    let dir = tempfile::tempdir().unwrap();
    let store = PrefixStore::open(dir.path(), MODEL, 1 << 20).unwrap();
    assert!(store.insert(&prefix(8)).unwrap());
    let other = File::options().write(true).open(dir.path().join(".lock")).unwrap();
    other.lock().unwrap();
    match store.insert(&prefix(9)) {
        Err(StoreError::Locked { path, .. }) => assert_eq!(path, dir.path().join(".lock")),
        other => panic!("{other:?}"),
    }
    match store.try_insert(&prefix(9)) {
        Err(StoreError::Locked { waited, .. }) => assert!(waited.is_zero()),
        other => panic!("{other:?}"),
    }
    assert!(store.find(&tokens(20), 1).unwrap().is_some(), "reading needs no lock");
    drop(other);
    // The wait that was given up takes the lock late and gives it back at once.
    assert!(store.insert(&prefix(9)).unwrap());
    assert_eq!(store.usage().unwrap().0, 2);
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn entries_of_newer_versions_stay_and_those_of_older_ones_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = PrefixStore::open(dir.path(), MODEL, 1 << 20).unwrap();
    store.insert(&prefix(8)).unwrap();
    assert!(store.touch(&tokens(8)) && !store.touch(&tokens(7)));
    // What a later version would leave under the name that is ours: its number is not known, its content neither.
    let path = entries(dir.path()).remove(0);
    let mut newer = fs::read(&path).unwrap();
    newer[8..12].copy_from_slice(&77u32.to_le_bytes());
    newer.extend_from_slice(b"and sections of another kind");
    fs::write(&path, &newer).unwrap();

    assert!(store.find(&tokens(12), 1).unwrap().is_none() && !store.touch(&tokens(8)), "a miss");
    assert_eq!(fs::read(&path).unwrap(), newer, "which is not removed");
    assert!(store.insert(&prefix(8)).unwrap());
    assert_eq!(fs::read(&path).unwrap(), newer, "nor replaced");
    assert_eq!(store.find(&tokens(12), 1).unwrap().unwrap(), prefix(8), "ours lies beside it");
    assert_eq!(entries(dir.path()).len(), 2);
    // A damaged one of our own version goes, as before.
    let ours = entries(dir.path()).into_iter().find(|p| *p != path).unwrap();
    fs::write(&ours, b"GNKVSNAP\x02\0\0\0").unwrap();
    assert!(store.find(&tokens(12), 1).unwrap().is_none());
    assert_eq!(entries(dir.path()), std::slice::from_ref(&path));
    // The bound holds for all: the least recently used one goes, whoever wrote it.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
    File::options().append(true).open(&path).unwrap().set_modified(old).unwrap();
    let bound = prefix(9).to_bytes().len() as u64 + 10;
    assert!(PrefixStore::open(dir.path(), MODEL, bound).unwrap().insert(&prefix(9)).unwrap());
    assert!(!path.exists());
}
