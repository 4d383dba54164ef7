//! A conversation with a model: queries in, streamed replies out, the cache kept between turns.
//!
//! [`Dialog`] holds model, tokenizer, sampler and history. A query makes a [`Turn`], which a [`DialogKind`] drives;
//! the reply comes as [`Chunk`]s while it is made and as a [`Reply`] at its end.
//!
//! *Deviations from the real Genie*, on purpose: a `REWIND` to something that has nothing in common clears the
//! conversation; a stop sequence costs no token before it; prompts are refused before anything runs if they do not
//! fit, and a reply that fills the context ends with [`StopReason::ContextLimit`], after which the dialog is usable.

mod codes;
mod control;
mod dialog;
mod error;
mod generation;
mod history;
mod input;
mod kind;
mod reply;
mod saved;
mod stop;
mod stream;
mod turn;

pub use codes::{SentenceCode, StopReason};
pub use control::{Control, Signal};
pub use dialog::Dialog;
pub use error::DialogError;
pub use generation::Generation;
pub use kind::{Basic, DialogKind};
pub use reply::{Chunk, Reply};
pub use turn::Turn;
