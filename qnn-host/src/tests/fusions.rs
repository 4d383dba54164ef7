//! Each fusion on random shapes and data against the unfused execution of the same graph.

use proptest::prelude::*;

use super::cache_in_blocks::{self, float};
use super::llama::{Shape, decoder, inputs};
use crate::ir::{Dtype, Param, SourceGraph, TensorId};
use crate::testing::{Build, Noise, bytes_of, cases, compare, ints, labels};

/// Noise for every input.
fn noise(graph: &SourceGraph, seed: u64) -> Vec<Vec<u8>> {
    let mut noise = Noise(seed);
    graph.inputs().map(|id| bytes_of(graph.tensor(id).dtype, &noise.floats(graph.tensor(id).n_elems()))).collect()
}

fn check(b: &Build, seed: u64, tolerance: f32, fused: &[&str], gone: &[&str]) {
    check_labels(b, fused, gone);
    compare(&b.graph, &noise(&b.graph, seed), tolerance);
}

/// Which steps there are, and which there are not.
fn check_labels(b: &Build, fused: &[&str], gone: &[&str]) {
    let labels = labels(&b.graph);
    fused.iter().for_each(|label| assert!(labels.contains(label), "{label} in {labels:?}"));
    gone.iter().for_each(|label| assert!(!labels.contains(label), "no {label} in {labels:?}"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    #[test]
    fn linear_with_bias_and_residual(
        m in 1u32..20, k in 1u32..80, n in 1u32..150, dtype in float(), swapped in any::<bool>(), seed in any::<u64>()
    ) {
        let mut b = Build::new();
        let mut values = Noise(seed);
        let x = b.input("x", &[m, k], Dtype::F32);
        let residual = b.input("residual", &[1, m, n], Dtype::F32);
        let w = b.constant(&[n, k], dtype, &values.floats((n * k) as usize));
        let bias = b.constant(&[n], dtype, &values.floats(n as usize));
        let y = b.op("FullyConnected", &[], &[x, w], &[m, n], dtype);
        let y = b.op("ElementWiseAdd", &[], &if swapped { [bias, y] } else { [y, bias] }, &[m, n], dtype);
        let y = b.op("Reshape", &[], &[y], &[1, m, n], dtype);
        let out = b.output("out", &[1, m, n], Dtype::F32);
        b.node("ElementWiseAdd", &[], &if swapped { [residual, y] } else { [y, residual] }, &[out]);
        check(&b, seed, 1e-5, &["Linear+Add"], &["Add", "Linear"]);
    }

    #[test]
    fn swiglu_in_both_orders(
        m in 1u32..20, k in 1u32..60, n in 1u32..100, dtype in float(), order in 0u32..4, seed in any::<u64>()
    ) {
        let mut b = Build::new();
        let mut values = Noise(seed);
        let x = b.input("x", &[m, k], Dtype::F32);
        let mut layer = |b: &mut Build| {
            let w = b.constant(&[n, k], dtype, &values.floats((n * k) as usize));
            b.op("FullyConnected", &[], &[x, w], &[m, n], dtype)
        };
        let (gate, up) = (layer(&mut b), layer(&mut b));
        let sigmoid = b.op("Sigmoid", &[], &[gate], &[m, n], dtype);
        let mut product = |p: TensorId, q: TensorId| b.op("ElementWiseMultiply", &[], &[p, q], &[m, n], dtype);
        let (inner, other) = match order {
            0 => (product(gate, sigmoid), up),
            1 => (product(sigmoid, gate), up),
            2 => (product(sigmoid, up), gate),
            _ => (product(up, sigmoid), gate),
        };
        let out = b.output("out", &[m, n], Dtype::F32);
        b.node("ElementWiseMultiply", &[], &if order % 2 == 0 { [inner, other] } else { [other, inner] }, &[out]);
        check(&b, seed, 1e-5, &["GatedLinear"], &["Sigmoid", "Multiply", "Linear"]);
    }

    #[test]
    fn rms_norm_written_out(
        rows in 1u32..9, width in 1u32..90, dtype in float(), form in 0u32..4, gamma in any::<bool>(), seed in any::<u64>()
    ) {
        let mut b = Build::new();
        let dims = [1, rows, width];
        let x = b.input("x", &dims, Dtype::F32);
        let square = if form % 2 == 0 {
            b.op("ElementWiseMultiply", &[], &[x, x], &dims, dtype)
        } else {
            let two = b.constant(&[1], dtype, &[2.0]);
            b.op("ElementWisePower", &[], &[x, two], &dims, dtype)
        };
        let axes = [("axes", ints(&[2])), ("keep_dims", Param::Bool(true))];
        let mean = b.op("ReduceMean", &axes, &[square], &[1, rows, 1], dtype);
        let epsilon = b.constant(&[1], Dtype::F32, &[1e-5]);
        let sum = b.op("ElementWiseAdd", &[], &[mean, epsilon], &[1, rows, 1], dtype);
        let last = if gamma { b.native(&dims, dtype) } else { b.output("out", &dims, Dtype::F32) };
        if form < 2 {
            let root = b.op("ElementWiseRsqrt", &[], &[sum], &[1, rows, 1], dtype);
            b.node("ElementWiseMultiply", &[], &[x, root], &[last]);
        } else {
            let root = b.op("ElementWiseSquareRoot", &[], &[sum], &[1, rows, 1], dtype);
            b.node("ElementWiseDivide", &[], &[x, root], &[last]);
        }
        if gamma {
            let gamma = b.constant(&[width], dtype, &Noise(seed).floats(width as usize));
            let out = b.output("out", &dims, Dtype::F32);
            b.node("ElementWiseMultiply", &[], &[gamma, last], &[out]);
        }
        check(&b, seed, 1e-5, &["RmsNorm"], &["ReduceMean", "Multiply", "Divide"]);
    }

    #[test]
    fn rotation_written_out(
        heads in 1u32..4, rows in 1u32..9, half in 1u32..20, dtype in float(), seed in any::<u64>()
    ) {
        let mut b = Build::new();
        let x = b.input("x", &[1, heads, rows, 2 * half], Dtype::F32);
        let (cos, sin) = (b.input("cos", &[1, 1, rows, half], Dtype::F32), b.input("sin", &[1, 1, rows, half], Dtype::F32));
        let dims = [1, heads, rows, half];
        let (x1, x2) = (b.native(&dims, dtype), b.native(&dims, dtype));
        b.node("Split", &[("axis", Param::UInt(3)), ("split_index", ints(&[i64::from(half)]))], &[x], &[x1, x2]);
        let mut op = |op: &str, p: TensorId, q: TensorId| b.op(op, &[], &[p, q], &dims, dtype);
        let (a, c) = (op("ElementWiseMultiply", x1, cos), op("ElementWiseMultiply", x2, sin));
        let first = op("ElementWiseSubtract", a, c);
        let (a, c) = (op("ElementWiseMultiply", x2, cos), op("ElementWiseMultiply", x1, sin));
        let second = op("ElementWiseAdd", a, c);
        let out = b.output("out", &[1, heads, rows, 2 * half], Dtype::F32);
        b.node("Concat", &[("axis", Param::UInt(3))], &[first, second], &[out]);
        check(&b, seed, 1e-5, &["Rope"], &["Slice", "Concat", "Multiply"]);
    }

    #[test]
    fn attention_of_any_shape(
        (kv, g, n, past) in (1u32..4, 1u32..4, 1u32..14, 0u32..40),
        hd in 1u32..40,
        (by_row, scaled, masked) in any::<(bool, bool, bool)>(),
        dtype in float(),
        seed in any::<u64>(),
    ) {
        let mut b = Build::new();
        let m = past + n;
        let dims = |len: u32, keys: bool| if keys && !by_row { [kv, 1, hd, len] } else { [kv, 1, len, hd] };
        let q = b.input("q", &[kv, g, n, hd], Dtype::F32);
        let [k, v] = [true, false].map(|keys| {
            let new = b.input(if keys { "k" } else { "v" }, &dims(n, keys), dtype);
            if past == 0 {
                return new;
            }
            let old = b.input(if keys { "past_k" } else { "past_v" }, &dims(past, keys), dtype);
            let axis = if keys && !by_row { 3 } else { 2 };
            b.op("Concat", &[("axis", Param::UInt(axis))], &[old, new], &dims(m, keys), dtype)
        });
        let flag = [("transpose_in1", Param::Bool(by_row))];
        let mut scores = b.op("MatMul", &flag, &[q, k], &[kv, g, n, m], dtype);
        if scaled {
            let by = b.constant(&[1], Dtype::F32, &[0.25]);
            scores = b.op("ElementWiseMultiply", &[], &[scores, by], &[kv, g, n, m], dtype);
        }
        if masked {
            let mask = b.input("mask", &[1, 1, n, m], dtype);
            scores = b.op("ElementWiseAdd", &[], &[scores, mask], &[kv, g, n, m], dtype);
        }
        let p = b.op("Softmax", &[], &[scores], &[kv, g, n, m], dtype);
        let out = b.output("out", &[kv, g, n, hd], Dtype::F32);
        b.node("MatMul", &[], &[p, v], &[out]);
        let mut bytes = noise(&b.graph, seed);
        if masked {
            // Every row sees some columns; whole stretches are hidden.
            let mut rng = Noise(seed ^ 1);
            let cut = rng.bits() % u64::from(m);
            let hide = |i: u64, bits: u64| !i.is_multiple_of(u64::from(m)) && (i % u64::from(m) < cut || bits.is_multiple_of(3));
            let mask: Vec<f32> = (0..u64::from(n * m))
                .map(|i| if hide(i, rng.bits()) { -1000.0 } else { 0.0 })
                .collect();
            *bytes.last_mut().expect("the mask is the last input") = bytes_of(dtype, &mask);
        }
        let labels = labels(&b.graph);
        prop_assert!(labels.contains(&"Attention") && !labels.contains(&"Softmax"), "{labels:?}");
        compare(&b.graph, &bytes, 1e-5);
    }

    #[test]
    fn attention_over_blocks_reads_them_in_place(
        (kv, g, n, past) in (1u32..4, 1u32..5, 1u32..14, 1u32..90),
        blocks in 1u32..5,
        (masked, offset) in (any::<bool>(), prop_oneof![Just(-128), Just(-100)]),
        dtype in float(),
        seed in any::<u64>(),
    ) {
        let (mut b, m, hd) = (Build::new(), past + n, 32 * blocks);
        let q = b.input("q", &[kv, g, n, hd], Dtype::F32);
        let [k, v] = ["k", "v"].map(|name| {
            let old = cache_in_blocks::past_rows(&mut b, name, [kv, past, blocks], dtype, offset);
            let new = b.input(name, &[kv, 1, n, hd], dtype);
            b.op("Concat", &[("axis", Param::UInt(2))], &[old, new], &[kv, 1, m, hd], dtype)
        });
        let flag = [("transpose_in1", Param::Bool(true))];
        let mut scores = b.op("MatMul", &flag, &[q, k], &[kv, g, n, m], dtype);
        if masked {
            let mask = b.input("mask", &[1, 1, n, m], dtype);
            scores = b.op("ElementWiseAdd", &[], &[scores, mask], &[kv, g, n, m], dtype);
        }
        let p = b.op("Softmax", &[], &[scores], &[kv, g, n, m], dtype);
        let out = b.output("out", &[kv, g, n, hd], Dtype::F32);
        b.node("MatMul", &[], &[p, v], &[out]);
        let inputs = cache_in_blocks::noise(&b.graph, seed);
        // The past is dequantised by no step of its own.
        check_labels(&b, &["Attention"], &["Multiply", "Concat", "Softmax"]);
        prop_assert_eq!(labels(&b.graph).iter().filter(|label| **label == "Load").count(), 3, "of q and new rows");
        compare(&b.graph, &inputs, 1e-5);
    }

    #[test]
    fn whole_decoders(
        (ar, past) in (1usize..20, 0usize..30),
        (kv_heads, group) in (1usize..4, 1usize..4),
        half in 1usize..12,
        (qkv_bias, qk_norm) in any::<(bool, bool)>(),
        seed in any::<u64>(),
    ) {
        let s = Shape {
            kv_heads, group, head_dim: 2 * half, qkv_bias, qk_norm, hidden: 40, ffn: 56, layers: 1,
            ..Shape::small(ar, ar + past)
        };
        let graph = decoder(s, seed);
        let n_past = seed as usize % (past + 1);
        compare(&graph, &inputs(&graph, s, n_past, ar, seed), 2e-5);
    }
}
