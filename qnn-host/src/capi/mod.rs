//! The C API: one function for each slot of the table, and what their handles stand for.
//!
//! Pointers become slices, strings and references in `raw`, `tensor` and `op_config`, and nowhere deeper. Every body
//! runs inside `guard`, so a panic or an error becomes a QNN number and a message that the client can fetch.
//!
//! | file | slots |
//! |---|---|
//! | `backend`, `property`, `device`, `infrastructure`, `log`, `profile`, `mem` | the objects around a context |
//! | `context`, `context_binary` | contexts: made, configured, serialised, loaded |
//! | `graph`, `update` | graphs: composed, finalized, retrieved, changed |
//! | `run`, `queue` | executions: now, and later |
//! | `system`, `info` | the system interface: what is in a binary |
//! | `guard`, `trace` | messages; a record of all calls |
//!
//! `platform` has the options that are this backend's own.

mod backend;
mod context;
mod context_binary;
mod device;
mod draft;
mod execute;
mod graph;
mod guard;
mod info;
mod infrastructure;
mod log;
mod mem;
mod objects;
mod op_config;
mod op_param;
mod packed_forms;
mod platform;
mod profile;
mod property;
mod queue;
mod raw;
mod run;
mod scratch;
mod system;
mod table;
mod tensor;
mod tiles;
mod trace;
mod update;
mod watch;
mod weights;

pub(crate) use backend::{BACKEND_ID, CORE_VERSION, HOST_VERSION};
pub(crate) use table::{INTERFACE, SYSTEM_INTERFACE};
