//! Many requests on real graphs, plain and fused: the config's `batching` block, the prefix cache across runs, slots in files, and the
//! replies that each request has alone.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, KvCacheType, PdGraphs, PdUpdate};
use genie_bundle::manifest::Precision;
use open_genie::serving::{Request, ServeOptions, Serving};
use open_genie::{Bundle, LongContext, Options, PrefixCacheOptions, Speculation, TokenId, open_backend};
use serde_json::{Value, json};

use crate::ticks::{serve, tokens};

struct Bundles {
    folder: tempfile::TempDir,
    plain: PathBuf,
    /// Fused graphs only.
    fused: PathBuf,
    /// Heads of 32, and the cache in blocks.
    blocks: PathBuf,
    /// Every step processes all tokens.
    no_cache: PathBuf,
    /// No graph for a single token.
    wide: PathBuf,
}

fn bundles() -> &'static Bundles {
    static BUNDLES: OnceLock<Bundles> = OnceLock::new();
    BUNDLES.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let backend = open_backend(&Options::new()).unwrap();
        let source = folder.path().join("model");
        TestModel { seed: 7, vocab: 320, ..TestModel::tiny(Family::Llama) }.write(&source).unwrap();
        let compiled = |name: &str, ars: &[u32], pd: Option<PdGraphs>| {
            let bundle = folder.path().join(name);
            let mut options = CompileOptions::new(&source, &bundle);
            (options.ars, options.cls, options.precision) = (ars.to_vec(), vec![128], Precision::F32);
            options.kinds.pd = pd;
            compiler::compile(&options, &backend, &mut compiler::Silent).unwrap();
            bundle
        };
        let blocks = {
            let (source, bundle) = (folder.path().join("wide"), folder.path().join("blocks"));
            let model = TestModel { seed: 7, vocab: 320, head_dim: 32, ..TestModel::tiny(Family::Llama) };
            model.write(&source).unwrap();
            let mut options = CompileOptions::new(&source, &bundle);
            (options.ars, options.cls) = (vec![1, 4, 8], vec![128]);
            options.kinds.kv_cache = KvCacheType::Q8_0;
            compiler::compile(&options, &backend, &mut compiler::Silent).unwrap();
            bundle
        };
        let plain = compiled("plain", &[1, 4, 8], None);
        let (no_cache, wide) = (compiled("no-cache", &[128], None), compiled("only-wide", &[8], None));
        let pd = PdGraphs { total_lens: vec![4, 8], update: PdUpdate::Host, only: true };
        let fused = compiled("fused", &[1, 4, 8], Some(pd));
        Bundles { folder, plain, fused, blocks, no_cache, wide }
    })
}

fn options() -> Options {
    Options::new().threads(1)
}

/// Prompts of several lengths; some begin alike.
fn requests(serving: &mut Serving) -> Vec<Request> {
    let defaults = serving.scheduler().base().defaults().clone();
    let request = |(seed, n): (u32, u32)| {
        let mut settings = defaults.clone();
        settings.sampler = settings.sampler.with_greedy(true);
        (settings.max_tokens, settings.ignore_end_tokens) = (Some(10 + seed as usize), true);
        let prompt = (0..n).map(|i| TokenId(if i < 6 { 40 + i } else { 50 + (i * 7 + seed * 13) % 200 })).collect();
        Request { prompt, settings, priority: 0 }
    };
    [(1, 21), (2, 5), (3, 33), (4, 9), (5, 17)].into_iter().map(request).collect()
}

/// What each request has when it is alone, with plain graphs.
fn alone() -> Vec<Vec<TokenId>> {
    alone_in(&bundles().plain)
}

fn alone_in(bundle: &PathBuf) -> Vec<Vec<TokenId>> {
    let mut serving = Bundle::read(bundle).unwrap().open_serving(&options(), None).unwrap();
    let requests = requests(&mut serving);
    let tokens = |request| serve(&mut serving, vec![request], |_, _| ()).remove(0).reply.tokens;
    requests.into_iter().map(tokens).collect()
}

#[test]
fn the_configs_batching_block_is_read() {
    let path = bundles().plain.join("genie_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["dialog"]["engine"]["batching"] =
        json!({"max-slots": 2, "prefill-chunk-size": 4, "mixed-prefill-decode": false, "coalesce-window-us": 0});
    let named = bundles().plain.join("batching.json");
    std::fs::write(&named, config.to_string()).unwrap();
    let bundle = Bundle::read(&named).unwrap();
    assert!(
        bundle.warnings().iter().all(|warning| !warning.to_string().contains("batching")),
        "{:?}",
        bundle.warnings()
    );
    let mut serving = bundle.clone().open(&options()).unwrap().into_serving(None).unwrap();
    let (mut running, mut pieces) = (0, 0);
    let requests_of_it = requests(&mut serving);
    let found = serve(&mut serving, requests_of_it, |serving, n_prompt| {
        running = running.max(serving.scheduler().counts().running);
        pieces = pieces.max(n_prompt);
    });
    assert_eq!((running, pieces), (2, 4));
    assert_eq!(tokens(&found), alone());
    // Options of the program count as they are.
    let mut serving = bundle.open(&options()).unwrap().into_serving(ServeOptions::default()).unwrap();
    let requests_of_it = requests(&mut serving);
    running = 0;
    serve(&mut serving, requests_of_it, |serving, _| running = running.max(serving.scheduler().counts().running));
    assert!(running > 2);
}

/// A target in milliseconds says nothing about widths by itself: steps are timed where no calibration has their times.
#[test]
fn a_target_is_held_by_measured_times() {
    for path in [&bundles().plain, &bundles().fused] {
        let serving = |target| {
            let serve = ServeOptions { target, ..ServeOptions::default() };
            Bundle::read(path).unwrap().open_serving(&options(), serve).unwrap()
        };
        assert_eq!(serving(None).scheduler().options().step_times, None);
        let mut timed = serving(Some(Duration::from_secs(10)));
        let times = timed.scheduler().options().step_times.clone().unwrap();
        assert!(times.all().iter().all(|time| time.us > 0.0 && time.us_empty > 0.0), "{times:?}");
        assert_eq!(times.all().last().unwrap().width, 8);
        let requests_of_it = requests(&mut timed);
        assert_eq!(
            tokens(&serve(&mut timed, requests_of_it, |_, _| ())),
            alone(),
            "the rows of the measurement are gone"
        );
    }
}

#[test]
fn a_later_run_finds_the_prefixes_of_an_earlier_one() {
    let cache =
        PrefixCacheOptions { folder: bundles().folder.path().join("prefixes"), max_bytes: 1 << 30, min_tokens: 8 };
    let run = || {
        let options = options().prefix_cache(cache.clone());
        let mut serving = Bundle::read(&bundles().plain).unwrap().open_serving(&options, None).unwrap();
        let request = requests(&mut serving).remove(2);
        let finished = serve(&mut serving, vec![request], |_, _| ()).remove(0);
        assert_eq!(serving.scheduler().prefix_fault(), None);
        (finished.n_shared, finished.reply.tokens)
    };
    let (first, again) = (run(), run());
    assert_eq!((first.0, again.0), (0, 32), "all but the last token of the prompt");
    assert_eq!((&first.1, &again.1), (&alone()[2], &first.1));
}

/// A step has a piece of one prompt and a token of one reply, whatever the policy says.
#[test]
fn fused_graphs_serve_what_plain_ones_do() {
    let mut serving = Bundle::read(&bundles().fused).unwrap().open_serving(&options(), None).unwrap();
    let watch = serving.scheduler().watch(10_000);
    let requests = requests(&mut serving);
    let found = serve(&mut serving, requests, |_, _| ());
    assert_eq!(tokens(&found), alone());
    drop(serving);
    let (mut both, mut n_steps) = (0, 0);
    while let Some(event) = watch.next() {
        let of_prompts = event.rows.iter().filter(|rows| rows.prefill).count();
        assert!(of_prompts <= 1 && event.rows.len() - of_prompts <= 1, "{event:?}");
        both += usize::from(event.rows.len() == 2);
        n_steps += 1;
    }
    assert!(both > 5 && n_steps > both, "{both} of {n_steps}");
}

#[test]
fn requests_share_a_cache_in_blocks() {
    let bundle = &bundles().blocks;
    let mut serving = Bundle::read(bundle).unwrap().open_serving(&options(), None).unwrap();
    let requests = requests(&mut serving);
    let found = serve(&mut serving, requests, |_, _| ());
    assert_eq!(tokens(&found), alone_in(bundle));
}

/// Rows are evicted by age or by score, so one sequence is in the cache at a time: others wait as snapshots, and take turns.
#[test]
fn requests_of_a_window_and_of_keydiff_take_turns() {
    let rules = [LongContext::Window { size: 24 }, LongContext::KeyDiff { update_every: 1 }];
    for rule in rules {
        let open = |turn| {
            let options = options().long_context(rule).context_size(300);
            let serve = ServeOptions { turn, ..ServeOptions::default() };
            let mut serving = Bundle::read(&bundles().plain).unwrap().open_serving(&options, serve).unwrap();
            assert!(!serving.scheduler().runs_together(), "{rule:?}");
            serving
        };
        let long = |serving: &mut Serving| {
            let mut all = requests(serving);
            // Beyond the rows there are: some of the first are evicted.
            all.iter_mut().for_each(|request| request.settings.max_tokens = Some(120));
            all
        };
        let alone: Vec<_> = (0..5)
            .map(|at| {
                let mut serving = open(None);
                let request = long(&mut serving).remove(at);
                serve(&mut serving, vec![request], |_, _| ()).remove(0).reply.tokens
            })
            .collect();
        let mut serving = open(Some(16));
        let all = long(&mut serving);
        let found = serve(&mut serving, all, |_, _| ());
        assert_eq!(tokens(&found), alone, "{rule:?}");
        assert!(found.iter().all(|done| done.n_parked > 2), "{rule:?}: each had several turns");
    }
}

#[test]
fn a_slot_is_kept_in_a_file() {
    slot_in_a_file(&bundles().plain, "slot.kvs");
    slot_in_a_file(&bundles().blocks, "blocks.kvs");
}

fn slot_in_a_file(bundle: &PathBuf, file: &str) {
    let file = bundles().folder.path().join(file);
    let open = || Bundle::read(bundle).unwrap().open_serving(&options(), None).unwrap();
    let mut serving = open();
    let request = requests(&mut serving).remove(0);
    let running = serving.start().unwrap();
    let first = running.submit(request.clone()).unwrap().wait().unwrap();
    let slot = running.server().slots().unwrap()[0];
    let n = running.save_slot(slot.seq, &file).unwrap();
    assert_eq!((n, running.erase_slot(slot.seq).unwrap()), (slot.n_past, n));
    assert!(running.save_slot(slot.seq, &file).is_err());
    drop(running);
    let running = open().start().unwrap();
    assert_eq!(running.restore_slot(slot.seq, &file).unwrap().n_past, n);
    let again = running.submit(request).unwrap().wait().unwrap();
    assert_eq!((first.n_shared, again.n_shared, again.n_prompt), (0, 20, 21));
    assert_eq!(first.reply.tokens, again.reply.tokens);
    std::fs::write(&file, b"no snapshot").unwrap();
    assert!(running.restore_slot(slot.seq, &file).is_err());
}

#[test]
fn a_draft_model_drafts_for_several_replies_at_once() {
    let run = |options: Options| {
        let mut serving = Bundle::read(&bundles().plain).unwrap().open_serving(&options, None).unwrap();
        let requests = requests(&mut serving);
        let found = serve(&mut serving, requests, |_, _| ());
        (tokens(&found), serving.scheduler().counts().n_steps, found)
    };
    let (plain, n_steps, _) = run(options());
    // The model drafts for itself: greedy drafts hold.
    let spec = |bundle: &PathBuf| options().speculation(Speculation::Draft { bundle: bundle.clone(), len: 3 });
    let (drafted, n_fewer, found) = run(spec(&bundles().plain));
    assert_eq!(drafted, plain);
    assert!(2 * n_fewer < n_steps + 10, "{n_fewer} steps with drafts, {n_steps} without");
    for finished in &found {
        let counts = finished.reply.kpis.speculation.as_ref().unwrap();
        assert!(counts.n_accepted > 0 && counts.n_accepted == counts.n_drafted, "{counts:?}");
    }
    // Sampled replies are those of the same seeds without drafts.
    let sampled = |options: Options| {
        let mut serving = Bundle::read(&bundles().plain).unwrap().open_serving(&options, None).unwrap();
        let mut requests = requests(&mut serving);
        for (request, seed) in requests.iter_mut().zip(1..) {
            request.settings.sampler =
                request.settings.sampler.clone().with_greedy(false).with_seed(Some(seed)).with_temp(0.8).unwrap();
        }
        tokens(&serve(&mut serving, requests, |_, _| ()))
    };
    assert_eq!(sampled(spec(&bundles().plain)), sampled(options()));
}

/// Caches that evict rows, and graphs without a cache: a draft that does not hold ends no reply, and changes none while nothing is evicted.
#[test]
fn drafts_that_do_not_hold_are_left_where_rows_cannot_be_taken_back() {
    let run = |bundle: &PathBuf, options: &Options, n_tokens: usize| {
        let mut serving = Bundle::read(bundle).unwrap().open_serving(options, None).unwrap();
        let mut all = requests(&mut serving);
        for (request, seed) in all.iter_mut().zip(1..) {
            let sampler = request.settings.sampler.clone().with_greedy(false).with_seed(Some(seed));
            (request.settings.sampler, request.settings.max_tokens) = (sampler.with_temp(0.8).unwrap(), Some(n_tokens));
        }
        let found = serve(&mut serving, all, |_, _| ());
        let counts = found.iter().filter_map(|done| done.reply.kpis.speculation.as_ref());
        let (n, held) = counts.fold((0, 0), |(n, held), of| (n + of.n_drafted, held + of.n_accepted));
        (tokens(&found), n, held)
    };
    let window = options().long_context(LongContext::Window { size: 24 }).context_size(300);
    let keydiff = options().long_context(LongContext::KeyDiff { update_every: 1 }).context_size(300);
    for (bundle, options, most) in
        [(&bundles().plain, window, 120), (&bundles().plain, keydiff, 120), (&bundles().no_cache, options(), 60)]
    {
        let draft = Speculation::Draft { bundle: bundles().plain.clone(), len: 3 };
        let spec = options.clone().speculation(draft);
        let (found, n, held) = run(bundle, &spec, 30);
        assert_eq!(found, run(bundle, &options, 30).0, "{options:?}");
        assert!(0 < held && held < n, "{held} of {n} held, {options:?}");
        // Beyond the rows there are: steps of several rows evict more, so that replies may be others.
        let (found, n, held) = run(bundle, &spec, most);
        assert!(found.iter().all(|tokens| tokens.len() == most) && held < n, "{options:?}");
    }
}

/// A config's replies are those without trees then, with a word; `--spec` is refused.
#[test]
fn graphs_without_a_past_hold_no_trees() {
    let open = |spec: &str| {
        let options = options().speculation(spec.parse().unwrap());
        Bundle::read(&bundles().no_cache).unwrap().open_serving(&options, None)
    };
    let said = open("lade").unwrap_err().to_string();
    assert!(said.contains("graphs without a past"), "{said}");
    let config = bundles().no_cache.join("genie_config.json");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    value["dialog"]["type"] = "lade".into();
    value["dialog"]["lade"] = json!({"version": 1, "window": 2, "ngram": 3, "gcap": 2});
    let config = bundles().no_cache.join("lade.json");
    std::fs::write(&config, value.to_string()).unwrap();
    let serving = Bundle::read(&config).unwrap().open_serving(&options(), None).unwrap();
    assert!(serving.note().unwrap().contains("`lade` drafts trees of tokens"), "{:?}", serving.note());
}

/// A draft model that processes its whole text in each step drafts for no several replies: they are those of `basic`, with a word.
#[test]
fn a_draft_model_of_one_sequence_is_left_with_a_word() {
    let read = |folder: &PathBuf| -> Value {
        serde_json::from_slice(&std::fs::read(folder.join("genie_config.json")).unwrap()).unwrap()
    };
    let (mut value, of_draft) = (read(&bundles().plain), read(&bundles().no_cache));
    let (mut target, mut draft) = (value["dialog"]["engine"].clone(), of_draft["dialog"]["engine"].clone());
    (target["role"], draft["role"]) = ("target".into(), "draft".into());
    for path in draft["model"]["binary"]["ctx-bins"].as_array_mut().unwrap() {
        *path = bundles().no_cache.join(path.as_str().unwrap()).display().to_string().into();
    }
    value["dialog"]["engine"] = json!([target, draft]);
    value["dialog"]["type"] = "spd".into();
    value["dialog"]["spd"] = json!({"version": 1, "draft-len": 3});
    let config = bundles().plain.join("spd.json");
    std::fs::write(&config, value.to_string()).unwrap();
    let mut serving = Bundle::read(&config).unwrap().open_serving(&options(), None).unwrap();
    assert!(serving.note().unwrap().contains("the draft model of `spd` has one sequence"), "{:?}", serving.note());
    let all = requests(&mut serving);
    assert_eq!(tokens(&serve(&mut serving, all, |_, _| ())), alone());
    let spec = options().speculation(Speculation::Draft { bundle: bundles().no_cache.clone(), len: 3 });
    let said = Bundle::read(&bundles().plain).unwrap().open_serving(&spec, None).unwrap_err().to_string();
    assert!(said.contains("a draft model whose cache keeps several sequences"), "{said}");
}

/// A step of a graph begins with room for all its rows. Where none has one row, the cache is full a little earlier; idle rows make
/// room before that, and a reply that comes there ends by its limit.
#[test]
fn graphs_of_several_rows_alone_are_served_to_their_end() {
    let mut serving = Bundle::read(&bundles().wide).unwrap().open_serving(&options(), None).unwrap();
    let settings = serving.scheduler().base().defaults().clone();
    let request = |seed: u32, n: u32, most: usize| {
        let mut settings = settings.clone();
        (settings.max_tokens, settings.ignore_end_tokens) = (Some(most), true);
        let prompt = (0..n).map(|i| TokenId(50 + (i * 7 + seed * 13) % 200)).collect();
        Request { prompt, settings, priority: 0 }
    };
    // 90 rows are idle when the second comes.
    assert_eq!(serve(&mut serving, vec![request(1, 80, 10)], |_, _| ())[0].reply.tokens.len(), 10);
    assert_eq!(serve(&mut serving, vec![request(2, 31, 10)], |_, _| ())[0].reply.tokens.len(), 10);
    // Both meet the end of the cache.
    let found = serve(&mut serving, vec![request(3, 40, 40), request(4, 40, 40)], |_, _| ());
    assert!(found.iter().all(|done| done.reply.tokens.len() == 40));
    let found = serve(&mut serving, vec![request(5, 100, 60)], |_, _| ()).remove(0);
    assert_eq!((found.reply.stop.name(), found.reply.tokens.len()), ("context-limit", 22));
}

/// Prompts whose last piece is one token, that end where the wide graphs' pasts do, beside replies that are longer than those.
#[test]
fn a_fused_tick_is_one_execution_whatever_fits() {
    let request = |serving: &mut Serving, seed: u32, n: u32, max_tokens: usize| {
        let mut settings = serving.scheduler().base().defaults().clone();
        settings.sampler = settings.sampler.with_greedy(true);
        (settings.max_tokens, settings.ignore_end_tokens) = (Some(max_tokens), true);
        let prompt = (0..n).map(|i| TokenId(50 + (i * 7 + seed * 13) % 200)).collect();
        Request { prompt, settings, priority: 0 }
    };
    let cases = [(1, 8, 12), (2, 118, 9), (3, 15, 100), (4, 122, 5), (5, 1, 20), (6, 113, 14)];
    let open = |bundle: &PathBuf| Bundle::read(bundle).unwrap().open_serving(&options(), None).unwrap();
    let mut plain = open(&bundles().plain);
    let alone: Vec<_> = cases
        .iter()
        .map(|&(seed, n, most)| {
            let request = request(&mut plain, seed, n, most);
            serve(&mut plain, vec![request], |_, _| ()).remove(0).reply.tokens
        })
        .collect();
    let mut fused = open(&bundles().fused);
    let watch = fused.scheduler().watch(100_000);
    let requests = cases.iter().map(|&(seed, n, most)| request(&mut fused, seed, n, most)).collect();
    let found = serve(&mut fused, requests, |_, _| ());
    assert_eq!(tokens(&found), alone);
    let (mut n_short, mut n_steps) = (0, 0);
    while let Ok(Some(step)) = watch.next_within(std::time::Duration::ZERO) {
        assert_eq!(step.graphs.len(), 1, "{step:?}");
        let n_prompt: usize = step.rows.iter().filter(|rows| rows.prefill).map(|rows| rows.n).sum();
        n_short += usize::from(n_prompt == 1 && step.rows.len() == 2);
        n_steps += 1;
    }
    assert_eq!(n_steps, fused.scheduler().counts().n_steps);
    assert!(n_short > 0, "a prompt's only token was beside a reply's");
}

#[test]
fn a_fused_step_has_the_width_of_its_graph() {
    let mut serving = Bundle::read(&bundles().fused).unwrap().open_serving(&options(), None).unwrap();
    let watch = serving.scheduler().watch(10_000);
    let requests = requests(&mut serving);
    serve(&mut serving, requests, |_, _| ());
    let mut widths = std::collections::BTreeSet::new();
    while let Ok(Some(step)) = watch.next_within(std::time::Duration::ZERO) {
        let [graph] = step.graphs.as_slice() else { panic!("one graph a step: {step:?}") };
        let width: usize = graph.rsplit_once(".s").unwrap().1.parse().unwrap();
        assert_eq!(step.width, width, "{step:?}");
        widths.insert(width);
    }
    assert_eq!(widths, [1, 4, 8].into());
}
