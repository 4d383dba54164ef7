//! The products of a task, and where their sums lie.

use super::super::super::Mat;
use super::super::super::packed::Scales;
use super::super::super::simd::Simd;
use super::super::super::simd::matrix::{ASKED_ACTS, Product, TILE_BYTES, TILE_K, TILE_ROWS};
use super::unit::{Float, Tiles, open};
use super::{TILE_LEN, chunk_steps, pair_at};

/// Outputs that are multiplied at once: two groups.
const PAIR_OUTPUTS: usize = 2 * TILE_ROWS;
/// Sums of a pair of panels with a pair of groups: four tiles, the first panel's before the second's.
const BLOCK_LEN: usize = 4 * TILE_LEN;

/// Sums of a task's rows and outputs: `[pair of groups][part][pair of panels]` blocks of four tiles. A tile is consecutive, so that its 16
/// rows spread over the sets of a cache and share a page. *Parts* are the layer and its gate.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    at: *mut f32,
    parts: usize,
    pairs: usize,
}

impl Sums {
    pub(super) fn new(at: *mut f32, parts: usize, rows: usize) -> Self {
        Self { at, parts, pairs: rows.div_ceil(2 * TILE_ROWS) }
    }

    /// The block of pair `pair` of panels in turn `turn`, which counts pairs of groups and parts.
    fn block(self, turn: usize, pair: usize) -> *mut f32 {
        self.at.wrapping_add((turn * self.pairs + pair) * BLOCK_LEN)
    }

    /// The 16 sums of group `group` of part `part` for row `row`.
    fn line(self, part: usize, group: usize, row: usize) -> *mut f32 {
        let turn = group / 2 * self.parts + part;
        let (panel, line) = (row / TILE_ROWS, row % TILE_ROWS);
        self.block(turn, panel / 2).wrapping_add((panel % 2 * 2 + group % 2) * TILE_LEN + line * TILE_ROWS)
    }

    /// Sums `from .. from + count` of part `part` for row `row`, rounded up to whole groups; `from` begins one.
    ///
    /// # Safety
    /// The sums were computed; the CPU has the features.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f"))]
    pub(super) unsafe fn read<const N: usize>(
        self,
        s: Float,
        part: usize,
        row: usize,
        from: usize,
        count: usize,
        to: &mut [f32; N],
    ) {
        for (i, to) in to.as_chunks_mut::<TILE_ROWS>().0.iter_mut().enumerate().take(count.div_ceil(TILE_ROWS)) {
            let line = self.line(part, from / TILE_ROWS + i, row);
            for lane in (0..TILE_ROWS).step_by(Float::LANES) {
                // SAFETY: a line has 16 numbers.
                unsafe { s.store(to.as_mut_ptr().add(lane), s.load(line.add(lane))) };
            }
        }
    }
}

/// Multiplies `rows` rows of `acts` with the rows `n0 .. n0 + count` of each of `parts`.
///
/// # Safety
/// As [`super::outputs`]; `open` and `sums` are this thread's.
#[cfg_attr(
    target_arch = "x86_64",
    target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn products(
    tiles: &Tiles,
    parts: &[Mat<'_>],
    n0: usize,
    count: usize,
    acts: *const u8,
    rows: usize,
    steps: usize,
    open: *mut u8,
    sums: Sums,
) {
    let s = tiles.float();
    let panels = rows.div_ceil(TILE_ROWS);
    let groups = count.div_ceil(TILE_ROWS);
    let len = chunk_steps(steps);
    let turns = count.div_ceil(PAIR_OUTPUTS) * parts.len();
    let place = |turn: usize| (&parts[turn % parts.len()], turn / parts.len() * 2);
    for step0 in (0..steps).step_by(len) {
        let chunk = len.min(steps - step0);
        for turn in 0..turns {
            let (w, group) = place(turn);
            let wide = 2.min(groups - group);
            for g in 0..wide {
                // SAFETY: the group has outputs, and the chunk's tiles fit.
                unsafe { open::tiles(w, n0 + (group + g) * TILE_ROWS, step0, chunk, open.add(g * TILE_BYTES)) };
            }
            let (next, next_step0) = if turn + 1 < turns { (turn + 1, step0) } else { (0, step0 + len) };
            let (next_w, next_group) = place(next);
            // The next chunk of `X`, a part of it in each turn; the first one again while the last is multiplied, as the next task begins with it.
            let next_chunk = if step0 + len < steps { step0 + len } else { 0 };
            let next_acts = acts.wrapping_add(pair_at(rows, steps, 0, next_chunk) * TILE_BYTES);
            for pair in 0..sums.pairs {
                ask(s, next_w, n0 + next_group * TILE_ROWS, next_step0, steps, [pair, sums.pairs]);
                // SAFETY: panels and opened weights have `chunk` tiles from here on; there is a block of sums for each turn and pair.
                unsafe {
                    let product = Product {
                        acts: acts.add(pair_at(rows, steps, pair, step0) * TILE_BYTES),
                        weights: open,
                        steps: chunk,
                        sums: [0, 1, 2, 3].map(|tile| sums.block(turn, pair).add(tile * TILE_LEN)),
                        stride: 4 * TILE_ROWS,
                        next_sums: sums.block(turn, pair + 1),
                        next_acts: next_acts.wrapping_add((turn * sums.pairs + pair) * chunk * 64 * ASKED_ACTS),
                        add: step0 > 0,
                    };
                    tiles.multiply(2.min(panels - 2 * pair), wide, product);
                }
            }
        }
    }
    for (part, w) in parts.iter().enumerate() {
        let Some(packed) = w.packed().filter(|packed| packed.packing().scales == Scales::Row) else { continue };
        for group in 0..groups {
            let scales = packed.group(n0 / TILE_ROWS + group).cast::<f32>();
            for lane in (0..TILE_ROWS).step_by(Float::LANES) {
                // SAFETY: a group with scales of rows begins with them; these are its sums.
                unsafe {
                    let scales = s.load(scales.add(lane));
                    for row in 0..rows {
                        let line = sums.line(part, group, row).add(lane);
                        s.store(line, s.mul(s.load(line), scales));
                    }
                }
            }
        }
    }
}

/// Asks for a part of what [`open::tiles`] will read for two groups from step `step0` of `steps` on: part `part` of `parts`.
fn ask(s: Float, w: &Mat<'_>, n0: usize, step0: usize, steps: usize, [part, parts]: [usize; 2]) {
    let count = chunk_steps(steps).min(steps.saturating_sub(step0));
    let Some(packed) = w.packed() else { return };
    if count == 0 {
        return;
    }
    let packing = packed.packing();
    let blocks = packing.stretch_cols() / TILE_K;
    let from = packing.group_header() + step0 / blocks * packing.stretch_bytes();
    let lines = count.div_ceil(blocks) * packing.stretch_bytes() / 64;
    for group in (n0 / TILE_ROWS..packed.rows().div_ceil(TILE_ROWS)).take(2) {
        let from = packed.group(group).wrapping_add(from);
        for line in lines * part / parts..lines * (part + 1) / parts {
            s.prefetch_l2(from.wrapping_add(64 * line));
        }
    }
}
