//! Many requests on one model: the front door of crate `serving`.

use std::path::Path;

use dialog::sampler::SamplerRules;
pub use dialog::sampler::{SettingsError, TokenPenalty};
use dialog::{DialogError, Grammar, SamplerCallback};
pub use dialog::{ReplyPiece, RequestBase, RequestSettings, sampler::Logprobs};
use engine::calibrate::{ServingStep, median};
pub use engine::{CellRun, GroupCells, RowBudget};
use engine::{ModelHash, PrefixCache, SeqId, Snapshot, StopFlag, TokenModel};
pub use serving::{
    Arrived, BatchingSettings, Counts, Event, Finished, Mixing, Parking, Policy, Request, RequestHandle, RequestId,
    RequestTimes, RowsOfStep, Scheduler, ServeError, ServeOptions, Server, Slot, SlotState, StepTime, StepTimes,
    TickEvent, TickReport, TickWatch, WatchEnded,
};

use crate::Error;
use crate::backend::ActiveBackend;
use crate::model::{Bundle, Model};
use crate::opened::Opened;
use crate::options::Options;
use crate::pair::PairModel;
use crate::served_drafts::{self, Drafts};
use crate::speculation::Speculation;
use crate::weights::WeightCheck;

/// A model that serves many requests, tick by tick; [`start`](Self::start) runs it on a thread.
#[derive(Debug)]
pub struct Serving {
    // Dropped in this order: the power vote outlives the model.
    scheduler: Scheduler,
    note: Option<String>,
    stop: StopFlag,
    weights: WeightCheck,
    bundle: Bundle,
    active: Actives,
}

/// The backends of a model and of its draft model.
type Actives = (ActiveBackend, Option<ActiveBackend>);

/// A model that serves many requests on a thread of its own.
#[derive(Debug)]
pub struct RunningServer {
    server: Server,
    _active: Actives,
}

impl Model {
    /// Times of steps by width, for choosing how wide a step is: those of the bundle's calibration, `None` without one that was made
    /// here.
    ///
    /// # Errors
    /// The binaries cannot be read.
    pub fn step_times(&self) -> Result<Option<StepTimes>, Error> {
        let calibration = self.calibration()?;
        Ok(calibration.costs(self.engine().variants()).ok().and_then(|table| {
            let stored = calibration.serving().unwrap_or_default();
            let stored =
                stored.iter().map(|s| StepTime { width: s.width, us: s.median_us, us_empty: s.median_empty_us });
            // An earlier build's file has the times with full caches alone.
            StepTimes::new(stored).or_else(|| {
                let longest = self.engine().variants().max_ctx();
                let steps = table.steps().iter().filter(|(spec, _)| spec.cl().get() == longest);
                StepTimes::new(steps.map(|(spec, us)| StepTime::new(spec.ar().get(), *us)))
            })
        }))
    }

    /// Measures a step of each width with a full context and with an empty one, `reps` times; takes the medians.
    ///
    /// # Errors
    /// A graph fails.
    pub fn measure_step_times(&mut self, reps: usize) -> Result<Option<StepTimes>, Error> {
        let measured = self.engine_mut().time_serving(reps).map_err(DialogError::from).map_err(Error::Dialog)?;
        Ok(medians(&measured))
    }

    /// Serves many requests with this model. Its config's sampler, stop sequences and grammar, and those of its options, are those of
    /// requests that say nothing else. Types that draft do as the config says; where the steps of the model
    /// cannot hold their drafts, [`Serving::note`] says so. Without serving options, those of the config's `batching` block: [`Bundle::serve_options`]. Prompts begin
    /// with the prefix cache of the model's options, if there is one.
    ///
    /// Options without [`step_times`](ServeOptions::step_times) get those of the bundle's calibration. Where there are none, a step of each
    /// width is timed if the options have a [`target`](ServeOptions::target), which takes seconds for a large model.
    ///
    /// # Errors
    /// [`Error::Serving`]; the tokenizer cannot be loaded; [`Error::Dialog`] for another kind of dialog, or a graph that fails.
    pub fn into_serving(mut self, options: impl Into<Option<ServeOptions>>) -> Result<Serving, Error> {
        let mut options = options.into().unwrap_or_else(|| self.bundle().serve_options());
        if options.step_times.is_none() {
            options.step_times = self.step_times()?;
        }
        if lacks_times(&options) {
            options.step_times = self.measure_step_times(1)?;
        }
        self.into_parts().serve(options)
    }
}

impl PairModel {
    /// As [`Model::measure_step_times`]: a decode row alone, and each fused graph with a piece of a prompt beside one.
    ///
    /// # Errors
    /// A graph fails, or there is too little memory.
    pub fn measure_step_times(&mut self, reps: usize) -> Result<Option<StepTimes>, Error> {
        let measured = self.runner_mut().time_steps(reps).map_err(DialogError::from).map_err(Error::Dialog)?;
        Ok(medians(&measured))
    }

    /// As [`Model::into_serving`], with the fused graphs: a step has a piece of one prompt and a token of one reply.
    ///
    /// # Errors
    /// As there.
    pub fn into_serving(mut self, options: impl Into<Option<ServeOptions>>) -> Result<Serving, Error> {
        let mut options = options.into().unwrap_or_else(|| self.bundle().serve_options());
        if lacks_times(&options) {
            options.step_times = self.measure_step_times(1)?;
        }
        self.into_parts()?.serve(options)
    }
}

/// A target is held by times that were measured.
fn lacks_times(options: &ServeOptions) -> bool {
    options.target.is_some() && options.step_times.is_none()
}

fn medians(measured: &[ServingStep]) -> Option<StepTimes> {
    let step =
        |step: &ServingStep| StepTime { width: step.width, us: median(&step.us), us_empty: median(&step.us_empty) };
    StepTimes::new(measured.iter().map(step))
}

impl Opened {
    /// Serves many requests with this model.
    ///
    /// # Errors
    /// Those of [`Model::into_serving`].
    pub fn into_serving(self, options: impl Into<Option<ServeOptions>>) -> Result<Serving, Error> {
        match self {
            Self::Plain(model) => model.into_serving(options),
            Self::Fused(model) => model.into_serving(options),
        }
    }

    /// As [`Model::step_times`]; fused graphs have no calibration.
    ///
    /// # Errors
    /// As there.
    pub fn step_times(&self) -> Result<Option<StepTimes>, Error> {
        match self {
            Self::Plain(model) => model.step_times(),
            Self::Fused(_) => Ok(None),
        }
    }

    /// As [`Model::measure_step_times`] and [`PairModel::measure_step_times`].
    ///
    /// # Errors
    /// As there.
    pub fn measure_step_times(&mut self, reps: usize) -> Result<Option<StepTimes>, Error> {
        match self {
            Self::Plain(model) => model.measure_step_times(reps),
            Self::Fused(model) => model.measure_step_times(reps),
        }
    }
}

impl Bundle {
    /// How many requests are served, by the config's `batching` block where it says it.
    pub fn serve_options(&self) -> ServeOptions {
        self.config().batching().map_or_else(ServeOptions::default, |keys| ServeOptions::default().with_batching(keys))
    }

    /// Opens the bundle to serve many requests, on the graphs that its config chooses.
    ///
    /// # Errors
    /// Those of [`Bundle::open_either`] and [`Opened::into_serving`].
    pub fn open_serving(self, options: &Options, serve: impl Into<Option<ServeOptions>>) -> Result<Serving, Error> {
        self.open_either(options)?.into_serving(serve)
    }
}

/// The other model of a served one.
pub(crate) struct ServingSecond {
    pub(crate) model: Box<dyn TokenModel>,
    pub(crate) active: ActiveBackend,
}

/// What a served model is made of.
pub(crate) struct ServingParts {
    pub(crate) model: Box<dyn TokenModel>,
    pub(crate) stop: StopFlag,
    pub(crate) weights: WeightCheck,
    pub(crate) bundle: Bundle,
    pub(crate) active: ActiveBackend,
    pub(crate) second: Option<ServingSecond>,
    pub(crate) speculation: Speculation,
    pub(crate) sampler_callback: Option<SamplerCallback>,
    pub(crate) prefix_cache: Option<PrefixCache>,
    pub(crate) grammar: Option<Grammar>,
    /// libGenie's rules for samplers.
    pub(crate) as_genie: bool,
}

impl ServingParts {
    fn serve(self, options: ServeOptions) -> Result<Serving, Error> {
        let Self { model, stop, weights, bundle, active, speculation, .. } = self;
        let mut base = RequestBase::from_config(bundle.config()).map_err(Error::Dialog)?;
        let (mut drafts_of_model, mut trees, mut tree_model) = (None, None, None);
        match Drafts::of(&speculation, bundle.config())? {
            Drafts::OfConfig => {}
            Drafts::None => base = base.with_lookup(None),
            Drafts::Lookup(settings) => base = base.with_lookup(Some(settings)),
            Drafts::Trees(kind) => (base, trees) = (base.with_lookup(None), Some(kind)),
            Drafts::TreeModel { settings, map } => (base, tree_model) = (base.with_lookup(None), Some((settings, map))),
            Drafts::Model { len, map } => (base, drafts_of_model) = (base.with_lookup(None), Some((len, map))),
        }
        let mut defaults = base.defaults().clone();
        if self.as_genie {
            defaults.sampler = defaults.sampler.with_rules(SamplerRules::Genie);
        }
        defaults.grammar = self.grammar.or(defaults.grammar);
        base = base.with_defaults(defaults).with_sampler_callback(self.sampler_callback);
        let mut scheduler = Scheduler::new(model, base, options)?;
        let (asked, mut note) = (!matches!(speculation, Speculation::OfConfig), None);
        if let Some(kind) = trees {
            note = served_drafts::set_trees(&mut scheduler, kind, asked)?;
        }
        if let Some(cache) = self.prefix_cache {
            let (store, min_tokens) = cache.into_parts();
            scheduler.set_prefix_store(store, min_tokens);
        }
        let mut second_active = None;
        match (self.second, drafts_of_model, tree_model) {
            (Some(second), Some((len, map)), _) => {
                note = served_drafts::set_draft_model(&mut scheduler, second.model, (len, map), asked)?;
                second_active = Some(second.active);
            }
            (Some(second), _, Some((settings, map))) => {
                let widest = scheduler.step_times().widest();
                let settings = if asked { settings.fitting(widest) } else { settings };
                note = served_drafts::set_tree_model(&mut scheduler, second.model, (settings, map), asked)?;
                second_active = Some(second.active);
            }
            _ => {}
        }
        Ok(Serving { scheduler, note, stop, weights, bundle, active: (active, second_active) })
    }
}

impl Serving {
    /// The scheduler, to submit requests to and to tick.
    pub fn scheduler(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    /// What is served otherwise than the config says, for people: drafts that the steps of this model do not hold.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// What stops a step from any thread.
    pub fn stop_flag(&self) -> StopFlag {
        self.stop.clone()
    }

    /// The bundle.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Runs it on a thread of its own, once the weights were compared.
    ///
    /// # Errors
    /// [`Error::DamagedWeights`], [`Error::OtherWeights`]; [`Error::Serving`] if there is no thread.
    pub fn start(mut self) -> Result<RunningServer, Error> {
        self.weights.finish()?;
        let server = Server::start(self.scheduler).map_err(ServeError::from)?;
        Ok(RunningServer { server, _active: self.active })
    }
}

impl RunningServer {
    /// Hands in a text, as the first of a conversation, with the config's settings.
    ///
    /// # Errors
    /// [`Error::Serving`]: the queue is full, the prompt too long.
    pub fn submit_text(&self, text: &str) -> Result<RequestHandle, Error> {
        let prompt = self.server.base().encode(text).map_err(Error::Dialog)?;
        self.submit(Request { prompt, settings: self.settings(), priority: 0 })
    }

    /// Hands in a request.
    ///
    /// # Errors
    /// As [`submit_text`](Self::submit_text).
    pub fn submit(&self, request: Request) -> Result<RequestHandle, Error> {
        Ok(self.server.submit(request)?)
    }

    /// What names the model whose rows the slots hold.
    ///
    /// # Errors
    /// The binaries cannot be read; the model cannot be saved.
    pub fn model_hash(&self) -> Result<ModelHash, Error> {
        Ok(self.server.between_steps(Scheduler::model_hash)??)
    }

    /// Writes the rows of a slot with their tokens into a file; returns how many tokens.
    ///
    /// # Errors
    /// [`Error::Serving`] for a slot without tokens; the file cannot be written.
    pub fn save_slot(&self, slot: SeqId, path: impl AsRef<Path>) -> Result<usize, Error> {
        let snapshot = self.server.between_steps(move |scheduler| scheduler.save_slot(slot))??;
        snapshot.write(path.as_ref()).map_err(Error::Store)?;
        Ok(snapshot.tokens().len())
    }

    /// Puts the rows of a file into an idle slot, for prompts that begin with their tokens.
    ///
    /// # Errors
    /// The file is no snapshot, or another model's; [`Error::Serving`] for a slot of a request that runs.
    pub fn restore_slot(&self, slot: SeqId, path: impl AsRef<Path>) -> Result<Slot, Error> {
        let snapshot = Snapshot::read(path.as_ref()).map_err(Error::Store)?;
        Ok(self.server.between_steps(move |scheduler| scheduler.restore_slot(slot, &snapshot))??)
    }

    /// Forgets the rows of an idle slot; returns how many tokens it had.
    ///
    /// # Errors
    /// [`Error::Serving`] for a slot of a request that runs.
    pub fn erase_slot(&self, slot: SeqId) -> Result<usize, Error> {
        Ok(self.server.between_steps(move |scheduler| scheduler.erase_slot(slot))??)
    }

    /// What requests have that say nothing else.
    pub fn settings(&self) -> RequestSettings {
        self.server.base().defaults().clone()
    }

    /// The thread that runs the model.
    pub fn server(&self) -> &Server {
        &self.server
    }
}
