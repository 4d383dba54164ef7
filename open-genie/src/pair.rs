//! A bundle's fused graphs, opened: sequences that prefill and decode side by side.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dialog::Dialog;
use engine::{PairRunner, StopFlag, TokenModel};
use qnn_api::Backend;

use crate::Error;
use crate::backend::{self, ActiveBackend};
use crate::config_keys::OnCores;
use crate::long_context::LongContext;
use crate::model::Bundle;
use crate::options::{Options, PolicyChoice, SharedMemoryChoice};
use crate::serving::ServingParts;
use crate::session::Session;
use crate::speculation::Speculation;
use crate::threads::Threads;
use crate::weights::WeightCheck;

/// A loaded fused pair. [`PairModel::into_session`] generates text with it, one sequence after the other; a scheduler has
/// [`PairModel::runner_mut`].
pub struct PairModel {
    // Dropped in this order: the power vote outlives the graphs.
    runner: PairRunner,
    weights: WeightCheck,
    /// All files were read and compared since the model was opened.
    in_full: bool,
    threads: Threads,
    options: Options,
    opening: Duration,
    bundle: Bundle,
    active: ActiveBackend,
}

impl std::fmt::Debug for PairModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PairModel").field("bundle", &self.bundle.path()).finish()
    }
}

impl Bundle {
    /// Opens the backend and loads the fused graphs; others are left alone.
    ///
    /// # Errors
    /// [`Error::NoFusedGraphs`]; options that fused graphs have no form for; as [`Bundle::open`].
    pub fn open_pair(mut self, options: &Options) -> Result<PairModel, Error> {
        let began = Instant::now();
        // Rows of a draft would be steps of their own: slower than none.
        let drafts = match options.speculation {
            Speculation::Off => false,
            Speculation::OfConfig => matches!(self.config().kind(), "lookup" | "lade" | "ssd-q1"),
            _ => true,
        };
        let asked = [
            (options.prefix_cache.is_some(), "a cache of prompt prefixes"),
            (
                !matches!(options.long_context, LongContext::OfConfig | LongContext::None),
                "a longer context than the graphs'",
            ),
            (self.config().of_second_engine().is_some(), "a second engine"),
            (drafts, "drafts"),
            (options.policy != PolicyChoice::Auto, "a planner policy"),
            (options.kv_mode.is_some(), "another way to keep the cache"),
            (options.shared_memory == SharedMemoryChoice::On, "shared memory"),
        ];
        if let Some((_, what)) = asked.iter().find(|(asked, _)| *asked) {
            return Err(Error::NotWithFused { what });
        }
        let threads = Threads::new(options, self.config().backend().cpu_mask)?;
        let options = options.clone().for_binaries(&self.config().engine().ctx_bins)?;
        let active = backend::start(&options, self.config().backend(), &threads)?;
        let mut config = self.engine_config(&options);
        if let Some(size) = options.context_size {
            config.context_size = Some(size);
            self = self.with_context_size(size);
        }
        let on_cores = OnCores::of_mask(self.config().backend().cpu_mask);
        let opened = PairRunner::open(&config, &active.backend).map_err(|source| Error::Graphs { source })?;
        drop(on_cores);
        let mut runner = opened.ok_or_else(|| Error::NoFusedGraphs { path: self.path().to_owned() })?;
        runner.executor_mut().set_profile(options.graph_profile.clone());
        let context = self.config().context();
        if let Some(token) = context.bos.filter(|bos| bos.0 as usize >= runner.vocab_size()) {
            return Err(Error::SpecialToken { key: "bos-token", token, vocab_size: runner.vocab_size() });
        }
        let weights = WeightCheck::begin(self.config(), options.cache_folder.as_deref())?;
        Ok(PairModel {
            runner,
            weights,
            in_full: false,
            threads,
            options,
            opening: began.elapsed(),
            bundle: self,
            active,
        })
    }
}

impl PairModel {
    /// A session with an empty context.
    ///
    /// # Errors
    /// As [`Model::into_session`](crate::Model::into_session).
    pub fn into_session(self) -> Result<Session, Error> {
        let began = Instant::now();
        let Self { runner, weights, options, opening, bundle, active, .. } = self;
        let mut dialog = Dialog::new(bundle.config(), Box::new(runner)).map_err(Error::Dialog)?;
        if let Some(kind) = options.speculation.kind(bundle.config(), None).map_err(Error::Dialog)? {
            dialog.set_kind(kind).map_err(Error::Dialog)?;
        }
        dialog.set_sampler_callback(bundle.sampler_callback(&options)?);
        if options.grammar.is_some() {
            dialog.set_grammar(options.grammar.as_ref()).map_err(Error::Dialog)?;
        }
        dialog.set_init_time(opening + began.elapsed());
        Ok(Session::new(dialog, weights, bundle, (active, None)))
    }

    /// What serving needs of it.
    pub(crate) fn into_parts(self) -> Result<ServingParts, Error> {
        let stop = self.stop_flag();
        let sampler_callback = self.bundle.sampler_callback(&self.options)?;
        Ok(ServingParts {
            model: Box::new(self.runner),
            second: None,
            stop,
            weights: self.weights,
            bundle: self.bundle,
            active: self.active,
            speculation: self.options.speculation,
            sampler_callback,
            prefix_cache: None,
            grammar: self.options.grammar,
            as_genie: false,
        })
    }

    /// The bundle it was opened from.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// The sequences, for token-level work.
    pub fn runner(&self) -> &PairRunner {
        &self.runner
    }

    /// The sequences, for token-level work.
    pub fn runner_mut(&mut self) -> &mut PairRunner {
        &mut self.runner
    }

    /// What stops this model from another thread, between two steps.
    pub fn stop_flag(&self) -> StopFlag {
        self.runner.stop_flag().unwrap_or_default()
    }

    /// The backend that executes the graphs.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.active.backend
    }

    /// The threads of the embedded backend.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// As [`Model::check_weights_in_full`](crate::Model::check_weights_in_full).
    ///
    /// # Errors
    /// As there.
    pub fn check_weights_in_full(&mut self) -> Result<(), Error> {
        if !self.in_full {
            WeightCheck::in_full(self.bundle.config())?;
            self.in_full = true;
        }
        Ok(())
    }

    /// As [`Model::check_weights`](crate::Model::check_weights).
    ///
    /// # Errors
    /// As there.
    pub fn check_weights(&mut self) -> Result<(), Error> {
        self.weights.finish()
    }
}

impl Error {
    /// The bundle has fused graphs and no plain ones: [`Bundle::open_pair`] runs them.
    pub fn is_only_fused(&self) -> bool {
        matches!(self, Self::Graphs { source } if source.is_only_fused())
    }
}
