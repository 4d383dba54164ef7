//! A bundle opened on the graphs that its config chooses: plain ones, or fused ones.
//!
//! `pd_fusion.enable` of the config decides: `true` for the fused graphs, `false` for the plain ones; where it says nothing, the plain ones if
//! there are any, else the fused ones.

use std::path::Path;
use std::sync::Arc;

use dialog::Tokenizer;
use engine::{Executor, GraphProfile, StopFlag, TokenModel};
use genie_types::TokenId;
use qnn_api::Backend;

use crate::model::{Bundle, Model};
use crate::options::Options;
use crate::pair::PairModel;
use crate::session::Session;
use crate::threads::Threads;
use crate::{CalibrationContext, Error, Perplexity, Verification};

/// A loaded model of either form.
#[derive(Debug)]
pub enum Opened {
    /// On plain graphs.
    Plain(Box<Model>),
    /// On fused graphs.
    Fused(Box<PairModel>),
}

impl Bundle {
    /// Opens the backend and loads the graphs that the config chooses.
    ///
    /// # Errors
    /// Those of [`Bundle::open`] and [`Bundle::open_pair`]; [`Error::FusedDisabled`] where the chosen graphs are not there.
    pub fn open_either(self, options: &Options) -> Result<Opened, Error> {
        let enable = self.config().engine().pd.and_then(|pd| pd.enable);
        if enable == Some(true) {
            return Ok(Opened::Fused(Box::new(self.open_pair(options)?)));
        }
        let path = self.path().to_owned();
        match self.clone().open(options) {
            Err(error) if error.is_only_fused() && enable == Some(false) => Err(Error::FusedDisabled { path }),
            Err(error) if error.is_only_fused() => Ok(Opened::Fused(Box::new(self.open_pair(options)?))),
            model => Ok(Opened::Plain(Box::new(model?))),
        }
    }

    /// Opens a session on the graphs that the config chooses.
    ///
    /// # Errors
    /// Those of [`Bundle::open_either`] and [`Opened::into_session`].
    pub fn open_session(self, options: &Options) -> Result<Session, Error> {
        self.open_either(options)?.into_session()
    }
}

impl Opened {
    /// Opens a model by its path.
    ///
    /// # Errors
    /// Those of [`Bundle::read`] and [`Bundle::open_either`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, Error> {
        Bundle::read(path)?.open_either(options)
    }

    /// The model on plain graphs, for `what`, which takes no others.
    ///
    /// # Errors
    /// [`Error::OnlyFused`].
    pub fn plain(self, what: &'static str) -> Result<Model, Error> {
        match self {
            Self::Plain(model) => Ok(*model),
            Self::Fused(model) => Err(Error::OnlyFused { path: model.bundle().path().to_owned(), what }),
        }
    }

    /// A session with an empty context.
    ///
    /// # Errors
    /// Those of [`Model::into_session`].
    pub fn into_session(self) -> Result<Session, Error> {
        match self {
            Self::Plain(model) => model.into_session(),
            Self::Fused(model) => model.into_session(),
        }
    }

    /// Tokens in, logits out.
    pub fn token_model(&mut self) -> &mut dyn TokenModel {
        match self {
            Self::Plain(model) => model.engine_mut(),
            Self::Fused(model) => model.runner_mut(),
        }
    }

    /// Tokens that a context holds.
    pub fn context_size(&self) -> usize {
        match self {
            Self::Plain(model) => model.engine().context_size(),
            Self::Fused(model) => model.runner().context_size(),
        }
    }

    /// The bundle it was opened from.
    pub fn bundle(&self) -> &Bundle {
        match self {
            Self::Plain(model) => model.bundle(),
            Self::Fused(model) => model.bundle(),
        }
    }

    /// The backend that executes the graphs.
    pub fn backend(&self) -> &Arc<Backend> {
        match self {
            Self::Plain(model) => model.backend(),
            Self::Fused(model) => model.backend(),
        }
    }

    /// The threads of the embedded backend.
    pub fn threads(&self) -> &Threads {
        match self {
            Self::Plain(model) => model.threads(),
            Self::Fused(model) => model.threads(),
        }
    }

    /// Keeps the times of each graph that runs from now on; `None` ends it.
    pub fn set_graph_profile(&mut self, profile: Option<GraphProfile>) {
        match self {
            Self::Plain(model) => model.engine_mut().executor_mut().set_profile(profile),
            Self::Fused(model) => model.runner_mut().executor_mut().set_profile(profile),
        }
    }

    /// What stops this model from another thread, between two steps.
    pub fn stop_flag(&self) -> StopFlag {
        match self {
            Self::Plain(model) => model.stop_flag(),
            Self::Fused(model) => model.stop_flag(),
        }
    }

    /// Loads the bundle's tokenizer.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        Ok(Tokenizer::from_file(self.bundle().config().tokenizer())?)
    }

    /// What a calibration of the bundle must match here.
    ///
    /// # Errors
    /// The binaries cannot be read.
    pub fn calibration(&self) -> Result<CalibrationContext, Error> {
        CalibrationContext::new(self.bundle(), self.backend())
    }

    /// As [`Model::check_weights_in_full`].
    ///
    /// # Errors
    /// As there.
    pub fn check_weights_in_full(&mut self) -> Result<(), Error> {
        match self {
            Self::Plain(model) => model.check_weights_in_full(),
            Self::Fused(model) => model.check_weights_in_full(),
        }
    }

    /// Ends what loading left for later, before something is measured: weights that are to be moved into memory are.
    pub fn finish_loading(&mut self) {
        match self {
            Self::Plain(model) => model.engine_mut().executor_mut().finish_loading(),
            Self::Fused(model) => model.runner_mut().executor_mut().finish_loading(),
        }
    }

    /// As [`Model::default_window`].
    pub fn default_window(&self) -> usize {
        self.bundle().window_within(self.context_size())
    }

    /// As [`Model::windows`].
    ///
    /// # Errors
    /// As there.
    pub fn windows<'t>(
        &self,
        tokens: &'t [TokenId],
        size: Option<usize>,
    ) -> Result<std::slice::Chunks<'t, TokenId>, Error> {
        self.bundle().windows_within(self.context_size(), tokens, size)
    }

    /// As [`Model::perplexity`].
    ///
    /// # Errors
    /// As there.
    pub fn perplexity(
        &mut self,
        tokens: &[TokenId],
        size: Option<usize>,
        max_windows: usize,
        progress: &mut dyn FnMut(),
    ) -> Result<Perplexity, Error> {
        match self {
            Self::Plain(model) => model.perplexity(tokens, size, max_windows, progress),
            Self::Fused(model) => model.perplexity(tokens, size, max_windows, progress),
        }
    }

    /// As [`Model::perplexity_by_chunks`].
    ///
    /// # Errors
    /// As there.
    pub fn perplexity_by_chunks(
        &mut self,
        tokens: &[TokenId],
        size: usize,
        max_chunks: usize,
        progress: &mut dyn FnMut(),
    ) -> Result<Perplexity, Error> {
        match self {
            Self::Plain(model) => model.perplexity_by_chunks(tokens, size, max_chunks, progress),
            Self::Fused(model) => model.perplexity_by_chunks(tokens, size, max_chunks, progress),
        }
    }

    /// As [`Model::verify`]; on fused graphs each decode row runs beside a chunk of another prompt where it can.
    ///
    /// # Errors
    /// As there.
    pub fn verify(
        &mut self,
        length: usize,
        n: usize,
        tolerance: f32,
        progress: &mut dyn FnMut(),
    ) -> Result<Verification, Error> {
        match self {
            Self::Plain(model) => model.verify(length, n, tolerance, progress),
            Self::Fused(model) => model.verify(length, n, tolerance, progress),
        }
    }

    /// As [`Model::check_prompt_length`].
    ///
    /// # Errors
    /// As there.
    pub fn check_prompt_length(&self, length: usize) -> Result<(), Error> {
        let limit = self.context_size();
        if length == 0 || length > limit { Err(Error::PromptLength { length, limit }) } else { Ok(()) }
    }

    /// As [`Model::default_tolerance`].
    pub fn default_tolerance(&self) -> f32 {
        match self {
            Self::Plain(model) => model.default_tolerance(),
            Self::Fused(model) => model.default_tolerance(),
        }
    }

    /// As [`Model::default_prompt_lengths`]; on fused graphs the edges of the chunks of the widest one.
    pub fn default_prompt_lengths(&self) -> Vec<usize> {
        match self {
            Self::Plain(model) => model.default_prompt_lengths(),
            Self::Fused(model) => model.default_prompt_lengths(),
        }
    }
}
