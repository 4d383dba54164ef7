//! Results that lie in tiles between two layers: the bits are those of results in rows.

use proptest::prelude::*;

use super::super::{Form, Gate, Linear, Residual, linear, scratch_len};
use super::tests::{KINDS, Weights, cases, pool, units};
use crate::kernels::testing::numbers;
use crate::kernels::{Isa, SharedMut};

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
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn results_in_tiles_have_the_same_bits(
        m in super::ROWS..150, k in 1usize..300, steps in 1usize..40, outs in prop::array::uniform2(1usize..120),
        kinds in prop::array::uniform2(0..KINDS.len()), gate: bool, residual: bool, threads in 1usize..4, seed: u64,
    ) {
        Chain { m, k, n: steps * super::TILE_K, outs, kinds, gate, residual, threads, seed }.check();
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
