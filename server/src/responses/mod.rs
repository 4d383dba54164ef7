//! The shapes of OpenAI's `/v1/responses`.

pub(crate) mod events;
pub(crate) mod items;
pub(crate) mod request;
