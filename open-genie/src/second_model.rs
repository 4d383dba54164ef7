//! The other model of a dialog of two, opened: the config's second engine, or a bundle of its own.

use dialog::config::EngineRole;
use engine::Engine;

use crate::Error;
use crate::backend::{self, ActiveBackend};
use crate::config_keys::OnCores;
use crate::model::Bundle;
use crate::options::Options;
use crate::speculation::Speculation;
use crate::threads::Threads;
use crate::weights::WeightCheck;

/// A loaded second model.
pub(crate) struct SecondModel {
    // Dropped in this order: the power vote outlives the engine.
    pub(crate) engine: Engine,
    pub(crate) bundle: Bundle,
    pub(crate) active: ActiveBackend,
}

/// The bundle of the second model, if one is named.
pub(crate) fn draft_bundle(speculation: &Speculation) -> Result<Option<Bundle>, Error> {
    let Some(bundle) = speculation.draft_bundle() else { return Ok(None) };
    Bundle::read(bundle).map(Some).map_err(|source| Error::SecondModel { role: "draft", source: Box::new(source) })
}

impl SecondModel {
    /// Opens it beside a first one, on the same backend where both have the same. `asked`: the options as they were given;
    /// `first`: those that the first model was opened with, and its backend. What a full context drops is the first model's
    /// alone.
    ///
    /// # Errors
    /// [`Error::SecondModel`] with the cause.
    pub(crate) fn open(
        bundle: Bundle,
        asked: &Options,
        first: (&Options, &ActiveBackend),
        threads: &Threads,
    ) -> Result<(Self, WeightCheck), Error> {
        let role = bundle.config().role();
        let role = if role.is_main() { EngineRole::Draft } else { role };
        Self::load(bundle, asked, first, threads).map_err(|source| {
            let source = Box::new(source);
            Error::SecondModel { role: role.name(), source }
        })
    }

    fn load(
        bundle: Bundle,
        asked: &Options,
        (options, active): (&Options, &ActiveBackend),
        threads: &Threads,
    ) -> Result<(Self, WeightCheck), Error> {
        let own = asked.clone().for_binaries(&bundle.config().engine().ctx_bins)?;
        let active = if own.backend == options.backend {
            active.share()
        } else {
            backend::start(&own, bundle.config().backend(), threads)?
        };
        let on_cores = OnCores::of_mask(bundle.config().backend().cpu_mask);
        let mut config = bundle.engine_config(&own);
        config.shared_memory = backend::shared_memory(&own, &active.backend)?;
        let engine = Engine::open(&config, &active.backend);
        let engine = engine.map_err(|source| Error::Graphs { source })?;
        drop(on_cores);
        let weights = WeightCheck::begin(bundle.config(), own.cache_folder.as_deref())?;
        Ok((Self { engine, bundle, active }, weights))
    }
}
