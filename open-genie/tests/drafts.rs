//! Speculation on real graphs: prompt lookup and a draft model reply as `basic` does, on random models and on the demo, across
//! context edges, rewinds, resets and saved dialogs.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family};
use open_genie::{LookupSettings, Options, Prompt, Session, Speculation, StopReason, TokenId, demo, open_backend};
use serde_json::{Value, json};

struct Bundles {
    _folder: tempfile::TempDir,
    /// Trained.
    demo: PathBuf,
    /// Random, two variants of context.
    random: PathBuf,
    /// The same architecture with other weights.
    other: PathBuf,
    /// A smaller vocabulary.
    small: PathBuf,
}

fn bundles() -> &'static Bundles {
    static BUNDLES: OnceLock<Bundles> = OnceLock::new();
    BUNDLES.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let backend = open_backend(&Options::new()).unwrap();
        let compiled = |name: &str, seed: u64, vocab: usize| {
            let (model, bundle) = (folder.path().join(format!("{name}-model")), folder.path().join(name));
            TestModel { seed, vocab, ..TestModel::tiny(Family::Llama) }.write(&model).unwrap();
            let options =
                CompileOptions { ars: vec![1, 8], cls: vec![64, 1_280], ..CompileOptions::new(&model, &bundle) };
            compiler::compile(&options, &backend, &mut compiler::Silent).unwrap();
            bundle
        };
        let demo = folder.path().join("demo");
        demo::compile(&demo, &Options::new(), &mut compiler::Silent).unwrap();
        let (random, other, small) = (compiled("random", 1, 320), compiled("other", 2, 320), compiled("small", 3, 300));
        Bundles { _folder: folder, demo, random, other, small }
    })
}

fn open(bundle: &Path, speculation: Speculation) -> Session {
    let options = Options::new().threads(1).speculation(speculation);
    let mut session = Session::open(bundle, &options).unwrap();
    session.set_sampler(session.sampler().clone().with_greedy(true));
    session
}

fn lookup() -> Speculation {
    Speculation::Lookup(LookupSettings { shortest: 1, ..LookupSettings::default() })
}

fn draft(bundle: &Path) -> Speculation {
    Speculation::Draft { bundle: bundle.to_owned(), len: 4 }
}

fn ask(session: &mut Session, tokens: &[u32], n: usize) -> (Vec<TokenId>, StopReason) {
    session.set_max_tokens(Some(n));
    let tokens: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
    let reply = session.generate(Prompt::Tokens(&tokens)).into_reply().unwrap();
    (reply.tokens, reply.stop)
}

#[test]
fn a_thousand_greedy_tokens_are_those_of_basic() {
    let b = bundles();
    for (bundle, drafts) in [(&b.random, [&b.random, &b.other]), (&b.demo, [&b.demo, &b.demo])] {
        let run = |speculation: Speculation| {
            let mut session = open(bundle, speculation);
            let (mut tokens, mut accepted) = (Vec::new(), 0);
            // A reply fills the context, and the next dialog begins.
            for turn in 0.. {
                session.set_max_tokens(None);
                let prompt = [TokenId(40 + turn), TokenId(77), TokenId(100)];
                let reply = session.generate(Prompt::Tokens(&prompt)).into_reply().unwrap();
                accepted += reply.kpis.speculation.map_or(0, |counts| counts.n_accepted);
                tokens.push((reply.tokens, reply.stop.name(), session.n_past()));
                session.reset().unwrap();
                if tokens.iter().map(|turn| turn.0.len()).sum::<usize>() >= 1_000 {
                    break;
                }
            }
            (tokens, accepted)
        };
        let (plain, _) = run(Speculation::OfConfig);
        for speculation in [lookup(), draft(drafts[0]), draft(drafts[1])] {
            let (tokens, accepted) = run(speculation.clone());
            assert!(tokens == plain, "{speculation:?} on {}", bundle.display());
            let other = matches!(&speculation, Speculation::Draft { bundle, .. } if *bundle == b.other);
            // How often they draft depends on what a step takes on this machine.
            assert!(accepted > 0 || other, "{speculation:?} on {}: {accepted} accepted", bundle.display());
        }
    }
}

#[test]
fn dialogs_with_turns_rewinds_and_resets_are_those_of_basic() {
    let b = bundles();
    let live = |speculation: Speculation| {
        let (mut session, saved) = (open(&b.random, speculation.clone()), tempfile::tempdir().unwrap());
        let mut log = vec![ask(&mut session, &[40, 41, 42], 21), ask(&mut session, &[50, 51], 34)];
        session.save(saved.path()).unwrap();
        log.push(ask(&mut session, &[60], 12));
        // Back to a part of the second turn, across the smaller context.
        let mut whole = session.history();
        whole.truncate(40);
        whole.push(TokenId(99));
        session.set_max_tokens(Some(30));
        let reply = session.regenerate(Prompt::Tokens(&whole)).into_reply().unwrap();
        log.push((reply.tokens, reply.stop));
        session.reset().unwrap();
        log.push(ask(&mut session, &[40, 41, 42], 21));
        session.restore(saved.path()).unwrap();
        log.push(ask(&mut session, &[60], 12));
        // In another program.
        let mut later = open(&b.random, speculation);
        later.restore(saved.path()).unwrap();
        log.push(ask(&mut later, &[60], 12));
        assert_eq!(log[2], log[5]);
        assert_eq!(log[2], log[6]);
        log
    };
    let plain = live(Speculation::OfConfig);
    for speculation in [lookup(), draft(&b.random), draft(&b.other)] {
        assert_eq!(live(speculation.clone()), plain, "{speculation:?}");
    }
}

#[test]
fn the_drafts_cache_is_saved_and_restored_with_the_dialog() {
    let b = bundles();
    let saved = tempfile::tempdir().unwrap();
    let mut session = open(&b.random, draft(&b.random));
    let prompt: Vec<u32> = (0..100).map(|i| 30 + i * 7 % 90).collect();
    ask(&mut session, &prompt, 20);
    session.save(saved.path()).unwrap();
    let wanted = ask(&mut session, &[60], 9);
    let n_steps = |with_file: bool| {
        if !with_file {
            std::fs::remove_file(saved.path().join("open-genie.second.kvs")).unwrap();
        }
        let mut later = open(&b.random, draft(&b.random));
        later.restore(saved.path()).unwrap();
        assert_eq!(ask(&mut later, &[60], 9), wanted);
        let names: Vec<String> = later.second_steps().unwrap().names().map(str::to_owned).collect();
        names.iter().filter(|name| name.starts_with("ar8")).count()
    };
    let (restored, processed_again) = (n_steps(true), n_steps(false));
    assert!(restored + 12 < processed_again, "{restored} wide steps of the draft, {processed_again} without its file");
    // A dialog of one model that is saved over it takes the file away.
    let mut alone = open(&b.random, Speculation::OfConfig);
    ask(&mut session, &[61], 3);
    session.save(saved.path()).unwrap();
    assert!(saved.path().join("open-genie.second.kvs").is_file());
    ask(&mut alone, &[61], 3);
    alone.save(saved.path()).unwrap();
    assert!(!saved.path().join("open-genie.second.kvs").exists());
}

#[test]
fn a_damaged_cache_of_the_draft_costs_time_and_nothing_else() {
    let b = bundles();
    let saved = tempfile::tempdir().unwrap();
    let mut session = open(&b.random, draft(&b.random));
    ask(&mut session, &[40, 41, 42, 43], 20);
    session.save(saved.path()).unwrap();
    let wanted = ask(&mut session, &[60], 9);
    std::fs::write(saved.path().join("open-genie.second.kvs"), b"no snapshot").unwrap();
    let mut later = open(&b.random, draft(&b.random));
    later.restore(saved.path()).unwrap();
    assert_eq!(ask(&mut later, &[60], 9), wanted);
}

/// A config of type `spd` over two bundles.
fn spd(target: &Path, draft: &Path, len: usize) -> tempfile::TempDir {
    let read = |bundle: &Path| -> Value {
        serde_json::from_str(&std::fs::read_to_string(bundle.join("genie_config.json")).unwrap()).unwrap()
    };
    let mut config = read(target);
    let engine = |bundle: &Path, role: &str| {
        let mut engine = read(bundle)["dialog"]["engine"].clone();
        engine["role"] = json!(role);
        for bin in engine["model"]["binary"]["ctx-bins"].as_array_mut().unwrap() {
            *bin = json!(bundle.join(bin.as_str().unwrap()));
        }
        engine
    };
    let dialog = &mut config["dialog"];
    dialog["engine"] = json!([engine(draft, "draft"), engine(target, "target")]);
    dialog["type"] = json!("spd");
    dialog["spd"] = json!({"version": 1, "draft-len": len});
    dialog["tokenizer"]["path"] = json!(target.join(dialog["tokenizer"]["path"].as_str().unwrap()));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("genie_config.json"), config.to_string()).unwrap();
    folder
}

#[test]
fn a_config_of_two_engines_is_opened_by_its_roles() {
    let b = bundles();
    let plain = ask(&mut open(&b.random, Speculation::OfConfig), &[40, 41, 42], 30);
    for (draft, all) in [(&b.random, true), (&b.other, false)] {
        let mut session = open(spd(&b.random, draft, 5).path(), Speculation::OfConfig);
        session.set_max_tokens(Some(30));
        let prompt = [40, 41, 42].map(TokenId);
        let reply = session.generate(Prompt::Tokens(&prompt)).into_reply().unwrap();
        assert_eq!((reply.tokens, reply.stop), plain);
        let counts = reply.kpis.speculation.unwrap();
        assert_eq!(counts.acceptance() == Some(1.0), all, "{counts:?}");
        let events = session.profile().to_json()["components"][0]["events"].clone();
        let query = events.as_array().unwrap().last().unwrap();
        assert_eq!(query["num-generated-tokens"]["value"], 29, "the first token is no round's");
        assert!(query["token-acceptance-rate"]["value"].as_f64().unwrap() >= 1.0, "{query}");
    }
    // With no tokens to draft the target answers alone.
    let mut session = open(spd(&b.random, &b.other, 0).path(), Speculation::OfConfig);
    assert_eq!(ask(&mut session, &[40, 41, 42], 30), plain);
}

#[test]
fn models_that_do_not_go_together_are_refused_with_numbers() {
    let b = bundles();
    let refused = |folder: &Path, speculation: Speculation| {
        let error = Session::open(folder, &Options::new().threads(1).speculation(speculation)).unwrap_err();
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(source) = cause {
            text = format!("{text}: {source}");
            cause = source.source();
        }
        text
    };
    let small = refused(spd(&b.random, &b.small, 3).path(), Speculation::OfConfig);
    assert!(small.contains("all 320 tokens") && small.contains("vocabulary of 300"), "{small}");
    let long = refused(spd(&b.random, &b.other, 8).path(), Speculation::OfConfig);
    assert!(long.contains("logits for 9 tokens") && long.contains("up to 7"), "{long}");
    let none = refused(&b.random, draft(Path::new("/nowhere/at/all")));
    assert!(none.contains("cannot open the `draft` model") && none.contains("/nowhere/at/all"), "{none}");
}
