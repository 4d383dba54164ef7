//! How the threads divide an attention: what each task is, and where its scratch lies.
//!
//! A task is a key head, a part of its query heads, a block of rows, and (with few queries and few heads) a range of columns.
//! Ranges leave partial results - maximum, sum, weighted values for each query - that are joined after a barrier.
//! Which rows share a block depends on the mask ([`super::blocks`]), unless columns are divided.

use super::super::isa::simd_fn;
use super::super::linear::MATRIX_ROWS;
use super::super::simd::Simd;
use super::super::{Isa, SharedMut};
use super::block::{Block, OnMatrix, Queries};
use super::blocks::{self, Blocks};
use super::weights::TOTAL_VECTORS;
use super::{Attention, COLS, mask, matrix};
use crate::pool::Worker;

/// Most queries (rows times heads) of a task.
const MAX_QUERIES: usize = 128;
/// The same on a matrix unit, where splitting keys and values costs more beside the products.
const MAX_MATRIX_QUERIES: usize = 2 * matrix::QUERY_UNIT;
/// Rounds queries up to whole register tiles of any instruction set.
const QUERY_UNIT: usize = 12;
/// Up to this number of queries of a task are multiplied directly from memory.
pub(super) const DIRECT_QUERIES: usize = 16;
/// Masks up to this size are looked through by each thread for itself, which is cheaper than a barrier.
const SMALL_MASK: usize = 16 << 10;
/// Floats of a cache line.
const LINE: usize = 16;
/// Shortest range of columns that is worth a task.
const MIN_RANGE: usize = 512;

/// The division of one attention. The same on every thread.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    rows: usize,
    kv_heads: usize,
    /// Query heads of a key head.
    group: usize,
    pub(super) dim: usize,
    /// Numbers from query to query in the weighted values: `dim` in whole pairs of vectors.
    pub(super) value_stride: usize,
    /// Numbers of a query's total.
    total_len: usize,
    /// Query heads of a task.
    part: usize,
    /// Most rows of a task.
    block: usize,
    /// Stretches of all spans together.
    stretches: usize,
    /// Ranges of columns.
    ranges: usize,
    pub(super) direct: bool,
    small_mask: bool,
    /// The unit that multiplies, if there is one and the step is wide.
    matrix: Option<matrix::Unit>,
}

impl Plan {
    pub(super) fn new(
        isa: Isa,
        rows: usize,
        heads: usize,
        kv_heads: usize,
        dim: usize,
        lens: impl Iterator<Item = usize> + Clone,
        threads: usize,
    ) -> Self {
        let group = heads / kv_heads;
        let total: usize = lens.clone().sum();
        let matrix = matrix::unit(isa).filter(|_| rows >= MATRIX_ROWS);
        let most = if matrix.is_some() { MAX_MATRIX_QUERIES } else { MAX_QUERIES };
        let part = group.min(most / 2);
        // Full blocks, but no fewer tasks than threads can share.
        let fair = (rows * kv_heads * group.div_ceil(part)).div_ceil(2 * threads).max(1);
        let block = (most / part).min(fair).clamp(1, rows.max(1));
        let direct = part * block <= DIRECT_QUERIES;
        let tasks = kv_heads * group.div_ceil(part) * rows.div_ceil(block);
        let ranges = if !direct || tasks.is_multiple_of(threads) || tasks > 4 * threads {
            1
        } else {
            (total / MIN_RANGE).clamp(1, 8)
        };
        Self {
            rows,
            kv_heads,
            group,
            dim,
            value_stride: dim.next_multiple_of(vector_pair(isa)),
            total_len: TOTAL_VECTORS * vector_pair(isa) / 2,
            part,
            block,
            stretches: lens.map(mask::stretches).sum(),
            ranges,
            direct,
            small_mask: rows * total <= SMALL_MASK,
            matrix: matrix.filter(|_| !direct),
        }
    }

    fn parts(&self) -> usize {
        self.group.div_ceil(self.part)
    }

    /// Most queries of a task, in whole tiles.
    pub(super) fn queries(&self) -> usize {
        self.whole_tiles(self.part * self.block)
    }

    /// Queries in whole register tiles of any instruction set, or of the matrix unit.
    pub(super) fn whole_tiles(&self, queries: usize) -> usize {
        queries.next_multiple_of(if self.matrix.is_some() { matrix::QUERY_UNIT } else { QUERY_UNIT })
    }

    /// Tasks of one range, of `blocks` blocks.
    fn tasks(&self, blocks: usize) -> usize {
        self.kv_heads * self.parts() * blocks
    }

    /// Classes of all rows, and the highest mask value of each.
    fn map_len(&self) -> usize {
        self.rows * self.stretches + self.rows
    }

    /// A range's results: weighted values, maximum and total of each query.
    fn partial_len(&self) -> usize {
        self.queries() * (self.value_stride + 1 + self.total_len)
    }

    /// Scratch that threads share.
    pub(super) fn shared_len(&self) -> usize {
        let map = if self.small_mask { 0 } else { self.map_len() };
        let blocks = self.rows.div_ceil(self.block);
        let partials = if self.ranges > 1 { self.tasks(blocks) * self.ranges * self.partial_len() } else { 0 };
        map + partials
    }

    /// The end of it: tiles, and what it takes to begin them with a cache line.
    fn tiles_len(&self) -> usize {
        if self.matrix.is_none() { 0 } else { LINE + matrix::len(self.queries(), self.dim).iter().sum::<usize>() }
    }

    /// The tiles of the thread whose scratch ends at `end`.
    fn tiles_at(&self, end: *mut f32) -> matrix::Place {
        let start = end.wrapping_sub(self.tiles_len());
        let start = start.wrapping_add(start.align_offset(LINE * size_of::<f32>()));
        matrix::Place::new(start, self.queries(), self.dim)
    }

    /// Scratch of each thread.
    pub(super) fn own_len(&self) -> usize {
        let map = if self.small_mask { self.map_len() } else { 0 };
        let packed = if self.direct { 0 } else { self.dim * COLS + COLS * self.value_stride };
        let work = blocks::scratch_len(self.rows, self.stretches) + 2 * self.queries() * COLS + self.partial_len();
        map + work + packed + self.tiles_len()
    }
}

simd_fn! {
    fn vector_pair() -> usize = vector_pair_body
}

#[inline(always)]
fn vector_pair_body<S: Simd>(_: S) -> usize {
    2 * S::LANES
}

simd_fn! {
    /// # Safety
    /// As [`super::attention`], operands and scratch checked.
    pub(super) unsafe fn run(worker: Worker<'_>, job: &Attention<'_>, plan: &Plan, scratch: SharedMut<'_, f32>) = body
}

/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn body<S: Simd>(s: S, worker: Worker<'_>, job: &Attention<'_>, plan: &Plan, scratch: SharedMut<'_, f32>) {
    let lens = job.spans.iter().map(|span| span.len);
    let shared = scratch.ptr();
    // SAFETY: the scratch is as long as the plan says: the shared part, then one part for each thread.
    let own = unsafe { shared.add(plan.shared_len() + worker.index() * plan.own_len()) };
    let end = own.wrapping_add(plan.own_len());
    let map_len = plan.map_len();
    let (map, own, partials) = if plan.small_mask {
        // SAFETY: the map is the first part of this thread's scratch.
        (own, unsafe { own.add(map_len) }, shared)
    } else {
        // SAFETY: the map is the first part of the shared scratch.
        (shared, own, unsafe { shared.add(map_len) })
    };
    let highest = map.wrapping_add(plan.rows * plan.stretches);
    // Each thread looks at all rows for itself, or at those that it takes.
    let mut block = if plan.small_mask { 0 } else { worker.take() };
    while block * plan.block < plan.rows {
        for row in block * plan.block..plan.rows.min((block + 1) * plan.block) {
            // SAFETY: the row's classes and its number lie inside the map; only one thread (or each in its own map) looks at it.
            unsafe {
                let to = map.add(row * plan.stretches);
                mask::classify(s, job.mask, row, 1, lens.clone(), highest.add(row), to);
            }
        }
        block = if plan.small_mask { block + 1 } else { worker.take() };
    }
    if !plan.small_mask {
        worker.barrier();
    }

    let tiles = plan.matrix.filter(|_| matrix::takes(job)).map(matrix::tiles);
    let on_matrix = tiles.as_ref().map(|tiles| OnMatrix { tiles, place: plan.tiles_at(end) });
    // SAFETY: the classes were written by this thread or before the barrier; this thread's scratch is laid out by `own_len`.
    let (mut blocks, own) = unsafe {
        let classes = std::slice::from_raw_parts(map, plan.rows * plan.stretches);
        let len = blocks::scratch_len(plan.rows, plan.stretches);
        let part = std::slice::from_raw_parts_mut(own, len);
        let even = plan.ranges > 1 || job.mask.is_none();
        (Blocks::new(classes, plan.rows, plan.stretches, plan.block, even, part), own.add(len))
    };
    let tasks = plan.tasks(blocks.len());
    // Long rows first: with a causal mask most is visible to the last rows.
    for number in worker.tasks(tasks * plan.ranges) {
        let (task, range) = (tasks - 1 - number / plan.ranges, number % plan.ranges);
        let queries = place(job, plan, &blocks, task);
        // SAFETY: this thread's scratch is laid out by `own_len`; a partial result belongs to one task and range.
        unsafe {
            let state = if plan.ranges > 1 { partials.add(number * plan.partial_len()) } else { own };
            let block = Block::new(job, plan, queries, state, own.add(plan.partial_len()), highest.add(queries.row0));
            let block = block.with_matrix(on_matrix);
            let classes = blocks.classes(queries.row0, queries.rows);
            block.begin(s);
            block.absorb_range(s, classes, range, plan.ranges);
            if plan.ranges == 1 {
                block.store(s);
            }
        }
    }
    if plan.ranges > 1 {
        worker.barrier();
        for number in worker.tasks(tasks) {
            let queries = place(job, plan, &blocks, tasks - 1 - number);
            // SAFETY: the ranges of this task were finished before the barrier; this thread alone joins them.
            unsafe {
                let first = partials.add(number * plan.ranges * plan.partial_len());
                let block =
                    Block::new(job, plan, queries, first, own.add(plan.partial_len()), highest.add(queries.row0));
                for range in 1..plan.ranges {
                    block.join(s, first.add(range * plan.partial_len()));
                }
                block.store(s);
            }
        }
    }
}

/// Which queries task `task` is about.
#[inline(always)]
fn place(job: &Attention<'_>, plan: &Plan, blocks: &Blocks<'_>, task: usize) -> Queries {
    // Heads vary fastest: neighbours in time share a block of rows, hence its length.
    let (block, rest) = (task / (plan.kv_heads * plan.parts()), task % (plan.kv_heads * plan.parts()));
    let (kv_head, part) = (rest / plan.parts(), rest % plan.parts());
    let (rows, first) = (blocks.rows(block), part * plan.part);
    debug_assert!(rows.end <= job.rows, "blocks are of the job's rows");
    Queries {
        kv_head,
        head0: kv_head * plan.group + first,
        heads: plan.part.min(plan.group - first),
        row0: rows.start,
        rows: rows.len(),
    }
}
