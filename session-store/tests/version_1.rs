//! Files that the build before snapshot version 2 wrote (`testdata/v1`): read in full, written as version 2.

use std::fs;
use std::path::{Path, PathBuf};

use genie_types::TokenId;
use kvmanager::{KvCache, KvForm, KvGeometry, KvOptions, SplitGeometry, Variants};
use session_store::{CacheSchema, PrefixStore, SaveFormat, SavedToken, Snapshot, read_session, save_session};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1").join(name)
}

const PREFIX: &str = "93380840a10a6357-4-9de92cb281f637e0.kvs";

fn tokens(raw: &[u32]) -> Vec<TokenId> {
    raw.iter().copied().map(TokenId).collect()
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn a_dialog_is_read_and_written_as_version_2() {
    let old = Snapshot::read(&file("open-genie.kvs")).unwrap();
    assert_eq!(old.model.to_string(), "93380840a10a6357");
    let (history, generated) = old.history();
    assert_eq!(history, tokens(&[0, 12, 7, 9, 27, 200, 428, 1244, 79]));
    assert_eq!(generated, [[false; 4].as_slice(), &[true; 5]].concat());
    assert!(old.sequence(kvmanager::SeqId(0)).iter().enumerate().all(|(i, t)| t.position == i));
    let dialog = old.dialog.clone().unwrap();
    assert_eq!((dialog.unprocessed, dialog.open), (Some(TokenId(79)), false));
    assert_eq!(dialog.random_state.split(' ').count(), 624);
    assert_eq!((old.image.n_past(), old.user_data.len()), (8, 0));

    // The rows restore into a live cache of that model.
    let geometry = KvGeometry { splits: vec![SplitGeometry { tensors: old.image.tensors.clone() }] };
    let variants = Variants::new(["ar8_cl64".parse().unwrap()], KvForm::Concat, None).unwrap();
    let mut kv = KvCache::new(&geometry, variants, KvOptions::default()).unwrap();
    kv.import(&old.image).unwrap();
    assert_eq!(kv.export().unwrap(), old.image);

    let bytes = old.to_bytes();
    assert_eq!(bytes[8], 2, "the version that is written");
    assert_eq!(Snapshot::from_bytes(&bytes).unwrap(), old);

    // A session with that file beside libGenie's.
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(save_session(dir.path(), &old).unwrap().without_genie, None);
    fs::copy(file("open-genie.kvs"), dir.path().join("open-genie.kvs")).unwrap();
    let schema = CacheSchema { model: old.model, tensors: old.image.tensors.clone() };
    let read = || read_session(dir.path(), &schema, &[]).map(|r| (r.snapshot, r.format)).unwrap();
    assert_eq!(read(), (old.clone(), SaveFormat::OpenGenie));
    fs::remove_file(dir.path().join("open-genie.kvs")).unwrap();
    assert_eq!(read(), (old, SaveFormat::Genie));
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn a_stored_prefix_is_found_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(file(PREFIX), dir.path().join(PREFIX)).unwrap();
    let old = Snapshot::read(&file(PREFIX)).unwrap();
    let prompt = tokens(&[0, 12, 7, 9]);
    assert_eq!(old.sequences[0].tokens, SavedToken::prompt(&prompt));
    assert_eq!((old.dialog.as_ref(), old.image.n_past()), (None, 4));
    let store = PrefixStore::open(dir.path(), old.model, 1 << 20).unwrap();
    assert_eq!(store.find(&tokens(&[0, 12, 7, 9, 27]), 4).unwrap().unwrap(), old);
    assert!(store.insert(&old).unwrap());
    assert_eq!(store.usage().unwrap().0, 1, "under the same name");
    assert_eq!(fs::read(dir.path().join(PREFIX)).unwrap()[8], 2);
    assert_eq!(store.find(&prompt, 4).unwrap().unwrap(), old);
}
