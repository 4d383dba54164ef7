//! Saved dialogs: they go on as if never saved, in any bundle of the same weights; whatever is torn, foreign or newer is
//! refused by name and the live dialog is as it was.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{Manifest, Precision};
use conformance::backends;
use conformance::bundles::Bundle;
use dialog::sampler::{Chain, Dry, Mirostat, MirostatVersion, TokenPenalty};
use dialog::{Dialog, Reply, SamplerSettings, SaveFormat, SentenceCode};
use engine::{Engine, ModeKind, ModelHash, PrefixCache, TokenModel};
use genie_types::TokenId;
use qnn_api::Backend;
use session_store::PrefixStore;

const SNAPSHOT: &str = "open-genie.kvs";
const KV: &str = "kv-slot-0.primary.qnn-htp";
const HISTORY: &str = "token-history-slot-0";

fn bundle(backend: &Arc<Backend>, family: compiler::Family, ars: &[u32], cls: &[u32]) -> Bundle {
    Bundle::make(&TestModel::tiny(family), backend, |options| {
        options.ars = ars.to_vec();
        options.cls = cls.to_vec();
        options.precision = Precision::F32;
    })
}

fn engine(bundle: &Bundle, backend: &Arc<Backend>, mode: Option<ModeKind>) -> Engine {
    let mark = Manifest::read(&bundle.dir()).unwrap().model_mark();
    let mut config = bundle.config().engine().clone();
    (config.model_hash, config.kv_mode) = (Some(ModelHash(mark)), mode);
    Engine::open(&config, backend).unwrap()
}

/// A sampled dialog: a random state that was not restored would show.
fn dialog(bundle: &Bundle, backend: &Arc<Backend>, mode: Option<ModeKind>) -> Dialog {
    let mut dialog = Dialog::new(&bundle.config(), Box::new(engine(bundle, backend, mode))).unwrap();
    dialog.set_sampler(SamplerSettings::default().with_seed(Some(7)).with_top_k(30).with_temp(1.3).unwrap());
    dialog
}

fn ask(dialog: &mut Dialog, from: u32, n: u32) -> Reply {
    dialog.control().set_max_num_tokens(Some(6));
    let tokens: Vec<TokenId> = (from..from + n).map(|i| TokenId(i * 31 % 300)).collect();
    dialog.token_query(&tokens, SentenceCode::Complete, |_| ()).unwrap()
}

/// Two dialogs are the same, and go on alike for two turns.
fn go_on_alike(a: &mut Dialog, b: &mut Dialog, what: &str) {
    assert_eq!((a.history(), a.n_past()), (b.history(), b.n_past()), "{what}");
    for turn in 0..2 {
        let (x, y) = (ask(a, 50 + turn, 3), ask(b, 50 + turn, 3));
        assert_eq!((x.input, x.tokens), (y.input, y.tokens), "{what}, turn {turn}");
    }
}

#[test]
fn a_restored_dialog_goes_on_as_if_never_saved() {
    use compiler::Family::Llama;
    let backend = backends::linked();
    let home = bundle(&backend, Llama, &[1, 8], &[32, 64, 128]);
    let other = bundle(&backend, Llama, &[1, 16], &[128]);
    let folder = tempfile::tempdir().unwrap();
    for n in [3, 30, 70] {
        for (which, mode) in
            [(&home, None), (&home, Some(ModeKind::SHIFT_CONCAT)), (&other, Some(ModeKind::POINTER_SHIFT))]
        {
            let mut live = dialog(&home, &backend, None);
            ask(&mut live, 1, n);
            ask(&mut live, 9, 2);
            assert_eq!(live.save(folder.path()).unwrap().without_genie, None);
            let mut fresh = dialog(which, &backend, mode);
            ask(&mut fresh, 77, 5); // something else was said here before
            assert_eq!(fresh.restore(folder.path()).unwrap().format, SaveFormat::OpenGenie);
            go_on_alike(&mut live, &mut fresh, &format!("{n} tokens, {mode:?}"));
        }
        // From Genie's files alone; and in the dialog itself after a reset.
        let mut live = dialog(&home, &backend, None);
        ask(&mut live, 1, n);
        live.save(folder.path()).unwrap();
        fs::remove_file(folder.path().join(SNAPSHOT)).unwrap();
        let mut fresh = dialog(&home, &backend, None);
        assert_eq!(fresh.restore(folder.path()).unwrap().format, SaveFormat::Genie);
        go_on_alike(&mut live, &mut fresh, "Genie's files");
        live.save(folder.path()).unwrap();
        let mut again = dialog(&home, &backend, None);
        again.restore(folder.path()).unwrap();
        live.reset().unwrap();
        live.restore(folder.path()).unwrap();
        go_on_alike(&mut live, &mut again, "after a reset");
    }
}

/// What penalties and DRY look at is the whole dialog, prompts too, whether or not it was saved between two turns.
#[test]
fn penalties_and_dry_see_what_was_said_before_a_restore() {
    let backend = backends::linked();
    let home = bundle(&backend, compiler::Family::Llama, &[1, 8], &[128]);
    let penalty = TokenPenalty { last_n: 100, presence: 1.5, ..TokenPenalty::default() };
    let dry = Dry { multiplier: 2.0, allowed_length: 1, ..Dry::default() };
    for what in ["penalties", "DRY"] {
        let penalised = || {
            let mut dialog = dialog(&home, &backend, None);
            let settings = dialog.sampler().settings().clone();
            dialog.set_sampler(match what {
                "DRY" => settings.with_chain(Chain { dry: dry.clone(), ..Chain::default() }).unwrap(),
                _ => settings.with_penalty(penalty.clone()).unwrap(),
            });
            dialog
        };
        let folder = tempfile::tempdir().unwrap();
        let mut live = penalised();
        ask(&mut live, 1, 60);
        live.save(folder.path()).unwrap();
        let mut fresh = penalised();
        ask(&mut fresh, 77, 5);
        fresh.restore(folder.path()).unwrap();
        for turn in 0..2 {
            // The first prompt's tokens again, so that a repetition would go on.
            let (x, y) = (ask(&mut live, 1, 20), ask(&mut fresh, 1, 20));
            assert_eq!(x.tokens, y.tokens, "{what}, turn {turn}");
        }
        let mut plain = dialog(&home, &backend, None);
        plain.restore(folder.path()).unwrap();
        live.restore(folder.path()).unwrap();
        assert_ne!(ask(&mut plain, 1, 20).tokens, ask(&mut live, 1, 20).tokens, "{what} act here");
    }
}

/// Its bound moves with each token and allows a dialog's next one more or less than a new dialog's first.
#[test]
fn mirostat_goes_on_from_its_saved_bound() {
    let backend = backends::linked();
    let home = bundle(&backend, compiler::Family::Llama, &[1, 8], &[128]);
    for version in [MirostatVersion::One, MirostatVersion::Two] {
        let by_mirostat = || {
            let mut dialog = dialog(&home, &backend, None);
            let chain = Chain { mirostat: Some(Mirostat { tau: 2.0, ..Mirostat::new(version) }), ..Chain::default() };
            dialog.set_sampler(dialog.sampler().settings().clone().with_chain(chain).unwrap());
            dialog
        };
        let folder = tempfile::tempdir().unwrap();
        let mut live = by_mirostat();
        ask(&mut live, 1, 20);
        live.save(folder.path()).unwrap();
        let mu = live.sampler().mirostat_mu().unwrap();
        assert!((mu - 4.0).abs() > 0.01, "{version:?}: it has moved from {mu}");
        let mut fresh = by_mirostat();
        ask(&mut fresh, 77, 5);
        fresh.restore(folder.path()).unwrap();
        assert_eq!(fresh.sampler().mirostat_mu(), Some(mu), "{version:?}");
        go_on_alike(&mut live, &mut fresh, "mirostat");
        // A dialog without mirostat has no use for it.
        let mut plain = dialog(&home, &backend, None);
        plain.restore(folder.path()).unwrap();
        assert_eq!(plain.sampler().mirostat_mu(), None);
    }
}

#[test]
fn the_files_that_were_written_last_count() {
    let backend = backends::linked();
    let home = bundle(&backend, compiler::Family::Llama, &[1, 8], &[64]);
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut live = dialog(&home, &backend, None);
    let first = ask(&mut live, 1, 5);
    live.save(ours.path()).unwrap();
    let early = live.history();
    ask(&mut live, 2, 3);
    live.save(theirs.path()).unwrap();
    // libGenie saves into our folder: its files are newer than our snapshot, which it does not know.
    for name in ["dialog.json", HISTORY, KV, "sampler.primary.rng", "unprocessed-data"] {
        fs::copy(theirs.path().join(name), ours.path().join(name)).unwrap();
    }
    // As it does, with the token that ended the turn before twice: it was said, and fed again.
    let mut words: Vec<u32> = live.history().iter().map(|t| t.0).collect();
    let end_of_turn = early.len() - 1;
    assert_eq!(words[end_of_turn], first.tokens.last().unwrap().0);
    words.insert(end_of_turn, words[end_of_turn]);
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    fs::write(ours.path().join(HISTORY), bytes).unwrap();
    let mut fresh = dialog(&home, &backend, None);
    assert_eq!(fresh.restore(ours.path()).unwrap().format, SaveFormat::Genie);
    go_on_alike(&mut live, &mut fresh, "Genie's newer files");
    // Its save was cut short: ours still holds.
    fs::remove_file(ours.path().join("dialog.json")).unwrap();
    assert_eq!(fresh.restore(ours.path()).unwrap().format, SaveFormat::OpenGenie);
    assert_eq!(fresh.history(), early);
}

#[test]
fn what_is_refused_is_named_and_nothing_changes() {
    use compiler::Family::{Llama, Qwen2};
    let backend = backends::linked();
    let home = bundle(&backend, Llama, &[1, 8], &[64]);
    let foreign = bundle(&backend, Qwen2, &[1, 8], &[64]);
    let short = bundle(&backend, Llama, &[1, 8], &[16]);
    let saved = tempfile::tempdir().unwrap();
    let mut live = dialog(&home, &backend, None);
    let err = live.save(saved.path()).unwrap_err().to_string();
    assert_eq!(err, "nothing to save: the dialog has no tokens yet");
    ask(&mut live, 1, 20);
    live.save(saved.path()).unwrap();

    type Damage = (&'static str, fn(&Path), &'static str);
    let cut = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 5]).unwrap();
    };
    let cases: Vec<(Damage, Option<&'static str>)> = vec![
        ((SNAPSHOT, cut, "torn snapshot"), None),
        ((SNAPSHOT, |p| flip(p, 8, 9), "snapshot version 9 is newer than this build reads"), None),
        ((SNAPSHOT, |p| flip(p, 0, 0), "not a cache snapshot"), None),
        ((SNAPSHOT, |p| flip(p, 4000, 1), "corrupt snapshot"), None),
        ((KV, cut, "torn snapshot"), Some(SNAPSHOT)),
        ((KV, |p| flip(p, 4, 0), "does not begin as Genie's cache file does"), Some(SNAPSHOT)),
        ((HISTORY, cut, "`token-history-slot-0` has"), Some(SNAPSHOT)),
        (("dialog.json", cut, "`dialog.json` is not Genie's"), Some(SNAPSHOT)),
        (("sampler.primary.rng", |p| fs::write(p, "1 2 3").unwrap(), "the random state has 3 words"), Some(SNAPSHOT)),
        (
            ("dialog.json", |p| fs::remove_file(p).unwrap(), "it has neither `open-genie.kvs` nor `dialog.json`"),
            Some(SNAPSHOT),
        ),
    ];
    let mut twin = dialog(&home, &backend, None);
    twin.restore(saved.path()).unwrap();
    for ((name, damage, want), without) in cases {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(saved.path()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        without.into_iter().for_each(|name| fs::remove_file(copy.path().join(name)).unwrap());
        damage(&copy.path().join(name));
        let err = with_causes(&live.restore(copy.path()).expect_err(want));
        assert!(err.contains(want), "{name}: {err}");
    }
    go_on_alike(&mut live, &mut twin, "after ten refusals");

    let mut other = dialog(&foreign, &backend, None);
    ask(&mut other, 1, 4);
    let before = other.history();
    let err = with_causes(&other.restore(saved.path()).unwrap_err());
    assert!(err.contains("saved with other weights"), "{err}");
    assert_eq!((other.history(), other.n_past()), (before.clone(), before.len() - 1));
    let err = dialog(&short, &backend, None).restore(saved.path()).unwrap_err().to_string();
    assert_eq!(err, "context limit exceeded: 0 past + 26 new tokens > 16");
    let err = live.restore(Path::new("/nowhere/at/all")).unwrap_err().to_string();
    assert_eq!(err, "cannot restore from `/nowhere/at/all`: there is no such folder");
}

/// An error and what caused it, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn flip(path: &Path, at: usize, to: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] = if bytes[at] == to { to ^ 0xff } else { to };
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_prompt_begins_with_what_the_store_knows_of_it() {
    let backend = backends::linked();
    let home = bundle(&backend, compiler::Family::Llama, &[1, 8], &[128]);
    let folder = tempfile::tempdir().unwrap();
    let open = || engine(&home, &backend, None);
    let model = open().model_hash().unwrap();
    let cache = PrefixCache::new(PrefixStore::open(folder.path(), model, 64 << 20).unwrap(), 16);
    let system: Vec<TokenId> = (0..40).map(|i| TokenId(i * 13 % 300)).collect();
    let prompt = |end: u32| system.iter().copied().chain((0..9).map(|i| TokenId(i * 7 + end))).collect::<Vec<_>>();
    let mut plain = open();
    for (end, n_new_at_most) in [(1, 49usize), (2, 17), (1, 1)] {
        let mut known = open();
        let found = cache.process(&mut known, &prompt(end)).unwrap().value;
        plain.reset().unwrap();
        let want = plain.process(&prompt(end)).unwrap();
        let off = found.iter().zip(want).fold(0.0f32, |off, (a, b)| off.max((a - b).abs()));
        assert!(off < 1e-4, "prompt {end}: off by {off}");
        assert_eq!((known.n_past(), known.history()), (49, prompt(end).as_slice()));
        // 49, then 17 behind the 32 that are stored and shared, then only the last one again.
        let ran = known.steps().names().map(|name| if name.starts_with("ar8_") { 8usize } else { 1 }).sum::<usize>();
        assert!(ran.div_ceil(8) * 8 <= n_new_at_most.div_ceil(8) * 8, "prompt {end}: {ran} columns ran");
    }
    // A prompt that is refused leaves nothing behind.
    let mut known = open();
    let mut bad = prompt(1);
    bad.push(TokenId(100_000));
    assert!(cache.process(&mut known, &bad).is_err());
    assert_eq!((known.n_past(), known.history().len()), (0, 0));
}
