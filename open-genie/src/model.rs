//! A bundle, read and opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chat_template::ChatTemplate;
use dialog::sampler::SamplerRules;
use dialog::{Dialog, DialogConfig, Grammar, SamplerCallback, Tokenizer};
use engine::{Engine, EngineConfig, EngineError, ModelHash, PrefixCache, StopFlag, TokenModel};
use genie_bundle::calibration::CalibrationMismatch;
use genie_bundle::config::Problem;
use genie_bundle::{CALIBRATION_FILE, Manifest, config_path};
use kvmanager::plan::Policy;
use qnn_api::Backend;
use session_store::PrefixStore;

use crate::Error;
use crate::backend::{self, ActiveBackend};
use crate::calibration::CalibrationContext;
use crate::config_keys::{self, OnCores};
use crate::image;
use crate::long_context::LongContext;
use crate::options::{Options, PolicyChoice};
use crate::second_model::{self, SecondModel};
use crate::serving::{ServingParts, ServingSecond};
use crate::session::Session;
use crate::speculation::Speculation;
use crate::threads::Threads;
use crate::tokenizer_check;
use crate::tokenizer_job::TokenizerJob;
use crate::weights::WeightCheck;

/// A bundle's config, checked, before anything is loaded.
#[derive(Clone, Debug)]
pub struct Bundle {
    path: PathBuf,
    config: DialogConfig,
}

impl Bundle {
    /// Reads a bundle by its folder or by its config file.
    ///
    /// # Errors
    /// [`Error::Bundle`] if there is none, [`Error::Config`] with every problem of the config.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = config_path(path.as_ref())?;
        let config = DialogConfig::from_file(&path)?;
        Ok(Self { path, config })
    }

    /// The config file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The config.
    pub fn config(&self) -> &DialogConfig {
        &self.config
    }

    /// Keys of the config that are valid but do nothing, or something else than the writer may expect.
    pub fn warnings(&self) -> &[Problem] {
        self.config.warnings()
    }

    /// The name of its folder, as saved sessions keep it.
    pub fn name(&self) -> String {
        // `.` and `..` have no name of their own.
        let folder = self.config.base().canonicalize().unwrap_or_else(|_| self.config.base().to_owned());
        folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// The hash of the weights that saved caches carry; `None` for a bundle without a manifest.
    pub fn model_hash(&self) -> Option<ModelHash> {
        let manifest = Manifest::read(self.config.base()).ok()?;
        Some(ModelHash(manifest.model_mark()))
    }

    /// The same with another size of the dialog.
    pub(crate) fn with_context_size(mut self, size: usize) -> Self {
        self.config = self.config.with_context_size(size);
        self
    }

    /// Positions that the model was trained for; `None` if the bundle does not say.
    pub fn trained_positions(&self) -> Option<usize> {
        Manifest::read(self.config.base()).ok()?.source.positions.filter(|&positions| positions > 0)
    }

    /// Layers rotate keys in different ways, so that rows cannot be moved to other positions; `false` if the bundle does not say.
    pub fn has_mixed_rotation(&self) -> bool {
        Manifest::read(self.config.base()).is_ok_and(|manifest| manifest.source.mixed_rotation)
    }

    /// Its tokenizer, without loading anything else.
    ///
    /// # Errors
    /// The file cannot be read or used.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        Ok(Tokenizer::from_file(self.config.tokenizer())?)
    }

    /// The chat template that the bundle carries from its checkpoint; `None` if it has none.
    ///
    /// # Errors
    /// [`Error::Template`].
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        Ok(chat_template::find::in_folder(self.config.base(), None)?)
    }

    /// What an engine is opened with, apart from what a full context drops.
    pub(crate) fn engine_config(&self, options: &Options) -> EngineConfig {
        let mut config = self.config.engine().clone();
        config.model_hash = self.model_hash();
        config.mixed_rotation = self.has_mixed_rotation();
        config.bundle_name = self.name();
        config.kv_mode = options.kv_mode;
        config.embedding_callback = options.token_embedding.clone();
        config.dynamic_load |= options.dynamic_load;
        config.lets_weights_go |= options.lets_weights_go;
        if options.policy == PolicyChoice::Genie {
            // What a window keeps depends on it.
            config.policy = Policy::Genie;
        }
        config
    }

    /// The function that the config's sampler calls, if it calls one.
    pub(crate) fn sampler_callback(&self, options: &Options) -> Result<Option<SamplerCallback>, Error> {
        let Some(name) = self.config.sampler_callback() else { return Ok(None) };
        let found = options.sampler_callbacks.iter().find(|(own, _)| own == name);
        found.map(|(_, callback)| Some(callback.clone())).ok_or_else(|| Error::NoSamplerCallback { name: name.into() })
    }

    /// Opens the backend and loads the graphs.
    ///
    /// # Errors
    /// What the options ask for is not there, the graphs do not load, or a small binary is not the manifest's.
    pub fn open(mut self, options: &Options) -> Result<Model, Error> {
        let sampler_callback = self.sampler_callback(options)?;
        let began = Instant::now();
        let second = match (&options.speculation, self.config.of_second_engine()) {
            (Speculation::OfConfig, Some(config)) => Some(Self { path: self.path.clone(), config }),
            (speculation, _) => second_model::draft_bundle(speculation)?,
        };
        let long = options.long_context;
        if let (LongContext::OfConfig | LongContext::None, Some(found)) = (long, options.reserved_tokens) {
            return Err(Error::ReservedWithoutLongContext { found });
        }
        if let Some(size) = long.context_size(options.context_size, &self.config, || self.trained_positions()) {
            self = self.with_context_size(size);
        }
        let threads = Threads::new(options, self.config.backend().cpu_mask)?;
        let asked = options;
        let options = &asked.clone().for_binaries(&self.config.engine().ctx_bins)?;
        let active = backend::start(options, self.config.backend(), &threads)?;
        // A tokenizer that cannot be read is an error of the session, as without the key.
        let tokenizer = self.config.backend().async_init.then(|| TokenizerJob::begin(self.config.tokenizer()));
        let mut config = self.engine_config(options);
        config.shared_memory = backend::shared_memory(options, &active.backend)?;
        long.apply(options.reserved_tokens.unwrap_or(0), &mut config);
        let context = self.config.context();
        let on_cores = OnCores::of_mask(self.config.backend().cpu_mask);
        let engine = Engine::open(&config, &active.backend).map_err(|source| match source {
            EngineError::PadToken { found, vocab_size } => {
                let key = if context.pad.is_some() { "pad-token" } else { "eos-token" };
                Error::SpecialToken { key, token: found, vocab_size }
            }
            source => Error::Graphs { source },
        })?;
        drop(on_cores);
        config_keys::compare(&self, &engine);
        tokenizer_check::compare(&self.config);
        if let Some(token) = context.bos.filter(|bos| bos.0 as usize >= engine.vocab_size()) {
            return Err(Error::SpecialToken { key: "bos-token", token, vocab_size: engine.vocab_size() });
        }
        let mut weights = WeightCheck::begin(&self.config, options.cache_folder.as_deref())?;
        let mut other = None;
        if let Some(bundle) = second {
            if matches!(options.speculation, Speculation::Draft { .. } | Speculation::Eaglet { .. }) {
                second_model::warn_of_other_tokens(&self, &bundle);
            }
            let (opened, its_weights) = SecondModel::open(bundle, asked, (options, &active), &threads)?;
            weights = weights.join(its_weights);
            other = Some(opened);
        }
        let mut model = Model {
            engine,
            tokenizer,
            sampler_callback,
            second: other,
            speculation: options.speculation.clone(),
            weights,
            in_full: false,
            prefix_cache: None,
            calibration_mismatch: None,
            grammar: options.grammar.clone(),
            opening: began.elapsed(),
            threads,
            bundle: self,
            active,
        };
        model.calibration_mismatch = model.set_policy(options.policy)?;
        if let Some(cache) = &options.prefix_cache {
            // Its entries outlive this run.
            model.check_weights()?;
            let store = PrefixStore::open(&cache.folder, model.engine.model_hash()?, cache.max_bytes)?;
            model.prefix_cache = Some(PrefixCache::new(store, cache.min_tokens));
        }
        model.engine.executor_mut().set_profile(options.graph_profile.clone());
        model.opening = began.elapsed();
        Ok(model)
    }
}

/// A loaded model: tokens in, logits out. [`Model::into_session`] generates text with it.
///
/// `Send`: a server may open it on one thread and use it on another.
pub struct Model {
    // Dropped in this order: the power vote outlives the engine.
    engine: Engine,
    /// Under way since the graphs began to load, where the config has it so.
    tokenizer: Option<TokenizerJob>,
    /// Chooses tokens, where the config names it.
    sampler_callback: Option<SamplerCallback>,
    /// The other engine of two.
    second: Option<SecondModel>,
    speculation: Speculation,
    weights: WeightCheck,
    /// All files were read and compared since the model was opened.
    in_full: bool,
    prefix_cache: Option<PrefixCache>,
    calibration_mismatch: Option<CalibrationMismatch>,
    /// What replies must follow, if not what the config says.
    grammar: Option<Grammar>,
    opening: Duration,
    threads: Threads,
    bundle: Bundle,
    active: ActiveBackend,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("bundle", &self.bundle.path)
            .field("policy", &self.engine.policy().name())
            .finish()
    }
}

impl Model {
    /// Opens a model by its path: today a bundle's folder or its config.
    ///
    /// # Errors
    /// Those of [`Bundle::read`] and [`Bundle::open`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, Error> {
        Bundle::read(path)?.open(options)
    }

    /// A session with an empty context.
    ///
    /// # Errors
    /// The tokenizer cannot be loaded; a grammar cannot be followed with it.
    pub fn into_session(self) -> Result<Session, Error> {
        let began = Instant::now();
        let as_genie = matches!(self.engine.policy(), Policy::Genie);
        let image_encoder = image::encoder_of(&self.engine, &self.bundle.config.engine().ctx_bins);
        let tokenizer = match self.tokenizer {
            Some(job) => job.finish(),
            None => Tokenizer::from_file(self.bundle.config.tokenizer()),
        };
        let tokenizer = tokenizer.map_err(|source| Error::Dialog(source.into()))?;
        let dialog = Dialog::with_tokenizer(&self.bundle.config, tokenizer, Box::new(self.engine));
        let mut dialog = dialog.map_err(Error::Dialog)?;
        let second_active = match self.second {
            Some(second) => {
                dialog = dialog.with_second(Box::new(second.engine)).map_err(Error::Dialog)?;
                Some(second.active)
            }
            None => None,
        };
        if let Some(kind) =
            self.speculation.kind(self.bundle.config(), dialog.model().widest_step()).map_err(Error::Dialog)?
        {
            dialog.set_kind(kind).map_err(Error::Dialog)?;
        }
        if as_genie {
            dialog.set_sampler(dialog.sampler().settings().clone().with_rules(SamplerRules::Genie));
            // What it allows depends on the rules.
            if let Some(grammar) = dialog.grammar().cloned() {
                dialog.set_grammar(Some(&grammar)).map_err(Error::Dialog)?;
            }
        }
        dialog.set_sampler_callback(self.sampler_callback);
        if self.grammar.is_some() {
            dialog.set_grammar(self.grammar.as_ref()).map_err(Error::Dialog)?;
        }
        dialog.set_prefix_cache(self.prefix_cache);
        dialog.set_init_time(self.opening + began.elapsed());
        let mut session = Session::new(dialog, self.weights, self.bundle, (self.active, second_active));
        session.image_encoder = image_encoder;
        Ok(session)
    }

    /// What serving needs of it.
    pub(crate) fn into_parts(mut self) -> ServingParts {
        self.engine.keep_holes();
        let as_genie = matches!(self.engine.policy(), Policy::Genie);
        let stop = self.stop_flag();
        let second = self.second.map(|mut second| {
            second.engine.keep_holes();
            ServingSecond { model: Box::new(second.engine), active: second.active }
        });
        ServingParts {
            model: Box::new(self.engine),
            second,
            stop,
            weights: self.weights,
            bundle: self.bundle,
            active: self.active,
            speculation: self.speculation,
            sampler_callback: self.sampler_callback,
            prefix_cache: self.prefix_cache,
            grammar: self.grammar,
            as_genie,
        }
    }

    /// Makes sure that the weights are those that were written: compares what was not compared since the files changed.
    /// Measurements and whatever is kept should wait for it; a [`Session`] does it by itself.
    ///
    /// # Errors
    /// [`Error::DamagedWeights`], [`Error::OtherWeights`].
    pub fn check_weights(&mut self) -> Result<(), Error> {
        self.weights.finish()
    }

    /// Reads all weights again, also those that were compared in an earlier run, and compares them with the manifest's hashes
    /// and with their own checksums; once per opened model.
    ///
    /// # Errors
    /// [`Error::DamagedWeights`], [`Error::OtherWeights`].
    pub fn check_weights_in_full(&mut self) -> Result<(), Error> {
        if !self.in_full {
            WeightCheck::in_full(&self.bundle.config)?;
            self.second.as_ref().map_or(Ok(()), |second| WeightCheck::in_full(second.bundle.config()))?;
            self.in_full = true;
        }
        Ok(())
    }

    /// The bundle it was opened from.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// The other engine of two: a draft, or one that goes on for the first.
    pub fn second_engine(&self) -> Option<&Engine> {
        self.second.as_ref().map(|second| &second.engine)
    }

    /// The engine, for token-level work.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, for token-level work.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// What stops this model from another thread: while it is set, each call that runs graphs ends before its next step
    /// with [`EngineError::Stopped`](engine::EngineError::Stopped). For sessions there is
    /// [`Session::stop_handle`].
    pub fn stop_flag(&self) -> StopFlag {
        self.engine.stop_flag().unwrap_or_default()
    }

    /// The backend that executes the graphs.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.active.backend
    }

    /// The threads of the embedded backend.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Loads the bundle's tokenizer.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        Ok(Tokenizer::from_file(self.bundle.config.tokenizer())?)
    }

    /// Why nominal costs are used although [`PolicyChoice::Cost`] was chosen, or although there are measured ones; `None` if those are
    /// used, or no costs.
    pub fn calibration_mismatch(&self) -> Option<&CalibrationMismatch> {
        self.calibration_mismatch.as_ref()
    }

    /// What the bundle's calibration must match here.
    ///
    /// # Errors
    /// The binaries cannot be read.
    pub fn calibration(&self) -> Result<CalibrationContext, Error> {
        CalibrationContext::new(&self.bundle, &self.active.backend)
    }

    /// The planner's policy for a choice; with the reason where nominal costs stand in for measured ones.
    ///
    /// # Errors
    /// The binaries cannot be read.
    pub fn policy(&self, choice: PolicyChoice) -> Result<(Policy, Option<CalibrationMismatch>), Error> {
        let (variants, on_embedded) = (self.engine.variants(), backend::is_embedded(self.active.backend.library()));
        let nominal = choice.nominal(variants, on_embedded);
        let is_measured = || self.bundle.config.base().join(CALIBRATION_FILE).exists();
        if !matches!(nominal, Policy::Cost(_)) || choice == PolicyChoice::Auto && !is_measured() {
            return Ok((nominal, None));
        }
        match self.calibration()?.costs(variants) {
            Ok(table) => Ok((Policy::Cost(table.into()), None)),
            Err(mismatch) => Ok((nominal, Some(mismatch))),
        }
    }

    /// Takes a policy from the next query on; returns what [`Self::policy`] does.
    ///
    /// # Errors
    /// Those of [`Self::policy`].
    pub fn set_policy(&mut self, choice: PolicyChoice) -> Result<Option<CalibrationMismatch>, Error> {
        let (policy, mismatch) = self.policy(choice)?;
        self.engine.set_policy(policy);
        Ok(mismatch)
    }
}
