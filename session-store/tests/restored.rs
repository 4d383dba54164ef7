//! A session's folder in which the snapshot and libGenie's files differ: which of them is restored, and what is said.
//! Rows of the reliability list, section 3: "`--restore`: one token changed" and "`open-genie.kvs` damaged".

use std::fs;
use std::path::Path;

use genie_types::TokenId;
use kvmanager::{Cell, GroupImage, KvDtype, KvImage, KvKind, KvTensor, SeqId};
use session_store::{
    CacheSchema, DialogState, ModelHash, RestoreNote, SaveFormat, SavedSequence, SavedToken, Snapshot, StoreError,
    read_session, save_session,
};

const MODEL: ModelHash = ModelHash([3; 32]);

/// A dialog whose rows are computed from its tokens, the last token not processed.
fn dialog(tokens: &[u32]) -> Snapshot {
    let tensors =
        vec![KvTensor::new(KvKind::Key, 0, 2, 4, KvDtype::U8), KvTensor::new(KvKind::Value, 0, 2, 4, KvDtype::U8)];
    let (last, processed) = tokens.split_last().unwrap();
    let n = processed.len();
    let key = |line: usize| processed.iter().map(move |t| (t * 7 + line as u32) as u8);
    let value =
        |head: usize| processed.iter().flat_map(move |t| (0..4).map(move |d| (t * 5 + head as u32 * 3 + d) as u8));
    let data = vec![(0..8).flat_map(key).collect(), (0..2).flat_map(value).collect()];
    let cells = (0..n).map(|pos| Cell { pos, rotated_pos: pos, seqs: 1 }).collect();
    let image = KvImage {
        groups: vec![GroupImage::of_cells(cells)],
        next: vec![(SeqId(0), n)],
        tensors,
        data,
        ..KvImage::default()
    };
    let processed: Vec<TokenId> = processed.iter().copied().map(TokenId).collect();
    let sequences = vec![SavedSequence { seq: SeqId(0), tokens: SavedToken::prompt(&processed) }];
    let dialog = Some(DialogState { unprocessed: Some(TokenId(*last)), ..DialogState::default() });
    Snapshot { model: MODEL, image, sequences, dialog, ..Snapshot::default() }
}

fn schema(snapshot: &Snapshot) -> CacheSchema {
    CacheSchema { model: MODEL, tensors: snapshot.image.tensors.clone() }
}

fn flip(path: &Path, byte: usize, bit: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn a_changed_token_in_genies_history_never_wins_over_the_snapshot() {
    let ours = dialog(&[9, 8, 7, 6, 5, 4]);
    for token in 0..6 {
        for (byte, bit) in [(0, 0), (0, 6), (1, 3), (3, 7)] {
            let dir = tempfile::tempdir().unwrap();
            save_session(dir.path(), &ours).unwrap();
            flip(&dir.path().join("token-history-slot-0"), token * 4 + byte, bit);
            let read = read_session(dir.path(), &schema(&ours), &[]).unwrap();
            assert_eq!(
                (&read.snapshot, read.format),
                (&ours, SaveFormat::OpenGenie),
                "token {token}, bit {byte}.{bit}"
            );
            match read.note.expect("the difference is reported") {
                RestoreNote::HistoryDamaged { place, .. } => assert!(place == token && token < 5),
                // The last token stands in `dialog.json` as well, which tells that the list is wrong.
                RestoreNote::GenieUnusable(StoreError::Folder { .. }) => assert_eq!(token, 5),
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn what_genie_saved_later_is_restored_and_named() {
    let ours = dialog(&[9, 8, 7, 6, 5, 4]);
    let cases: [(&[u32], usize); 3] =
        [(&[9, 8, 7, 6, 5, 4, 3, 2], 6), (&[9, 8, 70, 60, 50], 2), (&[1, 2, 3, 4, 5, 6], 0)];
    for (tokens, n_common) in cases {
        let (dir, later) = (tempfile::tempdir().unwrap(), dialog(tokens));
        save_session(dir.path(), &later).unwrap();
        ours.write(&dir.path().join("open-genie.kvs")).unwrap();
        let read = read_session(dir.path(), &schema(&ours), &[]).unwrap();
        assert_eq!((read.snapshot.history().0, read.format), (later.history().0, SaveFormat::Genie));
        let note = read.note.unwrap();
        assert!(matches!(note, RestoreNote::GenieWentOn { n_common: n, .. } if n == n_common), "{note}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn damage_beside_a_good_snapshot_is_reported_and_left_aside() {
    let ours = dialog(&[9, 8, 7, 6, 5, 4]);
    for name in ["dialog.json", "kv-slot-0.primary.qnn-htp", "token-history-slot-0", "sampler.primary.rng"] {
        for damage in ["cut", "removed"] {
            let dir = tempfile::tempdir().unwrap();
            save_session(dir.path(), &ours).unwrap();
            let path = dir.path().join(name);
            match damage {
                "cut" => fs::write(&path, fs::read(&path).map(|b| b[..b.len() / 2].to_vec()).unwrap()).unwrap(),
                _ => fs::remove_file(&path).unwrap(),
            }
            let read = read_session(dir.path(), &schema(&ours), &[]).unwrap();
            assert_eq!((&read.snapshot, read.format), (&ours, SaveFormat::OpenGenie), "{name} {damage}");
            // Without `dialog.json` there is no dialog of libGenie's; an empty random state cannot be cut.
            let reported = !matches!((name, damage), ("dialog.json", "removed") | ("sampler.primary.rng", "cut"));
            assert_eq!(read.note.is_some(), reported, "{name} {damage}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn a_damaged_snapshot_is_refused_and_says_whether_genies_files_are_whole() {
    let ours = dialog(&[9, 8, 7, 6, 5, 4]);
    let dir = tempfile::tempdir().unwrap();
    save_session(dir.path(), &ours).unwrap();
    let path = dir.path().join("open-genie.kvs");
    flip(&path, 200, 3);
    let refused = || match read_session(dir.path(), &schema(&ours), &[]) {
        Err(StoreError::Snapshot { genie_is_whole, source, .. }) => (genie_is_whole, source.to_string()),
        other => panic!("{other:?}"),
    };
    let (whole, why) = refused();
    assert!(whole && why.starts_with("corrupt snapshot"), "{why}");
    fs::remove_file(dir.path().join("kv-slot-0.primary.qnn-htp")).unwrap();
    assert!(!refused().0, "libGenie's files are not whole either");
    save_session(dir.path(), &ours).unwrap();
    fs::remove_file(&path).unwrap();
    let read = read_session(dir.path(), &schema(&ours), &[]).unwrap();
    assert_eq!((read.snapshot.history(), read.format), (ours.history(), SaveFormat::Genie), "as the hint has it");
}

/// A sampler with such a bound draws the likeliest token each time, or refuses every one.
#[test]
fn a_bound_of_mirostat_that_is_no_number_is_refused() {
    let mut snapshot = dialog(&[9, 8, 7]);
    let mut saved = |mu: f64| {
        snapshot.dialog.as_mut().unwrap().mirostat_mu = Some(mu);
        Snapshot::from_bytes(&snapshot.to_bytes()).map(|read| read.dialog.unwrap().mirostat_mu)
    };
    assert_eq!(saved(-3.25).unwrap(), Some(-3.25));
    for mu in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let why = saved(mu).unwrap_err().to_string();
        assert!(why.contains("bound of mirostat"), "{mu}: {why}");
    }
}
