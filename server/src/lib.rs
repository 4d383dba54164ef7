//! An HTTP server over [`open_genie::serving`]: OpenAI's, Anthropic's and llama.cpp's interfaces on one model.
//!
//! ```no_run
//! use open_genie::{Bundle, Options, serving::ServeOptions};
//! use server::{HttpServer, ServedModel, ServerOptions};
//!
//! let bundle = Bundle::read("BUNDLE")?;
//! let template = bundle.chat_template()?;
//! let serving = bundle.open(&Options::new())?.into_serving(ServeOptions::default())?;
//! let server = HttpServer::bind(ServedModel::start(serving, template)?, ServerOptions::default())?;
//! println!("http://{}", server.address());
//! server.run()?; // until its `Shutdown` handle says so
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is in here
//!
//! | module | what |
//! |---|---|
//! | `http_server`, `connection`, `write_timeout`, `tls` | the socket: accept, time limits, drain; HTTPS |
//! | `guard` | who may ask: host, origin, key; request ids and the access log |
//! | `models`, `extract` | one model, or those of a folder loaded on demand; which one a request is for |
//! | `served_model`, `jobs` | from a prompt to events of `serving`, cancellation, a model's thread that has ended |
//! | `openai`, `responses`, `anthropic` | what requests say and what replies look like |
//! | `events`, `page` | what each step did, as events and as a recording; the page that shows it, with a chat |
//! | `reply` | the text of a reply taken apart: reasoning, tool calls, content |
//! | `routes` | one file a route |
//! | `error` | what is wrong, in each interface's shape |
//!
//! # What it must never know
//!
//! Flags, printing, files of a bundle. It is the only crate with an async runtime; `serving` has a thread and channels, and
//! the two meet in `jobs`.

#![forbid(unsafe_code)]

mod anthropic;
mod body;
mod connection;
mod error;
mod events;
mod extract;
mod guard;
mod http_server;
mod ids;
mod jobs;
mod metrics;
mod models;
mod openai;
mod options;
mod page;
mod parked;
mod reply;
mod responses;
mod routes;
mod schema;
mod served_model;
mod shutdown;
mod state;
mod stream;
mod tls;
mod tools;
mod write_timeout;

pub use error::ServerError;
pub use http_server::HttpServer;
pub use models::{LoadLimits, ModelEntry, ModelSource, Models, OpenError};
pub use options::{LineSink, ServerOptions, TlsFiles};
pub use served_model::ServedModel;
pub use shutdown::Shutdown;

/// What replies carry as `system_fingerprint`.
const FINGERPRINT: &str = concat!("open-genie-", env!("CARGO_PKG_VERSION"));
