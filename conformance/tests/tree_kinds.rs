//! The dialog kinds that verify trees of drafts, `lade` and `ssd-q1`, against `basic` on the host: greedy and sampled, to the
//! context's edge, over turns, stop sequences, EOS, rewinds, saved and restored dialogs, and resets.

use std::path::Path;
use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{Family, Precision};
use conformance::backends;
use conformance::bundles::Bundle;
use dialog::kinds::{Basic, BranchMode, Branches, Lade, LadeSettings, Ssd, SsdSettings, UpdateMode};
use dialog::{Dialog, DialogError, DialogKind, SamplerSettings, SentenceCode};
use engine::{Engine, TokenModel};
use genie_types::TokenId;
use qnn_api::Backend;
use session_store::ForecastPrefix;

/// Rows of the forecast prefix.
const N_PREFIX: usize = 5;
/// The first entry of the vocabulary that the tests take for forecast tokens.
const FORECAST: u32 = 300;

fn bundle(backend: &Arc<Backend>, ars: &[u32], cls: &[u32]) -> Bundle {
    Bundle::make(&TestModel::tiny(Family::Llama), backend, |options| {
        (options.ars, options.cls, options.precision) = (ars.to_vec(), cls.to_vec(), Precision::F32);
    })
}

fn write_prefix(bundle: &Bundle, backend: &Arc<Backend>, folder: &Path) {
    let tokens: Vec<TokenId> = (0..N_PREFIX as u32).map(|i| TokenId(i * 31 + 3)).collect();
    let mut engine = bundle.engine(backend);
    engine.prefill(&tokens).unwrap();
    ForecastPrefix::write(folder, &engine.snapshot().unwrap().image, &tokens).unwrap();
}

fn lade(update_mode: UpdateMode, window: usize, ngram: usize, gcap: usize) -> Box<dyn DialogKind> {
    Box::new(Lade::new(LadeSettings { update_mode, window, ngram, gcap }).always())
}

fn ssd_settings(prefix: &Path, counts: &[usize], mode: BranchMode) -> SsdSettings {
    SsdSettings {
        branches: Branches::new(counts.to_vec(), mode),
        n_forecast: 4,
        first_forecast: TokenId(FORECAST),
        prefix: prefix.to_owned(),
        n_prefix: Some(N_PREFIX),
    }
}

fn ssd(prefix: &Path, counts: &[usize], mode: BranchMode) -> Box<dyn DialogKind> {
    Box::new(Ssd::new(ssd_settings(prefix, counts, mode)).unwrap().always())
}

/// Every kind with several settings, and the rows of the cache that it takes for itself.
fn kinds(prefix: &Path) -> Vec<(&'static str, Box<dyn DialogKind>, usize)> {
    use UpdateMode::{AlwaysForwardOne, ForwardLevel, ForwardMaxHit};
    vec![
        ("lade of bigrams", lade(AlwaysForwardOne, 4, 2, 2), 0),
        ("lade of trigrams", lade(AlwaysForwardOne, 3, 3, 3), 0),
        ("lade by levels", lade(ForwardLevel, 3, 4, 2), 0),
        ("lade by hits", lade(ForwardMaxHit, 5, 3, 2), 0),
        ("lade of one column", lade(ForwardMaxHit, 1, 2, 0), 0),
        ("ssd", ssd(prefix, &[3, 2], BranchMode::AllExpand), N_PREFIX),
        ("ssd, first only", ssd(prefix, &[4, 3], BranchMode::Top1), N_PREFIX),
        ("ssd, three levels", ssd(prefix, &[2, 1, 1], BranchMode::AllExpand), N_PREFIX),
        ("lade by time", Box::new(Lade::new(LadeSettings { window: 4, ..LadeSettings::default() })), 0),
        ("ssd by time", Box::new(Ssd::new(ssd_settings(prefix, &[3, 2], BranchMode::AllExpand)).unwrap()), N_PREFIX),
    ]
}

fn dialog(bundle: &Bundle, backend: &Arc<Backend>, sampler: &SamplerSettings, n_reserved: usize) -> Dialog {
    let config = bundle.config();
    let size = config.context().size - n_reserved;
    let mut dialog = Dialog::new(&config, Box::new(bundle.engine(backend))).unwrap();
    if n_reserved > 0 {
        let config = config.with_context_size(size);
        dialog = Dialog::new(&config, Box::new(Engine::open(config.engine(), backend).unwrap())).unwrap();
    }
    dialog.set_sampler(sampler.clone());
    dialog
}

fn prompt(n: u32) -> Vec<TokenId> {
    (0..n).map(|i| TokenId(i * 7 % 250)).collect()
}

fn hot() -> SamplerSettings {
    SamplerSettings::default().with_seed(Some(11)).with_top_k(4).with_temp(0.9).unwrap()
}

#[test]
fn a_thousand_tokens_are_those_of_basic() {
    let backend = backends::linked();
    let (bundle, folder) = (bundle(&backend, &[1, 8, 32], &[1152]), tempfile::tempdir().unwrap());
    write_prefix(&bundle, &backend, folder.path());
    for sampler in [SamplerSettings::argmax(), hot()] {
        let run = |kind: Box<dyn DialogKind>| {
            let mut dialog = dialog(&bundle, &backend, &sampler, 0);
            dialog.set_kind(kind).unwrap();
            dialog.control().set_max_num_tokens(Some(1000));
            dialog.token_query(&prompt(40), SentenceCode::Complete, |_| ()).unwrap()
        };
        let expected = run(Box::new(Basic));
        assert!(expected.tokens.len() > 900, "{} tokens", expected.tokens.len());
        for (name, kind, _) in kinds(folder.path()) {
            let found = run(kind);
            assert_eq!((found.tokens, &found.stop), (expected.tokens.clone(), &expected.stop), "{name}");
            let counts = found.kpis.speculation.unwrap();
            let is_timed = name.ends_with("by time");
            assert!((is_timed || counts.n_rounds > 0) && counts.n_accepted <= counts.n_drafted, "{name}: {counts:?}");
            // A random model repeats itself, which its own n-grams find out.
            if sampler.is_argmax() && name.starts_with("lade of") && !name.contains("column") {
                assert!(counts.n_accepted > 100, "{name}: {counts:?}");
            }
        }
    }
}

/// What two turns came to, and what is kept.
type Log = Vec<(Vec<TokenId>, String, Vec<TokenId>, usize)>;

#[test]
fn every_edge_of_the_context_is_that_of_basic() {
    let backend = backends::linked();
    let (bundle, folder) = (bundle(&backend, &[1, 8, 32], &[64, 96]), tempfile::tempdir().unwrap());
    write_prefix(&bundle, &backend, folder.path());
    let run = |dialog: &mut Dialog, n: u32| -> Log {
        dialog.reset().unwrap();
        let mut log = Log::new();
        for turn in [n, 2] {
            match dialog.token_query(&prompt(turn), SentenceCode::Complete, |_| ()) {
                Ok(reply) => log.push((reply.tokens, reply.stop.to_string(), dialog.history(), dialog.n_past())),
                Err(e) => log.push((Vec::new(), e.to_string(), dialog.history(), dialog.n_past())),
            }
        }
        log
    };
    for (name, kind, n_reserved) in kinds(folder.path()) {
        let argmax = SamplerSettings::argmax();
        let mut basic = dialog(&bundle, &backend, &argmax, n_reserved);
        let mut drafting = dialog(&bundle, &backend, &argmax, 0);
        drafting.set_kind(kind).unwrap();
        for n in [1, 2, 7, 31, 32, 33, 50, 58, 59, 60, 61, 62, 63, 64, 80, 85, 86, 88, 89, 90, 91, 94, 95] {
            assert_eq!(run(&mut drafting, n), run(&mut basic, n), "{name}, a prompt of {n} tokens");
        }
    }
}

/// Two dialogs are led through the same conversation.
fn converse(dialog: &mut Dialog, folder: &Path) -> Vec<String> {
    let mut log = Vec::new();
    let mut say = |dialog: &mut Dialog, text: &str, code, limit: usize| {
        dialog.control().set_max_num_tokens(Some(limit));
        let mut codes = Vec::new();
        let reply = dialog.query(text, code, |chunk| codes.push((chunk.code.number(), chunk.text.to_owned())));
        let stop = reply.map_or_else(|e| e.to_string(), |reply| reply.stop.to_string());
        log.push(format!("{codes:?} {stop} {} {:?}", dialog.n_past(), dialog.history()));
    };
    say(dialog, "hello", SentenceCode::Complete, 30);
    say(dialog, "and more", SentenceCode::Complete, 1);
    say(dialog, "a part", SentenceCode::Begin, 5);
    say(dialog, " and its end", SentenceCode::End, 20);
    let text: String = dialog.tokenizer().decode(&dialog.history()[..20]).unwrap();
    say(dialog, &text, SentenceCode::Rewind, 12);
    say(dialog, "nothing", SentenceCode::Complete, 0);
    dialog.save(folder).unwrap();
    say(dialog, "goes on", SentenceCode::Complete, 20);
    dialog.restore(folder).unwrap();
    say(dialog, "goes on", SentenceCode::Complete, 20);
    dialog.reset().unwrap();
    say(dialog, "from nothing", SentenceCode::Complete, 15);
    dialog.set_stop_sequences(vec!["e".into(), "qu".into()]).unwrap();
    for text in ["stop", "stop again", "and again"] {
        say(dialog, text, SentenceCode::Complete, 60);
    }
    log
}

#[test]
fn conversations_are_those_of_basic() {
    let backend = backends::linked();
    let (bundle, folder) = (bundle(&backend, &[1, 8, 32], &[512]), tempfile::tempdir().unwrap());
    write_prefix(&bundle, &backend, folder.path());
    for sampler in [SamplerSettings::argmax(), hot()] {
        let mut basic = dialog(&bundle, &backend, &sampler, 0);
        let expected = converse(&mut basic, &folder.path().join("basic"));
        for (name, kind, _) in kinds(folder.path()) {
            let mut drafting = dialog(&bundle, &backend, &sampler, 0);
            drafting.set_kind(kind).unwrap();
            let found = converse(&mut drafting, &folder.path().join(name));
            for (turn, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "{name}, turn {turn}");
            }
        }
    }
}

#[test]
fn a_prefix_comes_back_to_a_dialog_that_was_saved_without_it() {
    let backend = backends::linked();
    let (bundle, folder) = (bundle(&backend, &[1, 32], &[256]), tempfile::tempdir().unwrap());
    write_prefix(&bundle, &backend, folder.path());
    let argmax = SamplerSettings::argmax();
    let mut basic = dialog(&bundle, &backend, &argmax, 0);
    basic.control().set_max_num_tokens(Some(10));
    basic.query("hello", SentenceCode::Complete, |_| ()).unwrap();
    basic.save(&folder.path().join("saved")).unwrap();
    let expected = basic.query("more", SentenceCode::Complete, |_| ()).unwrap().tokens;
    let mut drafting = dialog(&bundle, &backend, &argmax, 0);
    drafting.set_kind(ssd(folder.path(), &[3, 2], BranchMode::AllExpand)).unwrap();
    drafting.restore(&folder.path().join("saved")).unwrap();
    drafting.control().set_max_num_tokens(Some(10));
    assert_eq!(drafting.query("more", SentenceCode::Complete, |_| ()).unwrap().tokens, expected);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let backend = backends::linked();
    let (bundle, folder) = (bundle(&backend, &[1, 8], &[64]), tempfile::tempdir().unwrap());
    write_prefix(&bundle, &backend, folder.path());
    let base = |counts: &[usize]| ssd_settings(folder.path(), counts, BranchMode::AllExpand);
    let said = |settings: SsdSettings| {
        let kind = match Ssd::new(settings) {
            Ok(kind) => kind,
            Err(e) => return e.to_string(),
        };
        let mut dialog = dialog(&bundle, &backend, &SamplerSettings::argmax(), 0);
        let error: DialogError = dialog.set_kind(Box::new(kind)).unwrap_err();
        assert_eq!(dialog.token_query(&prompt(3), SentenceCode::Begin, |_| ()).unwrap().tokens, [], "it stays basic");
        error.to_string()
    };
    let cases = [
        (base(&[]), "at least one number in `branches`"),
        (base(&[1, 0]), "each of at least 1"),
        (base(&[1, 1, 1, 1, 1]), "at most 4 numbers in `branches`"),
        (base(&[3, 2]), "the 30 rows of a tree of these `branches`, found at most 8 at once"),
        (SsdSettings { n_prefix: Some(0), ..base(&[1]) }, "at least 1 row"),
        (SsdSettings { n_prefix: Some(4), ..base(&[1]) }, "a forecast prefix of 4 rows"),
        (SsdSettings { prefix: "/nowhere".into(), ..base(&[1]) }, "`/nowhere/kv-cache.primary.qnn-htp`"),
    ];
    for (settings, expected) in cases {
        let found = said(settings.clone());
        assert!(found.contains(expected), "{settings:?}: {found}");
    }
    let mut dialog = dialog(&bundle, &backend, &SamplerSettings::argmax(), 0);
    let wide = dialog.set_kind(lade(UpdateMode::AlwaysForwardOne, 5, 3, 2)).unwrap_err().to_string();
    assert!(wide.contains("14 rows at once") && wide.contains("found at most 8"), "{wide}");
    let bigrams = lade(UpdateMode::AlwaysForwardOne, 5, 2, 3);
    dialog.set_kind(bigrams).unwrap();
}
