//! Results that lie in tiles between two layers: the bits are those of results in rows.

use proptest::prelude::*;

use super::super::{Form, Gate, Linear, Residual, RmsNorm, linear, rms_norm_to_tiles, scratch_len};
use super::tests::{KINDS, Weights, pool, units};
use crate::kernels::testing::{encoded, numbers};
use crate::kernels::{Float, Floats, Isa, SharedMut, rms_norm};
use crate::testing::cases;

/// A layer with or without a gate, `[n, k]`, and two that read what it writes.
#[derive(Clone, Copy, Debug)]
struct Chain {
    m: usize,
    k: usize,
    n: usize,
    outs: [usize; 2],
    kinds: [usize; 2],
    gate: bool,
    residual: bool,
    threads: usize,
    seed: u64,
}

impl Chain {
    /// Bits of the two results, the first layer's lying as `form` says.
    fn run(&self, isa: Isa, form: Form) -> [Vec<u32>; 2] {
        let Self { m, k, n, outs, .. } = *self;
        let (x, residual) = (numbers(m * k, self.seed), numbers(m * n, self.seed ^ 5));
        let of = |kind: usize, n: usize, k: usize, salt: u64| Weights::new(KINDS[kind], n, k, self.seed ^ salt);
        let first = [of(self.kinds[0], n, k, 1), of(self.kinds[0], n, k, 2)];
        let then = [of(self.kinds[1], outs[0], n, 3), of(self.kinds[1], outs[1], n, 4)];
        // What is not written must not be seen.
        let mut between = vec![f32::NAN; m * n];
        let mut results = outs.map(|out| vec![f32::NAN; m * out]);
        let mut scratch = vec![f32::NAN; scratch_len(isa, m, k.max(n), self.threads)];
        let scratch = SharedMut::new(&mut scratch);
        let pool = pool(self.threads);
        let layer = Linear {
            gate: self.gate.then(|| Gate { weights: first[1].mat(n, k), bias: None }),
            residual: if self.residual { Residual::Rows(&residual) } else { Residual::None },
            out_form: form,
            ..Linear::new(first[0].mat(n, k), SharedMut::new(&mut between))
        };
        // SAFETY: all threads make this one call; what is written is borrowed here alone.
        pool.run(&|worker| unsafe { linear(worker, isa, &x, Form::Rows, m, &[layer], scratch) });
        let [a, b] = &mut results;
        let layers = [
            Linear::new(then[0].mat(outs[0], n), SharedMut::new(a)),
            Linear::new(then[1].mat(outs[1], n), SharedMut::new(b)),
        ];
        // SAFETY: as above.
        pool.run(&|worker| unsafe { linear(worker, isa, &between, form, m, &layers, scratch) });
        results.map(|result| result.iter().map(|y| y.to_bits()).collect())
    }

    fn check(&self) {
        for isa in units() {
            let (rows, tiles) = (self.run(isa, Form::Rows), self.run(isa, Form::Tiles));
            assert!(rows == tiles, "{self:?} on {}", isa.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn results_in_tiles_have_the_same_bits(
        m in super::ROWS..150, k in 1usize..300, steps in 1usize..40, outs in prop::array::uniform2(1usize..120),
        kinds in prop::array::uniform2(0..KINDS.len()), gate: bool, residual: bool, threads in 1usize..4, seed: u64,
    ) {
        Chain { m, k, n: steps * super::TILE_K, outs, kinds, gate, residual, threads, seed }.check();
    }
}

/// The bits of a layer of normalised rows, which lie between the two as `form` says.
fn of_norm(
    isa: Isa,
    form: Form,
    [m, width, threads]: [usize; 3],
    gamma: Floats<'_>,
    beta: Option<Floats<'_>>,
) -> Vec<u32> {
    let (x, weights) = (numbers(m * width, 4), Weights::new(KINDS[3], 40, width, 6));
    let (mut between, mut result) = (vec![f32::NAN; m * width], vec![f32::NAN; m * 40]);
    let mut scratch = vec![f32::NAN; scratch_len(isa, m, width, threads)];
    let (scratch, out, pool) = (SharedMut::new(&mut scratch), SharedMut::new(&mut result), pool(threads));
    match form {
        Form::Rows => rms_norm(isa, &x, width, gamma, beta, 1e-5, &mut between),
        Form::Tiles => {
            let norm = RmsNorm { x: &x, width, gamma, beta, epsilon: 1e-5 };
            let out = SharedMut::new(&mut between);
            // SAFETY: all threads make this one call; what is written is borrowed here alone.
            pool.run(&|worker| unsafe { rms_norm_to_tiles(worker, isa, &norm, out) });
        }
    }
    let layers = [Linear::new(weights.mat(40, width), out)];
    // SAFETY: as above.
    pool.run(&|worker| unsafe { linear(worker, isa, &between, form, m, &layers, scratch) });
    result.iter().map(|y| y.to_bits()).collect()
}

#[test]
fn normalised_rows_in_tiles_have_the_same_bits() {
    for isa in units() {
        for (m, width, threads) in [(64, 64, 1), (97, 1056, 2), (513, 96, 3)] {
            for (i, ty) in Float::ALL.into_iter().enumerate() {
                let [gamma, beta] = [1, 2].map(|seed| encoded(&numbers(width, seed), ty, 0).0);
                let view = |bytes| Floats::new(bytes, ty);
                let beta = (i > 0).then(|| view(&beta));
                let run = |form| of_norm(isa, form, [m, width, threads], view(&gamma), beta);
                assert!(run(Form::Rows) == run(Form::Tiles), "{m} rows of {width} on {}", isa.name());
            }
        }
    }
}

#[test]
fn results_in_tiles_of_more_rows_than_a_block() {
    for (m, n) in [(513, 544), (1041, 96)] {
        let (k, outs, kinds) = (64, [40, 7], [3, 3]);
        Chain { m, k, n, outs, kinds, gate: true, residual: false, threads: 2, seed: 7 }.check();
    }
}

#[test]
#[should_panic(expected = "no matrix unit")]
fn tiles_are_refused_where_no_unit_takes_them() {
    let (kinds, seed) = ([3, 3], 1);
    let chain = Chain { m: 64, k: 32, n: 64, outs: [8, 8], kinds, gate: false, residual: false, threads: 1, seed };
    chain.run(Isa::PLAIN, Form::Tiles);
}
