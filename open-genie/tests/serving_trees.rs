//! Trees of drafts as rows of steps that several requests share, on real graphs: replies are those without drafts, in fewer steps.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use compiler::testmodel::{TestEagle, TestModel};
use compiler::{CompileOptions, Family};
use genie_bundle::manifest::Precision;
use open_genie::serving::{Event, Finished, Request, RequestId, ServeOptions, Serving};
use open_genie::{Bundle, Options, TokenId, open_backend};
use serde_json::{Value, json};

/// Tokens of the vocabulary; the model has two more, which are taken for forecast tokens.
const VOCAB: usize = 318;

struct Bundles {
    folder: tempfile::TempDir,
    plain: PathBuf,
    /// A draft model for it, whose logits are the model's own of the token before.
    head: PathBuf,
}

fn bundles() -> &'static Bundles {
    static BUNDLES: OnceLock<Bundles> = OnceLock::new();
    BUNDLES.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let backend = open_backend(&Options::new()).unwrap();
        let (source, plain) = (folder.path().join("model"), folder.path().join("plain"));
        let model = TestModel { seed: 11, vocab: VOCAB + 2, ..TestModel::tiny(Family::Llama) };
        model.write(&source).unwrap();
        let (trained, head) = (folder.path().join("trained"), folder.path().join("head"));
        TestEagle { passes_through: true, ..TestEagle::default() }.write(&model, &trained).unwrap();
        for (from, to) in [(&source, &plain), (&trained, &head)] {
            let mut options = CompileOptions::new(from, to);
            (options.ars, options.cls, options.precision) = (vec![1, 8, 64], vec![256], Precision::F32);
            options.kinds.hidden_states = from == &source;
            options.eagle_of = (from == &trained).then(|| source.clone());
            compiler::compile(&options, &backend, &mut compiler::Silent).unwrap();
        }
        let config = config_with(&plain, "basic.json", |dialog| dialog["context"]["n-vocab"] = VOCAB.into());
        let tokens: Vec<TokenId> = (1..5).map(TokenId).collect();
        let mut model = Bundle::read(&config).unwrap().open(&options_of_one()).unwrap();
        model.make_forecast_prefix(&tokens, &plain.join("forecast-prefix")).unwrap();
        Bundles { folder, plain, head }
    })
}

fn options_of_one() -> Options {
    Options::new().threads(1)
}

/// The bundle's config, changed, beside it.
fn config_with(bundle: &Path, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut config: Value = serde_json::from_slice(&std::fs::read(bundle.join("genie_config.json")).unwrap()).unwrap();
    change(&mut config["dialog"]);
    let path = bundle.join(name);
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

fn of_kind(kind: &str, block: Value) -> PathBuf {
    config_with(&bundles().plain, &format!("{kind}.json"), |dialog| {
        dialog["context"]["n-vocab"] = VOCAB.into();
        dialog["type"] = kind.into();
        dialog[kind] = block;
    })
}

fn basic() -> PathBuf {
    bundles().plain.join("basic.json")
}

fn lade() -> PathBuf {
    of_kind("lade", json!({"version": 1, "window": 3, "ngram": 3, "gcap": 3}))
}

fn ssd() -> PathBuf {
    let block = json!({"version": 1, "ssd-version": 1, "forecast-token-count": 2, "branches": [2, 1], "forecast-prefix": 4,
                       "forecast-prefix-name": "forecast-prefix"});
    of_kind("ssd-q1", block)
}

/// Both models by one config, as Genie has it.
fn eaglet() -> PathBuf {
    let of_head: Value =
        serde_json::from_slice(&std::fs::read(bundles().head.join("genie_config.json")).unwrap()).unwrap();
    config_with(&bundles().plain, "eaglet.json", |dialog| {
        dialog["context"]["n-vocab"] = VOCAB.into();
        dialog["type"] = "eaglet".into();
        dialog["eaglet"] = json!({"version": 1, "eaglet-version": 1, "draft-len": 3, "n-branches": 2,
                                  "max-tokens-target-can-evaluate": 7, "draft-kv-cache": true});
        let (mut target, mut draft) = (dialog["engine"].clone(), of_head["dialog"]["engine"].clone());
        (target["role"], draft["role"]) = ("target".into(), "draft".into());
        for path in draft["model"]["binary"]["ctx-bins"].as_array_mut().unwrap() {
            *path = bundles().head.join(path.as_str().unwrap()).display().to_string().into();
        }
        dialog["engine"] = json!([target, draft]);
    })
}

fn open(config: &Path, options: &Options) -> Serving {
    open_with(config, options, ServeOptions::default())
}

fn open_with(config: &Path, options: &Options, serve: ServeOptions) -> Serving {
    Bundle::read(config).unwrap().open_serving(options, serve).unwrap()
}

/// Long replies, every other one sampled with a seed of its own.
fn requests(serving: &mut Serving, n: u32) -> Vec<Request> {
    let defaults = serving.scheduler().base().defaults().clone();
    let request = |seed: u32| {
        let mut settings = defaults.clone();
        let sampler = settings.sampler.with_greedy(seed.is_multiple_of(2)).with_seed(Some(seed));
        settings.sampler = sampler.with_temp(0.7).unwrap();
        (settings.max_tokens, settings.ignore_end_tokens) = (Some(70), true);
        // The later ones begin alike.
        let (same, n) = if seed < 4 { (0, 3 + seed * 5) } else { (12, 16 + seed) };
        let prompt = (0..n).map(|i| TokenId(20 + (i * 7 + if i < same { 0 } else { seed * 13 }) % 200)).collect();
        Request { prompt, settings, priority: 0 }
    };
    (0..n).map(request).collect()
}

/// All at once; returns what became of them, and how many steps it took.
fn serve(serving: &mut Serving) -> (Vec<Finished>, usize) {
    serve_n(serving, 4)
}

fn serve_n(serving: &mut Serving, n: u32) -> (Vec<Finished>, usize) {
    let requests = requests(serving, n);
    let scheduler = serving.scheduler();
    let ids: Vec<RequestId> = requests.into_iter().map(|request| scheduler.submit(request, 0).unwrap()).collect();
    let mut done: Vec<Option<Finished>> = ids.iter().map(|_| None).collect();
    for now in 0_u64.. {
        scheduler.tick(now).unwrap();
        for event in scheduler.take_events() {
            match event {
                Event::Done(finished) => {
                    let place = ids.iter().position(|id| *id == finished.id).unwrap();
                    done[place] = Some(*finished);
                }
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
        if scheduler.is_idle() {
            break;
        }
        assert!(now < 5_000, "it does not end");
    }
    (done.into_iter().flatten().collect(), scheduler.counts().n_steps)
}

fn tokens(found: &[Finished]) -> Vec<Vec<TokenId>> {
    found.iter().map(|finished| finished.reply.tokens.clone()).collect()
}

#[test]
fn replies_of_trees_are_those_of_basic_in_fewer_steps() {
    let (plain, n_steps) = serve(&mut open(&basic(), &options_of_one()));
    let spec = |spec: &str| options_of_one().speculation(spec.parse().unwrap());
    let of_head = format!("eaglet:{}", bundles().head.display());
    // What forecast tokens say means nothing here: they were not trained.
    for (config, options, holds) in [
        (lade(), options_of_one(), true),
        (ssd(), options_of_one(), false),
        (eaglet(), options_of_one(), true),
        (basic(), spec("lade:2,3,4"), true),
        (basic(), spec("ssd"), false),
        (basic(), spec(&of_head), true),
    ] {
        let mut serving = open(&config, &options);
        assert_eq!(serving.note(), None);
        let (found, n) = serve(&mut serving);
        assert_eq!(tokens(&found), tokens(&plain), "{config:?} {options:?}");
        let counts = found.iter().map(|done| done.reply.kpis.speculation.unwrap());
        let (drafted, accepted) = counts.fold((0, 0), |(d, a), of| (d + of.n_drafted, a + of.n_accepted));
        println!("{}: {accepted} of {drafted} drafted tokens held, {n} steps, {n_steps} without", config.display());
        assert!(drafted > 0, "{config:?}");
        assert!(!holds || 3 * n < 2 * n_steps, "{config:?}: {accepted} of {drafted}, {n} of {n_steps} steps");
    }
}

/// More requests than rows, prompts that begin alike: some are parked, some begin with rows whose hidden states no one kept.
#[test]
fn nothing_is_lost_where_rows_are_few() {
    let serve_options = || ServeOptions { max_slots: 6, reserve: 4, ..ServeOptions::default() };
    let run = |config: &Path| {
        let mut serving = open_with(config, &options_of_one(), serve_options());
        let found = serve_n(&mut serving, 10).0;
        let n_shared: usize = found.iter().map(|done| done.n_shared).sum();
        let n_drafted: usize =
            found.iter().filter_map(|done| done.reply.kpis.speculation.as_ref()).map(|of| of.n_drafted).sum();
        (tokens(&found), serving.scheduler().counts().n_parked, n_shared, n_drafted)
    };
    let (plain, _, _, none) = run(&basic());
    assert_eq!((plain.len(), none), (10, 0));
    for config in [lade(), ssd(), eaglet()] {
        let (found, n_parked, n_shared, n_drafted) = run(&config);
        assert_eq!(found, plain, "{config:?}");
        assert!(n_parked > 0 && n_shared > 0 && n_drafted > 0, "{config:?}: {n_parked} {n_shared} {n_drafted}");
    }
}

/// A reply in a sequence that another had, whose beginning the draft model did not know, has drafts of its own.
#[test]
fn a_sequence_that_is_used_again_has_drafts_from_its_beginning() {
    let mut serving = open(&eaglet(), &options_of_one());
    let ask = |serving: &mut Serving, prompt: &[u32]| {
        let scheduler = serving.scheduler();
        let mut settings = scheduler.base().defaults().clone();
        settings.sampler = settings.sampler.with_greedy(true);
        (settings.max_tokens, settings.ignore_end_tokens) = (Some(30), true);
        let prompt = prompt.iter().copied().map(TokenId).collect();
        scheduler.submit(Request { prompt, settings, priority: 0 }, 0).unwrap();
        for now in 1..500 {
            scheduler.tick(now).unwrap();
        }
        let done = scheduler.take_events().into_iter().find_map(|event| match event {
            Event::Done(done) => Some(*done),
            _ => None,
        });
        done.unwrap()
    };
    let same: Vec<u32> = (0..60).map(|i| 20 + i * 7 % 200).collect();
    assert_eq!(ask(&mut serving, &[&same[..], &[5]].concat()).n_shared, 0);
    assert_eq!(ask(&mut serving, &[&same[..], &[6]].concat()).n_shared, 60);
    let second = serving.scheduler().slots().iter().map(|slot| slot.seq).max_by_key(|seq| seq.0).unwrap();
    assert!(second.0 > 0 && serving.scheduler().erase_slot(second).unwrap() > 60);
    let done = ask(&mut serving, &[9, 3, 4]);
    let counts = done.reply.kpis.speculation.unwrap();
    assert!(done.n_shared == 0 && counts.n_accepted > 5, "{counts:?}");
}

/// The rows that forecasts see belong to no request: they are not counted, not given out, and there again after other options.
#[test]
fn a_forecast_prefix_stays_beside_the_requests() {
    let mut serving = open(&ssd(), &options_of_one());
    let mut plain = open(&basic(), &options_of_one());
    let (of_ssd, of_plain) = (serving.scheduler().counts().rows, plain.scheduler().counts().rows);
    assert_eq!((of_ssd.used, of_ssd.total + 4), (0, of_plain.total));
    assert_eq!(serving.scheduler().limit() + 4, plain.scheduler().limit());
    let first = serve(&mut serving).0;
    assert!(serving.scheduler().slots().iter().all(|slot| slot.seq.0 < 63));
    let options = serving.scheduler().options().clone();
    serving.scheduler().set_options(options).unwrap();
    assert_eq!(serving.scheduler().counts().rows.used, 0);
    let again = serve(&mut serving).0;
    assert_eq!(tokens(&first), tokens(&again));
    let held = |found: &[Finished]| found.iter().map(|f| f.reply.kpis.speculation.unwrap()).collect::<Vec<_>>();
    assert_eq!(held(&first), held(&again), "forecasts see the same prefix");
}

#[test]
fn what_trees_lack_is_said() {
    let refused = |config: PathBuf, options: &Options| {
        Bundle::read(&config).unwrap().open_serving(options, None).unwrap_err().to_string()
    };
    let wide = of_kind("lade", json!({"version": 1, "window": 40, "ngram": 3, "gcap": 3}));
    let said = refused(wide, &options_of_one());
    assert!(said.contains("the 86 rows of a tree") && said.contains("at most 64"), "{said}");
    let folder = bundles().folder.path().join("no-prefix");
    let said = refused(basic(), &options_of_one().speculation(format!("ssd:{}", folder.display()).parse().unwrap()));
    assert!(said.contains("no-prefix"), "{said}");
    let itself = format!("eaglet:{}", bundles().plain.display());
    let said = refused(basic(), &options_of_one().speculation(itself.parse().unwrap()));
    assert!(said.contains("a draft model with an input `target_hidden_states`"), "{said}");
}
