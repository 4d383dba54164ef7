//! `kv-share` on real graphs: one bundle takes the prompts, another one generates from its cache, as `basic` does on the first alone.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family};
use dialog::SentenceCode;
use dialog::kinds::{CacheRoute, KvShare};
use genie_bundle::manifest::{CacheUpdate, GraphKinds, Precision};
use open_genie::{Options, Prompt, Session, StopReason, TokenId, open_backend};
use serde_json::{Value, json};

struct Bundles {
    _folder: tempfile::TempDir,
    /// float32, concat, AR 1 and 8, CL 64 and 128.
    plain: PathBuf,
    /// The same weights in float32: scatter form, AR 1 and 4, CL 256.
    other: PathBuf,
    /// The same weights in float16, CL 128.
    half: PathBuf,
    /// More heads of keys.
    heads: PathBuf,
    /// One layer more.
    deep: PathBuf,
    /// A smaller vocabulary.
    small: PathBuf,
}

fn bundles() -> &'static Bundles {
    static BUNDLES: OnceLock<Bundles> = OnceLock::new();
    BUNDLES.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let backend = open_backend(&Options::new()).unwrap();
        let base = TestModel { seed: 7, vocab: 320, ..TestModel::tiny(Family::Llama) };
        let compiled = |name: &str, model: TestModel, ars: &[u32], cls: &[u32], precision, cache| {
            let (source, bundle) = (folder.path().join(format!("{name}-model")), folder.path().join(name));
            model.write(&source).unwrap();
            let kinds = GraphKinds { cache, ..GraphKinds::default() };
            let options = CompileOptions {
                ars: ars.to_vec(),
                cls: cls.to_vec(),
                precision,
                kinds,
                ..CompileOptions::new(&source, &bundle)
            };
            compiler::compile(&options, &backend, &mut compiler::Silent).unwrap();
            bundle
        };
        let (concat, scatter) = (CacheUpdate::Concat, CacheUpdate::ScatterFrom);
        let (f32s, f16s) = (Precision::F32, Precision::F16);
        let plain = compiled("plain", base.clone(), &[1, 8], &[64, 128], f32s, concat);
        let other = compiled("other", base.clone(), &[1, 4], &[256], f32s, scatter);
        let half = compiled("half", base.clone(), &[1, 8], &[128], f16s, concat);
        let more = TestModel { kv_heads: base.kv_heads * 2, heads: base.heads.max(base.kv_heads * 2), ..base.clone() };
        let heads = compiled("heads", more, &[1], &[128], f32s, concat);
        let deeper = TestModel { layers: base.layers + 1, ..base.clone() };
        let deep = compiled("deep", deeper, &[1], &[128], f32s, concat);
        let small = compiled("small", TestModel { vocab: 300, ..base }, &[1], &[128], f32s, concat);
        Bundles { _folder: folder, plain, other, half, heads, deep, small }
    })
}

/// A config over two bundles.
fn shared(primary: &Path, secondary: &Path) -> tempfile::TempDir {
    let read = |bundle: &Path| -> Value {
        serde_json::from_str(&std::fs::read_to_string(bundle.join("genie_config.json")).unwrap()).unwrap()
    };
    let mut config = read(primary);
    let engine = |bundle: &Path, role: &str| {
        let mut engine = read(bundle)["dialog"]["engine"].clone();
        engine["role"] = json!(role);
        for bin in engine["model"]["binary"]["ctx-bins"].as_array_mut().unwrap() {
            *bin = json!(bundle.join(bin.as_str().unwrap()));
        }
        engine
    };
    let dialog = &mut config["dialog"];
    dialog["engine"] = json!([engine(secondary, "secondary"), engine(primary, "primary")]);
    dialog["type"] = json!("kv-share");
    // No engine may have less.
    dialog["context"]["size"] = json!(128);
    dialog["kv-share"] = json!({"enable-in-memory-kv-share": true});
    dialog["tokenizer"]["path"] = json!(primary.join(dialog["tokenizer"]["path"].as_str().unwrap()));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("genie_config.json"), config.to_string()).unwrap();
    folder
}

fn open(bundle: &Path) -> Session {
    let mut session = Session::open(bundle, &Options::new().threads(1)).unwrap();
    session.set_sampler(session.sampler().clone().with_greedy(true));
    session
}

fn ids(raw: &[u32]) -> Vec<TokenId> {
    raw.iter().copied().map(TokenId).collect()
}

fn ask(session: &mut Session, tokens: &[u32], n: usize) -> (Vec<TokenId>, String) {
    session.set_max_tokens(Some(n));
    let reply = session.generate(Prompt::Tokens(&ids(tokens))).into_reply().unwrap();
    (reply.tokens, reply.stop.name().to_owned())
}

/// Turns, parts of a turn, stop sequences, a rewind, an abort, a reset, saving and restoring: all that was said.
fn live(open: &dyn Fn() -> Session) -> Vec<(Vec<TokenId>, String)> {
    let (mut session, saved) = (open(), tempfile::tempdir().unwrap());
    let mut log = vec![ask(&mut session, &[40, 41, 42], 12), ask(&mut session, &[50, 51], 9)];
    session.save(saved.path()).unwrap();
    log.push(ask(&mut session, &[60], 7));
    let mut whole = session.history();
    whole.truncate(18);
    whole.push(TokenId(99));
    session.set_max_tokens(Some(10));
    let reply = session.regenerate(Prompt::Tokens(&whole)).into_reply().unwrap();
    log.push((reply.tokens, reply.stop.name().to_owned()));
    // In parts, one token at most, none at all.
    let dialog = session.dialog_mut();
    dialog.token_query(&ids(&[70, 71]), SentenceCode::Begin, |_| ()).unwrap();
    dialog.token_query(&ids(&[72]), SentenceCode::Continue, |_| ()).unwrap();
    let reply = dialog.token_query(&ids(&[73]), SentenceCode::End, |_| ()).unwrap();
    log.push((reply.tokens, reply.stop.name().to_owned()));
    log.push(ask(&mut session, &[74], 1));
    log.push(ask(&mut session, &[75], 0));
    // Broken off after three tokens.
    session.set_max_tokens(Some(20));
    let prompt = ids(&[76]);
    let mut n = 0;
    let reply = session.generate_with(Prompt::Tokens(&prompt), |_| {
        n += 1;
        if n == 3 { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    });
    log.push((reply.unwrap().tokens, "broken".to_owned()));
    log.push(ask(&mut session, &[77, 78], 5));
    session.reset().unwrap();
    log.push(ask(&mut session, &[40, 41, 42], 12));
    session.restore(saved.path()).unwrap();
    log.push(ask(&mut session, &[60], 7));
    assert_eq!(log.last(), Some(&log[2]));
    let mut later = open();
    later.restore(saved.path()).unwrap();
    log.push(ask(&mut later, &[60], 7));
    assert_eq!(log.last(), Some(&log[2]));
    log
}

#[test]
fn dialogs_are_those_of_the_primary_alone() {
    let b = bundles();
    let plain = live(&|| open(&b.plain));
    for secondary in [&b.plain, &b.other] {
        let config = shared(&b.plain, secondary);
        assert_eq!(live(&|| open(config.path())), plain, "{}", secondary.display());
        // By files.
        let left = tempfile::tempdir().unwrap();
        let by_file = || {
            let mut session = open(config.path());
            let route = CacheRoute::Folder(left.path().join("handed"));
            session.dialog_mut().set_kind(Box::new(KvShare::new(route))).unwrap();
            session
        };
        assert_eq!(live(&by_file), plain, "by files, {}", secondary.display());
        let mut names: Vec<_> = std::fs::read_dir(left.path().join("handed"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["kv-cache.primary.qnn-htp", "token-history"]);
    }
}

#[test]
fn each_engine_does_its_part() {
    let b = bundles();
    let config = shared(&b.plain, &b.other);
    let mut session = open(config.path());
    ask(&mut session, &[40, 41, 42], 6);
    let names = |log: &engine::StepLog| log.names().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names(session.steps()).len(), 1, "the prompt");
    assert_eq!(names(session.second_steps().unwrap()), vec!["ar1_cl256_1_of_1"; 5], "one token each");
    // The primary gets the reply's rows back: it does not compute them again.
    ask(&mut session, &[50, 51], 2);
    assert_eq!(names(session.steps()).len(), 2);
}

#[test]
fn a_reply_ends_where_the_primary_is_full() {
    let b = bundles();
    for (primary, secondary) in [(&b.plain, &b.other), (&b.plain, &b.plain)] {
        let whole = |bundle: &Path| {
            let mut session = open(bundle);
            session.set_max_tokens(None);
            let prompt = ids(&[40, 41, 42]);
            let reply = session.generate(Prompt::Tokens(&prompt)).into_reply().unwrap();
            assert_eq!(reply.stop, StopReason::ContextLimit);
            (reply.tokens, session.history().len())
        };
        let config = shared(primary, secondary);
        assert_eq!(whole(config.path()), whole(primary), "{} and {}", primary.display(), secondary.display());
    }
    // And where the config says.
    let config = shared(&b.other, &b.plain);
    let mut session = open(config.path());
    session.set_max_tokens(None);
    let prompt = ids(&[40, 41, 42]);
    let reply = session.generate(Prompt::Tokens(&prompt)).into_reply().unwrap();
    assert_eq!(reply.stop, StopReason::ContextLimit);
    assert_eq!(session.history().len(), 128 + 1, "the last token is not processed");
}

#[test]
fn a_cache_in_float16_goes_to_float32_and_back() {
    let b = bundles();
    // The secondary computes in float32: what it says is what a float32 model says of a prompt rounded to float16.
    let config = shared(&b.half, &b.plain);
    let (mut ours, mut plain) = (open(config.path()), open(&b.plain));
    let mut same = 0;
    for turn in 0..4 {
        let prompt = [40 + turn, 77, 100];
        let (said, wanted) = (ask(&mut ours, &prompt, 8), ask(&mut plain, &prompt, 8));
        same += said.0.iter().zip(&wanted.0).take_while(|(a, b)| a == b).count();
        ours.reset().unwrap();
        plain.reset().unwrap();
    }
    assert!(same >= 24, "{same} of 32 tokens");
}

#[test]
fn models_that_do_not_go_together_are_named() {
    let b = bundles();
    let refused = |secondary: &Path| {
        let config = shared(&b.plain, secondary);
        let error = Session::open(config.path(), &Options::new().threads(1)).unwrap_err();
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(source) = cause {
            text = format!("{text}: {source}");
            cause = source.source();
        }
        text
    };
    let heads = refused(&b.heads);
    assert!(heads.contains("caches differ: rows: expected 4 heads of") && heads.contains("in layer 0"), "{heads}");
    let deep = refused(&b.deep);
    assert!(deep.contains("caches differ: layers with a cache: expected 3, found 2"), "{deep}");
    let small = refused(&b.small);
    assert!(small.contains("the vocabulary of the primary, 320 tokens") && small.contains("one of 300"), "{small}");
}
