//! Matrix units (AMX, AVX-512 with bf16, SME) against exact products of numbers rounded to bf16, and against the documented bound. Where this CPU
//! has none, each test says so by its name and ends.

use half::bf16;
use proptest::prelude::*;

use super::super::{Form, Gate, Linear, Residual, linear, linear_on, scratch_len};
use crate::kernels::packed::{Packed, Packing, Scales};
use crate::kernels::testing::{encoded, isas, less, numbers, packed_minima, packed_numbers, with_blocks};
use crate::kernels::{Float, Floats, Isa, Mat, SharedMut};
use crate::pool::{Pool, PoolOptions};
use crate::testing::cases;

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Floats(Float),
    Bytes,
    Packed(Packing),
    /// With minima.
    Less(Packing),
}

pub(super) const KINDS: [Kind; 19] = [
    Kind::Floats(Float::F16),
    Kind::Floats(Float::Bf16),
    Kind::Bytes,
    Kind::Packed(Packing::ALL[0]),
    Kind::Packed(Packing::ALL[1]),
    Kind::Packed(Packing::ALL[2]),
    Kind::Packed(Packing::ALL[3]),
    Kind::Packed(Packing::ALL[4]),
    Kind::Packed(Packing::ALL[5]),
    Kind::Packed(Packing::ALL[6]),
    Kind::Packed(Packing::ALL[7]),
    Kind::Packed(Packing::ALL[8]),
    Kind::Packed(Packing::ALL[9]),
    Kind::Packed(Packing::ALL[10]),
    Kind::Packed(Packing::ALL[11]),
    Kind::Packed(Packing::ALL[12]),
    Kind::Less(Packing::ALL[5]),
    Kind::Less(Packing::ALL[6]),
    Kind::Less(Packing::ALL[11]),
];

/// Weights and what they stand for.
pub(super) struct Weights {
    kind: Kind,
    bytes: Vec<u8>,
    scales: Vec<f32>,
    minima: Vec<u8>,
    values: Vec<f32>,
}

impl Weights {
    pub(super) fn new(kind: Kind, n: usize, k: usize, seed: u64) -> Self {
        let scales: Vec<f32> = numbers(n, seed ^ 9).iter().map(|x| x * 0.01).collect();
        let (bytes, values) = match kind {
            Kind::Floats(ty) => encoded(&numbers(n * k, seed), ty, 0),
            Kind::Packed(packing) => packed_numbers(packing, n, k, seed),
            Kind::Less(packing) => {
                let (bytes, values) = packed_numbers(packing, n, k, seed);
                (bytes, less(&values, &packed_minima(packing, n, k, seed).1))
            }
            Kind::Bytes => {
                let bytes: Vec<i8> = numbers(n * k, seed).iter().map(|x| (x * 15.0) as i8).collect();
                let values = bytes.iter().enumerate().map(|(i, &b)| f32::from(b) * scales[i / k]).collect();
                (bytes.into_iter().map(i8::cast_unsigned).collect(), values)
            }
        };
        let minima = match kind {
            Kind::Less(packing) => packed_minima(packing, n, k, seed).0,
            _ => Vec::new(),
        };
        Self { kind, bytes, scales, minima, values }
    }

    pub(super) fn mat(&self, n: usize, k: usize) -> Mat<'_> {
        match self.kind {
            Kind::Floats(ty) => Mat::new(Floats::new(&self.bytes, ty), n, k),
            Kind::Bytes => Mat::quantised(&self.bytes, &self.scales, n, k),
            Kind::Packed(packing) => Packed::new(&self.bytes, packing, n, k).into(),
            Kind::Less(packing) => Packed::new(&self.bytes, packing, n, k).with_minima(&self.minima).into(),
        }
    }

    /// A weight as the tiles have it: rounded, unless its scale is the row's, which multiplies the sum.
    fn rounded(&self, at: usize) -> f64 {
        match self.kind {
            Kind::Bytes | Kind::Packed(Packing { scales: Scales::Row, .. }) => self.values[at].into(),
            _ => bf16::from_f32(self.values[at]).to_f64(),
        }
    }
}

/// The matrix units of this CPU, that for rows alone [with blocks](with_blocks).
pub(super) fn units() -> Vec<Isa> {
    isas().filter(|isa| isa.2.is_some()).map(with_blocks).collect()
}

pub(super) fn pool(threads: usize) -> Pool {
    Pool::new(&PoolOptions { threads, ..PoolOptions::default() }).expect("threads start")
}

#[derive(Clone, Copy, Debug)]
struct Problem {
    m: usize,
    n: usize,
    k: usize,
    kind: usize,
    gate: bool,
    residual: bool,
    seed: u64,
}

impl Problem {
    fn weights(&self) -> [Weights; 2] {
        [1, 2].map(|i| Weights::new(KINDS[self.kind], self.n, self.k, self.seed ^ i))
    }

    fn run(&self, isa: Isa, threads: usize, weights: &[Weights; 2], x: &[f32], residual: &[f32]) -> Vec<f32> {
        let m = x.len() / self.k;
        let mut out = vec![f32::NAN; m * self.n];
        let layer = |out| Linear {
            gate: self.gate.then(|| Gate { weights: weights[1].mat(self.n, self.k), bias: None }),
            residual: if self.residual { Residual::Rows(residual) } else { Residual::None },
            ..Linear::new(weights[0].mat(self.n, self.k), out)
        };
        linear_on(&pool(threads), isa, x, m, layer, &mut out, &mut Vec::new());
        out
    }

    fn check(&self, threads: usize) {
        for isa in units() {
            self.check_on(isa, threads);
        }
    }

    fn check_on(&self, isa: Isa, threads: usize) {
        let weights = self.weights();
        let (x, residual) = (numbers(self.m * self.k, self.seed), numbers(self.m * self.n, self.seed ^ 4));
        let y = self.run(isa, threads, &weights, &x, &residual);
        for (at, &y) in y.iter().enumerate() {
            let (row, i) = (at / self.n, at % self.n);
            let dot = |w: &Weights| {
                let terms = (0..self.k).map(|j| (x[row * self.k + j], i * self.k + j));
                let rounded = terms.clone().map(|(x, at)| bf16::from_f32(x).to_f64() * w.rounded(at)).sum::<f64>();
                let exact = terms.clone().map(|(x, at)| f64::from(x) * f64::from(w.values[at])).sum::<f64>();
                let size = terms.map(|(x, at)| (f64::from(x) * f64::from(w.values[at])).abs()).sum::<f64>();
                (rounded, exact, size)
            };
            let (mut rounded, mut exact, mut size) = dot(&weights[0]);
            // What the two roundings may cost: twice 2^-8, and their product.
            let bound = 1.01 / 128.0;
            let mut off = size * bound;
            if self.gate {
                let silu = |z: f64| z / (1.0 + (-z).exp());
                let (g, exact_g, gate_size) = dot(&weights[1]);
                // The slope of silu is at most 1.1.
                off = off * (silu(exact_g).abs() + 1.1 * gate_size * bound) + exact.abs() * 1.1 * gate_size * bound;
                size = size * (silu(g).abs() + 1e-3) + rounded.abs() * gate_size;
                (rounded, exact) = (rounded * silu(g), exact * silu(exact_g));
            }
            let residual = if self.residual { f64::from(residual[at]) } else { 0.0 };
            let error = (f64::from(y) - rounded - residual).abs();
            assert!(error <= 2e-5 * (size + 1.0), "{self:?}: [{at}] is {y}, not {}", rounded + residual);
            let error = (f64::from(y) - exact - residual).abs();
            assert!(error <= off + 2e-5 * (size + 1.0), "{self:?}: [{at}] is {y}, {error} off, more than {off}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn products_are_those_of_rounded_numbers(
        m in super::ROWS..150, n in 1usize..210, k in 1usize..1100, kind in 0..KINDS.len(), gate: bool, residual: bool,
        threads in 1usize..4, seed: u64,
    ) {
        Problem { m, n, k, kind, gate, residual, seed }.check(threads);
    }
}

#[test]
fn every_kind_of_weights_in_blocks_of_rows() {
    for kind in 0..KINDS.len() {
        for (m, n, k) in [(64, 96, 512), (65, 97, 544), (527, 20, 768), (1040, 5, 33)] {
            Problem { m, n, k, kind, gate: false, residual: true, seed: 5 }.check(2);
        }
    }
}

#[test]
fn rows_have_the_same_bits_in_all_wide_steps() {
    for (isa, (kind, name)) in units().into_iter().flat_map(|isa| KINDS.iter().enumerate().map(move |kind| (isa, kind)))
    {
        let problem = Problem { m: 0, n: 50, k: 1000, kind, gate: true, residual: true, seed: 3 };
        let weights = problem.weights();
        let (x, residual) = (numbers(600 * problem.k, 1), numbers(600 * problem.n, 2));
        let run = |rows: std::ops::Range<usize>| {
            let (k, n) = (problem.k, problem.n);
            let (x, residual) = (&x[rows.start * k..rows.end * k], &residual[rows.start * n..rows.end * n]);
            problem.run(isa, 2, &weights, x, residual).iter().map(|y| y.to_bits()).collect::<Vec<_>>()
        };
        let all = run(0..600);
        for rows in [0..64, 7..90, 500..600, 3..580] {
            assert_eq!(run(rows.clone()), all[rows.start * problem.n..rows.end * problem.n], "{rows:?} {:?}", name);
        }
    }
}

#[test]
fn steps_of_fewer_rows_and_f32_weights_are_as_without_the_unit() {
    for isa in units() {
        as_without_the_unit(isa, false);
    }
    // As it is found: weights in blocks are left to products of bytes where those are faster.
    for isa in isas().filter(|isa| isa.2.is_some_and(|unit| !unit.takes_blocks())) {
        as_without_the_unit(isa, true);
    }
}

fn as_without_the_unit(isa: Isa, blocks_too: bool) {
    let without = Isa(isa.0, isa.1, None);
    let (n, k) = (40, 300);
    let (bytes, _) = packed_numbers(Packing::ALL[0], n, k, 1);
    let floats = numbers(n * k, 2);
    for (m, same_packed) in [(super::ROWS - 1, true), (super::ROWS, blocks_too)] {
        let x = numbers(m * k, 3);
        let run = |isa| {
            let mut outs = [vec![f32::NAN; m * n], vec![f32::NAN; m * n]];
            let mut scratch = vec![0.0; scratch_len(isa, m, k, 2)];
            let [a, b] = &mut outs;
            let layers = [
                Linear::new(Packed::new(&bytes, Packing::ALL[0], n, k), SharedMut::new(a)),
                Linear::new(Mat::new(Floats::f32(&floats), n, k), SharedMut::new(b)),
            ];
            let scratch = SharedMut::new(&mut scratch);
            pool(2).run(&|worker| {
                // SAFETY: all threads make this one call; outputs and scratch are borrowed here alone.
                unsafe { linear(worker, isa, &x, Form::Rows, m, &layers, scratch) }
            });
            outs.map(|out| out.iter().map(|y| y.to_bits()).collect::<Vec<_>>())
        };
        let (with, without) = (run(isa), run(without));
        assert_eq!(with[0] == without[0], same_packed, "packed, {m} rows");
        assert_eq!(with[1], without[1], "floats, {m} rows");
    }
}

#[test]
fn what_is_not_a_number_stays_so() {
    for isa in units() {
        not_a_number_stays(isa);
    }
}

fn not_a_number_stays(isa: Isa) {
    let (m, n, k) = (64, 20, 64);
    let (bytes, _) = packed_numbers(Packing::ALL[1], n, k, 1);
    let mut x = numbers(m * k, 3);
    (x[k + 3], x[5 * k]) = (f32::NAN, f32::INFINITY);
    let mut out = vec![0.0; m * n];
    let layer = |out| Linear::new(Packed::new(&bytes, Packing::ALL[1], n, k), out);
    linear_on(&pool(1), isa, &x, m, layer, &mut out, &mut Vec::new());
    for (row, out) in out.chunks_exact(n).enumerate() {
        assert_eq!(out.iter().all(|y| y.is_finite()), row != 1 && row != 5, "row {row}: {out:?}");
        assert!(row != 1 || out.iter().all(|y| y.is_nan()), "{out:?}");
    }
}
