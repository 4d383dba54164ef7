//! Many requests on one model: continuous batching with prompts and replies in one step.
//!
//! [`Scheduler`] owns the model and is driven tick by tick; [`Server`] runs one on a thread. What each tick does is planned by
//! [`kvmanager::plan::serve`].
//!
//! ```no_run
//! # fn model() -> Box<dyn engine::TokenModel> { unimplemented!() }
//! # fn base() -> dialog::RequestBase { unimplemented!() }
//! use serving::{Request, Scheduler, ServeOptions, Server};
//!
//! let server = Server::start(Scheduler::new(model(), base(), ServeOptions::default())?)?;
//! let prompt = server.base().encode("to be")?;
//! let settings = server.base().defaults().clone();
//! let reply = server.submit(Request { prompt, settings, priority: 0 })?.wait()?.reply;
//! println!("{}", reply.text);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is in here
//!
//! | type | what |
//! |---|---|
//! | [`Scheduler`] | requests in, ticks, events out |
//! | [`Server`], [`RequestHandle`] | the same on a thread, with channels |
//! | [`ServeOptions`], [`Policy`] | what it may do |
//! | [`Request`], [`Event`], [`Finished`] | what goes in and comes out |
//! | [`Slot`] | a sequence of the cache, to be looked at, saved, restored, erased |
//! | [`TickWatch`], [`TickEvent`], [`Arrived`] | what each step did and which requests came, while someone listens |
//! | [`ServeError`] | why a request is refused or ends |
//!
//! # What it must never know
//!
//! QNN, files, sockets, flags: a model is an [`engine::SequenceModel`]. No async runtime.

#![forbid(unsafe_code)]

mod active;
pub mod arrivals;
mod draft;
mod draft_model;
pub mod error;
pub mod options;
mod prefix;
pub mod request;
pub mod scheduler;
pub mod seen_times;
mod server;
pub mod slot;
mod step;
pub mod tree_model;
mod watch;

pub use arrivals::Arrived;
pub use dialog::config::BatchingSettings;
pub use error::ServeError;
pub use kvmanager::plan::serve::{Mixing, ServeRules, StepTime, StepTimes};
pub use options::{Parking, Policy, ServeOptions};
pub use request::{Event, Finished, Request, RequestId, RequestTimes};
pub use scheduler::{Counts, Scheduler, TickReport};
pub use server::{RequestHandle, Server};
pub use slot::{Slot, SlotState};
pub use watch::{RowsOfStep, TickEvent, TickWatch, WatchEnded};
