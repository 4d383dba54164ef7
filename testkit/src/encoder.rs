//! A text encoder whose rows can be computed by hand.

use std::path::Path;

use genie_types::{Dtype, TensorInfo};
use qnn_api::{Context, ContextOptions, GraphOptions, Param, TensorKind};

/// Saves an encoder of 8 tokens: `sequence_output` has, for each, its row of a table of `vocab` rows of `width` f32, where number `i` is `i`.
///
/// # Panics
/// The backend refuses it, or the file cannot be written.
pub fn save_encoder(path: &Path, vocab: usize, width: usize) {
    let context = Context::create(&crate::linked_backend(), &ContextOptions::default()).expect("a context");
    let mut graph = context.compose("encoder", &GraphOptions::default()).expect("a graph");
    let mut tensor = |name: &str, dims: &[usize], dtype, kind| {
        graph.tensor(&TensorInfo::new(name, dims, dtype), kind).expect("a tensor")
    };
    let tokens = tensor("input_ids", &[1, 8], Dtype::I32, TensorKind::Input);
    tensor("attention_mask", &[1, 8], Dtype::F32, TensorKind::Input);
    let rows = tensor("sequence_output", &[1, 8, width], Dtype::F32, TensorKind::Output);
    let numbers = (0..vocab * width).flat_map(|i| (i as f32).to_le_bytes()).collect::<Vec<u8>>();
    let table = graph.constant(&TensorInfo::new("table", [vocab, width], Dtype::F32), &numbers).expect("a table");
    graph.node("rows", "Gather", &[("axis", Param::I32(0))], &[table, tokens], &[rows]).expect("a node");
    graph.finalize().expect("the graph is whole");
    context.save(path).expect("a file");
}
