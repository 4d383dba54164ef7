//! Weights in blocks of 32 with a scale each: packed for the product kernels, or decoded by the book.

use half::f16;

use crate::bytes::Bytes;
use crate::ir::{Dtype, Param, Quant, Role, TensorId};
use crate::kernels::block_values::FLOATS;
use crate::kernels::k_blocks::LEVELS;
use crate::testing::{Build, Noise, half_step, labels, numbers_of, run};

/// What quantised activations cost in layers of a few hundred numbers that are gated, relative: 0.02 with scales of a 127th of the largest
/// number, which are up to two ninths more.
const OFF: f32 = 0.02 * 11.0 / 9.0;

/// Codes, scales and the numbers that they stand for, `[n, k]`.
struct Blocks {
    dtype: Dtype,
    codes: Vec<i8>,
    scales: Vec<f32>,
    block: usize,
    dims: [usize; 2],
}

impl Blocks {
    fn new(noise: &mut Noise, dtype: Dtype, [n, k]: [usize; 2], block: usize) -> Self {
        let (low, span) = if dtype == Dtype::SFixed4 { (-8, 16) } else { (-127, 255) };
        let codes = (0..n * k).map(|_| ((noise.bits() % span) as i32 + low) as i8).collect();
        let scales = (0..n * k / block).map(|i| f16::from_f32(0.001 + 0.0001 * (i % 13) as f32).to_f32()).collect();
        Self { dtype, codes, scales, block, dims: [n, k] }
    }

    /// 5 bits as in Q5_0, or levels as in IQ4_NL: signed bytes of few values.
    fn few(noise: &mut Noise, levels: bool, dims: [usize; 2]) -> Self {
        let value = |code: u64| if levels { LEVELS[code as usize % 16] } else { code as i8 - 16 };
        let plain = Self::new(noise, Dtype::SFixed8, dims, 32);
        Self { codes: plain.codes.iter().map(|_| value(noise.bits() % 32)).collect(), ..plain }
    }

    /// Floats of 4 bits as in MXFP4: twice those, and powers of two of which float16 does not hold each.
    fn floats(noise: &mut Noise, dims: [usize; 2]) -> Self {
        let plain = Self::new(noise, Dtype::SFixed8, dims, 32);
        let codes = plain.codes.iter().map(|_| FLOATS[noise.bits() as usize % 16]).collect();
        let scales = (0..plain.scales.len()).map(|i| 2f32.powi(-10 - [0, 1, 20, 2][i % 4])).collect();
        Self { codes, scales, ..plain }
    }

    /// Values of `bits` bits in blocks of 16, whose scales are whole numbers of one for each 256: as Q6_K or Q3_K.
    fn halves(noise: &mut Noise, bits: u32, [n, k]: [usize; 2]) -> Self {
        let codes = (0..n * k).map(|_| ((noise.bits() % (1 << bits)) as i32 - (1 << (bits - 1))) as i8).collect();
        let unit = |i: usize| f16::from_f32(0.000_2 + 0.000_01 * (i % 7) as f32).to_f32();
        let scales = (0..n * k / 16).map(|i| unit(i / 16) * ((i * 37 % 256) as f32 - 128.0)).collect();
        Self { dtype: Dtype::SFixed8, codes, scales, block: 16, dims: [n, k] }
    }

    /// 4 or 5 bits (or one of `levels`) in blocks of 32, whose scales are whole numbers of one for each 256: as Q4_K, Q5_K, IQ4_XS.
    fn k(noise: &mut Noise, dtype: Dtype, levels: bool, [n, k]: [usize; 2]) -> Self {
        let span = if dtype == Dtype::UFixed8 { 32 } else { 16 };
        let value = |code: u64| if levels { LEVELS[code as usize] } else { code as i8 };
        let codes = (0..n * k).map(|_| value(noise.bits() % span)).collect();
        let unit = |i: usize| f16::from_f32(0.000_2 + 0.000_01 * (i % 7) as f32).to_f32();
        let scales = (0..n * k / 32).map(|i| unit(i / 8) * (i * 37 % 64) as f32).collect();
        Self { dtype, codes, scales, block: 32, dims: [n, k] }
    }

    /// 2 bits in blocks of 16, whose scales are whole numbers 0..=15 of one for each 256: as Q2_K.
    fn two(noise: &mut Noise, [n, k]: [usize; 2]) -> Self {
        let codes = (0..n * k).map(|_| (noise.bits() % 4) as i8).collect();
        let unit = |i: usize| f16::from_f32(0.003 + 0.000_1 * (i % 7) as f32).to_f32();
        let scales = (0..n * k / 16).map(|i| unit(i / 16) * (i * 7 % 16) as f32).collect();
        Self { dtype: Dtype::UFixed4, codes, scales, block: 16, dims: [n, k] }
    }

    /// Their minima.
    fn half_minima(noise: &mut Noise, [n, k]: [usize; 2]) -> Self {
        let codes = (0..n * k / 16).map(|_| (noise.bits() % 16) as i8).collect();
        let scales = (0..n * k / 256).map(|i| f16::from_f32(0.005 + 0.000_1 * (i % 5) as f32).to_f32()).collect();
        Self { dtype: Dtype::UFixed8, codes, scales, block: 16, dims: [n, k / 16] }
    }

    /// Minima for rows of `k` columns.
    fn minima(noise: &mut Noise, [n, k]: [usize; 2]) -> Self {
        let codes = (0..n * k / 32).map(|_| (noise.bits() % 64) as i8).collect();
        let scales = (0..n * k / 256).map(|i| f16::from_f32(0.002 + 0.000_1 * (i % 5) as f32).to_f32()).collect();
        Self { dtype: Dtype::UFixed8, codes, scales, block: 8, dims: [n, k / 32] }
    }

    fn number(&self, row: usize, col: usize) -> f64 {
        let at = row * self.dims[1] + col;
        f64::from(self.codes[at]) * f64::from(self.scales[at / self.block])
    }

    fn quant(&self) -> Quant {
        Quant::Block {
            block_dims: [1, self.block as u32].into(),
            scales: self.scales.iter().copied().collect(),
            offsets: [].into(),
        }
    }

    /// The tensor; values of four bits lie two per byte if `halves`.
    fn tensor(&self, b: &mut Build, halves: bool) -> TensorId {
        let bytes: Vec<u8> = match halves {
            false => self.codes.iter().map(|c| c.cast_unsigned()).collect(),
            true => self.codes.chunks(2).map(|c| (c[0] & 15).cast_unsigned() | c[1].cast_unsigned() << 4).collect(),
        };
        let dims = self.dims.map(|d| d as u32);
        let name = format!("w{}", b.graph.tensors.len());
        b.tensor(&name, &dims, self.dtype, self.quant(), Role::Static(Bytes::copy_from(&bytes)))
    }
}

/// What quantising each block of a row to signed bytes may cost: half a step of the row's block for each weight.
fn bound(w: &Blocks, x: &[f32], row: usize) -> f64 {
    x_bound(x, |col| w.number(row, col))
}

/// The same, for weights by their columns.
fn x_bound(x: &[f32], weight: impl Fn(usize) -> f64) -> f64 {
    let of_block = |(i, x): (usize, &[f32])| half_step(x) * (0..x.len()).map(|c| weight(i * 32 + c).abs()).sum::<f64>();
    x.chunks(32).enumerate().map(of_block).sum()
}

#[test]
fn layers_of_blocks_are_packed_and_within_the_bound_of_their_activations() {
    let mut noise = Noise(11);
    let sizes = [
        (1, [48, 64]),
        (3, [33, 96]),
        (20, [70, 128]),
        (1, [40, 512]),
        (11, [40, 256]),
        (3, [33, 160]),
        (20, [40, 192]),
    ];
    for (m, [n, k]) in sizes {
        for (dtype, block, halves) in [
            (Dtype::SFixed8, 32, false),
            (Dtype::SFixed4, 32, true),
            (Dtype::SFixed4, 64, false),
            (Dtype::SFixed8, 16, false),
            (Dtype::UFixed4, 32, true),
            (Dtype::UFixed8, 32, false),
        ] {
            let plain = block != 16 && matches!(dtype, Dtype::SFixed8 | Dtype::SFixed4);
            if k % if plain { block } else { 256 } != 0 {
                continue;
            }
            let weights = match block {
                16 => Blocks::halves(&mut noise, if k == 256 { 3 } else { 6 }, [n, k]),
                _ if !plain => Blocks::k(&mut noise, dtype, false, [n, k]),
                // Signed bytes, all of them levels.
                32 if dtype == Dtype::SFixed8 && k == 256 => Blocks::k(&mut noise, Dtype::SFixed8, true, [n, k]),
                32 if dtype == Dtype::SFixed8 && [160, 192].contains(&k) => Blocks::floats(&mut noise, [n, k]),
                32 if dtype == Dtype::SFixed8 && k != 64 => Blocks::few(&mut noise, k == 96, [n, k]),
                _ => Blocks::new(&mut noise, dtype, [n, k], block),
            };
            let x = noise.floats(m * k);
            let mut b = Build::new();
            let input = b.input("x", &[m as u32, k as u32], Dtype::F32);
            let w = weights.tensor(&mut b, halves);
            let out = b.output("y", &[m as u32, n as u32], Dtype::F32);
            b.node("FullyConnected", &[], &[input, w], &[out]);
            let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_ne_bytes()).collect();
            for fuse in [false, true] {
                let found =
                    numbers_of(Dtype::F32, &run(&b.graph, fuse, 2, std::slice::from_ref(&bytes)).expect("runs")[0]);
                for (i, found) in found.iter().enumerate() {
                    let (row, j) = (&x[i / n * k..][..k], i % n);
                    let wanted: f64 = (0..k).map(|c| f64::from(row[c]) * weights.number(j, c)).sum();
                    let allowed = if fuse { bound(&weights, row, j) } else { 0.0 } + 1e-5;
                    let error = (f64::from(*found) - wanted).abs();
                    assert!(error <= allowed, "{dtype:?} {m}x{n}x{k} [{i}]: {found}, expected {wanted} +- {allowed}");
                }
            }
            assert_eq!(labels(&b.graph), ["Load", "Linear"], "the input alone is read beforehand");
        }
    }
}

/// `x` times weights less their minima, as docs/graph-contract.md writes it.
fn less_minima(b: &mut Build, x: TensorId, [w, minima]: [TensorId; 2], [m, n, k]: [usize; 3], out: TensorId) {
    let [m, n, k] = [m, n, k].map(|d| d as u32);
    let blocks = b.graph.tensor(minima).dims[1];
    let by_blocks = b.native(&[m, blocks, k / blocks], Dtype::F32);
    let sums = b.native(&[m, blocks], Dtype::F32);
    let [all, less] = [(); 2].map(|()| b.native(&[m, n], Dtype::F32));
    b.node("Reshape", &[], &[x], &[by_blocks]);
    b.node("ReduceSum", &[("axes", Param::Ints(vec![1], vec![2]))], &[by_blocks], &[sums]);
    b.node("FullyConnected", &[], &[x, w], &[all]);
    b.node("FullyConnected", &[], &[sums, minima], &[less]);
    b.node("ElementWiseSubtract", &[], &[all, less], &[out]);
}

#[test]
fn weights_less_minima_are_one_layer_within_the_bound_of_its_activations() {
    let mut noise = Noise(21);
    for (m, [n, k]) in [(1, [48, 256]), (3, [33, 512]), (20, [70, 256]), (70, [20, 768])] {
        for (dtype, halves, shared) in [
            (Dtype::UFixed4, true, 32),
            (Dtype::UFixed4, false, 32),
            (Dtype::UFixed8, false, 32),
            (Dtype::UFixed4, true, 16),
            (Dtype::UFixed4, false, 16),
        ] {
            let (weights, minima) = match shared {
                16 => (Blocks::two(&mut noise, [n, k]), Blocks::half_minima(&mut noise, [n, k])),
                _ => (Blocks::k(&mut noise, dtype, false, [n, k]), Blocks::minima(&mut noise, [n, k])),
            };
            let x = noise.floats(m * k);
            let mut b = Build::new();
            let input = b.input("x", &[m as u32, k as u32], Dtype::F32);
            let parts = [weights.tensor(&mut b, halves), minima.tensor(&mut b, false)];
            let out = b.output("y", &[m as u32, n as u32], Dtype::F32);
            less_minima(&mut b, input, parts, [m, n, k], out);
            let number = |j: usize, c: usize| weights.number(j, c) - minima.number(j, c / shared);
            let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_ne_bytes()).collect();
            for fuse in [false, true] {
                let found =
                    numbers_of(Dtype::F32, &run(&b.graph, fuse, 2, std::slice::from_ref(&bytes)).expect("runs")[0]);
                for (i, found) in found.iter().enumerate() {
                    let (row, j) = (&x[i / n * k..][..k], i % n);
                    let terms = (0..k).map(|c| f64::from(row[c]) * number(j, c));
                    let (wanted, size) = (terms.clone().sum::<f64>(), terms.map(f64::abs).sum::<f64>());
                    // Many rows may go to a matrix unit, which rounds weights and activations to bfloat16.
                    let off: f64 = if m < 64 { x_bound(row, |c| number(j, c)) } else { size / 100.0 };
                    let allowed = if fuse { off } else { 0.0 } + 1e-6 * size + 1e-5;
                    let error = (f64::from(*found) - wanted).abs();
                    assert!(error <= allowed, "{dtype:?} {m}x{n}x{k} [{i}]: {found}, expected {wanted} +- {allowed}");
                }
            }
            assert_eq!(labels(&b.graph), ["Load", "Linear"], "sums and minima are part of it");
        }
    }
}

#[test]
fn a_gate_and_its_layer_with_minima_join_and_so_does_a_residual() {
    let (m, [n, k]) = (2, [40, 256]);
    let mut noise = Noise(22);
    let x = noise.floats(m * k);
    let dims = [m as u32, n as u32];
    // The second time only the gate has minima, the third time the layer's are for 16 columns: the two stay apart, and mean the same.
    for (both, halves) in [(true, false), (false, false), (true, true)] {
        let mut b = Build::new();
        let input = b.input("x", &[m as u32, k as u32], Dtype::F32);
        let residual = b.input("r", &dims, Dtype::F32);
        let [gx, ux, s, sg, y] = [(); 5].map(|()| b.native(&dims, Dtype::F32));
        for (out, less) in [(gx, true), (ux, both)] {
            let (w, minima) = match halves && out == ux {
                true => (Blocks::two(&mut noise, [n, k]), Blocks::half_minima(&mut noise, [n, k])),
                false => (Blocks::k(&mut noise, Dtype::UFixed4, false, [n, k]), Blocks::minima(&mut noise, [n, k])),
            };
            let (w, minima) = (w.tensor(&mut b, true), minima.tensor(&mut b, false));
            if less {
                less_minima(&mut b, input, [w, minima], [m, n, k], out);
            } else {
                b.node("FullyConnected", &[], &[input, w], &[out]);
            }
        }
        let out = b.output("y", &dims, Dtype::F32);
        b.node("Sigmoid", &[], &[gx], &[s]);
        b.node("ElementWiseMultiply", &[], &[gx, s], &[sg]);
        b.node("ElementWiseMultiply", &[], &[sg, ux], &[y]);
        b.node("ElementWiseAdd", &[], &[y, residual], &[out]);
        let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
        let inputs = [bytes(&x), bytes(&noise.floats(m * n))];
        let [plain, fused] =
            [false, true].map(|fuse| numbers_of(Dtype::F32, &run(&b.graph, fuse, 2, &inputs).expect("runs")[0]));
        assert_eq!(labels(&b.graph).contains(&"GatedLinear"), both && !halves);
        for (plain, fused) in plain.iter().zip(&fused) {
            assert!((plain - fused).abs() < OFF * plain.abs().max(0.5), "{fused}, expected about {plain}");
        }
    }
}

#[test]
fn minima_that_no_packing_keeps_are_taken_off_as_written() {
    let (m, [n, k]) = (2, [16, 256]);
    let mut noise = Noise(23);
    let good = Blocks::minima(&mut noise, [n, k]);
    let large = Blocks { codes: vec![-1; good.codes.len()], ..good };
    let weights = Blocks::k(&mut noise, Dtype::UFixed4, false, [n, k]);
    let x = noise.floats(m * k);
    let mut b = Build::new();
    let input = b.input("x", &[m as u32, k as u32], Dtype::F32);
    let parts = [weights.tensor(&mut b, true), large.tensor(&mut b, false)];
    let out = b.output("y", &[m as u32, n as u32], Dtype::F32);
    less_minima(&mut b, input, parts, [m, n, k], out);
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let found = numbers_of(Dtype::F32, &run(&b.graph, true, 1, &[bytes]).expect("runs")[0]);
    for (i, found) in found.iter().enumerate() {
        let (row, j) = (&x[i / n * k..][..k], i % n);
        // A byte of all ones is 255 where it has no sign.
        let minimum = |c: usize| 255.0 * f64::from(large.scales[(j * (k / 32) + c / 32) / 8]);
        let wanted: f64 = (0..k).map(|c| f64::from(row[c]) * (weights.number(j, c) - minimum(c))).sum();
        let allowed = x_bound(row, |c| weights.number(j, c)) + 1e-4;
        assert!((f64::from(*found) - wanted).abs() < allowed, "[{i}] {found}, expected {wanted}");
    }
}

#[test]
fn a_gate_of_blocks_joins_its_layer_and_half_logits_come_in_stretches() {
    let (m, [n, k]) = (2, [40, 64]);
    let mut noise = Noise(12);
    let [gate, up] = [0, 1].map(|_| Blocks::new(&mut noise, Dtype::SFixed8, [n, k], 32));
    let x = noise.floats(m * k);
    let mut b = Build::new();
    let input = b.input("x", &[m as u32, k as u32], Dtype::F32);
    let [g, u] = [&gate, &up].map(|w| w.tensor(&mut b, false));
    let dims = [m as u32, n as u32];
    let [gx, ux, s, sg] = [(); 4].map(|()| b.native(&dims, Dtype::F32));
    let out = b.output("y", &dims, Dtype::F16);
    b.node("FullyConnected", &[], &[input, g], &[gx]);
    b.node("FullyConnected", &[], &[input, u], &[ux]);
    b.node("Sigmoid", &[], &[gx], &[s]);
    b.node("ElementWiseMultiply", &[], &[gx, s], &[sg]);
    b.node("ElementWiseMultiply", &[], &[sg, ux], &[out]);
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let [plain, fused] = [false, true]
        .map(|fuse| numbers_of(Dtype::F16, &run(&b.graph, fuse, 2, std::slice::from_ref(&bytes)).expect("runs")[0]));
    assert!(labels(&b.graph).contains(&"GatedLinear"));
    for (plain, fused) in plain.iter().zip(&fused) {
        assert!((plain - fused).abs() < OFF * plain.abs().max(0.5), "{fused}, expected about {plain}");
    }
}

#[test]
fn rows_of_blocks_are_gathered_exactly() {
    let mut noise = Noise(13);
    for (dtype, halves, k) in [
        (Dtype::SFixed8, false, 64),
        (Dtype::SFixed4, true, 64),
        (Dtype::SFixed8, false, 96),
        (Dtype::SFixed8, false, 160),
        (Dtype::SFixed8, false, 192),
        (Dtype::SFixed8, false, 256),
        (Dtype::SFixed8, false, 512),
    ] {
        let table = match k {
            256 => Blocks::halves(&mut noise, 6, [37, k]),
            512 => Blocks::halves(&mut noise, 3, [37, k]),
            96 | 160 => Blocks::few(&mut noise, k == 96, [37, k]),
            192 => Blocks::floats(&mut noise, [37, k]),
            _ => Blocks::new(&mut noise, dtype, [37, k], 32),
        };
        let mut b = Build::new();
        let ids = b.input("ids", &[1, 3], Dtype::I32);
        let w = table.tensor(&mut b, halves);
        let out = b.output("rows", &[1, 3, k as u32], Dtype::F32);
        b.node("Gather", &[("axis", Param::Int(0))], &[w, ids], &[out]);
        let bytes: Vec<u8> = [36i32, 0, 17].iter().flat_map(|x| x.to_ne_bytes()).collect();
        for fuse in [false, true] {
            let found = numbers_of(Dtype::F32, &run(&b.graph, fuse, 2, std::slice::from_ref(&bytes)).expect("runs")[0]);
            for (i, found) in found.iter().enumerate() {
                let wanted = table.number([36, 0, 17][i / k], i % k) as f32;
                assert!((found - wanted).abs() <= wanted.abs() * 1e-6, "[{i}] {found}, expected {wanted}");
            }
        }
        let bad: Vec<u8> = [1i32, 37, 0].iter().flat_map(|x| x.to_ne_bytes()).collect();
        let error = run(&b.graph, true, 1, &[bad]).expect_err("no such row");
        assert!(error.to_string().contains("37"), "{error}");
    }
}

#[test]
fn rows_less_minima_are_looked_up_exactly_in_one_step() {
    let mut noise = Noise(24);
    let (v, k) = (37, 512);
    for (dtype, halves, shared) in [(Dtype::UFixed4, true, 32), (Dtype::UFixed8, false, 32), (Dtype::UFixed4, true, 16)]
    {
        let (table, minima) = match shared {
            16 => (Blocks::two(&mut noise, [v, k]), Blocks::half_minima(&mut noise, [v, k])),
            _ => (Blocks::k(&mut noise, dtype, false, [v, k]), Blocks::minima(&mut noise, [v, k])),
        };
        let mut b = Build::new();
        let ids = b.input("ids", &[1, 3], Dtype::I32);
        let (w, m) = (table.tensor(&mut b, halves), minima.tensor(&mut b, false));
        let blocks = (k / shared) as u32;
        let split = [3, blocks, shared as u32];
        let (rows, by_blocks) = (b.native(&[1, 3, k as u32], Dtype::F32), b.native(&split, Dtype::F32));
        let (less, of_blocks) = (b.native(&[1, 3, blocks], Dtype::F32), b.native(&[3, blocks, 1], Dtype::F32));
        let difference = b.native(&split, Dtype::F32);
        let out = b.output("rows", &[1, 3, k as u32], Dtype::F32);
        b.node("Gather", &[("axis", Param::Int(0))], &[w, ids], &[rows]);
        b.node("Gather", &[("axis", Param::Int(0))], &[m, ids], &[less]);
        b.node("Reshape", &[], &[rows], &[by_blocks]);
        b.node("Reshape", &[], &[less], &[of_blocks]);
        b.node("ElementWiseSubtract", &[], &[by_blocks, of_blocks], &[difference]);
        b.node("Reshape", &[], &[difference], &[out]);
        let bytes: Vec<u8> = [36i32, 0, 17].iter().flat_map(|x| x.to_ne_bytes()).collect();
        for fuse in [false, true] {
            let found = numbers_of(Dtype::F32, &run(&b.graph, fuse, 2, std::slice::from_ref(&bytes)).expect("runs")[0]);
            for (i, found) in found.iter().enumerate() {
                let (row, col) = ([36, 0, 17][i / k], i % k);
                let wanted = table.number(row, col) as f32 - minima.number(row, col / shared) as f32;
                assert_eq!(*found, wanted, "[{i}] of {dtype:?}, fused {fuse}");
            }
        }
        assert_eq!(labels(&b.graph).iter().filter(|label| **label == "Gather").count(), 1, "{:?}", labels(&b.graph));
    }
}

/// Scales for each 32 columns and a minimum for each 16, or the other way about.
#[test]
fn minima_for_other_columns_than_the_scales_are_taken_off_as_written() {
    let (m, [n, k]) = (2, [16, 512]);
    let mut noise = Noise(25);
    for (halves, shared) in [(false, 16), (false, 32), (true, 32), (true, 16)] {
        let weights = match halves {
            true => Blocks::two(&mut noise, [n, k]),
            false => Blocks::k(&mut noise, Dtype::UFixed4, false, [n, k]),
        };
        // In the format that the weights want, of another number of columns.
        let minima = match halves {
            true => Blocks::half_minima(&mut noise, [n, k * 16 / shared]),
            false => Blocks::minima(&mut noise, [n, k * 32 / shared]),
        };
        let wanted = |row: usize, col: usize| weights.number(row, col) - minima.number(row, col / shared);
        let joined = shared == if halves { 16 } else { 32 };
        let blocks = (k / shared) as u32;

        let mut b = Build::new();
        let input = b.input("x", &[m as u32, k as u32], Dtype::F32);
        let parts = [weights.tensor(&mut b, true), minima.tensor(&mut b, false)];
        let out = b.output("y", &[m as u32, n as u32], Dtype::F32);
        less_minima(&mut b, input, parts, [m, n, k], out);
        assert_eq!(labels(&b.graph) == ["Load", "Linear"], joined, "{:?}", labels(&b.graph));
        let x = noise.floats(m * k);
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_ne_bytes()).collect();
        for fuse in [false, true] {
            let found = numbers_of(Dtype::F32, &run(&b.graph, fuse, 2, std::slice::from_ref(&bytes)).expect("runs")[0]);
            for (i, found) in found.iter().enumerate() {
                let (row, j) = (&x[i / n * k..][..k], i % n);
                let exact: f64 = row.iter().enumerate().map(|(c, x)| f64::from(*x) * wanted(j, c)).sum();
                let sums: f64 = row
                    .chunks(shared)
                    .enumerate()
                    .map(|(c, x)| {
                        let sum: f32 = x.iter().sum();
                        f64::from(sum.abs()) * minima.number(j, c)
                    })
                    .sum();
                let allowed = 2.0 * x_bound(row, |c| weights.number(j, c)) + 0.01 * sums + 1e-3;
                assert!((f64::from(*found) - exact).abs() < allowed, "[{i}] {found}, expected {exact}, fused {fuse}");
            }
        }

        let mut b = Build::new();
        let ids = b.input("ids", &[2], Dtype::I32);
        let (w, minima) = (weights.tensor(&mut b, true), minima.tensor(&mut b, false));
        let split = [2, blocks, shared as u32];
        let (rows, by_blocks) = (b.native(&[2, k as u32], Dtype::F32), b.native(&split, Dtype::F32));
        let (less, of_blocks) = (b.native(&[2, blocks], Dtype::F32), b.native(&[2, blocks, 1], Dtype::F32));
        let out = b.output("rows", &split, Dtype::F32);
        b.node("Gather", &[("axis", Param::Int(0))], &[w, ids], &[rows]);
        b.node("Gather", &[("axis", Param::Int(0))], &[minima, ids], &[less]);
        b.node("Reshape", &[], &[rows], &[by_blocks]);
        b.node("Reshape", &[], &[less], &[of_blocks]);
        b.node("ElementWiseSubtract", &[], &[by_blocks, of_blocks], &[out]);
        let gathers = labels(&b.graph).iter().filter(|label| **label == "Gather").count();
        assert_eq!(gathers == 1, joined, "{:?}", labels(&b.graph));
        let bytes: Vec<u8> = [15i32, 3].iter().flat_map(|x| x.to_ne_bytes()).collect();
        for fuse in [false, true] {
            let found = numbers_of(Dtype::F32, &run(&b.graph, fuse, 2, std::slice::from_ref(&bytes)).expect("runs")[0]);
            for (i, found) in found.iter().enumerate() {
                let exact = wanted([15, 3][i / k], i % k);
                assert!((f64::from(*found) - exact).abs() <= 1e-6 * (1.0 + exact.abs()), "[{i}] {found}, {exact}");
            }
        }
    }
}

#[test]
fn blocks_that_no_packing_keeps_are_decoded() {
    // A scale that float16 does not hold, blocks that are too short, an offset: all of them still mean what they say.
    let mut noise = Noise(14);
    let good = Blocks::new(&mut noise, Dtype::SFixed8, [16, 64], 32);
    let odd_scale = Blocks { scales: vec![0.1; good.scales.len()], ..good };
    let short = Blocks::new(&mut noise, Dtype::SFixed8, [16, 64], 16);
    // Powers of two beyond float16 beside floats of 4 bits, but one of them is none.
    let floats = Blocks::floats(&mut noise, [16, 64]);
    let odd_power = Blocks {
        scales: floats.scales.iter().enumerate().map(|(i, s)| if i == 5 { 0.75 } else { *s }).collect(),
        ..floats
    };
    for weights in [odd_scale, short, odd_power] {
        let x = noise.floats(64);
        let mut b = Build::new();
        let input = b.input("x", &[1, 64], Dtype::F32);
        let w = weights.tensor(&mut b, false);
        let out = b.output("y", &[1, 16], Dtype::F32);
        b.node("FullyConnected", &[], &[input, w], &[out]);
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let found = numbers_of(Dtype::F32, &run(&b.graph, true, 1, &[bytes]).expect("runs")[0]);
        for (j, found) in found.iter().enumerate() {
            let wanted: f64 = (0..64).map(|c| f64::from(x[c]) * weights.number(j, c)).sum();
            assert!((f64::from(*found) - wanted).abs() < 1e-5, "[{j}] {found}, expected {wanted}");
        }
    }
}
