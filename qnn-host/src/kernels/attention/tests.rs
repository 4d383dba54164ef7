//! Attention against the definition in f64: plain softmax over all masked scores, nothing skipped.

use proptest::prelude::*;

use super::*;
use crate::kernels::Float;
use crate::kernels::testing::{assert_close, encoded, isas, numbers};
use crate::pool::PoolOptions;
use crate::testing::{cases, is_short, some_of};

#[derive(Debug, Clone, Copy)]
struct Problem {
    rows: usize,
    kv_heads: usize,
    group: usize,
    dim: usize,
    past: usize,
    /// Past columns that are visible; the new ones are causal.
    valid: usize,
    /// Sequences that share the visible past evenly; rows belong to them in turn, in runs of three.
    owners: usize,
    /// Rows from here on are padding: hidden all over.
    real_rows: usize,
    hidden: f32,
    ty: Float,
    /// Past keys and values are quantised to 8 bits rather than of that type.
    past_quantised: bool,
    /// So are new ones.
    new_quantised: bool,
    /// Keys lie row by row.
    by_row: bool,
    /// The past is in blocks with scales; heads are whole blocks then, and keys lie by row.
    blocks: bool,
    shift: usize,
    scale: f32,
    masked: bool,
    /// Queries and results as `[heads, rows, dim]` rather than `[rows, heads, dim]`.
    by_head: bool,
    seed: u64,
}

struct Data {
    q: Vec<f32>,
    /// Bytes as given to the kernel, and numbers as stored.
    keys: [(Vec<u8>, Vec<f32>); 2],
    values: [(Vec<u8>, Vec<f32>); 2],
    /// Of the blocks of past keys and values.
    scales: [Vec<u8>; 2],
    mask: (Vec<u8>, Vec<f32>),
}

impl Problem {
    fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    fn total(&self) -> usize {
        self.past + self.rows
    }

    fn strides(&self) -> (usize, usize) {
        if self.by_head { (self.dim, self.rows * self.dim) } else { (self.heads() * self.dim, self.dim) }
    }

    fn data(&self) -> Data {
        let span = |len, i: u64| {
            let data = numbers(self.kv_heads * self.dim * len, self.seed ^ (i << 8));
            if self.in_blocks(i) {
                let scales = self.block_scales(i);
                let numbers: Vec<u8> = data.iter().map(|x| (x * 127.0 + 128.0) as u8).collect();
                let real = |(at, q): (usize, &u8)| (f32::from(*q) - 128.0) * scales[at / BLOCK].to_f32();
                let stored = numbers.iter().enumerate().map(real).collect();
                return (std::iter::repeat_n(0xAA, self.shift).chain(numbers).collect(), stored);
            }
            if !self.is_quantised(i) {
                return encoded(&data, self.ty, self.shift);
            }
            let (scale, offset) = self.grid(i);
            let quantised = data.iter().map(|x| (x.abs() * 127.0) as u8);
            let stored = quantised.clone().map(|c| (i32::from(c) + offset) as f32 * scale).collect();
            (std::iter::repeat_n(0xAA, self.shift).chain(quantised).collect(), stored)
        };
        let mut mask = numbers(self.rows * self.total(), self.seed ^ 77);
        for (row, mask) in mask.chunks_exact_mut(self.total()).enumerate() {
            for (column, mask) in mask.iter_mut().enumerate() {
                let own = column * self.owners / self.valid.max(1) == row / 3 % self.owners;
                let visible = column < self.valid && own || column >= self.past && column - self.past <= row;
                // Visible columns are plain, except some rows that carry a bias as well.
                *mask = match (visible && row < self.real_rows, row % 3) {
                    (true, 2) => *mask,
                    (true, _) => 0.0,
                    (false, _) => self.hidden,
                };
            }
        }
        Data {
            q: numbers(self.rows * self.heads() * self.dim, self.seed),
            keys: [span(self.past, 1), span(self.rows, 2)],
            values: [span(self.past, 3), span(self.rows, 4)],
            scales: [1, 3].map(|i| {
                let bytes = self.block_scales(i).into_iter().flat_map(half::f16::to_ne_bytes);
                std::iter::repeat_n(0xAA, self.shift).chain(bytes).collect()
            }),
            mask: encoded(&mask, self.ty, self.shift),
        }
    }

    /// Whether keys (1, 2) or values (3, 4) of the past or the new ones are quantised.
    fn is_quantised(&self, i: u64) -> bool {
        if i % 2 == 1 { self.past_quantised } else { self.new_quantised }
    }

    /// Whether keys (1, 2) or values (3, 4) are in blocks.
    fn in_blocks(&self, i: u64) -> bool {
        self.blocks && i % 2 == 1
    }

    /// The scales of past keys (1) or values (3), some of them smaller than any normal float16.
    fn block_scales(&self, i: u64) -> Vec<half::f16> {
        let n = if self.blocks { self.kv_heads * self.past * self.dim / BLOCK } else { 0 };
        let of = |x: f32| half::f16::from_f32(if x > 0.9 { 1e-6 } else { (1.0 + x) / 127.0 });
        numbers(n, self.seed ^ i << 16).into_iter().map(of).collect()
    }

    /// Scale and offset of such: ranges of 1 to 4, around zero or beside it.
    fn grid(&self, i: u64) -> (f32, i32) {
        let bits = (self.seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((1.0 + (bits % 1000) as f32 / 333.0) / 255.0, -((bits >> 12 & 255) as i32))
    }

    fn rows<'a>(&self, bytes: &'a [u8], data: &'a Data, i: u64) -> Rows<'a> {
        if self.in_blocks(i) {
            let scales = &data.scales[i as usize / 2][self.shift..];
            return Rows::Blocks(BlockRows { bytes: &bytes[self.shift..], scales, offset: -128 });
        }
        if !self.is_quantised(i) {
            return self.view(bytes).into();
        }
        let (scale, offset) = self.grid(i);
        Rows::Quantised(QuantisedRows { bytes: &bytes[self.shift..], scale, offset })
    }

    /// Whether a matrix unit multiplies this, if there is one.
    fn suits_tiles(&self) -> bool {
        let half = |i| !self.is_quantised(i) && self.ty == Float::F16;
        !self.by_row
            && self.rows >= 64
            && (0..2).any(|span| (span == 1 || self.past > 0) && half(span + 1) && half(span + 3))
    }

    fn reference(&self, data: &Data) -> Vec<f64> {
        self.reference_of(data, |x| x)
    }

    /// The reference of numbers that `round` rounds: queries times the scale, keys and values that are floats.
    fn reference_of(&self, data: &Data, round: impl Fn(f32) -> f32) -> Vec<f64> {
        let (row_stride, head_stride) = self.strides();
        let mut out = vec![0.0; data.q.len()];
        for head in 0..self.heads() {
            for row in 0..self.rows {
                let at = row * row_stride + head * head_stride;
                let q: Vec<f32> = data.q[at..at + self.dim].iter().map(|q| round(q * self.scale)).collect();
                let rounded = |span: usize, first: u64, x: f32| match self.is_quantised(span as u64 + first) {
                    true => x,
                    false => round(x),
                };
                // Column `c` of all: which span, its length, its position.
                let place = |c: usize| if c < self.past { (0, self.past, c) } else { (1, self.rows, c - self.past) };
                let score = |c| {
                    let (span, len, j) = place(c);
                    let keys = &data.keys[span].1[head / self.group * self.dim * len..];
                    let at = |d: usize| if self.by_row { j * self.dim + d } else { d * len + j };
                    let dot: f64 =
                        (0..self.dim).map(|d| f64::from(q[d]) * f64::from(rounded(span, 1, keys[at(d)]))).sum();
                    let mask = if self.masked { f64::from(data.mask.1[row * self.total() + c]) } else { 0.0 };
                    dot + mask
                };
                let scores: Vec<f64> = (0..self.total()).map(score).collect();
                let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - highest).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for (c, w) in weights.iter().enumerate() {
                    let (span, len, j) = place(c);
                    let values = &data.values[span].1[(head / self.group * len + j) * self.dim..][..self.dim];
                    for (out, &v) in out[at..at + self.dim].iter_mut().zip(values) {
                        *out += w / sum * f64::from(rounded(span, 3, v));
                    }
                }
            }
        }
        out
    }

    fn view<'a>(&self, bytes: &'a [u8]) -> Floats<'a> {
        Floats::new(&bytes[self.shift..], self.ty)
    }

    fn run(&self, isa: Isa, pool: &Pool, data: &Data) -> Vec<f32> {
        let span = |i: usize, len| Span {
            keys: self.rows(&data.keys[i].0, data, i as u64 + 1),
            values: self.rows(&data.values[i].0, data, i as u64 + 3),
            len,
        };
        let spans = [span(0, self.past), span(1, self.rows)];
        let (row_stride, head_stride) = self.strides();
        let job = |out| Attention {
            q: &data.q,
            q_row_stride: row_stride,
            q_head_stride: head_stride,
            rows: self.rows,
            heads: self.heads(),
            kv_heads: self.kv_heads,
            dim: self.dim,
            scale: self.scale,
            keys_by_row: self.by_row,
            spans: &spans[usize::from(self.past == 0)..],
            mask: self.masked.then(|| self.view(&data.mask.0)),
            out,
            out_row_stride: row_stride,
            out_head_stride: head_stride,
        };
        let mut out = vec![f32::NAN; data.q.len()];
        attention_on(pool, isa, job, &mut out, &mut Vec::new());
        out
    }

    fn check(&self, pool: &Pool) {
        let data = self.data();
        let expected = self.reference(&data);
        for isa in isas() {
            // Scores up to about 100 in f32: weights good to a few 1e-5.
            let mut out = self.run(isa, pool, &data);
            if isa.2.is_some() && cfg!(target_arch = "x86_64") && self.suits_tiles() {
                self.check_tiles(&data, &expected, &mut out);
            }
            assert_close(&out, &expected, 1e-4, 1e-4, &format!("{self:?} on {}", isa.name()));
        }
    }

    /// Compares results of tiles with those of rounded numbers, and takes the exact ones for those that agree: blocks of few queries are not
    /// multiplied on tiles. Weights are rounded too, by 2^-8 of themselves at most.
    fn check_tiles(&self, data: &Data, expected: &[f64], out: &mut [f32]) {
        let rounded = self.reference_of(data, |x| half::bf16::from_f32(x).to_f32());
        let largest = data.values.iter().flat_map(|v| &v.1).fold(0.0f32, |m, v| m.max(v.abs()));
        let bound = f64::from(largest) / 256.0 + 1e-4;
        for ((out, &rounded), &expected) in out.iter_mut().zip(&rounded).zip(expected) {
            if (f64::from(*out) - rounded).abs() <= bound {
                *out = expected as f32;
            }
        }
    }
}

fn pool(threads: usize) -> Pool {
    Pool::new(&PoolOptions { threads, ..PoolOptions::default() }).expect("threads start")
}

fn problem() -> impl Strategy<Value = Problem> {
    // Some steps are wide enough for a matrix unit.
    let rows = prop_oneof![3 => 1usize..20, 1 => 64..if is_short() { 70usize } else { 150 }];
    let dim = prop_oneof![4 => 1usize..80, 1 => 80..=MAX_DIM];
    let shape = (rows, 1usize..4, 1usize..6, dim, prop_oneof![Just(0usize), 1usize..700]);
    let rest =
        (0.0f64..1.0, 0.0f64..1.0, 0usize..6, 0usize..2, any::<bool>(), any::<bool>(), any::<u64>(), any::<bool>());
    (shape, rest).prop_map(
        |((rows, kv_heads, group, dim, past), (valid, real, ty, shift, masked, by_head, seed, deep))| Problem {
            rows,
            kv_heads,
            group,
            // Blocks make whole heads.
            dim: if ty == 5 { dim.next_multiple_of(BLOCK) } else { dim },
            past,
            valid: (past as f64 * valid) as usize,
            owners: 1 + (seed % 4) as usize,
            real_rows: 1 + (rows as f64 * real) as usize,
            hidden: if deep { -65504.0 } else { -1000.0 },
            ty: Float::ALL[ty % 3],
            past_quantised: ty == 3 || ty == 4,
            new_quantised: ty == 4,
            by_row: ty == 5 || seed % 3 == 0,
            blocks: ty == 5,
            shift,
            scale: 0.25,
            masked,
            by_head,
            seed,
        },
    )
}

#[test]
fn properties_reach_what_a_matrix_unit_multiplies() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let problems = (0..200).map(|_| problem().new_tree(&mut runner).expect("a problem").current());
    let (mut tiles, mut odd) = (0, 0);
    for problem in problems {
        tiles += usize::from(problem.suits_tiles());
        odd += usize::from(problem.suits_tiles() && problem.dim % 2 == 1);
    }
    assert!(tiles > 2 && odd > 0, "{tiles} of 200, {odd} of them of odd heads");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(96)))]

    #[test]
    fn it_matches_the_definition(problem in problem(), threads in 1usize..4) {
        problem.check(&pool(threads));
    }
}

const DECODE: Problem = Problem {
    rows: 1,
    kv_heads: 3,
    group: 3,
    dim: 64,
    past: 2047,
    valid: 1500,
    owners: 1,
    real_rows: 1,
    hidden: -1000.0,
    ty: Float::F16,
    past_quantised: false,
    new_quantised: false,
    by_row: false,
    blocks: false,
    shift: 1,
    scale: 0.125,
    masked: true,
    by_head: false,
    seed: 11,
};

#[test]
fn few_heads_share_long_contexts_by_ranges() {
    let pool = pool(2);
    for valid in [0, 1, 511, 512, 1500, 2047] {
        for (i, rows) in [1, 2, 4].into_iter().enumerate() {
            let problem = Problem { valid, rows, real_rows: rows, past: 2048 - rows, ..DECODE };
            let problems = [
                problem,
                Problem { by_row: true, blocks: true, ..problem },
                Problem { past_quantised: true, ..problem },
                Problem { past_quantised: true, by_row: true, ..problem },
            ];
            some_of(i, problems).for_each(|problem| problem.check(&pool));
        }
    }
}

#[test]
fn many_rows_in_several_blocks() {
    let pool = pool(2);
    let shapes = [(2, 4, 64, 200), (1, 7, 128, 0), (1, 1, 80, 300), (1, 70, 16, 40)];
    for (i, (kv_heads, group, dim, past)) in shapes.into_iter().enumerate() {
        for rows in [70, 130] {
            let problem = Problem { rows, kv_heads, group, dim, past, valid: past / 2, real_rows: rows - 3, ..DECODE };
            let problems = [
                problem,
                Problem { owners: 4, ..problem },
                Problem { past_quantised: true, new_quantised: rows == 70, ..problem },
                Problem { by_row: true, blocks: dim % BLOCK == 0, ..problem },
            ];
            some_of(i, problems).for_each(|problem| problem.check(&pool));
        }
    }
}

#[test]
fn scratch_for_many_threads_serves_one() {
    let pool = pool(4);
    for rows in [1, 5, 20] {
        let problem = Problem { rows, real_rows: rows, past: 600, valid: 600, ..DECODE };
        let data = problem.data();
        let lens = [problem.past, rows];
        for isa in isas() {
            let len = |threads| scratch_len(isa, rows, problem.heads(), 3, problem.dim, &lens, threads);
            assert!(len(4) >= len(1), "{rows} rows on {}", isa.name());
        }
        // Inside a run, another run has one thread.
        let expected = problem.reference(&data);
        pool.run(&|worker| {
            if worker.index() == 0 {
                assert_close(&problem.run(Isa::detect(), &pool, &data), &expected, 1e-4, 1e-4, "inside a run");
            }
        });
    }
}

#[test]
fn hidden_columns_are_not_even_read() {
    // Numbers that would poison the result stand where the mask hides whole stretches.
    let problem = Problem { past: 512, valid: 40, ..DECODE };
    let expected = problem.reference(&problem.data());
    let mut data = problem.data();
    let poison = half::f16::NAN.to_ne_bytes();
    for head in 0..problem.kv_heads {
        for d in 0..problem.dim {
            for j in 64..problem.past {
                let key = problem.shift + 2 * ((head * problem.dim + d) * problem.past + j);
                let value = problem.shift + 2 * ((head * problem.past + j) * problem.dim + d);
                data.keys[0].0[key..key + 2].copy_from_slice(&poison);
                data.values[0].0[value..value + 2].copy_from_slice(&poison);
            }
        }
    }
    for isa in isas() {
        let out = problem.run(isa, &pool(2), &data);
        assert_close(&out, &expected, 1e-3, 1e-3, isa.name());
    }
}

#[test]
fn scores_that_are_no_numbers_make_the_result_so_wherever_they_are() {
    // Of the second head's keys, those of some columns and all. Two threads share three heads by three ranges; the second sees no number.
    let problem = Problem { past: 2044, valid: 2044, masked: false, ..DECODE };
    let of_head = problem.group * problem.dim;
    let stretches = mask::stretches(problem.past) + 1;
    let second = stretches / 3 * mask::STRETCH..stretches * 2 / 3 * mask::STRETCH;
    for columns in [0..512, second, 1024..2044, 0..2044, 700..701] {
        for by_row in [false, true] {
            let problem = Problem { by_row, ..problem };
            let mut data = problem.data();
            for (j, d) in columns.clone().flat_map(|j| (0..problem.dim).map(move |d| (j, d))) {
                let at =
                    if by_row { (problem.past + j) * problem.dim + d } else { (problem.dim + d) * problem.past + j };
                let at = problem.shift + 2 * at;
                data.keys[0].0[at..at + 2].copy_from_slice(&half::f16::NAN.to_ne_bytes());
            }
            for isa in isas() {
                let out = problem.run(isa, &pool(2), &data);
                for (i, x) in out.iter().enumerate() {
                    assert_eq!(
                        x.is_nan(),
                        i / of_head == 1,
                        "{x} at {i}, {columns:?}, by row: {by_row}, {}",
                        isa.name()
                    );
                }
            }
        }
    }
}
