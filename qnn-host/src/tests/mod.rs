//! Whole graphs through preparation and execution; each operation against a reference in double precision.

mod bfloat16;
mod blocks;
mod cache_in_blocks;
mod code_cache;
mod elementwise;
mod errors;
mod fusions;
mod index;
mod kv_update;
mod linear;
mod llama;
mod moves;
mod quantise_blocks;
mod quantized;
mod reduce;
mod reference;
mod running;
mod scatter;
mod weight_forms;
