//! All tests of crate `dialog` in one program: a program takes seconds to build and link, whatever its tests are.

mod common;
mod toy;

mod abort;
mod argmax;
mod conversation;
mod golden;
mod grammar;
mod harmony_and_stop_callback;
mod kinds;
mod sampler_chain;
mod sampler_draws;
mod sampler_order;
mod served_trees;
mod speculation;
mod structured_output;
