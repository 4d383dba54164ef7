//! EAGLE heads compiled from a checkpoint, on the host: what they compute, what they draft, and what is refused.

use std::path::Path;
use std::sync::Arc;

use compiler::testmodel::{TestEagle, TestModel};
use compiler::{CompileOptions, Family, GraphKinds, Precision, Silent};
use conformance::backends;
use dialog::kinds::{Basic, Eaglet, EagletSettings};
use dialog::{Dialog, DialogConfig, DialogKind, Reply, SamplerSettings, SentenceCode};
use engine::{Engine, FeatureModel, SeqId, SeqTokens, TokenModel};
use genie_types::TokenId;
use qnn_api::Backend;

/// A model, its head, and their bundles.
struct Pair {
    folder: tempfile::TempDir,
    backend: Arc<Backend>,
}

impl Pair {
    fn compile(head: &TestEagle, change: impl Fn(&mut CompileOptions)) -> Self {
        let pair = Self { folder: tempfile::tempdir().unwrap(), backend: backends::linked() };
        let model = TestModel::tiny(Family::Llama);
        model.write(&pair.at("model")).unwrap();
        head.write(&model, &pair.at("head")).unwrap();
        let mut target = options(&pair.at("model"), &pair.at("target"));
        target.kinds = GraphKinds { hidden_states: true, ..GraphKinds::default() };
        let mut draft = options(&pair.at("head"), &pair.at("draft"));
        draft.eagle_of = Some(pair.at("model"));
        for options in [&mut target, &mut draft] {
            change(options);
            compiler::compile(options, &pair.backend, &mut Silent).unwrap();
        }
        pair
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self, name: &str) -> DialogConfig {
        DialogConfig::from_file(self.at(name).join("genie_config.json")).unwrap()
    }

    fn engine(&self, name: &str) -> Engine {
        Engine::open(self.config(name).engine(), &self.backend).unwrap()
    }

    fn dialog(&self, kind: Box<dyn DialogKind>, sampler: &SamplerSettings) -> Dialog {
        let dialog = Dialog::new(&self.config("target"), Box::new(self.engine("target"))).unwrap();
        let mut dialog = dialog.with_second(Box::new(self.engine("draft"))).unwrap();
        dialog.set_sampler(sampler.clone());
        dialog.set_kind(kind).unwrap();
        dialog
    }
}

fn options(model: &Path, out: &Path) -> CompileOptions {
    CompileOptions {
        ars: vec![1, 8, 32],
        cls: vec![1152],
        precision: Precision::F32,
        ..CompileOptions::new(model, out)
    }
}

fn prompt(n: u32) -> Vec<TokenId> {
    (0..n).map(|i| TokenId(i * 7 % 250)).collect()
}

fn eaglet() -> Box<dyn DialogKind> {
    let settings = EagletSettings { draft_len: 3, n_branches: 2, max_rows: 7, early_stop: None };
    Box::new(Eaglet::new(settings).unwrap().always())
}

fn reply(mut dialog: Dialog, n: usize) -> Reply {
    dialog.control().set_max_num_tokens(Some(n));
    dialog.token_query(&prompt(40), SentenceCode::Complete, |_| ()).unwrap()
}

#[test]
fn a_head_that_passes_hidden_states_through_has_the_targets_logits_of_the_token_before() {
    for precision in [Precision::F32, Precision::F16] {
        let head = TestEagle { passes_through: true, ..TestEagle::default() };
        let pair = Pair::compile(&head, |options| options.precision = precision);
        let (mut target, mut draft) = (pair.engine("target"), pair.engine("draft"));
        assert_eq!((target.feature_widths().given, draft.feature_widths().taken), (Some(64), Some(64)));
        target.keep_features(true).unwrap();
        let (tokens, mut expected) = (prompt(13), Vec::new());
        for token in &tokens {
            expected.push(target.process(&[*token]).unwrap().to_vec());
        }
        let rows: Vec<f32> = (0..12).flat_map(|i| target.feature(i).unwrap().to_vec()).collect();
        for n in [1, 5, 12] {
            draft.reset().unwrap();
            let input = SeqTokens { seq: SeqId(0), tokens: &tokens[1..=n] };
            let mut seen = 0;
            draft
                .process_features(&[input], &rows[..n * 64], &mut |_, logits, features| {
                    seen += 1;
                    assert_eq!(features, &rows[(n - 1) * 64..n * 64], "{precision:?}, {n} tokens");
                    let worst = logits.iter().zip(&expected[n - 1]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    let most = if precision == Precision::F32 { 1e-4 } else { 2e-2 };
                    assert!(worst < most, "{precision:?}, {n} tokens: logits differ by {worst}");
                })
                .unwrap();
            assert_eq!(seen, 1);
        }
    }
}

#[test]
fn a_thousand_tokens_are_those_of_basic() {
    // Tokens, greedy and sampled.
    let heads = [
        (TestEagle::default(), [1_000, 300]),
        (TestEagle { fc_bias: false, with_table: true, ..TestEagle::default() }, [200, 100]),
        (TestEagle { passes_through: true, ..TestEagle::default() }, [200, 100]),
    ];
    let hot = SamplerSettings::default().with_seed(Some(11)).with_top_k(4).with_temp(0.9).unwrap();
    let mut n_accepted = 0;
    for (head, lengths) in heads {
        let pair = Pair::compile(&head, |_| ());
        for (sampler, n) in [SamplerSettings::argmax(), hot.clone()].iter().zip(lengths) {
            let expected = reply(pair.dialog(Box::new(Basic), sampler), n);
            let found = reply(pair.dialog(eaglet(), sampler), n);
            assert_eq!(expected.tokens.len(), n);
            assert_eq!(found.tokens, expected.tokens, "{head:?}");
            let counts = found.kpis.speculation.unwrap();
            assert!(counts.n_rounds > n / 8, "{head:?}: {counts:?}");
            n_accepted += counts.n_accepted;
        }
    }
    // A random head is right now and then.
    assert!(n_accepted > 0);
}

/// A bundle is compiled again when any of the files changed that its head is read from: its own, and the target's, which has the table.
#[test]
fn a_heads_hash_is_that_of_all_that_it_is_compiled_from() {
    let hash = |model: &TestModel, head: &TestEagle, change: fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        model.write(&at("model")).unwrap();
        head.write(model, &at("head")).unwrap();
        change(folder.path());
        let options = CompileOptions { eagle_of: Some(at("model")), ..options(&at("head"), &at("draft")) };
        compiler::compile(&options, &backends::linked(), &mut Silent).unwrap();
        let manifest = genie_bundle::Manifest::read(&at("draft")).unwrap();
        assert_eq!(manifest.options.drafts_for.as_deref(), Some("model"));
        manifest.source.sha256
    };
    let (model, head) = (TestModel::tiny(Family::Llama), TestEagle::default());
    let own = hash(&model, &head, |_| ());
    assert_eq!(hash(&model, &head, |_| ()), own, "the same files");
    let theta = |folder: &Path| {
        let path = folder.join("head/config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config["rope_theta"] = 5e5.into();
        std::fs::write(path, config.to_string()).unwrap();
    };
    let others = [
        hash(&model, &TestEagle { seed: 6, ..head.clone() }, |_| ()),
        hash(&model, &head, theta),
        hash(&TestModel { seed: 99, ..model.clone() }, &head, |_| ()),
    ];
    for (other, what) in others.iter().zip(["its weights", "its config", "the target's weights"]) {
        assert_ne!(*other, own, "{what}");
    }
}

#[test]
fn what_cannot_be_a_head_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (model, backend) = (TestModel::tiny(Family::Llama), backends::linked());
    model.write(&at("model")).unwrap();
    TestEagle::default().write(&model, &at("head")).unwrap();
    TestEagle::default().write(&TestModel { hidden: 32, head_dim: 8, ..model.clone() }, &at("narrow")).unwrap();
    TestModel::tiny(Family::Gemma2).write(&at("gemma")).unwrap();
    for (head, target, expected) in [
        ("narrow", "model", "`hidden_size` of the EAGLE head: expected 64 as its target has, found 32"),
        (
            "model",
            "model",
            "no head of EAGLE-1 or EAGLE-2: expected `fc.weight` and layers `layers.N`, found no `fc.weight`",
        ),
        ("head", "gemma", "hidden states of family `gemma2`"),
        ("head", "nowhere", "nowhere"),
    ] {
        let options = CompileOptions { eagle_of: Some(at(target)), ..options(&at(head), &at("out")) };
        let error = compiler::compile(&options, &backend, &mut Silent).unwrap_err().to_string();
        assert!(error.contains(expected), "{head} for {target}: {error}");
        assert!(!at("out").exists());
    }
    // A head alone is no model.
    let error = compiler::compile(&options(&at("head"), &at("out")), &backend, &mut Silent).unwrap_err().to_string();
    assert!(error.contains("model.embed_tokens.weight"), "{error}");
}
