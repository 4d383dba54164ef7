//! A token's result has the same bits as one of several new rows and as the only one behind a cache that holds the others,
//! wherever its columns lie there, as long as their order is kept.

use proptest::prelude::*;

use super::*;
use crate::kernels::Float;
use crate::kernels::testing::{encoded, isas, numbers};
use crate::pool::PoolOptions;
use crate::testing::cases;

#[derive(Clone, Copy, Debug)]
struct Problem {
    tokens: usize,
    kv_heads: usize,
    group: usize,
    dim: usize,
    /// Type of the cache: 0 to 2 floats, 3 for quantised, 4 for blocks with scales and keys by row.
    ty: usize,
    scale: f32,
    seed: u64,
}

const GRID: (f32, i32) = (0.013, -128);

/// The scale of a token's block, before it is rounded to float16.
fn block_scale(i: usize) -> f32 {
    0.003 + 0.001 * (i % 11) as f32
}

impl Problem {
    /// Keys (0) or values (1) of each token and head, as a cache of this type would give them back.
    fn numbers(&self, which: u64) -> Vec<f32> {
        let raw = numbers(self.tokens * self.kv_heads * self.dim, self.seed ^ which << 8);
        match self.ty {
            3 => raw.iter().map(|x| (x * 40.0).clamp(-128.0, 127.0).round() * GRID.0).collect(),
            // A scale for each block.
            4 => (raw.chunks(BLOCK).enumerate())
                .flat_map(|(i, block)| {
                    let scale = half::f16::from_f32(block_scale(i)).to_f32();
                    block.iter().map(move |x| (x * 40.0).clamp(-128.0, 127.0).round() * scale)
                })
                .collect(),
            ty => encoded(&raw, Float::ALL[ty], 0).1,
        }
    }

    /// Bytes of tokens `tokens`, at places `places` of `len`.
    fn stored(
        &self,
        numbers: &[f32],
        keys: bool,
        tokens: std::ops::Range<usize>,
        places: &[usize],
        len: usize,
    ) -> Vec<f32> {
        let mut out = vec![0.0; self.kv_heads * self.dim * len];
        for (token, &place) in tokens.zip(places) {
            for head in 0..self.kv_heads {
                for d in 0..self.dim {
                    let at = if keys && self.ty != 4 {
                        (head * self.dim + d) * len + place
                    } else {
                        (head * len + place) * self.dim + d
                    };
                    out[at] = numbers[(token * self.kv_heads + head) * self.dim + d];
                }
            }
        }
        out
    }

    /// The scales of tokens at those places of `len`, in bytes.
    fn scales(&self, places: &[usize], len: usize) -> Vec<u8> {
        let blocks = self.dim / BLOCK;
        let mut out = vec![0; if self.ty == 4 { 2 * self.kv_heads * len * blocks } else { 0 }];
        for at in 0..out.len() / 2 {
            let (head, row, block) = (at / blocks / len, at / blocks % len, at % blocks);
            let token = places.iter().position(|&place| place == row);
            let scale = token.map_or(0.0, |token| block_scale((token * self.kv_heads + head) * blocks + block));
            out[2 * at..2 * at + 2].copy_from_slice(&half::f16::from_f32(scale).to_ne_bytes());
        }
        out
    }

    /// Numbers `[kv_heads, len, dim]` as those of their blocks.
    fn whole(&self, numbers: &[f32], places: &[usize], len: usize) -> Vec<u8> {
        let scales = self.scales(places, len);
        let scale = |i: usize| half::f16::from_ne_bytes([scales[i / BLOCK * 2], scales[i / BLOCK * 2 + 1]]).to_f32();
        let whole = |(i, &x): (usize, &f32)| if scale(i) == 0.0 { 0.0 } else { (x / scale(i)).round() };
        numbers.iter().enumerate().map(whole).map(|x| (x as i32 - GRID.1) as u8).collect()
    }

    /// The results of tokens `first ..`, of which the ones before lie in the cache.
    fn run(&self, isa: Isa, pool: &Pool, first: usize, rows: usize, places: &[usize], past: usize) -> Vec<Vec<u32>> {
        let heads = self.kv_heads * self.group;
        let q = numbers(self.tokens * heads * self.dim, self.seed ^ 3);
        let q = &q[first * heads * self.dim..(first + rows) * heads * self.dim];
        let [keys, values] = [0, 1].map(|which| self.numbers(which));
        let old = [(&keys, true), (&values, false)].map(|(x, k)| self.stored(x, k, 0..first, &places[..first], past));
        let old = old.map(|x| match self.ty {
            3 => x.iter().map(|x| ((x / GRID.0).round() as i32 - GRID.1) as u8).collect(),
            4 => self.whole(&x, &places[..first], past),
            ty => encoded(&x, Float::ALL[ty], 0).0,
        });
        let all: Vec<usize> = (0..rows).collect();
        let new = [(&keys, true), (&values, false)].map(|(x, k)| self.stored(x, k, first..first + rows, &all, rows));
        let scales = [0, 1].map(|_| self.scales(&places[..first], past));
        let old_rows = |bytes, scales| match self.ty {
            4 => Rows::Blocks(BlockRows { bytes, scales, offset: GRID.1 }),
            3 => Rows::Quantised(QuantisedRows { bytes, scale: GRID.0, offset: GRID.1 }),
            ty => Floats::new(bytes, Float::ALL[ty]).into(),
        };
        let new_rows = |numbers| match self.ty {
            3 => Rows::Grid(GridRows { numbers, scale: GRID.0 }),
            _ => Floats::f32(numbers).into(),
        };
        let spans = [
            Span { keys: old_rows(&old[0], &scales[0]), values: old_rows(&old[1], &scales[1]), len: past },
            Span { keys: new_rows(&new[0]), values: new_rows(&new[1]), len: rows },
        ];
        let mut mask = vec![-1000.0f32; rows * (past + rows)];
        for (row, mask) in mask.chunks_exact_mut(past + rows).enumerate() {
            places[..first].iter().for_each(|&place| mask[place] = 0.0);
            mask[past..=past + row].fill(0.0);
        }
        let job = |out| Attention {
            q,
            q_row_stride: heads * self.dim,
            q_head_stride: self.dim,
            rows,
            heads,
            kv_heads: self.kv_heads,
            dim: self.dim,
            scale: self.scale,
            keys_by_row: self.ty == 4,
            spans: &spans,
            mask: Some(Floats::f32(&mask)),
            out,
            out_row_stride: heads * self.dim,
            out_head_stride: self.dim,
        };
        let mut out = vec![f32::NAN; rows * heads * self.dim];
        attention_on(pool, isa, job, &mut out, &mut Vec::new());
        out.chunks_exact(heads * self.dim).map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
    }
}

fn pool(threads: usize) -> Pool {
    Pool::new(&PoolOptions { threads, ..PoolOptions::default() }).expect("threads start")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn a_token_is_the_same_in_a_wide_step_and_behind_a_cache(
        (tokens, cut) in (2usize..60).prop_flat_map(|n| (Just(n), 0..n - 1)),
        kv_heads in 1usize..3, group in 1usize..6, dim in prop_oneof![4 => 1usize..80, 1 => 80..=MAX_DIM], ty in 0usize..5, gaps in any::<u64>(),
        wide_scores in any::<bool>(), seed: u64,
    ) {
        let scale = if wide_scores { 2.0 } else { 0.25 };
        let dim = if ty == 4 { dim.next_multiple_of(BLOCK) } else { dim };
        let problem = Problem { tokens, kv_heads, group, dim, ty, scale, seed };
        // The cache's columns keep their order, with gaps of up to 40 columns between them.
        let mut next = 0;
        let places: Vec<usize> = (0..tokens).map(|i| {
            let place = next + if gaps >> (i % 60) & 1 == 1 { (seed >> (i % 50)) as usize % 40 } else { 0 };
            next = place + 1;
            place
        }).collect();
        let packed: Vec<usize> = (0..tokens).collect();
        // One thread: no ranges of columns, which are joined in an order of their own.
        let pool = pool(1);
        for isa in isas() {
            let wide = problem.run(isa, &pool, cut, tokens - cut, &packed, 64);
            let whole = problem.run(isa, &pool, 0, tokens, &packed, 32);
            for (row, wide) in wide.iter().enumerate() {
                let token = cut + row;
                let alone = problem.run(isa, &pool, token, 1, &places, next + 3);
                prop_assert_eq!(wide, &alone[0], "token {} behind {} of {:?} on {}", token, cut, problem, isa.name());
                prop_assert_eq!(wide, &whole[token], "token {} of {:?} on {}", token, problem, isa.name());
            }
        }
    }
}

#[test]
fn long_contexts_in_several_blocks() {
    let pool = pool(2);
    for ty in 0..5 {
        let problem = Problem { tokens: 700, kv_heads: 2, group: 4, dim: 64, ty, scale: 0.125, seed: 5 };
        let places: Vec<usize> = (0..700).collect();
        for isa in isas() {
            let wide = problem.run(isa, &pool, 640, 60, &places, 1000);
            for token in [640, 650, 699] {
                let alone = problem.run(isa, &pool, token, 1, &places, 700);
                assert_eq!(wide[token - 640], alone[0], "token {token}, type {ty}, {}", isa.name());
            }
        }
    }
}
