//! Anthropic's shapes: what requests say, what replies look like.

pub(crate) mod blocks;
pub(crate) mod error;
pub(crate) mod request;
