//! Row 5 of the reliability list: weights of more than 64 MiB were compared with nothing, and 58 of 60 flipped bits gave other
//! tokens without a word. And a binary that is whole, but of another model: only the manifest tells.
//!
//! One test program, one large random model and small ones; the cache folder of its stamps is the program's own.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Silent, Splits};
use open_genie::{Error, Hint, Model, Options, Prompt, Session, TokenId, open_backend};

/// A bundle whose weights are not compared while they are loaded, and the folder of stamps.
fn bundle() -> &'static (PathBuf, PathBuf) {
    static BUNDLE: OnceLock<(tempfile::TempDir, (PathBuf, PathBuf))> = OnceLock::new();
    let (_, paths) = BUNDLE.get_or_init(|| {
        let home = tempfile::tempdir().unwrap();
        let (model, bundle, cache) = (home.path().join("model"), home.path().join("large"), home.path().join("cache"));
        fs::create_dir_all(&model).unwrap();
        TestModel::large(Family::Llama).write(&model).unwrap();
        let options = CompileOptions {
            ars: vec![1],
            cls: vec![32],
            splits: Splits::Mono,
            ..CompileOptions::new(&model, &bundle)
        };
        compiler::compile(&options, &open_backend(&Options::new()).unwrap(), &mut Silent).unwrap();
        (home, (bundle, cache))
    });
    paths
}

fn binary() -> PathBuf {
    let (bundle, _) = bundle();
    let mut binaries = fs::read_dir(bundle).unwrap().map(|e| e.unwrap().path());
    binaries.find(|p| p.extension().is_some_and(|e| e == "bin")).unwrap()
}

fn options() -> Options {
    Options::new().threads(1).cache_folder(&bundle().1)
}

fn stamps() -> usize {
    fs::read_dir(bundle().1.join("weights-1")).map_or(0, |entries| entries.count())
}

fn xor(path: &Path, at: u64, mask: u8) {
    let mut file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[byte[0] ^ mask]).unwrap();
}

/// Bytes of the weights, not of the zeros between blobs.
fn places(n: u64) -> Vec<u64> {
    let bytes = fs::read(binary()).unwrap();
    let weights = u64::from_le_bytes(bytes[48..56].try_into().unwrap());
    let step = (bytes.len() as u64 - weights) / n;
    let mut found = Vec::new();
    for i in 0..n {
        let from = (weights + i * step) as usize;
        let at = from + bytes[from..].iter().position(|b| *b != 0).unwrap();
        found.push(at as u64);
    }
    found
}

fn damaged(result: Result<(), Error>) -> String {
    match result {
        Err(error @ Error::DamagedWeights { .. }) => {
            assert_eq!(error.hint(), Some(Hint::CopyBundleAgain));
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

fn other(result: Result<(), Error>) -> String {
    match result {
        Err(error @ Error::OtherWeights { .. }) => {
            assert_eq!(error.hint(), Some(Hint::CopyBundleAgain));
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains("differs from its manifest: found ") && cause.contains("expected "), "{cause}");
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

fn query(session: &mut Session) -> Result<(), Error> {
    session.set_max_tokens(Some(2));
    session.generate(Prompt::Tokens(&[TokenId(5), TokenId(6)])).into_reply().map(drop)
}

#[test]
fn a_flipped_bit_is_found_before_the_second_prompt_wherever_it_is() {
    let (bundle, _) = bundle();
    let binary = binary();
    assert!(fs::metadata(&binary).unwrap().len() > 64 << 20, "too large to be compared while it is loaded");
    std::thread::sleep(Duration::from_millis(120)); // a file that has just changed gets no stamp

    // Below a file nothing is remembered.
    let nowhere = || Options::new().threads(1).cache_folder(binary.join("no folder"));

    // Whole: checked once, then known.
    let mut session = Session::open(bundle, &options()).unwrap();
    assert_eq!(stamps(), 0);
    query(&mut session).unwrap();
    query(&mut session).unwrap();
    assert_eq!(stamps(), 1, "the second prompt had to know");

    let flips = places(20);
    for (i, &at) in flips.iter().enumerate() {
        xor(&binary, at, 1 << (i % 8));
        let said = damaged(Model::open(bundle, &options()).and_then(|mut model| model.check_weights()));
        assert!(said.contains("large/") && said.contains(".bin` are damaged"), "byte {at}: {said}");
        xor(&binary, at, 1 << (i % 8));
    }

    // A session: the first reply may come, the second prompt and saving are refused, each time.
    xor(&binary, flips[7], 0x40);
    let mut session = Session::open(bundle, &nowhere()).unwrap();
    if let Err(error) = query(&mut session) {
        damaged(Err(error)); // where the damage made the model fail, that is said
    }
    for _ in 0..2 {
        damaged(query(&mut session));
    }
    let folder = bundle.with_file_name("saved");
    damaged(session.save(&folder).map(drop));
    assert!(!folder.exists());
    // Whatever is kept or measured waits for the check.
    let measured = |model: Result<Model, Error>| model?.verify(3, 2, 0.1, &mut || ()).map(drop);
    damaged(measured(Model::open(bundle, &options())));
    let tokens: Vec<TokenId> = (0..20).map(TokenId).collect();
    let predicted = |model: Result<Model, Error>| model?.perplexity(&tokens, Some(8), 1, &mut || ()).map(drop);
    damaged(predicted(Model::open(bundle, &options())));
    let prefixes = open_genie::PrefixCacheOptions { folder: folder.clone(), max_bytes: 1 << 30, min_tokens: 4 };
    damaged(Model::open(bundle, &options().prefix_cache(prefixes)).map(drop));
    assert!(!folder.exists());
    xor(&binary, flips[7], 0x40);

    // A zeroed page, its time put back.
    let modified = fs::metadata(&binary).unwrap().modified().unwrap();
    let at = flips[11] & !4095;
    let mut page = [0; 4096];
    let mut file = File::options().read(true).write(true).open(&binary).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut page).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[0; 4096]).unwrap();
    file.set_modified(modified).unwrap();
    damaged(Model::open(bundle, &options()).and_then(|mut model| model.check_weights()));
    // A copy of the damaged file, with the good one's time and its name.
    let copy = binary.with_extension("copy");
    fs::copy(&binary, &copy).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&page).unwrap();
    drop(file);
    let good = binary.with_extension("good");
    fs::rename(&binary, &good).unwrap();
    fs::rename(&copy, &binary).unwrap();
    File::options().append(true).open(&binary).unwrap().set_modified(modified).unwrap();
    damaged(Model::open(bundle, &options()).and_then(|mut model| model.check_weights()));
    // The good file again.
    fs::rename(&good, &binary).unwrap();
    let mut model = Model::open(bundle, &options()).unwrap();
    model.check_weights().unwrap();
    model.check_weights_in_full().unwrap();

    // Without a manifest the binary's own checksums do.
    let (manifest, aside) = (bundle.join("manifest.json"), bundle.join("aside.json"));
    fs::rename(&manifest, &aside).unwrap();
    Model::open(bundle, &nowhere()).unwrap().check_weights().unwrap();
    xor(&binary, flips[3], 2);
    for _ in 0..2 {
        damaged(Model::open(bundle, &nowhere()).unwrap().check_weights());
        damaged(Model::open(bundle, &nowhere()).unwrap().check_weights_in_full());
    }
    xor(&binary, flips[3], 2);
    fs::rename(&aside, &manifest).unwrap();
    // A binary that is whole, but not the manifest's: each run says so, the second one before its first token.
    let text = fs::read(&manifest).unwrap();
    let mut listed: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for file in listed["files"].as_array_mut().unwrap() {
        file["sha256"] = "0".repeat(64).into();
    }
    fs::write(&manifest, listed.to_string()).unwrap();
    let mut session = Session::open(bundle, &nowhere()).unwrap();
    query(&mut session).unwrap();
    let said = other(query(&mut session));
    assert!(said.contains(".bin` is another file than the one that this bundle was made with"), "{said}");
    other(session.save(&folder).map(drop));
    assert!(!folder.exists());
    other(Model::open(bundle, &nowhere()).unwrap().check_weights_in_full());
    other(Model::open(bundle, &nowhere()).unwrap().perplexity(&tokens, Some(8), 1, &mut || ()).map(drop));
    std::thread::sleep(Duration::from_millis(120));
    other(Model::open(bundle, &options()).and_then(|mut model| model.check_weights()));
    other(Model::open(bundle, &options()).map(drop)); // now its stamp knows
    fs::write(&manifest, &text).unwrap();
    Model::open(bundle, &options()).unwrap().verify(3, 2, 0.1, &mut || ()).unwrap();
}

/// Small files are compared before the first token.
#[test]
fn a_small_binary_of_another_model_is_refused_when_it_is_opened() {
    let home = tempfile::tempdir().unwrap();
    let compiled = |name: &str, seed: u64| {
        let (model, bundle) = (home.path().join(format!("{name}-model")), home.path().join(name));
        TestModel { seed, ..TestModel::tiny(Family::Llama) }.write(&model).unwrap();
        let options = CompileOptions { ars: vec![1], cls: vec![32], ..CompileOptions::new(&model, &bundle) };
        compiler::compile(&options, &open_backend(&Options::new()).unwrap(), &mut Silent).unwrap();
        bundle
    };
    let (first, second) = (compiled("first", 1), compiled("second", 2));
    let cache = home.path().join("cache");
    let options = || Options::new().threads(1).cache_folder(&cache);
    let stamps = || fs::read_dir(cache.join("weights-1")).map_or(0, |entries| entries.count());
    std::thread::sleep(Duration::from_millis(120)); // a file that has just changed gets no stamp
    let mut session = Session::open(&first, &options()).unwrap();
    assert_eq!(stamps(), 0, "a stamp is not written before the first token");
    query(&mut session).unwrap();
    session.check_weights().unwrap();
    assert_eq!(stamps(), 1);

    let good = fs::read(first.join("model.bin")).unwrap();
    fs::copy(second.join("model.bin"), first.join("model.bin")).unwrap();
    assert_eq!(fs::metadata(first.join("model.bin")).unwrap().len(), good.len() as u64, "of the same shape");
    for _ in 0..2 {
        let said = other(Model::open(&first, &options()).map(drop));
        assert!(said.contains("first/model.bin` is another file"), "{said}");
    }
    // Without a manifest nothing tells the two apart.
    fs::rename(first.join("manifest.json"), first.join("aside.json")).unwrap();
    query(&mut Session::open(&first, &options()).unwrap()).unwrap();
    fs::rename(first.join("aside.json"), first.join("manifest.json")).unwrap();
    // A manifest that does not list it is none.
    let text = fs::read_to_string(first.join("manifest.json")).unwrap();
    let mut listed: serde_json::Value = serde_json::from_str(&text).unwrap();
    listed["files"] = serde_json::json!([]);
    fs::write(first.join("manifest.json"), listed.to_string()).unwrap();
    Model::open(&first, &options()).unwrap().check_weights().unwrap();
    fs::write(first.join("manifest.json"), text).unwrap();
    fs::write(first.join("model.bin"), &good).unwrap();
    query(&mut Session::open(&first, &options()).unwrap()).unwrap();
}
