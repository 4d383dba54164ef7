//! A small model with hidden states and a draft model for it, compiled for a backend, with a config for each kind that drafts trees.

use std::path::{Path, PathBuf};

use compiler::testmodel::{TestEagle, TestModel};
use compiler::{CompileOptions, Family, HtpOptions};
use genie_bundle::manifest::Precision;
use open_genie::serving::{Finished, Request, ServeOptions, Serving, StepTime, StepTimes};
use open_genie::{BackendChoice, Bundle, Options, TokenId, open_backend};
use serde_json::{Value, json};

use crate::ticks::serve;

/// The chip of bundles for the HTP.
pub const TARGET: &str = "sm8650";
/// Tokens of the vocabulary; the model has two more, which are taken for forecast tokens.
pub const VOCAB: usize = 318;

/// Bundles of one backend.
pub struct Bundles {
    _folder: tempfile::TempDir,
    pub plain: PathBuf,
    /// A draft model for it, whose logits are the model's own of the token before.
    pub head: PathBuf,
}

impl Bundles {
    /// Compiles them: for a chip, or for the embedded backend.
    pub fn new(htp: Option<HtpOptions>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let on = match htp {
            Some(_) => Options::new().backend(BackendChoice::Htp).soc(TARGET),
            None => Options::new(),
        };
        let backend = open_backend(&on).unwrap();
        let (source, plain) = (folder.path().join("model"), folder.path().join("plain"));
        let model = TestModel { seed: 11, vocab: VOCAB + 2, head_dim: 32, ..TestModel::tiny(Family::Llama) };
        model.write(&source).unwrap();
        let (trained, head) = (folder.path().join("trained"), folder.path().join("head"));
        TestEagle { passes_through: true, ..TestEagle::default() }.write(&model, &trained).unwrap();
        for (from, to) in [(&source, &plain), (&trained, &head)] {
            let mut options = CompileOptions::new(from, to);
            (options.ars, options.cls, options.htp) = (vec![1, 8, 64], vec![256], htp);
            options.precision = if htp.is_some() { options.precision } else { Precision::F32 };
            options.kinds.hidden_states = from == &source;
            options.eagle_of = (from == &trained).then(|| source.clone());
            compiler::compile(&options, &backend, &mut compiler::Silent).unwrap();
        }
        drop(backend);
        let made = Self { _folder: folder, plain, head };
        let tokens: Vec<TokenId> = (1..5).map(TokenId).collect();
        let run = if htp.is_some() { Options::new() } else { options_of_one() };
        let mut model = Bundle::read(made.basic()).unwrap().open(&run).unwrap();
        model.make_forecast_prefix(&tokens, &made.plain.join("forecast-prefix")).unwrap();
        drop(model);
        made
    }

    pub fn of_kind(&self, kind: &str, block: Value) -> PathBuf {
        config_with(&self.plain, &format!("{kind}.json"), |dialog| {
            dialog["context"]["n-vocab"] = VOCAB.into();
            dialog["type"] = kind.into();
            dialog[kind] = block;
        })
    }

    pub fn basic(&self) -> PathBuf {
        self.of_vocabulary(VOCAB)
    }

    /// Forecast tokens begin behind the vocabulary.
    pub fn of_vocabulary(&self, n: usize) -> PathBuf {
        config_with(&self.plain, &format!("basic-{n}.json"), |dialog| dialog["context"]["n-vocab"] = n.into())
    }

    pub fn lade(&self) -> PathBuf {
        self.of_kind("lade", json!({"version": 1, "window": 3, "ngram": 3, "gcap": 3}))
    }

    pub fn ssd(&self) -> PathBuf {
        let block = json!({"version": 1, "ssd-version": 1, "forecast-token-count": 2, "branches": [2, 1], "forecast-prefix": 4,
                           "forecast-prefix-name": "forecast-prefix"});
        self.of_kind("ssd-q1", block)
    }

    /// Both models by one config, as Genie has it.
    pub fn eaglet(&self) -> PathBuf {
        let of_head: Value =
            serde_json::from_slice(&std::fs::read(self.head.join("genie_config.json")).unwrap()).unwrap();
        config_with(&self.plain, "eaglet.json", |dialog| {
            dialog["context"]["n-vocab"] = VOCAB.into();
            dialog["type"] = "eaglet".into();
            dialog["eaglet"] = json!({"version": 1, "eaglet-version": 1, "draft-len": 3, "n-branches": 2,
                                      "max-tokens-target-can-evaluate": 7, "draft-kv-cache": true});
            let (mut target, mut draft) = (dialog["engine"].clone(), of_head["dialog"]["engine"].clone());
            (target["role"], draft["role"]) = ("target".into(), "draft".into());
            for path in draft["model"]["binary"]["ctx-bins"].as_array_mut().unwrap() {
                *path = self.head.join(path.as_str().unwrap()).display().to_string().into();
            }
            dialog["engine"] = json!([target, draft]);
        })
    }
}

pub fn options_of_one() -> Options {
    Options::new().threads(1)
}

/// The bundle's config, changed, beside it; in one piece, as tests run side by side.
fn config_with(bundle: &Path, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut config: Value = serde_json::from_slice(&std::fs::read(bundle.join("genie_config.json")).unwrap()).unwrap();
    change(&mut config["dialog"]);
    let path = bundle.join(name);
    let written = tempfile::NamedTempFile::new_in(bundle).unwrap();
    std::fs::write(written.path(), config.to_string()).unwrap();
    written.persist(&path).unwrap();
    path
}

/// As if a wide step took as long as a narrow one: whether trees are worth their rows does not depend on this machine then.
pub fn serve_options() -> ServeOptions {
    let step_times = StepTimes::new([1, 8, 64].map(|width| StepTime::new(width, 1_000.0)));
    ServeOptions { step_times, ..ServeOptions::default() }
}

pub fn open(config: &Path, options: &Options) -> Serving {
    open_with(config, options, serve_options())
}

pub fn open_with(config: &Path, options: &Options, serve: ServeOptions) -> Serving {
    Bundle::read(config).unwrap().open_serving(options, serve).unwrap()
}

/// Replies of `n_tokens`, greedy ones, or every other one `sampled` with a seed of its own.
fn requests(serving: &mut Serving, n: u32, n_tokens: usize, sampled: bool) -> Vec<Request> {
    let defaults = serving.scheduler().base().defaults().clone();
    let request = |seed: u32| {
        let mut settings = defaults.clone();
        let is_greedy = !sampled || seed.is_multiple_of(2);
        let sampler = settings.sampler.with_greedy(is_greedy).with_seed(Some(seed));
        settings.sampler = sampler.with_temp(0.7).unwrap();
        (settings.max_tokens, settings.ignore_end_tokens) = (Some(n_tokens), true);
        // The later ones begin alike.
        let (same, n) = if seed < 4 { (0, 3 + seed * 5) } else { (12, 16 + seed) };
        let prompt = (0..n).map(|i| TokenId(20 + (i * 7 + if i < same { 0 } else { seed * 13 }) % 200)).collect();
        Request { prompt, settings, priority: 0 }
    };
    (0..n).map(request).collect()
}

/// All at once; returns what became of them, and how many steps it took.
pub fn serve_n(serving: &mut Serving, n: u32, n_tokens: usize, sampled: bool) -> (Vec<Finished>, usize) {
    let requests = requests(serving, n, n_tokens, sampled);
    let found = serve(serving, requests, |_, _| ());
    (found, serving.scheduler().counts().n_steps)
}
