//! OpenAI's shapes: what requests say, what replies look like.

pub(crate) mod chat_chunks;
pub(crate) mod chat_reply;
pub(crate) mod chat_request;
pub(crate) mod logprobs;
pub(crate) mod messages;
pub(crate) mod prepared;
mod priority;
pub(crate) mod prompt;
mod refused;
pub(crate) mod response_format;
pub(crate) mod sampling;
pub(crate) mod stages;
pub(crate) mod usage;
