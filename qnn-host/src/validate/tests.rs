//! Cases for each op: one that passes, and the messages of those that fail.

use super::*;
use crate::bytes::Bytes;
use crate::ir::{Dtype, Param, Quant, TensorId};
use crate::ops::samples::{B, F, H, I, Sample, ints};
use crate::ops::{Row, spec};

fn of(name: String, (dtype, dims): (Dtype, &[u32]), role: Role) -> Tensor {
    let quant = match dtype {
        Dtype::UFixed8 | Dtype::UFixed16 => Quant::PerTensor { scale: 0.25, offset: -8 },
        Dtype::SFixed8 | Dtype::SFixed16 => Quant::PerTensor { scale: 0.25, offset: 0 },
        _ => Quant::None,
    };
    Tensor { name, dims: dims.into(), dtype, quant, data_format: 0, role }
}

type T<'a> = (Dtype, &'a [u32]);

fn node(op: &str, params: &[(&str, Param)], inputs: &[T<'_>], outputs: &[T<'_>]) -> SourceGraph {
    let mut graph = SourceGraph { name: "g".into(), ..SourceGraph::default() };
    let ids = |graph: &mut SourceGraph, list: &[T<'_>], prefix: &str, role: &Role| {
        let place = |(i, t): (usize, &T<'_>)| {
            graph.tensors.push(of(format!("{prefix}{i}"), *t, if t.1.is_empty() { Role::Null } else { role.clone() }));
            TensorId(graph.tensors.len() as u32 - 1)
        };
        list.iter().enumerate().map(place).collect::<Vec<_>>()
    };
    let inputs = ids(&mut graph, inputs, "in", &Role::Input);
    let outputs = ids(&mut graph, outputs, "out", &Role::Output);
    let params = params.iter().map(|(n, p)| ((*n).to_owned(), p.clone())).collect();
    graph.nodes.push(Node { name: "n".into(), op: op.into(), params, inputs, outputs });
    graph
}

fn check(graph: &SourceGraph) -> Result<(), String> {
    check_graph(graph).map_err(|v| v.to_string())
}

/// What the checks accept must also be what the executor can prepare and run, on zeros at least.
fn runs(graph: &SourceGraph) {
    use crate::exec::Executable;
    use crate::prepare::PrepareOptions;
    use crate::step::Arena;
    let op = &graph.nodes[0].op;
    let executable = Executable::prepare(graph, &PrepareOptions::default()).unwrap_or_else(|e| panic!("{op}: {e}"));
    let inputs: Vec<_> = graph.inputs().map(|id| vec![0u8; graph.tensor(id).size_bytes()]).collect();
    let mut outputs: Vec<_> = graph.outputs().map(|id| vec![0u8; graph.tensor(id).size_bytes()]).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    let pool = crate::pool::Pool::inline();
    let done = executable.run(&pool, &mut Arena::new(), &inputs, &mut outputs, None);
    done.unwrap_or_else(|e| panic!("{op}: {e}"));
}

#[test]
fn every_op_passes_and_runs() {
    let mut seen = std::collections::BTreeSet::new();
    let mut one = |op: &str, params: &[(&str, Param)], inputs: &[T<'_>], outputs: &[T<'_>]| {
        seen.insert(op.to_owned());
        let graph = node(op, params, inputs, outputs);
        assert_eq!(check(&graph), Ok(()), "{op}");
        runs(&graph);
    };
    for Sample { op, params, inputs, outputs } in ops::samples() {
        one(op, &params, &inputs, &outputs);
    }
    // The families: same extents in and out, or two inputs that broadcast.
    let quant = Dtype::UFixed16;
    for s in ops::all() {
        let alike = std::ptr::fn_addr_eq(s.shapes, ops::SAME);
        let pairs = std::ptr::fn_addr_eq(s.shapes, ops::BROADCAST);
        let has =
            |set: u32, dtype: Dtype| Dtype::ALL.iter().position(|d| *d == dtype).is_some_and(|b| set >> b & 1 == 1);
        if !alike && !pairs || matches!(s.name, "Cast" | "Convert" | "Quantize" | "Dequantize") {
            continue;
        }
        for dtype in [F, H, I, quant, B] {
            let out = if s.same_out == 1 { dtype } else { B };
            let fits = |r: &&Row| r.inputs.iter().all(|set| has(*set, dtype)) && has(r.outputs[0], out);
            if s.rows.iter().find(fits).is_none() {
                continue;
            }
            match pairs {
                true => one(s.name, &[], &[(dtype, &[2, 3]), (dtype, &[3])], &[(out, &[2, 3])]),
                false => one(s.name, &[], &[(dtype, &[2, 3])], &[(out, &[2, 3])]),
            }
        }
    }
    let missing: Vec<_> = ops::all().map(|s| s.name).filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "no sample of {missing:?}");
}

#[test]
fn violations_name_the_place() {
    let f = |d: &'static [u32]| (F, d);
    let u = Param::UInt;
    let cases: Vec<(SourceGraph, &str)> = vec![
        (
            node("Silu", &[], &[f(&[1])], &[f(&[1])]),
            "node `n` (Silu), op type: expected an op this backend has, found `Silu`",
        ),
        (node("softmax", &[], &[f(&[1])], &[f(&[1])]), "(did you mean `Softmax`?)"),
        (node("Sigmoid", &[], &[], &[f(&[1])]), "number of inputs: expected 1, found 0"),
        (node("Concat", &[], &[], &[f(&[1])]), "number of inputs: expected at least 1, found 0"),
        (
            node("Sigmoid", &[("beta", u(1))], &[f(&[1])], &[f(&[1])]),
            "parameters: expected no parameters, found `beta`",
        ),
        (
            node("Gather", &[], &[f(&[3, 2]), (I, &[1])], &[f(&[1, 2])]),
            "parameter `axis`: expected it given, found none",
        ),
        (node("Gather", &[("axis", Param::F32(0.0))], &[f(&[3]), (I, &[1])], &[f(&[1])]), "expected an integer scalar"),
        (
            node("Gather", &[("axis", u(9))], &[f(&[3]), (I, &[1])], &[f(&[1])]),
            "expected an axis below rank 1, found 9",
        ),
        (
            node("Gather", &[("axis", u(0))], &[f(&[3]), f(&[1])], &[f(&[1])]),
            "input 1 `in1`: expected I32 or U32, found F32",
        ),
        (node("Sigmoid", &[], &[f(&[3])], &[f(&[4])]), "output 0 `out0`: expected dims [3], found [4]"),
        (node("Sigmoid", &[], &[f(&[3])], &[(H, &[3])]), "output 0 `out0`: expected F32 as input 0, found F16"),
        (
            node("ElementWiseAdd", &[], &[f(&[3]), (H, &[3])], &[f(&[3])]),
            "input 1 `in1`: expected F32 as input 0, found F16",
        ),
        (
            node("ElementWiseAdd", &[], &[f(&[3]), f(&[2])], &[f(&[3])]),
            "expected dims that broadcast with [3], found [2]",
        ),
        (
            node("FullyConnected", &[], &[f(&[2, 4]), f(&[4, 8])], &[f(&[2, 8])]),
            "expected weights [out, 4], found [4, 8]",
        ),
        (
            node("FullyConnected", &[], &[f(&[2, 4]), f(&[8, 4]), f(&[7])], &[f(&[2, 8])]),
            "expected bias [8], found [7]",
        ),
        (node("FullyConnected", &[], &[f(&[2, 4]), (F, &[])], &[f(&[2, 8])]), "input 1: expected a tensor, found none"),
        (node("MatMul", &[], &[f(&[2, 4]), f(&[3, 8])], &[f(&[2, 8])]), "expected inner extent 4"),
        (
            node("RmsNorm", &[("axes", ints(&[0]))], &[f(&[2, 4])], &[f(&[2, 4])]),
            "expected [1], the last axis, found [0]",
        ),
        (
            node("Transpose", &[("perm", ints(&[0, 0]))], &[f(&[2, 4])], &[f(&[2, 4])]),
            "expected distinct axes below rank 2",
        ),
        (node("Reshape", &[], &[f(&[2, 4])], &[f(&[7])]), "expected 8 elements as [2, 4] has, found [7]"),
        (
            node("Split", &[("axis", u(0)), ("split_index", ints(&[3, 2]))], &[f(&[7])], &[f(&[3]), f(&[4])]),
            "rising cuts",
        ),
        (
            node("Split", &[("axis", u(0)), ("split_index", ints(&[3]))], &[f(&[7])], &[f(&[3])]),
            "number of outputs: expected 2",
        ),
        (node("ElementWiseNeuron", &[("operation", u(9))], &[f(&[1])], &[f(&[1])]), "expected 0 to 8, found 9"),
        (
            node("RmsNorm", &[("axes", ints(&[0])), ("epsilon", Param::F32(f32::NAN))], &[f(&[1])], &[f(&[1])]),
            "a finite float32",
        ),
        (
            node("Sigmoid", &[], &[f(&[3, 0])], &[f(&[3, 0])]),
            "tensor `in0`: expected extents of at least 1, found [3, 0]",
        ),
        (
            node("Sigmoid", &[], &[f(&[u32::MAX; 5])], &[f(&[u32::MAX; 5])]),
            "expected a size that fits the address space",
        ),
        (node("Sigmoid", &[], &[f(&[1; 9])], &[f(&[1; 9])]), "expected rank 1 to 8, found rank 9"),
        (
            node("RotaryEmbedding", &[], &[f(&[1, 4, 3, 8]), f(&[1, 3, 8]), f(&[1, 3, 8])], &[f(&[1, 4, 3, 8])]),
            "input 1 `in1`: expected [1, 3, 4], found [1, 3, 8]",
        ),
        (
            node(
                "Pad",
                &[("scheme", u(2)), ("pad_amount", Param::Ints(vec![1, 2], vec![3, 0]))],
                &[f(&[3])],
                &[f(&[6])],
            ),
            "expected 0 to 2 on an axis of 3",
        ),
    ];
    for (graph, says) in cases {
        let error = check(&graph).expect_err(says);
        assert!(error.contains(says), "expected `{says}` in `{error}`");
    }
}

#[test]
fn fixed_point_needs_an_encoding_where_it_is_a_number() {
    let (q, mut out) = ((Dtype::UFixed16, &[3u32][..]), Vec::new());
    for op in ["Sigmoid", "Reshape", "Cast"] {
        let mut graph = node(op, &[], &[q], &[q]);
        assert_eq!(check(&graph), Ok(()), "{op}");
        graph.tensors[1].quant = Quant::None;
        out.push(check(&graph));
    }
    let says = "node `n` (Sigmoid), output 0 `out0`: expected an encoding for its fixed point, found none";
    assert_eq!(out, [Err(says.to_owned()), Ok(()), Ok(())]);
}

#[test]
fn wiring_is_checked() {
    let mut graph = node("Sigmoid", &[], &[(F, &[3])], &[(F, &[3])]);
    graph.nodes.push(Node { name: "again".into(), ..graph.nodes[0].clone() });
    assert!(
        check(&graph).unwrap_err().contains("node `again` (Sigmoid), output 0 `out0`: expected a tensor that no node")
    );

    graph.nodes.pop();
    graph.tensors[0].role = Role::Native;
    assert!(check(&graph).unwrap_err().contains("input 0 `in0`: expected a tensor that an earlier node made"));

    graph.tensors[0].role = Role::Input;
    graph.nodes[0].outputs = vec![TensorId(0)];
    assert!(check(&graph).unwrap_err().contains("found an input of the graph"));

    graph.nodes.clear();
    assert_eq!(check(&graph).unwrap_err(), "graph `g`: expected at least one node, found none");

    let mut twice = node("Sigmoid", &[], &[(F, &[3])], &[(F, &[3])]);
    twice.tensors.push(of("extra".into(), (F, &[1]), Role::Output));
    assert_eq!(check(&twice).unwrap_err(), "graph `g`: expected outputs that a node makes, found `extra` unmade");
    twice.tensors[2].name = "in0".into();
    assert_eq!(check(&twice).unwrap_err(), "graph `g`: expected tensor names that differ, found `in0` twice");
}

#[test]
fn static_data_and_encodings_are_measured() {
    let mut w = of("w".into(), (F, &[2, 3]), Role::Static(Bytes::copy_from(&[0; 23])));
    assert_eq!(check_tensor(&w).unwrap_err().to_string(), "tensor `w`: expected 24 bytes of data for [2, 3], found 23");
    w.role = Role::Static(Bytes::copy_from(&[0; 24]));
    assert_eq!(check_tensor(&w), Ok(()));
    let per_axis = |axis, n: usize| Quant::PerAxis { axis, bits: 0, scales: vec![1.0; n].into(), offsets: [].into() };
    let cases = [
        (per_axis(0, 2), None),
        (per_axis(1, 2), Some("3 scales, one for each index of the axis")),
        (per_axis(2, 2), Some("an encoding axis below rank 2")),
        (Quant::PerTensor { scale: f32::INFINITY, offset: 0 }, Some("finite scales")),
        (Quant::Block { block_dims: [1, 3].into(), scales: [1.0, 2.0].into(), offsets: [].into() }, None),
        (
            Quant::Block { block_dims: [1, 2].into(), scales: [1.0].into(), offsets: [].into() },
            Some("blocks that divide"),
        ),
        (
            Quant::Block { block_dims: [0, 3].into(), scales: [1.0].into(), offsets: [].into() },
            Some("blocks that divide"),
        ),
    ];
    for (quant, says) in cases {
        w.quant = quant.clone();
        match (check_tensor(&w), says) {
            (Ok(()), None) => {}
            (Err(v), Some(says)) => assert!(v.expected.contains(says), "{quant:?}: {v}"),
            (other, _) => panic!("{quant:?}: {other:?}"),
        }
    }
}

#[test]
fn the_table_is_in_order() {
    let mut names: Vec<_> = ops::all().map(|s| s.name).collect();
    let n = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), n, "an op twice");
    for s in ops::all() {
        assert!(!s.rows.is_empty() && s.inputs.0 <= s.inputs.1 && s.outputs.0 <= s.outputs.1, "{}", s.name);
        for row in s.rows {
            assert!(
                row.inputs.iter().chain(row.outputs).all(|set| *set != 0 && *set < 1 << Dtype::ALL.len()),
                "{}",
                s.name
            );
        }
    }
    // The bits of the table are the places in `Dtype::ALL`.
    let (sigmoid, gather) = (spec("Sigmoid").unwrap(), spec("Gather").unwrap());
    assert_eq!(sigmoid.rows[0].inputs[0], 1 << 8 | 1 << 9);
    assert_eq!((Dtype::ALL[8], Dtype::ALL[9], Dtype::ALL[18]), (Dtype::F16, Dtype::F32, Dtype::Bool8));
    assert_eq!(gather.rows[0].inputs[1], 1 << 2 | 1 << 6);
    assert_eq!((Dtype::ALL[2], Dtype::ALL[6]), (Dtype::I32, Dtype::U32));
    assert_eq!((Dtype::ALL[15], Dtype::ALL[16], Dtype::ALL[11]), (Dtype::UFixed8, Dtype::UFixed16, Dtype::SFixed8));
}
