//! Snapshots, libGenie's folder and the prefix store against a live cache: restored in any shape and mode, refused when
//! anything is wrong.

use std::path::Path;

use genie_types::{SplitIdx, TokenId, Variant};
use kvmanager::{
    HolePolicy, Keep, KvCache, KvDtype, KvForm, KvGeometry, KvImage, KvOptions, ModeKind, Policy, SeqId, Variants,
};
use serde_json::json;
use session_store::{
    DialogState, FolderFault, GenieFolder, ModelHash, NoGenieForm, PrefixStore, SavedSequence, SavedToken, Snapshot,
    StoreError, read_handed_cache, write_handed_cache,
};

const MODEL: ModelHash = ModelHash([7; 32]);

fn spec(ar: u32, cl: u32) -> Variant {
    Variant::new(ar, cl).unwrap()
}

fn cache(mode: ModeKind, shapes: &[(u32, u32)], dtype: KvDtype) -> KvCache {
    cache_with(HolePolicy::Close, mode, shapes, dtype)
}

fn cache_with(holes: HolePolicy, mode: ModeKind, shapes: &[(u32, u32)], dtype: KvDtype) -> KvCache {
    let mut geometry = KvGeometry::uniform(2, 2, 32, dtype);
    for (i, tensor) in geometry.splits[0].tensors.iter_mut().enumerate() {
        tensor.offset = -128;
        tensor.scale = if dtype == KvDtype::U8 { 0.5 + i as f32 } else { 0.0 };
    }
    let variants = Variants::new(shapes.iter().map(|&(ar, cl)| spec(ar, cl)), KvForm::Concat, None).unwrap();
    KvCache::new(&geometry, variants, KvOptions { mode, n_threads: 1, holes, ..KvOptions::default() }).unwrap()
}

/// Processes tokens; their bytes follow from their serial number.
fn feed(kv: &mut KvCache, n: usize, seed: usize) {
    for planned in kv.plan(&[(SeqId(0), n)], &Policy::Lenient).unwrap().steps() {
        let mut step = kv.begin(planned).unwrap();
        for (t, view) in step.split(SplitIdx(0)).unwrap().views().enumerate() {
            let bytes = view.new.iter_mut().enumerate();
            bytes.for_each(|(i, b)| *b = (i * 31 + t * 7 + planned.n_past() * 13 + seed) as u8 & 0x3F);
        }
        step.commit(SplitIdx(0), Keep::All).unwrap();
        step.finish().unwrap();
    }
}

fn tokens(n: u32) -> Vec<TokenId> {
    (0..n).map(TokenId).collect()
}

fn rows(kv: &mut KvCache) -> KvImage {
    kv.export().unwrap()
}

/// A dialog of those tokens, the last not processed if there are more than rows.
fn take(kv: &mut KvCache, tokens: &[TokenId]) -> Snapshot {
    let image = kv.export().unwrap();
    let (processed, last) = tokens.split_at(tokens.len().min(image.n_past()));
    let sequences = match processed {
        [] => Vec::new(),
        _ => vec![SavedSequence { seq: SeqId(0), tokens: SavedToken::prompt(processed) }],
    };
    let dialog = last.first().map(|&t| DialogState { unprocessed: Some(t), ..DialogState::default() });
    Snapshot { model: MODEL, image, sequences, dialog, ..Snapshot::default() }
}

fn restore(snapshot: &Snapshot, kv: &mut KvCache, model: ModelHash) -> Result<(), StoreError> {
    snapshot.check_model(model)?;
    Ok(kv.import(&snapshot.image)?)
}

/// Reads libGenie's cache and history into a live cache.
fn read(folder: &GenieFolder<'_>, kv: &mut KvCache) -> Result<Vec<TokenId>, StoreError> {
    let tokens = folder.read_history()?;
    let tensors = kv.geometry()?;
    kv.import(&folder.read_cache(&tensors, tokens.len())?)?;
    Ok(tokens)
}

#[test]
fn restores_into_any_shape_and_mode() {
    let mut kv = cache(ModeKind::SMART_MASK, &[(1, 64), (8, 64)], KvDtype::U8);
    feed(&mut kv, 29, 0);
    let saved = take(&mut kv, &tokens(30));
    let back = Snapshot::from_bytes(&saved.to_bytes()).unwrap();
    assert_eq!(back, saved);
    for mode in ModeKind::ALL {
        let mut other = cache(mode, &[(1, 32), (4, 128)], KvDtype::U8);
        feed(&mut other, 3, 99);
        restore(&back, &mut other, MODEL).unwrap();
        assert_eq!(rows(&mut other), saved.image, "{}", mode.name());
        assert_eq!(other.state().n_past, 29);
        feed(&mut other, 20, 1);
        other.rewind(SeqId(0), 29).unwrap();
        assert_eq!(rows(&mut other), saved.image, "{}", mode.name());
    }
}

#[test]
fn every_refusal_says_why_and_leaves_the_cache() {
    let mut kv = cache(ModeKind::SMART_MASK, &[(1, 64), (8, 64)], KvDtype::U8);
    feed(&mut kv, 20, 0);
    let snapshot = take(&mut kv, &tokens(20));
    let good = snapshot.to_bytes();
    let flip = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut newer = good.clone();
    newer[8] = 3;
    let cases = [
        (Vec::new(), "not a cache snapshot: only 0 bytes".to_owned()),
        (b"GNKVSNAQ12345678".to_vec(), "not a cache snapshot: another magic".to_owned()),
        (newer, "snapshot version 3 is newer than this build reads (up to 2)".to_owned()),
        (
            good[..good.len() - 1].to_vec(),
            format!("torn snapshot: {} bytes, its header says {}", good.len() - 1, good.len()),
        ),
        (good[..40].to_vec(), format!("torn snapshot: 40 bytes, its header says {}", good.len())),
        (flip(30), "corrupt snapshot: checksum of the header".to_owned()),
        (flip(60), "corrupt snapshot: checksum of the header".to_owned()),
        (flip(good.len() - 1), "corrupt snapshot: checksum of section 5.3".to_owned()),
        (flip(12), "corrupt snapshot: checksum of the header".to_owned()),
    ];
    for (bytes, expected) in cases {
        assert_eq!(Snapshot::from_bytes(&bytes).unwrap_err().to_string(), expected);
    }

    let before = rows(&mut kv);
    let other = ModelHash([8; 32]);
    let err = restore(&snapshot, &mut kv, other).unwrap_err();
    assert_eq!(
        err.to_string(),
        "saved with other weights or another type of cache: 0707070707070707, expected 0808080808080808"
    );
    let err = restore(&snapshot, &mut kv, MODEL.with_other_rope_factors()).unwrap_err();
    assert!(matches!(err, StoreError::OtherRopeFactors), "{err}");
    let named = Snapshot { bundle: "base".into(), ..Snapshot::from_bytes(&good).unwrap() };
    let err = restore(&Snapshot::from_bytes(&named.to_bytes()).unwrap(), &mut kv, other).unwrap_err();
    let words = "saved with other weights or another type of cache (bundle `base`): 0707070707070707, expected 0808080808080808";
    assert_eq!(err.to_string(), words, "section 4, restore into another model");
    let mut longer = cache(ModeKind::SMART_MASK, &[(8, 256)], KvDtype::U8);
    feed(&mut longer, 100, 0);
    let err = restore(&take(&mut longer, &[]), &mut kv, MODEL).unwrap_err();
    assert_eq!(err.to_string(), "saved rows do not fit this cache: group 0 has 100 rows saved, this cache holds 64");
    let mut halves = cache(ModeKind::SMART_MASK, &[(8, 64)], KvDtype::F16);
    feed(&mut halves, 5, 0);
    let err = restore(&take(&mut halves, &[]), &mut kv, MODEL).unwrap_err();
    // Section 4, "foreign snapshot geometry": words, no debug form.
    let words = "saved rows do not fit this cache: `past_key_0`: element type float16 saved, uint8 in this model";
    assert!(err.to_string().starts_with(words) && !err.to_string().contains("KvTensor"), "{err}");
    assert_eq!(rows(&mut kv), before);
}

#[test]
fn no_damage_makes_it_panic() {
    let mut kv = cache(ModeKind::SMART_MASK, &[(8, 16)], KvDtype::U8);
    feed(&mut kv, 3, 0);
    let good = take(&mut kv, &tokens(4)).to_bytes();
    for at in 0..if cfg!(miri) { 40 } else { good.len() } {
        assert!(Snapshot::from_bytes(&good[..at]).is_err(), "cut at {at}");
        for bit in [0, 3, 7] {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            assert!(Snapshot::from_bytes(&bytes).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn a_folder_of_libgenie_is_read_and_written_byte_for_byte() {
    struct Case {
        folder: &'static str,
        dtype: KvDtype,
        /// Keys by layer, then values, as the model's tensors have them.
        scales: [f32; 4],
    }
    let cases = [
        Case { folder: "fp16", dtype: KvDtype::F16, scales: [0.0; 4] },
        Case {
            folder: "w8a16",
            dtype: KvDtype::U8,
            scales: [0.062_465_776, 0.062_929_83, 0.068_605_92, 0.056_494_128],
        },
    ];
    for Case { folder, dtype, scales } in cases {
        let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/genie-save").join(folder);
        let new = |mode, shapes: &[(u32, u32)]| {
            let mut geometry = KvGeometry::uniform(2, 2, 32, dtype);
            for (i, tensor) in geometry.splits[0].tensors.iter_mut().enumerate() {
                // Our tensors go layer by layer, the file's kind by kind.
                (tensor.scale, tensor.offset) = (scales[i % 2 * 2 + i / 2], -128);
            }
            let variants = Variants::new(shapes.iter().map(|&(ar, cl)| spec(ar, cl)), KvForm::Concat, None).unwrap();
            KvCache::new(&geometry, variants, KvOptions { mode, ..KvOptions::default() }).unwrap()
        };
        for mode in ModeKind::ALL {
            let mut kv = new(mode, &[(1, 64), (32, 128)]);
            let history = read(&GenieFolder::new(&real), &mut kv).unwrap();
            let expected = [256, 90, 91, 92, 93, 94, 403, 266, 70, 260, 336, 273, 448, 407].map(TokenId);
            assert_eq!(history, expected, "prompt, then what was generated; the last is not in the cache yet");
            assert_eq!((kv.state().n_past, kv.state().n_valid_kv), (13, 13));
            let dir = tempfile::tempdir().unwrap();
            GenieFolder::new(dir.path()).write_cache(&rows(&mut kv), &history).unwrap();
            for file in ["kv-slot-0.primary.qnn-htp", "token-history-slot-0"] {
                let (own, real) = (std::fs::read(dir.path().join(file)), std::fs::read(real.join(file)));
                assert_eq!(own.unwrap(), real.unwrap(), "{folder}/{file} by {}", mode.name());
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn genie_reads_and_writes_the_same_folder() {
    let dir = tempfile::tempdir().unwrap();
    for dtype in [KvDtype::U8, KvDtype::F16] {
        let mut kv = cache(ModeKind::SMART_MASK, &[(1, 64), (8, 64)], dtype);
        feed(&mut kv, 13, 0);
        let before = rows(&mut kv);
        let folder = GenieFolder::new(dir.path());
        folder.write_cache(&before, &tokens(14)).unwrap();
        let bytes = std::fs::read(dir.path().join("kv-slot-0.primary.qnn-htp")).unwrap();
        // The header that libGenie 1.21 wrote for 2 layers, 2 heads of 32, 13 rows.
        assert_eq!(bytes[..16], [4, 0, 0, 0, 0xDE, 0xC0, 0, 0, 0, 0, 2, 0, 32, 0, 13, 0]);
        assert_eq!(bytes.len(), 16 + 4 * 2 * 32 * 13 * dtype.size_bytes() + 4 * 8);
        // Keys by layer come first: the second tensor of the file is the key of layer 1.
        let key = 2 * 32 * 13 * dtype.size_bytes();
        assert_eq!(bytes[16 + key..16 + 2 * key], before.data[2]);
        let scales: Vec<f64> =
            bytes[bytes.len() - 32..].chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(scales, if dtype == KvDtype::U8 { [0.5, 2.5, 1.5, 3.5] } else { [0.0; 4] });

        let mut other = cache(ModeKind::SHIFT_CONCAT, &[(1, 32)], dtype);
        assert_eq!(read(&folder, &mut other).unwrap(), tokens(14));
        assert_eq!(rows(&mut other), before);
        std::fs::rename(dir.path().join("kv-slot-0.primary.qnn-htp"), dir.path().join("kv-cache.primary.qnn-htp"))
            .unwrap();
        other.clear().unwrap();
        read(&folder, &mut other).unwrap();
        assert_eq!(rows(&mut other), before, "by the older name");

        // A history that is cut short, within a token or before the last row.
        let history = dir.path().join("token-history-slot-0");
        let whole = std::fs::read(&history).unwrap();
        for (n, expected) in [
            (55, "`token-history-slot-0` has 55 bytes, expected a multiple of 4"),
            (48, "the cache file has 13 rows, but the token history 12 tokens, expected as many or one more"),
        ] {
            std::fs::write(&history, &whole[..n]).unwrap();
            let why = format!("cannot restore from `{}`: {expected}", dir.path().display());
            assert_eq!(read(&folder, &mut other).unwrap_err().to_string(), why);
        }
        let err = folder.write_cache(&rows(&mut other), &tokens(12)).unwrap_err();
        assert!(
            matches!(err, StoreError::NoGenieForm(NoGenieForm::TooFewTokens { n_tokens: 12, n_rows: 13 })),
            "{err}"
        );
        std::fs::write(&history, &whole).unwrap();
        for n_past in [12, 15, usize::MAX] {
            let counters = json!({
                "last-tok": 13, "n-generated": 0, "n-past": n_past, "n-prompt": 14, "n-queries": 1,
                "prefill-only": false, "process-state": 0, "unprocessed-embedding-size": 0, "unprocessed-tokens-size": 0,
            });
            std::fs::write(dir.path().join("dialog.json"), counters.to_string()).unwrap();
            let expected = format!("`token-history-slot-0` has 14 tokens, but `dialog.json` says {n_past}");
            let why = folder.read_dialog(&[]).unwrap_err().to_string();
            assert!(why.ends_with(&expected), "{why}");
        }

        let mut bytes = bytes;
        bytes.pop();
        std::fs::write(dir.path().join("kv-cache.primary.qnn-htp"), &bytes).unwrap();
        assert!(matches!(read(&folder, &mut other), Err(StoreError::Torn { .. })));
        bytes[4] = 0;
        std::fs::write(dir.path().join("kv-cache.primary.qnn-htp"), &bytes).unwrap();
        let err = read(&folder, &mut other).unwrap_err();
        let why = "`kv-cache.primary.qnn-htp` does not begin as Genie's cache file does: magic 0xc000, expected 0xc0de";
        assert!(err.to_string().ends_with(why), "{err}");
        assert!(matches!(err, StoreError::Folder { fault: FolderFault::Magic { found: Some(0xc000), .. }, .. }));
        assert_eq!(rows(&mut other), before, "a refusal changes nothing");
    }
    let mut kv = cache_with(HolePolicy::Keep, ModeKind::SMART_MASK, &[(8, 64)], KvDtype::U8);
    feed(&mut kv, 6, 0);
    kv.remove(SeqId(0), 1..3).unwrap();
    let err = GenieFolder::new(dir.path()).write_cache(&rows(&mut kv), &[]).unwrap_err();
    let why = "Genie's cache file has no form for this cache: it is not one dialog from position 0 without gaps";
    assert_eq!(err.to_string(), why);
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn a_handed_history_that_is_too_long_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut kv = cache(ModeKind::SMART_MASK, &[(8, 64)], KvDtype::U8);
    feed(&mut kv, 6, 0);
    let image = rows(&mut kv);
    write_handed_cache(dir.path(), &image, &tokens(6)).unwrap();
    assert_eq!(read_handed_cache(dir.path(), &image.tensors).unwrap().1, tokens(6));
    let history = std::fs::File::options().write(true).open(dir.path().join("token-history")).unwrap();
    history.set_len(3 << 40).unwrap();
    let StoreError::Io { source, .. } = read_handed_cache(dir.path(), &image.tensors).unwrap_err() else {
        panic!("another error")
    };
    assert_eq!(source.to_string(), "expected at most 67108864 bytes, found 3298534883328");
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn the_store_finds_the_longest_prefix_and_forgets_the_least_recent() {
    let dir = tempfile::tempdir().unwrap();
    let mut kv = cache(ModeKind::SMART_MASK, &[(8, 64)], KvDtype::U8);
    let mut snapshot = |n: u32, first: u32| {
        kv.clear().unwrap();
        feed(&mut kv, n as usize, 0);
        let mut list = tokens(n);
        list[0] = TokenId(first);
        take(&mut kv, &list)
    };
    let (short, long, other) = (snapshot(8, 0), snapshot(16, 0), snapshot(16, 5));
    let size = long.to_bytes().len() as u64;
    let store = PrefixStore::open(dir.path(), MODEL, 3 * size).unwrap();
    assert!(store.find(&tokens(20), 1).unwrap().is_none());
    assert!(store.insert(&short).unwrap() && store.insert(&long).unwrap());
    assert_eq!(store.find(&tokens(20), 1).unwrap().unwrap(), long);
    assert_eq!(store.find(&tokens(15), 1).unwrap().unwrap(), short);
    assert!(store.find(&tokens(15), 9).unwrap().is_none(), "too short to be worth it");
    let strange = PrefixStore::open(dir.path(), ModelHash([9; 32]), size).unwrap();
    assert!(strange.find(&tokens(20), 1).unwrap().is_none(), "of another model");

    let age = |n: usize, seconds: u64| {
        let wanted = format!("-{n}-");
        let path = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
        let path = path.filter(|p| p.to_string_lossy().contains(&wanted)).min().unwrap();
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds);
        std::fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
    };
    age(8, 50);
    age(16, 100);
    // A hit makes the long one young again, so the short one goes.
    store.find(&tokens(16), 16).unwrap().unwrap();
    assert!(store.insert(&other).unwrap());
    assert_eq!(store.usage().unwrap().0, 3);
    assert!(store.insert(&snapshot(16, 6)).unwrap());
    assert!(store.find(&tokens(8), 1).unwrap().is_none());
    assert!(store.find(&tokens(16), 1).unwrap().is_some());
    assert!(store.usage().unwrap().1 <= 3 * size);

    // One that is larger than the whole store pushes nothing out.
    let others = store.usage().unwrap();
    let small = PrefixStore::open(dir.path(), MODEL, others.1).unwrap();
    assert!(!small.insert(&snapshot(60, 1)).unwrap());
    assert_eq!(small.usage().unwrap(), others);

    // A damaged file is a miss and goes.
    let path = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
    path.filter(|p| p.extension().is_some()).for_each(|p| {
        let mut bytes = std::fs::read(&p).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(p, bytes).unwrap();
    });
    assert!(store.find(&tokens(16), 1).unwrap().is_none());
    let tiny = PrefixStore::open(dir.path(), MODEL, 10).unwrap();
    assert!(!tiny.insert(&short).unwrap(), "larger than the whole store");
    assert_eq!(tiny.usage().unwrap(), (0, 0));
}
