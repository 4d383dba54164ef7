//! Why a request is refused, or ends without a reply.

use dialog::DialogError;
use engine::EngineError;

/// A refusal. A request that was refused has changed nothing; rows of requests that are over may have made room.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The model has no place for another request: those that wait would have to end first.
    #[error(
        "queue full: {waiting} of at most {most} requests wait, and {} to start this one ({needed_rows} rows needed, {free_rows} free)",
        lacking(*missing_rows)
    )]
    QueueFull {
        /// Requests that wait.
        waiting: usize,
        /// As many as may.
        most: usize,
        /// Rows that the request would need.
        needed_rows: usize,
        /// Rows that are neither used nor promised.
        free_rows: usize,
        /// How many more rows it would take to start it.
        missing_rows: usize,
    },
    /// More requests that are to be taken together than there can ever be at once.
    #[error("{found} requests at once: expected at most {most}, which run or wait")]
    TooManyAtOnce {
        /// Requests.
        found: usize,
        /// Slots, and places of the queue.
        most: usize,
    },
    /// The prompt never fits.
    #[error("a prompt of {found} tokens does not fit: expected at most {limit}, and one row is for the reply")]
    PromptTooLong {
        /// Its tokens.
        found: usize,
        /// As many as fit.
        limit: usize,
    },
    /// The model runs one sequence only.
    #[error("this model cannot serve several requests: expected a model with sequences")]
    NoSequences,
    /// No width of a step is known.
    #[error("no step width to plan with: expected at least one graph with a cache and logits")]
    NoWidths,
    /// A setting contradicts another.
    #[error("`{key}`: expected {expected}, found {found}")]
    Setting {
        /// Which one.
        key: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// Sampler, grammar, tokenizer.
    #[error(transparent)]
    Dialog(#[from] DialogError),
    /// The model failed at this request's tokens.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The system gives no thread.
    #[error("the serving thread cannot be started")]
    Thread(#[from] std::io::Error),
    /// Requests are there, which other options would change.
    #[error("options cannot change while {n_requests} requests are served")]
    Busy {
        /// How many.
        n_requests: usize,
    },
    /// A slot is not as it must be.
    #[error("slot {slot}: expected {expected}, found {found}")]
    Slot {
        /// Its number.
        slot: u8,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The server was shut down before the request was over.
    #[error("the server was shut down")]
    ShutDown,
}

/// What a request that cannot wait would have needed.
fn lacking(missing_rows: usize) -> String {
    match missing_rows {
        0 => "one that runs has to end".to_owned(),
        1 => "1 row is missing".to_owned(),
        n => format!("{n} rows are missing"),
    }
}
