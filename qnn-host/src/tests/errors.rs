//! Graphs that do not hang together: an error that names the thing, never a panic.

use crate::bytes::Bytes;
use crate::exec::Executable;
use crate::graph::ExecError;
use crate::ir::{Dtype, Param, Quant, Role, TensorId};
use crate::pool::Pool;
use crate::prepare::PrepareOptions;
use crate::step::Arena;
use crate::testing::{Build, bytes_of, ints, run};

fn message(b: &Build) -> String {
    let messages = [true, false].map(|fuse| {
        let error = Executable::prepare(&b.graph, &PrepareOptions { fuse, ..PrepareOptions::default() })
            .expect_err("must be refused");
        error.to_string()
    });
    assert_eq!(messages[0], messages[1], "the same with and without fusion");
    messages[0].clone()
}

/// One node over `f32` inputs of these shapes.
fn refused(op: &str, params: &[(&str, Param)], inputs: &[&[u32]], outputs: &[&[u32]], expected: &str) {
    let mut b = Build::new();
    let ids: Vec<TensorId> =
        inputs.iter().enumerate().map(|(i, d)| b.input(&format!("in{i}"), d, Dtype::F32)).collect();
    let outs: Vec<TensorId> =
        outputs.iter().enumerate().map(|(i, d)| b.output(&format!("out{i}"), d, Dtype::F32)).collect();
    b.node(op, params, &ids, &outs);
    assert_eq!(message(&b), expected);
}

#[test]
fn nodes_that_contradict_their_operands() {
    let node = |op: &str, rest: &str| format!("node `{op}_0` ({op}), {rest}");
    let table = |width: u32, values: &[i64]| Param::Ints(vec![1, width], values.to_vec());
    type Shapes = &'static [&'static [u32]];
    type Case = (&'static str, Vec<(&'static str, Param)>, Shapes, Shapes, &'static str);
    let cases: [Case; 21] = [
        (
            "ElementWiseAdd",
            vec![],
            &[&[2, 3], &[2]],
            &[&[2, 3]],
            "input 1 `in1`: expected dims that broadcast with [2, 3], found [2]",
        ),
        ("ElementWiseAdd", vec![], &[&[2, 3], &[3]], &[&[2, 4]], "output 0 `out0`: expected dims [2, 3], found [2, 4]"),
        ("ElementWiseAdd", vec![], &[&[2, 3]], &[&[2, 3]], "number of inputs: expected 2, found 1"),
        ("ElementWiseAdd", vec![], &[&[2], &[2]], &[], "number of outputs: expected 1, found 0"),
        (
            "ElementWiseBinary",
            vec![("operation", Param::UInt(20))],
            &[&[2], &[2]],
            &[&[2]],
            "parameter `operation`: expected 0 to 19, found 20",
        ),
        ("ElementWiseUnary", vec![], &[&[2]], &[&[2]], "parameter `operation`: expected it given, found none"),
        ("Reshape", vec![], &[&[2, 3]], &[&[7]], "output 0 `out0`: expected 6 elements as [2, 3] has, found [7]"),
        (
            "Transpose",
            vec![("perm", ints(&[0, 0]))],
            &[&[2, 3]],
            &[&[2, 3]],
            "parameter `perm`: expected distinct axes below rank 2, found [0, 0]",
        ),
        ("Transpose", vec![], &[&[2, 3]], &[&[3, 2]], "parameter `perm`: expected it given, found none"),
        (
            "Concat",
            vec![("axis", Param::UInt(2))],
            &[&[2, 3]],
            &[&[2, 3]],
            "parameter `axis`: expected an axis below rank 2, found 2",
        ),
        (
            "Concat",
            vec![("axis", Param::UInt(0))],
            &[&[2, 3], &[2, 4]],
            &[&[4, 3]],
            "input 1 `in1`: expected the dims [2, 3] off axis 0, found [2, 4]",
        ),
        (
            "Split",
            vec![("axis", Param::UInt(0)), ("split_index", ints(&[5]))],
            &[&[4]],
            &[&[5], &[1]],
            "parameter `split_index`: expected rising cuts inside 1..4, found [5]",
        ),
        (
            "FullyConnected",
            vec![],
            &[&[2, 5], &[3, 4]],
            &[&[2, 3]],
            "input 1 `in1`: expected weights [out, 5], found [3, 4]",
        ),
        (
            "FullyConnected",
            vec![],
            &[&[2, 4], &[3, 4], &[2]],
            &[&[2, 3]],
            "input 2 `in2`: expected bias [3], found [2]",
        ),
        (
            "MatMul",
            vec![],
            &[&[2, 5], &[4, 3]],
            &[&[2, 3]],
            "input 1 `in1`: expected inner extent 5 as input 0 [2, 5], found 4 in [4, 3]",
        ),
        (
            "RmsNorm",
            vec![("axes", ints(&[1])), ("epsilon", Param::F32(1e-6))],
            &[&[2, 5], &[4]],
            &[&[2, 5]],
            "input 1 `in1`: expected dims [5], found [4]",
        ),
        (
            "RotaryEmbedding",
            vec![],
            &[&[1, 2, 3, 4], &[1, 3, 3], &[1, 3, 3]],
            &[&[1, 2, 3, 4]],
            "input 1 `in1`: expected [1, 3, 2], found [1, 3, 3]",
        ),
        ("TopK", vec![("k", Param::UInt(9))], &[&[4]], &[&[4], &[4]], "parameter `k`: expected 1 to 4, found 9"),
        (
            "Gather",
            vec![("axis", Param::Int(0))],
            &[&[4, 2], &[1]],
            &[&[1, 2]],
            "input 1 `in1`: expected integers, found F32",
        ),
        (
            "StridedSlice",
            vec![("ranges", table(3, &[0, 2, 0]))],
            &[&[4]],
            &[&[2]],
            "parameter `ranges`: expected a range that takes something of 4 elements on axis 0, found [0, 2, 0]",
        ),
        (
            "Pad",
            vec![("scheme", Param::UInt(2)), ("pad_amount", table(2, &[2, 0]))],
            &[&[2]],
            &[&[4]],
            "parameter `pad_amount`: expected 0 to 1 on an axis of 2, found [2, 0]",
        ),
    ];
    for (op, params, inputs, outputs, expected) in cases {
        refused(op, &params, inputs, outputs, &node(op, expected));
    }
    refused("Stft", &[], &[&[2]], &[&[2]], &node("Stft", "op type: expected an op this backend has, found `Stft`"));
    let why = &node("RmsNorm", "parameter `axes`: expected [1], the last axis, found [0]");
    refused("RmsNorm", &[("axes", ints(&[0]))], &[&[2, 2], &[2]], &[&[2, 2]], why);
}

#[test]
fn graphs_that_do_not_hang_together() {
    let mut b = Build::new();
    let t = b.native(&[2], Dtype::F32);
    let out = b.output("out", &[2], Dtype::F32);
    b.node("Relu", &[], &[t], &[out]);
    assert_eq!(message(&b), "graph `test`: node `Relu_0` reads `t0` before a node has written it");

    let mut b = Build::new();
    b.output("out", &[2], Dtype::F32);
    assert_eq!(message(&b), "graph `test`: no node writes output `out`");

    let mut b = Build::new();
    let x = b.input("x", &[2], Dtype::F32);
    b.node("Relu", &[], &[x], &[x]);
    assert_eq!(message(&b), "graph `test`: node `Relu_0` writes `x`, which has its contents already");

    let mut b = Build::new();
    let x = b.input("x", &[2], Dtype::F32);
    b.node("Relu", &[], &[x], &[TensorId(9)]);
    assert_eq!(message(&b), "graph `test`: node `Relu_0` names tensor 9 of 1");

    let mut b = Build::new();
    let x = b.input("x", &[2], Dtype::F32);
    let (y, z) = (b.native(&[2], Dtype::F32), b.native(&[2], Dtype::F32));
    b.node("Relu", &[], &[x], &[y, z]);
    assert_eq!(message(&b), "node `Relu_0` (Relu), number of outputs: expected 1, found 2");

    let mut b = Build::new();
    b.tensor("w", &[3], Dtype::F32, Quant::None, Role::Static(Bytes::copy_from(&[0; 8])));
    assert_eq!(message(&b), "graph `test`: constant `w`: expected 12 bytes, found 8");

    let mut b = Build::new();
    let quant = Quant::PerAxis { axis: 1, bits: 8, scales: [1.0; 2].into(), offsets: [].into() };
    b.tensor("w", &[2, 3], Dtype::SFixed8, quant, Role::Static(Bytes::copy_from(&[0; 6])));
    assert_eq!(message(&b), "graph `test`: constant `w`: expected 3 scales, found 2 and 0 offsets");

    let mut b = Build::new();
    b.tensor("x", &[2], Dtype::UFixed8, Quant::PerTensor { scale: 0.0, offset: 0 }, Role::Input);
    assert_eq!(message(&b), "graph `test`: tensor `x`: scale must be positive, found 0");

    let mut b = Build::new();
    b.input("x", &[u32::MAX, u32::MAX], Dtype::F32);
    assert_eq!(message(&b), "graph `test`: tensor `x` is too large: [4294967295, 4294967295]");

    let mut b = Build::new();
    let x = b.input("x", &[1 << 19, 1 << 18], Dtype::F32);
    let t = b.op("Relu", &[], &[x], &[1 << 19, 1 << 18], Dtype::F32);
    let out = b.output("out", &[1 << 19, 1 << 18], Dtype::F32);
    b.node("Relu", &[], &[t], &[out]);
    let huge = Executable::prepare(&b.graph, &PrepareOptions::default()).map(|e| e.arena_bytes(1));
    let bytes = 1usize << 40;
    match huge {
        Ok(found) => assert_eq!(found, bytes),
        Err(error) => {
            let needs =
                format!("graph `test`: a run needs {} kB of memory, the system gives none", bytes.div_ceil(1000));
            assert_eq!(error.to_string(), needs);
        }
    }
}

#[test]
fn buffers_of_the_wrong_number_or_size() {
    let mut b = Build::new();
    let x = b.input("x", &[4], Dtype::F16);
    let out = b.output("out", &[4], Dtype::F32);
    b.node("Relu", &[], &[x], &[out]);
    let executable = Executable::prepare(&b.graph, &PrepareOptions::default()).expect("prepares");
    let run = |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
        executable.run(&Pool::inline(), &mut Arena::new(), inputs, outputs, None).map_err(|e| e.to_string())
    };
    assert_eq!(run(&[], &mut [&mut [0; 16]]), Err("input buffers: expected 1, found 0".to_owned()));
    assert_eq!(run(&[&[0; 8]], &mut []), Err("output buffers: expected 1, found 0".to_owned()));
    assert_eq!(run(&[&[0; 7]], &mut [&mut [0; 16]]), Err("buffer of tensor `x`: expected 8 bytes, found 7".to_owned()));
    assert_eq!(
        run(&[&[0; 8]], &mut [&mut [0; 12]]),
        Err("buffer of tensor `out`: expected 16 bytes, found 12".to_owned())
    );
    assert_eq!(run(&[&[0; 8]], &mut [&mut [0; 16]]), Ok(()));
}

#[test]
fn indices_out_of_range_at_any_operation() {
    let index =
        |op: &str, params: &[(&str, Param)], table: &[u32], index: &[u32], updates: Option<&[u32]>, out: &[u32]| {
            let mut b = Build::new();
            let table = b.input("table", table, Dtype::F32);
            let at = b.input("index", index, Dtype::I32);
            let mut inputs = vec![table, at];
            inputs.extend(updates.map(|dims| b.input("updates", dims, Dtype::F32)));
            let out = b.output("out", out, Dtype::F32);
            b.node(op, params, &inputs, &[out]);
            for bad in [3, -1, i32::MAX, i32::MIN] {
                let bytes: Vec<Vec<u8>> = (b.graph.inputs())
                    .map(|id| {
                        let tensor = b.graph.tensor(id);
                        let mut bytes = bytes_of(tensor.dtype, &vec![0.0; tensor.n_elems()]);
                        if tensor.name == "index" {
                            let last = bytes.len() - 4;
                            bytes[last..].copy_from_slice(&bad.to_ne_bytes());
                        }
                        bytes
                    })
                    .collect();
                for (fuse, threads) in [(true, 1), (true, 2), (false, 1), (false, 2)] {
                    let found = run(&b.graph, fuse, threads, &bytes).map(drop);
                    let expected = ExecError::Index { node: format!("{op}_0"), index: i64::from(bad), limit: 3 };
                    // A scatter does not write beyond the end.
                    let expected = if updates.is_some() && bad >= 0 { Ok(()) } else { Err(expected) };
                    assert_eq!(found, expected, "{op} at {bad}, fused {fuse}, {threads} threads");
                }
            }
        };
    let axis = [("axis", Param::UInt(0))];
    index("Gather", &axis, &[3, 2], &[4], None, &[4, 2]);
    index("GatherElements", &axis, &[3, 2], &[4, 2], None, &[4, 2]);
    index("GatherNd", &[], &[3, 2], &[4, 1], None, &[4, 2]);
    index("ScatterElements", &axis, &[3, 2], &[2, 2], Some(&[2, 2]), &[3, 2]);
    index("ScatterNd", &[], &[3, 2], &[2, 1], Some(&[2, 2]), &[3, 2]);
}
