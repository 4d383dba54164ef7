//! Every path of linear layers against the definition in f64.

use proptest::prelude::*;

use super::*;
use crate::kernels::Float;
use crate::kernels::testing::{assert_close, encoded, isas, isas_without_matrix_unit, numbers};
use crate::pool::PoolOptions;
use crate::testing::cases;

#[derive(Debug, Clone, Copy)]
struct Problem {
    m: usize,
    n: usize,
    k: usize,
    ty: Float,
    /// Weights are signed bytes with a scale for each row; `ty` is the biases' type.
    quantised: bool,
    shift: usize,
    bias: bool,
    gate: bool,
    residual: usize,
    seed: u64,
}

struct Data {
    x: Vec<f32>,
    /// Bytes as given to the kernel, and numbers as stored, for: weights, gate, bias, gate bias.
    operands: [(Vec<u8>, Vec<f32>); 4],
    /// Of the rows of weights and gate, if they are quantised.
    scales: [Vec<f32>; 2],
    residual: Vec<f32>,
}

impl Problem {
    fn data(&self) -> Data {
        let operand = |len, i: u64| encoded(&numbers(len, self.seed ^ (i << 8)), self.ty, self.shift);
        let scales = [6, 7].map(|i| numbers(self.n, self.seed ^ (i << 8)).iter().map(|s| s * 0.01).collect::<Vec<_>>());
        let weights = |i: u64| match self.quantised {
            false => operand(self.n * self.k, i),
            true => {
                let quantised = numbers(self.n * self.k, self.seed ^ (i << 8));
                let quantised: Vec<i8> = quantised.iter().map(|x| (x * 70.0).clamp(-128.0, 127.0) as i8).collect();
                let scale = |at: usize| scales[i as usize - 1][at / self.k];
                let stored = quantised.iter().enumerate().map(|(at, &c)| f32::from(c) * scale(at)).collect();
                let bytes = vec![0xAA; self.shift].into_iter().chain(quantised.iter().map(|c| c.cast_unsigned()));
                (bytes.collect(), stored)
            }
        };
        Data {
            x: numbers(self.m * self.k, self.seed),
            operands: [weights(1), weights(2), operand(self.n, 3), operand(self.n, 4)],
            scales: scales.clone(),
            residual: numbers(self.m * self.n, self.seed ^ 5),
        }
    }

    fn reference(&self, data: &Data) -> Vec<f64> {
        let dot = |w: &[f32], row: usize, i: usize| -> f64 {
            let (x, w) = (&data.x[row * self.k..][..self.k], &w[i * self.k..][..self.k]);
            x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum()
        };
        let [w, g, b, gb] = &data.operands;
        let mut y = Vec::new();
        for row in 0..self.m {
            for i in 0..self.n {
                let bias = |b: &(_, Vec<f32>)| if self.bias { f64::from(b.1[i]) } else { 0.0 };
                let mut v = dot(&w.1, row, i) + bias(b);
                if self.gate {
                    let z = dot(&g.1, row, i) + bias(gb);
                    v *= z / (1.0 + (-z).exp());
                }
                if self.residual > 0 {
                    v += f64::from(data.residual[row * self.n + i]);
                }
                y.push(v);
            }
        }
        y
    }

    fn layer<'a>(&self, data: &'a Data, out: SharedMut<'a, f32>) -> Linear<'a> {
        let view = |i: usize| Floats::new(&data.operands[i].0[self.shift..], self.ty);
        let mat = |i: usize| match self.quantised {
            false => Mat::new(view(i), self.n, self.k),
            true => Mat::quantised(&data.operands[i].0[self.shift..], &data.scales[i], self.n, self.k),
        };
        let bias = |i| self.bias.then(|| view(i));
        Linear {
            bias: bias(2),
            gate: self.gate.then(|| Gate { weights: mat(1), bias: bias(3) }),
            residual: match self.residual {
                0 => Residual::None,
                1 => Residual::Out,
                _ => Residual::Rows(&data.residual),
            },
            ..Linear::new(mat(0), out)
        }
    }

    fn run(&self, isa: Isa, pool: &Pool, data: &Data) -> Vec<f32> {
        let mut out = if self.residual == 1 { data.residual.clone() } else { vec![f32::NAN; self.m * self.n] };
        linear_on(pool, isa, &data.x, self.m, |out| self.layer(data, out), &mut out, &mut Vec::new());
        out
    }

    fn check(&self, pool: &Pool) {
        let data = self.data();
        let expected = self.reference(&data);
        // Sums of k products of numbers up to 8: what f32 rounding can do, with a gate twice.
        let absolute = 1e-6 * (self.k as f64 + 4.0) * if self.gate { 60.0 } else { 8.0 };
        for isa in isas_without_matrix_unit() {
            let y = self.run(isa, pool, &data);
            assert_close(&y, &expected, 1e-5, absolute, &format!("{self:?} on {}", isa.name()));
        }
    }
}

fn pool(threads: usize) -> Pool {
    Pool::new(&PoolOptions { threads, ..PoolOptions::default() }).expect("threads start")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn few_rows_match_the_definition(
        m in 1usize..9, n in 1usize..140, k in 1usize..200, ty in 0usize..3, quantised: bool, shift in 0usize..2,
        bias: bool, gate: bool, residual in 0usize..3, threads in 1usize..4, seed: u64,
    ) {
        Problem { m, n, k, ty: Float::ALL[ty], quantised, shift, bias, gate, residual, seed }.check(&pool(threads));
    }

    #[test]
    fn many_rows_match_the_definition(
        m in 9usize..80, n in 1usize..220, k in 1usize..300, ty in 0usize..3, quantised: bool, shift in 0usize..2,
        bias: bool, gate: bool, residual in 0usize..3, threads in 1usize..4, seed: u64,
    ) {
        Problem { m, n, k, ty: Float::ALL[ty], quantised, shift, bias, gate, residual, seed }.check(&pool(threads));
    }
}

#[test]
fn blocks_meet_at_their_edges() {
    let pool = pool(2);
    for m in [16, 32, 33, 255, 256, 257, 300] {
        for (n, k) in [(97, 256), (96, 513), (1, 600)] {
            let base = Problem {
                m,
                n,
                k,
                ty: Float::F16,
                quantised: m % 2 == 1,
                shift: 0,
                bias: true,
                gate: false,
                residual: 1,
                seed: 7,
            };
            base.check(&pool);
        }
    }
}

#[test]
fn layers_of_one_call_are_as_if_alone() {
    let pool = pool(3);
    for m in [1, 5, 40] {
        let problems: Vec<Problem> = [(70, false), (5, true), (33, false)]
            .iter()
            .map(|&(n, gate)| Problem {
                m,
                n,
                k: 130,
                ty: Float::F32,
                quantised: n == 5,
                shift: 0,
                bias: true,
                gate,
                residual: 0,
                seed: 3,
            })
            .collect();
        let data: Vec<Data> = problems.iter().map(|p| Data { x: numbers(m * 130, 9), ..p.data() }).collect();
        for isa in isas() {
            let mut outs: Vec<Vec<f32>> = problems.iter().map(|p| vec![f32::NAN; m * p.n]).collect();
            let mut scratch = vec![0.0; scratch_len(isa, m, 130, 3)];
            {
                let layers: Vec<Linear<'_>> = problems
                    .iter()
                    .zip(&data)
                    .zip(&mut outs)
                    .map(|((p, d), o)| p.layer(d, SharedMut::new(o)))
                    .collect();
                let scratch = SharedMut::new(&mut scratch);
                pool.run(&|worker| {
                    // SAFETY: all threads make this one call; outputs and scratch are borrowed here alone.
                    unsafe { linear(worker, isa, &data[0].x, Form::Rows, m, &layers, scratch) }
                });
            }
            for ((problem, data), out) in problems.iter().zip(&data).zip(&outs) {
                assert_close(out, &problem.reference(data), 1e-5, 5e-3, isa.name());
            }
        }
    }
}
