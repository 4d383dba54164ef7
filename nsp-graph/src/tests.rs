//! Tests over whole bundles: what is accepted and what it means, what is refused and with which words.

mod accept;
mod fixture;
mod refuse;
