//! Every path of packed layers against exact integer products, and against the documented error bound.

use proptest::prelude::*;

use super::super::{Form, Gate, Linear, MATRIX_ROWS, Residual, linear_on};
use crate::kernels::packed::{Bits, Packed, Packer, Packing};
use crate::kernels::simd::act_scale::scale_of;
use crate::kernels::simd::dot::BLOCK;
use crate::kernels::testing::{assert_close, isas, less, numbers, packed_minima, packed_numbers};
use crate::kernels::{Floats, Isa, SharedMut};
use crate::pool::{Pool, PoolOptions};
use crate::testing::{cases, half_step, some_of};

#[derive(Debug, Clone, Copy)]
struct Problem {
    m: usize,
    n: usize,
    k: usize,
    packing: Packing,
    bias: bool,
    gate: Option<Packing>,
    /// Weights that may have minima have some.
    minima: bool,
    residual: bool,
    seed: u64,
}

struct Data {
    x: Vec<f32>,
    weights: (Vec<u8>, Vec<f32>),
    gate: Option<(Vec<u8>, Vec<f32>)>,
    minima: Vec<u8>,
    gate_minima: Vec<u8>,
    bias: Vec<f32>,
    residual: Vec<f32>,
}

/// A row as the kernels quantise it: blocks of quantised values times scales.
fn quantised(x: &[f32]) -> Vec<f64> {
    let mut out = Vec::new();
    for block in x.chunks(BLOCK) {
        let largest = block.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let (scale, inverse) = scale_of(largest);
        out.extend(block.iter().map(|x| f64::from((x * inverse).round_ties_even()) * f64::from(scale)));
    }
    out
}

impl Problem {
    fn data(&self) -> Data {
        let mut x = numbers(self.m * self.k, self.seed);
        // A block of zeros, and one with a number far larger than the rest.
        if self.k > 40 {
            x[..32].fill(0.0);
            x[35] = 300.0;
        }
        let minima = |packing| packed_minima(packing, self.n, self.k, self.seed ^ 5);
        let weights = |packing: Packing, seed| {
            let (bytes, numbers) = packed_numbers(packing, self.n, self.k, seed);
            (bytes, if self.minima && packing.takes_minima() { less(&numbers, &minima(packing).1) } else { numbers })
        };
        Data {
            x,
            weights: weights(self.packing, self.seed ^ 1),
            gate: self.gate.map(|packing| weights(packing, self.seed ^ 2)),
            minima: minima(self.packing).0,
            gate_minima: self.gate.map_or(Vec::new(), |gate| minima(gate).0),
            bias: numbers(self.n, self.seed ^ 3),
            residual: numbers(self.m * self.n, self.seed ^ 4),
        }
    }

    /// The results of rows `x`, and for each the sum of magnitudes that its rounding is relative to.
    fn reference(&self, data: &Data, x: &[f64]) -> Vec<(f64, f64)> {
        let dot = |w: &[f32], row: usize, i: usize| -> (f64, f64) {
            let (x, w) = (&x[row * self.k..][..self.k], &w[i * self.k..][..self.k]);
            let terms = x.iter().zip(w).map(|(&x, &w)| x * f64::from(w));
            (terms.clone().sum(), terms.map(f64::abs).sum())
        };
        let mut out = Vec::new();
        for row in 0..self.m {
            for i in 0..self.n {
                let (mut y, mut size) = dot(&data.weights.1, row, i);
                if self.bias {
                    y += f64::from(data.bias[i]);
                }
                if let Some(gate) = &data.gate {
                    let (z, gate_size) = dot(&gate.1, row, i);
                    let silu = z / (1.0 + (-z).exp());
                    size = size * silu.abs() + y.abs() * gate_size;
                    y *= silu;
                }
                if self.residual {
                    y += f64::from(data.residual[row * self.n + i]);
                }
                out.push((y, size));
            }
        }
        out
    }

    fn run(&self, isa: Isa, pool: &Pool, data: &Data) -> Vec<f32> {
        // Either form of a residual: the result's own numbers, or others.
        let in_place = self.residual && self.seed.is_multiple_of(2);
        let mut out = if in_place { data.residual.clone() } else { vec![f32::NAN; self.m * self.n] };
        let packed = |bytes, packing: Packing, minima| {
            let packed = Packed::new(bytes, packing, self.n, self.k);
            if self.minima && packing.takes_minima() { packed.with_minima(minima) } else { packed }
        };
        let layer = |out| {
            let mut layer = Linear::new(packed(&data.weights.0, self.packing, &data.minima), out);
            layer.bias = self.bias.then(|| Floats::f32(&data.bias));
            layer.gate = data
                .gate
                .as_ref()
                .zip(self.gate)
                .map(|(g, packing)| Gate { weights: packed(&g.0, packing, &data.gate_minima).into(), bias: None });
            if self.residual {
                layer.residual = if in_place { Residual::Out } else { Residual::Rows(&data.residual) };
            }
            layer
        };
        linear_on(pool, isa, &data.x, self.m, layer, &mut out, &mut Vec::new());
        out
    }

    fn check(&self, pool: &Pool) {
        let data = self.data();
        let x: Vec<f64> = data.x.chunks(self.k).flat_map(quantised).collect();
        let expected = self.reference(&data, &x);
        for isa in exact(self.m) {
            let y = self.run(isa, pool, &data);
            for (i, (&y, &(e, size))) in y.iter().zip(&expected).enumerate() {
                let error = (f64::from(y) - e).abs();
                assert!(error <= 1e-5 * (size + e.abs() + 1.0), "{self:?} on {}: [{i}] is {y}, not {e}", isa.name());
            }
        }
    }
}

/// Units whose products of `m` rows are exact: a matrix unit's are below [`MATRIX_ROWS`].
fn exact(m: usize) -> impl Iterator<Item = Isa> {
    isas().filter(move |isa| isa.2.is_none() || m < MATRIX_ROWS)
}

fn pool(threads: usize) -> Pool {
    Pool::new(&PoolOptions { threads, ..PoolOptions::default() }).expect("threads start")
}

/// The formats of weights: all but that of minima.
const WEIGHTS: usize = Packing::ALL.len() - 2;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(96)))]

    #[test]
    fn few_rows_are_exact_products_of_quantised_values(
        m in 1usize..9, n in 1usize..140, k in 1usize..600, packing in 0..WEIGHTS, bias: bool,
        gate in 0..2 * WEIGHTS, minima: bool, residual: bool, threads in 1usize..4, seed: u64,
    ) {
        let gate = Packing::ALL[..WEIGHTS].get(gate).copied().filter(|g| g.by_halves() == Packing::ALL[packing].by_halves());
        Problem { m, n, k, packing: Packing::ALL[packing], bias, gate, minima, residual, seed }.check(&pool(threads));
    }

    #[test]
    fn many_rows_are_exact_products_of_quantised_values(
        m in 9usize..80, n in 1usize..200, k in 1usize..700, packing in 0..WEIGHTS, bias: bool,
        gate in 0..2 * WEIGHTS, minima: bool, residual: bool, threads in 1usize..4, seed: u64,
    ) {
        let gate = Packing::ALL[..WEIGHTS].get(gate).copied().filter(|g| g.by_halves() == Packing::ALL[packing].by_halves());
        Problem { m, n, k, packing: Packing::ALL[packing], bias, gate, minima, residual, seed }.check(&pool(threads));
    }

    #[test]
    fn the_error_against_floats_is_as_promised(m in 1usize..20, k in 1usize..400, packing in 0..WEIGHTS, minima: bool, seed: u64) {
        let packing = Packing::ALL[packing];
        let problem = Problem { m, n: 20, k, packing, bias: false, gate: None, minima, residual: false, seed };
        let data = problem.data();
        let exact: Vec<f64> = data.x.iter().map(|&x| x.into()).collect();
        let expected = problem.reference(&data, &exact);
        let y = problem.run(Isa::detect(), &pool(2), &data);
        for (at, (&y, &(e, size))) in y.iter().zip(&expected).enumerate() {
            let (row, i) = (at / 20, at % 20);
            let (x, w) = (&data.x[row * k..][..k], &data.weights.1[i * k..][..k]);
            let bound: f64 = x.chunks(BLOCK).zip(w.chunks(BLOCK)).map(|(x, w)| {
                half_step(x) * w.iter().map(|w| f64::from(w.abs())).sum::<f64>()
            }).sum();
            let error = (f64::from(y) - e).abs();
            prop_assert!(error <= bound * 1.0001 + 1e-5 * size + 1e-6, "[{}]: off by {}, bound {}", at, error, bound);
        }
    }
}

#[test]
fn blocks_of_rows_and_opened_columns_meet_at_their_edges() {
    let pool = pool(2);
    for (i, m) in [16, 255, 256, 257, 264, 300].into_iter().enumerate() {
        let shapes = [
            (97, 256, 0, false),
            (48, 512, 1, false),
            (33, 544, 2, false),
            (1, 600, 3, false),
            (50, 300, 4, false),
            (33, 768, 4, false),
            (97, 320, 8, false),
            (33, 600, 9, false),
            (33, 600, 10, false),
            (33, 600, 12, false),
            (33, 768, 5, true),
            (97, 320, 5, true),
            (20, 512, 6, true),
            (50, 300, 7, true),
            (50, 600, 11, true),
        ];
        for (n, k, packing, minima) in some_of(i, shapes) {
            let packing = Packing::ALL[packing];
            Problem { m, n, k, packing, bias: true, gate: None, minima, residual: true, seed: 7 }.check(&pool);
        }
    }
}

/// Long rows, of which threads take 16 at a time at the end, and up to 96 together before.
#[test]
fn outputs_that_are_taken_together_are_those_of_the_layer() {
    for (threads, n, packing, gate) in [(1, 500, 1, None), (2, 407, 3, Some(3)), (3, 336, 5, None), (1, 97, 0, Some(1))]
    {
        let (packing, gate) = (Packing::ALL[packing], gate.map(|gate| Packing::ALL[gate]));
        let problem = Problem { m: 1, n, k: 4096, packing, bias: true, gate, minima: true, residual: true, seed: 14 };
        problem.check(&pool(threads));
    }
}

/// Tasks have 512 rows where that makes enough of them, which with one thread takes some outputs: such rows have the bits of fewer at a time.
#[test]
fn tasks_of_the_most_rows_have_the_bits_of_smaller_ones() {
    let (m, n, k, part) = (520, 737, 96, 130);
    for of_tile in [1, 3] {
        assert_eq!(super::tiled::shape_of_task(of_tile, n, m, 1), (48, 512));
        assert_eq!(super::tiled::shape_of_task(of_tile, n, part, 1).1, 256);
    }
    let pool = pool(1);
    for (packing, gate, minima) in [(0, None, false), (1, Some(1), false), (5, Some(5), true)] {
        let (packing, gate) = (Packing::ALL[packing], gate.map(|gate| Packing::ALL[gate]));
        let whole = Problem { m, n, k, packing, bias: true, gate, minima, residual: false, seed: 11 };
        let mut data = whole.data();
        for isa in isas() {
            let together = whole.run(isa, &pool, &data);
            let x = data.x.clone();
            for (i, x) in x.chunks(part * k).enumerate() {
                data.x = x.to_vec();
                let alone = Problem { m: part, ..whole }.run(isa, &pool, &data);
                let together = &together[i * part * n..][..part * n];
                assert!(
                    alone.iter().zip(together).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{packing:?} on {}",
                    isa.name()
                );
            }
            data.x = x;
        }
    }
}

#[test]
fn the_largest_weights_times_the_largest_activations_do_not_saturate() {
    let pool = pool(1);
    let (n, k, scale) = (20, 512, 1.0 / 1024.0);
    for packing in &Packing::ALL[..WEIGHTS] {
        let ends: [i8; 2] = match packing.bits {
            Bits::UTwo => [0, 3],
            Bits::Three => [-4, 3],
            Bits::Four => [-8, 7],
            Bits::Five => [-16, 15],
            Bits::Six => [-32, 31],
            Bits::UFour => [0, 15],
            Bits::UFive => [0, 31],
            Bits::Levels | Bits::Nonlinear => [-127, 113],
            Bits::FloatFour => [-12, 12],
            Bits::Eight | Bits::Minima | Bits::HalfMinima => [-128, 127],
        };
        // 127 times a scale, so that they are quantised to 127 and -127.
        const LARGEST: f32 = 127.0 * 1.125 / 128.0;
        for (value, x) in ends.into_iter().flat_map(|value| [(value, LARGEST), (value, -LARGEST)]) {
            let mut bytes = vec![0; packing.size_bytes(n, k).expect("a small matrix")];
            let mut packer = Packer::new(&mut bytes, *packing, n, k);
            let scales = vec![scale; packing.scales_of_row(k)];
            (0..n).for_each(|row| packer.row(row, &vec![value; k], &scales).expect("values and scales fit"));
            let weights = Packed::new(&bytes, *packing, n, k);
            let expected = k as f32 * f32::from(value) * scale * x;
            for (isa, m) in [1, 2, 4, 8, 16].into_iter().flat_map(|m| exact(m).map(move |isa| (isa, m))) {
                let mut out = vec![f32::NAN; m * n];
                linear_on(&pool, isa, &vec![x; m * k], m, |out| Linear::new(weights, out), &mut out, &mut Vec::new());
                for y in out {
                    let off = (y - expected).abs();
                    assert!(off <= 1e-5 * expected.abs(), "{packing:?}, {value} times {x} on {}: {y}", isa.name());
                }
            }
        }
    }
}

#[test]
fn large_x_is_quantised_by_all_threads_together() {
    let pool = pool(3);
    for m in [3, 8] {
        for (packing, minima) in [(Packing::ALL[0], false), (Packing::ALL[5], true)] {
            Problem { m, n: 40, k: 6000, packing, bias: false, gate: None, minima, residual: false, seed: 5 }
                .check(&pool);
        }
    }
}

#[test]
fn layers_of_both_kinds_share_a_call() {
    use crate::kernels::Mat;
    use crate::kernels::linear::{linear, scratch_len};
    let pool = pool(2);
    let (n, k) = (50, 96);
    for m in [1, 30] {
        let x = numbers(m * k, 1);
        let floats = numbers(n * k, 2);
        let packing = Packing::ALL[1];
        let (bytes, stored) = packed_numbers(packing, n, k, 3);
        let product = |w: &[f32], x: &[f64]| -> Vec<f64> {
            let rows = x.chunks_exact(k).flat_map(|x| {
                w.chunks_exact(k).map(|w| x.iter().zip(w).map(|(x, &w)| x * f64::from(w)).sum()).collect::<Vec<f64>>()
            });
            rows.collect()
        };
        for isa in isas() {
            let mut outs = [vec![f32::NAN; m * n], vec![f32::NAN; m * n]];
            let mut scratch = vec![0.0; scratch_len(isa, m, k, 2)];
            let [a, b] = &mut outs;
            let layers = [
                Linear::new(Packed::new(&bytes, packing, n, k), SharedMut::new(a)),
                Linear::new(Mat::new(Floats::f32(&floats), n, k), SharedMut::new(b)),
            ];
            let scratch = SharedMut::new(&mut scratch);
            pool.run(&|worker| {
                // SAFETY: all threads make this one call; outputs and scratch are borrowed here alone.
                unsafe { linear(worker, isa, &x, Form::Rows, m, &layers, scratch) }
            });
            let exact: Vec<f64> = x.iter().map(|&x| x.into()).collect();
            let rounded: Vec<f64> = x.chunks(k).flat_map(quantised).collect();
            assert_close(&outs[0], &product(&stored, &rounded), 1e-4, 1e-3, isa.name());
            assert_close(&outs[1], &product(&floats, &exact), 1e-4, 1e-3, isa.name());
        }
    }
}
