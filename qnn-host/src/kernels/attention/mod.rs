//! Attention over past and new keys and values, read where they are: `softmax(q k + mask) v` for groups of heads.
//!
//! *Shapes*: queries `[rows, heads]` of `dim` at any strides; spans of keys `[kv_heads, dim, len]` (sequence last), or
//! `[kv_heads, len, dim]` where they lie by row, and values `[kv_heads, len, dim]`; a mask `[rows, total]` that is added to the scores, whose columns are those of the spans in order;
//! results at any strides. Query head `h` reads key head `h / (heads / kv_heads)`.
//!
//! *Work grows with what is visible*: columns in stretches of [`mask::STRETCH`] that the mask hides from every row of a block
//! are neither read nor computed. Hidden means lower than the row's highest mask value by more than [`mask::HIDDEN_BELOW`], so
//! that the weight is 0 in f32 unless scores differ by hundreds. A row that is hidden everywhere equally is not hidden
//! at all by that rule: it gets the softmax of all its scores, finite and exact. Masks are added
//! relative to the row's highest, so large ones cost no digits.
//!
//! Neighbouring rows share such a block while they see much the same (`blocks`): rows of sequences in one cache do not compute
//! each other's columns.
//!
//! *Method*: blocks of up to `COLS` visible columns, softmax kept online (running maximum, sum and weighted values for each
//! query), all query heads of a group and several rows in one pass. Three ways to multiply: *direct* from memory for few
//! queries, where reading keys and values is all the cost, *packed* for many, where a block is widened into the cache
//! once and multiplied in register tiles, and on a matrix unit (`matrix`) in steps of many rows over a float16 cache, where there is one.
//! Quantised values of 8 bits are widened to whole numbers by either; their scales multiply scores and weights, except where blocks of 32
//! numbers have scales of their own. When direct, the memory that is read next is prefetched meanwhile (`ahead`).

mod ahead;
mod block;
mod blocks;
mod by_row;
mod direct;
pub mod mask;
#[cfg(target_arch = "x86_64")]
mod matrix;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_matrix_unit.rs"]
mod matrix;
mod packed;
#[cfg(test)]
mod same_bits;
mod source;
mod team;
#[cfg(test)]
mod tests;
mod weights;

use super::simd::A_STRIDE;
use super::{Floats, Isa, SharedMut};
use crate::pool::{Pool, Worker};
pub use source::{BLOCK, BlockRows, GridRows, QuantisedRows, Rows};

/// Longest head that these kernels take.
pub const MAX_DIM: usize = A_STRIDE;

/// Most columns of a block.
const COLS: usize = A_STRIDE;

/// A stretch of positions: past or new.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    /// `[kv_heads, dim, len]`, or `[kv_heads, len, dim]` where [`Attention::keys_by_row`].
    pub keys: Rows<'a>,
    /// `[kv_heads, len, dim]`.
    pub values: Rows<'a>,
    /// Positions.
    pub len: usize,
}

/// One attention.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// Queries; see the strides.
    pub q: &'a [f32],
    /// From one row (token) of queries to the next, in elements.
    pub q_row_stride: usize,
    /// From one head of a row to the next, in elements.
    pub q_head_stride: usize,
    /// Rows (tokens).
    pub rows: usize,
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Length of a head, at most [`MAX_DIM`].
    pub dim: usize,
    /// Multiplies the scores before the mask is added.
    pub scale: f32,
    /// Keys lie row by row, as values do.
    pub keys_by_row: bool,
    /// Keys and values, in the order of the mask's columns.
    pub spans: &'a [Span<'a>],
    /// `[rows, total]`; none means all visible.
    pub mask: Option<Floats<'a>>,
    /// Results; see the strides.
    pub out: SharedMut<'a, f32>,
    /// From one row of results to the next, in elements.
    pub out_row_stride: usize,
    /// From one head of a row to the next, in elements.
    pub out_head_stride: usize,
}

/// f32 numbers of scratch that [`attention`] needs for these shapes with `threads` threads, or alone (as in a run inside a
/// run).
pub fn scratch_len(
    isa: Isa,
    rows: usize,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    span_lens: &[usize],
    threads: usize,
) -> usize {
    let need = |threads| {
        let plan = team::Plan::new(isa, rows, heads, kv_heads, dim, span_lens.iter().copied(), threads);
        plan.shared_len() + threads * plan.own_len()
    };
    // Fewer threads divide the work otherwise, and may want more memory each.
    need(threads).max(need(1))
}

/// Computes `job`.
///
/// # Safety
/// A team kernel: every thread of `worker`'s run calls it with the same arguments; between this call and any other use
/// of `out` and of `scratch`, and any other use of [`Worker::take`], lies a barrier. `out` and `scratch` overlap nothing.
///
/// # Panics
/// When an operand does not fit the shapes, or `scratch` is shorter than [`scratch_len`].
pub unsafe fn attention(worker: Worker<'_>, isa: Isa, job: &Attention<'_>, scratch: SharedMut<'_, f32>) {
    if job.rows == 0 || job.heads == 0 {
        return;
    }
    check(job);
    let lens = job.spans.iter().map(|s| s.len);
    // The plan decides what is summed with what: the pool does, not how many of its threads this run takes.
    let plan = team::Plan::new(isa, job.rows, job.heads, job.kv_heads, job.dim, lens, worker.team());
    let need = plan.shared_len() + worker.count() * plan.own_len();
    assert!(scratch.len() >= need, "{} numbers of scratch where {need} are needed", scratch.len());
    // SAFETY: operands fit the shapes as checked; the caller's promise is the one that the body asks for.
    unsafe { team::run(isa, worker, job, &plan, scratch) };
}

fn check(job: &Attention<'_>) {
    let Attention { rows, heads, kv_heads, dim, .. } = *job;
    assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "{heads} heads cannot share {kv_heads} evenly");
    assert!((1..=MAX_DIM).contains(&dim), "heads of {dim} numbers, not 1 to {MAX_DIM}");
    let reach = |row, head| (rows - 1) * row + (heads - 1) * head + dim;
    assert!(reach(job.q_row_stride, job.q_head_stride) <= job.q.len(), "queries reach past their slice");
    assert!(reach(job.out_row_stride, job.out_head_stride) <= job.out.len(), "results reach past their slice");
    let mut total = 0;
    for span in job.spans {
        let need = kv_heads * dim * span.len;
        assert_eq!((span.keys.len(), span.values.len()), (need, need), "a span of {} positions", span.len);
        for rows in [&span.keys, &span.values] {
            if let Rows::Blocks(rows) = rows {
                assert!(dim.is_multiple_of(BLOCK), "heads of {dim} numbers are no whole blocks of {BLOCK}");
                assert_eq!(rows.scales.len(), need / BLOCK * 2, "a scale for each block");
            }
        }
        assert!(job.keys_by_row || !matches!(span.keys, Rows::Blocks(_)), "keys in blocks lie by row");
        total += span.len;
    }
    assert!(total > 0, "attention to nothing");
    if let Some(mask) = job.mask {
        assert_eq!(mask.len(), rows * total, "the mask is {rows} rows of {total}");
    }
}

/// One attention as a run of its own: for tests and benches. `scratch` grows as needed.
pub fn attention_on<'a>(
    pool: &Pool,
    isa: Isa,
    job: impl FnOnce(SharedMut<'a, f32>) -> Attention<'a>,
    out: &'a mut [f32],
    scratch: &mut Vec<f32>,
) {
    let job = job(SharedMut::new(out));
    let lens: Vec<usize> = job.spans.iter().map(|s| s.len).collect();
    let need = scratch_len(isa, job.rows, job.heads, job.kv_heads, job.dim, &lens, pool.threads());
    if scratch.len() < need {
        scratch.resize(need, 0.0);
    }
    let scratch = SharedMut::new(scratch);
    pool.run(&|worker| {
        // SAFETY: all threads of this run make this one call; `out` and `scratch` are borrowed mutably by this function, so
        // nothing else reaches them, and the run ends before they are used again.
        unsafe { attention(worker, isa, &job, scratch) }
    });
}
