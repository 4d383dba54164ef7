//! Products for many queries on a matrix unit, for caches of float16: AMX tiles of bf16, or AVX-512's products of it.
//!
//! Queries, keys, weights and values are rounded to bf16, each by at most 2^-8 of itself; sums are f32. That is what linear layers of such
//! a step cost as well (products of bytes a little more), and float16 keeps no more than 2^-11. A cache of float32 is not multiplied here.
//!
//! *Layouts*: operands in the order of [`Product`]. Queries and weights are `[pair of 16 queries][step][2]` tiles, keys and values
//! `[pair of 16 columns (numbers)][step][2]`.

use std::arch::x86_64::*;

use super::super::Isa;
use super::super::float::Float;
use super::super::math::PARTS_MAX;
use super::super::simd::avx512::Avx512;
use super::super::simd::avx512_bf16::pairs;
use super::super::simd::matrix::{Product, TILE_BYTES, TILE_K, TILE_ROWS};
use super::super::softmax::maximum;
use super::block::Block;
use super::source::Source;
use super::weights::Total;
use super::{Attention, COLS, Rows};

pub(super) use super::super::isa::Matrix as Unit;
pub(super) use super::super::simd::matrix_x86::Tiles;

/// Queries in whole pairs of panels, and in whole tiles of the other ways.
pub(super) const QUERY_UNIT: usize = 96;
/// Tiles along `k` of a block of weights.
const COL_STEPS: usize = COLS / TILE_K;

/// Whether the cache is one of float16, which bf16 rounds by little more.
pub(super) fn takes(job: &Attention<'_>) -> bool {
    let half = |rows: &Rows<'_>| matches!(rows, Rows::Floats(floats) if floats.ty() == Float::F16);
    !job.keys_by_row && job.spans.iter().any(|span| half(&span.keys) && half(&span.values))
}

/// The unit, if this CPU has one.
pub(super) fn unit(isa: Isa) -> Option<Unit> {
    isa.2
}

/// Shapes this thread's tiles.
pub(super) fn tiles(unit: Unit) -> Tiles {
    unit.tiles()
}

/// f32 numbers of the tiles of `queries` (a multiple of [`QUERY_UNIT`]) queries, of their weights, of keys and of values.
pub(super) fn len(queries: usize, dim: usize) -> [usize; 4] {
    let floats = |rows: usize, k: usize| rows * k / 2;
    let dim = dim.next_multiple_of(TILE_K);
    [floats(queries, dim), floats(queries, COLS), floats(COLS, dim), floats(dim, COLS)]
}

/// Where a block keeps its tiles.
#[derive(Clone, Copy)]
pub(super) struct Place {
    queries: *mut u8,
    weights: *mut u8,
    keys: *mut u8,
    values: *mut u8,
}

impl Place {
    /// In memory of [`len`] numbers.
    pub(super) fn new(at: *mut f32, queries: usize, dim: usize) -> Self {
        let [q, w, k, _] = len(queries, dim);
        let part = |skip: usize| at.wrapping_add(skip).cast();
        Self { queries: part(0), weights: part(q), keys: part(q + w), values: part(q + w + k) }
    }
}

/// Rounds the queries, which [`Block::begin`] gathered.
///
/// # Safety
/// The invariant of [`Block`], whose plan has a matrix unit.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn queries(block: &Block<'_>, place: Place) {
    // SAFETY: rows of `COLS` numbers, of which those from `dim` on are zeros up to a whole tile.
    unsafe { rows(block.queries, whole_pairs(block), block.job.dim, block.job.dim.div_ceil(TILE_K), place.queries) }
}

/// `scores[query][j] = queries[query] . keys[.., j]` for `count` columns at `keys` (rows of `dim`, `stride` apart).
///
/// # Safety
/// The invariant of [`Block`], whose plan has a matrix unit; the columns are readable.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn scores<R: Source>(
    tiles: &Tiles,
    block: &Block<'_>,
    place: Place,
    keys: R,
    stride: usize,
    count: usize,
) {
    let (dim, steps) = (block.job.dim, block.job.dim.div_ceil(TILE_K));
    let mut two = [[0.0f32; COLS]; 2];
    for d in (0..steps * TILE_K).step_by(2) {
        for (i, row) in two.iter_mut().enumerate() {
            if d + i < dim {
                // SAFETY: the row has `count <= COLS` columns.
                unsafe { keys.from((d + i) * stride).widen(tiles.float(), row.as_mut_ptr(), count) };
            } else {
                row.fill(0.0);
            }
        }
        // SAFETY: keys have tiles for `COLS` columns and all steps.
        unsafe { row_of_tiles(&two, count, d, steps, place.keys) };
    }
    for query in (0..block.count()).step_by(2 * TILE_ROWS) {
        for j in (0..count).step_by(2 * TILE_ROWS) {
            let pair = 2 * steps * TILE_BYTES;
            // SAFETY: queries and keys have these tiles; `padded` rows of `COLS` scores are there.
            unsafe {
                let product = Product {
                    acts: place.queries.add(query / (2 * TILE_ROWS) * pair),
                    weights: place.keys.add(j / (2 * TILE_ROWS) * pair),
                    steps,
                    sums: four(block.scores.add(query * COLS + j), COLS),
                    stride: 4 * COLS,
                    next_sums: block.scores,
                    next_acts: place.queries,
                    add: false,
                };
                tiles.multiply(2, 2, product);
            }
        }
    }
}

/// Makes weights of each query's first `count` scores: tiles of them, times `factor`, and their sum in its total.
///
/// # Safety
/// As [`scores`]; they are there.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn weigh(tiles: &Tiles, block: &Block<'_>, place: Place, count: usize, factor: f32) {
    let (s, steps) = (tiles.float(), count.div_ceil(TILE_K));
    for query in 0..block.count() {
        // SAFETY: memory of this query; weights have tiles for `COLS` columns of whole pairs of panels.
        unsafe {
            let scores = block.scores.add(query * COLS);
            let (highest, total) = block.raise(s, query, maximum(s, scores, count));
            let total = row_of_weights(s, scores, count, [highest, factor], total, line(place.weights, query, steps));
            total.store(s, block.total::<Avx512>(query));
        }
    }
}

/// The weights of a row's first `count` scores, `e^score / 2^highest`, times `factor` in its lines of tiles from `to` on, and the total with
/// them added, without it. Before they are rounded, weights are within 3e-6 of powers of a base that is `e` up to its last digit, which
/// all of a row share: what is divided in the end does not depend on it.
///
/// # Safety
/// Scores are readable up to a whole tile, the lines are writable, and the CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn row_of_weights(
    s: Avx512,
    scores: *const f32,
    count: usize,
    [highest, factor]: [f32; 2],
    total: Total<Avx512>,
    to: *mut u8,
) -> Total<Avx512> {
    /// `2^f` for `f` up to a half, the best of its degree: off by 2.6e-6 of itself at most.
    const POWER: [f32; 5] = [0.009_570_102, 0.055_917_86, 0.240_247_45, 0.693_121_8, 0.999_999_3];
    let of = |scores: __m512| {
        // What is not a number stays so, as the second operand.
        let held = _mm512_max_ps(_mm512_set1_ps(-PARTS_MAX), scores);
        let held = _mm512_min_ps(_mm512_set1_ps(PARTS_MAX), held);
        let power = _mm512_fmsub_ps(held, _mm512_set1_ps(std::f32::consts::LOG2_E), _mm512_set1_ps(highest));
        let whole = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(power);
        let rest = _mm512_sub_ps(power, whole);
        let [first, others @ ..] = POWER.map(|c| _mm512_set1_ps(c));
        let weight = others.into_iter().fold(first, |sum, c| _mm512_fmadd_ps(sum, rest, c));
        _mm512_scalef_ps(weight, whole)
    };
    let mut total = total;
    for step in 0..count.div_ceil(TILE_K) {
        let mask = u32::MAX >> TILE_K.saturating_sub(count - step * TILE_K);
        // SAFETY: the caller's promise.
        unsafe {
            let scores = scores.add(step * TILE_K);
            let low = _mm512_maskz_mov_ps(mask as u16, of(_mm512_loadu_ps(scores)));
            let high = _mm512_maskz_mov_ps((mask >> 16) as u16, of(_mm512_loadu_ps(scores.add(16))));
            // Blocks end at whole steps: which weights are added first does not depend on where.
            total = total.add(s, _mm512_add_ps(low, high));
            let [low, high] = [low, high].map(|weights| _mm512_mul_ps(weights, _mm512_set1_ps(factor)));
            let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
            _mm512_storeu_si512(to.add(2 * step * TILE_BYTES).cast(), both);
        }
    }
    total
}

/// Where the first line of row `row` is in tiles of the first operand, `steps` along `k`; the next ones are two tiles apart.
fn line(tiles: *mut u8, row: usize, steps: usize) -> *mut u8 {
    let (pair, panel, line) = (row / (2 * TILE_ROWS), row / TILE_ROWS % 2, row % TILE_ROWS);
    tiles.wrapping_add((2 * pair * steps + panel) * TILE_BYTES + 64 * line)
}

/// `sums[query] += sum_j weights[query][j] * values[j]`, of the weights that [`weigh`] made, for `count` rows of `dim` at `values`.
///
/// # Safety
/// As [`scores`]; the rows are readable.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn weighted<R: Source>(tiles: &Tiles, block: &Block<'_>, place: Place, values: R, count: usize) {
    let (dim, steps) = (block.job.dim, count.div_ceil(TILE_K));
    let mut two = [[0.0f32; COLS]; 2];
    for j in (0..steps * TILE_K).step_by(2) {
        for (i, row) in two.iter_mut().enumerate() {
            if j + i < count {
                // SAFETY: the row has `dim <= COLS` numbers.
                unsafe { values.from((j + i) * dim).widen(tiles.float(), row.as_mut_ptr(), dim) };
            } else {
                row.fill(0.0);
            }
        }
        // SAFETY: values have tiles for `dim` numbers and `COL_STEPS` steps.
        unsafe { row_of_tiles(&two, dim, j, steps, place.values) };
    }
    debug_assert!(steps <= COL_STEPS);
    for query in (0..block.count()).step_by(2 * TILE_ROWS) {
        for d in (0..dim).step_by(2 * TILE_ROWS) {
            let pair = 2 * steps * TILE_BYTES;
            // SAFETY: weights and values have these tiles; `padded` rows of `value_stride` sums, whole pairs of groups, are there.
            unsafe {
                let product = Product {
                    acts: place.weights.add(query / (2 * TILE_ROWS) * pair),
                    weights: place.values.add(d / (2 * TILE_ROWS) * pair),
                    steps,
                    sums: four(block.sums.add(query * block.value_stride + d), block.value_stride),
                    stride: 4 * block.value_stride,
                    next_sums: block.sums,
                    next_acts: place.weights,
                    add: true,
                };
                tiles.multiply(2, 2, product);
            }
        }
    }
}

/// Queries in whole pairs of panels.
fn whole_pairs(block: &Block<'_>) -> usize {
    block.count().next_multiple_of(2 * TILE_ROWS)
}

/// `n` rows of `count` numbers, `COLS` apart, as the first operand.
///
/// # Safety
/// They are readable, `to` has their tiles, and the CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn rows(from: *const f32, n: usize, count: usize, steps: usize, to: *mut u8) {
    for row in 0..n {
        let to = line(to, row, steps);
        for step in 0..steps {
            let first = step * TILE_K;
            let mask = u32::MAX >> TILE_K.saturating_sub(count - first);
            // SAFETY: masks keep the loads to the row's numbers; the tiles were promised.
            unsafe {
                let from = from.add(row * COLS + first);
                let low = _mm512_maskz_loadu_ps(mask as u16, from);
                let high = _mm512_maskz_loadu_ps((mask >> 16) as u16, from.wrapping_add(16));
                let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                _mm512_storeu_si512(to.add(2 * step * TILE_BYTES).cast(), both);
            }
        }
    }
}

/// Rows `k` and `k + 1` of `count` numbers as a row of each tile of the second operand; zeros follow them.
///
/// # Safety
/// `to` has the tiles, and the CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn row_of_tiles(two: &[[f32; COLS]; 2], count: usize, k: usize, steps: usize, to: *mut u8) {
    let (step, line) = (k / TILE_K, k % TILE_K / 2);
    for column in (0..count.next_multiple_of(2 * TILE_ROWS)).step_by(TILE_ROWS) {
        let mask = ((1u32 << count.saturating_sub(column).min(16)) - 1) as u16;
        let (pair, group) = (column / (2 * TILE_ROWS), column / TILE_ROWS % 2);
        // SAFETY: masks keep the loads to the numbers; the tiles were promised.
        unsafe {
            let even = _mm512_maskz_loadu_ps(mask, two[0].as_ptr().add(column));
            let odd = _mm512_maskz_loadu_ps(mask, two[1].as_ptr().add(column));
            let tile = 2 * (pair * steps + step) + group;
            _mm512_storeu_si512(to.add(tile * TILE_BYTES + 64 * line).cast(), pairs(even, odd));
        }
    }
}

/// Four tiles of sums at the start of two panels of rows of `stride` numbers.
fn four(at: *mut f32, stride: usize) -> [*mut f32; 4] {
    [0, 1, 2, 3].map(|tile| at.wrapping_add(tile / 2 * TILE_ROWS * stride + tile % 2 * TILE_ROWS))
}
