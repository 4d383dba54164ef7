//! What a run promises beside its numbers: times on request, left-out operands, shared constants.

use std::sync::Arc;

use super::llama::{Shape, decoder, inputs};
use crate::exec::Executable;
use crate::exec::StepTimes;
use crate::ir::{Dtype, Param};
use crate::pool::{Pool, PoolOptions};
use crate::prepare::PrepareOptions;
use crate::step::Arena;
use crate::testing::{Build, Noise, bytes_of, compare, ints, numbers_of, run};

#[test]
fn every_step_has_a_time_and_a_name() {
    let s = Shape::small(4, 20);
    let graph = decoder(s, 1);
    let executable = Executable::prepare(&graph, &PrepareOptions::default()).expect("prepares");
    let pool = Pool::new(&PoolOptions { threads: 2, ..PoolOptions::default() }).expect("threads start");
    let inputs = inputs(&graph, s, 3, 4, 1);
    let given: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut outputs: Vec<Vec<u8>> = graph.outputs().map(|id| vec![0; graph.tensor(id).size_bytes()]).collect();
    let mut taken: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    let mut times = StepTimes::default();
    let mut arena = Arena::new();
    executable.run(&pool, &mut arena, &given, &mut taken, Some(&mut times)).expect("runs");
    let ops: Vec<&str> = times.steps.iter().map(|(_, op, _)| op.as_str()).collect();
    assert_eq!(ops, executable.labels());
    assert!(times.steps.iter().any(|(name, op, _)| op == "Attention" && name.starts_with("MatMul_")));
    assert!(times.steps.iter().map(|(_, _, ns)| ns).sum::<u64>() > 0);
    assert_eq!(arena.bytes(), executable.arena_bytes(2).next_multiple_of(64));
}

#[test]
fn a_left_out_operand_is_not_read() {
    let mut b = Build::new();
    let x = b.input("x", &[3, 40], Dtype::F32);
    let (none, nothing) = (b.null(), b.null());
    let beta = b.constant(&[40], Dtype::F32, &Noise(1).floats(40));
    let w = b.constant(&[8, 40], Dtype::F32, &Noise(2).floats(320));
    let axes = [("axes", ints(&[1])), ("epsilon", Param::F32(1e-6))];
    let normed = b.op("RmsNorm", &axes, &[x, none, beta], &[3, 40], Dtype::F32);
    let out = b.output("out", &[3, 8], Dtype::F32);
    b.node("FullyConnected", &[], &[normed, w, nothing], &[out]);
    compare(&b.graph, &[bytes_of(Dtype::F32, &Noise(3).floats(120))], 1e-5);
}

#[test]
fn what_is_read_of_an_output_is_what_was_written() {
    for through_view in [false, true] {
        let mut b = Build::new();
        let x = b.input("x", &[300], Dtype::F32);
        let half = b.output("half", &[300], Dtype::F16);
        let out = b.output("out", &[300], Dtype::F32);
        if through_view {
            let t = b.op("Relu", &[], &[x], &[300], Dtype::F16);
            b.node("Reshape", &[], &[t], &[half]);
        } else {
            b.node("Relu", &[], &[x], &[half]);
        }
        b.node("ElementWiseNeg", &[], &[half], &[out]);
        let values = Noise(5).floats(300);
        for fuse in [false, true] {
            let found = run(&b.graph, fuse, 2, &[bytes_of(Dtype::F32, &values)]).expect("runs");
            let rounded: Vec<f32> = values.iter().map(|x| half::f16::from_f32(x.max(0.0)).to_f32()).collect();
            assert!(rounded.iter().zip(&values).any(|(r, x)| *x > 0.0 && r != x), "rounding does something");
            assert_eq!(numbers_of(Dtype::F16, &found[0]), rounded);
            assert_eq!(numbers_of(Dtype::F32, &found[1]), rounded.iter().map(|x| -x).collect::<Vec<_>>());
        }
    }
}

#[test]
fn tensors_of_nothing_are_no_trouble() {
    let mut b = Build::new();
    let x = b.input("x", &[0, 8], Dtype::F32);
    let y = b.input("y", &[2, 8], Dtype::F32);
    let w = b.constant(&[5, 8], Dtype::F32, &Noise(2).floats(40));
    let none = b.op("FullyConnected", &[], &[x, w], &[0, 5], Dtype::F32);
    let none = b.op("Softmax", &[], &[none], &[0, 5], Dtype::F32);
    let one = b.op("FullyConnected", &[], &[y, w], &[2, 5], Dtype::F32);
    let sum = b.op("ElementWiseAdd", &[], &[none, none], &[0, 5], Dtype::F32);
    let both = b.op("Concat", &[("axis", Param::UInt(0))], &[sum, one], &[2, 5], Dtype::F32);
    let turned = b.op("Transpose", &[("perm", ints(&[1, 0]))], &[sum], &[5, 0], Dtype::F32);
    let product = b.op("MatMul", &[], &[turned, sum], &[5, 5], Dtype::F32);
    let nothing = b.output("nothing", &[0, 5], Dtype::F16);
    b.node("FullyConnected", &[], &[x, w], &[nothing]);
    let out = b.output("out", &[2, 5], Dtype::F32);
    b.node("MatMul", &[], &[both, product], &[out]);
    let outputs = compare(&b.graph, &[Vec::new(), bytes_of(Dtype::F32, &Noise(3).floats(16))], 1e-5);
    assert_eq!(outputs, [vec![], vec![0.0; 10]]);
}

#[test]
fn graphs_of_a_context_share_what_is_made_of_weights() {
    let weights = crate::bytes::Bytes::copy_from(&bytes_of(Dtype::F16, &Noise(4).floats(64 * 32)));
    let options = PrepareOptions::default();
    let sizes: Vec<Executable> = [1u32, 4]
        .into_iter()
        .map(|m| {
            let mut b = Build::new();
            let x = b.input("x", &[m, 64], Dtype::F32);
            let role = crate::ir::Role::Static(weights.clone());
            let w = b.tensor("w", &[64, 32], Dtype::F16, crate::ir::Quant::None, role);
            let out = b.output("out", &[m, 32], Dtype::F32);
            b.node("MatMul", &[], &[x, w], &[out]);
            Executable::prepare(&b.graph, &options).expect("prepares")
        })
        .collect();
    assert_eq!(sizes.len(), 2);
    assert_eq!(format!("{:?}", options.shared), "SharedConstants(1)", "transposed once");
    assert_eq!(Arc::strong_count(&options.shared), 1, "an executable keeps its own constants alive, not the cache");
}
