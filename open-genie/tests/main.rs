//! All tests of crate `open-genie` in one program: a program takes seconds to build and link, whatever its tests are.

mod ticks;
mod tree_bundles;

mod bundle_sizes;
mod compile_stop;
mod drafts;
mod examples;
mod grammar;
mod kv_share;
mod serving;
mod serving_trees;
mod serving_trees_htp;
mod sessions;
mod weights;
