//! Graphs that scatter new keys and values into the past at a cache index, fused against unfused.

use proptest::prelude::*;

use crate::ir::{Dtype, Param, TensorId};
use crate::testing::{Build, Noise, bytes_of, cases, compare, ints, labels, run};

#[derive(Clone, Copy, Debug)]
struct Shape {
    kv: u32,
    group: u32,
    n: u32,
    cl: u32,
    hd: u32,
    dtype: Dtype,
    layers: usize,
    nd: bool,
}

/// The columns of the new ones, one after the other from the cache index on.
fn columns(b: &mut Build, s: Shape, cache_index: TensorId) -> TensorId {
    let count: Vec<f32> = (0..s.n).map(|i| i as f32).collect();
    let count = b.constant(&[s.n], Dtype::I32, &count);
    b.op("ElementWiseAdd", &[], &[cache_index, count], &[s.n], Dtype::I32)
}

/// `past` with `new` scattered along `axis`, by elements: the columns repeated for everything else.
fn by_elements(b: &mut Build, s: Shape, columns: TensorId, past: TensorId, new: TensorId, keys: bool) -> TensorId {
    let (line, whole, axis) =
        if keys { ([1, 1, 1, s.n], [s.kv, 1, s.hd, s.n], 3) } else { ([1, 1, s.n, 1], [s.kv, 1, s.n, s.hd], 2) };
    let index = b.op("Reshape", &[], &[columns], &line, Dtype::I32);
    let multiples: Vec<i64> = whole.iter().zip(line).map(|(w, l)| i64::from(w / l)).collect();
    let index = b.op("Tile", &[("multiples", ints(&multiples))], &[index], &whole, Dtype::I32);
    let dims = if keys { [s.kv, 1, s.hd, s.cl] } else { [s.kv, 1, s.cl, s.hd] };
    b.op("ScatterElements", &[("axis", Param::UInt(axis))], &[past, index, new], &dims, s.dtype)
}

/// The same for values by places `(head, 0, column)`.
fn by_places(b: &mut Build, s: Shape, columns: TensorId, past: TensorId, new: TensorId) -> TensorId {
    let heads: Vec<f32> = (0..s.kv * s.n).flat_map(|i| [(i / s.n) as f32, 0.0]).collect();
    let heads = b.constant(&[s.kv, 1, s.n, 2], Dtype::I32, &heads);
    let line = b.op("Reshape", &[], &[columns], &[1, 1, s.n, 1], Dtype::I32);
    let tiled =
        b.op("Tile", &[("multiples", ints(&[i64::from(s.kv), 1, 1, 1]))], &[line], &[s.kv, 1, s.n, 1], Dtype::I32);
    let index = b.op("Concat", &[("axis", Param::UInt(3))], &[heads, tiled], &[s.kv, 1, s.n, 3], Dtype::I32);
    b.op("ScatterNd", &[], &[past, index, new], &[s.kv, 1, s.cl, s.hd], s.dtype)
}

fn graph(s: Shape) -> Build {
    let mut b = Build::new();
    let cache_index = b.input("cache_index", &[1], Dtype::I32);
    let mask = b.input("attention_mask", &[1, 1, s.n, s.cl], s.dtype);
    let columns = columns(&mut b, s, cache_index);
    for layer in 0..s.layers {
        let mut input = |name: &str, dims: &[u32]| b.input(&format!("{name}_{layer}"), dims, s.dtype);
        let q = input("q", &[s.kv, s.group, s.n, s.hd]);
        let past_k = input("past_k", &[s.kv, 1, s.hd, s.cl]);
        let past_v = input("past_v", &[s.kv, 1, s.cl, s.hd]);
        let new_k = input("new_k", &[s.kv, 1, s.hd, s.n]);
        let new_v = input("new_v", &[s.kv, 1, s.n, s.hd]);
        let k = by_elements(&mut b, s, columns, past_k, new_k, true);
        let v = match s.nd {
            true => by_places(&mut b, s, columns, past_v, new_v),
            false => by_elements(&mut b, s, columns, past_v, new_v, false),
        };
        let dims = [s.kv, s.group, s.n, s.cl];
        let scores = b.op("MatMul", &[], &[q, k], &dims, s.dtype);
        let scores = b.op("ElementWiseAdd", &[], &[scores, mask], &dims, s.dtype);
        let p = b.op("Softmax", &[], &[scores], &dims, s.dtype);
        let out = b.output(&format!("out_{layer}"), &[s.kv, s.group, s.n, s.hd], Dtype::F32);
        b.node("MatMul", &[], &[p, v], &[out]);
    }
    b
}

/// Rows see what came before, and themselves; the last `padding` rows see nothing.
fn inputs(b: &Build, s: Shape, n_past: u32, padding: u32, seed: u64) -> Vec<Vec<u8>> {
    let mut noise = Noise(seed);
    let of = |id| {
        let tensor = b.graph.tensor(id);
        let visible = |i: u32| i / s.cl + padding < s.n && i % s.cl <= n_past + i / s.cl;
        let values = match tensor.name.as_str() {
            "cache_index" => vec![n_past as f32],
            "attention_mask" => (0..s.n * s.cl).map(|i| if visible(i) { 0.0 } else { -1000.0 }).collect(),
            // Values around 1: where they cancel out, an output says no more of the masks of -1000, which cost its scores 13 of their digits.
            name if name.contains("_v") => noise.floats(tensor.n_elems()).iter().map(|v| v + 1.0).collect(),
            _ => noise.floats(tensor.n_elems()),
        };
        bytes_of(tensor.dtype, &values)
    };
    b.graph.inputs().map(of).collect()
}

/// Fused, one mask for both layers, and equal to the scatter.
fn check(s: Shape, room: u32, seed: u64) {
    let b = graph(s);
    let labels = labels(&b.graph);
    assert!(labels.contains(&"Attention"), "{labels:?}");
    let masks = labels.iter().filter(|l| **l == "ScatterMask").count();
    assert!(masks == 1, "one mask serves both layers: {labels:?}");
    for gone in ["ScatterElements", "ScatterNd", "Softmax", "Tile"] {
        assert!(!labels.contains(&gone), "{gone} is gone: {labels:?}");
    }
    let (n, n_past) = (s.n, seed as u32 % (room + 1));
    // Of narrow heads all numbers of an output may be sums that nearly cancel out, and half floats have 11 bits.
    let loose = if s.dtype == Dtype::F16 { 10.0 } else { 1.0 };
    compare(&b.graph, &inputs(&b, s, n_past, 0, seed), loose * 1e-5);
    compare(&b.graph, &inputs(&b, s, n_past, n / 2, seed), loose * 1e-4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    #[test]
    fn scattered_caches(
        (kv, group, n, room) in (1u32..4, 1u32..3, 1u32..9, 0u32..40),
        hd in 1u32..20,
        (half, nd) in any::<(bool, bool)>(),
        seed in any::<u64>(),
    ) {
        let dtype = if half { Dtype::F16 } else { Dtype::F32 };
        let s = Shape { kv, group, n, cl: n + room, hd, dtype, layers: 2, nd };
        check(s, room, seed);
    }
}

#[test]
fn columns_repeated_along_one_axis_only() {
    check(Shape { kv: 1, group: 1, n: 1, cl: 1, hd: 2, dtype: Dtype::F32, layers: 2, nd: false }, 0, 0);
}

#[test]
fn padding_beyond_the_cache_is_not_written_and_a_negative_index_is_an_error() {
    let s = Shape { kv: 1, group: 1, n: 4, cl: 10, hd: 4, dtype: Dtype::F32, layers: 1, nd: false };
    let b = graph(s);
    let mut bytes = inputs(&b, s, 6, 0, 1);
    bytes[0] = 8i32.to_ne_bytes().to_vec();
    let runs = [true, false].map(|fuse| run(&b.graph, fuse, 2, &bytes).expect("two of four columns fit"));
    assert_eq!(runs[0].len(), runs[1].len());
    for (fused, plain) in runs[0].iter().zip(&runs[1]) {
        let floats =
            |bytes: &[u8]| bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect::<Vec<_>>();
        let (fused, plain) = (floats(fused), floats(plain));
        let rows = fused.len() / 4 * 2;
        // The two columns behind the cache see other things in each form; no one reads their rows.
        assert!(fused[..rows].iter().zip(&plain[..rows]).all(|(a, b)| (a - b).abs() < 1e-5), "{fused:?} {plain:?}");
    }
    for (fuse, node) in [(true, "MatMul_10"), (false, "ScatterElements_3")] {
        bytes[0] = (-1i32).to_ne_bytes().to_vec();
        let error = run(&b.graph, fuse, 2, &bytes).expect_err("must fail").to_string();
        assert_eq!(error, format!("node `{node}`: index -1 is out of range 0..10"));
    }
}

#[test]
fn columns_that_differ_between_heads_are_scattered_for_real() {
    let s = Shape { kv: 2, group: 1, n: 1, cl: 6, hd: 3, dtype: Dtype::F32, layers: 1, nd: false };
    let mut b = graph(s);
    // The keys' columns are no longer the same for both heads.
    let tile = b.graph.nodes.iter().position(|n| n.op == "Tile").expect("the keys' columns");
    let uneven: Vec<f32> = (0..s.kv * s.hd).map(|i| (i % 5) as f32).collect();
    let uneven = b.constant(&[s.kv, 1, s.hd, 1], Dtype::I32, &uneven);
    let index = b.graph.nodes[tile].outputs[0];
    let scatter = b.graph.nodes.iter_mut().find(|n| n.inputs.contains(&index)).expect("the keys' scatter");
    scatter.inputs[1] = uneven;
    assert!(labels(&b.graph).contains(&"ScatterElements"));
    compare(&b.graph, &inputs(&b, s, 2, 0, 3), 1e-5);
}

#[test]
fn an_update_straight_into_an_output_leaves_out_what_is_beyond_the_end() {
    // Two rows of two numbers for the last row of four and the one behind it.
    for (op, index_dims, index) in
        [("ScatterNd", [2, 1], vec![3.0, 4.0]), ("ScatterElements", [2, 2], vec![3.0, 3.0, 4.0, 4.0])]
    {
        let mut b = Build::new();
        let past = b.input("past", &[4, 2], Dtype::F16);
        let at = b.input("index", &index_dims, Dtype::I32);
        let new = b.input("new", &[2, 2], Dtype::F16);
        let out = b.output("out", &[4, 2], Dtype::F16);
        b.node(op, &[], &[past, at, new], &[out]);
        assert!(labels(&b.graph).contains(&&*format!("{op}+Store")), "{:?}", labels(&b.graph));
        let floats = |values: &[f32]| bytes_of(Dtype::F16, values);
        let mut inputs = vec![floats(&[0.5; 8]), bytes_of(Dtype::I32, &index), floats(&[1.0, 2.0, 3.0, 4.0])];
        for (fuse, threads) in [(true, 1), (true, 3), (false, 1), (false, 3)] {
            let found = run(&b.graph, fuse, threads, &inputs).expect("one of two rows fits");
            assert_eq!(found[0], floats(&[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0, 2.0]), "{op}, fused {fuse}");
        }
        *inputs[1].last_chunk_mut().expect("a last index") = (-2i32).to_ne_bytes();
        for fuse in [true, false] {
            let error = run(&b.graph, fuse, 2, &inputs).expect_err("must fail").to_string();
            assert_eq!(error, format!("node `{op}_0`: index -2 is out of range 0..4"));
        }
    }
}
