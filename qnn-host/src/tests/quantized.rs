//! Fixed-point tensors: correct by decoding and encoding around float arithmetic.

use crate::bytes::Bytes;
use crate::ir::{Dtype, Param, Quant, Role, TensorId};
use crate::testing::{Build, Noise, ints, labels, numbers_of, run};

fn per_tensor(scale: f32, offset: i32) -> Quant {
    Quant::PerTensor { scale, offset }
}

/// A graph under test and its input bytes.
struct Case {
    b: Build,
    inputs: Vec<Vec<u8>>,
}

impl Case {
    fn new() -> Self {
        Self { b: Build::new(), inputs: Vec::new() }
    }

    /// A `u16` input; yields what its codes stand for.
    fn input(&mut self, dims: &[u32], scale: f32, offset: i32, codes: &[u16]) -> (TensorId, Vec<f64>) {
        let name = format!("in{}", self.inputs.len());
        let id = self.b.tensor(&name, dims, Dtype::UFixed16, per_tensor(scale, offset), Role::Input);
        self.inputs.push(codes.iter().flat_map(|c| c.to_ne_bytes()).collect());
        (id, codes.iter().map(|&c| (f64::from(c) + f64::from(offset)) * f64::from(scale)).collect())
    }

    fn native(&mut self, dims: &[u32], scale: f32, offset: i32) -> TensorId {
        let name = format!("t{}", self.b.graph.tensors.len());
        self.b.tensor(&name, dims, Dtype::UFixed16, per_tensor(scale, offset), Role::Native)
    }

    fn output(&mut self, dims: &[u32], scale: f32, offset: i32) -> TensorId {
        self.b.tensor("out", dims, Dtype::UFixed16, per_tensor(scale, offset), Role::Output)
    }

    /// Runs in all ways; each output code must be within `steps` of `wanted`.
    fn check(&self, scale: f32, offset: i32, wanted: &[f64], steps: f64) {
        for (fuse, threads) in [(false, 1), (true, 1), (true, 3)] {
            let outputs = run(&self.b.graph, fuse, threads, &self.inputs).expect("runs");
            for (i, (code, wanted)) in numbers_of(Dtype::UFixed16, &outputs[0]).iter().zip(wanted).enumerate() {
                let exact = (wanted / f64::from(scale) - f64::from(offset)).clamp(0.0, 65_535.0);
                assert!(
                    (f64::from(*code) - exact).abs() <= steps,
                    "[{i}]: code {code}, exactly {exact} (fused {fuse})"
                );
            }
        }
    }
}

fn codes(noise: &mut Noise, n: usize) -> Vec<u16> {
    (0..n).map(|_| (noise.bits() % 65_536) as u16).collect()
}

const SCALE: f32 = 8.0 / 65_535.0;
const OFFSET: i32 = -32_768;

#[test]
fn elementwise_works_on_what_codes_stand_for() {
    let mut noise = Noise(1);
    for (op, f) in [
        ("ElementWiseAdd", (|a, b| a + b) as fn(f64, f64) -> f64),
        ("ElementWiseMultiply", |a, b| a * b),
        ("ElementWiseSubtract", |a, b| a - b),
    ] {
        let mut case = Case::new();
        let (a, x) = case.input(&[2, 40], SCALE, OFFSET, &codes(&mut noise, 80));
        let (b, y) = case.input(&[40], SCALE / 2.0, -1000, &codes(&mut noise, 40));
        let out = case.output(&[2, 40], SCALE * 2.0, OFFSET);
        case.b.node(op, &[], &[a, b], &[out]);
        let wanted: Vec<f64> = (0..80).map(|i| f(x[i], y[i % 40])).collect();
        case.check(SCALE * 2.0, OFFSET, &wanted, 0.51);
    }
}

#[test]
fn intermediate_values_lie_on_their_grid() {
    // A coarse grid between two operations: the second must see the rounded value.
    let mut case = Case::new();
    let (a, x) = case.input(&[64], SCALE, OFFSET, &codes(&mut Noise(2), 64));
    let coarse = case.native(&[64], 0.5, -100);
    let out = case.output(&[64], SCALE, OFFSET);
    case.b.node("Relu", &[], &[a], &[coarse]);
    case.b.node("ElementWiseNeg", &[], &[coarse], &[out]);
    let wanted: Vec<f64> = x.iter().map(|x| -(x.max(0.0) / 0.5).round() * 0.5).collect();
    case.check(SCALE, OFFSET, &wanted, 0.51);
}

#[test]
fn linear_layers_take_int8_weights_with_a_scale_for_each_row() {
    let mut noise = Noise(3);
    for (m, k, n, quant_bias) in [(1, 64, 24, false), (5, 300, 9, true), (20, 48, 33, false)] {
        let mut case = Case::new();
        let (x, real) = case.input(&[m, k], SCALE, OFFSET, &codes(&mut noise, (m * k) as usize));
        let weights: Vec<i8> = (0..n * k).map(|_| (noise.bits() % 255) as i8).collect();
        let scales: Vec<f32> = (0..n).map(|i| 0.0005 + 0.0001 * i as f32).collect();
        let quant = Quant::PerAxis { axis: 0, bits: 8, scales: scales.clone().into(), offsets: [].into() };
        let bytes: Vec<u8> = weights.iter().map(|w| w.cast_unsigned()).collect();
        let w = case.b.tensor("w", &[n, k], Dtype::SFixed8, quant, Role::Static(Bytes::copy_from(&bytes)));
        let mut inputs = vec![x, w];
        let bias: Vec<i32> = (0..n).map(|i| if quant_bias { 40_000 * (i as i32 - 3) } else { 0 }).collect();
        let steps: Vec<f32> = scales.iter().map(|s| s * SCALE).collect();
        if quant_bias {
            let quant = Quant::PerAxis { axis: 0, bits: 32, scales: steps.clone().into(), offsets: [].into() };
            let bytes: Vec<u8> = bias.iter().flat_map(|b| b.to_ne_bytes()).collect();
            inputs.push(case.b.tensor("b", &[n], Dtype::SFixed32, quant, Role::Static(Bytes::copy_from(&bytes))));
        }
        let out = case.output(&[m, n], SCALE * 4.0, OFFSET);
        case.b.node("FullyConnected", &[], &inputs, &[out]);
        let wanted: Vec<f64> = (0..(m * n) as usize)
            .map(|i| {
                let (row, j) = (i / n as usize, i % n as usize);
                let dot = |c: usize| real[row * k as usize + c] * f64::from(weights[j * k as usize + c]);
                let sum: f64 = (0..k as usize).map(dot).sum::<f64>() * f64::from(scales[j]);
                sum + f64::from(bias[j]) * f64::from(steps[j])
            })
            .collect();
        case.check(SCALE * 4.0, OFFSET, &wanted, 0.6);
    }
}

#[test]
fn mat_mul_and_conv_weights_have_a_scale_a_column() {
    let mut noise = Noise(4);
    let (m, k, n) = (3u32, 40u32, 16u32);
    let weights: Vec<i8> = (0..n * k).map(|_| (noise.bits() % 15) as i8 - 7).collect();
    let scales: Vec<f32> = (0..n).map(|i| 0.02 + 0.005 * i as f32).collect();
    let bytes: Vec<u8> = weights.iter().map(|w| w.cast_unsigned()).collect();
    for op in ["MatMul", "Conv2d"] {
        let mut case = Case::new();
        let conv = op == "Conv2d";
        let (x_dims, w_dims, axis) =
            if conv { (vec![1, 1, m, k], vec![1, 1, k, n], 3) } else { (vec![m, k], vec![k, n], 1) };
        let (x, real) = case.input(&x_dims, SCALE, OFFSET, &codes(&mut noise, (m * k) as usize));
        let quant = Quant::PerAxis { axis, bits: 4, scales: scales.clone().into(), offsets: [].into() };
        let w = case.b.tensor("w", &w_dims, Dtype::SFixed8, quant, Role::Static(Bytes::copy_from(&bytes)));
        let out = case.output(&if conv { vec![1, 1, m, n] } else { vec![m, n] }, SCALE * 4.0, OFFSET);
        let window = [("stride", ints(&[1, 1])), ("pad_amount", Param::Ints(vec![2, 2], vec![0; 4]))];
        case.b.node(op, if conv { &window } else { &[] }, &[x, w], &[out]);
        let wanted: Vec<f64> = (0..(m * n) as usize)
            .map(|i| {
                let (row, j) = (i / n as usize, i % n as usize);
                let dot = |c: usize| real[row * k as usize + c] * f64::from(weights[c * n as usize + j]);
                (0..k as usize).map(dot).sum::<f64>() * f64::from(scales[j])
            })
            .collect();
        case.check(SCALE * 4.0, OFFSET, &wanted, 0.6);
        let labels = labels(&case.b.graph);
        assert!(labels.contains(&"Linear") && !labels.contains(&"MatMul"), "a layer like any other: {labels:?}");
    }
}

#[test]
fn float_activations_take_int8_weights() {
    let mut b = Build::new();
    let x = b.input("x", &[2, 32], Dtype::F32);
    let quant = Quant::PerTensor { scale: 0.01, offset: -128 };
    let codes: Vec<u8> = (0..10 * 32).map(|i| (i * 37 % 256) as u8).collect();
    let w = b.tensor("w", &[10, 32], Dtype::UFixed8, quant, Role::Static(Bytes::copy_from(&codes)));
    let out = b.output("out", &[2, 10], Dtype::F32);
    b.node("FullyConnected", &[], &[x, w], &[out]);
    let values = Noise(5).floats(64);
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    for fuse in [false, true] {
        let found = numbers_of(Dtype::F32, &run(&b.graph, fuse, 2, std::slice::from_ref(&bytes)).expect("runs")[0]);
        for (i, found) in found.iter().enumerate() {
            let weight = |c: usize| (f64::from(codes[i % 10 * 32 + c]) - 128.0) * f64::from(0.01f32);
            let wanted: f64 = (0..32).map(|c| f64::from(values[i / 10 * 32 + c]) * weight(c)).sum();
            assert!((f64::from(*found) - wanted).abs() < 1e-5, "[{i}] {found}, expected {wanted}");
        }
    }
}

#[test]
fn quantize_dequantize_and_casts_of_codes() {
    let mut b = Build::new();
    let x = b.input("x", &[5], Dtype::F32);
    let q = b.tensor("q", &[5], Dtype::UFixed8, per_tensor(0.5, -10), Role::Output);
    let back = b.output("back", &[5], Dtype::F32);
    let code = b.output("code", &[5], Dtype::I32);
    b.node("Quantize", &[], &[x], &[q]);
    b.node("Dequantize", &[], &[q], &[back]);
    b.node("Cast", &[], &[q], &[code]);
    let bytes: Vec<u8> = [0.0f32, 0.26, -7.0, 500.0, 1.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    for fuse in [false, true] {
        let outputs = run(&b.graph, fuse, 1, std::slice::from_ref(&bytes)).expect("runs");
        assert_eq!(outputs[0], [10, 11, 0, 255, 12]);
        assert_eq!(numbers_of(Dtype::F32, &outputs[1]), [0.0, 0.5, -5.0, 122.5, 1.0]);
        assert_eq!(numbers_of(Dtype::I32, &outputs[2]), [10.0, 11.0, 0.0, 255.0, 12.0]);
    }
}

#[test]
fn tables_of_codes_are_gathered() {
    let mut b = Build::new();
    let ids = b.input("ids", &[3], Dtype::I32);
    let codes: Vec<u8> = (0..20).collect();
    let table =
        b.tensor("table", &[5, 4], Dtype::UFixed8, per_tensor(0.25, -8), Role::Static(Bytes::copy_from(&codes)));
    let out = b.output("out", &[3, 4], Dtype::F32);
    b.node("Gather", &[("axis", Param::Int(0))], &[table, ids], &[out]);
    let bytes: Vec<u8> = [4i32, 0, 2].iter().flat_map(|x| x.to_ne_bytes()).collect();
    let found = numbers_of(Dtype::F32, &run(&b.graph, true, 1, &[bytes]).expect("runs")[0]);
    assert_eq!(found[..5], [2.0, 2.25, 2.5, 2.75, -2.0]);
}

#[test]
fn a_layer_of_constants_alone_waits_for_its_weights() {
    // A scale for each row of `[k, n]` survives no transposition: the weights are decoded first, then multiplied.
    let (m, k, n) = (2u32, 3u32, 4u32);
    let scales = [0.5f32, 0.25, 2.0];
    let codes: Vec<i8> = (0..12).map(|i| i - 6).collect();
    let x = Noise(6).floats((m * k) as usize);
    let mut b = Build::new();
    let quant = Quant::PerAxis { axis: 0, bits: 8, scales: scales.into(), offsets: [].into() };
    let bytes: Vec<u8> = codes.iter().map(|c| c.cast_unsigned()).collect();
    let w = b.tensor("w", &[k, n], Dtype::SFixed8, quant, Role::Static(Bytes::copy_from(&bytes)));
    let fixed = b.constant(&[m, k], Dtype::F32, &x);
    let out = b.output("out", &[m, n], Dtype::F32);
    b.node("MatMul", &[], &[fixed, w], &[out]);
    for fuse in [false, true] {
        let found = numbers_of(Dtype::F32, &run(&b.graph, fuse, 1, &[]).expect("runs")[0]);
        for (i, found) in found.iter().enumerate() {
            let at = |c: usize| x[i / 4 * 3 + c] * scales[c] * f32::from(codes[c * 4 + i % 4]);
            let wanted: f32 = (0..3).map(at).sum();
            assert!((found - wanted).abs() < 1e-5, "[{i}] {found}, expected {wanted}");
        }
    }
}
