//! Graphs with a batch dimension: what is read off them, and what is refused.

use super::fixture::{Model, Part::*, tensor};
use crate::*;

const AR8: &str = "ar8_cl128_1_of_1";

/// The fixture's bundle with a batch of two: the heads behind the batch, or before it.
fn batched(model: &Model, heads_first: bool) -> Vec<BinaryGraphs> {
    let mut bundle = model.bundle(&[(1, 128), (8, 128)]);
    let tensors = bundle.iter_mut().flat_map(|b| &mut b.graphs).flat_map(|g| g.inputs.iter_mut().chain(&mut g.outputs));
    for t in tensors {
        if t.name.starts_with("past_") {
            let heads = t.dims[0];
            (t.dims[0], t.dims[1]) = if heads_first { (heads, 2) } else { (2, heads) };
        } else if t.name != "cache_index" {
            t.dims[0] = 2;
        }
    }
    bundle
}

#[test]
fn the_batch_is_read_off_the_tensors() {
    let models = [
        Model::default(),
        Model { heads: 3, ..Model::default() },
        Model { scatter: true, quantised: true, ..Model::default() },
        Model { embeds: true, ..Model::default() },
        Model { parts: &[First(2), Head], ..Model::default() },
        Model { parts: &[Lut, Layers(2), Head], ..Model::default() },
    ];
    for model in models {
        for heads_first in [false, true] {
            let layout = analyze(&batched(&model, heads_first), &Options::default()).unwrap();
            assert_eq!(layout.batch, 2);
            let kv: Vec<_> = layout.splits.iter().flat_map(|split| &split.kv).collect();
            assert!(kv.iter().all(|t| (t.tensor.n_heads, t.tensor.head_dim) == (2 * model.heads, 32)));
            assert_eq!(layout.vocab_size, 512);
        }
    }
    assert_eq!(Model::default().layout(&[(1, 128)]).unwrap().batch, 1);
}

#[test]
fn batches_that_do_not_go_together_are_refused() {
    type Bend = fn(&mut Vec<BinaryGraphs>);
    let cases: [(&str, Bend); 3] = [
        (
            "graph `ar8_cl128_1_of_1` of `part1.bin`: tensor `past_key_0_in` has shape [3, 5, 32, 120], expected [2, heads, head_dim, seq]",
            |b| (tensor(b, AR8, "past_key_0_in").dims[0], tensor(b, AR8, "past_key_0_in").dims[1]) = (3, 5),
        ),
        (
            "graph `ar8_cl128_1_of_1` of `part1.bin`: tensor `input_ids` has shape [2, 8], expected [1, 8] (AR), with or without more leading 1s",
            |b| tensor(b, AR8, "attention_mask").dims[0] = 1,
        ),
        ("graph `ar8_cl128_1_of_1` of `part1.bin` has a batch of 3, but `ar1_cl128_1_of_1` one of 2", |b| {
            let graph = b[0].graphs.iter_mut().find(|g| g.name == AR8).unwrap();
            graph.inputs.iter_mut().chain(&mut graph.outputs).for_each(|t| t.dims[0] = 3);
        }),
    ];
    for (want, bend) in cases {
        let mut bundle = batched(&Model::default(), false);
        bend(&mut bundle);
        let found = analyze(&bundle, &Options::default()).unwrap_err().to_string();
        assert_eq!(found, want);
    }
}
