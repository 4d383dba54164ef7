//! Tools: how a model is given them, how its calls are written, and how one is forced.

mod call_object;
mod definition;
pub(crate) mod format;
pub(crate) mod generic;
mod hermes;
mod llama3;
mod mistral;
mod scanner;
mod schema;

pub(crate) use definition::{Tool, ToolChoice};
pub(crate) use format::ToolFormat;
pub(crate) use scanner::CallScanner;
pub(crate) use schema::close_all;
