//! A conversation with a model: queries in, streamed replies out, the cache kept between turns.
//!
//! [`Dialog`] holds model, tokenizer, sampler and history. A query makes a [`Generation`], which lends a [`Decoding`] to the
//! dialog's [kind](crate::kinds::DialogKind) step by step; the reply comes as [`Chunk`]s while it is made and as a
//! [`Reply`] at its end.
//!
//! *Deviations from libGenie*, on purpose: a `REWIND` to something that has nothing in common clears the conversation; a
//! stop sequence costs no token before it; prompts are refused before anything runs if they do not fit, and a reply that
//! fills the context ends with [`StopReason::ContextLimit`], after which the dialog is usable.

mod batch;
pub(crate) mod codes;
mod constrained;
mod control;
pub(crate) mod decoding;
mod dialog;
pub(crate) mod drafting;
mod embedding_query;
pub(crate) mod error;
mod generation;
mod going_back;
mod hand_over;
mod harmony;
mod history;
mod input;
mod jump;
mod kind_turns;
pub(crate) mod lanes;
mod lora;
mod message_format;
mod placed_images;
mod query_plan;
pub(crate) mod query_state;
mod reply;
mod reply_text;
mod request;
mod request_settings;
mod request_trees;
mod saved;
pub mod second;
mod stop;
mod stop_callback;
pub(crate) mod trees;

pub use codes::{SentenceCode, StopReason};
pub use control::{Control, Signal};
pub use decoding::{Decoding, Verified};
pub use dialog::Dialog;
pub use drafting::Draft;
pub use error::DialogError;
pub use generation::Generation;
pub use harmony::HarmonyMessage;
pub use lora::PRIMARY;
pub use reply::{Chunk, Reply, StreamReply};
pub use request::{RequestBase, RequestReply};
pub use request_settings::{ReplyPiece, RequestSettings};
pub use saved::RestoreReport;
pub use stop_callback::StopCallback;
pub use trees::{DraftTree, TreeDraw};
