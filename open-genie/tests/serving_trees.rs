//! Trees of drafts as rows of steps that several requests share, on real graphs: replies are those without drafts, in fewer steps.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use dialog::config::DialogConfig;
use dialog::kinds::{EagletSettings, EagletTrees, TreeWish};
use engine::{Engine, SeqId, SeqTokens, TokenModel};
use open_genie::serving::{Event, Finished, Request, ServeOptions, Serving};
use open_genie::{Bundle, Options, TokenId, open_backend};
use serde_json::json;

use crate::ticks::tokens;
use crate::tree_bundles::{Bundles, VOCAB, open, open_with, options_of_one, serve_n, serve_options};

fn bundles() -> &'static Bundles {
    static BUNDLES: OnceLock<Bundles> = OnceLock::new();
    BUNDLES.get_or_init(|| Bundles::new(None))
}

/// Four long replies.
fn serve(serving: &mut Serving) -> (Vec<Finished>, usize) {
    serve_n(serving, 4, 70, true)
}

#[test]
fn replies_of_trees_are_those_of_basic_in_fewer_steps() {
    let (plain, n_steps) = serve(&mut open(&bundles().basic(), &options_of_one()));
    let spec = |spec: &str| options_of_one().speculation(spec.parse().unwrap());
    let of_head = format!("eaglet:{}", bundles().head.display());
    // What forecast tokens say means nothing here: they were not trained.
    for (config, options, holds) in [
        (bundles().lade(), options_of_one(), true),
        (bundles().ssd(), options_of_one(), false),
        (bundles().eaglet(), options_of_one(), true),
        (bundles().basic(), spec("lade:2,3,4"), true),
        (bundles().basic(), spec("ssd"), false),
        (bundles().basic(), spec(&of_head), true),
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
    let serve_options = || ServeOptions { max_slots: 6, reserve: 4, ..serve_options() };
    let run = |config: &Path| {
        let mut serving = open_with(config, &options_of_one(), serve_options());
        let found = serve_n(&mut serving, 10, 70, true).0;
        let n_shared: usize = found.iter().map(|done| done.n_shared).sum();
        let n_drafted: usize =
            found.iter().filter_map(|done| done.reply.kpis.speculation.as_ref()).map(|of| of.n_drafted).sum();
        (tokens(&found), serving.scheduler().counts().n_parked, n_shared, n_drafted)
    };
    let (plain, _, _, none) = run(&bundles().basic());
    assert_eq!((plain.len(), none), (10, 0));
    for config in [bundles().lade(), bundles().ssd(), bundles().eaglet()] {
        let (found, n_parked, n_shared, n_drafted) = run(&config);
        assert_eq!(found, plain, "{config:?}");
        assert!(n_parked > 0 && n_shared > 0 && n_drafted > 0, "{config:?}: {n_parked} {n_shared} {n_drafted}");
    }
}

/// A level of several trees is one batch of the draft model, and each tree is the one that grows alone.
#[test]
fn trees_of_several_replies_grow_together() {
    let backend = open_backend(&options_of_one()).unwrap();
    let model = |bundle: &Path| {
        let config = DialogConfig::from_file(bundle.join("genie_config.json")).unwrap();
        Engine::open(config.engine(), &backend).unwrap()
    };
    let run = |together: bool| {
        let (mut target, mut draft) = (model(&bundles().plain), model(&bundles().head));
        let settings = EagletSettings { draft_len: 3, n_branches: 2, max_rows: 7, early_stop: None };
        let mut trees = EagletTrees::new(settings, None, &mut target, &mut draft).unwrap();
        let prompt = |n: u32| (0..9 + n * 4).map(|i| TokenId(20 + (i * 7 + n * 13) % 200)).collect::<Vec<_>>();
        let mut histories: Vec<Vec<TokenId>> = (0..3).map(prompt).collect();
        let inputs: Vec<_> = (0..).zip(&histories).map(|(seq, tokens)| SeqTokens { seq: SeqId(seq), tokens }).collect();
        let mut drawn = vec![TokenId(0); inputs.len()];
        let mut each = |input: usize, row: &[f32]| {
            drawn[input] = TokenId((0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32);
        };
        target.process_batch(&inputs, &mut each).unwrap();
        histories.iter_mut().zip(drawn).for_each(|(tokens, token)| tokens.push(token));
        let wish = |(seq, history)| TreeWish { seq: SeqId(seq), history, most_levels: 9, top_p: 1.0, end_tokens: &[] };
        let wishes: Vec<TreeWish<'_>> = (0..).zip(histories.iter().map(Vec::as_slice)).map(wish).collect();
        let groups = if together { wishes.chunks(3) } else { wishes.chunks(1) };
        let before = draft.steps().len();
        let found: Vec<_> = groups.flat_map(|group| trees.trees(&mut target, &mut draft, group).unwrap()).collect();
        (found, draft.steps().len() - before)
    };
    let ((together, n_together), (alone, n_alone)) = (run(true), run(false));
    assert!(together.iter().all(|tree| tree.as_ref().is_some_and(|tree| tree.n_rows() == 7)), "{together:?}");
    assert_eq!(together, alone);
    // The newest tokens of each by itself, then two levels.
    assert_eq!((n_together, n_alone), (3 + 2, 3 * (1 + 2)));
}

/// A reply in a sequence that another had, whose beginning the draft model did not know, has drafts of its own.
#[test]
fn a_sequence_that_is_used_again_has_drafts_from_its_beginning() {
    let mut serving = open(&bundles().eaglet(), &options_of_one());
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
    let mut serving = open(&bundles().ssd(), &options_of_one());
    let mut plain = open(&bundles().basic(), &options_of_one());
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
    let wide = bundles().of_kind("lade", json!({"version": 1, "window": 40, "ngram": 3, "gcap": 3}));
    let said = refused(wide, &options_of_one());
    assert!(said.contains("the 86 rows of a tree") && said.contains("at most 64"), "{said}");
    let folder = bundles().plain.join("no-prefix");
    let said =
        refused(bundles().basic(), &options_of_one().speculation(format!("ssd:{}", folder.display()).parse().unwrap()));
    assert!(said.contains("no-prefix"), "{said}");
    let all = bundles().of_vocabulary(VOCAB + 2);
    let said = refused(all, &options_of_one().speculation("ssd".parse().unwrap()));
    assert!(said.contains("with embeddings for ids 320 to 321"), "{said}");
    let itself = format!("eaglet:{}", bundles().plain.display());
    let said = refused(bundles().basic(), &options_of_one().speculation(itself.parse().unwrap()));
    assert!(said.contains("a draft model with an input `target_hidden_states`"), "{said}");
}
