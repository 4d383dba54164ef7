//! All tests of crate `engine` in one program: a program takes seconds to build and link, whatever its tests are.

mod compiled;
mod examples;
mod fused;
mod given_inputs;
mod graph_kinds;
mod native_kv;
mod positions;
mod qnn_host;
mod same_bits;
