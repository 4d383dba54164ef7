//! Row 5 of the reliability list: weights of more than 64 MiB were compared with nothing, and 58 of 60 flipped bits gave other
//! tokens without a word.
//!
//! One test program, one large random model; the cache folder of its stamps is the program's own.

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
        let large = TestModel {
            layers: 2,
            hidden: 512,
            heads: 8,
            kv_heads: 2,
            head_dim: 64,
            ffn: 11_264,
            ..TestModel::tiny(Family::Llama)
        };
        large.write(&model).unwrap();
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

    // Whole: checked once, then known.
    let mut session = Session::open(bundle, &options()).unwrap();
    assert_eq!(stamps(), 0);
    query(&mut session).unwrap();
    query(&mut session).unwrap();
    assert_eq!(stamps(), 1, "the second prompt had to know");

    let flips = places(20);
    for (i, &at) in flips.iter().enumerate() {
        xor(&binary, at, 1 << (i % 8));
        let mut model = Model::open(bundle, &options()).unwrap();
        let said = damaged(model.check_weights());
        assert!(said.contains("large/") && said.contains(".bin` are damaged"), "byte {at}: {said}");
        xor(&binary, at, 1 << (i % 8));
    }

    // A session: the first reply may come, the second prompt and saving are refused, each time.
    xor(&binary, flips[7], 0x40);
    let mut session = Session::open(bundle, &options()).unwrap();
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
    damaged(Model::open(bundle, &options()).unwrap().verify(3, 2, 0.1, &mut || ()).map(drop));
    let text: Vec<TokenId> = (0..20).map(TokenId).collect();
    damaged(Model::open(bundle, &options()).unwrap().perplexity(&text, Some(8), 1, &mut || ()).map(drop));
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
    damaged(Model::open(bundle, &options()).unwrap().check_weights());
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
    damaged(Model::open(bundle, &options()).unwrap().check_weights());
    // The good file again.
    fs::rename(&good, &binary).unwrap();
    let mut model = Model::open(bundle, &options()).unwrap();
    model.check_weights().unwrap();
    model.check_weights_in_full().unwrap();

    // Without a manifest the binary's own checksums do.
    let (manifest, aside) = (bundle.join("manifest.json"), bundle.join("aside.json"));
    fs::rename(&manifest, &aside).unwrap();
    let nowhere = || Options::new().threads(1).cache_folder(aside.join("no folder"));
    Model::open(bundle, &nowhere()).unwrap().check_weights().unwrap();
    xor(&binary, flips[3], 2);
    for _ in 0..2 {
        damaged(Model::open(bundle, &nowhere()).unwrap().check_weights());
        damaged(Model::open(bundle, &nowhere()).unwrap().check_weights_in_full());
    }
    xor(&binary, flips[3], 2);
    fs::rename(&aside, &manifest).unwrap();
    // Another binary's bytes with right checksums: only the manifest knows, and `verify` asks it.
    let mut other: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    let text = fs::read(&manifest).unwrap();
    for file in other["files"].as_array_mut().unwrap() {
        file["sha256"] = "0".repeat(64).into();
    }
    fs::write(&manifest, other.to_string()).unwrap();
    damaged(Model::open(bundle, &options()).unwrap().check_weights_in_full());
    fs::write(&manifest, text).unwrap();
    Model::open(bundle, &options()).unwrap().verify(3, 2, 0.1, &mut || ()).unwrap();
}
