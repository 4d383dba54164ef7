//! Tests over whole bundles: what is accepted and what it means, what is refused and with which words.

mod accept;
mod batch;
mod fixture;
mod refuse;
