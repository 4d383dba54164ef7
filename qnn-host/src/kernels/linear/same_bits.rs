//! A row's results have the same bits whatever the number of rows beside it, and whatever they hold.

use proptest::prelude::*;

use super::{Gate, Linear, MATRIX_ROWS, Residual, linear_on};
use crate::kernels::packed::{Packed, Packing};
use crate::kernels::testing::{encoded, isas, numbers, packed_minima, packed_numbers, with_blocks};
use crate::kernels::{Float, Floats, Isa, Mat};
use crate::pool::{Pool, PoolOptions};
use crate::testing::{cases, some_of};

/// Weights of one kind, with what they are read from.
struct Weights {
    bytes: Vec<u8>,
    scales: Vec<f32>,
    minima: Vec<u8>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Floats(Float),
    Bytes,
    Packed(Packing),
    /// With minima.
    Less(Packing),
}

const KINDS: [Kind; 20] = [
    Kind::Floats(Float::F32),
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

impl Weights {
    fn new(kind: Kind, n: usize, k: usize, seed: u64) -> Self {
        let scales = numbers(n, seed ^ 9).iter().map(|x| x * 0.01).collect();
        let bytes = match kind {
            Kind::Floats(ty) => encoded(&numbers(n * k, seed), ty, 0).0,
            Kind::Bytes => numbers(n * k, seed).iter().map(|x| ((x * 70.0) as i8).cast_unsigned()).collect(),
            Kind::Packed(packing) | Kind::Less(packing) => packed_numbers(packing, n, k, seed).0,
        };
        let minima = match kind {
            Kind::Less(packing) => packed_minima(packing, n, k, seed).0,
            _ => Vec::new(),
        };
        Self { bytes, scales, minima, kind }
    }

    fn mat(&self, n: usize, k: usize) -> Mat<'_> {
        match self.kind {
            Kind::Floats(ty) => Mat::new(Floats::new(&self.bytes, ty), n, k),
            Kind::Bytes => Mat::quantised(&self.bytes, &self.scales, n, k),
            Kind::Packed(packing) => Packed::new(&self.bytes, packing, n, k).into(),
            Kind::Less(packing) => Packed::new(&self.bytes, packing, n, k).with_minima(&self.minima).into(),
        }
    }
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
    fn run(&self, isa: Isa, pool: &Pool, weights: [&Weights; 2], x: &[f32], residual: &[f32]) -> Vec<u32> {
        let m = x.len() / self.k;
        let mut out = vec![f32::NAN; m * self.n];
        let layer = |out| Linear {
            gate: self.gate.then(|| Gate { weights: weights[1].mat(self.n, self.k), bias: None }),
            residual: if self.residual { Residual::Rows(residual) } else { Residual::None },
            ..Linear::new(weights[0].mat(self.n, self.k), out)
        };
        linear_on(pool, isa, x, m, layer, &mut out, &mut Vec::new());
        out.iter().map(|x| x.to_bits()).collect()
    }

    fn check(&self, pool: &Pool) {
        let kind = KINDS[self.kind];
        let weights = [1, 2].map(|i| Weights::new(kind, self.n, self.k, self.seed ^ i));
        let weights = [&weights[0], &weights[1]];
        let (x, residual) = (numbers(self.m * self.k, self.seed), numbers(self.m * self.n, self.seed ^ 4));
        for isa in isas() {
            let together = self.run(isa, pool, weights, &x, &residual);
            let rows = x.chunks_exact(self.k).zip(residual.chunks_exact(self.n)).zip(together.chunks_exact(self.n));
            for (row, ((x, residual), together)) in rows.enumerate() {
                let alone = self.run(isa, pool, weights, x, residual);
                assert_eq!(together, alone, "row {row} of {self:?} ({kind:?}) on {}", isa.name());
            }
        }
    }
}

fn pool(threads: usize) -> Pool {
    Pool::new(&PoolOptions { threads, ..PoolOptions::default() }).expect("threads start")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn rows_are_the_same_alone_and_together(
        m in prop_oneof![2usize..9, 9usize..MATRIX_ROWS], n in 1usize..80, k in 1usize..600, kind in 0..KINDS.len(), gate: bool,
        residual: bool, threads in 1usize..3, seed: u64,
    ) {
        Problem { m, n, k, kind, gate, residual, seed }.check(&pool(threads));
    }
}

#[test]
fn every_kind_of_weights_at_every_width() {
    let pool = pool(2);
    for kind in 0..KINDS.len() {
        for m in some_of(kind, [2, 3, 5, 8, 9, 16, 24, 33, MATRIX_ROWS - 1]) {
            Problem { m, n: 50, k: 512, kind, gate: m % 2 == 1, residual: true, seed: 3 }.check(&pool);
        }
    }
    let packed = KINDS.iter().filter(|kind| matches!(kind, Kind::Packed(_))).count();
    assert_eq!(packed + 2, Packing::ALL.len(), "all kinds are tried; minima are no weights");
}

/// The last columns, opened at once, may be a single pair of blocks; a task has several groups of outputs, the last one fewer.
#[test]
fn few_columns_at_the_end_of_many_outputs() {
    let pool = pool(1);
    for kind in (0..KINDS.len()).filter(|&kind| matches!(KINDS[kind], Kind::Packed(_) | Kind::Less(_))) {
        for (m, k) in some_of(kind, [(9, 64), (12, 320), (16, 576), (20, 576)]) {
            Problem { m, n: 400, k, kind, gate: false, residual: false, seed: 7 }.check(&pool);
        }
    }
}

#[test]
fn numbers_too_small_to_have_an_inverse() {
    let (pool, n, k) = (pool(2), 20, 320);
    for (kind, packing) in KINDS.iter().enumerate().filter_map(|(i, kind)| match kind {
        Kind::Packed(packing) => Some((i, packing)),
        _ => None,
    }) {
        let problem = Problem { m: 16, n, k, kind, gate: false, residual: false, seed: 5 };
        let weights = Weights::new(KINDS[kind], n, k, 1);
        let x: Vec<f32> = numbers(16 * k, 2).iter().map(|x| x * 1e-38).collect();
        for isa in isas() {
            let together = problem.run(isa, &pool, [&weights, &weights], &x, &[]);
            for (row, x) in x.chunks_exact(k).enumerate() {
                let alone = problem.run(isa, &pool, [&weights, &weights], x, &[]);
                assert_eq!(together[row * n..][..n], alone, "row {row}, {packing:?} on {}", isa.name());
            }
        }
    }
}

/// One number that is not finite makes its row's results so, whatever computes them, and leaves other rows as they are.
#[test]
fn a_row_that_is_not_finite_stays_so_and_alone() {
    let (pool, n, k) = (pool(2), 50, 330);
    for (kind, of) in KINDS.into_iter().enumerate() {
        let weights = [1, 2].map(|i| Weights::new(of, n, k, i));
        let weights = [&weights[0], &weights[1]];
        for m in some_of(kind, [1, 4, 9, 33, 70]) {
            let problem = Problem { m, n, k, kind, gate: m % 2 == 0, residual: false, seed: 3 };
            let (row, clean) = (m / 2, numbers(m * k, 3));
            // The last block of columns is not whole.
            let parts = [(0..1, f32::NAN), (k - 1..k, f32::NAN), (0..k, f32::NAN), (40..41, f32::NEG_INFINITY)];
            for isa in isas().chain(isas().filter(|isa| isa.2.is_some()).map(with_blocks)) {
                let expected = problem.run(isa, &pool, weights, &clean, &[]);
                for (part, value) in parts.clone() {
                    let what = || format!("{value} at {part:?} of row {row}, {m} rows, {of:?}, {}", isa.name());
                    let mut x = clean.clone();
                    x[row * k..][part.clone()].fill(value);
                    let found = problem.run(isa, &pool, weights, &x, &[]);
                    for (i, (found, expected)) in found.chunks(n).zip(expected.chunks(n)).enumerate() {
                        if i == row {
                            let finite = found.iter().filter(|&&y| f32::from_bits(y).is_finite()).count();
                            assert_eq!(finite, 0, "finite results of {}", what());
                        } else {
                            assert_eq!(found, expected, "row {i} beside {}", what());
                        }
                    }
                }
            }
        }
    }
}
