//! Many requests on one model: the front door of crate `serving`.

use dialog::DialogError;
pub use dialog::{RequestBase, RequestSettings};
use engine::{StopFlag, TokenModel};
pub use serving::{
    BatchingKeys, Counts, Event, Finished, Mixing, Parking, Policy, Request, RequestHandle, RequestId, Scheduler,
    ServeError, ServeOptions, Server, StepTime, StepTimes, TickReport,
};

use crate::Error;
use crate::backend::ActiveBackend;
use crate::model::{Bundle, Model};
use crate::speculation::Speculation;
use crate::weights::WeightCheck;

/// A model that serves many requests, tick by tick; [`start`](Self::start) runs it on a thread.
#[derive(Debug)]
pub struct Serving {
    // Dropped in this order: the power vote outlives the model.
    scheduler: Scheduler,
    stop: StopFlag,
    weights: WeightCheck,
    bundle: Bundle,
    active: ActiveBackend,
}

/// A model that serves many requests on a thread of its own.
#[derive(Debug)]
pub struct RunningServer {
    server: Server,
    _active: ActiveBackend,
}

impl Model {
    /// Times of steps by width, for choosing how wide a step is: those of the bundle's calibration, `None` without one that was made
    /// here.
    ///
    /// # Errors
    /// The binaries cannot be read.
    pub fn step_times(&self) -> Result<Option<StepTimes>, Error> {
        Ok(self.calibration()?.costs(self.engine().variants()).ok().and_then(|table| {
            let longest = self.engine().variants().max_ctx();
            let steps = table.steps().iter().filter(|(spec, _)| spec.cl().get() == longest);
            StepTimes::new(steps.map(|(spec, us)| StepTime { width: spec.ar().get(), us: *us }))
        }))
    }

    /// Measures a step of each width with a full context, `reps` times; takes the medians.
    ///
    /// # Errors
    /// A graph fails.
    pub fn measure_step_times(&mut self, reps: usize) -> Result<Option<StepTimes>, Error> {
        let longest = self.engine().variants().max_ctx();
        let measured = self.engine_mut().calibrate(reps).map_err(DialogError::from).map_err(Error::Dialog)?;
        let steps = measured.steps.iter().filter(|step| step.spec.cl().get() == longest);
        Ok(StepTimes::new(
            steps.map(|step| StepTime { width: step.spec.ar().get(), us: engine::calibrate::median(&step.us) }),
        ))
    }

    /// Serves many requests with this model. Its config's sampler, stop sequences and grammar are those of requests that say nothing
    /// else; the config's dialog type is `basic` or `lookup`, or `--spec` says one of them.
    ///
    /// # Errors
    /// [`Error::Serving`]; the tokenizer cannot be loaded; [`Error::Dialog`] for another kind of dialog.
    pub fn into_serving(self, options: ServeOptions) -> Result<Serving, Error> {
        let (engine, weights, bundle, active, speculation) = self.into_parts();
        let mut base = RequestBase::from_config(bundle.config()).map_err(Error::Dialog)?;
        match (&speculation, bundle.config().kind()) {
            (Speculation::Lookup(settings), _) => base = base.with_lookup(Some(*settings)),
            (Speculation::Off, _) => base = base.with_lookup(None),
            (Speculation::OfConfig, "basic" | "lookup") => {}
            (_, kind) => {
                let (expected, found) =
                    ("a dialog of type `basic` or `lookup`".into(), format!("`{kind}` or its speculation"));
                return Err(Error::Dialog(DialogError::Kind { kind: "serving", expected, found }));
            }
        }
        let stop = TokenModel::stop_flag(&engine).unwrap_or_default();
        let scheduler = Scheduler::new(Box::new(engine), base, options)?;
        Ok(Serving { scheduler, stop, weights, bundle, active })
    }
}

impl Serving {
    /// The scheduler, to submit requests to and to tick.
    pub fn scheduler(&mut self) -> &mut Scheduler {
        &mut self.scheduler
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

    /// What requests have that say nothing else.
    pub fn settings(&self) -> RequestSettings {
        self.server.base().defaults().clone()
    }

    /// The thread that runs the model.
    pub fn server(&self) -> &Server {
        &self.server
    }
}
