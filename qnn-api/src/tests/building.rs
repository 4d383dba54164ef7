//! What the library receives while a graph is composed.

use super::*;
use crate::fake::{backend, fail, take_calls};

fn context() -> Context {
    let context = Context::create(&backend(), &ContextOptions::default()).unwrap();
    take_calls();
    context
}

#[test]
fn tensors_and_nodes_arrive_as_they_were_given() {
    let mut graph = context().compose("g", &GraphOptions::default()).unwrap();
    let x = graph.tensor(&f32_tensor("x", [2, 3]), TensorKind::Input).unwrap();
    let w = graph.constant(&f32_tensor("w", [3]), &[0; 12]).unwrap();
    let h = graph.tensor(&f32_tensor("h", [2, 3]), TensorKind::Native).unwrap();
    let y = graph.tensor(&f32_tensor("y", [3, 2]), TensorKind::Output).unwrap();
    let axes = Param::U32Tensor { dims: vec![1], data: vec![1] };
    let params = [("epsilon", Param::F32(1.0)), ("axes", axes), ("fast", Param::Bool(true)), ("axis", Param::I32(-1))];
    graph.node("norm", "RmsNorm", &params, &[x, w], &[h]).unwrap();
    let ranges = Param::I32Tensor { dims: vec![1, 2], data: vec![-1, 5] };
    graph.node("turn", "Transpose", &[("perm", ranges), ("n", Param::U32(9))], &[h], &[y]).unwrap();
    let graph = graph.finalize().unwrap();
    assert_eq!(
        take_calls(),
        [
            "graphCreate g",
            "tensorCreateGraphTensor #1 g5 `x` type 0 [2, 3] 0 bytes",
            "tensorCreateGraphTensor #2 g5 `w` type 4 [3] 12 bytes",
            "tensorCreateGraphTensor #3 g5 `h` type 3 [2, 3] 0 bytes",
            "tensorCreateGraphTensor #4 g5 `y` type 1 [3, 2] 0 bytes",
            "tensorCreateGraphTensor #5 g5 `norm_axes` type 4 [1] 4 bytes",
            "graphAddNode `norm` qti.aisw::RmsNorm epsilon=0x232:0x3f800000 axes=#5[1] fast=0x508:0x1 axis=0x32:0xffffffff \
             <- [1, 2] -> [3]",
            "tensorCreateGraphTensor #6 g5 `turn_perm` type 4 [1, 2] 8 bytes",
            "graphAddNode `turn` qti.aisw::Transpose perm=#6[4294967295, 5] n=0x132:0x9 <- [3] -> [4]",
            "graphFinalize 5",
        ]
    );
    let names = |tensors: &[TensorInfo]| tensors.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&graph.info().inputs), names(&graph.info().outputs)),
        (vec!["x".to_owned()], vec!["y".to_owned()])
    );
}

#[test]
fn texts_wide_numbers_and_tables_of_any_type_arrive() {
    let mut graph = context().compose("g", &GraphOptions::default()).unwrap();
    take_calls();
    let halves = Param::Tensor { dtype: Dtype::F16, dims: vec![2], data: vec![0, 0x38, 0, 0xc0] };
    let params = [
        ("mode", Param::Text("row-major é".into())),
        ("none", Param::Text(String::new())),
        ("tenth", Param::F64(0.1)),
        ("far", Param::I64(-2)),
        ("large", Param::U64(1 << 40)),
        ("floats", Param::F32Tensor { dims: vec![1, 2], data: vec![1.0, -2.0] }),
        ("halves", halves),
    ];
    graph.node("n", "own::Op", &params, &[], &[]).unwrap();
    assert_eq!(
        take_calls(),
        [
            "tensorCreateGraphTensor #1 g5 `n_floats` type 4 [1, 2] 8 bytes",
            "tensorCreateGraphTensor #2 g5 `n_halves` type 4 [2] 4 bytes",
            "graphAddNode `n` own::Op mode=0x608:`row-major é` none=0x608:`` tenth=0x264:0x3fb999999999999a \
             far=0x64:0xfffffffffffffffe large=0x164:0x10000000000 floats=#1[1065353216, 3221225472] \
             halves=#2[3221239808] <- [] -> []",
        ]
    );
}

#[test]
fn several_graphs_are_built_side_by_side_and_do_not_mix() {
    let context = context();
    let mut a = context.compose("a", &GraphOptions::default()).unwrap();
    let mut b = context.compose("b", &GraphOptions::default()).unwrap();
    let of_a = a.tensor(&f32_tensor("x", [1]), TensorKind::Input).unwrap();
    let of_b = b.tensor(&f32_tensor("x", [1]), TensorKind::Input).unwrap();
    assert_ne!(of_a, of_b);
    let error = b.node("n", "Relu", &[], &[of_a], &[of_b]).unwrap_err();
    assert_eq!(error.to_string(), "graph `b`, node `n`: a tensor of another graph was given");
}

#[test]
fn contradictions_are_found_before_the_library_is_asked() {
    let mut graph = context().compose("g", &GraphOptions::default()).unwrap();
    take_calls();
    let error = graph.constant(&f32_tensor("w", [3]), &[0; 8]).unwrap_err();
    assert_eq!(error.to_string(), "graph `g`: tensor `w` takes 12 bytes, the buffer has 8");
    let short = Param::U32Tensor { dims: vec![2, 2], data: vec![1, 2, 3] };
    let error = graph.node("n", "Pad", &[("pad_amount", short)], &[], &[]).unwrap_err();
    assert_eq!(error.to_string(), "graph `g`, node `n`: parameter `pad_amount` [2, 2]: expected 4 elements, found 3");
    let floats = Param::F32Tensor { dims: vec![3], data: vec![1.0; 2] };
    let bytes = Param::Tensor { dtype: Dtype::I64, dims: vec![2, 1], data: vec![0; 12] };
    for (param, expected) in [
        (floats, " [3]: expected 3 elements, found 2"),
        (bytes, " [2, 1]: expected 16 bytes of int64, found 12"),
        (Param::Text("a\0b".into()), ": expected a text without a zero byte, found \"a\\0b\""),
    ] {
        // Not even the table before it is declared.
        let first = ("first", Param::U32Tensor { dims: vec![1], data: vec![1] });
        let error = graph.node("n", "own::Op", &[first, ("p", param)], &[], &[]).unwrap_err();
        assert_eq!(error.to_string(), format!("graph `g`, node `n`: parameter `p`{expected}"));
    }
    assert!(take_calls().is_empty());
}

#[test]
fn refusals_name_node_op_and_graph() {
    let mut graph = context().compose("g", &GraphOptions::default()).unwrap();
    let x = graph.tensor(&f32_tensor("x", [1]), TensorKind::Input).unwrap();
    fail("graphAddNode", 6005);
    let error = graph.node("n", "Relu", &[], &[x], &[]).unwrap_err();
    assert_eq!(error.to_string(), "cannot add node `n` (`Relu`) to graph `g`");
    fail("tensorCreateGraphTensor", 7003);
    let error = graph.tensor(&f32_tensor("x", [1]), TensorKind::Input).unwrap_err();
    assert_eq!(error.to_string(), "cannot declare tensor `x` of graph `g`");
    fail("graphFinalize", 6022);
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.to_string(), "cannot finalize graph `g`");
    assert_eq!(error.qnn().unwrap().name(), "QNN_GRAPH_ERROR_FINALIZE_FAILED");
}
