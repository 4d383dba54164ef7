//! What can go wrong.

use std::path::PathBuf;

use thiserror::Error;

/// Results of this crate.
pub type Result<T, E = TrainError> = std::result::Result<T, E>;

/// Why a model was not trained.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A number that no run can have.
    #[error("`{name}`: expected {expected}, found {found}")]
    Option {
        /// The option.
        name: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The text cannot be read, or a file cannot be written.
    #[error(transparent)]
    File(#[from] file_io::FileError),
    /// The text is shorter than what the model sees at once.
    #[error("`{}` has {found} tokens to train on: expected more than the context, {context}", text.display())]
    ShortText {
        /// The text.
        text: PathBuf,
        /// Tokens of it.
        found: usize,
        /// The context.
        context: usize,
    },
    /// The held-out part cannot fill one window.
    #[error("the held-out part of `{}` has {found} tokens: expected more than the context, {context}", text.display())]
    ShortHeldOut {
        /// The text.
        text: PathBuf,
        /// Tokens of the part.
        found: usize,
        /// The context.
        context: usize,
    },
    /// The text does not give as many tokens as the vocabulary should have.
    #[error("a vocabulary of {wanted} tokens: `{}` gives {found}", text.display())]
    Vocabulary {
        /// The text.
        text: PathBuf,
        /// Tokens wanted.
        wanted: usize,
        /// Tokens that it gives.
        found: usize,
    },
    /// The tokenizer cannot be made.
    #[error("cannot make a vocabulary of the text: {0}")]
    Tokenizer(String),
    /// There is something in the output's place.
    #[error("`{}` exists", .0.display())]
    OutputExists(PathBuf),
    /// Nothing to go on from.
    #[error("`{}` has no saved state of a training", .0.display())]
    NoState(PathBuf),
    /// The state cannot be read.
    #[error("the saved state `{}` cannot be used: {detail}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Expected and found.
        detail: String,
    },
    /// The state is of a run with other options.
    #[error("the saved state is of a run with other options: `{name}` was {saved}, is {given}")]
    OtherRun {
        /// The option.
        name: String,
        /// As saved.
        saved: String,
        /// As given.
        given: String,
    },
    /// The loss is no number any more.
    #[error("the loss is {loss} at step {step}: the learning rate may be too high")]
    Diverged {
        /// The step.
        step: usize,
        /// The loss.
        loss: f32,
    },
    /// It was stopped; its state is saved.
    #[error("stopped after step {step} of {steps}; the state is saved in `{}`", output.display())]
    Stopped {
        /// Steps done.
        step: usize,
        /// Steps in all.
        steps: usize,
        /// The folder.
        output: PathBuf,
    },
    /// A computation failed.
    #[error("the computation failed")]
    Compute(#[from] candle_core::Error),
    /// The curve cannot be drawn.
    #[error("the loss curve cannot be drawn")]
    Draw(#[from] explain::DrawError),
}
