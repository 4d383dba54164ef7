//! The text of a reply taken apart while it comes: reasoning, calls of tools, and what is meant to be read.

mod collected;
mod parser;
mod reasoning;

pub(crate) use collected::{Collected, ToolCall};
pub(crate) use parser::ReplyParser;
pub(crate) use reasoning::{ReasoningRule, overlap};

/// A piece of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    /// What the model thinks.
    Reasoning(String),
    /// What is meant to be read.
    Content(String),
    /// A call begins.
    Call { index: usize, id: String, name: String },
    /// A piece of a call's arguments: JSON text.
    Arguments { index: usize, text: String },
}
